"""Does a class derived from transformers' Trainer read an attribute that Trainer had in older releases only?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning

_LACKS = re.compile(r"'(?P<owner>\w+)' object has no attribute '(?P<name>\w+)'")
_TRAINER = re.compile(r"^transformers/trainer(?:_seq2seq)?\.py\b")
# For mixed precision and fairscale. Trainer set them before accelerate did this for it.
_GONE = frozenset({"use_amp", "use_apex", "use_cuda_amp", "use_cpu_amp", "do_grad_scaling", "sharded_ddp"})


def gone_from_trainer(one: UncaughtException) -> Meaning | None:
    """Explain an attribute of an older Trainer that an overridden method reads."""
    found = _LACKS.match(one.message)
    of_trainer = any(map(_TRAINER.match, one.frames))
    if not found or found["name"] not in _GONE or not of_trainer or "self." not in (one.own_code or ""):
        return None
    owner, name = found["owner"], found["name"]
    return Meaning(
        f"the script's {owner} reads self.{name}, which transformers' Trainer has in older releases only ({one.place})",
        "The overridden method was copied from an older release of transformers, or written for it. In the installed "
        "one, accelerate does mixed precision and the scaling of gradients.",
        (
            Fix(
                "Call the current method, and keep only what differs.",
                (
                    "def training_step(self, model, inputs, num_items_in_batch=None):",
                    "    loss = super().training_step(model, inputs, num_items_in_batch)  # with its backward pass",
                ),
            ),
            Fix(
                "Or install the release that the method was copied from, in an environment of its own.",
                ("pip show transformers", "pip install transformers==RELEASE"),
                kind="stopgap",
                caveat="Old releases do not know new models, and may not fit the installed torch.",
            ),
        ),
    )
