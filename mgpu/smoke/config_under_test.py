"""Which config is tested, on which ranks, and what must the ranks do?"""

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
# Keys that a CPU rehearsal drops from the config: they concern GPUs, or accelerate supports them on GPUs only.
_OF_GPUS = frozenset({
    "gpu_ids", "enable_cpu_affinity", "fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config",
    "fp8_config", "fp16", "machine_rank", "main_process_ip", "rdzv_backend", "same_network",
})
# fmt: on


@dataclass(frozen=True)
class Subject:
    """The config under test. `changed`: it differs from the user's file, so a pass does not verify that file."""

    config: Config
    name: str = ""  # the path as the user gave it
    generated: bool = False  # by mgpu for this test: there is no file of the user
    changed: bool = False
    strategy: str = "ddp"  # of the file, even if the ranks are started differently
    cpu: bool = False  # the ranks use the CPU even if there are GPUs (--cpu, or use_cpu in the file)
    notes: tuple[str, ...] = ()  # differences from the file, for the screen
    environment: Mapping[str, str] = field(default_factory=dict)  # set for the launch


def load_subject(request: Request, scratch: Path) -> Subject:
    """Return the config under test; for `--cpu N` without a config, a generated one with N ranks.

    Raises MgpuError (2) if there is no config.
    """
    if request.cpu is not None and not request.config and not Path(DEFAULT_CONFIG).exists():
        path = scratch / DEFAULT_CONFIG
        path.write_text(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\n"
            f"num_processes: {request.cpu}\nnum_machines: 1\nuse_cpu: true\n",
            "utf-8",
        )
        return Subject(facts(path, ask_loader=False), "a generated config", generated=True, changed=True, cpu=True)
    path = Path(config_path(request))
    if not path.exists():
        raise MgpuError(
            f"no config {path}\n  mgpu configure            creates one\n  mgpu smoke-test --cpu 2   works without one",
            USAGE,
        )
    config = facts(path, ask_loader=False)
    strategy = _STRATEGIES.get(config.distributed_type or "", "ddp")
    if request.cpu is None:
        return Subject(config, str(path), strategy=strategy, cpu=config.on_cpu)
    return _cpu_subject(config, request.cpu, strategy, scratch)


def config_path(request: Request) -> str:
    """Return the path of the config: from --config, MGPU_CONFIG, or the default."""
    return request.config or os.environ.get("MGPU_CONFIG") or DEFAULT_CONFIG


def _cpu_subject(config: Config, ranks: int, strategy: str, scratch: Path) -> Subject:
    """Return a copy of the config for the CPU, where accelerate rejects fp16 and fp8."""
    shape: dict[str, Any] = {
        "distributed_type": "MULTI_GPU",
        "num_processes": ranks,
        "num_machines": 1,
        "use_cpu": True,
    }
    notes = []
    if config.precision in ("fp16", "fp8"):
        shape["mixed_precision"] = "bf16"
        notes.append(f"{config.precision} needs a GPU: testing with bf16 instead.")
    copy = _copy(config, shape, _OF_GPUS, scratch)
    return Subject(copy, config.path, changed=True, strategy=strategy, cpu=True, notes=tuple(notes))


def _copy(config: Config, changes: Mapping[str, Any], without: frozenset[str], scratch: Path) -> Config:
    """Return the config with some values changed, in a separate file without a hash to verify."""
    path = scratch / (Path(config.path).name or DEFAULT_CONFIG)
    kept = {key: value for key, value in config.values.items() if key not in without}
    path.write_text(json.dumps({**kept, **changes}, default=str), "utf-8")  # JSON is YAML
    return replace(facts(path, ask_loader=False), sha256=None)


def select_gpus(subject: Subject, snapshot: Snapshot, request: Request, scratch: Path) -> tuple[Subject, Snapshot]:
    """Apply `--gpus`: return the config for these GPUs, and the machine with only them. Raises MgpuError (2)."""
    if not request.gpus:
        return subject, snapshot
    config, visible = subject.config, snapshot.visible
    if subject.cpu:
        raise MgpuError(f"--gpus {request.gpus}: {subject.name} runs on the CPU (use_cpu)", USAGE)
    if config.num_machines > 1:
        raise MgpuError(f"--gpus works on one machine only; {subject.name} uses {config.num_machines}", USAGE)
    chosen = chosen_gpus(snapshot, wanted_gpus(request.gpus), request.gpus)
    uuids = {gpu.index: gpu.uuid for gpu in snapshot.gpus or ()}
    if unnamed := [index for index in chosen if not uuids[index]]:
        raise MgpuError(f"--gpus {request.gpus}: NVML does not report the UUID of GPU {unnamed[0]}", USAGE)
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
            notes=(*subject.notes, f"Only {plural(len(chosen), 'GPU')} {which}: a pass will not be recorded."),
            environment={**subject.environment, "CUDA_VISIBLE_DEVICES": mask},
        ),
        replace(snapshot, visible=replace(visible, gpus=chosen, value=mask, by_number=False)),
    )


def rank_orders(request: Request, subject: Subject, driver: Driver, folder: Path) -> Orders:
    """Return the instructions for every rank."""
    config = subject.config
    return Orders(
        folder=str(folder.resolve()),
        world=config.world or 1,
        of_nodes=config.ranks_of_machines,
        nodes=config.num_machines,
        node=request.node or 0,
        level=request.level,
        rungs=request.stages,
        strategy=subject.strategy,  # type: ignore[arg-type]
        precision=config.precision or "no",  # type: ignore[arg-type]
        accumulate=config.accumulate or 1,
        cpu=subject.cpu or not driver.any_gpu,
        stall_s=request.stall_s,
        start_limit_s=request.start_s,
        checkpoint_folder=request.checkpoint_folder or None,
        scaling=request.scaling is not False,
        fill_percent=request.fill_percent,
    )
