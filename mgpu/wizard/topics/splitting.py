"""How is the model spread over the GPUs?"""

from __future__ import annotations

from typing import Final

from mgpu.planning import memory
from mgpu.wizard.decision import Case, Decision
from mgpu.wizard.topics.training import memory_panel
from mgpu.wizard.value_readers import one_of


def _worth_asking(case: Case) -> bool:
    """A single way out is worth a question too when it is not the usual one: the menu says why the others are not."""
    return case.proposal.ranks > 1 and (case.mode == "guided" or (case.size_known and list(case.able) != ["ddp"]))


# fmt: off
DECISIONS: Final = (
    Decision("strategy", "devices", "S", "ddp, zero1, zero2, zero3, fsdp2 or auto.", one_of(*memory.STRATEGIES),
        walk="quick", menu=True, in_config=True, panel=memory_panel, applies=_worth_asking,
        text="How should the model be spread over the {ranks} {unit}s?",
        info="DDP: a full copy on each GPU, the fastest where it fits. The default whenever there is room.\n"
             "FSDP2: weights, gradients and optimizer split over the GPUs; PyTorch's own way; more traffic.\n"
             "ZeRO-1, -2, -3: DeepSpeed's way to split the optimizer, also the gradients, also the weights.\n"
             "Change it when the model does not fit, or when your team already uses DeepSpeed."),
    Decision("offload", "devices", "TO", "none or cpu: what does not fit goes to RAM.", one_of("none", "cpu"),
        walk="guided", menu=True, in_config=True, panel=memory_panel,
        applies=lambda case: case.is_split or case.became_impossible,
        text="Keep the optimizer in the computer's memory?",
        info="With CPU offload, what does not fit on the GPUs is kept in RAM and moved when it is needed.\n"
             "It is off where the GPUs hold everything: each step waits for PCIe, often several times slower.\n"
             "Turn it on when nothing else fits, or to try out a large model before asking for more GPUs."),
)
# fmt: on
