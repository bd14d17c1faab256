"""Which config is tested, on which ranks, and what are the ranks to do with it?"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from mgpu.config import facts
from mgpu.errors import USAGE, MgpuError
from mgpu.smoke.ranks.orders import Orders
from mgpu.smoke.request import Request
from mgpu.snapshot import Config, Driver

DEFAULT_CONFIG = "accelerate.yaml"
# `import torch` from a cold network file system takes tens of seconds; nothing else on the way may.
START_LIMIT_S = 90.0
_STRATEGIES = {"FSDP": "fsdp", "DEEPSPEED": "deepspeed"}


@dataclass(frozen=True)
class Subject:
    """What is tested. `changed`: not the file as it stands, so that a pass verifies nothing."""

    config: Config
    changed: bool = False
    made_up: bool = False  # --cpu without any config


def of(request: Request, scratch: Path) -> Subject:
    """The config under test; for `--cpu N` one of N ranks made for the occasion."""
    if request.cpu is not None and not request.config and not Path(DEFAULT_CONFIG).exists():
        path = scratch / DEFAULT_CONFIG
        path.write_text(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\n"
            f"num_processes: {request.cpu}\nnum_machines: 1\nuse_cpu: true\n",
            "utf-8",
        )
        return Subject(facts(path, ask_loader=False), changed=True, made_up=True)
    path = Path(request.config or os.environ.get("MGPU_CONFIG") or DEFAULT_CONFIG)
    if not path.exists():
        raise MgpuError(
            f"no config {path}.\n  mgpu configure            writes one\n  mgpu smoke-test --cpu 2   needs none",
            USAGE,
        )
    config = facts(path, ask_loader=False)
    if request.cpu is None:
        return Subject(config)
    shape = {"distributed_type": "MULTI_GPU", "num_processes": request.cpu, "num_machines": 1, "use_cpu": True}
    copy = scratch / path.name
    copy.write_text(json.dumps({**config.values, **shape}), "utf-8")  # JSON is YAML
    return Subject(replace(facts(copy, ask_loader=False), sha256=None), changed=True)


def orders(request: Request, config: Config, driver: Driver, folder: Path) -> Orders:
    """What every rank is told."""
    world = config.num_processes or 1
    return Orders(
        folder=str(folder.resolve()),
        world=world,
        nodes=config.num_machines,
        node=request.node or 0,
        level=request.level,
        rungs=request.rungs,
        strategy=_STRATEGIES.get(config.distributed_type or "", "ddp"),  # type: ignore[arg-type]
        precision=config.precision or "no",  # type: ignore[arg-type]
        accumulate=config.accumulate or 1,
        cpu=request.cpu is not None or not driver.any_gpu,
        stall_s=request.stall_s,
        start_limit_s=START_LIMIT_S,
        checkpoint_folder=request.checkpoint_folder or None,
        scaling=request.scaling,
        fill_percent=request.fill_percent,
    )
