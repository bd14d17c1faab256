"""Does a script's own Trainer class read its training data from a DataLoader that nothing divides?"""

from __future__ import annotations

import re

from mgpu.snapshot import Script, ScriptCall, ScriptFunction

from ._calls import DATA_LOADER, OF_TRAINER, reached_calls
from ._own_samples import has_own_samples
from ._rank_paths import has_rank_argument

_METHOD = "get_train_dataloader"
_PREPARES = re.compile(
    r".*\.(?:prepare\w*|get_train_dataloader)|.*(?:Sampler|sampler|shard|split_by|by_node)\w*(?:\.\w+)*"
)
_SAMPLING = {"sampler", "batch_sampler", "**"}


def undivided_trainer_loaders(script: Script) -> list[ScriptFunction]:
    """Return the methods of created Trainers that return a DataLoader without a sampler, which nothing prepares."""
    if script.cut:
        return []
    made = {call.name.rpartition(".")[2] for call in script.calls if call.reached}
    owners = {
        (one.file, one.name)
        for one in script.classes
        if one.name in made and any(OF_TRAINER.fullmatch(base) for base in one.bases)
    }
    methods = [
        one
        for one in script.functions
        if one.name.endswith(f".{_METHOD}") and (one.file, one.name.removesuffix(f".{_METHOD}")) in owners
    ]
    return [method for method in methods if _returns_undivided(script, method)]


def _returns_undivided(script: Script, method: ScriptFunction) -> bool:
    inside = [call for call in script.calls if (call.file, call.function) == (method.file, method.name)]
    if any(_PREPARES.fullmatch(call.name) for call in inside):
        return False
    own = [call for call in inside if re.fullmatch(DATA_LOADER, call.name)]
    if not own and not inside and _is_given_loader(script, method):
        own = reached_calls(script, DATA_LOADER)
    return bool(own) and not any(_may_be_divided(script, call) for call in own)


def _may_be_divided(script: Script, loader: ScriptCall) -> bool:
    divided = bool(_SAMPLING & set(loader.keywords)) or len(loader.arguments) > 3
    return divided or bool(loader.guards) or has_rank_argument(loader) or has_own_samples(script, loader)


def _is_given_loader(script: Script, method: ScriptFunction) -> bool:
    """Whether a method without calls belongs to a Trainer that is created with a DataLoader of the script."""
    owner = method.name.rpartition(".")[0]
    created = [call for call in script.calls if call.reached and call.name.rpartition(".")[2] == owner]
    given = {value for call in created for value in (*call.arguments, *call.keywords.values())}
    return "torch.utils.data.DataLoader()" in given
