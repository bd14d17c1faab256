"""How do the names of a checkpoint's weights differ from the model's: by a prefix, a container, or altogether?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_LISTS = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict:")
_NAME = re.compile(r"['\"](?P<name>[\w.-]+)['\"]")
# Usual names of the weights in a checkpoint with other entries.
_ENTRIES = ("model", "state_dict", "model_state_dict", "model_state", "net", "weights", "params", "ema")
# What a checkpoint has beside the weights.
_BESIDE = re.compile(
    r"epochs?|(?:global_?)?steps?|iter(?:ation)?s?|n_?iter|args?|opts?|cfg|config|history|scaler|amp|hyper_?parameters|"
    r"\w*optim\w*|\w*sched\w*|(?:best|loss|rng|random|seed|val|train|metric)(?:_\w+)?|\w*version"
)
_ALSO_PARAMETERS = ("net", "weights", "params", "ema")  # one of these alone can be a renamed parameter
_NUMBERS = re.compile(r"\.\d+(?=\.|$)")
# What wrappers, adapters, quantized layers and other releases add: cases of the row explain these.
_OF_CASES = re.compile(
    r"(?:^|[ .])(?:module|_orig_mod|base_model|base_layer)\.|lora_|absmax|\.SCB|qzeros|fake_quant|"
    r"activation_post_process|position_ids|inv_freq|masked_bias|mlp\.experts|(?:^|[ .])bn\d"
)
_PRINT = "python -c \"import torch; print(*torch.load('CHECKPOINT', map_location='cpu'), sep='\\n')\" | head"
_LOAD_PART = "print(model.load_state_dict(state, strict=False))  # the keys that it left out"


def _names(message: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"Missing": [], "Unexpected": []}
    parts = _LISTS.split(message)
    for kind, names in zip(parts[1::2], parts[2::2], strict=True):
        found[kind] += _NAME.findall(names)
    return found


def _prefix(names: list[str], others: list[str]) -> str | None:
    """Return what the other names have in front of most of these."""
    known, first = {*others}, names[0]
    found = (one.removesuffix(first)[:-1] for one in others if one.endswith(f".{first}"))
    return next((one for one in found if 2 * sum(f"{one}.{name}" in known for name in names) > len(names)), None)


def _without_numbers(name: str) -> str:
    return _NUMBERS.sub("", name)


def _root(name: str) -> str:
    return name.partition(".")[0]


def names_of_both(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain how the two lists of names differ. None if the log does not have them, or a case knows the names."""
    if raised is None or any(frame.startswith("deepspeed/") for frame in raised.frames):
        return None
    message = f"{raised.message} {raised.more or ''}"
    names = _names(message)
    missing, left = names["Missing"], names["Unexpected"]
    if not (missing or left) or "size mismatch" in message or _OF_CASES.search(" ".join([*missing, *left])):
        return None
    model = groups["model"]
    if missing and left:
        if whole := _whole_checkpoint(left, model):
            return whole
        return (
            _of_prefix(missing, left, model) or _of_container(missing, left, model) or _of_roots(missing, left, model)
        )
    return _one_sided(missing, left, model)


def _whole_checkpoint(left: list[str], model: str) -> Meaning | None:
    """Explain a checkpoint whose own keys are taken for those of weights: the weights are under one of them."""
    keys = [name for name in _ENTRIES if name in left]
    if any("." in name for name in left):
        return None
    if not keys:
        return _of_unknown_entries(left, model) if any(map(_BESIDE.fullmatch, left)) else None
    if len(left) == 1 and keys[0] in _ALSO_PARAMETERS:
        return None
    return Meaning(
        f"the whole checkpoint is given to {model}, and its weights are probably under the key '{keys[0]}'",
        f"A checkpoint is a dict with several entries, here {', '.join(left[:6])}. load_state_dict() takes the weights "
        "alone.",
        (
            Fix("Load that entry.", (python("model.load_state_dict(checkpoint['{:name}'])", keys[0]),)),
            Fix("Print the keys if there are several candidates.", ("print(checkpoint.keys())",)),
        ),
    )


