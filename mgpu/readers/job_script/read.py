"""What does a Slurm job script request, and what does it start? It is parsed and checked by `bash -n`, never run."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.process import child_process
from mgpu.readers.job_script import directives
from mgpu.readers.job_script.config_options import config_of
from mgpu.readers.job_script.log_folders import output_folders, start_folder
from mgpu.readers.job_script.programs import SHELLS, base, shell_of
from mgpu.readers.job_script.shell_words import Text
from mgpu.readers.job_script.started_files import LOOKS, decoded
from mgpu.readers.job_script.submitted import submitted_scripts
from mgpu.readers.job_script.walk import Walk
from mgpu.secrets_masking import masked
from mgpu.snapshot import JobScript, JobSet, JobText

LARGEST_BYTES = 256 << 10  # the longest public job scripts have about 0.03 MiB
_SYNTAX_S = 5.0
_SUFFIXES = (".sbatch", ".slurm", ".sh", ".bash", ".sub", ".job")
_DIRECTIVE = re.compile(rb"^#[ \t]*SBATCH[ \t]", re.MULTILINE)
_BLANK_AFTER = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+$")
_REMARK_AFTER = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+#")
_CONTINUES = re.compile(r"-|\+{0,2}\w+(?:\.\w+)+=|\+{1,2}\w+=")  # an option, or a value for hydra
_COMMENT_LINE = re.compile(r"\s*#(?!SBATCH|!)[#\s]*(.*)")
_COMMENT_AFTER = re.compile(r"\s#[#\s]*(.*)")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w*=")


# A syntax error, its line, and why there is no result.
_Syntax: TypeAlias = "tuple[str | None, int | None, str | None]"


def is_job_script(path: Path) -> bool:
    """Whether a file is a shell script, by its first line, #SBATCH lines or name."""
    if path.suffix.lower() == ".py":
        return False
    try:
        raw = _bytes(path)
    except OSError:
        raw = b""
    if not isinstance(raw, str):
        first = raw[:200].partition(b"\n")[0]
        if first.startswith(b"#!"):
            return shell_of(first.decode("utf-8", "replace")) is not None or bool(_DIRECTIVE.search(raw))
        if _DIRECTIVE.search(raw):
            return True
    return path.suffix.lower() in _SUFFIXES


def read(path: Path) -> JobScript:
    """Return the fact `job_script`. Raises MgpuError for a file that does not exist or cannot be read."""
    raw = _text(path)
    if isinstance(raw, str):
        return JobScript(str(path), error=raw)
    return _script(path, decoded(raw))


def _script(path: Path, text: str) -> JobScript:
    """Return what a script with this text asks for, runs and sets."""
    windows = next((n for n, line in enumerate(text.split("\n"), 1) if line.endswith("\r")), None)
    lines = (text := text.replace("\r\n", "\n")).split("\n")
    shebang = lines[0].rstrip() if lines[0].startswith("#!") else None
    asked, texts = directives.read(lines)
    shell = shell_of(shebang) if shebang else "bash"
    walk = Walk([LOOKS * len(text) + 10_000], path, len(lines))
    if shell in SHELLS:
        walk.script(Text.of_file(text), start_folder(asked))
        asked = [one for one in asked if one.line not in walk.handed]
        texts = _all_texts(texts, lines, walk)
    submitted = _submits(walk, path)
    syntax: _Syntax = _syntax_of_all(path, shell, walk) if shell in SHELLS else (None, None, None)
    return JobScript(
        str(path),
        lines=len(lines) - (not lines[-1]),
        shebang=shebang,
        crlf_line=windows,
        syntax=syntax[0],
        syntax_line=syntax[1],
        syntax_unread=syntax[2],
        directives=tuple(asked),
        texts=tuple(sorted(set(texts), key=lambda one: (one.line, one.kind, one.text))),
        commands=tuple(walk.commands),
        sets=tuple(_with_comments(walk, lines)),
        traps=tuple(walk.traps),
        files=tuple(walk.started.files),
        unread=tuple(walk.started.unread),
        stops_at_errors=walk.stops_at_errors or bool(shebang and re.search(r"\s-\w*e", shebang)),
        folders=tuple(output_folders(asked, path)),
        redirects=tuple(walk.needed.folders()),
        missing=tuple(walk.needed.files()),
        deepspeed=tuple(walk.deepspeed),
        submits=tuple(submitted),
        submits_here=tuple(name for name, here in submitted.items() if here),
        scheduler="" if asked else directives.other_scheduler(lines),
        config=next((found for one in walk.commands if (found := config_of(one)) is not None), None),
        cut=walk.cut or shell not in SHELLS,
    )


def _submits(walk: Walk, path: Path) -> dict[str, bool]:
    return dict(submitted_scripts(walk.commands, path, lambda written: walk.started.find(written, "", path.parent)))


def _text(path: Path) -> bytes | str:
    """Return the content of a file, or the reason not to parse it. Raises MgpuError if it cannot be read."""
    try:
        raw = _bytes(path)
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {error.strerror or reason(error)}", errors.USAGE) from None
    if isinstance(raw, bytes):
        if not raw.strip():
            return "it is empty"
        if b"\0" in raw:
            return "it is not a text file"
    return raw


def named_config(job: JobScript) -> Path | None:
    """Return the config passed to the launcher, if it exists relative to the current or the script's folder."""
    if not job.config or "$" in job.config:
        return None
    found = (Path(job.config), Path(job.path).parent / job.config)
    return next((path for path in found if os.path.isfile(path)), None)  # Path.is_file raises: no permission, too long


