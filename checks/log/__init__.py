"""What do the logs of a run say went wrong? Tables of signatures: a text that a failure leaves, and what it means.

* noise: which lines look like a failure and are none?
* circumstances: what does the log show of the run itself? Rows of failures mean something else in some of them.
* job_facts: what does it show of the job around the run?
* setup_facts: what does it show of the packages and the prepared data that the run uses?
* versions_shown: which versions of packages does the log show?
* scheduler, job_start, slurm_steps: did Slurm refuse the job, or end it; did its shell fail, or a step not start?
* conda_setup: does the job load conda from a folder that does not exist?
* around_the_job: did PBS, LSF, `timeout`, ssh or conda stop the job or keep it from starting?
* error_files: are the errors of the job in another file?
* kubernetes, containers, container_setup: did Kubernetes, Docker, enroot or Apptainer not start the container, or
  end it?
* ends: was a rank killed, did it crash, or did the kernel end it?
* xids: which Xid did the driver log?
* started_twice: did the ranks of two launchers share the GPUs?
* gpu_memory, host_memory: is the memory of a GPU or of the host full, and what filled it?
* cuda, cuda_calls, amd, ascend: did a GPU, an NPU or its driver refuse or fail?
* windows: did something fail that only Windows and WSL have?
* gpu_code: does the script ask of a GPU what it cannot?
* inference, inference_setup, ray_cluster, ray_setup, rollouts: did vLLM, SGLang or Ray fail in the run?
* reinforcement, verl_settings, lightning, more_trainers, config_files, config_keys: did a trainer with vLLM,
  Lightning, another trainer, or the reader of a config file refuse?
* versions, models: do two installed packages, or a model and transformers, not fit?
* installed, pip: does a library, an extension or a build not fit?
* compiling, kernels, building, generated_code: did torch.compile, a kernel, a compiler, a linker or make fail, or was
  a generated module incomplete?
* quantized_and_data: do quantized weights and adapters fit packages and GPUs, and datasets and caches the ranks?
* model_and_data_files: can the files of a model or a dataset be read?
* model_placement: is the model divided among the GPUs in a way that transformers, trl and accelerate support?
* hub: could models or data not be fetched?
* data, paths, dataset_library, streams_and_trackers: did reading the data, the library that prepares it, or a tracker
  fail? Was a path wrong?
* lost_folder: did a folder of the data vanish while several runs used it?
* batches: did a collator or a function of torch get text, lists or None in place of tensors?
* pretrained, adapters: can the model, its tokenizer, its adapter and its quantized weights be loaded and trained?
* vision, rendering, graphs_and_sound: did a package for images, scenes, simulators, graphs or sound refuse?
* diffusion_models: does a model of diffusers fit the script?
* wrapping, sharding, mesh, training, zero, precision: does the script fit DDP, FSDP, meshes, its model and data,
  DeepSpeed and its precision?
* assertions: which check without a message failed?
* trainer, tensors, indexing: did Trainer refuse the script's arguments, do its tensors fit each other, and was an
  item taken of something that has none?
* trainer_options, parallel_options: did Trainer, from_pretrained or accelerate refuse an option or a combination?
* preference_training, fine_tuners, lightning_runs: did trl, LlamaFactory, ms-swift, Unsloth or Lightning refuse one?
* system_parts: is a model of spaCy, a GPU library or a value of the data missing?
* autograd, saved_files: did autograd or mixed precision refuse the script's step, and can files be read and written?
* collectives: did torch refuse the arguments of a collective or of a process group?
* nccl, nccl_calls, nccl_setup, nccl_tests, rdma: what did NCCL and InfiniBand say?
* mpi, expert_parallel: did MPI, NVSHMEM or DeepEP fail?
* meeting, addresses, settings: did the ranks not find each other, or the launcher refuse?
* waiting: did ranks wait for one that never came?
* stalled, diverged: in which collective did each rank wait, and why did one not join?
* lone_work: did the others wait for a rank that saved, prepared data or evaluated by itself?
* still_working, stood_still: does a progress bar show what went on until a timeout, or did the run stand still?
* deepspeed_runs, deepspeed_checks, megatron_runs, megatron_setup, dtensors, optimizing: what did these say, and torch's
  sharded tensors and optimizers?
* recomputation: did a checkpointed layer compute something else the second time?
* dataset_columns: does a trainer read a column that the dataset does not have, or the script a split?
* own_code: did the script's own code fail in a way that its line explains?
* package_faults, framework_mistakes: did a package fail in its own code, or packages among themselves?
* commands, shell_scripts: did the shell, a command line's parser or a container tool end the run at its start?
* other_programs: did Java, a recipe's scripts, a simulator or a database stop the run?
* own_messages: which messages of mgpu does it have, of a hang and that it stopped the run?
* printed_stacks, after_end, not_finite, nan_until_stopped, same_rewards, own_message, cut_tracebacks: what does a log
  show without an error, or whose training had finished, or that ends with the program's own message, or within a
  traceback?
* refused, between_packages, exceptions: which exceptions of Python are left that no table knows?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgpu.check import Family, Kind, Problem

from ._advice import for_program
from ._empty_loops import with_empty_loop
from ._listed_folders import with_folder
from ._own_source import with_source
from ._read_files import with_read_file
from ._recorded_values import with_values
from ._wheels_of_index import with_existing_wheels


def _fitted(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    problem = with_source(with_existing_wheels(for_program(problem, facts), facts), facts)
    # What the recorder has seen in the ranks of a launch.
    return with_folder(with_empty_loop(with_read_file(with_values(problem, facts), facts), facts), facts)


FAMILY = Family(fitted=_fitted)

# Written by Slurm, the kernel or a launcher: such a line can follow an exception without belonging to its message.
KINDS_OF_OTHERS: frozenset[Kind] = frozenset({"scheduler", "kernel", "xid", "launcher"})
# A consequence of one of these kinds is also printed at the good end of a run, when a connection closes.
KINDS_OF_CONNECTIONS: frozenset[Kind] = frozenset({"network", "nccl"})

# fmt: off
ORDER: tuple[str, ...] = (
    "setup_facts",
    "noise", "circumstances", "job_facts", "versions_shown", "scheduler", "job_start", "conda_setup", "slurm_steps",
    "around_the_job", "error_files", "kubernetes", "containers", "container_setup", "ends", "host_memory", "xids",
    "started_twice", "gpu_memory", "cuda", "cuda_calls", "amd", "ascend", "windows", "gpu_code", "inference",
    "inference_setup", "late_servers", "ray_cluster", "rollouts", "ray_setup", "reinforcement", "verl_settings",
    "lightning", "more_trainers", "config_files", "config_keys", "versions", "models", "pretrained", "adapters",
    "diffusion_models", "vision", "rendering", "graphs_and_sound",
    "quantized_and_data", "model_and_data_files", "installed", "pip", "compiling",
    "kernels", "building", "generated_code", "hub", "data", "batches", "system_parts", "paths", "dataset_library",
    "lost_folder", "streams_and_trackers", "wrapping", "sharding", "model_placement", "assertions", "mesh", "dtensors",
    "training", "trainer", "trainer_options", "parallel_options", "preference_training", "fine_tuners",
    "lightning_runs", "zero", "deepspeed_runs", "deepspeed_checks", "megatron_runs", "megatron_setup", "optimizing",
    "recomputation", "precision", "tensors", "indexing", "autograd", "saved_files", "collectives", "nccl",
    "nccl_calls", "nccl_setup", "nccl_tests", "rdma", "mpi", "expert_parallel", "meeting", "addresses", "settings",
    "waiting", "stalled", "diverged", "lone_work", "still_working", "stood_still", "stopped_early", "after_end",
    "printed_stacks", "not_finite", "nan_until_stopped", "same_rewards", "own_messages", "own_message",
    "cut_tracebacks", "commands",
    "shell_scripts", "dataset_columns", "other_programs",
    "own_code", "package_faults", "framework_mistakes", "refused", "between_packages", "exceptions",
)
# fmt: on
