"""Which exceptions does a log show, and where were they raised?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, Text


@dataclass(frozen=True)
class TracedCall:
    """One frame of a traceback, with the line that made the next call or failed."""

    place: Text  # "train.py:41 in main", "trl/trainer/sft.py:7 in train"
    code: Text | None = None  # all lines of the statement that the traceback shows, joined
    marked: tuple[Text, ...] = ()  # the part that Python underlines, as left "~~", middle "^^", right "~~"; or one part
    package: Label = ""  # the installed package that the file is of; "": the user's own, or Python's library
    file: Text = ""  # of a frame in one of the user's own files: its path as the log has it
    installed: Text = ""  # of a frame in a package: likewise

    @property
    def function(self) -> str:
        """The function that the frame is of; empty in a module's own code."""
        return self.place.partition(" in ")[2]


@dataclass(frozen=True)
class Definition:
    """What the user's own source says about a name of a line that failed, or about one that it depends on."""

    name: Text  # "self.fc", "args.data"
    # set, loop, parameter, passed (by a call), option, field (of a dataclass), function, class; condition: under which
    # the line is reached. Of an attribute, option or parameter that does not exist: set_elsewhere (by another method),
    # similar_attribute, similar_option, similar_parameter, similar_name: nearly of its name.
    # keeps_gradients: a function that evaluates with gradients.
    kind: Label
    place: Text  # "train.py:12 in main"
    code: Text  # the statement in one line
    value: Text | None = None  # of a parameter, an option or a field: its default; of what was passed: the argument
    flag: Text | None = None  # of an option: "--data"
    depth: int = 0  # steps from the line that failed
    keys: tuple[Text, ...] = ()  # of a dict that is written out there, and that nothing in the file changes
    ends_without_value: bool = False  # a function that returns values, but can also end without a return


@dataclass(frozen=True)
class HandledException:
    """An exception during whose handling another one was raised. Its fields are as in `UncaughtException`."""

    type: Label
    message: Text
    more: Text | None = None
    place: Text | None = None
    code: Text | None = None
    own_code: Text | None = None
    own_lines: tuple[Text, ...] = ()
    library: Text | None = None
    raised_in: Text | None = None
    packages: tuple[Label, ...] = ()
    frames: tuple[Text, ...] = ()
    calls: tuple[TracedCall, ...] = ()


@dataclass(frozen=True)
class ReadFile:
    """The file that a failed line of the user's code read."""

    path: Text  # as the program has it
    size_bytes: int
    form: Label = ""  # by its first bytes: "a Git LFS pointer"; "": not known
    line: int | None = None  # which of its lines was read
    # invalid: it could not be read there. invalid_row, blank: the line was read by itself, and could not. "": it is
    # the last that was read.
    fault: Label = ""


@dataclass(frozen=True)
class EmptyLoop:
    """The loop that would have given a name of the failed line its value, and that had no item to go over."""

    line: int
    over: Text  # "enumerate(loader)"
    fills: Text  # the name


@dataclass(frozen=True)
class ListedFolder:
    """The folder that the exception of a failed line is about, as it was when the rank failed."""

    path: Text  # as the program has it; ".": the current folder
    names: tuple[Text, ...]  # the first of its entries
    count: int  # of its entries, up to 1000
    missing: Text = ""  # the path that was not there, below it; "": the message names the folder itself
    here: bool = False  # it is the current folder


