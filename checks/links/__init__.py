"""Can the GPUs communicate at full speed?

* nvswitch: are the NVSwitches set up and healthy?
* nvlink: are all NVLinks up, fast, and used?
* peer_access: can the GPUs access each other's memory?
* consumer_cards: does peer access between consumer cards do what the driver reports?
* numa_nodes: are the GPUs close to each other and to the CPUs of this process?
* _pairs: the pairs of GPUs in the run, and their peer access.
"""

from mgpu.check import Family

ORDER = ("nvswitch", "nvlink", "peer_access", "consumer_cards", "numa_nodes")
FAMILY = Family(gpu_only=True)
