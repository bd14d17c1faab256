"""What do the logs of a run say went wrong? Tables of signatures: a text that a failure leaves, and what it means.

* noise: which lines look like a failure and are none?
* circumstances: what does the log show of the run itself? Rows of failures mean something else in some of them.
* versions_shown: which versions of packages does the log show?
* scheduler, job_start: did Slurm refuse the job, or end it; did its shell fail?
* kubernetes, containers: did Kubernetes, Docker, enroot or Apptainer not start the container, or end it?
* ends: was a rank killed, did it crash, or did the kernel end it?
* xids: which Xid did the driver log?
* started_twice: did the ranks of two launchers share the GPUs?
* gpu_memory, host_memory: is the memory of a GPU or of the host full, and what filled it?
* cuda, cuda_calls, amd: did a GPU or its driver refuse or fail?
* windows: did something fail that only Windows and WSL have?
* gpu_code: does the script ask of a GPU what it cannot?
* inference, ray_cluster, rollouts: did vLLM, SGLang or Ray fail in the run?
* reinforcement, lightning, config_files: did a trainer with vLLM, Lightning, or the reader of a config file refuse?
* versions, models: do two installed packages, or a model and transformers, not fit?
* installed, pip: does a library, an extension or a build not fit?
* compiling, building, generated_code: did torch.compile, a compiler, a linker or make fail, or was a generated module
  incomplete?
* hub: could models or data not be fetched?
* data, paths, dataset_library: did reading the data, or the library that prepares it, fail? Was a path wrong?
* pretrained, adapters: can the model, its tokenizer, its adapter and its quantized weights be loaded and trained?
* wrapping, sharding, mesh, training, zero, precision: does the script fit DDP, FSDP, meshes, its model and data,
  DeepSpeed and its precision?
* trainer, tensors: did Trainer refuse the script's arguments, and do its tensors fit each other?
* nccl, nccl_setup, nccl_tests, rdma: what did NCCL and InfiniBand say?
* mpi, expert_parallel: did MPI, NVSHMEM or DeepEP fail?
* meeting, addresses, settings: did the ranks not find each other, or the launcher refuse?
* waiting: did ranks wait for one that never came?
* stalled, diverged: in which collective did each rank wait, and why did one not join?
* lone_work: did the others wait for a rank that saved, prepared data or evaluated by itself?
* deepspeed_runs, megatron_runs, dtensors, optimizing: what did these say, and torch's sharded tensors and optimizers?
* recomputation: did a checkpointed layer compute something else the second time?
* dataset_columns: does a trainer read a column that the dataset does not have?
* own_code: did the script's own code fail in a way that its line explains?
* package_faults, framework_mistakes: did a package fail in its own code, or packages among themselves?
* commands, shell_scripts: did the shell, a command line's parser or a container tool end the run at its start?
* printed_stacks, after_end, not_finite, own_message, cut_tracebacks: what does a log show that has no error, or whose
  training had finished, or that ends with the program's own message, or within a traceback?
* refused, between_packages, exceptions: which exceptions of Python are left that no table knows?
"""

from __future__ import annotations

from mgpu.check import Kind

# Written by Slurm, the kernel or a launcher: such a line can follow an exception without belonging to its message.
KINDS_OF_OTHERS: frozenset[Kind] = frozenset({"scheduler", "kernel", "xid", "launcher"})
# A consequence of one of these kinds is also printed at the good end of a run, when a connection closes.
KINDS_OF_CONNECTIONS: frozenset[Kind] = frozenset({"network", "nccl"})

# fmt: off
ORDER: tuple[str, ...] = (
    "noise", "circumstances", "versions_shown", "scheduler", "job_start", "kubernetes", "containers", "ends",
    "host_memory", "xids", "started_twice", "gpu_memory", "cuda", "cuda_calls", "amd", "windows", "gpu_code",
        "inference",
    "ray_cluster", "rollouts", "reinforcement", "lightning", "config_files", "versions", "models", "pretrained",
        "adapters",
    "installed", "pip", "compiling", "building", "generated_code", "hub", "data", "paths", "dataset_library",
        "wrapping",
    "sharding", "mesh", "dtensors", "training", "trainer", "zero", "deepspeed_runs", "megatron_runs", "optimizing",
    "recomputation", "precision", "tensors", "nccl", "nccl_setup", "nccl_tests", "rdma", "mpi", "expert_parallel",
    "meeting", "addresses", "settings", "waiting", "stalled", "diverged", "lone_work", "after_end", "printed_stacks",
    "not_finite", "own_message", "cut_tracebacks", "commands", "shell_scripts", "dataset_columns", "own_code",
        "package_faults",
    "framework_mistakes", "refused", "between_packages", "exceptions",
)
# fmt: on
