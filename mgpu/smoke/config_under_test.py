"""Which config is tested, on which ranks, and what are the ranks to do with it?"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mgpu.config import facts
from mgpu.config.reading import DEFAULT_CONFIG
from mgpu.errors import USAGE, MgpuError
from mgpu.launchers.gpu_selection import chosen_gpus, wanted_gpus
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.request import Request
from mgpu.snapshot import Config, Driver, Snapshot
from mgpu.text import plural

_STRATEGIES = {"FSDP": "fsdp", "DEEPSPEED": "deepspeed"}
# fmt: off
# What a rehearsal on the CPU leaves out of the config: it is about GPUs, or accelerate has it on them only.
_OF_GPUS = frozenset({
    "gpu_ids", "enable_cpu_affinity", "fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config",
    "fp8_config", "fp16", "machine_rank", "main_process_ip", "rdzv_backend", "same_network",
})
# fmt: on


@dataclass(frozen=True)
class Subject:
    """What is tested. `changed`: not the file as it stands, so that a pass verifies nothing."""

    config: Config
    name: str = ""  # what the user calls it
    changed: bool = False
    strategy: str = "ddp"  # of the file, also where the ranks are started otherwise
    cpu: bool = False  # the ranks stay on the CPU, GPUs or not: --cpu, or the file says so
    notes: tuple[str, ...] = ()  # what is otherwise than in the file, in words
    environment: Mapping[str, str] = field(default_factory=dict)  # set for the launch


def of(request: Request, scratch: Path) -> Subject:
    """The config under test; for `--cpu N` one of N ranks made for the occasion."""
    if request.cpu is not None and not request.config and not Path(DEFAULT_CONFIG).exists():
        path = scratch / DEFAULT_CONFIG
        path.write_text(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\n"
            f"num_processes: {request.cpu}\nnum_machines: 1\nuse_cpu: true\n",
            "utf-8",
        )
        return Subject(facts(path, ask_loader=False), "a made-up config", changed=True, cpu=True)
    path = Path(named(request))
    if not path.exists():
        raise MgpuError(
            f"no config {path}.\n  mgpu configure            writes one\n  mgpu smoke-test --cpu 2   needs none",
            USAGE,
        )
    config = facts(path, ask_loader=False)
    strategy = _STRATEGIES.get(config.distributed_type or "", "ddp")
    if request.cpu is None:
        return Subject(config, str(path), strategy=strategy, cpu=config.on_cpu)
    return _rehearsed(config, request.cpu, strategy, scratch)


def named(request: Request) -> str:
    """The config that is meant: by the option, the environment, or where configure writes it."""
    return request.config or os.environ.get("MGPU_CONFIG") or DEFAULT_CONFIG


def _rehearsed(config: Config, ranks: int, strategy: str, scratch: Path) -> Subject:
    """A copy for the CPU, with what the CPU can of it: accelerate refuses fp16 and fp8 there."""
    shape: dict[str, Any] = {
        "distributed_type": "MULTI_GPU",
        "num_processes": ranks,
        "num_machines": 1,
        "use_cpu": True,
    }
    notes = []
    if config.precision in ("fp16", "fp8"):
        shape["mixed_precision"] = "bf16"
        notes.append(f"{config.precision} needs a GPU: rehearsed with bf16.")
    copy = _copy(config, shape, _OF_GPUS, scratch)
    return Subject(copy, config.path, changed=True, strategy=strategy, cpu=True, notes=tuple(notes))


def _copy(config: Config, changes: Mapping[str, Any], without: frozenset[str], scratch: Path) -> Config:
    """The config with some values changed, in a file of its own that verifies nothing."""
    path = scratch / (Path(config.path).name or DEFAULT_CONFIG)
    kept = {key: value for key, value in config.values.items() if key not in without}
    path.write_text(json.dumps({**kept, **changes}, default=str), "utf-8")  # JSON is YAML
    return replace(facts(path, ask_loader=False), sha256=None)


def narrowed(subject: Subject, snapshot: Snapshot, request: Request, scratch: Path) -> tuple[Subject, Snapshot]:
    """`--gpus`: the config for these GPUs, and the machine as if there were no others. Raises MgpuError (2)."""
    if not request.gpus:
        return subject, snapshot
    config, visible = subject.config, snapshot.visible
    if subject.cpu:
        raise MgpuError(f"--gpus {request.gpus}: {subject.name} runs on the CPU (use_cpu)", USAGE)
    if config.num_machines > 1:
        raise MgpuError(f"--gpus chooses on one machine; {subject.name} spans {config.num_machines}", USAGE)
    chosen = chosen_gpus(snapshot, wanted_gpus(request.gpus), request.gpus)
    uuids = {gpu.index: gpu.uuid for gpu in snapshot.gpus or ()}
    if unnamed := [index for index in chosen if not uuids[index]]:
        raise MgpuError(f"--gpus {request.gpus}: NVML does not tell the UUID of GPU {unnamed[0]}", USAGE)
    shape: dict[str, Any] = {"num_processes": len(chosen)}
    if len(chosen) == 1 and config.distributed_type == "MULTI_GPU":
        shape["distributed_type"] = "NO"
    elif len(chosen) > 1 and config.distributed_type == "NO":
        shape["distributed_type"] = "MULTI_GPU"
    mask = ",".join(str(uuids[index]) for index in chosen)
    assert visible is not None
    which = ", ".join(map(str, chosen))
    return (
        replace(
            subject,
            config=_copy(config, shape, frozenset({"gpu_ids"}), scratch),
            changed=True,
            notes=(*subject.notes, f"With {plural(len(chosen), 'GPU')} {which} only: a pass stamps nothing."),
            environment={**subject.environment, "CUDA_VISIBLE_DEVICES": mask},
        ),
        replace(snapshot, visible=replace(visible, gpus=chosen, value=mask, by_number=False)),
    )


def orders(request: Request, subject: Subject, driver: Driver, folder: Path) -> Orders:
    """What every rank is told."""
    config = subject.config
    return Orders(
        folder=str(folder.resolve()),
        world=config.num_processes or 1,
        nodes=config.num_machines,
        node=request.node or 0,
        level=request.level,
        rungs=request.rungs,
        strategy=subject.strategy,  # type: ignore[arg-type]
        precision=config.precision or "no",  # type: ignore[arg-type]
        accumulate=config.accumulate or 1,
        cpu=subject.cpu or not driver.any_gpu,
        stall_s=request.stall_s,
        start_limit_s=request.start_s,
        checkpoint_folder=request.checkpoint_folder or None,
        scaling=request.scaling,
        fill_percent=request.fill_percent,
    )
