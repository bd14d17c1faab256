"""What did the driver log about GPUs in the kernel log?

The log is history, while NVML reports the current state (`gpu`, `driver`). So these checks are warnings at most, and
events before a logged recovery or before the driver was last loaded are ignored.

* hardware: Xids of faulty hardware or firmware
* programs: Xids of programs, unknown ones, and those of earlier days
* driver_messages: everything else that it logged
* _events: which events still count, and how they are shown.
"""

from __future__ import annotations

from mgpu.check import Family

FAMILY = Family(gpu_only=True)
ORDER = ("hardware", "programs", "driver_messages")
