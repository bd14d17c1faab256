"""How is the model distributed across the GPUs?"""

from __future__ import annotations

from typing import Final

from mgpu.planning import memory
from mgpu.wizard.decision import Case, Decision
from mgpu.wizard.topics.training import memory_panel
from mgpu.wizard.value_readers import one_of


def _worth_asking(case: Case) -> bool:
    """Whether to ask for the strategy; also if only one is possible but not DDP, as the menu explains why."""
    return case.proposal.ranks > 1 and (case.mode == "guided" or (case.size_known and list(case.able) != ["ddp"]))


# fmt: off
DECISIONS: Final = (
    Decision("strategy", "devices", "S", "ddp, zero1, zero2, zero3, fsdp2 or auto.", one_of(*memory.STRATEGIES),
        walk="quick", menu=True, in_config=True, panel=memory_panel, applies=_worth_asking,
        text="How should the model be distributed across the {ranks} {unit}s?",
        info="DDP: a full copy on each GPU; the fastest if it fits. The default whenever there is room.\n"
             "FSDP2: weights, gradients and optimizer split across the GPUs; built into PyTorch; more communication.\n"
             "ZeRO-1, -2, -3: DeepSpeed splits the optimizer, then also the gradients, then also the weights.\n"
             "Change it if the model does not fit, or if your team already uses DeepSpeed."),
    Decision("offload", "devices", "TO", "none, or cpu: keep in RAM what does not fit on the GPUs.",
        one_of("none", "cpu"),
        walk="guided", menu=True, in_config=True, panel=memory_panel,
        applies=lambda case: case.is_split or case.became_impossible,
        text="Offload the optimizer to CPU RAM?",
        info="With CPU offload, what does not fit on the GPUs is kept in RAM and moved when it is needed.\n"
             "Off if everything fits on the GPUs: offloaded steps wait for PCIe and are often several times slower.\n"
             "Turn it on if nothing else fits, or to try a large model before requesting more GPUs."),
)
# fmt: on
