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
    _row("visible_devices_renumbered",
         r"CUDA_VISIBLE_DEVICES['\"]?\)?\s?[:=]\s?\\?['\"\[]?[1-9]\d*(?:, ?\d+)+",
         ("+ export CUDA_VISIBLE_DEVICES=4,5,6,7", "os.environ.get('CUDA_VISIBLE_DEVICES')='4,5,6,7'",
          "LOCAL_RANK: 1 - CUDA_VISIBLE_DEVICES: [2,3]"),
         "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars"),
    _row("weights_backed_up_in_host_memory",
         r"sleep freed [\d.]+ GiB memory in total, of which (?!0\.00)[\d.]+ GiB is backed up in CPU",
         ("INFO 06-08 09:31:07 [cumem.py:216] CuMemAllocator: sleep freed 151.20 GiB memory in total, of which 78.11 "
          "GiB is backed up in CPU and the rest 73.09 GiB is discarded directly.",),
         "https://docs.vllm.ai/en/latest/features/sleep_mode.html"),
    _row("stopped_with_checkpoint",
         r"[Pp]reempt\w* (?:signal )?.{0,80}\bsav(?:ing|ed) (?:a )?checkpoint|"
         r"\bstopped early due to (?:preemption|SIGTERM|a signal)|exiting program after receiving SIGTERM",
         ("Preemption signal seen on at least one rank, saving checkpoint and stopping",
          "Training stopped early due to preemption (step 412 of 2000); exiting with code 0",
          "exiting program after receiving SIGTERM."),
         "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/training.py"),
    _row("training_finished",
         r"`Trainer\.fit` stopped: `max_\w+=\S+` reached|['\"]train_runtime['\"]: ?['\"]?\d|"
         r"Training completed\. Do not forget to share your model|\[after training is done\]",
         ("`Trainer.fit` stopped: `max_epochs=100` reached.", "{'train_runtime': 812.1, 'train_loss': 0.4}",
          "[after training is done] datetime: 2026-11-21 10:12:09"),
         "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/loops/fit_loop.py"),
    _row("gradients_not_finite", r"['\"]grad_norm['\"]: ['\"]?(?:nan|inf)\b|\bgrad[_ ]?norm:? ?=?\|? ?(?:nan|inf)\b",
         ("{'loss': 1.4121, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.0}", "grad norm: nan", "grad_norm=inf"),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
    _row("gradients_finite", r"['\"]grad_norm['\"]: ['\"]?\d|\bgrad[_ ]?norm:? ?=?\|? ?\d",
         ("{'loss': 1.4121, 'grad_norm': 1.2, 'learning_rate': 0.0, 'epoch': 0.0}", "grad norm: 1.372",
          "grad_norm: 4.8125"),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
