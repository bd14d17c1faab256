"""Did vLLM or SGLang fail inside a training run: its memory, its engine, its processes, its settings?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import line_of, raised_in

_MEMORY = "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"
_TROUBLE = "https://docs.vllm.ai/en/latest/usage/troubleshooting.html"
_PARALLEL = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html"
_ENGINE_ARGS = "https://docs.vllm.ai/en/latest/configuration/engine_args.html"
_SLEEP = "https://docs.vllm.ai/en/latest/features/sleep_mode.html"
_SGLANG = "https://docs.sglang.io/advanced_features/server_arguments.html"
_MOST_HEADS = 4096
_SGLANG_TUNING = "https://docs.sglang.io/advanced_features/hyperparameter_tuning.html"


def _heads(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the sizes that divide the heads."""
    heads, size = int(groups["heads"]), int(groups["size"])
    if not 0 < heads <= _MOST_HEADS:
        return None
    fit = [number for number in range(1, heads + 1) if heads % number == 0]
    nearest = max(number for number in fit if number <= max(size, 1))
    return Meaning(
        f"the model's {heads} attention heads cannot be divided by tensor parallel size {size}",
        "Tensor parallelism gives every GPU the same number of heads. Sizes that divide them: "
        f"{', '.join(map(str, fit[:12]))}.",
        (
            Fix(
                "Choose one of these, and use the other GPUs for more engines (data parallel) or pipeline stages.",
                (
                    python("LLM(..., tensor_parallel_size={:number})", nearest),
                    shell("--tensor-parallel-size {:number}", nearest),
                    shell("actor_rollout_ref.rollout.tensor_model_parallel_size={:number}  # verl", nearest),
                ),
            ),
        ),
    )


# fmt: off
SHARE = Fix("Give vLLM another share of the GPU. If the trainer uses the same GPU, its share is what is left.",
             ("LLM(..., gpu_memory_utilization=0.6)", "vllm_gpu_memory_utilization=0.3  # TRL, OpenRLHF",
              "actor_rollout_ref.rollout.gpu_memory_utilization=0.4  # verl"))
_OF_VLLM_ITSELF = Case(
    raised_in(r"^vllm/"),
    "vllm's own code reads model_executor, which its V1 engine does not have: this release supports that call with the "
    "older engine only",
    "V1 is switched on in a vllm whose function still expects the older engine. The trainer calls a public function of "
    "vllm, and needs a release in which it also works with V1.",
    (Fix("Install the vllm that the trainer names, usually a newer one.",
         ("pip show vllm", "pip install --upgrade vllm", "pip check")),
     Fix("vllm 0.8 to 0.10: use the older engine.", ("export VLLM_USE_V1=0",))),
    "Traceback (most recent call last):\n"
    '  File "/env/lib/python3.11/site-packages/vllm/entrypoints/llm.py", line 4, in collective_rpc\n'
    "    executor = self.llm_engine.model_executor\n"
    "AttributeError: 'LLMEngine' object has no attribute 'model_executor'",
    "https://github.com/OpenRLHF/OpenRLHF/issues/922")
_WAKING = Case(
    line_of("log_vllm_memory_full", r"cumem_allocator"),
    "vLLM gets no GPU memory for its weights and KV cache, probably when it wakes up beside the trainer (sleep mode)",
    "Only sleep mode uses this allocator. On waking, vLLM takes its whole share of the GPU (gpu_memory_utilization) "
    "again, while the trainer's weights, optimizer or cached memory are still on it.",
    (SHARE, Fix("Move the trainer's weights and optimizer to host memory before vLLM wakes up, and free the cache.",
                ("actor_rollout_ref.actor.fsdp_config.param_offload=True",
                 "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True", "torch.cuda.empty_cache()")),
     Fix("Or wake the weights first and the KV cache after the update, split vLLM over more GPUs, and upgrade it.",
         ("llm.wake_up(tags=['weights'])", "LLM(..., tensor_parallel_size=2)"))),
    "(WorkerDict pid=1751030) CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
    "https://github.com/vllm-project/vllm/issues/15254")

_FREED = Case(
    line_of("log_vllm_memory_full", r"Error in memory profiling|Initial free memory .*current free memory"),
    "another process freed GPU memory while vLLM measured how much it needs itself",
    "vLLM compares the free memory before and after a test step. An earlier run that was still ending, a second engine "
    "that started at the same time, or a trainer that moved its model away made the difference negative.",
    (Fix("Start engines one after another, and wait until the old process has disappeared.",
         ("nvidia-smi --query-compute-apps=pid,used_memory --format=csv", "mgpu doctor --only gpu_busy")),
     Fix("In a trainer, free its memory before the engine starts.", ("gc.collect(); torch.cuda.empty_cache()",))),
    "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 22.0 GiB. This "
    "happens "
    "when other processes sharing the same container release GPU memory while vLLM is profiling\n",
    "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/gpu_worker.py")
