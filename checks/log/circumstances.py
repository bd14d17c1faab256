"""What does a log show of the run itself: its model, its framework, an option, what it was doing?

None of these is a fault. A case of a row (`Case`) can require them, with `shown` of `_circumstances`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures


def _row(name: str, pattern: str, samples: tuple[str, ...], source: str) -> Row:
    return Row(name, "context", "script", pattern, samples, "", "", Fix("No action needed.", ()), source)


# fmt: off
ROWS = (
    _row("multimodal_model",
         r"\b(?:Qwen[\d.]*-?(?:VL|Omni)|LLaVA|InternVL|MiniCPM-[VO]|Idefics|PaliGemma|Pixtral|mllama)\b|"
         r"\b(?:pixel_values|vision_tower|image_grid_thw)\b",
         ("Loading Qwen2.5-VL-7B-Instruct", "    features = self.vision_tower(pixel_values)"),
         "https://huggingface.co/docs/transformers/model_doc/qwen2_5_vl"),
    _row("expert_model",
         r"\bMixtral\b|num_experts|expert_parallel|\bDeepSeek-?V[23]\b|\bQwen[\d.]+-\d+B-A\d+B\b",
         ("model: Qwen3-30B-A3B", "Initializing MoE layer with num_experts 64"),
         "https://huggingface.co/docs/transformers/model_doc/mixtral"),
    _row("language_model",
         r"ForCausalLM\b|\bvocab_size\b|\blm_head\b|\bmax_seq_len(?:gth)?\b|\bseq_len(?:gth)?\b|\bsequence_len\b|"
         r"MaskedCrossEntropy|\bcutoff_len\b|\b[Tt]okenizer\b",
         ("Config: loss_fn=MaskedCrossEntropy local_batch_size=8 seq_length=4096 vocab_size=201088",
          "Running tokenizer on dataset"),
         "https://huggingface.co/docs/transformers/tasks/language_modeling"),
    # Trainer prints fsdp=[] and fsdp_config={...} in every run.
    _row("fsdp",
         r"distributed_type\W{1,4}FSDP|DistributedType\.FSDP|FullyShardedDataParallel|--use_fsdp\b|--fsdp[ =](?!\W)|"
         r"\bfsdp2\b|\bfully_shard\b|\bfull_shard\b|\bhybrid_shard\b|torch/distributed/fsdp/|ACCELERATE_USE_FSDP=[tT1]",
         ("Setting args.fsdp: {'fsdp': 'full_shard auto_wrap'}", "distributed_type: FSDP", "sft.py --fsdp fsdp2"),
         "https://docs.pytorch.org/docs/stable/fsdp.html"),
    _row("zero_three",
         r"zero_optimization.{0,40}stage\W{1,4}3\b|\bzero_?stage\W{1,3}3\b|--deepspeed[ =]\S*z(?:ero)?_?3|"
         r"zero_?3\w*\.(?:json|ya?ml)|\bstage3\.py:\d+|DeepSpeedZeroOptimizer_Stage3|DeepSpeedZeRoOffload",
         ("zero_optimization: {'stage': 3}", "--deepspeed ds_config_zero3.json", "zero_stage: 3"),
         "https://deepspeed.readthedocs.io/en/latest/zero3.html"),
    _row("optimizer_offloaded",
         r"DeepSpeedCPUAdam|\bcpu_adam\b|CPU Offload: True|\bz(?:ero)?_?[23]_?(?:cpu_?)?offload|_offload\w*\.json|"
         r"Adam Optimizer #\d+ is created with|offload_optimizer.{0,30}\bcpu\b|"
         r"\bparam_offload\W{1,3}True|\boptimizer_offload\W{1,3}True|offload_params\W{1,3}[Tt]rue|\badam_offload\b",
         ("Adam Optimizer #0 is created with AVX512 arithmetic capability.", "Loading extension module cpu_adam..."),
         "https://www.deepspeed.ai/docs/config-json/"),
    _row("host_memory_nearly_full",
         r"CPU Virtual Memory:\s+used = [\d.]+ GB, percent = (?:8[5-9]|9\d|100)\b",
         ("[INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 940.1 GB, percent = 93.4%",),
         "https://deepspeed.readthedocs.io/en/latest/memory.html"),
    _row("engine_weights_in_host_memory",
         r"CuMemAllocator: sleep freed .* of which (?!0\.0)[\d.]+ GiB is backed up in CPU|--vllm_enable_sleep\b",
         ("CuMemAllocator: sleep freed 151.20 GiB memory in total, of which 78.11 GiB is backed up in CPU and the rest "
          "73.09 GiB is discarded directly.",),
         "https://docs.vllm.ai/en/latest/features/sleep_mode.html"),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
