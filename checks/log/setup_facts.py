"""What does a log show of the packages and the prepared data that a run uses?

None of these is a fault, as in `circumstances.py`: a case of a row, or a check, can require them.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures


def _row(name: str, pattern: str, samples: tuple[str, ...], source: str) -> Row:
    return Row(name, "context", "script", pattern, samples, "", "", Fix("No action needed.", ()), source)


_GRPO = "https://huggingface.co/docs/trl/main/en/grpo_trainer#logged-metrics"
_REWARD_STD, _NORM = r"['\"]reward_std['\"]: ['\"]?", r"['\"]grad_norm['\"]: ['\"]?"
_ZERO = r"-?0(?:\.0*)?(?:e[-+]?\d+)?['\"]?[,}]"

# fmt: off
ROWS = (
    _row("bitsandbytes_source_tree",
         r"(?:PosixPath\('|library: |File \")(?!\S*(?:site|dist)-packages)/\S*/bitsandbytes/"
         r"(?:libbitsandbytes_\w+\.so|cextension\.py)",
         ('  File "/work/bitsandbytes/bitsandbytes/cextension.py", line 85, in <module>',
          "Could not find the bitsandbytes CUDA binary at PosixPath('/w/bitsandbytes/libbitsandbytes_cuda124.so')"),
         "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1559"),
    _row("trainer_of_transformers",
         r"transformers/trainer(?:_\w+)?\.py|trl/trainer/|\b(?:Seq2Seq)?TrainingArguments\b|\b(?:SFT|DPO|GRPO)Trainer\b",
         ('  File "/venv/lib/python3.11/site-packages/transformers/trainer.py", line 2123, in train',
          "TrainingArguments(output_dir='out')"),
         "https://huggingface.co/docs/transformers/main_classes/trainer"),
    _row("bitsandbytes_cuda_chosen", r"BNB_CUDA_VERSION=\d+ environment variable detected",
         ("BNB_CUDA_VERSION=124 environment variable detected; loading libbitsandbytes_cuda124.so.",),
         "https://huggingface.co/docs/bitsandbytes/main/en/installation"),
    _row("bitsandbytes_alone_checked",  # whether torch has a GPU is not checked: a line that IPython shows
         r"\bis_bitsandbytes_available\(check_library_only=True\)",
         ("     75         if not is_bitsandbytes_available(check_library_only=True):",),
         "https://github.com/huggingface/transformers/blob/v4.53.3/src/transformers/quantizers/quantizer_bnb_4bit.py"),
    _row("on_mac",
         r'^(?:\W{0,3}| +)File "/(?:Users|opt/homebrew|Library|Applications)/(?!runner/)|^zsh: killed|AppleInternal|'
         r"\bmacOS-\d|\bApple M\d|/Library/Frameworks/Python\.framework/",
         ('  File "/Users/ada/train.py", line 3, in <module>', "zsh: killed     python train.py",
          "Platform: macOS-14.5-arm64-arm-64bit", "Chip: Apple M2 Pro"),
         "https://docs.pytorch.org/docs/stable/notes/mps.html"),
    _row("hydra", r"^full_key: |HYDRA_FULL_ERROR|^hydra\.errors\.",
         ("full_key: model.net.optim", "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."),
         "https://hydra.cc/docs/advanced/instantiate_objects/overview/"),
    _row("gradients_nan", r"['\"]grad_norm['\"]: ['\"]?nan\b|\bgrad[_ ]?norm:? ?=?\|? ?nan\b",
         ("{'loss': 1.4121, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.0}", "grad norm: nan"),
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html"),
    # The caches of the datasets library ("Found cached dataset") are for one version of the code.
    _row("samples_from_cache",
         r"(?i)\bcached?\b(?!.{0,160}\bnot\b)[^:]{0,160}\balready exists?\b|"
         r"\b(?:load(?:ing|ed)?|us(?:ing|ed)|read(?:ing)?|reus(?:ing|ed))\b.{0,60}"
         r"\b(?:data|dataset|features|samples|examples|annotations|split)\b.{0,40}\bfrom (?:the |a )?cached?\b",
         ("WARNING cache folder /data/c/val already exists, skipping",
          "Loading features from cached file /d/cached_dev",
          "Loaded 900 samples from cache."),
         "https://github.com/huggingface/transformers/blob/v4.30.0/examples/legacy/question-answering/run_squad.py"),
    # Hydra: which section of the config made the object whose class raised the exception in the line before.
    _row("config_object_key", r"^full_key: \w", ("full_key: model.optimizer",),
         "https://github.com/facebookresearch/hydra/blob/main/hydra/_internal/instantiate/_instantiate2.py"),
    # The metrics of a step of GRPO, as trl logs them.
    _row("rewards_same", rf"^(?=.*{_REWARD_STD}{_ZERO})(?=.*{_NORM}{_ZERO}).*\breward_std\b",
         ("{'loss': 0.0, 'grad_norm': 0.0, 'reward': 0.0, 'reward_std': 0.0, 'epoch': 0.1}",
          "{'loss': '0', 'grad_norm': '0', 'reward': '0', 'reward_std': '0', 'kl': '0'}"), _GRPO),
    _row("rewards_differ", rf"^(?=.*{_NORM})(?!(?=.*{_REWARD_STD}{_ZERO})(?=.*{_NORM}{_ZERO})).*{_REWARD_STD}\S",
         ("{'loss': 0.01, 'grad_norm': 0.3, 'reward': 0.4, 'reward_std': 0.2, 'epoch': 0.1}",), _GRPO),
    _row("weights_offloaded", r"parameters are on the meta device (?:device )?because they were offloaded to the \w+",
         ("Some parameters are on the meta device because they were offloaded to the cpu.",
          "WARNING:root:Some parameters are on the meta device device because they were offloaded to the disk."),
         "https://github.com/huggingface/accelerate/blob/main/src/accelerate/big_modeling.py"),
    _row("old_python", r"(?i:/python3\.|\\Python3)[6-9][/\\]",
         ('  File "/opt/conda/lib/python3.7/site-packages/torch/cuda/__init__.py", line 229, in _lazy_init',
          r'  File "C:\Python38\lib\site-packages\torch\serialization.py", line 9, in load'),
         "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"),
    _row("gpu_not_available",
         r"\b(?i:cuda|gpus?)(?: is| are)? not available\b|\bNo (?:CUDA )?GPUs? (?:available|found)\b",
         ("2026-01-05 10:00:00 - devices - INFO - CUDA not available", "GPU is not available, using the CPU"),
         "https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html"),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
