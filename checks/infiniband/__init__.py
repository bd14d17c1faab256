"""Will traffic between machines take the fast network: InfiniBand, RoCE or EFA?

All of it matters to runs over several machines only. NCCL uses every adapter whose port is ACTIVE, unless NCCL_IB_HCA
chooses among them; with none it takes TCP and says so nowhere but in its INFO log.

* ports: are the ports active, steady, and as fast as their like?
* roce: have RoCE ports the addresses that NCCL asks for?
* access: is there a driver, a library and a device node, so that a process can use an adapter?
* gpus: are adapters and GPUs close, and do they reach each other's memory?
* choice: which adapters does NCCL use, of those that are there?
* _adapters: which ports count. _hca: NCCL_IB_HCA as NCCL reads it.
"""

from mgpu.check import Family

ORDER = ("ports", "roce", "access", "gpus", "choice")
FAMILY = Family(gpu_only=True)
