"""Which files of the user does a job script start, and what is in them?

A file is looked for where the job would find it: in a literal `cd`, the current folder, the script's folder and, for a
name with a folder, the two folders above, because a job is often submitted from the root of a repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mgpu import file_reading
from mgpu.readers.job_script.programs import SHELLS, shell_of
from mgpu.readers.job_script.python_uses import python_uses
from mgpu.readers.job_script.shell_words import Text
from mgpu.secrets_masking import masked
from mgpu.snapshot import JobFile, JobUnread

LARGEST_BYTES = 256 << 10  # of all started files together
# Why a file was not read.
MISSING, NAME_UNKNOWN = "no such file here", "its name is known only in the job"
DEEPEST = 3  # files that start files
LOOKS = 40  # limit of reads per character of a script, because of nested words and repeated values
_MOST_FILES, _MOST_UNREAD = 40, 100
_ABOVE = 2  # folders above the script's that may be where the job is submitted
_PRIVATE = re.compile("[\U000f0000-\U000ffffd]")
# The start of a path: the folder of the file itself, the one where the job was submitted, or an unknown one.
_OWN_FOLDER = re.compile(r"\$\((?:[^()]|\([^()]*\))*(?:\bdirname\b|\$\{?BASH_SOURCE)(?:[^()]|\([^()]*\))*\)(?=/|$)")
_OWN_NAME = re.compile(r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}(?=/|$)")
SUBMITTED = re.compile(r"\$(?:SLURM_SUBMIT_DIR|PWD|\{(?:SLURM_SUBMIT_DIR|PWD)\}|\(pwd\))(?=/|$)")
_UNKNOWN = re.compile(r"(?:\$\w+|\$\((?:[^()]|\([^()]*\))*\)|~\w*)/")
_BRACED = re.compile(r"\$\{(\w+)(?::?([-=?])|\})")  # and the character that makes what follows its default
_SUBMIT_FOLDERS = ("SLURM_SUBMIT_DIR", "PWD")
_OF_HOME = re.compile(r"\$\{?HOME\b|~")
_OF_SYSTEM = ("/etc/", "/usr/", "/opt/", "/lib", "/bin/", "/var/", "/proc/", "/dev/", "/sys/")


class StartedFiles:
    """The files that a script starts: those that were read, and those that were not."""

    def __init__(self, path: Path, lines: int, budget: list[int]) -> None:
        self.files: list[JobFile] = []
        self.unread: list[JobUnread] = []
        self.texts: dict[Path, Text] = {}
        self._uses: dict[Path, tuple[str, ...] | None] = {}
        self._script, self._lines, self.budget = path, lines, budget
        self._left = LARGEST_BYTES  # of all files together

    def shell_file(self, written: str, folder: str, beside: Path) -> tuple[Path, Text] | str | None:
        """Return a shell script, or the reason why it was not read; None if it is not a shell script.

        `folder` is the one the job is in, "" where it starts; `beside`, the folder of the file that names this one.
        """
        path = self.find(written, folder, beside)
        if path is None:
            variable = _braced(written)
            name = Path(written).name if variable is None else variable[2] or "$"
            return NAME_UNKNOWN if "$" in name else MISSING
        if path in self.texts:
            return path, self.texts[path]
        if len(self.files) >= _MOST_FILES:
            return "too many files"
        try:
            raw = file_reading.read(path, most=self._left)
        except OSError as error:
            return error.strerror or "it cannot be read"
        if b"\0" in raw:
            return None
        first = raw[:200].partition(b"\n")[0].decode("utf-8", "replace")
        if first.startswith("#!") and shell_of(first) not in SHELLS:
            return None
        self._left -= len(raw)
        text = decoded(raw).replace("\r\n", "\n")
        self.budget[0] += LOOKS * len(text)
        self.texts[path] = made = Text.of_file(text, self._lines + 1)
        lines = text.count("\n") + (not text.endswith("\n"))
        self.files.append(JobFile(shown_path(path), self._lines + 1, lines))
        self._lines += lines
        return path, made

    def add_unread(self, written: str, line: int, why: str, *, sourced: bool, on_node: bool) -> None:
        """Record a file that was not read."""
        written = masked(written)
        known = any(one.path == written for one in self.unread)
        if not known and len(self.unread) < _MOST_UNREAD:
            self.unread.append(JobUnread(written, line, why, sourced, on_node))

    def python_uses(self, written: str, folder: str, beside: Path, *, module: bool) -> tuple[str, ...] | None:
        """Return what a Python script (or module) uses, such as "process group"; None if it was not read."""
        path = self.find(f"{written.replace('.', '/')}.py" if module else written, folder, beside)
        if path is None:
            return None
        if path not in self._uses:
            self._uses[path] = python_uses(path)
        return self._uses[path]

    def find(self, written: str, folder: str, beside: Path) -> Path | None:
        """Return the file that a path in the script names, or None."""
        for candidate in self._candidates(written, folder, beside):
            if not re.search(r"[$`*?\n]", str(candidate)) and os.path.isfile(candidate):
                return Path(os.path.normpath(candidate))
        return None

    def _candidates(self, written: str, folder: str, beside: Path) -> Iterator[Path]:
        if own := _OWN_FOLDER.match(written) or _OWN_NAME.match(written):
            yield beside / written[own.end() :].lstrip("/")
            return
        if _OF_HOME.match(written):
            if "/." in written:
                return  # ~/.bashrc of this machine is not that of the job's nodes
            yield Path(os.path.expanduser(_OF_HOME.sub("~", written, count=1).replace("{", "").replace("}", "")))
            return
        if (variable := _braced(written)) is not None:
            name, default, written = variable
            if default and name not in _SUBMIT_FOLDERS:
                yield from self._candidates(f"{default}/{written}", folder, beside)
        elif here := SUBMITTED.match(written):
            written = written[here.end() :].lstrip("/")
        elif os.path.isabs(written):
            yield from self._absolute(written)
            return
        elif unknown := _UNKNOWN.match(written):
            written = written[unknown.end() :].lstrip("/")
        elif folder:
            yield from self._candidates(f"{folder}/{written}", "", beside)
        yield from self._relative(written)

    def _absolute(self, written: str) -> Iterator[Path]:
        """A file of another machine may be here under the same last folders."""
        if written.startswith(_OF_SYSTEM):
            return
        yield Path(written)
        parts = Path(written).parts
        for start in range(2, len(parts) - 1):
            yield from self._relative("/".join(parts[start:]))

    def _relative(self, written: str) -> Iterator[Path]:
        yield Path(written)
        yield self._script.parent / written
        if "/" in os.path.normpath(written):
            for above in list(self._script.absolute().parent.parents)[:_ABOVE]:
                yield above / written


def _braced(written: str) -> tuple[str, str, str] | None:
    """Return the variable that a path starts with, its default, and the rest of the path: ${DATA:-${PWD}/data}/x.

    The default may have variables with defaults. None if the path does not start with ${NAME}.
    """
    found = _BRACED.match(written)
    if found is None:
        return None
    end, depth = found.end(), int(found[2] is not None)
    while depth and end < len(written):
        depth += (written[end] == "{") - (written[end] == "}")
        end += 1
    rest = written[end:]
    if depth or rest[:1] not in ("", "/"):
        return None
    return found[1], written[found.end() : end - 1] if found[2] in ("-", "=") else "", rest.lstrip("/")


def decoded(raw: bytes) -> str:
    """Return the text of a script, without the characters that stand for unknown values while it is read."""
    return _PRIVATE.sub("\ufffd", raw.decode("utf-8", "replace"))


def shown_path(path: Path) -> str:
    """Return a path, relative to the current folder if it is in it."""
    try:
        relative = os.path.relpath(path)
    except OSError:  # the current folder was deleted
        return str(path)
    return str(path) if relative.startswith("..") else relative
