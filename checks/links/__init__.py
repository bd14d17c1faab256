"""Can the GPUs talk to each other at the speed they were bought for?

* nvswitch: have the NVSwitches been set up, and are they sound?
* nvlink: are all NVLinks up, fast, and used?
* peer_access: can the GPUs reach each other's memory?
* numa_nodes: are the GPUs close to each other and to the CPUs of this process?
* _pairs: which pairs of GPUs share the run, and their peer access.
"""

from mgpu.check import Family

ORDER = ("nvswitch", "nvlink", "peer_access", "numa_nodes")
FAMILY = Family(gpu_only=True)
