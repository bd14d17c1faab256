"""Do environment variables, and the files NCCL reads after them, change how the ranks start, talk and compute?

* debugging: is something left switched on that is meant for finding faults?
* launcher: do variables steer the launcher, accelerate or the threads of the ranks?
* nccl_names, nccl_values: does NCCL read the variables that are set for it, and understand their values?
* nccl_tuning: does a setting of NCCL cost bandwidth, or worse, on this machine?
* pytorch: what do the variables of PyTorch do to the process group and to memory?
* _settings: which variables are set, and where. _pytorch: what PyTorch makes of its own.
"""

from mgpu.check import Family

ORDER = ("debugging", "launcher", "nccl_names", "nccl_tuning", "nccl_values", "pytorch")
FAMILY = Family(stops_start="always")
