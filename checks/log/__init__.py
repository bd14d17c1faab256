"""What do the logs of a run say went wrong? Tables of signatures: a text that a failure leaves, and what it means.

* noise: which lines look like a failure and are none?
* scheduler: did Slurm, Docker or Kubernetes refuse the job, or end it?
* ends: was a rank killed, did it crash, or did the kernel end it?
* xids: which Xid did the driver log?
* cuda: did a GPU or the CUDA driver refuse or fail?
* gpu_code: does the script ask of a GPU what it cannot?
* inference, ray_cluster: did vLLM or Ray fail in the run?
* versions, models: do two installed packages, or a model and transformers, not fit?
* installed: does a library, an extension or a build not fit?
* compiling: did compiling fail?
* hub: could models or data not be fetched?
* data, dataset_library: did reading the data, or the library that prepares it, fail?
* pretrained, adapters: can the model, its tokenizer, its adapter and its quantized weights be loaded and trained?
* wrapping, sharding, mesh, training, zero, precision: does the script fit DDP, FSDP, meshes, its model and data,
  DeepSpeed and its precision?
* trainer, tensors: did Trainer refuse the script's arguments, and do its tensors fit each other?
* nccl, rdma: what did NCCL and InfiniBand say?
* meeting, settings: did the ranks not find each other, or the launcher refuse?
* waiting: did ranks wait for one that never came?
* lone_work: did the others wait for a rank that saved, prepared data or evaluated by itself?
* between_packages, exceptions: which exceptions of Python are left that no table knows?
"""

# fmt: off
ORDER: tuple[str, ...] = (
    "noise", "scheduler", "ends", "xids", "cuda", "gpu_code", "inference", "ray_cluster", "versions", "models",
    "pretrained", "adapters", "installed", "compiling", "hub", "data", "dataset_library", "wrapping", "sharding",
    "mesh", "training", "trainer", "zero", "precision", "tensors", "nccl", "rdma", "meeting", "settings", "waiting",
    "lone_work", "between_packages", "exceptions",
)
# fmt: on
