"""Scripts that a library already distributes get only the one change that they need, if any."""

from __future__ import annotations

import re

import libcst as cst

from mgpu.port.change import Changes
from mgpu.port.ported import Ported, hunks
from mgpu.port.source_tree import SourceTree, argument, assigned, calls, dotted, method, receiver, targets, text_of

_LIBRARIES = {
    "accelerate": "it already trains with accelerate",
    "trainer": "the Trainer already distributes it",
    "lightning": "Lightning already distributes it",
    "deepspeed": "it already trains with DeepSpeed",
    "ddp": "it already trains with torch.distributed",
}
_IMPORTS = re.compile(r"(?:pytorch_lightning|lightning|deepspeed|accelerate|horovod|torch\.distributed)(?:\.|$)")
_TRAINER = re.compile(r"(?:transformers|trl|sentence_transformers|setfit|unsloth)\.(?:[\w.]+\.)?\w*Trainer")
_LIGHTNING = re.compile(r"(?:pytorch_lightning|lightning(?:\.pytorch)?)\.(?:Trainer|trainer\.Trainer)")


def trains_with_library(tree: SourceTree) -> bool:
    """Whether a script creates or starts something of a library for several GPUs."""
    for call in calls(tree.main):
        name = tree.name(call.func)
        if _TRAINER.fullmatch(name) or _LIGHTNING.fullmatch(name):
            return True
        if _IMPORTS.match(name) and not name.startswith("accelerate.utils."):
            return True
    return False


def port(tree: SourceTree, framework: str | None) -> Ported:
    """Return the script with the one change it needs."""
    changes = Changes(tree)
    kind = framework if framework in _LIBRARIES else _kind(tree)
    for call in calls(tree.main):
        if kind == "trainer":
            _trainer(tree, changes, call)
        elif kind == "lightning":
            _lightning(tree, changes, call)
    why = _LIBRARIES.get(kind, "a library already distributes it")
    if not changes.all:
        return Ported(tree.text, refused=f"nothing to change: {why}")
    new = changes.apply()[0]
    return Ported(new, hunks(tree.text, new, changes.all), {f"Only this: {why}.": ()})


def _kind(tree: SourceTree) -> str:
    for call in calls(tree.main):
        name = tree.name(call.func)
        if _TRAINER.fullmatch(name):
            return "trainer"
        if _LIGHTNING.fullmatch(name):
            return "lightning"
    return "ddp"


def _trainer(tree: SourceTree, changes: Changes, call: cst.Call) -> None:
    """A model that is placed by hand: the Trainer places it on the rank's own GPU."""
    name = tree.name(call.func)
    if name.endswith(".from_pretrained"):
        place = argument(call, 99, "device_map")
        if text_of(place) in ("auto", "balanced", "cuda", "cuda:0", "sequential") and place is not None:
            reason = "device_map places the same GPUs on every rank. The Trainer places the model itself."
            changes.replace(place, "None", reason)
    placed = tree.parent(call)
    on = receiver(call)
    target = targets(placed)[0] if assigned(placed) is not None and placed is not None else None
    is_model = isinstance(on, cst.Name) and "model" in on.value
    if not is_model or not (target is None or dotted(target) == dotted(on)):  # type: ignore[arg-type]
        return
    if isinstance(placed, (cst.Expr, cst.Assign, cst.AnnAssign)) and (
        method(call) == "cuda" or (method(call) == "to" and re.search(r"cuda|device", tree.code(call)))
    ):
        changes.remove(call, "The Trainer moves the model to the rank's own GPU.")


def _lightning(tree: SourceTree, changes: Changes, call: cst.Call) -> None:
    """A Trainer with one device."""
    if not _LIGHTNING.fullmatch(tree.name(call.func)):
        return
    for name in ("devices", "gpus"):
        value = argument(call, 99, name)
        if value is not None and tree.code(value) in ("1", "[0]", '"1"', "'1'", '"0"'):
            reason = "Lightning then uses every GPU that the launcher or Slurm gives to this run."
            if name == "devices":
                changes.replace(value, '"auto"', reason)
