"""Is an imported name a misspelled one? Two letters of a word in it are exchanged: LlamaFroCausalLM.

Names of classes are made of a few words that repeat in all libraries. Only exchanged letters count: another letter can
be another name.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

# fmt: off
_WORDS = frozenset({
    "For", "Causal", "Model", "Config", "Configuration", "Tokenizer", "Trainer", "Training", "Sequence", "Token",
    "Classification", "Question", "Answering", "Conditional", "Generation", "Attention", "Auto", "Trained",
    "Pretrained", "Processor", "Masked", "Image", "Vision", "Encoder", "Decoder", "Layer", "Output", "Forward",
    "Parallel", "Distributed", "Sampler", "Data", "Loader", "Dataset", "Scheduler", "Optimizer", "Arguments",
    "Callback", "Language", "Modeling", "Embedding", "Linear", "Norm", "Flash", "Quantization", "Accelerator",
    "Plugin", "Pipeline",
    "Transformer", "Transformers", "Feature", "Extractor", "Checkpoint", "Module", "Collator", "With", "Padding",
})
# fmt: on
_PART = re.compile(r"[A-Z][a-z]+")
_SHORTEST = 4
_SHORT = {"Fro": "For"}  # codespell:ignore fro


def explain(module: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an imported name in which a word has two letters exchanged."""
    right = _corrected(name)
    if right is None or raised is None:
        return None
    where = raised.place if raised.raised_in_own_code else raised.library or raised.place
    return Meaning(
        f"the name {name} is misspelled: probably {right} is meant ({where or module})",
        f"{module} has no {name}. The file that imports it was probably changed by hand.",
        (Fix("Correct it in that file.", (shell("grep -rnw --include='*.py' {:name} .", name),)),),
    )


def _corrected(name: str) -> str | None:
    """Return the name with the word corrected in which two letters are exchanged; None if there is none."""
    wrong = [(part[0], word) for part in _PART.finditer(name) if (word := _meant(part[0]))]
    return name.replace(*wrong[0], 1) if len(wrong) == 1 else None


def _meant(part: str) -> str | None:
    """Return the word that a part of a name is, but for two neighboring letters after its first."""
    if part in _WORDS or len(part) < _SHORTEST:
        return _SHORT.get(part)
    for at in range(1, len(part) - 1):
        swapped = f"{part[:at]}{part[at + 1]}{part[at]}{part[at + 2 :]}"
        if swapped in _WORDS:
            return swapped
    return None
