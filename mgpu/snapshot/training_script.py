"""What does a training script do? It is parsed, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, SecretsByKey, Text

# Who comes past a condition on the rank. main: rank 0 alone; local_main: one a machine; not_main: all but rank 0; some:
# it depends on the rank in another way, or is named so ("should_save"); single: only a run of one process; distributed:
# only a run of several. A condition that is none of these stands in `conditions`.
Guard = Literal["main", "local_main", "not_main", "some", "single", "distributed"]


@dataclass(frozen=True)
class InScript:
    """Where something stands in a script. Conditions, loops and contexts of a function's callers are included where all
    of its calls that can be seen stand in them; outermost first."""

    line: int = 1  # this and the column are counted from 1
    column: int = 1
    file: Label = ""  # "": the script itself; else a module it imports, relative to its folder
    function: Label = ""  # "main", "Trainer.fit"; "": the top level
    guards: tuple[Guard, ...] = ()
    conditions: tuple[Label, ...] = ()  # other `if`s: as they are written, "not (...)" in an else
    loops: tuple[int, ...] = ()  # places in Script.loops
    within: tuple[Label, ...] = ()  # contexts of `with`, as a call's name


@dataclass(frozen=True)
class ScriptCall(InScript):
    """A call. `name` is dotted, resolved through imports and simple assignments: "torch.distributed.barrier"; a method
    of what another call made: "accelerate.Accelerator().prepare"; not known whose it is: as written, "loss.backward".

    Values are texts, cut: constants as Python writes them ("'nccl'", "True"), names resolved as above, else as written.
    """

    name: Label = ""
    arguments: tuple[Text, ...] = ()
    keywords: SecretsByKey[Mapping[str, Text]] = field(default_factory=dict)  # "**": something unpacked
    targets: tuple[Label, ...] = ()  # as written, what its value is assigned to: ("model", "optimizer")
    written: tuple[Text, ...] = ()  # the arguments as written, so that a target is found again


@dataclass(frozen=True)
class ScriptSet(InScript):
    """An assignment of something that is no call: `os.environ['RANK'] = '0'`, `lr = 0.1`."""

    target: Label = ""  # as written, its first name resolved: "os.environ['MASTER_PORT']", "args.lr"
    value: Text = ""


@dataclass(frozen=True)
class ScriptLoop(InScript):
    """A loop: epochs, batches, or another."""

    over: Label = ""  # what is iterated, or a while's condition: as written
    source: Label = ""  # of what it iterates, the name as a call has it: "torch.utils.data.DataLoader()", "range()"
    target: Label = ""  # as written


@dataclass(frozen=True)
class ScriptJump(InScript):
    """A way out of a loop, or out of a function from within one."""

    kind: Literal["break", "continue", "return", "raise"] = "break"


@dataclass(frozen=True)
class ScriptOption(InScript):
    """An option that the script's command line takes (argparse, click)."""

    names: tuple[Label, ...] = ()  # "--local_rank", "--local-rank"
    default: Label | None = None
    action: Label | None = None
    type: Label | None = None


@dataclass(frozen=True)
class ScriptText(InScript):
    """A text that names a device or an address, wherever it stands: "cuda:0", "tcp://localhost:23456"."""

    text: Text = ""


# What makes a script's ranks train together: "trainer" is that of transformers or trl, "nothing" is certain.
Speaks = Literal["accelerate", "trainer", "lightning", "deepspeed", "ddp", "nothing"]


@dataclass(frozen=True)
class Script:
    """A training script as its syntax tree tells it: nothing of it is imported or run."""

    path: Text
    arguments: tuple[Text, ...] = ()  # its own, secrets masked
    error: Label | None = None  # why it could not be read: "line 7: invalid syntax"; all below is empty then
    error_line: int | None = None
    lines: int = 0
    speaks: Speaks | None = None  # None: not known
    imports: tuple[Label, ...] = ()  # dotted, sorted: "torch.distributed", "accelerate.Accelerator"
    unread: tuple[Label, ...] = ()  # modules it imports that were not read and are not known to do no training
    files: tuple[Label, ...] = ()  # modules in its folder that were read as well, relative to it
    calls: tuple[ScriptCall, ...] = ()  # in each file in the order of the lines; the script first
    sets: tuple[ScriptSet, ...] = ()
    loops: tuple[ScriptLoop, ...] = ()
    jumps: tuple[ScriptJump, ...] = ()
    options: tuple[ScriptOption, ...] = ()
    texts: tuple[ScriptText, ...] = ()
    functions: tuple[Label, ...] = ()  # of the script itself: "main", "Trainer.fit"
    main_guard: bool = False  # if __name__ == "__main__"
    shadowed: Mapping[str, Text] = field(default_factory=dict)  # module -> the file or package beside it that hides it
    cut: bool = False  # there was more than is told here
