"""Did host memory run out: was a process killed for it, or a request refused? What the output showed last decides."""

from __future__ import annotations

from dataclasses import replace

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from .._kernel_line import KERNEL_LINE
from ._circumstances import counts, either, every, last_did, line_of, never, said, several_ranks, shown, within
from ._file_call_cases import COMMAND_KILLED, NO_MEMORY_TO_MAP, NO_MEMORY_TO_START
from ._large_arrays import LARGE_ARRAY, size_of_array

_OOM = "https://docs.kernel.org/admin-guide/mm/concepts.html#oom-killer"
_RAY = "https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html"
_SMALL = 2 << 30  # bytes

# fmt: off
_LOADS = within(r" in (?:from_pretrained|_load_pretrained_model|load_state_dict|_?load_checkpoint\w*)$|"
                r"torch/serialization\.py in ")
_OFFLOADS = within(r"deepspeed/runtime/\S+ in (?:_create_fp\w+|_setup_for_real_optimizer|initialize_optimizer_states)$")
_SAVES = within(r" in (?:_?(?:\w+_)?save(?:_\w+)?|get_(?:\w+_)?state_dict)$")
# Only then is something gathered for a checkpoint.
_SHARDED = either(*map(shown, ("fsdp", "zero_three", "optimizer_offloaded", "tensor_parallel")), several_ranks)
_PREPARES = within(r"^datasets/| in (?:load_dataset|tokenize\w*|preprocess\w*)$")
_OF_TABLES = within(r"^(?:pandas|pyarrow|polars|dask)/")
_MORE = Fix("Request more memory for the job, or use a node with more.",
            ("sbatch --mem=0 ...", "docker run --memory=256g ..."))
_CHECK = Fix("Check whether memory ran out.",
             ("sudo dmesg -T | grep -iE 'out of memory|oom-kill' | tail",
              "mgpu doctor --only memory_small_for_ranks"))
_MEMORY = Fix("Compare the memory of the node and the job with what the ranks need.",
              ("mgpu doctor --only memory_small_for_ranks",
               "sudo dmesg -T | grep -iE 'out of memory|oom-kill' | tail"))


