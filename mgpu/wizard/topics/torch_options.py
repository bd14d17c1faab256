"""Is the model compiled, and can a run continue on another number of GPUs?"""

from __future__ import annotations

from typing import Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import yes_no

# fmt: off
DECISIONS: Final = (
    Decision("compile", "host", "", "torch.compile.", yes_no,
        walk="guided", menu=True, in_config=True,
        text="Compile the model (torch.compile)?",
        info="torch.compile often makes steps faster after a slow start of minutes, and errors harder to read.\n"
             "No is right for the first run: change one thing at a time.\n"
             "Turn it on once training works, and compare the speed of a few hundred steps."),
    Decision("reshard", "host", "", "Checkpoints may go on with another number of GPUs.", yes_no,
        walk="guided", applies=lambda case: case.is_split,
        text="Might you continue on another number of GPUs?",
        info="Split checkpoints (FSDP2) can be loaded on another number of GPUs when each rank saves its shard\n"
             "through torch's distributed checkpoint. ZeRO optimizer shards belong to one number of GPUs until they\n"
             "are converted (DeepSpeed's universal checkpoint). Maybe is the default: it costs nothing.",
        choices=(
            ("yes", "maybe   each rank saves its shard: can be split anew"),
            ("no", "no      one full file"),
        )),
)
# fmt: on
