"""What does a training script do? It is parsed, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, SecretsByKey, Text

# The ranks for which a condition is true. main: rank 0 only; local_main: one per node; not_main: all except rank 0;
# some: it depends on the rank in another way, or its name suggests that ("should_save"); single: only in a run of one
# process; distributed: only in a run of several. All other conditions are in `conditions`.
Guard = Literal["main", "local_main", "not_main", "some", "single", "distributed"]


@dataclass(frozen=True)
class InScript:
    """The position of something in a script.

    Conditions, loops and contexts of a function's callers are included if all its visible calls are inside them;
    outermost first.
    """

    line: int = 1  # this and the column are counted from 1
    column: int = 1
    file: Label = ""  # "": the script itself; else a module it imports, relative to its folder
    function: Label = ""  # "main", "Trainer.fit"; "": the top level
    guards: tuple[Guard, ...] = ()
    conditions: tuple[Label, ...] = ()  # other `if` conditions as written, "not (...)" in an else
    loops: tuple[int, ...] = ()  # indices in Script.loops
    within: tuple[Label, ...] = ()  # contexts of `with`, in the form of ScriptCall.name; "try": errors are caught
    # "try OSError": the error for a file or folder that already exists is caught
    # "except StopIteration": an iterator has ended; "except": after another error
    unused: bool = False  # in the value of a variable of a module's top level that no code that is reached reads
    reached: bool = True  # False: in a function that nothing calls, as far as the script's start and its modules show
    guarded_by: tuple[Label, ...] = ()  # the conditions that the guards come from, in the form of `conditions`


@dataclass(frozen=True)
class ScriptCall(InScript):
    """A call.

    `name` is dotted and resolved through imports and simple assignments: "torch.distributed.barrier". A method of
    another call's result: "accelerate.Accelerator().prepare". A method of an unknown object: as written,
    "loss.backward". Values are clipped texts: constants as Python's repr ("'nccl'", "True"), names resolved as above,
    everything else as written.
    """

    name: Label = ""
    arguments: tuple[Text, ...] = ()
    keywords: SecretsByKey[Mapping[str, Text]] = field(default_factory=dict)  # "**": an unpacked mapping
    targets: tuple[Label, ...] = ()  # the names its result is assigned to, as written: ("model", "optimizer")
    written: tuple[Text, ...] = ()  # the arguments as written, to match them with targets
    on: Text = ""  # of a call of backward: its object as written, "loss"
    # An argument contains the rank, a process id, a time or a random name, also through variables.
    unique: bool = False
    timed: bool = False  # `unique`, but only because of a time


@dataclass(frozen=True)
class ScriptSet(InScript):
    """An assignment of a value that is not a call: `os.environ['RANK'] = '0'`, `lr = 0.1`."""

    target: Label = ""  # as written, with its first name resolved: "os.environ['MASTER_PORT']", "args.lr"
    value: Text = ""


@dataclass(frozen=True)
class ScriptLoop(InScript):
    """A loop over epochs, batches or anything else."""

    over: Label = ""  # the iterable, or the condition of a while, as written
    source: Label = ""  # name of the iterable as in ScriptCall: "torch.utils.data.DataLoader()", "range()"
    target: Label = ""  # as written


@dataclass(frozen=True)
class ScriptJump(InScript):
    """A statement that leaves a loop, or leaves a function from inside a loop or on one rank only."""

    kind: Literal["break", "continue", "return", "raise"] = "break"


@dataclass(frozen=True)
class ScriptOption(InScript):
    """An option that the script's command line accepts (argparse, click)."""

    names: tuple[Label, ...] = ()  # "--local_rank", "--local-rank"
    default: Label | None = None
    action: Label | None = None
    type: Label | None = None


@dataclass(frozen=True)
class ScriptFunction(InScript):
    """The definition of a function or method. Its own conditions and loops are those of its callers."""

    name: Label = ""  # as in InScript.function of its body: "main", "Trainer.fit"
    callers: tuple[InScript, ...] = ()  # where it is called; for a method, also calls of its name on unknown objects


@dataclass(frozen=True)
class ScriptClass(InScript):
    """The definition of a class."""

    name: Label = ""  # "Trainer"
    bases: tuple[Label, ...] = ()  # resolved, with those of its own bases: "torch.utils.data.IterableDataset"
    uses_all: bool = False  # of a model: its forward pass certainly uses all of its parameters


@dataclass(frozen=True)
class ScriptText(InScript):
    """A string that names a device or an address: "cuda:0", "tcp://localhost:23456"."""

    text: Text = ""


