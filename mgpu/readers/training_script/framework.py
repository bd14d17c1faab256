"""How does a script distribute its training, and if that is not known: why not?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mgpu.readers.training_script.known_libraries import is_harmless
from mgpu.readers.training_script.unread_code import place, top, why_unsure
from mgpu.readers.training_script.walk import Walk
from mgpu.snapshot import Framework, ScriptCall
from mgpu.text import counted

_TRAINERS = re.compile(r"(?:transformers|trl|sentence_transformers|setfit|optimum|unsloth)\.(?:[\w.]+\.)?\w*Trainer$")
_LIGHTNING = re.compile(
    r"lightning\.(?:[\w.]+\.)?(?:Trainer(?:\.from_argparse_args)?|LightningCLI|Fabric)$|lightning\.fabric\.Fabric$"
)
_OF_CONFIG = re.compile(r"(.+Trainer)\(\)\.(?:fit|train)$")  # an object that a config creates, with an annotation
_BY_HAND = re.compile(
    r"torch\.distributed\.(?:init_process_group|device_mesh\.init_device_mesh|init_device_mesh"
    r"|fsdp\.(?:FullyShardedDataParallel|fully_shard)|_composable\.fsdp\.fully_shard)$"
    r"|torch\.nn\.parallel\.DistributedDataParallel$"
)
INIT = ("torch.distributed.init_process_group",)
_WRAPPER = "torch.nn.parallel.DistributedDataParallel"
# Calls that may start the process group, also in a library that was not read.
_STARTS_GROUP = re.compile(
    r"init_process|init_device|init_dist|dist_init|init_parallel|initialize|ddp|distributed(?!dataparallel|sampler)"
    r"|launch|spawn|setup|rendezvous",
    re.IGNORECASE,
)
_ACCELERATE = re.compile(r"accelerate\.(?:Accelerator|PartialState|AcceleratorState)$")
_BY_ACCELERATE = re.compile(r"\.prepare\w*$|[Aa]ccelerator(?:\(\))?\.(?:backward|accumulate)$")
_DEEPSPEED = re.compile(r"deepspeed\.(?:initialize|init_distributed)$")
# Parts of these libraries that work in any process, without others.
_OF_LIBRARY = re.compile(r"(?:accelerate|deepspeed|lightning|pytorch_lightning)\.")
_WORKS_ALONE = re.compile(
    r"accelerate\.(?:utils\.set_seed|logging\.get_logger|init_empty_weights|init_on_device"
    r"|big_modeling\.init_\w+|infer_auto_device_map|utils\.\w*(?:memory|available|device_map)\w*)"
    r"|deepspeed\.(?:ops\.\w+\.\w+|profiling\..*)"
    r"|lightning\.(?:\w+\.)*(?:seed_everything|loggers\.\w+)"
)
_ASKS_FOR_GROUP = re.compile(r"torch\.distributed\.is_\w+")
# An object of a library that the file receives as an argument, without importing the library.
_LIBRARY_BACKWARD = re.compile(r"(?:.*[._])?(?:accelerator|fabric|engine)\.backward$", re.IGNORECASE)
# Calls of a library that may train, and those of any object that do.
_MAY_TRAIN = re.compile(
    r"train|fit\b|learn|optimi[sz]|engine|tun(?:e|ing)|\.(?:run|main|launch|cli|app|step)\b", re.IGNORECASE
)
_TRAINS = re.compile(r"\.(?:fit|train_batch|learn|backward)$|[Tt]rainer\w*(?:\(\))?\.\w*train\w*$")
_NAMES = {"ddp": "torch.distributed", "trainer": "a Trainer"}
OF_RAY = "its ranks are actors of Ray, not copies of this script"
_NO_STEP = "its training is not in the code that was read"


@dataclass(frozen=True)
class Hidden:
    """The code of a script that was not read."""

    libraries: tuple[str, ...]
    modules: int  # of the project
    by_name: bool  # modules that are loaded by a name that only the run knows
    cut: bool  # not all calls are known

    @property
    def why(self) -> str:
        """The part that any code may be in."""
        modules = f"{counted(self.modules, 'module')} of the project could not be read" if self.modules else ""
        return modules or "not all of its calls were read" * self.cut


def framework(walk: Walk, calls: Sequence[ScriptCall], hidden: Hidden) -> tuple[Framework | None, str | None]:
    """Return the library that distributes the training; if it is not known (None), also why.

    "nothing": certainly none. None without a reason: everything was read, and nothing in it trains.
    """
    used = _with_bases(walk, [call for call in calls if call.reached])
    if any(call.name in INIT and call.arguments[:1] == ("'fake'",) for call in calls):
        return None, "one process simulates several"
    if any(call.name == "ray.init" for call in calls):
        return None, OF_RAY
    if (found := _library(used) or _of_lightning_modules(walk, calls)) == "ddp" and _wraps_only_if_distributed(
        walk, calls
    ):
        return None, "the model is wrapped only in a run of several ranks, and nothing visible starts one"
    if found:
        return found, None
    if not any(name.endswith(".backward") for name in used) or not any(name.endswith(".step") for name in used):
        # its functions are for other scripts, or are called in a way that is not visible
        found = _library({call.name for call in calls if not call.file})
        unseen = hidden.by_name or hidden.why or _hands_over(calls, hidden.libraries)
        return found, None if found or not unseen else hidden.why or _NO_STEP
    why = hidden.why or _connects(walk, calls) or why_unsure(walk, calls, hidden.libraries)
    return (None, why) if why else ("nothing", None)


def _hands_over(calls: Sequence[ScriptCall], libraries: Sequence[str]) -> bool:
    """Whether a library that was not read may train: the name of a call says so."""
    return any(call.reached and _MAY_TRAIN.search(call.name) and top(call.name) in libraries for call in calls) or any(
        call.reached and _TRAINS.search(call.name) and not is_harmless(top(call.name)) for call in calls
    )


def _connects(walk: Walk, calls: Sequence[ScriptCall]) -> str:
    """Return which use of a library for several GPUs does not show how it trains; empty if there is none.

    Helpers that only ask for a process group, in modules that other scripts share, start none.
    """
    if unused := _library({call.name for call in calls if not call.file}):
        return f"{_NAMES.get(unused, unused)} is used only in functions that nothing visible calls"
    for call in calls:
        if call.reached and _OF_LIBRARY.match(call.name) and not _WORKS_ALONE.fullmatch(call.name):
            return f"{call.name} is called{place(call)}, but what trains with it is not visible"
        grouped = call.name.startswith("torch.distributed.") and not _ASKS_FOR_GROUP.fullmatch(call.name)
        if grouped and call.reached and not call.file:
            return f"{call.name} is called{place(call)}, but what starts the process group is not visible"
    bases = (base for name in walk.bases for base in walk.all_bases(name))
    if derived := next((base for base in bases if _OF_LIBRARY.match(base)), ""):
        return f"a class is derived from {derived}"
    handed = next((call for call in calls if _LIBRARY_BACKWARD.match(call.name)), None)
    last = ".".join(handed.name.split(".")[-2:]) if handed else ""
    return f"{last} belongs to a library, and what creates its object is not visible" if handed else ""


def _with_bases(walk: Walk, calls: Sequence[ScriptCall]) -> set[str]:
    """Return the names of the calls, and the base classes of the script's classes among them."""
    names = {call.name for call in calls}
    names |= {found[1] for name in names if (found := _OF_CONFIG.match(name))}
    for name in list(names):
        seen: set[str] = set()
        while name in walk.bases and name not in seen:
            seen.add(name)
            name = next(iter(walk.bases[name]), "")
            names.add(name)
    return names