# Titles follow what happened, samples precede the line that reports it: see `host_cases`.
_CASES = (
    LARGE_ARRAY,
    Case(shown("engine_weights_in_host_memory"),
         ": probably vLLM's sleep mode (level 1), which copies its weights into host memory",
         "At level 1 each sleeping engine keeps a copy of the model's weights in host memory (CuMemAllocator "
         "reports how much is backed up in CPU), beside an offloaded trainer.",
         (Fix("Let vLLM discard its weights (level 2), if the trainer sends them again before each rollout.",
              ("llm.sleep(level=2)",)),
          Fix("Or run fewer engines per node, or offload less of the trainer."), _MORE, _CHECK),
         "CuMemAllocator: sleep freed 151.20 GiB memory in total, of which 78.11 GiB is backed up in CPU and the "
         "rest 73.09 GiB is discarded directly.",
         "https://github.com/NVIDIA-NeMo/RL/pull/2523"),
    Case(every(either(last_did("load"), _LOADS), _SHARDED),
         " while the model was loaded: probably every rank loads the whole model into host memory",
         "Without sharded loading, each rank of a node holds a full copy (in fp32 4 bytes per parameter), and for "
         "a moment a second one.",
         (Fix("Load on one rank, or sharded: FSDP with cpu_ram_efficient_loading, ZeRO-3 with TrainingArguments "
              "(or HfDeepSpeedConfig) created before the model.",
              ("accelerate launch --fsdp_cpu_ram_efficient_loading true --fsdp_sync_module_states true ...",
               "export ACCELERATE_USE_FSDP=true FSDP_CPU_RAM_EFFICIENT_LOADING=true  # with torchrun")),
          Fix("Load in bf16, from safetensors.",
              ("from_pretrained(..., dtype=torch.bfloat16, low_cpu_mem_usage=True)",)), _MORE, _CHECK),
         "[rank1]: Loading checkpoint shards:  26%|##6       | 5/19 [04:51<13:30, 57.90s/it]",
         "https://github.com/pytorch/pytorch/issues/104755"),
    Case(either(last_did("load"), _LOADS),
         " while a model or a checkpoint was loaded: probably the file and the model did not fit at the same time",
         "The whole file is read into host memory, beside the model that gets its weights: in fp32 4 bytes per "
         "parameter each. The state of Adam in a checkpoint takes twice as much as the model. If several ranks run on "
         "the node, each of them does the same.",
         (Fix("Map the file instead of reading it, and load the model in bf16.",
              ("torch.load(path, map_location='cpu', mmap=True, weights_only=True)",
               "from_pretrained(..., dtype=torch.bfloat16, low_cpu_mem_usage=True)")),
          Fix("With several ranks, load on one of them, or sharded.",
              ("accelerate launch --fsdp_cpu_ram_efficient_loading true --fsdp_sync_module_states true ...",)),
          _MORE, _CHECK),
         "Loading checkpoint shards:  26%|##6       | 5/19 [04:51<13:30, 57.90s/it]",
         "https://docs.pytorch.org/docs/stable/generated/torch.load.html"),
    Case(either(every(last_did("offload"), shown("optimizer_offloaded")), _OFFLOADS,
                every(shown("host_memory_nearly_full"), never(last_did("save")))),
         " while DeepSpeed set up or offloaded: probably ZeRO's offloading needs more than the host has",
         "Offloading the optimizer takes 12 to 16 bytes per parameter of host memory, offloading the parameters 2 "
         "more, in pinned pages that cannot be swapped.",
         (Fix("Offload less (optimizer only, or nothing), without pinned memory, or to NVMe.",
              ('"offload_param": {{"device": "none"}}',
               '"offload_optimizer": {{"device": "cpu", "pin_memory": false}}')),
          Fix("Check what the model needs.",
              ("python -c 'from transformers import AutoModel; from deepspeed.runtime.zero.stage3 import "
               "estimate_zero3_model_states_mem_needs_all_live as show; "
               "show(AutoModel.from_pretrained(\"ORG/MODEL\"), num_gpus_per_node=8, num_nodes=1)'",)), _MORE, _CHECK),
         "[INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 440.1 GB, percent = 93.4%",
         "https://github.com/deepspeedai/DeepSpeed/issues/4239"),
    Case(every(either(last_did("save"), _SAVES), _SHARDED),
         " while a checkpoint was saved: probably the full state dict was gathered in host memory",
         "A full state dict holds the whole model (and the optimizer: three times that) in the memory of rank 0, "
         "or of every rank. Training itself fits.",
         (Fix("Save sharded, so that each rank writes its own part.",
              ("accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT ...",
               '"stage3_gather_16bit_weights_on_model_save": false')),
          Fix("Or gather on rank 0 only.", ("FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",)),
          _MORE, _CHECK),
         "distributed_type: FSDP\nSaving model checkpoint to /data/out/checkpoint-500",
         "https://github.com/hao-ai-lab/FastVideo/issues/108"),
    Case(either(last_did("data"), _PREPARES),
         " while the data was prepared: probably several processes hold copies, or its batches are too large",
         "Each process of dataset.map (num_proc) holds its own copy of the tokenizer and of a batch of 1,000 rows "
         "(several hundred MB, more with images), times the ranks of the node if each of them prepares the data.",
         (Fix("Prepare the data once, before the run, with fewer processes and smaller batches.",
              ("dataset.map(tokenize, batched=True, batch_size=200, num_proc=4)",)), _MORE, _CHECK),
         "Running tokenizer on dataset (num_proc=64):  52%|#####2    | 81273/152730 [01:36<00:01, 843.85 "
         "examples/s]",
         "https://github.com/hiyouga/LlamaFactory/issues/6762"),
    Case(last_did("evaluate"),
         " during evaluation: probably its predictions were collected in host memory",
         "Whatever each batch of an evaluation leaves in a list stays until its end: outputs, masks, images, or with "
         "Trainer's compute_metrics the logits of the whole set (samples x length x vocabulary). Loader workers and "
         "results that every rank collects come on top.",
         (Fix("Keep only what the metric needs.",
              ("metric.update(output.argmax(1), target)  # not: outputs.append(output)",
               "Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(dim=-1))")),
          _MORE, _CHECK),
         "***** Running Evaluation *****",
         "https://github.com/huggingface/transformers/issues/8476"),
    Case(every(last_did("train"), shown("optimizer_offloaded")),
         " in the training steps: host memory probably holds the offloaded optimizer and gradients",
         "Offloading takes 16 bytes per parameter of host memory, and the first steps still allocate. Loader "
         "workers come on top.",
         (Fix("Offload less, or use more GPUs instead.", ('"offload_param": {{"device": "none"}}',)),
          _MORE, _CHECK),
         "Adam Optimizer #0 is created with AVX512 arithmetic capability.\n"
         "{'loss': 1.21, 'learning_rate': 1e-05, 'epoch': 0.1}\n{'loss': 1.19, 'learning_rate': 1e-05, 'epoch': "
         "0.2}",
         "https://github.com/deepspeedai/DeepSpeed/issues/4239"),
    Case(last_did("train"),
         " in the middle of training: host memory probably ran out, because it grew with every step",
         "Loader workers copy what they touch of a dataset held in Python lists, times the workers of all ranks of "
         "the node; metrics, caches and logged tensors also accumulate.",
         (Fix("Use fewer workers and prefetch less, and keep the data in arrays or files (Arrow, memmap).",
              ("DataLoader(..., num_workers=2, prefetch_factor=2, pin_memory=False)",)), _MORE, _CHECK,
          Fix("If memory was not the cause, check whether Slurm or a user killed it.",
              ("sacct -j JOBID --format=JobID,State,MaxRSS,ReqMem",))),
         "{'loss': 1.21, 'learning_rate': 1e-05, 'epoch': 0.1}\n{'loss': 1.19, 'learning_rate': 1e-05, 'epoch': "
         "0.2}",
         "https://github.com/pytorch/pytorch/issues/13246"),
)


