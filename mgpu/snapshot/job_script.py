"""What does a Slurm job script do? It is parsed, never run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.known_launchers import KNOWN, Launcher
from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, SecretsByKey, Text

_LOADS_SOFTWARE = r"activate|\.bashrc|\.\w*rc$|\.\w*profile|/etc/|conda|mamba|modules?\b|lmod|init/\w*sh"


@dataclass(frozen=True)
class Directive:
    """An option of an #SBATCH line."""

    line: int  # counted from 1
    option: Label  # its long name, also if the short one is used: "ntasks-per-node"; unknown to Slurm: as written
    value: Text | None = None  # None: no value
    written: Text = ""  # "-N 2"
    obeyed: bool = True  # False: it comes after the first command, where Slurm ignores it


@dataclass(frozen=True)
class JobText:
    """Something in a job script that does not do what it seems to."""

    line: int
    # spaced: "# SBATCH"; disabled: "##SBATCH"; blank: a space after the backslash of a continued line; remark: a
    # comment after that backslash; ended: a comment line inside a continued command; dash, quote: a typographic
    # character in a command; secret: a password or token in plain text; loose: an #SBATCH line that Slurm reads
    # differently than intended; bare: a line of options in the head that begins with SBATCH, without the #
    kind: Literal["spaced", "disabled", "blank", "remark", "ended", "dash", "quote", "secret", "loose", "bare"]
    text: Text  # if secret: the name of the variable or option


@dataclass(frozen=True)
class JobVariable:
    """A variable (or a command substitution) in a command, whose value is known only in the job."""

    name: Text  # "SLURM_NODEID"; a substitution's whole text: "$(hostname -i)"
    word: int  # index in the command's words
    on_node: bool  # expanded on each node, by a shell that srun started; else once, by the batch shell
    line: int = 0
    unset: bool = False  # the script sets it without exporting it, so this shell does not have it
    runs: tuple[Text, ...] = ()  # if a substitution: the commands it runs, also in functions


@dataclass(frozen=True)
class JobOption:
    """An option of a training script on the line of a launch that its argparse certainly does not accept."""

    word: int  # index in the command's words
    name: Label  # "--do_Eval"
    similar: Label = ""  # an option that it accepts


@dataclass(frozen=True)
class JobCommand:
    """A command as the shell would run it. Variables that the script sets are replaced by their values."""

    line: int  # of the first of its words
    words: tuple[Text, ...]  # without quotes; unknown values stay "$NAME", "$((...))"; secrets masked
    variables: tuple[JobVariable, ...] = ()
    through: tuple[Label, ...] = ()  # programs that start it, outermost first: "srun", "bash", "apptainer"
    step: int | None = None  # index in JobScript.commands of the srun that starts it
    env: SecretsByKey[Mapping[str, Text]] = field(default_factory=dict)  # set for this command only: NAME=value COMMAND
    launcher: Launcher | None = None  # python: a training script started without a launcher
    script: int | None = None  # if a launcher: index in `words` of its training script (with -m: of the module)
    background: bool = False  # ends with &
    unsure: bool = False  # in an if or a loop: it may not run, or run several times
    inner: bool = False  # inside $( )
    lines: tuple[int, ...] = ()  # line of each word
    statement: int = 1  # first line of the top-level statement that runs it: an if, a call
    code_lost: bool = False  # its output goes into a pipe without pipefail, so its exit code is lost
    uses: tuple[Label, ...] | None = None  # if python: "process group", "srun", "Lightning" ...; None: not read
    refuses_local_rank: bool = False  # its script accepts --local_rank, but not the --local-rank that torch 2 passes
    here: Text | None = None  # where its training script (or module) is on this machine; None: not found
    refused: tuple[JobOption, ...] = ()  # unknown options of its script; only if all that it accepts are certain

    @property
    def arguments(self) -> tuple[str, ...]:
        """A launcher's own options, without its name and the training script."""
        return self.words[1 : self.script]

    def line_of(self, word: int) -> int:
        """Return the line number of one of its words."""
        return self.lines[word] if word < len(self.lines) else self.line

    @property
    def starts_ranks(self) -> bool:
        """Whether it is a launcher, not a training script started without one."""
        return self.launcher is not None and KNOWN[self.launcher].starts_ranks


@dataclass(frozen=True)
class JobSet:
    """A variable that a job script sets."""

    line: int
    name: Label
    value: Text  # in the form of a word of a command
    exported: bool = False
    on_node: bool = False  # by a shell that srun started
    variables: tuple[JobVariable, ...] = ()  # in its value
    raw: Text = ""  # as written in the script
    statement: int = 1  # as in JobCommand
    comment: Text = ""  # beside it, or above it
    unsure: bool = False  # in an if or a loop: it may not be set


