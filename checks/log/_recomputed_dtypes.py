"""Did a checkpointed layer compute tensors of another dtype the second time, or run other code?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException

from ._circumstances import shown

_METADATA = re.compile(
    r"^(?P<which>saved|recomputed) metadata: \{'shape': (?P<shape>torch\.Size\(\[[\d, ]*\]\)), 'dtype': "
    r"torch\.(?P<dtype>\w+)",
    re.M,
)
# fmt: off
PATCHED_LATE = Case(
    shown("unsloth_imported_late"),
    "gradient checkpointing computed something else the second time: probably Unsloth replaced the model's code in "
    "between",
    "Unsloth warns that it was imported after transformers or peft. Its import replaces functions of both. If that "
    "happens when the model exists already, such as an import inside of a function that a step calls, the forward "
    "pass runs the old code and its repetition in backward() the new one. A cache (use_cache), mixed precision and "
    "random numbers are other reasons for such a difference.",
    (Fix("Import Unsloth first in the script, before everything else. If its models are not used, do not import it.",
         ("import unsloth  # the first line", "grep -rn --include='*.py' unsloth .")),
     Fix("If the difference stays, turn the cache off.", ("model.config.use_cache = False",))),
    "UserWarning: WARNING: Unsloth should be imported before [transformers, peft] to ensure all optimizations are "
    "applied.\ntorch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved "
    "during the original forward and recomputation.",
    "https://github.com/unslothai/unsloth/blob/main/unsloth/__init__.py")
# fmt: on


def explain(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain tensors of which only the dtype differs; None if shapes differ too, or the log has none."""
    found = _METADATA.findall((raised.more if raised else None) or "")
    pairs = [
        (one, other)
        for one, other in zip(found[::2], found[1::2], strict=False)
        if (one[0], other[0]) == ("saved", "recomputed")
    ]
    dtypes = {(one[2], other[2]) for one, other in pairs}
    if len(dtypes) != 1 or any(one[1] != other[1] for one, other in pairs) or (both := dtypes.pop())[0] == both[1]:
        return None
    first, second = both
    return Meaning(
        f"gradient checkpointing computed a layer in {first} in the forward pass, {second} when it was repeated",
        "The shapes are equal, so no cache and no routing of tokens is involved: the precision differs. Autocast was "
        "on in only one of the two passes, or something cast weights or inputs between them: FSDP's mixed precision, "
        "layers that are kept in float32 (norms, adapters), or a checkpoint or an evaluation before this step.",
        (
            Fix(
                "Load all weights in one dtype, adapters and norms too, and let one setting choose the precision.",
                (
                    "from_pretrained(..., torch_dtype=torch.bfloat16)",
                    "print({name: p.dtype for name, p in model.named_parameters()})",
                ),
            ),
            Fix(
                "With FSDP, use its own checkpointing in place of the model's.",
                ("accelerate launch --fsdp_activation_checkpointing true ...",),
            ),
            Fix(
                "Reentrant checkpointing does not compare the two passes.",
                ("gradient_checkpointing_kwargs={'use_reentrant': True}",),
                kind="stopgap",
                caveat="Their values can still differ in precision.",
            ),
        ),
    )
