"""Are the GPUs' PCIe links healthy, and do they allow peer-to-peer transfers?

* connection: is every GPU on the bus, with its full width and generation, and without errors?
* peer_traffic: does something redirect or translate peer-to-peer transfers?
* topology: does NCCL get the real PCI topology?
* _peer_links: pairs of GPUs that use peer access over PCIe.
"""

from __future__ import annotations

from mgpu.check import Family

FAMILY = Family(gpu_only=True)
ORDER = ("connection", "peer_traffic", "topology")