def host_cases(subject: str, ending: str, note: str = "") -> tuple[Case, ...]:
    """Return what filled the host's memory, by what the run did.

    `subject`: what happened; `ending`: the line that reports it; `note`: first sentence of each explanation.
    """
    return tuple(
        replace(case, title=f"{subject}{case.title}", why=f"{note}{case.why}", sample=f"{case.sample}\n{ending}")
        for case in _CASES
    )


_LAUNCHER_KILLED = Case(
    line_of("log_rank_killed", r"Killed\s+(?:\S*/)?(?:deepspeed|torchrun|accelerate|mpirun|mpiexec|srun)\b"),
    "the launcher itself was killed (SIGKILL), with kill -9 or together with its whole job or container",
    "The shell reports it of the launcher, which uses little memory: the kernel would choose a rank first. A script "
    "that cleans up (kill -9, pkill), a user, or a limit that ends all processes at once does it. Ranks can remain.",
    (Fix("Find out what sent it: a script of the job that ends old processes, a time limit around it, a user.",
         ("grep -nE 'kill|timeout' JOB.sh", "sudo dmesg -T | grep -i 'killed process' | tail")),
     Fix("Stop ranks that remain, before you start again.", ("mgpu doctor --only rank_orphaned,gpu_busy",))),
    "run.sh: line 44: 4711 Killed                  deepspeed --num_gpus 8 train.py\n",
    "https://man7.org/linux/man-pages/man7/signal.7.html")
