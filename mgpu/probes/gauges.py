"""How full and how busy is each GPU, again and again, and who is on it?

Runs in a child process that ends when its reader goes away (`mgpu/probes/gpu_monitor.py`): NVML may hang or abort.
Standard library and pynvml only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any


def probe(
    interval_s: float = 1.0, mark: str = "", later_s: float = 0.0, later_interval_s: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield {"number": n, "gauges": {UUID: [bytes used, bytes in all, busy percent]}} each `interval_s`; None is not
    known. With a `mark` (NAME=value of an environment) five more: watts, watts at most, and of the compute processes
    [pid, bytes, whether they bear the mark]. After `later_s` only each `later_interval_s`.
    """
    import pynvml

    pynvml.nvmlInit()
    handles = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _asked(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = None if handle is None else _asked(pynvml, pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not None:
            handles[uuid.decode() if isinstance(uuid, bytes) else uuid] = handle
    marked: dict[int, bool | None] = {}
    began, number = time.monotonic(), 0
    while True:
        number += 1
        found = {uuid: _reading(pynvml, handle) for uuid, handle in handles.items()}
        if mark:
            listed = {uuid: _processes(pynvml, handle) for uuid, handle in handles.items()}
            pids = {pid for processes in listed.values() for pid, _ in processes or ()}
            marked = {pid: marked[pid] if marked.get(pid) is not None else _bears(pid, mark) for pid in pids}
            for uuid, handle in handles.items():
                processes = listed[uuid]
                found[uuid] += _power(pynvml, handle)
                found[uuid].append(None if processes is None else [[pid, size, marked[pid]] for pid, size in processes])
        yield {"number": number, "gauges": found}
        late = later_interval_s and time.monotonic() - began > later_s
        time.sleep(later_interval_s if late else interval_s)


def _reading(pynvml: Any, handle: Any) -> list[Any]:
    memory = _asked(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _asked(pynvml, pynvml.nvmlDeviceGetUtilizationRates, handle)
    return [memory and memory.used, memory and memory.total, None if rates is None else rates.gpu]


def _power(pynvml: Any, handle: Any) -> list[float | None]:
    """Watts drawn, and the limit."""
    asked = (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetEnforcedPowerLimit)
    return [None if (found := _asked(pynvml, call, handle)) is None else found / 1000 for call in asked]


def _processes(pynvml: Any, handle: Any) -> list[tuple[int, int | None]] | None:
    """The pid and the memory of each compute process, as NVML counts them: in a container maybe the host's pids."""
    found = _asked(pynvml, pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if found is None else [(process.pid, process.usedGpuMemory) for process in found]


def _bears(pid: int, mark: str) -> bool | None:
    """Whether a process has the mark in its environment; None: there is no such process here."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark.encode() in file.read().split(b"\0")
    except PermissionError:
        return False  # somebody else's
    except OSError:
        return None if not os.path.exists(f"/proc/{pid}") else False


def _asked(pynvml: Any, call: Callable[[Any], Any], argument: Any) -> Any:
    """The answer; None where this GPU does not give one."""
    try:
        return call(argument)
    except pynvml.NVMLError:
        return None
