"""Is there an NVIDIA driver, does it answer, and can this process use its devices?

* library: can the driver's libraries be loaded, and do they fit its module?
* start: does every NVML call return, and how long does the driver take to start?
* gpus: does the driver have every GPU on the PCI bus, and did it lose one?
* device_nodes: can this process open the device files in /dev?
* _nvml: what they share.
"""

from __future__ import annotations

from mgpu.check import Family

FAMILY = Family(gpu_only=True, stops_start="on_gpus", known_at_start=True)
ORDER = ("library", "start", "gpus", "device_nodes")
