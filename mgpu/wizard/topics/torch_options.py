"""Is the model compiled, and can a run resume on a different number of GPUs?"""

from __future__ import annotations

from typing import Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import yes_no

# fmt: off
DECISIONS: Final = (
    Decision("compile", "host", "", "Use torch.compile.", yes_no,
        walk="guided", menu=True, in_config=True,
        text="Compile the model (torch.compile)?",
        info="torch.compile often makes steps faster, after a start that takes minutes, and errors harder to read.\n"
             "No is right for the first run: change one thing at a time.\n"
             "Turn it on once training works, and compare the speed over a few hundred steps."),
    Decision("reshard", "host", "", "Resume later on a different number of GPUs.", yes_no,
        walk="guided", applies=lambda case: case.is_split,
        text="Resume later on a different number of GPUs?",
        info="FSDP2 checkpoints can be loaded on a different number of GPUs if each rank saves its shard with\n"
             "torch's distributed checkpoint. ZeRO optimizer shards only fit the same number of GPUs until they\n"
             "are converted (DeepSpeed's universal checkpoint). Yes is the default: it costs nothing.",
        choices=(
            ("yes", "yes   each rank saves its shard: loadable on any number of GPUs"),
            ("no", "no    one full file"),
        )),
)
# fmt: on
