"""Will traffic between nodes use the fast network: InfiniBand, RoCE or EFA?

These checks matter to multi-node runs only. NCCL uses every adapter whose port is ACTIVE, unless NCCL_IB_HCA selects
some of them. Without any, it uses TCP and reports that only in its INFO log.

* ports: are the ports active, stable, and as fast as similar ports?
* roce: do RoCE ports have the addresses that NCCL needs?
* access: can a process use an adapter: is there a driver, a library and a device node?
* gpus: are adapters close to GPUs, and can they access GPU memory?
* choice: which of the adapters does NCCL use?
* paired_functions: does NCCL use both PCIe functions of a network port that has two?
* _adapters: the ports that are checked. _hca: NCCL_IB_HCA as NCCL parses it.
"""

from mgpu.check import Family

ORDER = ("ports", "roce", "access", "gpus", "choice", "paired_functions")
FAMILY = Family(gpu_only=True)
