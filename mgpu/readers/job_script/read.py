"""What does a job script for Slurm ask for, and what does it start? Nothing of it is run but `bash -n`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mgpu import errors, file_reading
from mgpu.errors import MgpuError, reason
from mgpu.known_launchers import KNOWN
from mgpu.process import child_process
from mgpu.readers.job_script import directives
from mgpu.readers.job_script.programs import SHELLS, base
from mgpu.readers.job_script.shell import Text
from mgpu.readers.job_script.walk import Walk
from mgpu.snapshot import Directive, JobCommand, JobFolder, JobScript, JobText

LARGEST_BYTES = 256 << 10  # the longest of public job scripts have some 0.03 MiB
_LOOKS = 40  # each character may be looked at so often: words in words, values put in many times
_SYNTAX_S = 5.0
_SUFFIXES = (".sbatch", ".slurm", ".sh", ".bash", ".sub", ".job")
_PRIVATE = re.compile("[\U000f0000-\U000ffffd]")
_DIRECTIVE = re.compile(rb"^#[ \t]*SBATCH[ \t]", re.MULTILINE)
_BLANK_AFTER = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+$")
_REMARK_AFTER = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+#")
_ANOTHER = "%"  # of a name that Slurm fills in


def is_job_script(path: Path) -> bool:
    """Whether a file is a shell script: by its first line, #SBATCH lines, or its name."""
    if path.suffix.lower() == ".py":
        return False
    try:
        raw = _bytes(path)
    except OSError:
        raw = b""
    if not isinstance(raw, str):
        first = raw[:200].partition(b"\n")[0]
        if first.startswith(b"#!"):
            return _shell_of(first.decode("utf-8", "replace")) is not None or bool(_DIRECTIVE.search(raw))
        if _DIRECTIVE.search(raw):
            return True
    return path.suffix.lower() in _SUFFIXES


def read(path: Path) -> JobScript:
    """The fact `job_script`. Raises MgpuError for a file that is not there."""
    raw = _text(path)
    if isinstance(raw, str):
        return JobScript(str(path), error=raw)
    text = _PRIVATE.sub("\ufffd", raw.decode("utf-8", "replace"))
    windows = next((n for n, line in enumerate(text.split("\n"), 1) if line.endswith("\r")), None)
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    shebang = lines[0].rstrip() if lines[0].startswith("#!") else None
    asked, texts = directives.read(lines)
    shell = _shell_of(shebang) if shebang else "bash"
    walk = Walk([_LOOKS * len(text) + 10_000])
    syntax: tuple[str | None, int | None, str | None] = (None, None, None)
    if shell in SHELLS:
        walk.script(Text.of_file(text))
        syntax = _syntax(path, shell)
        asked = [one for one in asked if one.line not in walk.handed]
        texts = [one for one in texts if one.line not in walk.handed]
        texts += [*walk.texts, *_odd(lines, walk.commands)]
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
        sets=tuple(walk.sets),
        traps=tuple(walk.traps),
        sourced=tuple(walk.sourced),
        stops_at_errors=walk.stops_at_errors or bool(shebang and re.search(r"\s-\w*e", shebang)),
        folders=tuple(_folders(asked, path)),
        config=_config(walk.commands),
        cut=walk.cut or shell not in SHELLS,
    )


def _text(path: Path) -> bytes | str:
    """What the file holds, or why it is not read. Raises MgpuError for a file that is not there."""
    try:
        raw = _bytes(path)
    except OSError as error:
        raise MgpuError(f"cannot read {path}: {error.strerror or reason(error)}", errors.USAGE) from None
    if isinstance(raw, bytes):
        if not raw.strip():
            return "it is empty"
        if b"\0" in raw:
            return "it is no text"
    return raw


def named_config(job: JobScript) -> Path | None:
    """The config that the launcher is given, where it can be read from here or from the script's folder."""
    if not job.config or "$" in job.config:
        return None
    found = (Path(job.config), Path(job.path).parent / job.config)
    return next((path for path in found if os.path.isfile(path)), None)  # Path.is_file raises: no permission, too long


def _bytes(path: Path) -> bytes | str:
    """What the file holds, or why it is not read. Raises OSError."""
    try:
        return file_reading.read(path, most=LARGEST_BYTES)
    except file_reading.Unreadable as error:
        return error.strerror or "it cannot be read"


