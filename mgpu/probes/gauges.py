"""How full and how busy is each GPU, again and again?

Runs in a child process that ends when its reader goes away (`mgpu/gauges.py`): NVML may hang or abort. Standard library
and pynvml only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any


def probe(interval_s: float = 1.0) -> Iterator[dict[str, Any]]:
    """Yield {"gauges": {UUID: [bytes used, bytes in all, busy percent]}} each `interval_s`; None is not known."""
    import pynvml

    pynvml.nvmlInit()
    handles = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _asked(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = None if handle is None else _asked(pynvml, pynvml.nvmlDeviceGetUUID, handle)
        if uuid is not None:
            handles[uuid.decode() if isinstance(uuid, bytes) else uuid] = handle
    while True:
        yield {"gauges": {uuid: _reading(pynvml, handle) for uuid, handle in handles.items()}}
        time.sleep(interval_s)


def _reading(pynvml: Any, handle: Any) -> list[int | None]:
    memory = _asked(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _asked(pynvml, pynvml.nvmlDeviceGetUtilizationRates, handle)
    return [memory and memory.used, memory and memory.total, None if rates is None else rates.gpu]


def _asked(pynvml: Any, call: Callable[[Any], Any], argument: Any) -> Any:
    """The answer; None where this GPU does not give one."""
    try:
        return call(argument)
    except pynvml.NVMLError:
        return None
