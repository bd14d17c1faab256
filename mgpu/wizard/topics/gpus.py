"""Which GPUs, and at which precision?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import gpus_of, gpus_text, one_of

if TYPE_CHECKING:
    from mgpu.wizard.answer_fields import Answers
    from mgpu.wizard.proposal_types import Proposal


def _panel(name: str, answers: Answers, proposal: Proposal, width: int) -> list[str]:
    """Return how many processes the selected GPUs get, and a hint if that is not a power of two."""
    number = len(proposal.gpus)
    lines = [f"{number} selected: {number} process{'' if number == 1 else 'es'}, one per GPU."]
    if number & (number - 1):
        lines.append(
            f"Effective batches will be multiples of {number}. Powers of two are common, so "
            f"{1 << number.bit_length() - 1} or {1 << number.bit_length()} GPUs are easier to compare."
        )
    return lines + [text for text in proposal.problems if "GPU" in text]


# fmt: off
DECISIONS: Final = (
    Decision("gpus", "devices", "N|LIST", "How many (2), or which (0,1,3); 0 = CPU ranks.", gpus_of,
        show=gpus_text, walk="guided", menu=True, many=True, probed=True, in_config=True, panel=_panel,
        applies=lambda case: not case.proposal.engine and not case.proposal.cpu
        and len(case.proposal.options.get("gpus", ())) > 1,
        text="Which GPUs?",
        info="Each selected GPU gets one process (rank), which trains on its own share of every batch.\n"
             "Free GPUs are preselected. Sharing a GPU with another process slows both down.\n"
             "Deselect some to compare 1, 2 and 4 GPUs, or to leave one for another job."),
    Decision("precision", "devices", "P", "bf16, fp16, fp32, fp8 or auto.",
        one_of("bf16", "fp16", "fp32", "fp8", fp32="no"),
        show=lambda value: "fp32" if value == "no" else value, walk="guided", menu=True, probed=True, in_config=True,
        text="Precision?",
        info="The number format of most arithmetic in training; weights stay in fp32 with bf16 and fp16.\n"
             "bf16 has the range of fp32, so it needs no loss scaling: the default if the GPU supports it natively.\n"
             "fp16 is for older GPUs (V100, T4). fp32 is slowest and safest, for tracking down numerical problems."),
)
# fmt: on
