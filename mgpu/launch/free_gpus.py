"""How does `mgpu launch --wait SEC` wait until no other process uses the GPUs of a run?

NVML is queried again every few seconds, in a child process. Nothing is reserved: another process can take a GPU between
the last look and the start. The pre-flight, which runs right after, looks again and then refuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mgpu import probes
from mgpu.launch.request import Request
from mgpu.launchers import gpu_selection
from mgpu.messages import notice
from mgpu.quantities import duration_text
from mgpu.report import output
from mgpu.snapshot import Snapshot, gpu_in_use

_INTERVAL_S = 2.0


def when_free(request: Request, gather: Callable[[], Snapshot]) -> Snapshot:
    """Return the facts before a launch; with `--wait`, gathered again after the GPUs of the run became free."""
    snapshot = gather()
    busy = _busy(request, snapshot) if request.wait_s else []
    if not busy:
        return snapshot
    _wait(request, snapshot, busy)
    return gather()


def _wait(request: Request, snapshot: Snapshot, busy: list[str]) -> None:
    """Wait until the GPUs of the run are free, at most `request.wait_s`."""
    start = time.monotonic()
    notice(f"waiting up to {duration_text(request.wait_s)} for {'; '.join(busy)} (Ctrl-C stops)")
    with output.progress() as show:
        while busy and (left := request.wait_s - (time.monotonic() - start)) > 0:
            if show:
                show(f"{busy[0]}, for {duration_text(time.monotonic() - start)}")
            time.sleep(min(_INTERVAL_S, left))
            now = probes.gather([probes.NVML])
            busy = _busy(request, replace(snapshot, gpus=now.gpus))
    waited = duration_text(time.monotonic() - start)
    free = f"free after {waited}; nothing reserves the GPUs until the start"
    notice(f"still in use after {waited}" if busy else free)


def _busy(request: Request, snapshot: Snapshot) -> list[str]:
    few = gpu_selection.select_gpus(request.gpus, snapshot)
    return gpu_in_use.find_busy_gpus(few.config, few.snapshot, cpu=few.config.on_cpu)
