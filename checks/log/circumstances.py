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
    _row("long_sequences",
         r"\b(?:max_tokens\w*|seq_len\w*|seqlen|sequence_len\w*|cutoff_len|max_length|max_seq_len\w*|context_length|"
         r"num_tokens)[\"']?(?:=|: ?| )[1-9]\d{5,6}\b",
         ("INFO packing: max_tokens_per_rank=425984 hidden=1536", "    seq_length: 131072", "cutoff_len: 262144"),
         "https://github.com/fla-org/flash-linear-attention/issues/1080"),
    _row("new_nvshmem",  # DeepEP before its pull request 564 waits forever with it
         r"\bnvshmem\S{0,12}(?:==|[ =:v]{1,3})3\.(?:5\.(?:19|[2-9]\d)|[6-9]\.|\d\d\.)",
         ("deep_ep 1.2.1+17cfb81 nvidia-nvshmem-cu13 3.6.5 torch 2.11.0+cu130", "nvidia-nvshmem-cu12==3.5.19"),
         "https://github.com/deepseek-ai/DeepEP/issues/707"),
    _row("spread_and_ddp",  # ms-swift: fewer ranks than GPUs
         r"Using MP\(device_map\) \+ DDP", ("[INFO:swift] Using MP(device_map) + DDP",),
         "https://github.com/modelscope/ms-swift/issues/4019"),
    _row("tensor_parallel",
         r"tensor[_-](?:model[_-])?parallel[_-]?(?:size|dim|degree|world_size)?[\"']?(?: ?[=:] ?| )(?:[2-9]|\d\d)\b",
         ("tune run full_finetune_distributed tensor_parallel_dim=2", "--tensor-model-parallel-size 4"),
         "https://github.com/pytorch/torchtitan/blob/main/docs/composability.md"),
    _row("ray_run",
         r"\(raylet[,)]|\bray::\w|Started a local Ray instance|\bray\.exceptions\.|/ray/_private/| pid=\d+, ip=",
         ("2025-02-08 14:20:18,110 INFO worker.py:1841 -- Started a local Ray instance.",
          "(WorkerDict pid=5011, ip=10.0.0.2) Actor use_remove_padding=True",
          "ray.exceptions.RayTaskError(ValueError): ray::run() (pid=51424, ip=10.141.17.198)"),
         "https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html"),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
