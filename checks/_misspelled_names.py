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
    "Classification", "Question", "Answering", "Conditional", "Generation", "Attention", "Auto", "Pre", "Trained",
    "Pretrained", "Processor", "Masked", "Image", "Vision", "Encoder", "Decoder", "Layer", "Output", "Forward",
    "Parallel", "Distributed", "Sampler", "Data", "Loader", "Dataset", "Scheduler", "Optimizer", "Arguments",
    "Callback", "Language", "Modeling", "Embedding", "Linear", "Norm", "Flash", "Quantization", "Accelerator",
    "Plugin", "Pipeline",
    "Transformer", "Transformers", "Feature", "Extractor", "Checkpoint", "Module", "Collator", "With", "Padding",
})
# fmt: on
_PART = re.compile(r"[A-Z][a-z]+")
_BY_LETTERS = {"".join(sorted(word.lower())): word for word in _WORDS}
_SHORTEST = 3


def explain(module: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain an imported name in which a word has two letters exchanged."""
    right = _corrected(name)
    if right is None or raised is None:
        return None
    where = raised.place if raised.packages[-1:] == ("",) else raised.library or raised.place
    return Meaning(
        f"the name {name} is misspelled: probably {right} is meant ({where or module})",
        f"{module} has no {name}. The file that imports it was changed by hand, or copied from code with this mistake.",
        (Fix("Correct it in that file.", (shell("grep -rnw --include='*.py' {:name} .", name),)),),
    )


def _corrected(name: str) -> str | None:
    """Return the name with the word corrected in which letters are exchanged; None if there is none."""
    wrong = [
        (part[0], word)
        for part in _PART.finditer(name)
        if part[0] not in _WORDS and len(part[0]) >= _SHORTEST
        if (word := _BY_LETTERS.get("".join(sorted(part[0].lower())))) and part[0][0] == word[0]
    ]
    return name.replace(*wrong[0], 1) if len(wrong) == 1 else None
