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
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
