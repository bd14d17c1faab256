"""Could a library that was not read make the ranks train together, in a script with a training loop of its own?

A script that calls backward and step itself, on an optimizer that it creates, trains by itself. Gradients can only be
exchanged by code that gets the model, the optimizer or the loop, or that connects the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.readers.training_script.walk import Walk
from mgpu.snapshot import ScriptCall

# fmt: off
# Libraries that connect the ranks, some of them when they are imported or with any call.
_CONNECTING = frozenset({
    "alpa", "apex", "bagua", "bmtrain", "byteps", "colossalai", "composer", "detectron2", "determined", "dgl",
    "fairscale", "fairseq", "habana_frameworks", "hivemind", "horovod", "ignite", "megatron", "mindspeed", "mmcv",
    "mmengine", "mpi4py", "nemo", "oneflow", "patrickstar", "pippy", "poptorch", "ray", "smdistributed", "torch_xla",
    "torchacc", "torchft", "torchrec", "torchtitan", "torchtnt", "torchtune", "verl",
})
# fmt: on
# What these of them have besides, which works in each process for itself.
_WORKS_ALONE = {
    "apex": re.compile(r"apex\.(?:amp|optimizers|normalization|mlp|fused_dense|fp16_utils|multi_tensor_apply)\b.*"),
    "dgl": re.compile(r"dgl(?!.*(?:dist(?!ance)|Dist(?!ance)|ddp|multi_?gpu|nccl))\..*"),
}
# Words in the name of a module or function that connects ranks.
_CONNECTS = re.compile(
    r"dist(?!ance|cuda|ill|inct|ort|ributions?$)|ddp(?!m)|fsdp|parallel|launch|spawn|horovod|\bhvd|(?:^|_)mpi(?:_|$)|rendezvous|process_group"
    r"|(?:^|_)(?:rank|world)(?:_|$)|all_?reduce|(?:^|_)comm(?:_|$)|^(?:init|initialize|setup|prepare|boost)$"
    r"|^(?:setup|init|prepare)_(?:env|environment|training|run|experiment|everything|device|gpus?|cuda|backend)",
    re.IGNORECASE,
)
# The start of a program, which connects no ranks.
_OF_HYDRA = re.compile(r"hydra\.(?:main|initialize\w*|compose|core\..*)")
_OPTIMIZER = re.compile(
    r"torch\.optim\.(?!lr_scheduler|swa_utils)\w+|bitsandbytes\.optim\.\w+|timm\.optim\.\w+"
    r"|transformers\.(?:optimization\.)?(?:AdamW|Adafactor)"
)
_GRADIENT = re.compile(r"grad|ones|tensor|None$|weight", re.IGNORECASE)  # an argument of a tensor's own backward
# What is made of an optimizer or a model, and cannot change it: its learning rate, a copy of its state.
_ONLY_A_NUMBER = re.compile(
    r"\.state_dict|\.(?:get_lr|get_last_lr|item)\(\)|\.last_epoch\b|\.param_groups\[[^\]]*\]\[['\"](?!params)"
)
_PARAMETERS = re.compile(r"([\w.()\[\]]+?)\.(?:named_|trainable_)?parameters\b")


def why_unsure(walk: Walk, calls: Sequence[ScriptCall], unread: Sequence[str]) -> str:
    """Return why the ranks could train together through code that was not read; empty if they certainly do not."""
    names = frozenset(name for name in unread if not _works_alone(walk, calls, name))
    if not names:
        return ""
    if connecting := sorted(names & _CONNECTING):
        return f"{connecting[0]}, which was not read, can connect the ranks"
    if starred := sorted(name for name in walk.imports if name.endswith(".*") and top(name) in names):
        return f"the names that `from {starred[0][:-2]} import *` defines are not known"
    reached = [call for call in calls if call.reached]
    return (
        _who_connects(walk, reached, names)
        or _who_receives(walk, reached, names)
        or _whose_training(walk, reached, names)
    )


def may_average(walk: Walk, calls: Sequence[ScriptCall], unread: Sequence[str]) -> bool:
    """Whether a library that was not read could average gradients: it gets the model, the optimizer or the training."""
    names = frozenset(name for name in unread if not _works_alone(walk, calls, name))
    reached = [call for call in calls if call.reached]
    starred = any(name.endswith(".*") and top(name) in names for name in walk.imports)
    return bool(names) and bool(starred or _who_receives(walk, reached, names) or _whose_training(walk, reached, names))


def _works_alone(walk: Walk, calls: Sequence[ScriptCall], library: str) -> bool:
    """Whether the script uses only parts of a library that work in each process for itself."""
    if (alone := _WORKS_ALONE.get(library)) is None:
        return False
    used = [name for name in walk.imports if top(name) == library and name != library]
    used += [call.name for call in calls if top(call.name) == library]
    given = {name for call in calls if top(call.name) == library for name in call.keywords}
    return all(map(alone.fullmatch, used)) and "use_ddp" not in given


def _who_connects(walk: Walk, calls: Sequence[ScriptCall], names: frozenset[str]) -> str:
    for name in sorted(walk.imports):
        if top(name) in names and any(map(_CONNECTS.search, name.split("."))) and not _OF_HYDRA.match(name):
            return f"{name} was not read, and may connect the ranks"
    for call in calls:
        last = call.name.removesuffix("()").rpartition(".")[2]
        if top(call.name) in names and _CONNECTS.search(last) and not _OF_HYDRA.match(call.name):
            return f"{call.name} was not read, and may connect the ranks{place(call)}"
    return ""


def _who_receives(walk: Walk, calls: Sequence[ScriptCall], names: frozenset[str]) -> str:
    """Return which library gets the model, the optimizer, or a function or object that trains."""
    loops = _training_functions(walk, calls)
    for name, number in walk.decorated:
        if number in loops and top(name) in names and not _OF_HYDRA.match(name):
            return f"{name} decorates a function that trains, and was not read"
    for owner in {walk.functions[number].owner for number in loops} - {""}:
        if based := next((base for base in walk.all_bases(owner) if top(base) in names), ""):
            return f"{owner}, which trains, is derived from {based}, which was not read"
    trained = _trained_objects(calls)
    functions = {name for name, one in walk.by_name.items() if one.number in loops}
    functions |= {f"{walk.functions[number].owner}()" for number in loops} - {"()"}
    pattern = re.compile(
        rf"(?<![\w.'\"])(?:{'|'.join(map(re.escape, sorted(trained)))})(?!\w|{_ONLY_A_NUMBER.pattern})"
    )
    for call in calls:
        if top(call.name) not in names:
            continue
        given = (*call.arguments, *call.keywords.values(), *call.written)
        if trained and any(pattern.search(text) for text in given):
            return f"{call.name}, which was not read, gets the model or the optimizer{place(call)}"
        if functions.intersection(given) or "self" in call.written:
            return f"{call.name}, which was not read, gets a function or object that trains{place(call)}"
    return ""


def _whose_training(walk: Walk, calls: Sequence[ScriptCall], names: frozenset[str]) -> str:
    """Return what does not show that the optimizer and the backward pass are the script's own."""
    for call in calls:
        if call.name.endswith(".backward") and walk.own_function(call.name) is None and call.name != "torch.autograd":
            given = (*call.arguments, *call.written)
            if call.arguments and not any(_GRADIENT.search(text) for text in given):
                return f"{call.name} gets the loss, and where its object comes from is not visible{place(call)}"
    made = [call for call in calls if _OPTIMIZER.fullmatch(call.name)]
    own = any(base.startswith("torch.optim.") for name in walk.bases for base in walk.all_bases(name))
    if not made and not own:
        return f"what creates its optimizer is not visible, and {sorted(names)[0]} was not read"
    return ""


