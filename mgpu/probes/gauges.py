"""How full and how busy is each GPU over time, and which processes use it?

Runs in a child process that exits with its reader (`mgpu/probes/gpu_monitor.py`), because NVML can hang or abort.
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
    """Yield one reading of all GPUs every `interval_s`, and every `later_interval_s` after `later_s`.

    A reading is {"number": n, "gauges": {UUID: [bytes used, bytes total, busy percent]}}; None is not known. With a
    `mark` (NAME=value in a process's environment), three more values follow: watts, power limit in watts, and a list of
    compute processes [pid, bytes, has the mark].
    """
    import pynvml

    pynvml.nvmlInit()
    handles = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _query(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = None if handle is None else _query(pynvml, pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not None:
            handles[uuid.decode() if isinstance(uuid, bytes) else uuid] = handle
    marked: dict[int, bool | None] = {}
    began, number = time.monotonic(), 0
    while True:
        number += 1
        found = {uuid: _read_gauges(pynvml, handle) for uuid, handle in handles.items()}
        if mark:
            listed = {uuid: _processes(pynvml, handle) for uuid, handle in handles.items()}
            pids = {pid for processes in listed.values() for pid, _ in processes or ()}
            marked = {pid: marked[pid] if marked.get(pid) is not None else _has_mark(pid, mark) for pid in pids}
            for uuid, handle in handles.items():
                processes = listed[uuid]
                found[uuid] += _power(pynvml, handle)
                found[uuid].append(None if processes is None else [[pid, size, marked[pid]] for pid, size in processes])
        yield {"number": number, "gauges": found}
        late = later_interval_s and time.monotonic() - began > later_s
        time.sleep(later_interval_s if late else interval_s)


def _read_gauges(pynvml: Any, handle: Any) -> list[Any]:
    memory = _query(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _query(pynvml, pynvml.nvmlDeviceGetUtilizationRates, handle)
    return [memory and memory.used, memory and memory.total, None if rates is None else rates.gpu]


def _power(pynvml: Any, handle: Any) -> list[float | None]:
    """Return the power draw and its limit, in watts."""
    calls = (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetEnforcedPowerLimit)
    return [None if (found := _query(pynvml, call, handle)) is None else found / 1000 for call in calls]


def _processes(pynvml: Any, handle: Any) -> list[tuple[int, int | None]] | None:
    """Return PID and memory of each compute process. In a container these can be the host's PIDs."""
    found = _query(pynvml, pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if found is None else [(process.pid, process.usedGpuMemory) for process in found]


def _has_mark(pid: int, mark: str) -> bool | None:
    """Whether a process has the mark in its environment; None if there is no such process here."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark.encode() in file.read().split(b"\0")
    except PermissionError:
        return False  # another user's process
    except OSError:
        return None if not os.path.exists(f"/proc/{pid}") else False


def _query(pynvml: Any, call: Callable[[Any], Any], argument: Any) -> Any:
    """Return the result of an NVML call; None if it fails for this GPU."""
    try:
        return call(argument)
    except pynvml.NVMLError:
        return None