def _of_unknown_entries(left: list[str], model: str) -> Meaning | None:
    """Explain a checkpoint with an entry such as epoch or optimizer, whose weights have a name of their own."""
    others = [name for name in left if not _BESIDE.fullmatch(name)]
    if not others and len(left) == 1:
        return None  # a parameter can have such a name
    known = f"probably '{others[0]}'" if len(others) == 1 else "which is one of them" if others else "if it has weights"
    load = python("model.load_state_dict(checkpoint['{:name}'])", others[0] if len(others) == 1 else "KEY")
    return Meaning(
        f"the whole checkpoint is given to {model}: the weights are under a key of their own, {known}",
        f"A checkpoint is a dict with several entries, here {', '.join(left[:6])}. load_state_dict() takes the weights "
        "alone.",
        (Fix("Print the keys, and load the entry with the weights.", ("print(checkpoint.keys())", load)),),
    )


def _of_prefix(missing: list[str], left: list[str], model: str) -> Meaning | None:
    more, fewer = _prefix(missing, left), _prefix(left, missing)
    prefix = more or fewer
    if prefix is None:
        return None
    rename = python("state = {{name.removeprefix('{:dotted}.'): tensor for name, tensor in state.items()}}", prefix)
    if fewer:
        rename = python("state = {{'{:dotted}.' + name: tensor for name, tensor in state.items()}}", prefix)
    return Meaning(
        f"the names of the checkpoint {'have' if more else 'lack'} the prefix '{prefix}.', compared with {model}",
        "The weights are those of the same layers. One of the two is a part of a larger module: the checkpoint was "
        "saved from the whole model and is loaded into a part of it, or the other way round.",
        (
            Fix(
                "Rename the keys before they are loaded.",
                (rename,),
            ),
            Fix(
                "Or load them into the module that they were saved from.",
                (python("model.{:dotted}.load_state_dict(state)", prefix),) if fewer else (),
            ),
        ),
    )


def _of_container(missing: list[str], left: list[str], model: str) -> Meaning | None:
    plain = {_without_numbers(name): name for name in left}
    pair = next(((name, plain[short]) for name in missing if (short := _without_numbers(name)) in plain), None)
    if pair is None:
        return None
    return Meaning(
        f"{model} has {pair[0]}, and the checkpoint has {pair[1]} instead: a layer became one of several, or moved",
        "Their names differ only by numbers, which nn.Sequential and nn.ModuleList give to their items. The model's "
        "code was changed after the checkpoint was saved.",
        (
            Fix(
                "Load it with the code that saved it (the commit of that day), or train again.", ("git log --oneline",)
            ),
            Fix("If the layers are the same, rename the keys before they are loaded."),
        ),
    )


def _of_roots(missing: list[str], left: list[str], model: str) -> Meaning:
    of_model, of_file = {*map(_root, missing)}, {*map(_root, left)}
    if of_model & of_file:
        what = f"the checkpoint lacks {missing[0]} of {model}, and has {left[0]} instead"
    else:
        what = f"the checkpoint has the layers {_root(left[0])}.*, and {model} the layers {_root(missing[0])}.*"
    return Meaning(
        f"{what}: it was saved from another model",
        "The class of the model, or the options that choose its parts, are others than when the checkpoint was saved: "
        "another script, another config, or a path to the checkpoint of another run.",
        (
            Fix("Build the model as it was saved. These are the names in the file:", (_PRINT,)),
            Fix("Check which run the path belongs to.", ("ls -lt CHECKPOINT_FOLDER",)),
        ),
    )


def _one_sided(missing: list[str], left: list[str], model: str) -> Meaning:
    name = (missing or left)[0]
    if missing:
        title = f"the checkpoint lacks weights of {model}, the first is {name}"
        why = "The model has parts that were not saved: a new head, more layers, or buffers of newer code."
    else:
        title = f"the checkpoint has weights that {model} lacks, the first is {name}"
        why = "The model was built with fewer parts than the saved one: without a head, with fewer layers or options."
    return Meaning(
        title,
        f"{why} All other names are the same.",
        (
            Fix("Build the model as it was saved. These are the names in the file:", (_PRINT,)),
            Fix("If that part is new, or not needed, load the rest.", (_LOAD_PART,)),
        ),
    )
