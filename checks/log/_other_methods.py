"""Does a message that usually is about transformers' Trainer or mmengine's registry concern the script's own code?

The rows of these messages explain the packages' case. Texts for `versions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.notebook_cells import is_cell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from ._wrong_calls import call_that_does_not_fit

_TRAINERS = frozenset({"transformers", "trl", "accelerate", "swift", "llamafactory", "sentence_transformers"})
_OF_REGISTRIES = re.compile(r"(?:torch|torchvision|mm\w+|timm|detectron2|fvcore|transformers|monai)(?:\.|$)")


def own_method(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a method called log(), training_step() and so on that has nothing to do with Trainer; None if it can."""
    call = groups["call"]
    if "Trainer" in call or (raised is not None and _TRAINERS & {*raised.packages}):
        return None
    found = call_that_does_not_fit(raised) if raised is not None and raised.frames else None
    if found is not None:
        return Meaning(found.title, found.why, found.fixes, complete=True)
    return Meaning(
        f"{call}() is called with other arguments than it takes",
        "Call and definition do not fit: one of the two was changed. If it overrides a method of transformers' "
        "Trainer, it was written for another release: 4.46 and 4.47 changed the arguments of compute_loss, "
        "training_step, log and _save_checkpoint.",
        (
            Fix(
                "Compare the call with the definition.",
                (shell("grep -rn --include='*.py' {} .", f"def {call.rpartition('.')[2]}("),),
            ),
            Fix("If it overrides one of Trainer's, accept *args and **kwargs, and pass them on."),
        ),
    )


def own_mode(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain train() or eval() of an optimizer that the script calls itself; None if a package calls it."""
    if raised is None or not raised.raised_in_own_code or not raised.place:
        return None
    owner, name = groups["owner"], groups["name"]
    return Meaning(
        f"{raised.place} calls {name}() of an optimizer ({owner}), which has no such mode",
        "Models have train() and eval(), and few optimizers, such as those of the package schedulefree. Probably the "
        "model is meant, or the script was written for such an optimizer.",
        (
            Fix(
                "Call it of the model, or only if the optimizer has it.",
                (
                    python("model.{:name}()", name),
                    python("if hasattr(optimizer, '{:name}'): optimizer.{:name}()", name, name),
                ),
            ),
        ),
        complete=True,
    )


def own_registry(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a name that the project itself registers twice; None if a package has it."""
    name, package = groups["name"], groups["package"]
    if _OF_REGISTRIES.match(package):
        return None
    again = " In a notebook, a cell that defines it was run twice." if raised and is_cell(raised.place) else ""
    return Meaning(
        f"{name} was registered twice as {groups['registry']}: {package} has it already",
        f"Either two classes have that name, or one file is imported under two names (as a module of the project, and "
        f"as one of an installed copy of it).{again}",
        (
            Fix(
                "Look for both, and rename or remove one.",
                (shell("grep -rnE --include='*.py' {} .", f"(class|def) {name}\\b"), "pip list --editable"),
            ),
            Fix(
                "Or let the second replace the first, if both are the same.",
                ("@REGISTRY.register_module(force=True)  # mmengine, mmcv",),
            ),
        ),
        complete=True,
    )