def _trained_objects(calls: Sequence[ScriptCall]) -> set[str]:
    """Return the resolved names of the optimizers and of the models whose parameters they get, and their variables."""
    found: set[str] = set()
    for call in calls:
        if call.name.endswith(".step"):
            found.add(call.name.removesuffix(".step"))
        if not _OPTIMIZER.fullmatch(call.name):
            continue
        found.update(call.targets)
        for text in (*call.arguments, *call.keywords.values(), *call.written):
            found.update(_PARAMETERS.findall(text))
    return {name for name in found if name and name != "self"}


def _training_functions(walk: Walk, calls: Sequence[ScriptCall]) -> set[int]:
    """Return the numbers of the functions that train, with those that call them."""
    spots = {(call.file, call.line, call.column) for call in calls if call.name.endswith((".backward", ".step"))}
    found = {spot[3] for spot, _ in walk.calls if spot[:3] in spots} - {-1}
    while True:
        callers = {site[3] for number in found for site in walk.functions[number].sites} - {-1}
        if callers <= found:
            return found
        found |= callers


def top(name: str) -> str:
    """Return the library of a resolved name."""
    return name.partition(".")[0].partition("(")[0]


def place(call: ScriptCall) -> str:
    """Return the place of a call, for the end of a text."""
    return f" ({f'{call.file} ' if call.file else ''}line {call.line})"
