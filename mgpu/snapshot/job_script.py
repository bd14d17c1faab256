"""What does a Slurm job script do? It is parsed, never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from mgpu.known_launchers import KNOWN, Launcher
from mgpu.snapshot.fast_dataclass import dataclass
from mgpu.snapshot.field_types import Label, SecretsByKey, Text


@dataclass(frozen=True)
class Directive:
    """An option of an #SBATCH line."""

    line: int  # counted from 1
    option: Label  # its long name, for a short one as well: "ntasks-per-node"; one that Slurm does not know: as written
    value: Text | None = None  # None: it has none
    written: Text = ""  # "-N 2"
    obeyed: bool = True  # False: it stands below the first command, where Slurm does not look


@dataclass(frozen=True)
class JobText:
    """Something in a job script that is not what it seems."""

    line: int
    # spaced: "# SBATCH"; disabled: "##SBATCH"; blank: after the backslash that was to continue the line; remark: a
    # comment after it; ended: a comment line amid a continued command; dash, quote: a typographic one in a command;
    # secret: a password or token in plain text; loose: an #SBATCH line that Slurm reads otherwise than it was meant
    kind: Literal["spaced", "disabled", "blank", "remark", "ended", "dash", "quote", "secret", "loose"]
    text: Text  # of a secret: the name it is given


@dataclass(frozen=True)
class JobVariable:
    """A variable (or a command substitution) in a command's words: its value is known only in the job."""

    name: Text  # "SLURM_NODEID"; of a substitution its whole text: "$(hostname -i)"
    word: int  # place in the command's words
    on_node: bool  # a shell that srun started expands it, on each node; else the batch shell, once
    line: int = 0
    unset: bool = False  # the script gives it a value, and does not export it: this shell does not know it
    runs: tuple[Text, ...] = ()  # of a substitution: the commands it comes to, in functions as well


@dataclass(frozen=True)
class JobCommand:
    """A command, as the shell would come to it. Variables that the script gives a value are put in."""

    line: int  # of its first word
    words: tuple[Text, ...]  # without quotes; what is not known stands as "$NAME", "$((...))"; secrets masked
    variables: tuple[JobVariable, ...] = ()
    through: tuple[Label, ...] = ()  # programs that start it, outermost first: "srun", "bash", "apptainer"
    step: int | None = None  # the srun that starts it: its place in JobScript.commands
    env: SecretsByKey[Mapping[str, Text]] = field(default_factory=dict)  # given for it alone: NAME=value COMMAND
    launcher: Launcher | None = None  # python: a training script without any
    script: int | None = None  # of a launcher: the place of its training script (of -m: of the module) in `words`
    background: bool = False  # with & at its end
    unsure: bool = False  # in a branch of an if, a loop: it may not run, or several times
    inner: bool = False  # inside $( )
    lines: tuple[int, ...] = ()  # of each word
    statement: int = 1  # the line at which the script's own statement begins that comes to it: an if, a call

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of a launcher: its own options, without its name and the training script."""
        return self.words[1 : self.script]

    @property
    def starts_ranks(self) -> bool:
        """Whether it is a launcher, not a training script that is started without one."""
        return self.launcher is not None and KNOWN[self.launcher].starts_ranks


@dataclass(frozen=True)
class JobSet:
    """A variable that a job script gives a value."""

    line: int
    name: Label
    value: Text  # as a word of a command has it
    exported: bool = False
    on_node: bool = False  # by a shell that srun started
    variables: tuple[JobVariable, ...] = ()  # in its value
    raw: Text = ""  # as it stands in the script
    statement: int = 1  # as of a command


@dataclass(frozen=True)
class JobTrap:
    """What a job script does on a signal."""

    line: int
    signals: tuple[Label, ...]  # without SIG
    action: Text


@dataclass(frozen=True)
class JobFolder:
    """A folder to which a job's output is to go."""

    line: int
    path: Text
    exists: bool | None  # None: that depends on the job


@dataclass(frozen=True)
class JobScript:
    """A shell script for Slurm, as its text tells it: nothing of it was run but `bash -n`."""

    path: Text
    error: Label | None = None  # why nothing of it could be read
    lines: int = 0
    shebang: Label | None = None  # "#!/bin/bash"
    crlf_line: int | None = None  # the first line that ends as on Windows
    syntax: Text | None = None  # what bash -n says of it
    syntax_line: int | None = None
    syntax_unread: Label | None = None  # why bash -n did not tell
    directives: tuple[Directive, ...] = ()
    texts: tuple[JobText, ...] = ()
    commands: tuple[JobCommand, ...] = ()  # in the order of the script; those inside another come after it
    sets: tuple[JobSet, ...] = ()
    traps: tuple[JobTrap, ...] = ()
    sourced: tuple[Text, ...] = ()  # files it takes commands from, which were not read
    stops_at_errors: bool = False  # set -e
    folders: tuple[JobFolder, ...] = ()
    config: Text | None = None  # the accelerate config that its launcher is given, as the words have it
    cut: bool = False  # there was more than is told here

    @property
    def launches(self) -> tuple[JobCommand, ...]:
        """The commands that start ranks."""
        return tuple(command for command in self.commands if command.launcher)

    @property
    def first_launch_line(self) -> int | None:
        """The line, from 1, at which the statement begins that starts the first ranks, all around it included."""
        certain = [one for one in self.launches if one.starts_ranks]
        found = certain or [one for one in self.launches if one.step is not None] or self.launches
        return found[0].statement if found else None

    def directive(self, *options: str) -> Directive | None:
        """The last line that gives one of these options, of those that Slurm obeys."""
        given = [directive for directive in self.directives if directive.obeyed and directive.option in options]
        return given[-1] if given else None