_REFUSED = (
    Case(every(_SAVES, never(_SHARDED)),
         "a process could not allocate host memory while something was saved: that takes more memory",
         "Tensors of a GPU are copied to the host first, and pickle, compression and tables make another copy of what "
         "they write. The run had probably filled most of the memory before.",
         (Fix("Save less at a time, and delete what is no longer needed before.",
              ("torch.save(model.state_dict(), path)  # the weights alone", "del outputs; gc.collect()")),
          _MORE, _CHECK),
         'Traceback (most recent call last):\n  File "/x/train.py", line 91, in main\n    save(state, path)\n'
         '  File "/x/train.py", line 12, in save\n    pickle.dump(state, file)\nMemoryError\n',
         "https://docs.python.org/3/library/pickle.html"),
    Case(every(_OF_TABLES, never(_PREPARES)),
         "a process could not allocate host memory while a table was read or computed with: it is too large",
         "pandas reads a file whole, with 8 bytes per number and far more per text, and most operations (concat, "
         "merge, astype, get_dummies) build their result beside what they read.",
         (Fix("Read only the columns that are needed, in smaller types, or in parts.",
              ("pd.read_csv(path, usecols=COLUMNS, dtype={{'x': 'float32'}}, chunksize=100_000)",
               "pd.read_parquet(path, columns=COLUMNS)", "df.info(memory_usage='deep')")),
          _MORE, _CHECK),
         'Traceback (most recent call last):\n  File "/x/prep.py", line 9, in <module>\n    df = pd.concat(parts)\n'
         '  File "/x/site-packages/pandas/core/concat.py", line 385, in concat\n    return op.get()\nMemoryError\n',
         "https://pandas.pydata.org/docs/user_guide/scale.html"),
)
_OF_ZSH = Case(
    line_of("log_rank_killed", r"^zsh: killed"),
    "the program was killed from outside (SIGKILL), usually because memory ran out",
    "The shell reports it. A program cannot catch SIGKILL, so there is no traceback. On a Mac, the GPU (MPS) and the "
    "CPU share the memory, and the system ends the program that uses most of it.",
    (Fix("Watch the memory while it runs.", ("vm_stat 5  # macOS, or Activity Monitor", "free -h  # Linux")),
     Fix("Use less: a smaller batch, fewer loader workers, a smaller model.",
         ("DataLoader(..., batch_size=4, num_workers=0)",))),
    "zsh: killed     python train.py\n", "https://man7.org/linux/man-pages/man7/signal.7.html")
_BY_KERNEL = "Out of memory: Killed process 4711 (python) total-vm:181234560kB, anon-rss:64123456kB"
_NO_MORE = "MemoryError"
_BY_RAY = ("(raylet) 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other "
           "reasons at node (ID: 5b2, IP: 10.0.0.2) over the last time period.")
_BY_SHELL = "/bin/bash: line 1: 12345 Killed                  python train.py"

_REQUEST = Fix("Request more memory, in the form of the cluster's scheduler.",
               ("sbatch --mem=64G ...", "bsub -M 64GB -R 'rusage[mem=64GB]' ...", "qsub -l mem=64gb ...  # PBS",
                "qsub -l h_vmem=64G ...  # Grid Engine", "request_memory = 64GB  # HTCondor"))
_SMALL_REQUEST = Case(
    either(shown("small_request_of_lsf", "small_use_of_lsf"),  # the request alone is a reservation, not the limit
           counts(r"exceeded limit (\d{1,7})kb", lambda limit: int(limit[0]) <= _SMALL >> 10),
           counts(r"memory limit of (\d{1,4}) megabytes", lambda limit: int(limit[0]) <= _SMALL >> 20),
           counts(r"exceeds job hard limit.*limit:(\d{1,10})(?:\.\d+)?\)", lambda limit: int(limit[0]) <= _SMALL)),
    "the cluster killed the job at a limit of 2 GB of host memory or less, which torch with CUDA alone can need",
    "The limit is what the job requested, or the cluster's default if it requested nothing. It is host memory, not a "
    "GPU's: a process that only imports torch and puts one layer on a GPU used 1.3 to 2 GB in published measurements.",
    (_REQUEST,),
    "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n"
    "    Max Memory :                                 1023 MB\n"
    "    Total Requested Memory :                     1024.00 MB\n",
    "https://github.com/pytorch/pytorch/issues/12873")
_ON_CPU = Case(
    every(last_did("train"), said(r"DefaultCPUAllocator"), within(r"^torch/nn/functional\.py |^torch/nn/modules/")),
    "no host memory was left in the middle of training: the model computes on the CPU, and its batches or what it "
    "keeps of them fill it",
    "A layer asked for the memory, so the activations of the model are in host memory, not in a GPU's. If one step "
    "fits and a later one does not, something keeps the graphs of earlier steps: losses, outputs or hidden states "
    "that are collected or carried on without detach().",
    (Fix("Use a smaller batch or shorter inputs.", ("loader = DataLoader(dataset, batch_size=4, ...)",)),
     Fix("Keep numbers and detached tensors only, and watch whether the memory grows.",
         ("total += loss.item()  # not: total += loss", "state = state.detach()",
          "print(psutil.Process().memory_info().rss >> 20, 'MiB')")),
     Fix("If the machine has a GPU, train on it.",
         ("python -c 'import torch; print(torch.__version__, torch.cuda.is_available())'",))),
    "{'loss': 1.21, 'epoch': 0.1}\n{'loss': 1.19, 'epoch': 0.2}\nTraceback (most recent call last):\n"
    '  File "/x/train.py", line 91, in main\n    y = model(x)\n'
    '  File "/x/site-packages/torch/nn/modules/linear.py", line 116, in forward\n    return F.linear(x, w)\n'
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 400000000 bytes.",
    "https://docs.pytorch.org/docs/stable/notes/faq.html")
