"""Do environment variables and NCCL's configuration files change how the ranks start, communicate and compute?

* cuda_names: does CUDA read the variables that are set for it?
* debugging: is a debugging mode still switched on?
* launcher: do variables change what the launcher, accelerate or the ranks' CPU threads do?
* nccl_names, nccl_values: does NCCL read the variables that are set for it, and understand their values?
* nccl_tuning: does an NCCL setting cost bandwidth, or more than that, on this machine?
* pytorch: do PyTorch's variables do what they are set for?
* allocator: do the options of its memory allocator take effect?
* gloo: does gloo use the network that it should?
* _pytorch: the variables PyTorch reads. _transports: the transports NCCL would choose by default.
"""

from mgpu.check import Family

ORDER = (
    "cuda_names",
    "debugging",
    "launcher",
    "nccl_names",
    "nccl_tuning",
    "nccl_values",
    "pytorch",
    "allocator",
    "gloo",
)
FAMILY = Family(stops_start="always")
