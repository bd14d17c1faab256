"""Did a checkpointed layer compute tensors of another dtype the second time, and of the same shape?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_METADATA = re.compile(
    r"^(?P<which>saved|recomputed) metadata: \{'shape': (?P<shape>torch\.Size\(\[[\d, ]*\]\)), 'dtype': "
    r"torch\.(?P<dtype>\w+)",
    re.M,
)


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