@dataclass(frozen=True)
class ScriptFault(InScript):
    """A statement that certainly raises an error when Python starts the file as a script, or reaches the line."""

    # A relative import (`of`: the script's name as a module), a name that a module does not have, a missing argument,
    # an imported module that is not valid Python, a name that nothing in the file binds. Unless the package is
    # installed or PYTHONPATH is set: an import of the package that contains the script (`of`: its name as a module).
    kind: Literal["relative", "import", "argument", "syntax", "undefined", "package"] = "relative"
    name: Label = ""  # the module as written, the names or the parameters, the text of the syntax error
    of: Label = ""  # the module or function


@dataclass(frozen=True)
class ScriptStart(InScript):
    """A command in a shell script of the project that starts the script; variables that it sets are replaced."""

    launcher: Label = ""  # "torchrun", "python"
    options: tuple[Text, ...] = ()  # of the launcher
    arguments: tuple[Text, ...] = ()  # of the script


# How the script distributes training. "trainer": of transformers or trl; "nothing": certainly not distributed.
Framework = Literal["accelerate", "trainer", "lightning", "deepspeed", "ddp", "nothing"]


@dataclass(frozen=True)
class Script:
    """A training script, read from its syntax tree without importing or running it."""

    path: Text
    arguments: tuple[Text, ...] = ()  # of its command line, secrets masked
    command_known: bool = False  # these are all of its arguments; else it is read without a command line
    module: Label = ""  # its name for `python -m`, if it is part of a package: "package.train"
    error: Label | None = None  # why it could not be read: "line 7: invalid syntax"; the fields below are then empty
    error_line: int | None = None
    python: Label = ""  # the version of Python whose grammar it was read with: "3.11"
    newer_python: Label | None = None  # with `error`: the line may be valid in this version, which is newer
    lines: int = 0
    speaks: Framework | None = None  # None: not known
    unclear: Label | None = None  # if `speaks` is None: why; None if all was read and nothing in it trains
    imports: tuple[Label, ...] = ()  # dotted, sorted: "torch.distributed", "accelerate.Accelerator"
    unread: tuple[Label, ...] = ()  # imported libraries that were not read and could contain training code
    may_average: bool = False  # if it speaks ddp: one of these libraries gets what it trains, and may average gradients
    files: tuple[Label, ...] = ()  # modules of its project that were also read, relative to its folder
    skipped: Mapping[str, Text] = field(default_factory=dict)  # modules of its project that were not read -> reason
    by_name: tuple[InScript, ...] = ()  # where it imports modules by a name that only the run knows (importlib, hydra)
    calls: tuple[ScriptCall, ...] = ()  # in line order per file; the script first
    sets: tuple[ScriptSet, ...] = ()
    loops: tuple[ScriptLoop, ...] = ()
    jumps: tuple[ScriptJump, ...] = ()
    options: tuple[ScriptOption, ...] = ()
    texts: tuple[ScriptText, ...] = ()
    functions: tuple[ScriptFunction, ...] = ()  # of the script and of the modules in `files`
    classes: tuple[ScriptClass, ...] = ()
    faults: tuple[ScriptFault, ...] = ()  # in line order
    main_guard: bool = False  # if __name__ == "__main__"
    shadowed: Mapping[str, Text] = field(default_factory=dict)  # module -> the file or package that hides it
    # Calls that start ranks in every run: mp.spawn, or a launcher as a subprocess.
    spawns: tuple[ScriptCall, ...] = ()
    cut: bool = False  # truncated: the script contains more than is listed here
    starts: tuple[ScriptStart, ...] = ()  # in shell scripts of its project; only if `doctor` examines the script

    @property
    def only_as_module(self) -> str:
        """Its name for `python -m`, if it has relative imports, with which Python cannot start it as a file.

        If no __init__.py shows where its package begins, that is the current folder.
        """
        if self.command_known or not (found := [fault.of for fault in self.faults if fault.kind == "relative"]):
            return ""
        by_path = self.path.removesuffix(".py").replace("/", ".")
        names = found if self.module else [by_path, *found]
        return next((name for name in names if "." in name and all(map(str.isidentifier, name.split(".")))), "")

    @property
    def in_own_package(self) -> tuple[str, str]:
        """The folder and the name for `python -m` of a script that imports the package that contains it."""
        found = next((fault.of for fault in self.faults if fault.kind == "package"), "")
        parts = found.split(".")
        words = self.path.removesuffix(".py").split("/")
        if not found or self.command_known or words[-len(parts) :] != parts[-len(words) :] or len(words) < len(parts):
            return "", ""
        return "/".join(words[: -len(parts)]) or ("/" if self.path.startswith("/") else ""), found

    @property
    def has_own_backward(self) -> bool:
        """Whether the script's own file has a backward pass, not a module that it imports."""
        return any(call.name.endswith(".backward") and not call.file for call in self.calls)

    @property
    def spawns_ranks(self) -> bool:
        """Whether it certainly starts its ranks itself: it runs as `python SCRIPT`, without a launcher."""
        return bool(self.spawns)
