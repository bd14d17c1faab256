"""Is a GPU's memory full, and what filled it? The place of the failure and torch's numbers decide."""

from __future__ import annotations

from dataclasses import replace

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import either, every, innermost, never, said, source_line, through, within
from ._gpu_memory import GIANT, Numbers, numbers, trace
from ._gpu_memory_before_steps import BEFORE_STEPS
from ._gpu_memory_by_driver import DRIVER
from ._gpu_memory_in_pieces import IN_PIECES
from ._gpu_memory_in_steps import IN_STEPS
from ._gpu_memory_of_others import OTHERS, OWN_GPU, SHARD, SMALLER, held_beside, held_unseen, is_alone, taken
from ._gpu_memory_of_trainers import OF_TRAINERS
from ._image_cases import NO_TEXT
from ._xla_memory import XLA_PREALLOCATED, XLA_SMALLER, explain_plan, requested
from .inference import SHARE

_ALLOCATOR = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
_TROUBLE = "https://github.com/huggingface/accelerate/blob/main/docs/source/basic_tutorials/troubleshooting.md"
_TENSORFLOW = "https://www.tensorflow.org/api_docs/python/tf/errors/ResourceExhaustedError"
_WHOLE = 0.9  # of the GPU: a limit near its size changes nothing
_SMALLEST = 4.0  # GiB, of GPUs of laptops and old cards
_LITTLE, _MANY_STEPS = 0.01, 500  # of the GPU; after fewer steps not all kinds of batches were seen
_REAL = 1024.0  # GiB: no GPU has more
# fmt: off
_SEGMENTS = Fix("Let the allocator join free segments.",
                ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",))
# fmt: on


def _is_fragmented(read: Numbers) -> bool:
    """Whether torch has reserved more than it needs, in pieces, and at least a tenth of the GPU."""
    if read.unallocated is None or read.tried is None or not read.total:
        return False
    return read.tried < GIANT and read.unallocated >= max(read.tried, read.total / 10)


def _has_room(read: Numbers) -> bool:
    """Whether the GPU had clearly more free memory than was requested."""
    return read.tried is not None and read.free is not None and read.free > 1.5 * read.tried + 1.0


def _is_limited(read: Numbers) -> bool:
    """Whether the program may use clearly less than the GPU has."""
    return read.allowed is not None and not (read.total and read.allowed >= _WHOLE * read.total)


def _is_impossible(read: Numbers) -> bool:
    return read.tried is not None and read.tried >= _REAL


def _has_graphs(read: Numbers) -> bool:
    return read.pools is not None and read.total is not None and read.pools >= read.total / 10


def _is_filled_in_small_steps(read: Numbers) -> bool:
    """Whether torch's own tensors fill the GPU, and the request is small: no single tensor is too large."""
    if read.tried is None or read.allocated is None or not read.total:
        return False
    return read.tried <= _LITTLE * read.total and read.allocated >= _WHOLE * read.total


def _after_many_steps(log: Log, raised: UncaughtException | None) -> bool:
    return raised is not None and log.reached is not None and log.reached.at >= _MANY_STEPS and not log.reached.inner


def _sample(free: str, rest: str) -> str:
    return trace(
        "train.py in main",
        message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        f"79.15 GiB of which {free} is free. {rest}",
    )


# fmt: off
_ENGINES = ("vllm", "sglang", "flashinfer")
_FIRST = (
    Case(numbers(_is_impossible),
         "torch requested more memory than any GPU has: the size was computed wrongly",
         "The GPU is not full. A length or count is negative or garbage: ranks are out of step in a collective of "
         "objects (all_gather_object), a file is corrupt, or an index overflowed.",
         (Fix("Look at the frame that allocates: print the sizes there, on each rank."),
          Fix("If it gathers objects from all ranks: every rank must call it, on its own GPU.",
              ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",))),
         trace("train.py in main", "torch/distributed/distributed_c10d.py in all_gather_object",
               message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8589934591.87 GiB. GPU 0 has a "
                       "total capacity of 79.15 GiB of which 60.00 GiB is free."),
         "https://github.com/meta-llama/llama-cookbook/issues/45"),
    Case(every(either(source_line(r"pin_memory"),
                      within(r" in (?:_?pin_memory\w*|_create_param_groups\w+cpu_memory)$")),
               never(numbers(lambda read: read.tried is not None))),
         "host memory could not be pinned: CUDA reports that as out of memory",
         "It is host memory, not the GPU's. Offloaded optimizers and loaders with pin_memory lock pages for each rank. "
         "WSL and small ulimit -l values allow only part of the memory.",
         (Fix("Turn pinning off for the loader and for offloading.",
              ("DataLoader(dataset, pin_memory=False)",
               '"offload_optimizer": {{"device": "cpu", "pin_memory": false}}')),
          Fix("Check the limits and the free memory.", ("ulimit -l", "free -g"))),
         trace("deepspeed/runtime/zero/stage3.py in _setup_for_real_optimizer",
               "deepspeed/accelerator/cuda_accelerator.py in pin_memory",
               message="RuntimeError: CUDA error: out of memory", code="return tensor.pin_memory()"),
         "https://github.com/deepspeedai/DeepSpeed/issues/2977"),
    Case(numbers(_is_limited),
         "a process reached the GPU memory limit that it set for itself; the GPU is not full",
         'The line reports how much is "allowed": set_per_process_memory_fraction (or a framework) limits this '
         "process to a share of the GPU.",
         (Fix("Raise the share.", ("torch.cuda.set_per_process_memory_fraction(1.0)",)), SMALLER),
         _sample("60.00 GiB",
                 "19.79 GiB allowed; Of the allocated memory 18.00 GiB is allocated by PyTorch, and 0.50 "
                 "GiB is reserved by PyTorch but unallocated."),
         _ALLOCATOR),
    Case(innermost(*_ENGINES),
         "a GPU's memory is full: the inference engine needs more than is left on it",
         "vLLM and SGLang reserve a share of the GPU for weights and KV cache. Activations, CUDA graphs and a trainer "
         "on the same GPU need the rest.",
         (SHARE, Fix("Limit what one step of the engine needs.",
                     ("LLM(..., max_model_len=8192, max_num_seqs=64, enforce_eager=True)",)),
          Fix("Check what else is on the GPU.", ("nvidia-smi",))),
         trace("train.py in main", "vllm/v1/worker/gpu_model_runner.py in _dummy_run"),
         "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"),
)
_LAST = (
    Case(every(numbers(_has_graphs), never(within(r" in backward$"))),
         "a GPU's memory is full, and CUDA graphs keep a large part of it (private pools)",
         "torch.compile's reduce-overhead mode and captured graphs reserve memory for each input shape and never "
         "return it.",
         (Fix("Compile without CUDA graphs, or pad batches to few shapes.",
              ("torch.compile(model, mode='default')",)), SMALLER),
         _sample("1.00 GiB",
                 "Of the allocated memory 70.00 GiB is allocated by PyTorch, with 22.10 GiB allocated in "
                 "private pools (e.g., CUDA Graphs), and 0.50 GiB is reserved by PyTorch but "
                 "unallocated."),
         "https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html"),
    Case(every(numbers(_is_fragmented), never(within(r"state_dict|save"))),
         "a GPU's memory is fragmented: more is reserved and unused than was requested",
         'torch holds free memory ("reserved by PyTorch but unallocated"), but in pieces that are too small. Batches '
         "of changing length cause that.",
         (_SEGMENTS, Fix("Sort or pad batches to few lengths.", ("TrainingArguments(group_by_length=True)",)),
          SMALLER),
         _sample("1.00 GiB",
                 "Of the allocated memory 55.00 GiB is allocated by PyTorch, and 20.50 GiB is reserved "
                 "by PyTorch but unallocated."),
         _ALLOCATOR),
    Case(numbers(_has_room),
         "an allocation failed although the GPU reports much more free memory: probably a limit, or a short peak",
         "Other processes may have freed it since, or a limit applies to this process: a MIG slice, a shared or "
         "virtual GPU, Windows (WSL), a full swap or page file of the host.",
         (OTHERS, Fix("Check for slices and limits.",
                       ("nvidia-smi -L", "env | grep -iE 'cuda|vgpu|mps'", "free -g"))),
         _sample("60.00 GiB", ""),
         _ALLOCATOR),
    Case(every(NO_TEXT, _after_many_steps, numbers(_is_filled_in_small_steps)),
         "a GPU's memory is full after many steps that fitted, and the request is small: probably it grew in the run",
         "torch's own tensors fill the GPU. Something grows from step to step: a list or a sum that keeps tensors with "
         "their graph (a loss without .item()), a cache of images on the GPU, or the model itself (the points of "
         "Gaussian splatting). If it jumps at one step only, that batch is larger than those before.",
         (Fix("See whether it grows, and how fast.",
              ("print(step, torch.cuda.memory_allocated() >> 20, 'MiB')",)),
          Fix("Keep numbers, and not tensors, from step to step.",
              ("total += loss.item()", "kept.append(x.detach().cpu())")),
          Fix("In Gaussian splatting, add fewer points, and keep the images in host memory.",
              ("--densify_grad_threshold 0.0004 --densify_until_iter 10000  # graphdeco's train.py",
               "--data_device cpu  # graphdeco's train.py"))),
         "step 7400/20000 loss 0.21\n" + trace(
             "train.py in main", message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 MiB. GPU "
             "0 has a total capacity of 23.50 GiB of which 9.50 MiB is free. Including non-PyTorch memory, this "
             "process has 23.40 GiB memory in use. Of the allocated memory 22.90 GiB is allocated by PyTorch, and 0.10 "
             "GiB is reserved by PyTorch but unallocated."),
         "https://docs.pytorch.org/docs/stable/notes/faq.html"),
    Case(within(r"torch/cuda/(?:__init__|random)\.py in |torch/random\.py in | in (?:set_device|_lazy_init|set_seed|"
                r"seed_everything|manual_seed\w*|empty_cache|init_process_group|_setup_devices)$"),
         "a GPU is full before this run puts anything on it: another process holds its memory",
         "The first CUDA call already fails. The memory belongs to another program or an orphaned rank, or all ranks "
         "open the same GPU.",
         (OTHERS, OWN_GPU),
         trace("train.py in main", "torch/cuda/__init__.py in set_device",
               message="RuntimeError: CUDA error: out of memory"),
         "https://github.com/pytorch/pytorch/issues/20532"),
    Case(through("verl"),
         "a GPU's memory is full in a step of verl",
         "Actor, reference and vLLM share the GPU: its memory holds their weights, the optimizer, and the activations "
         "of one micro-batch of the longest sequences.",
         (Fix("Use smaller micro-batches, and offload what is idle.",
              ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
               "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
               "actor_rollout_ref.actor.fsdp_config.param_offload=True",
               "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True")), SHARE),
         trace("verl/workers/actor/dp_actor.py in update_policy",
               "transformers/models/qwen2/modeling_qwen2.py in forward"),
         "https://verl.readthedocs.io/en/latest/perf/perf_tuning.html"),
    Case(through("openrlhf"),
         "a GPU's memory is full in a step of OpenRLHF",
         "Actor, reference, reward model and vLLM share the GPUs: their weights, the optimizer, and the activations of "
         "one micro-batch of the longest sequences.",
         (Fix("Use smaller micro-batches, and offload what is idle.",
              ("--micro_train_batch_size 1 --micro_rollout_batch_size 1", "--adam_offload --gradient_checkpointing",
               "--vllm_enable_sleep --deepspeed_enable_sleep")), SHARE),
         trace("openrlhf/trainer/ray/ppo_actor.py in training_step",
               "transformers/models/qwen2/modeling_qwen2.py in forward"),
         "https://openrlhf.readthedocs.io/en/latest/performance.html"),
)
_SMALL = Case(
    every(numbers(lambda read: read.total is not None and read.total <= _SMALLEST),
          never(numbers(lambda read: read.tried is None))),
    "a GPU's memory is full, and this GPU has little of it: at most 4 GiB in all",
    "CUDA itself needs 0.3 to 0.6 GiB, and a display some more. What is left is enough for inference of small models, "
    "and rarely for training: weights, gradients, two optimizer states and the activations of a batch.",
    (Fix("Try the smallest batch, smaller inputs and a smaller model; add up gradients of several steps.",
         ("loader = DataLoader(dataset, batch_size=1, ...)",
          "with torch.autocast('cuda', dtype=torch.float16): loss = ...  # in training only with a GradScaler",
          "scaler = torch.amp.GradScaler('cuda')  # once; torch.cuda.amp.GradScaler() before torch 2.3",
          "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()")),
     Fix("Or use another GPU, or the CPU.", ("nvidia-smi", "CUDA_VISIBLE_DEVICES= python train.py"))),
    trace("train.py in main", "models.py in forward",
          message="RuntimeError: CUDA out of memory. Tried to allocate 96.00 MiB (GPU 0; 3.81 GiB total capacity; 2.90 "
                  "GiB already allocated; 20.31 MiB free; 3.02 GiB reserved in total by PyTorch)"), _ALLOCATOR)
_GENERAL = 3  # of the cases of the steps: a later step, the backward and the forward pass. The numbers say more.
_IN_NOTEBOOK = Case(
    within(r"^(?:Cell In ?\[\d+\]|<ipython-input-\d+)"),
    "a GPU's memory is full in a notebook, whose kernel keeps what earlier cells and turns of a loop left there",
    "It keeps every model, optimizer and batch that a name, an output (Out[3], _) or the last exception still "
    "refers to. A loop that builds a model in each turn keeps the old one until the name has the new one. If a fresh "
    "kernel runs out of memory in its first turn, too, the model and this batch do not fit.",
    (Fix("Delete what is no longer used, and see what is left.",
         ("del model, optimizer", "gc.collect(); torch.cuda.empty_cache()",
          "print(torch.cuda.memory_allocated() / 2**30)")),
     Fix("Restart the kernel, or run each experiment as a script in a process of its own."),
     Fix("If a fresh kernel has no room either, use a smaller batch, with more steps of gradient accumulation.")),
    'Traceback (most recent call last):\n  File "<ipython-input-4-0c1f>", line 7, in <module>\n    out = net(x)\n'
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; "
    "7.25 GiB already allocated; 0 bytes free; 7.27 GiB reserved in total by PyTorch)",
    "https://docs.pytorch.org/docs/stable/notes/faq.html")
_CASES = (*_FIRST, *DRIVER, *BEFORE_STEPS, *IN_PIECES, _SMALL, *OF_TRAINERS, *IN_STEPS[:-_GENERAL], *_LAST,
          *IN_STEPS[-_GENERAL:], _IN_NOTEBOOK)
# The same places, if another process holds too little to explain it.
_OWN = "Including non-PyTorch memory"
_BESIDE = (
    *(replace(case, sample=case.sample.replace(_OWN, f"Process 7 has 0.50 GiB memory in use. {_OWN}"))
      for case in _CASES if _OWN in case.sample),
    Case(numbers(is_alone),
         "a GPU's memory is full, almost only with this process's own data",
         "Another process holds a little of it. Parameters, gradients, optimizer states and activations of this rank "
         "do not fit.",
         (SMALLER, SHARD, OTHERS),
         trace("train.py in main").replace(_OWN, f"Process 7 has 0.50 GiB memory in use. {_OWN}"), _TROUBLE),
)

_TENSORFLOW_ON_HOST = Case(
    said(r"OOM when allocating.*(?:/device:CPU:\d|/cpu:\d|by allocator (?:cpu|mklcpu))"),
    "the host's memory is full: TensorFlow could not allocate a tensor of shape {shape} there",
    "The tensor is in the memory of the machine, not of a GPU: data that is loaded or decoded at once, or a model "
    "that runs on the CPU.",
    Fix("Read the data in batches, use a smaller batch, or ask the job for more memory.", ("free -g",)),
    "ResourceExhaustedError: OOM when allocating tensor with shape[9000,512,512,3] and type float on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu\n",
    _TENSORFLOW)
ROWS = (
    Row("log_xla_memory_full", "root", "cuda",
        r"(?P<what>Ran out of memory in memory space \w+(?:\. Used [\d.]+[KMGT] of [\d.]+[KMGT])?|"
        r"RESOURCE_EXHAUSTED: (?!.{0,80}Ran out of memory in memory space).{0,80}?"
        r"(?:[Oo]ut of memory|[Ff]ailed to allocate))",
        ("RuntimeError: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 100.38G of 31.75G "
         "hbm. Exceeded hbm capacity by 68.63G.",
         "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 10737418240 "
         "bytes."),
        "the accelerator's memory is full (reported by XLA)",
        "XLA plans the memory of a whole compiled step: weights, gradients, optimizer states and activations of one "
        "rank do not fit. JAX also reserves 75 % of a GPU when it starts, which other processes then lack.",
        (XLA_SMALLER, XLA_PREALLOCATED), "https://docs.jax.dev/en/latest/gpu_memory_allocation.html",
        explain=explain_plan, remark=requested),
    Row("log_gpu_memory_taken", "root", "cuda",
        # In a container NVML reports the host's pids, so torch lists its own process as another one: only a second one
        # is really another process (c10/cuda/CUDACachingAllocator.cpp, reportProcessMemoryInfo).
        r"CUDA out of memory\.(?=.*(?:this process has|Process \d+ has.* Process \d+ has))"
        r"(?P<numbers>.* Process (?P<pid>\d+) has (?P<held>[\d.]+ [KMGT]iB) memory in use.{0,400})",
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 "
         "GiB of which 11.00 MiB is free. Process 4711 has 61.20 GiB memory in use. Including non-PyTorch memory, this "
         "process has 17.9 GiB memory in use.",
         "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of "
         "15.90 GiB of which 8.44 MiB is free. Process 12 has 9.0 GiB memory in use. Process 99 has 6.8 GiB memory in "
         "use. Of the allocated memory 6.1 GiB is allocated by PyTorch"),
        "a GPU's memory is full, and another process (pid {pid}) uses {held} of it",
        "It is another program, an orphaned rank of an earlier run, or a second rank of this run on the same GPU. "
        '"Tried to allocate" in the line shows how much was missing.',
        (OTHERS, Fix("If it is a rank of this run, give each rank its own GPU.",
                      ("mgpu doctor --script train.py",)), SMALLER),
        "https://github.com/pytorch/pytorch/issues/126510",
        summary="A GPU's memory is full, and another process uses part of it.", explain=taken, cases=_BESIDE,
        remark=held_beside),
    Row("log_tensorflow_memory_full", "root", "cuda",
        r"OOM when allocating tensor (?:with|of) shape ?(?P<shape>\[[\d,]*\])",
        ("ResourceExhaustedError: OOM when allocating tensor with shape[50,450537]",
         "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
         "shape[64,64,128,128] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"),
        "a GPU's memory is probably full: TensorFlow could not allocate a tensor of shape {shape}",
        "The model, its gradients and the activations of one batch do not fit. TensorFlow takes nearly all memory of a "
        "GPU when it starts, so a second program on the same GPU has little.",
        (Fix("Use a smaller batch, smaller inputs or mixed precision. The first size of the shape is often the batch."),
         OTHERS), _TENSORFLOW, summary="TensorFlow could not allocate a tensor: a memory is full.",
        cases=(_TENSORFLOW_ON_HOST,)),
    Row("log_gpu_memory_full", "root", "cuda",
        r"^(?!.*this process has.* Process \d+ has|.*Process \d+ has.*(?:this process has| Process \d+ has))"
        r"(?!.*(?:cumem_allocator|on a different rank|RayTaskError\(OutOfMemoryError\): ray::)).*"
        r"(?P<numbers>(?:CUDA out of memory|(?<!ray\.exceptions\.)(?<!Ray)(?<!java\.lang\.)OutOfMemoryError\b|"
        r"CUDA(?: [Ee]rror)?: out of memory|"
        r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|"
        r"(?:CUDA driver error|Triton Error \[CUDA\]): out of memory|cuda runtime error \(2\)).{0,300})",
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 "
         "GiB", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total "
         "capacity; 22.1 GiB already allocated; 11.00 MiB free; 22.9 GiB reserved in total by PyTorch)",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 "
         "GiB of which 1.00 GiB is free. Process 2112997 has 78.1 GiB memory in use. Of the allocated memory 75.00 GiB "
         "is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
         "RuntimeError: CUDA out of memory. Tried to allocate 1.5 GiB", "RuntimeError: CUDA error: out of memory",
         "RuntimeError: CUDA driver error: out of memory", "RuntimeError: cuda runtime error (2) : out of memory at "
                                                           "x.cu",
         "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        "a GPU's memory is full",
        "Parameters, gradients, optimizer states and activations of one process do not fit. Under DDP each GPU has the "
        "whole model. With several ranks, the one that ran out of memory exits, and the others report that it "
        "disappeared.",
        (SMALLER, SHARD, OTHERS,
         Fix("If much is reserved but unallocated, let the allocator join segments.",
             ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",))),
        _TROUBLE, because_of=("log_gpu_memory_taken",), explain=held_unseen, cases=_CASES),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
