"""The machines of `mgpu doctor --demo`: those of `tests/machines`, with a fault each.

`python -m tests.demo_machines` writes them to `mgpu/demos/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpu.report.demo import DEMOS
from mgpu.snapshot import (
    Driver,
    Gap,
    GpuProcess,
    KernelEvent,
    KernelLog,
    Snapshot,
    System,
    TorchRuntime,
    bus_address,
    to_json,
)
from tests import machines
from tests.checks import facts

FOLDER = Path(__file__).parents[1] / "mgpu" / "demos"
GIB = 1 << 30


def _today(name: str) -> Snapshot:
    """A machine whose source is older, with a newer driver and torch, which FSDP2 needs."""
    return machines.machine(name, driver={"version": "580.65.06", "cuda": [13, 0]}, torch="2.9.0+cu130")


def _lost_gpu() -> Snapshot:
    """As the probes leave it: NVML returns no handle for the GPU, CUDA counts none, the kernel logged Xid 79."""
    machine = _today("hgx_h100_x8")
    gpus = list(machine.gpus or ())
    address = bus_address(gpus[5].pci or "").rpartition(".")[0]
    gpus[5] = facts.lost(5)
    line = f"NVRM: Xid (PCI:{address}): 79, pid=41217, name=python, GPU has fallen off the bus."
    event = KernelEvent("xid", 79, address, "python (pid 41217)", 840.0, line, 5)
    why = "cudaGetDeviceCount(): Error 999: unknown error"
    return replace(
        machine,
        gpus=tuple(gpus),
        links=tuple(link for link in machine.links or () if 5 not in (link.a, link.b)),
        kernel_log=KernelLog("/dev/kmsg", (event,), 86400.0),
        torch_runtime=replace(_runtime(machine), cuda_available=False, cuda_error=why, device_count=0, devices=()),
    )


def _runtime(machine: Snapshot) -> TorchRuntime:
    assert machine.torch_runtime is not None
    return machine.torch_runtime


def _with_gpu(machine: Snapshot, index: int, **fields: Any) -> Snapshot:
    gpus = tuple(replace(gpu, **fields) if gpu.index == index else gpu for gpu in machine.gpus or ())
    return replace(machine, gpus=gpus)


def _nvlinks_down() -> Snapshot:
    machine = _today("dgx_a100_x8")
    gpu = (machine.gpus or ())[3]
    links = tuple(replace(one, active=one.link not in (4, 5)) for one in gpu.nvlinks or ())
    return _with_gpu(machine, 3, nvlinks=links)


def _small_shm() -> Snapshot:
    machine = machines.machine("docker_a100_x4")
    assert isinstance(machine.system, System)
    return replace(machine, system=replace(machine.system, shm_total_bytes=64 << 20, shm_free_bytes=64 << 20))


def _driver_mismatch() -> Snapshot:
    machine = machines.machine("l40s_x4")
    nodes = tuple(f"/dev/nvidia{index}" for index in range(4))
    words = "Failed to initialize NVML: Driver/library version mismatch"
    gap = Gap("no_driver", "NVML does not respond: LIB_RM_VERSION_MISMATCH")
    unknown = ("gpus", "links", "visible")
    why = "Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver"
    return replace(
        machine,
        gpus=None,
        links=None,
        visible=None,
        driver=Driver("LIB_RM_VERSION_MISMATCH", words, None, None, None, "580.65.06", 4, nodes, True),
        torch_runtime=replace(_runtime(machine), cuda_available=False, cuda_error=why, device_count=0, devices=()),
        gaps={**machine.gaps, **dict.fromkeys(unknown, gap)},
    )


def _other_user() -> Snapshot:
    process = GpuProcess(28114, "compute", 21 * GIB, "python", "other-user", False)
    machine = machines.machine("rtx4090_x2")
    return _with_gpu(machine, 1, processes=(process,), memory_free_bytes=2 * GIB, utilization_percent=98)


MACHINES: dict[str, Callable[[], Snapshot]] = {
    "h100-lost-gpu": _lost_gpu,
    "h100-ecc": lambda: _with_gpu(_today("hgx_h100_x8"), 2, ecc_uncorrected_volatile=7, ecc_uncorrected_aggregate=7),
    "h100-healthy": lambda: _today("hgx_h100_x8"),
    "a100-nvlink-down": _nvlinks_down,
    "a100-small-shm": _small_shm,
    "l40s-driver-mismatch": _driver_mismatch,
    "rtx4090-other-user": _other_user,
    "no-gpu": lambda: machines.machine("recorded_vm_without_gpu"),
}


def text(name: str) -> str:
    """The file of a demo: a line for each fact that is known."""
    saved = json.loads(json.dumps(to_json(MACHINES[name]())))
    known = {key: value for key, value in saved.items() if value is not None}
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in known.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    for demo in DEMOS:
        (FOLDER / f"{demo.name}.json").write_text(text(demo.name), encoding="utf-8")
