"""The job's config for some of its nodes, in which only the number of ranks may differ between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from mgpu.config import reading
from mgpu.snapshot import Config

# Keys that the derived config sets itself.
_OURS = ("num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port", "rdzv_backend")


def of_nodes(
    config: Config, ranks_on: Callable[[str], int], nodes: Sequence[str], port: int, address: str = ""
) -> tuple[str, dict[str, str]]:
    """Return the text of the config, and node -> text for nodes with another number of ranks than the first one."""
    ranks = list(map(ranks_on, nodes))
    texts = [derive_config(config, ranks, nodes, port, address, place) for place in range(len(nodes))]
    return texts[0], {node: text for node, text in zip(nodes, texts, strict=True) if text != texts[0]}


def derive_config(
    config: Config, ranks: Sequence[int], nodes: Sequence[str], port: int, address: str = "", place: int = 0
) -> str:
    """Return the job's config for some of its nodes, as JSON, which is valid YAML.

    `ranks`: on each of them. If they differ, the total is as if all had as many as the one that reads it, number
    `place`: launchers only use its share. `address`: of the first node; by default its name.
    """
    values: dict[str, Any] = {key: value for key, value in config.values.items() if key not in _OURS}
    world = ranks[place] * len(nodes)
    values |= {"num_machines": len(nodes), "num_processes": world}
    if len(nodes) > 1:
        values |= {"main_process_ip": address or nodes[0], "main_process_port": port}
    kind = config.distributed_type
    if world == 1 and kind == "MULTI_GPU":
        values["distributed_type"] = "NO"
    elif world > 1 and kind in ("NO", None):
        values["distributed_type"] = "MULTI_GPU"
    differ = f"{reading.ranks_of_machines(ranks)}\n" if len(set(ranks)) > 1 else ""
    return differ + json.dumps(values, default=str)