def _of_lightning_modules(walk: Walk, calls: Sequence[ScriptCall]) -> Framework | None:
    """Return "lightning" for `trainer.fit(model, datamodule=...)`, whose trainer a config creates."""
    imported = any(top(name) in ("lightning", "pytorch_lightning") for name in walk.imports)
    fits = any(call.reached and call.name.endswith(".fit") and "datamodule" in call.keywords for call in calls)
    return "lightning" if imported and fits else None


def _library(names: set[str]) -> Framework | None:
    """Return the library that distributes the training of a script with these calls."""
    kinds: tuple[tuple[Framework, re.Pattern[str]], ...] = (
        ("accelerate", _ACCELERATE),
        ("trainer", _TRAINERS),
        ("lightning", _LIGHTNING),
        ("deepspeed", _DEEPSPEED),
        ("ddp", _BY_HAND),
    )
    found = [kind for kind, pattern in kinds if any(pattern.match(name) for name in names)]
    if found[:1] == ["accelerate"] and len(found) > 1 and not any(map(_BY_ACCELERATE.search, names)):
        return found[1]  # the Accelerator only says which rank this is
    return next(iter(found), None)


def _wraps_only_if_distributed(walk: Walk, calls: Sequence[ScriptCall]) -> bool:
    """Whether the model is wrapped only `if world_size > 1`, and nothing visible makes it so: no group is started.

    A call of the project's own function that was read starts none itself: what it calls is among the calls.
    """
    wrappers = [call for call in calls if call.reached and call.name == _WRAPPER]
    return (
        bool(wrappers)
        and all("distributed" in call.guards for call in wrappers)
        and not any(
            _STARTS_GROUP.search(call.name.rpartition(".")[2])
            and not _ASKS_FOR_GROUP.fullmatch(call.name)
            and walk.own_function(call.name) is None
            for call in calls
        )
    )
