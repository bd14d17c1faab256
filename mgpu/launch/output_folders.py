"""Guess the script's output folders from its arguments, by common option names; the script itself is not run."""

from __future__ import annotations

import os
from collections.abc import Sequence

# fmt: off
# transformers' TrainingArguments, the examples of accelerate, diffusers and torchvision, Lightning, nanoGPT, fairseq.
_NAMES = frozenset({
    "output_dir", "output_path", "output_folder", "out_dir", "outdir", "save_dir", "save_path", "save_folder",
    "checkpoint_dir", "checkpoint_path", "ckpt_dir", "default_root_dir", "logging_dir", "work_dir", "exp_dir",
    "trainer.default_root_dir", "hydra.run.dir",
})
# fmt: on
_FILES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


def folders(arguments: Sequence[str]) -> list[str]:
    """Return the absolute folders, each once: --output_dir X, --output-dir=X, output_dir=X (Hydra)."""
    found: list[str] = []
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if not equals and not word.startswith("-"):
            continue
        if option.lstrip("-").replace("-", "_").lower() in _NAMES:
            value = value if equals else following
            if value and not value.startswith("-") and "://" not in value and "$" not in value:
                folder = os.path.dirname(value) or "." if value.endswith(_FILES) else value
                found.append(os.path.abspath(os.path.expanduser(folder)))
    return list(dict.fromkeys(found))