@dataclass(frozen=True)
class LineValues:
    """What the names on a line of the user's code stood for when an exception passed it."""

    file: Text
    line: int
    function: Label
    values: Mapping[Text, Text]  # "batch['labels']" -> "int64 [8, 512] on cuda:0"
    condition: Text | None = None  # of a line that raised the exception itself: what held there, as the code has it
    read: ReadFile | None = None
    empty_loop: EmptyLoop | None = None
    folder: ListedFolder | None = None

    @property
    def place(self) -> str:
        """As a finding shows it: "train.py:31"."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True)
class UncaughtException:
    """An uncaught Python exception, read from a traceback in a log."""

    type: Label  # as printed: "torch.OutOfMemoryError", "ValueError"
    message: Text
    file: Text  # the log
    line: int  # of the exception's own line
    rank: int | None = None
    at: Label | None = None
    place: Text | None = None  # the deepest frame in the user's own files: "train.py:41 in main"
    times: int = 1
    ranks: tuple[int, ...] = ()
    cause: Text | None = None  # first of a chain ("During handling of ..."): "KeyError: 'x'"
    signatures: tuple[Label, ...] = ()  # ids of the signatures, noise included, that match its message
    after: int = 0  # number of lines after it in its file
    caught: bool = False  # its rank continued
    loader: bool = False  # raised through torch's DataLoader
    by_torch: bool = False  # has torch's prefix "[rank1]: ", which torch prints for uncaught exceptions
    logged: bool = False  # a record of a logger, with the program's own message, is directly above it (the last time)
    quoted: bool = False  # all its files are temporary or have no name, as in the output of generated programs
    by_one: int = 1  # exceptions of its process, if a prefix names it: after all but the last, it went on
    bare: bool = False  # without its traceback, or without its type: the log was shortened
    of_launcher: bool = False  # raised by a launcher when its child failed: never the cause
    packages: tuple[Label, ...] = ()  # installed packages of its frames, outermost first; "": files of the user's own
    code: Text | None = None  # the source line that raised it, as the traceback shows it
    own_code: Text | None = None  # the source line of `place`
    own_lines: tuple[Text, ...] = ()  # the source lines of the last frames in the user's own files, the deepest last
    more: Text | None = None  # the lines of its message after the first
    library: Text | None = None  # the deepest frame, if it is in an installed package: "trl/trainer/sft.py:7 in train"
    direct: bool = False  # raised from `cause`, which Python calls its direct cause
    raised_in: Text | None = None  # the deepest frame outside of Python itself: "deepspeed/runtime/engine.py in step"
    frames: tuple[Text, ...] = ()  # all such frames, in the same form, the deepest last
    calls: tuple[TracedCall, ...] = ()  # the deepest frames, without those of Python's own library, the deepest last
    cloned: bool = False  # the deepest frame in a package is in a clone of its repository, not in site-packages
    says_more: Text | None = None  # another line near the end of the log that contains the message, and more
    said_before: Text | None = None  # a problem that the program reported in its last lines before the traceback
    said_after: Text | None = None  # the same in the last lines of the log: buffered output follows the traceback
    printed_paths: tuple[Text, ...] = ()  # whole paths in the last lines before the traceback, the latest last
    printed: tuple[Text, ...] = ()  # lines with sizes, or with tensors that hold -1 or -100, printed near the traceback
    pythons: tuple[Label, ...] = ()  # of a failed import: the Python that runs, and another one, of the deepest frame
    began: HandledException | None = None  # the first of its chain, if this one was raised while it was handled
    defined: tuple[Definition, ...] = ()  # of the names in its deepest own line, if the source is beside the log
    recorded: tuple[LineValues, ...] = ()  # what the names on its lines stood for, in a rank of a launch

    @property
    def raised_in_own_code(self) -> bool:
        """Whether its deepest frame is in one of the user's own files, not in a package."""
        return self.packages[-1:] == ("",)


@dataclass(frozen=True)
class CutTraceback:
    """A traceback of which the log has the frames, but not the exception: the log ends before it."""

    place: Text  # the deepest frame that the log has: "trl/trainer/sft.py:7 in train"
    file: Text  # the log
    line: int  # the last line of it
    rank: int | None = None
    code: Text | None = None  # the source line of that frame
    frame: Text | None = None  # as in `UncaughtException.frames`
    reported: Text | None = None  # the error that a line just before it reports, without the line's prefixes