def _shell_of(shebang: str) -> str | None:
    """The shell that a first line names; None for another program."""
    words = shebang[2:].split()
    if words and base(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    name = base(words[0]) if words else ""
    return name if name in SHELLS or name in ("csh", "tcsh", "fish") else None


def _syntax(path: Path, shell: str | None) -> tuple[str | None, int | None, str | None]:
    """What the shell says of the file when it only reads it: its words, their line, or why there are none."""
    program = shutil.which(shell if shell in ("bash", "sh", "dash") and shell else "bash") or shutil.which("bash")
    if shell in ("zsh", "ksh"):
        return None, None, f"bash -n does not read what is written for {shell}"
    if program is None:
        return None, None, "no bash is here, and its -n was not asked"
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        done = child_process.run([program, "-n", os.path.abspath(path)], _SYNTAX_S, env=environment)
    except subprocess.TimeoutExpired:
        return None, None, f"bash -n did not come to an end in {_SYNTAX_S:g} s"
    except OSError as error:
        return None, None, f"bash -n cannot be run: {error.strerror or reason(error)}"
    if done.returncode == 0:
        return None, None, None
    said = done.stderr.decode("utf-8", "replace").strip().split("\n")[0]
    found = re.search(r"line (\d+): (.*)|: (\d+): (.*)", said)
    if not found:
        return said[-200:] or f"bash -n ends with {done.returncode}", None, None
    return (found[2] or found[4])[:200], int(found[1] or found[3]), None


def _odd(lines: Sequence[str], commands: Sequence[JobCommand]) -> list[JobText]:
    """What breaks a command and is hardly seen: a blank or comment after a backslash, typographic dashes and quotes."""
    found: list[JobText] = []
    dashed = {command.line for command in commands if command.words[0].startswith("-")}
    escaped = {  # "\\ " is a word, or the end of one
        line
        for command in commands
        for word, line in zip(command.words, command.lines, strict=False)
        if word[-1:] in (" ", "\t")
    }
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            before = lines[number - 2] if number > 1 else ""
            following = lines[number].lstrip() if number < len(lines) else ""
            continued = before.endswith("\\") and not before.lstrip().startswith("#")
            if continued and following.startswith("-") and number + 1 in dashed:
                found.append(JobText(number, "ended", line.strip()[:200]))
        elif _BLANK_AFTER.search(line) and number in escaped:
            found.append(JobText(number, "blank", line.strip()[:200]))
        elif _REMARK_AFTER.search(line) and number in escaped:
            found.append(JobText(number, "remark", line.strip()[:200]))
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


def _folders(asked: Sequence[Directive], path: Path) -> list[JobFolder]:
    """The folders of the job's own output files."""
    start = next((d.value for d in reversed(asked) if d.obeyed and d.option == "chdir" and d.value), "")
    found: list[JobFolder] = []
    for directive in asked:
        if directive.obeyed and directive.option in ("output", "error") and directive.value:
            folder = os.path.dirname(directive.value)
            if folder:
                found.append(JobFolder(directive.line, folder, _exists(folder, start, path)))
    return found


def _exists(folder: str, start: str, path: Path) -> bool | None:
    """Whether a folder is there, seen from here or from the script; None where only the job's own machine can tell."""
    if _ANOTHER in folder or "$" in folder or folder.startswith("~"):
        return None
    if os.path.isabs(folder) or os.path.isabs(start):
        whole = os.path.join(start, folder)
        return True if os.path.isdir(whole) else False if _known_here(whole) else None
    return any(os.path.isdir(os.path.join(where, start, folder)) for where in (os.curdir, path.parent))


def _known_here(folder: str) -> bool:
    """Whether the file system a folder would lie in is there: /scratch/me of another cluster is not."""
    parts = [part for part in folder.split("/") if part]
    return len(parts) > 1 and os.path.isdir("/" + "/".join(parts[:2]))


def _config(commands: Sequence[JobCommand]) -> str | None:
    """The accelerate config that a launcher is given."""
    for command in commands:
        if command.launcher and (names := KNOWN[command.launcher].config):
            for place, word in enumerate(command.arguments):
                name, equals, value = word.partition("=")
                if name in names:
                    following = command.arguments[place + 1 : place + 2]
                    return value if equals else following[0] if following else None
    return None