ROWS = (
    Row("log_killed_for_memory", "root", "kernel",
        KERNEL_LINE + r"(?:Out of memory: Kill(?:ed)? process \d+|[Mm]emory cgroup out of memory: Kill|"
        r"oom-kill:constraint=|\S+(?: \S+)? invoked oom-killer: gfp_mask)",
        ("Out of memory: Killed process 4711 (python) total-vm:181234560kB, anon-rss:64123456kB",
         "Memory cgroup out of memory: Killed process 99 (pt_data_worker) total-vm:1kB",
         "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,task=python,pid=4711,uid=0",
         "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        "the kernel killed a process: out of host memory",
        "The node, or the job's control group, had no memory left. A rank killed this way exits with signal 9 (exit "
        "code 137) and no traceback.",
        (_MEMORY, Fix("Use less memory (fewer loader workers, weights loaded on one rank only), or request more.",
                      ("sbatch --mem=0 ...", "docker run --memory=256g ..."))),
        _OOM,
        cases=host_cases("the kernel killed a process (out of host memory)", _BY_KERNEL)),
    Row("log_rank_killed", "root", "kernel",
        r"exitcode\s*:? ?-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL|terminated with signal SIGKILL|"
        r"exits with return code = -9\b|exited on signal 9\b|line \d+: +\d+ Killed |^zsh: killed\b|"
        r"exit code 137\b|exited with code 137\b|exit status 137\b|\bcrashed with exit code -9\b",
        ("  exitcode  : -9 (pid: 25778)  (SIGKILL)", "  traceback : Signal 9 (SIGKILL) received by PID 25778",
         "E0101 10:00:00.000 1 api.py:869] failed (exitcode: -9) local_rank: 0 (pid: 12) of binary: /usr/bin/python",
         "subprocess.CalledProcessError: Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.",
         "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
         "[ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = -9",
         "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).",
         "/bin/bash: line 1: 12345 Killed                  python train.py",
         "command terminated with exit code 137", "Rank 2 crashed with exit code -9."),
        "a rank was killed from outside (SIGKILL), usually because host memory ran out",
        "A program cannot catch SIGKILL, so there is no traceback. It comes from the kernel's or the job's memory "
        "limit, from Slurm, or from a kill -9.",
        (_MEMORY, Fix("Use less host memory (fewer loader workers with num_workers, fsdp_cpu_ram_efficient_loading, no "
                      "offload of the optimizer), or request more for the job.", ("sbatch --mem=0 ...",)),
         Fix("If memory was not the cause, check whether Slurm or a user killed it.",
             ("sacct -j JOBID --format=JobID,State,MaxRSS,ReqMem",))),
        "https://github.com/lm-sys/FastChat/issues/568", exit_code=-9,
        because_of=("log_killed_for_memory", "log_slurm_out_of_memory", "log_container_killed_for_memory"),
        cases=(COMMAND_KILLED, _LAUNCHER_KILLED, _OF_ZSH, *host_cases(
            "a rank was killed from outside (SIGKILL)", _BY_SHELL,
            "SIGKILL leaves no traceback; the kernel sends it when host memory runs out. "))),
    Row("log_host_memory_refused", "root", "kernel",
        r"^(?:numpy\.[\w.]+\.)?MemoryError\b(?!: Not enough space in)|_ArrayMemoryError|"
        r"DefaultCPUAllocator: (?:can't|not enough)|"
        r"^(?!.*(?:ibv_|NET/OFI|/torch_)).*[Cc]annot allocate memory|std::bad_alloc",
        ("MemoryError", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 32.0 GiB for an array with "
         "shape (1,) and data type float32", "OSError: [Errno 12] Cannot allocate memory",
         "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
         "tried to allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)",
         "terminate called after throwing an instance of 'std::bad_alloc'"),
        "a process could not allocate host memory",
        "The machine is out of memory, or a ulimit -v or strict overcommit refused the request. If several ranks run "
        "on it, each has its own copy of what it loads.",
        (_MEMORY, Fix("Check the limits of the process.", ("ulimit -v", "sysctl vm.overcommit_memory"))),
        "https://docs.kernel.org/mm/overcommit-accounting.html",
        cases=(NO_MEMORY_TO_START, NO_MEMORY_TO_MAP, _ON_CPU, *_REFUSED,
               *host_cases("a process could not allocate host memory", _NO_MORE)),
        explain=size_of_array),
    Row("log_memory_watcher_killed", "root", "scheduler",
        r"(?i)exceeded (?:its|the|your) memory (?:quota|limit)(?: of \S+)? and (?:will be|was|has been) "
        r"(?:terminated|killed)|"
        r"Killing process \d+ cgroup RSS size|TERM_MEMLIMIT|job killed: (?:v?mem|pmem|pvmem) \S+ exceeded limit|"
        r"memory usage exceeded (?:request_memory|the allocated memory)|exceeds the job's memory (?:limit|request)|"
        r"Job has gone over (?:cgroup )?memory limit of \d|"
        r"exceeds job hard limit \W{0,2}(?:[hs]_(?:vmem|rss|data)|m_mem_free|mem_free|virtual_free|mem\w*)\W",
        ("ERROR:smemwatch:This job has exceeded its memory quota and will be terminated",
         "ERROR:smemwatch:Killing process 116176 cgroup RSS size 46111.4 MB > 46105.0 MB",
         "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
         "=>> PBS: job killed: mem 16803280kb exceeded limit 16777216kb",
         "Error from slot1_1@n7: Job has gone over cgroup memory limit of 16384 megabytes. Last measured usage: 16380 "
         "megabytes.  Consider resubmitting with a higher request_memory.",
         'job 4711.1 exceeds job hard limit "h_vmem" of queue "gpu.q@n7" (17179869999.00000 > limit:17179869184.00000) '
         "- sending SIGKILL"),
        "the cluster killed the job, because it used more host memory than it had requested",
        "A program of the cluster watches the job's memory (all its processes together) and kills it above the limit "
        "that was requested. It is host memory, not a GPU's: data that is loaded whole, loader workers, lists that "
        "grow with every step (losses with their graph, episodes, figures that are not closed).",
        (_REQUEST,
         Fix("Look at what grows.", ("print(psutil.Process().memory_info().rss >> 20, 'MiB')", "plt.close('all')",
                                     "losses.append(loss.item())"))),
        "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=limits-memory", cases=(_SMALL_REQUEST,)),
    Row("log_ray_memory_full", "root", "kernel",
        r"ray\.exceptions\.OutOfMemoryError|RayOutOfMemoryError|[Tt]ask was killed due to the node running low on "
        r"memory|"
        r"killed due to memory pressure(?!: 0\b)|the node running low on memory|"
        r"ray-oom-prevention\.html\. Consider provisioning more memory",
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
         "(raylet) 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other "
         "reasons at node (ID: 5b2, IP: 10.0.0.2) over the last time period.",
         "Memory on the node (IP: 10.0.0.2, ID: 5b2) where the task was running was 240.00GB / 251.00GB (0.95), which "
         "exceeds the memory usage threshold of 0.95. Ray killed this worker because of the node running low on "
         "memory"),
        "Ray killed a worker because the node's host memory was nearly full",
        "Ray ends workers above 95 % of the node's or the container's memory, before the kernel does. It is host "
        "memory, not GPU memory: offloaded parameters and optimizers, replay buffers, loader workers, vLLM's swap "
        "space.",
        (Fix("Use less host memory (no CPU offload, fewer workers), or request more for the job.",
             ("free -g", "sbatch --mem=0 ...", "ray memory --stats-only")),
         Fix("Raise or turn off Ray's limit.", ("export RAY_memory_usage_threshold=0.99",
                                              "export RAY_memory_monitor_refresh_ms=0"), kind="stopgap",
             caveat="The kernel may kill a process instead.")), _RAY,
        cases=host_cases("Ray killed a worker because the node's host memory was nearly full", _BY_RAY)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
