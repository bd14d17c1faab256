"""Why did a vLLM or SGLang engine not start, or refuse a setting that training uses?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_CLIENT = "https://github.com/vllm-project/vllm/blob/main/vllm/v1/engine/core_client.py"
_CORE = "https://github.com/vllm-project/vllm/blob/main/vllm/v1/engine/core.py"
_UTILS = "https://github.com/vllm-project/vllm/blob/main/vllm/v1/engine/utils.py"
_CONFIG = "https://github.com/vllm-project/vllm/blob/main/vllm/config/model.py"
_VLLM = "https://github.com/vllm-project/vllm/blob/main/vllm/config/vllm.py"
_LOADER = "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/model_loader/loader.py"
_PARALLEL = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html"

# fmt: off
ROWS = (
    Row("log_vllm_engine_slow", "root", "launcher",
        r"Timed out waiting for (?:new )?engine core processes to start|"
        r"Did not receive response from front-end process within \d+ minutes|"
        r"DP Coordinator process failed (?:to report|during)",
        ("TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight "
         "loading "
         "for large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S).",
         "RuntimeError: Did not receive response from front-end process within 5 minutes"),
        "vLLM's engine processes did not become ready in time",
        "Weights load slowly from a network disk, torch.compile and CUDA graphs take minutes at the first start, or "
        "one "
        "engine process of a data-parallel group (also on another node) died or never started.",
        (Fix("Look for the first error of an engine process, in its own output.", ("grep -n 'EngineCore' LOG | head",)),
         Fix("If there is none, allow more time, or start faster.",
             ("export VLLM_ENGINE_READY_TIMEOUT_S=3600", "LLM(..., enforce_eager=True)",
              "cp -r /shared/model /local/nvme/"))), _CLIENT),
    Row("log_vllm_replicas_differ", "root", "launcher",
        r"Configuration mismatch detected for engine \d+",
        ("RuntimeError: Configuration mismatch detected for engine 1. All DP workers must have identical "
         "configurations "
         "for parameters that affect collective communication.",),
        "the data-parallel engines of vLLM were started with different settings",
        "Each node must start with the same arguments, environment (VLLM_ variables) and vLLM release.",
        Fix("Compare the command lines, variables and versions of the nodes.",
            ("env | grep -E '^(VLLM|NCCL)_' | sort", "pip show vllm")), _UTILS),
    Row("log_vllm_replicas_not_placed", "root", "launcher",
        r"Not enough resources to allocate \d+ (?:DP ranks|placement groups)|"
        r"The DP master node \(ip: (?:[\d.]+)\) is missing or dead|"
        r"Not enough total available nodes \(\d+\) and devices per node",
        ("ValueError: Not enough resources to allocate 8 DP ranks on DP master node 10.0.0.4, possible to fit 4 DP "
         "ranks.",
         "AssertionError: The DP master node (ip: 10.0.0.4) is missing or dead"),
        "Ray has too few free GPUs for vLLM's data-parallel engines, or lacks the master node",
        "Each engine needs tensor x pipeline parallel size GPUs. The first engines must fit on the node of "
        "data-parallel-address, which must be an address that Ray lists.",
        Fix("Compare the sizes with the cluster, and the address with Ray's nodes.",
            ("ray status", "ray list nodes", "--data-parallel-size 4 --data-parallel-size-local 4 "
                                             "--data-parallel-address HEAD_ADDRESS")), _UTILS),
    Row("log_vllm_allocator_once", "root", "script", r"CuMem allocator can only be used for one instance per process",
        ("AssertionError: CuMem allocator can only be used for one instance per process.",),
        "two vLLM engines with sleep mode were created in one process",
        "The allocator that sleep mode needs exists once per process. A trainer, a notebook or a test created the "
        "engine a second time.",
        Fix("Create one engine per process, or restart the process.", ("LLM(..., enable_sleep_mode=False)",)),
        "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/gpu_worker.py"),
    Row("log_vllm_transfer_not_configured", "root", "library",
        r"Weight transfer not configured\. Please set weight_transfer_config|"
        r"start_weight_update must be called before update_weights",
        ("RuntimeError: Weight transfer not configured. Please set weight_transfer_config to enable weight transfer.",),
        "the trainer sends weights to a vLLM engine that is not set up to receive them",
        "The trainer and vLLM were made for different ways to update weights: their releases do not fit, or the engine "
        "was started by hand without the setting.",
        Fix("Start the engine as the trainer's release documents, and compare the versions.",
            ("pip show vllm trl verl", "trl vllm-serve --model MODEL")),
        "https://github.com/vllm-project/vllm/blob/main/vllm/config/weight_transfer.py"),
    Row("log_attention_backend_unknown", "root", "launcher",
        r"Unknown attention backend: '?(?:[\w.]+)'?|Invalid attention backend(?: for| name)?:? (?:\w+)",
        ("ValueError: Unknown attention backend: 'FLASH'. Valid options are: FLASH_ATTN, FLASHINFER",),
        "the chosen attention backend does not exist in this release, or not for this GPU",
        "VLLM_ATTENTION_BACKEND or an option names it. Names change between releases.",
        Fix("Leave the choice to the engine.", ("unset VLLM_ATTENTION_BACKEND", "env | grep ATTENTION")),
        "https://github.com/vllm-project/vllm/blob/main/vllm/v1/attention/backends/registry.py"),
    Row("log_vllm_worker_class_passed", "root", "library",
        r"passing worker_cls is no longer supported",
        ("ValueError: passing worker_cls is no longer supported. Please pass keep the class in a separate module and "
         "pass "
         "the qualified name of the class as a string.",),
        "the trainer passes a worker class to vLLM, which newer releases refuse",
        "The trainer is older than the installed vLLM.",
        Fix("Upgrade the trainer, or install the vLLM that its requirements "
            "name.", ("pip show vllm; pip check",)), _CORE),
    Row("log_engine_quantization_needs_newer_gpu", "root", "launcher",
        r"[Tt]he quantization method (?P<method>\S+) is not supported for the current GPU\. Minimum capability: "
        r"(?P<need>\d+)\. Current capability: (?P<have>\d+)",
        ("ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. "
         "Current "
         "capability: 80.",),
        "this GPU (compute capability {have}) is too old for the {method} weights, which need {need}",
        "80 is A100, 86 RTX 30, 89 Ada (RTX 40, L40), 90 Hopper, 100 and above Blackwell.",
        Fix("Use another copy of the model: bf16, or AWQ or GPTQ for older GPUs.",
            ("nvidia-smi --query-gpu=name,compute_cap --format=csv",)), _VLLM,
        summary="The GPU is too old for the quantization of the weights."),
    Row("log_quantized_blocks_not_divided", "root", "launcher",
        r"(?P<what>(?:The (?:in|out)put_size of \S+(?: and \S+)? weight|Weight (?:in|"
        r"out)put_(?:size_per_)?partition\S*) ?= ?"
        r"\d+\S* is not divisible by .*)",
        ("ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n "
         "= "
         "128.",
         "ValueError: Weight input_size_per_partition = 9472 is not divisible by min_thread_k = 128. Consider reducing "
         "tensor_parallel_size or running with --quantization gptq."),
        "the quantized weights cannot be divided over so many tensor-parallel ranks: {what}",
        "Quantized weights have one scale per block or group of 64 or 128 values. Each rank's part must hold whole "
        "blocks, which a large tensor parallel size (most often in the experts of a MoE model) does not leave.",
        (Fix("Use a smaller tensor parallel size, with expert or data parallelism for the rest.",
             ("vllm serve MODEL --tensor-parallel-size 4 --enable-expert-parallel",
              "python -m sglang.launch_server --model MODEL --tp 8 --ep 8")),
         Fix("Or use weights that are not quantized in blocks.")),
        "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/quantization/fp8.py",
        summary="Quantized weights cannot be divided over so many tensor-parallel ranks."),
    Row("log_quantization_methods_differ", "root", "launcher",
        r"Quantization method specified in the model config \((?P<model>[^)]+)\) does not match the quantization "
        r"method "
        r"specified in the `quantization` argument \((?P<given>[^)]+)\)",
        ("ValueError: Quantization method specified in the model config (awq) does not match the quantization method "
         "specified in the `quantization` argument (gptq).",),
        "the weights are quantized with {model}, but the engine is asked for {given}",
        "The config.json of the weights states the method.",
        Fix("Leave the argument out: the engine reads the method from the config."), _CONFIG,
        summary="The engine is asked for another quantization than the weights have."),
    Row("log_engine_computed_nan", "root", "script", r"Error: NaNs? (?:detected|found) in (?:the )?logits",
        ("RuntimeError: NaNs detected in logits: ['req-1']",),
        "the inference engine computed NaN",
        "In training with rollouts the weights that the trainer sent are probably NaN or incomplete. Otherwise fp16 "
        "overflows, or the quantization or attention backend is faulty for this model.",
        (Fix("Check whether the loss or the gradients were NaN in the step before."),
         Fix("Compare with the base weights, in bf16.", ("LLM(..., dtype='bfloat16', enforce_eager=True)",))),
        "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/utils.py"),
    Row("log_engine_without_pipeline", "root", "launcher",
        r"Pipeline [Pp]arallel(?:ism)? is not (?:supported for|compatible with) this model",
        ("NotImplementedError: Pipeline parallelism is not supported for this model. Supported models implement the "
         "`SupportsPP` interface.", "AssertionError: Pipeline Parallel is not compatible with this model."),
        "the inference engine cannot split this model into pipeline stages",
        "Its implementation of the model lacks pipeline parallelism.",
        Fix("Use tensor parallelism alone, also over several nodes.",
            ("--pipeline-parallel-size 1 --tensor-parallel-size 8",)), _PARALLEL),
    Row("log_engine_weights_incomplete", "root", "library",
        r"references \d+ shard file\(s\) missing from (?:\S+)|"
        r"Cannot find any model weights with `(?:[^`]+)`|No model weights found in: `[^`]+`",
        ("RuntimeError: model.safetensors.index.json references 3 shard file(s) missing from /data/model (incomplete "
         "download?): model-00002-of-00004.safetensors",
         "RuntimeError: Cannot find any model weights with `/data/model`"),
        "the model's folder lacks weight files",
        "The download or copy is incomplete (also Git LFS pointers), the files have another format than the engine "
        "looks for, or this node does not mount the folder.",
        Fix("List the files on every node, and download them again.",
            ("ls -l MODEL/*.safetensors | head", "hf download MODEL --local-dir MODEL")), _LOADER),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