@dataclass(frozen=True)
class JobTrap:
    """A trap: the action of a job script on a signal."""

    line: int
    signals: tuple[Label, ...]  # without SIG
    action: Text
    exit_code: Label | None = None  # with which the action always ends the script: "0"; None: it does not, or not known


@dataclass(frozen=True)
class JobFolder:
    """A folder to which a job's output is written."""

    line: int
    path: Text
    exists: bool | None  # None: depends on the job
    made: Label = ""  # if it is not here: why it may be where the job is submitted: "git ignores it"
    by_submitter: bool = False  # the script that makes it also submits the job


@dataclass(frozen=True)
class JobMissing:
    """A file that a launch needs, and that is not where the job looks for it."""

    line: int
    path: Text
    kind: Literal["training script", "config", "DeepSpeed file"]
    similar: Text = ""  # a file in the same folder whose name is similar
    default: bool = False  # only the default of a variable or argument names it: ${1:-a.yaml}


@dataclass(frozen=True)
class JobFile:
    """A file that a job script starts or sources, read with it.

    Its line numbers continue those of the text before it, so that each number identifies one line of one file.
    """

    path: Text
    first: int  # the number of its line 1
    lines: int


@dataclass(frozen=True)
class JobDeepSpeed:
    """A DeepSpeed file (ds_config.json) that a command of a job script names."""

    line: int
    written: Text  # in the command
    path: Text | None  # where it is on this machine; None: not found
    by_deepspeed: bool  # --deepspeed_config: DeepSpeed itself reads it, else Trainer or accelerate


@dataclass(frozen=True)
class JobUnread:
    """A file that a job script starts or sources, but that was not read."""

    path: Text  # as written
    line: int
    why: Label  # "no such file here"
    sourced: bool = False  # else: started
    on_node: bool = False  # srun or another program starts it on the nodes

    @property
    def loads_software(self) -> bool:
        """Whether, by its name, it only loads software or sets up the shell: ~/.bashrc, venv/bin/activate."""
        return re.search(_LOADS_SOFTWARE, self.path) is not None


@dataclass(frozen=True)
class JobScript:
    """A shell script for Slurm, and the files it starts, parsed from their text.

    Nothing is run; only `bash -n` checks it. Lines above `lines` are those of `files`: `place` returns file and line.
    """

    path: Text
    error: Label | None = None  # why it could not be read
    lines: int = 0
    shebang: Label | None = None  # "#!/bin/bash"
    crlf_line: int | None = None  # the first line with a Windows line ending
    syntax: Text | None = None  # the error that bash -n reports
    syntax_line: int | None = None
    syntax_unread: Label | None = None  # why bash -n gave no result
    directives: tuple[Directive, ...] = ()
    texts: tuple[JobText, ...] = ()
    commands: tuple[JobCommand, ...] = ()  # in script order; a nested command follows the outer one
    sets: tuple[JobSet, ...] = ()
    traps: tuple[JobTrap, ...] = ()
    files: tuple[JobFile, ...] = ()  # read with it
    unread: tuple[JobUnread, ...] = ()
    stops_at_errors: bool = False  # set -e
    folders: tuple[JobFolder, ...] = ()
    redirects: tuple[JobFolder, ...] = ()  # folders of files to which launches redirect their output
    missing: tuple[JobMissing, ...] = ()
    deepspeed: tuple[JobDeepSpeed, ...] = ()
    submits: tuple[Text, ...] = ()  # the job scripts that it passes to sbatch
    submits_here: tuple[Text, ...] = ()  # those that are on this machine
    scheduler: Label = ""  # of its directives, if not Slurm: PBS, LSF ...
    config: Text | None = None  # the accelerate config passed to its launcher, as written
    cut: bool = False  # truncated: the script contains more than is listed here

    def place(self, line: int) -> tuple[str, int]:
        """Return the file and the line in it that a line number refers to."""
        for one in self.files:
            if one.first <= line < one.first + one.lines:
                return one.path, line - one.first + 1
        return self.path, line

    @property
    def launches(self) -> tuple[JobCommand, ...]:
        """The commands that start ranks."""
        return tuple(command for command in self.commands if command.launcher)

    @property
    def first_launch_line(self) -> int | None:
        """First line, from 1, of the top-level statement that starts the first ranks."""
        certain = [one for one in self.launches if one.starts_ranks]
        found = certain or [one for one in self.launches if one.step is not None] or self.launches
        return found[0].statement if found else None

    def directive(self, *options: str) -> Directive | None:
        """Return the last directive, of those that Slurm reads, with one of these options."""
        given = [directive for directive in self.directives if directive.obeyed and directive.option in options]
        return given[-1] if given else None
