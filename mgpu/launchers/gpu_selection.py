"""`--gpus`: which ranks remain, and which flags and variables does the launcher need?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mgpu.errors import USAGE, MgpuError
from mgpu.launchers import argv, stamp
from mgpu.snapshot import Config, Snapshot


@dataclass(frozen=True)
class Selection:
    """What is launched: the unchanged config, or the config for some of the GPUs."""

    snapshot: Snapshot  # with the config, and with only the selected GPUs
    flags: tuple[str, ...] = ()  # for accelerate's launcher
    env: Mapping[str, str] = field(default_factory=dict)
    ranks_before: int | None = None

    @property
    def config(self) -> Config:
        """Return the config of these ranks."""
        assert self.snapshot.config is not None
        return self.snapshot.config


def select_gpus(gpus: str, snapshot: Snapshot) -> Selection:
    """Return machine and config for the GPUs of `--gpus` ("": all). Raises MgpuError (2)."""
    config, driver, visible = snapshot.config, snapshot.driver, snapshot.visible
    assert config is not None and driver is not None
    if not gpus:
        return Selection(snapshot)
    wanted = wanted_gpus(gpus)
    if config.num_machines > 1:
        raise MgpuError(f"--gpus works on one machine only; {config.path} uses {config.num_machines}", USAGE)
    if config.on_cpu or (argv.on_cpu(config, driver) and isinstance(wanted, int)):
        if not isinstance(wanted, int):
            raise MgpuError(f"--gpus {gpus}: {config.path} runs on the CPU (use_cpu)", USAGE)
        return _make_selection(config, snapshot, wanted)
    if not driver.any_gpu:
        count = len(wanted) if isinstance(wanted, tuple) else wanted
        raise MgpuError(f"--gpus {gpus}: no GPU here. For {count} CPU ranks use --gpus {count}", USAGE)
    chosen = chosen_gpus(snapshot, wanted, gpus)
    uuids = {gpu.index: gpu.uuid for gpu in snapshot.gpus or ()}
    if unnamed := [index for index in chosen if not uuids[index]]:
        raise MgpuError(f"--gpus {gpus}: NVML does not report the UUID of GPU {unnamed[0]}", USAGE)
    assert visible is not None
    mask = ",".join(str(uuids[index]) for index in chosen)
    narrow = replace(snapshot, visible=replace(visible, gpus=chosen, value=mask, by_number=False))
    return replace(_make_selection(config, narrow, len(chosen)), env={"CUDA_VISIBLE_DEVICES": mask})


def limit_visible(few: Selection) -> Selection:
    """Return the selection for a script that starts one rank per visible GPU: it sees as many as the config uses."""
    config, snapshot = few.config, few.snapshot
    ranks, driver = config.ranks_here, snapshot.driver
    if few.env or not ranks or driver is None or not driver.any_gpu or config.on_cpu or snapshot.visible is None:
        return few
    uuids = {gpu.index: gpu.uuid for gpu in snapshot.gpus or ()}
    usable = [index for index in snapshot.visible.gpus or () if uuids.get(index)]
    if config.values.get("gpu_ids") not in (None, "all") or ranks >= len(usable):
        return few
    return replace(few, env={"CUDA_VISIBLE_DEVICES": ",".join(str(uuids[index]) for index in usable[:ranks])})


def _make_selection(config: Config, snapshot: Snapshot, ranks: int) -> Selection:
    shape: dict[str, Any] = {"num_processes": ranks}
    flags = ["--num_processes", str(ranks)]
    if config.values.get("gpu_ids") not in (None, "all"):
        flags += ["--gpu_ids", "all"]  # all in CUDA_VISIBLE_DEVICES
    if ranks == 1 and config.distributed_type == "MULTI_GPU":
        shape["distributed_type"] = "NO"
    elif ranks > 1 and config.distributed_type == "NO":
        shape["distributed_type"] = "MULTI_GPU"
        flags.append("--multi_gpu")
    from mgpu.config.reading import digest

    values = {**{key: value for key, value in config.values.items() if key != "gpu_ids"}, **shape}
    fewer = replace(config, values=values, sha256=digest(values, config.launch_flags))
    snapshot = replace(snapshot, config=fewer)
    return Selection(replace(snapshot, stamp=stamp.current_stamp(snapshot)), tuple(flags), {}, config.num_processes)


def chosen_gpus(snapshot: Snapshot, wanted: int | tuple[int, ...], text: str) -> tuple[int, ...]:
    """Return the NVML indices of the GPUs selected by `--gpus`. Raises MgpuError (2)."""
    gpus = {gpu.index: gpu for gpu in snapshot.gpus or ()}
    visible = snapshot.visible.gpus if snapshot.visible else ()
    usable = [index for index in visible if index in gpus and not gpus[index].lost]
    if not gpus or not usable:
        raise MgpuError(f"--gpus {text}: no usable GPU here. To test without GPUs: --cpu 2", USAGE)
    if isinstance(wanted, int):
        if wanted > len(usable):
            raise MgpuError(
                f"--gpus {text}: only {len(usable)} usable here (for the GPU with index {text}: --gpus {text},)", USAGE
            )
        return tuple(usable[:wanted])
    for index in wanted:
        if index not in gpus:
            raise MgpuError(f"--gpus {text}: no GPU {index}, GPUs are numbered 0 to {max(gpus)}", USAGE)
        if index not in visible:
            raise MgpuError(f"--gpus {text}: CUDA_VISIBLE_DEVICES hides GPU {index} here", USAGE)
        if gpus[index].lost:
            raise MgpuError(f"--gpus {text}: GPU {index} does not respond ({gpus[index].lost})", USAGE)
    return wanted


def wanted_gpus(text: str) -> int | tuple[int, ...]:
    """Parse `--gpus`: a number, or with a comma a list of NVML indices. Raises MgpuError (2)."""
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,4}(?:,[0-9]{1,4})*,?", text):
        raise MgpuError(f"--gpus {text}: give a number of GPUs (2) or a list of indices (0,2 or 3,)", USAGE)
    if "," not in text:
        if int(text) < 1:
            raise MgpuError(f"--gpus {text}: give at least 1. To test without GPUs: --cpu 2", USAGE)
        return int(text)
    indices = tuple(int(part) for part in text.split(",") if part)
    if len(set(indices)) < len(indices):
        raise MgpuError(f"--gpus {text}: lists a GPU twice", USAGE)
    return indices
