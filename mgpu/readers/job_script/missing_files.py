"""Which files and folders that a launch needs are not where the job looks for them?

A launch counts only if its training script is here, which shows in which folder the job runs. Nothing is recorded of a
path that may be right elsewhere: one with a variable or of another machine, one that git ignores or that is in another
folder of the repository, or one that the script or an earlier program may make.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from mgpu.file_reading import current_folder
from mgpu.readers.job_script import programs
from mgpu.readers.job_script.config_options import configs_of
from mgpu.readers.job_script.deepspeed_options import deepspeed_files
from mgpu.readers.job_script.log_folders import is_ignored, maker_of, root_of, with_braces_expanded
from mgpu.readers.job_script.started_files import SUBMITTED
from mgpu.secrets_masking import masked
from mgpu.snapshot import JobCommand, JobFolder, JobMissing, JobUnread

_MOST_ENTRIES = 20_000  # of a repository
_NEAR = 0.75  # difflib ratio of two names: train_v2 and train_v3
_SHORTEST_PREFIX = 4  # of a name that another one continues: main and main_finetune
_LITERAL = re.compile(r"[\w.@+=,:-]+(?:/[\w.@+=,:-]+)*")
_DEFAULT = re.compile(r"""\$\{\w+:?[-=]["']?([^${}"']+)["']?\}""")
# fmt: off
# Programs that copy, download or unpack files.
_MAKES = frozenset(
    {
        "cp", "mv", "ln", "tar", "unzip", "rsync", "scp", "wget", "curl", "git", "tee", "touch", "find", "xargs", "sed",
        "awk", "aws", "gsutil", "hf", "huggingface-cli", "mktemp", "source", ".", "install", "jq", "yq", "make",
    }
)
# fmt: on
_HARMLESS = (programs.INERT | programs.WRAPPERS | programs.SHELLS) - _MAKES


@dataclass
class Output:
    """A file to which a statement redirects its output, and the commands of that statement."""

    path: str
    line: int
    first: int  # index of the statement's first command
    after: int  # index behind its last command
    alone: bool = False  # the statement has no command


@dataclass
class Places:
    """Where the commands of a script run, and what its statements write."""

    folders: list[str] = field(default_factory=list)  # of each command
    outputs: list[Output] = field(default_factory=list)


class MissingFiles:
    """The files and folders of one job script. `path`: of the script."""

    def __init__(self, path: Path, commands: Sequence[JobCommand], unread: Sequence[JobUnread], places: Places) -> None:
        self._path, self._commands, self._unread, self._places = path, commands, unread, places
        self._makers: dict[str, str] = {}

    def files(self) -> Iterator[JobMissing]:
        """Yield the files that launches need, and that are missing."""
        for place, folder in enumerate(self._places.folders):
            command = self._commands[place]
            if not command.launcher or command.unsure or command.inner or self._is_elsewhere(command, folder):
                continue
            yield from self._training_script(place, folder)
            if self._has_its_script(command, folder):
                yield from self._configs(place, folder)

    def folders(self) -> Iterator[JobFolder]:
        """Yield the folders of files to which launches redirect their output."""
        for output in self._places.outputs:
            launches = [one for one in range(output.first, output.after) if self._commands[one].launcher]
            folder = os.path.dirname(output.path)
            if not launches or not folder:
                continue
            start, command = self._places.folders[launches[0]], self._commands[launches[0]]
            if command.inner or self._is_elsewhere(command, start) or not self._has_its_script(command, start):
                continue
            if not _LITERAL.fullmatch(folder):
                continue
            exists = self._is_here(folder, start) or self._is_in_repository(folder)
            made = "" if exists else self._maker(folder, start, output)
            yield JobFolder(output.line, masked(folder), exists, made)

    # --- what is missing ----------------------------------------------------------------------------------------

    def _training_script(self, place: int, folder: str) -> Iterator[JobMissing]:
        command = self._commands[place]
        written = _script_of(command)
        if written is None or self._has_its_script(command, folder) or self._is_in_repository(written):
            return
        if self._may_be_made(place, written, programs_too=False):
            return
        similar = self._similar(written, folder)
        if similar:
            line = command.line_of(command.script or 0)
            yield JobMissing(line, masked(written), "training script", masked(similar))

    def _configs(self, place: int, folder: str) -> Iterator[JobMissing]:
        command = self._commands[place]
        named: list[tuple[str, int, Literal["config", "DeepSpeed file"]]] = []
        if command.launcher == "accelerate":
            named += [(written, line, "config") for written, line in configs_of(command)]
        named += [(one.written, one.line, "DeepSpeed file") for one in deepspeed_files(command, lambda _: None)]
        for written, line, kind in named:
            default = _DEFAULT.fullmatch(written)
            path = default[1] if default else written
            if not _LITERAL.fullmatch(path) or self._is_here(path, folder):
                continue
            if self._is_in_repository(path) or self._may_be_made(place, path, programs_too=True):
                continue
            similar = self._similar(path, folder) or self._same_name(path)
            yield JobMissing(line, masked(path), kind, masked(similar), default is not None)

    def _similar(self, written: str, folder: str) -> str:
        """Return a file in the folder of a path whose name is similar; "" without one."""
        inner, name = os.path.split(written)
        stem, suffix = os.path.splitext(name)
        names: set[str] = set()
        for start in self._starts(folder):
            try:
                names |= {one for one in os.listdir(start / inner) if one.endswith(suffix) and one != name}
            except OSError:
                continue
        near = difflib.get_close_matches(stem, sorted(os.path.splitext(one)[0] for one in names), n=1, cutoff=_NEAR)
        near = near or sorted(
            other
            for other in (os.path.splitext(one)[0] for one in names)
            if min(len(stem), len(other)) >= _SHORTEST_PREFIX and (stem.startswith(other) or other.startswith(stem))
        )
        return os.path.join(inner, near[0] + suffix) if near else ""

    def _same_name(self, written: str) -> str:
        """Return a file of this name in another folder of the repository; "" without one."""
        name = os.path.basename(written)
        return next((one for one in self._entries or () if os.path.basename(one) == name), "")

    # --- where it may be ----------------------------------------------------------------------------------------

    def _starts(self, folder: str) -> list[Path]:
        """Return the folders in which the job may run: the current one, the script's, and those above it."""
        folder = SUBMITTED.sub(".", folder)
        if os.path.isabs(folder):
            return [Path(folder)]
        own = self._path.absolute().parent
        root = root_of(self._path)
        above = [one for one in own.parents if one == root or root in one.parents]
        here = [Path(current)] if (current := current_folder()) else []
        return [start / folder for start in dict.fromkeys((*here, own, *above))]

    def _is_elsewhere(self, command: JobCommand, folder: str) -> bool:
        """Whether a command runs in a folder that is not known here: in a container, on another machine, after a cd."""
        there = {"ssh", "pdsh", "clush", "trap"} | programs.CONTAINERS
        if there & set(command.through) or "$" in SUBMITTED.sub(".", folder) or folder.startswith("~"):
            return True
        return os.path.isabs(folder) and not os.path.isdir(folder)

    def _is_here(self, written: str, folder: str) -> bool:
        return any(os.path.exists(start / written) for start in self._starts(folder))

    def _has_its_script(self, command: JobCommand, folder: str) -> bool:
        if command.script is None:
            return False
        word = command.words[command.script]
        if command.words[command.script - 1] in ("-m", "--module") or command.words[0].endswith(" -m"):
            word = word.replace(".", "/")
            return any(self._is_here(one, folder) for one in (f"{word}.py", f"{word}/__main__.py"))
        return _script_of(command) is not None and self._is_here(word, folder)

    @cached_property
    def _entries(self) -> list[str] | None:
        """The paths of all files and folders of the repository; None if there are too many."""
        found: list[str] = []
        root = root_of(self._path)
        for where, folders, files in os.walk(root):
            folders[:] = sorted(one for one in folders if one not in (".git", "node_modules", "__pycache__"))
            found += [os.path.relpath(os.path.join(where, one), root) for one in (*folders, *sorted(files))]
            if len(found) > _MOST_ENTRIES:
                return None
        return found

    def _is_in_repository(self, written: str) -> bool:
        """Whether the repository has, or may have, something of this path in one of its folders."""
        wanted = re.sub(r"^(?:\.\./)+", "", os.path.normpath(written))
        return self._entries is None or any(f"/{one}".endswith(f"/{wanted}") for one in self._entries)

    # --- what may make it ---------------------------------------------------------------------------------------

    def _maker(self, folder: str, start: str, output: Output) -> str:
        whole = os.path.normpath(os.path.join(SUBMITTED.sub(".", start), folder))
        if whole not in self._makers:
            self._makers[whole] = maker_of(whole, self._path)  # reads the scripts of the repository
        if made := self._makers[whole]:
            return made
        return "an earlier command may make it" if self._may_be_made(output.first, folder, programs_too=True) else ""

    def _may_be_made(self, place: int, path: str, *, programs_too: bool) -> bool:
        """Whether git ignores a file, or a command before a launch may make it."""
        if any(not (one.sourced and one.loads_software) for one in self._unread) or is_ignored(path, self._path):
            return True
        path = os.path.normpath(path)
        written = [one.path for one in self._places.outputs if one.first < place]
        if any("$" in one or os.path.normpath(one).startswith(path) for one in written):
            return True
        earlier = self._commands[:place]
        return any(_makes(one, path, programs_too=programs_too and not one.inner) for one in earlier)


def _makes(command: JobCommand, path: str, *, programs_too: bool) -> bool:
    """Whether a command may make a normalized path."""
    name = programs.base(command.words[0])
    if name == "mkdir":
        made = [os.path.normpath(one) for word in command.words[1:] for one in with_braces_expanded(word)]
        return any("$" in one or f"/{path}/" in f"/{one}/" for one in made)
    if name in ("echo", "printf", "cat"):
        return False  # what they write is in the outputs
    if command.launcher:
        return programs_too
    return name in _MAKES or (programs_too and name not in _HARMLESS)


def _script_of(command: JobCommand) -> str | None:
    """Return the path of a launch's training script, if it is a literal relative one."""
    written = "" if command.script is None else command.words[command.script]
    return written if written.endswith(".py") and _LITERAL.fullmatch(written) else None