def _bytes(path: Path) -> bytes | str:
    """Return the content of a file, or the reason not to parse it. Raises OSError."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES)
    except file_reading.Unreadable as error:
        return error.strerror or "it cannot be read"


def _syntax(path: Path, shell: str | None) -> _Syntax:
    """Return the shell's syntax error, its line, and the reason if the syntax could not be checked."""
    program = shutil.which(shell if shell in ("bash", "sh", "dash") and shell else "bash") or shutil.which("bash")
    if shell in ("zsh", "ksh"):
        return None, None, f"bash -n cannot check {shell} scripts"
    if program is None:
        return None, None, "bash is not installed, so bash -n was not run"
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        done = child_process.run([program, "-n", os.path.abspath(path)], _SYNTAX_S, env=environment)
    except subprocess.TimeoutExpired:
        return None, None, f"bash -n did not finish in {_SYNTAX_S:g} s"
    except OSError as error:
        return None, None, f"bash -n cannot be run: {error.strerror or reason(error)}"
    if done.returncode == 0:
        return None, None, None
    message = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
    found = re.search(r"line (\d+): (.*)|: (\d+): (.*)", message)
    if not found:
        return message[-200:] or f"bash -n exited with code {done.returncode}", None, None
    return (found[2] or found[4])[:200], int(found[1] or found[3]), None


def _with_comments(walk: Walk, lines: Sequence[str]) -> Iterator[JobSet]:
    """Yield the variables that the script and its files set, each with the comments at it."""
    of_files = [line for content in walk.started.texts.values() for line in content.s.removesuffix("\n").split("\n")]
    together = [*lines, *of_files]
    for one in walk.sets:
        comment = _comment_at(together, one.line)
        yield dataclasses.replace(one, comment=masked(comment)) if comment else one


def _comment_at(lines: Sequence[str], line: int) -> str:
    """Return the comments of an assignment: on its line, and above it or the assignments directly above."""
    if not 0 < line <= len(lines):
        return ""
    found = [_COMMENT_AFTER.search(lines[line - 1])]
    above = line - 2
    while above >= 0 and _ASSIGNMENT.match(lines[above]):
        above -= 1
    while above >= 0 and (comment := _COMMENT_LINE.match(lines[above])):
        found.insert(0, comment)
        above -= 1
    return " ".join(one[1].strip() for one in found if one)[:500]


def _all_texts(of_directives: Sequence[JobText], lines: Sequence[str], walk: Walk) -> list[JobText]:
    """Return what does not do what it seems to: in the directives, the commands, and the files that are started."""
    kept = [one for one in of_directives if one.line not in walk.handed]
    return [*kept, *walk.texts, *_hidden_errors(lines, walk), *_errors_in_started(walk)]


def _errors_in_started(walk: Walk) -> list[JobText]:
    """Return the hidden errors of the files that the script starts."""
    files = zip(walk.started.files, walk.started.texts.values(), strict=True)
    return [found for one, text in files for found in _hidden_errors(text.s.split("\n"), walk, one.first)]


def _syntax_of_all(path: Path, shell: str | None, walk: Walk) -> _Syntax:
    """Return the first syntax error of the script and of the files that it starts, or why there is no result."""
    until = time.monotonic() + _SYNTAX_S
    own = _syntax(path, shell)
    unread = own[2]
    for one, (file, text) in () if own[0] else zip(walk.started.files, walk.started.texts.items(), strict=True):
        first = text.s.partition("\n")[0]
        other = shell_of(first) if first.startswith("#!") else None
        if time.monotonic() > until:
            return None, None, f"bash -n did not finish in {_SYNTAX_S:g} s for all files"
        message, line, why = _syntax(file, other if other in ("zsh", "ksh") else "bash")
        if message:
            return message, line and one.first + min(line, one.lines) - 1, None
        unread = unread or why
    return own[0], own[1], unread


def _hidden_errors(lines: Sequence[str], walk: Walk, first: int = 1) -> list[JobText]:
    """Return errors that are hard to see: a blank or comment after a backslash, typographic dashes and quotes.

    `first` is the number of the first of the lines.
    """
    found: list[JobText] = []
    commands = [one for one in walk.commands if first <= one.line < first + len(lines)]
    continuing = {command.line for command in commands if _CONTINUES.match(command.words[0])}
    continuing |= {one.line for one in walk.places.outputs if one.alone}  # a redirection without a command
    escaped = {  # "\\ " is a word or the end of one
        line
        for command in commands
        for word, line in zip(command.words, command.lines, strict=False)
        if word[-1:] in (" ", "\t")
    }
    for place, line in enumerate(lines):
        number = place + first
        if line.lstrip().startswith("#"):
            before = lines[place - 1] if place else ""
            continued = before.endswith("\\") and not before.lstrip().startswith("#")
            if continued and _after_comments(lines, place) + first in continuing:
                found.append(JobText(number, "ended", masked(line.strip())[:200]))
        elif _BLANK_AFTER.search(line) and number in escaped:
            found.append(JobText(number, "blank", masked(line.strip())[:200]))
        elif _REMARK_AFTER.search(line) and number in escaped:
            found.append(JobText(number, "remark", masked(line.strip())[:200]))
    for command in commands:
        if base(command.words[0]) in ("echo", "printf"):
            continue
        for word, at in zip(command.words, command.lines, strict=False):
            if re.search(r"\s", word):
                continue  # a sentence in quotes
            if word and word[0] in directives.DASHES:
                found.append(JobText(at, "dash", word[:200]))
            elif word and word[0] in directives.CURLY:
                found.append(JobText(at, "quote", word[:200]))
    return found


def _after_comments(lines: Sequence[str], place: int) -> int:
    """Return the index of the first line from `place` that is not a comment."""
    while place < len(lines) and lines[place].lstrip().startswith("#"):
        place += 1
    return place