ROWS = (
    Row("log_vllm_memory_full", "root", "cuda",
        r"No available memory for the cache blocks|Free memory on device .*less than (?:desired GPU|the engine's)|"
        r"Error in memory profiling|out of memory at \S*cumem_allocator|"
        r"Initial free memory .*current free memory|out of memory during (?:warm ?up|cudagraph)",
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
         "initializing the engine.",
         "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory "
         "utilization (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
         "Free memory on device (9.1/79.2 GiB) on startup is less than desired GPU memory utilization (0.9, 71.3 GiB).",
         "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 22.0 GiB. This "
         "happens when other processes sharing the same container release GPU memory while vLLM is profiling",
         "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"),
        "vLLM does not get the GPU memory that it was configured to use",
        "gpu_memory_utilization is a share of the whole GPU. The trainer, another process or an earlier run uses part "
        "of it, or the share is too small for the model.",
        (SHARE, Fix("Check what else is on the GPU.",
                     ("nvidia-smi", "mgpu doctor --only gpu_busy,gpu_memory_without_process"))), _MEMORY,
        cases=(_WAKING, _FREED)),
    Row("log_vllm_context_too_long", "root", "cuda",
        r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache|"
        r"larger than the available KV [Cc]ache memory",
        ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
         "in KV cache (62384). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing "
         "the engine.",
         "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
         "needed, which is larger than the available KV cache memory (10.20 GiB)."),
        "vLLM's GPU memory is too small for one sequence of the model's full length",
        "The KV cache must hold at least one sequence of max_model_len tokens.",
        (Fix("Limit the length to what the run needs.", ("LLM(..., max_model_len=16384)",)), SHARE), _MEMORY),
    Row("log_vllm_device_taken", "root", "launcher",
        r"(?:device for vLLM|vLLM device) \(?`?(?P<device>\w+:\d+)`?\)? (?:is )?(?:also )?(?:not available|used)",
        ("ValueError: The requested device for vLLM (cuda:4) is not available. You are likely using vLLM without "
         "restricting the number of GPUs for training.",),
        "no GPU is left for vLLM: {device} does not exist, all GPUs are used for training",
        "TRL gives vLLM the GPU after those of the ranks. With as many ranks as GPUs there is none.",
        Fix("Start fewer ranks than GPUs, or let vLLM share the ranks' GPUs.",
            ("accelerate launch --num_processes 7 ...", "GRPOConfig(use_vllm=True, vllm_mode='colocate')",
             "nvidia-smi -L")),
        "https://huggingface.co/docs/trl/main/en/vllm_integration",
        summary="No GPU is left for vLLM: all are used for training."),
    Row("log_vllm_engine_died", "wrapper", "script",
        r"Engine core initialization failed|EngineDeadError|EngineCore (?:encountered|failed)|"
        r"Engine (?:process failed to start|loop has died)|WorkerProc initialization failed|Engine core proc \S+ died",
        ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_0': "
         "1}",
         "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
         "root cause.", "RuntimeError: Engine process failed to start. See stack trace for the root cause."),
        "vLLM's engine died; the first exception of its processes has the reason",
        "It runs in its own process, which printed the cause further up.",
        Fix("Read the first exception of EngineCore or Worker.", ("VLLM_LOGGING_LEVEL=DEBUG mgpu launch train.py",)),
        _TROUBLE),
    Row("log_vllm_heads_do_not_divide", "root", "launcher",
        r"(?i)number of attention heads \((?P<heads>\d{1,6})\) must be divisible by tensor parallel size "
        r"\((?P<size>\d{1,6})\)",
        ("ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
         "  Value error, Total number of attention heads (64) must be divisible by tensor parallel size (3). "
         "[type=value_error, input_value=ArgsKwargs((), {'model_con...}), input_type=ArgsKwargs]"),
        "the model's {heads} attention heads cannot be divided by tensor parallel size {size}",
        "Tensor parallelism gives every GPU the same number of heads.",
        Fix("Choose a size that divides them.", ("LLM(..., tensor_parallel_size=7)",)), _PARALLEL,
        summary="The model's attention heads cannot be divided by the tensor parallel size.", explain=_heads),
    Row("log_vllm_wants_more_gpus", "root", "launcher",
        r"number of required GPUs exceeds the total number of available GPUs|"
        r"[Tt]ensor parallel size \(\d+\) (?:cannot be larger|is larger|must be (?:less|smaller)) than the number of "
        r"available GPUs|[Ww]orld size \(\d+\) is larger than the number of available GPUs",
        ("ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
         "ValueError: Tensor parallel size (4) cannot be larger than the number of available GPUs (2).",
         "ValueError: World size (8) is larger than the number of available GPUs (4) in this node. If this is "
         "intentional and you are using: - ray"),
        "vLLM's tensor x pipeline parallel size is larger than the number of GPUs it gets",
        "It sees only the GPUs of this node, of CUDA_VISIBLE_DEVICES, or of Ray's placement group. The trainer holds "
        "the others.",
        Fix("Lower the size, or give vLLM more GPUs.",
            ("LLM(..., tensor_parallel_size=2)", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "ray status")),
        _PARALLEL),
    Row("log_vllm_batched_tokens_too_few", "root", "script",
        r"max_num_batched_tokens \(?\d*\)? ?(?:is smaller than|should be greater than|must be greater than or "
        r"equal to)",
        ("ValueError: max_num_batched_tokens (8192) is smaller than max_model_len (32768). This effectively limits the "
         "maximum sequence length",
         "ValueError: max_num_batched_tokens should be greater than prompt_length + response_length"),
        "vLLM may process fewer tokens at once than one full sequence has",
        "max_num_batched_tokens must be at least max_model_len (prompt + response) unless chunked prefill is on.",
        Fix("Raise it, or turn chunked prefill on.",
            ("LLM(..., max_num_batched_tokens=32768)", "LLM(..., enable_chunked_prefill=True)",
             "actor_rollout_ref.rollout.max_num_batched_tokens=32768  # verl")), _ENGINE_ARGS),
    Row("log_vllm_length_beyond_model", "root", "script",
        r"User-specified max_model_len \((?P<wanted>\d+)\) is greater than the derived max_model_len",
        ("ValueError: User-specified max_model_len (8192) is greater than the derived max_model_len "
         "(max_position_embeddings=4096 or model_max_length=None in model's config.json).",),
        "max_model_len is {wanted}, but the model was made for shorter sequences",
        "prompt + completion length of the trainer is longer than max_position_embeddings in the model's config.json.",
        Fix("Shorten prompt and completion, or set RoPE scaling in the model's config.",
            ("GRPOConfig(max_completion_length=2048)", "data.max_response_length=2048  # verl")), _ENGINE_ARGS,
        summary="max_model_len is longer than the model's own limit."),
    Row("log_vllm_expandable_segments", "root", "cuda", r"Expandable segments are not compatible with memory pool|"
        r"[Ss]tandby mode is not supported with expandable segments|expandable_segments.{0,40}not (?:compatible|"
        r"supported).{0,40}(?:sleep|memory.?saver)",
        ("AssertionError: Expandable segments are not compatible with memory pool. Please track "
         "https://github.com/pytorch/pytorch/issues/147851 for the latest updates.",
         "AssertionError: Standby mode is not supported with expandable segments."),
        "vLLM's sleep mode does not work with expandable_segments",
        "Sleep mode has its own allocator, which PyTorch's expandable segments bypass.",
        Fix("Remove expandable_segments from the allocator's settings.",
            ("unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF",)), _SLEEP),
    Row("log_vllm_sleep_once", "root", "script", r"Sleep mode can only be used for one instance per process",
        ("AssertionError: Sleep mode can only be used for one instance per process.",),
        "two vLLM engines with sleep mode were created in one process",
        "Its allocator exists once per process. A notebook or a test created the engine a second time.",
        Fix("Create one engine per process, or restart the process.", ("LLM(..., enable_sleep_mode=False)",)), _SLEEP),
    Row("log_vllm_sleep_grew", "root", "cuda", r"Memory usage increased after sleeping",
        ("AssertionError: Memory usage increased after sleeping.",),
        "GPU memory grew while vLLM gave its own memory back",
        "vLLM compares the free memory before and after sleep(). Another process on the same GPU (a trainer's rank, a "
        "second engine) allocated in between.",
        Fix("Let only one process of a GPU allocate at a time, and check that no two engines share a GPU.",
            ("nvidia-smi", "torch.distributed.barrier()")), _SLEEP),
    Row("log_vllm_port_from_service", "root", "launcher", r"VLLM_PORT '(?P<value>[^']+)' appears to be a URI",
        ("ValueError: VLLM_PORT 'tcp://10.0.0.7:8000' appears to be a URI. This may be caused by a Kubernetes service "
         "discovery issue",),
        "Kubernetes set VLLM_PORT to {value}, which vLLM reads as its own port",
        "A service named vllm makes Kubernetes set VLLM_PORT in every pod of the namespace.",
        Fix("Rename the service, or turn its variables off in the pod.",
            ("enableServiceLinks: false", "unset VLLM_PORT")), _TROUBLE,
        summary="Kubernetes set VLLM_PORT, which vLLM reads as its own port."),
    Row("log_vllm_no_device", "root", "library", r"Failed to infer device type",
        ("RuntimeError: Failed to infer device type, please set the environment variable "
         "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.",),
        "vLLM finds no GPU",
        "CUDA_VISIBLE_DEVICES is empty here (a Ray actor without GPUs), the driver is not visible in the container, or "
        "the installed vLLM or torch was built for another device.",
        Fix("Check what this process sees.",
            ("python -c \"import torch; print(torch.version.cuda, torch.cuda.device_count())\"",
             "echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L", "pip show vllm torch")), _TROUBLE),
    Row("log_vllm_lora_rank", "root", "script", r"LoRA rank (?P<rank>\d+) is greater than max_lora_rank (?P<most>\d+)",
        ("ValueError: LoRA rank 64 is greater than max_lora_rank 16.",),
        "vLLM accepts LoRA adapters up to rank {most}, but this one has rank {rank}",
        "vLLM reserves memory for max_lora_rank, 16 by default.",
        Fix("Raise the limit.", ("LLM(..., enable_lora=True, max_lora_rank={rank:number})",)),
        "https://docs.vllm.ai/en/latest/features/lora.html",
        summary="A LoRA adapter has a higher rank than vLLM was configured for."),
    Row("log_vllm_group_of_other_size", "root", "script",
        r"parallel group (?:is )?already initialized, but of unexpected size",
        ("AssertionError: tensor model parallel group is already initialized, but of unexpected size. "
         "get_tensor_model_parallel_world_size()=1 vs. tensor_model_parallel_size=2",),
        "vLLM was started twice in one process with different parallel sizes",
        "The first engine, or the trainer, made the process groups, and the second one needs others.",
        Fix("Use one tensor parallel size for all engines in a process, or separate processes.", ()), _PARALLEL),
    Row("log_vllm_worker_waits", "secondary", "timeout",
        r"No available shared memory broadcast block found in \d+ ?s|RPC call to \w+ timed out|"
        r"RayChannelTimeoutError|Timed out waiting for object available to read",
        ("(EngineCore_0 pid=1) INFO 11-21 10:12:01 [shm_broadcast.py:501] No available shared memory broadcast block "
         "found in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming "
         "work", "TimeoutError: RPC call to sample_tokens timed out.",
         "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read."),
        "vLLM's engine waited for one of its workers, which hung or computed for too long",
        "A worker died, waits in a collective that the others do not reach, or compiles. Its own output, before this, "
        "has the reason.",
        Fix("Find the worker that is silent. If it is only slow, allow more time.",
            ("py-spy dump --pid PID", "export VLLM_RPC_TIMEOUT=600000 RAY_CGRAPH_get_timeout=1200")), _TROUBLE),
    Row("log_sglang_memory_full", "root", "cuda",
        r"Not enough memory\. Please try to increase --mem-fraction-static|"
        r"(?:Prefill|Decode) out of memory\. Try to lower your batch size|Memory pool size is too small",
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
         "self.server_args.mem_fraction_static=0.4",
         "RuntimeError: Decode out of memory. Try to lower your batch size."),
        "SGLang does not get the GPU memory that it needs",
        "mem-fraction-static is its share of the GPU for weights and KV cache. The trainer or another process uses "
        "the rest, or the share is too small for the model; what is above the share is for CUDA graphs.",
        (Fix("Change the share, and shorten what one batch needs.",
             ("--mem-fraction-static 0.7", "--cuda-graph-max-bs 16",
              "actor_rollout_ref.rollout.gpu_memory_utilization=0.5  # verl")),
         Fix("Check what else is on the GPU.", ("nvidia-smi",))), _SGLANG_TUNING),
    Row("log_sglang_memory_unbalanced", "root", "cuda", r"The memory capacity is unbalanced",
        ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
         "pre_model_load_memory=20.0",),
        "SGLang's start-up check found different free memory on its GPUs (more than 10 % between two of them)",
        "SGLang compares the free memory of its tensor-parallel GPUs before it loads the model. Either another "
        "process uses one of them, or a trainer on the same GPUs loads its own model at that moment, earlier on one "
        "rank than on another. Then the difference is temporary, and no memory is missing.",
        (Fix("See who uses the GPUs. A process that is not of this run must stop, or SGLang needs other GPUs.",
             ("nvidia-smi",)),
         Fix("If there are only the trainer's own processes, turn the check off.",
             ("export SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=True",
              "export SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=False  # SGLang 0.5 and newer"))),
        "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/model_executor/model_runner.py"),
    Row("log_sglang_graph_not_captured", "secondary", "cuda", r"Capture cuda graph failed: (?!.*out of "
                                                              r"memory)(?P<why>.+)",
        ("Exception: Capture cuda graph failed: page_size must be 64",),
        "SGLang could not record its CUDA graphs: {why}",
        "It records the model once per batch size at the start. A kernel that does not fit the GPU, or too little "
        "memory beside the static share, stops it.",
        Fix("Leave more memory, record fewer graphs, or turn them off.",
            ("--mem-fraction-static 0.7", "--cuda-graph-max-bs 16", "--disable-cuda-graph")), _SGLANG_TUNING,
        summary="SGLang could not record its CUDA graphs."),
    Row("log_sglang_kernels_not_loaded", "root", "library", r"\[sgl_kernel\] CRITICAL: Could not load any "
                                                            r"common_ops library",
        ("[sgl_kernel] CRITICAL: Could not load any common_ops library!",),
        "sgl-kernel has no library that fits this GPU, torch or CUDA",
        "SGLang's kernels are compiled for some GPUs and one torch release. The following lines list what was "
        "tried.",
        Fix("Install sglang again: it requires the torch and the sgl-kernel that fit it.",
            ("pip uninstall -y sgl-kernel; pip install --upgrade 'sglang[all]'", "pip show sglang sgl-kernel torch")),
        "https://docs.sglang.io/get_started/install.html"),
    Row("log_vllm_engine_has_no_executor", "root", "library",
        r"'LLMEngine' object has no attribute 'model_executor'",
        ("AttributeError: 'LLMEngine' object has no attribute 'model_executor'",),
        "the installed vllm is newer than the code that uses it: the engine of V1 has no model_executor",
        "The calling code (trl, a trainer, a script) reaches through llm_engine.model_executor into the model, as in "
        "vllm before V1, which is the default since 0.8.",
        (Fix("Upgrade the trainer, or install the vllm that it names.",
             ("pip install --upgrade trl", "pip show vllm trl", "pip check")),
         Fix("vllm 0.8 to 0.10: use the older engine.", ("export VLLM_USE_V1=0",))),
        "https://github.com/vllm-project/vllm/issues/16607", cases=(_OF_VLLM_ITSELF,)),
    Row("log_vllm_v1_lacks_option", "root", "library",
        r"VLLM_USE_V1=1 is not supported with \S.{0,60}?\.?$|"
        r"[\w-]+ is not supported by the V1 Engine\.?$",
        ("NotImplementedError: VLLM_USE_V1=1 is not supported with --worker-extension-cls.",
         "worker-extension-cls is not supported by the V1 Engine"),
        "the V1 engine of the installed vllm does not support an option that the run uses",
        "vllm uses V1 by default since 0.8. Releases differ in what it supports, and a trainer is written for some of "
        "them.",
        (Fix("Install the vllm that the trainer names, usually a newer one.",
             ("pip show vllm", "pip install --upgrade vllm", "pip check")),
         Fix("vllm 0.8 to 0.10: use the older engine.", ("export VLLM_USE_V1=0",))),
        "https://github.com/OpenRLHF/OpenRLHF/issues/910"),
    Row("log_sglang_scheduler_died", "wrapper", "script",
        r"Scheduler hit an exception|Received sigquit from a child process|Rank \d+ scheduler (?:is dead|died)|"
        r"Initialization failed\. Please see the error messages above",
        ("[2025-04-12 21:11:01 TP0] Scheduler hit an exception: Traceback (most recent call last):",
         "Received sigquit from a child process. It usually means the child failed.",
         "Rank 0 scheduler is dead. Please check if there are relevant logs.",
         "RuntimeError: Initialization failed. Please see the error messages above."),
        "SGLang's scheduler process died; its first exception has the reason",
        "It runs in its own process, which printed the cause further up.",
        Fix("Read the first exception of the scheduler.", ("mgpu doctor --log LOG",)), _SGLANG),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
