"""What do the logs of a run say went wrong? Tables of signatures: a text that a failure leaves, and what it means.

* noise: which lines look like a failure and are none?
* scheduler: did Slurm, Docker or Kubernetes refuse the job, or end it?
* ends: was a rank killed, did it crash, or did the kernel end it?
* xids: which Xid did the driver log?
* cuda: did a GPU or the CUDA driver refuse or fail?
* gpu_code: does the script ask of a GPU what it cannot?
* installed: does something installed not fit?
* compiling: did compiling fail?
* hub: could models or data not be fetched?
* data: did reading the data fail?
* wrapping, sharding, zero, precision: does the script fit DDP, FSDP, DeepSpeed and its precision?
* nccl, rdma: what did NCCL and InfiniBand say?
* meeting, settings: did the ranks not find each other, or the launcher refuse?
* waiting: did ranks wait for one that never came?
* exceptions: which exceptions of Python are left that no table knows?
"""

# fmt: off
ORDER: tuple[str, ...] = (
    "noise", "scheduler", "ends", "xids", "cuda", "gpu_code", "installed", "compiling", "hub", "data", "wrapping",
    "sharding", "zero", "precision", "nccl", "rdma", "meeting", "settings", "waiting", "exceptions",
)
# fmt: on
