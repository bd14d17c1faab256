"""Did vLLM fail inside a training run: its memory, its engine, its processes?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_MEMORY = "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"
_TROUBLE = "https://docs.vllm.ai/en/latest/usage/troubleshooting.html"
# fmt: off
_SHARE = Fix("Give vLLM another share of the GPU. If the trainer uses the same GPU, its share is what is left.",
             ("LLM(..., gpu_memory_utilization=0.6)", "vllm_gpu_memory_utilization=0.3  # TRL, OpenRLHF",
              "actor_rollout_ref.rollout.gpu_memory_utilization=0.4  # verl"))

ROWS = (
    Row("log_vllm_memory_full", "root", "cuda",
        r"No available memory for the cache blocks|Free memory on device .*less than desired GPU memory utilization|"
        r"Error in memory profiling|out of memory at \S*cumem_allocator|larger than the available KV cache memory|"
        r"Initial free memory .*current free memory|out of memory during (?:warm ?up|cudagraph)",
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
         "initializing "
         "the engine.",
         "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory "
         "utilization "
         "(0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
         "Free memory on device (9.1/79.2 GiB) on startup is less than desired GPU memory utilization (0.9, 71.3 GiB).",
         "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 22.0 GiB. This "
         "happens when other processes sharing the same container release GPU memory while vLLM is profiling",
         "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"),
        "vLLM does not get the GPU memory that it was configured to use",
        "gpu_memory_utilization is a share of the whole GPU. The trainer, another process or an earlier run uses part "
        "of "
        "it, or the share is too small for the model.",
        (_SHARE, Fix("Check what else is on the GPU.",
                     ("nvidia-smi", "mgpu doctor --only gpu_busy,gpu_memory_without_process"))), _MEMORY),
    Row("log_vllm_context_too_long", "root", "cuda",
        r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache",
        ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
         "in KV "
         "cache (62384). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the "
         "engine.",
         ),
        "vLLM's GPU memory is too small for one sequence of the model's full length",
        "The KV cache must hold at least one sequence of max_model_len tokens.",
        (Fix("Limit the length to what the run needs.", ("LLM(..., max_model_len=16384)",)), _SHARE), _MEMORY),
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
         "root "
         "cause.", "RuntimeError: Engine process failed to start. See stack trace for the root cause."),
        "vLLM's engine died; the first exception of its processes has the reason",
        "It runs in its own process, which printed the cause further up.",
        Fix("Read the first exception of EngineCore or Worker.", ("VLLM_LOGGING_LEVEL=DEBUG mgpu launch train.py",)),
        _TROUBLE),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
