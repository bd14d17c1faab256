"""What does a Slurm job script request, and what does it start? It is parsed and checked by `bash -n`, never run."""

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

LARGEST_BYTES = 256 << 10  # the longest public job scripts have about 0.03 MiB
_LOOKS = 40  # limit of reads per character, because of nested words and repeated values
_SYNTAX_S = 5.0
_SUFFIXES = (".sbatch", ".slurm", ".sh", ".bash", ".sub", ".job")
_PRIVATE = re.compile("[\U000f0000-\U000ffffd]")
_DIRECTIVE = re.compile(rb"^#[ \t]*SBATCH[ \t]", re.MULTILINE)
_BLANK_AFTER = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+$")
_REMARK_AFTER = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+#")
_PLACEHOLDER = "%"  # starts a placeholder that Slurm replaces


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
            return _shell_of(first.decode("utf-8", "replace")) is not None or bool(_DIRECTIVE.search(raw))
        if _DIRECTIVE.search(raw):
            return True
    return path.suffix.lower() in _SUFFIXES


def read(path: Path) -> JobScript:
    """Return the fact `job_script`. Raises MgpuError for a file that does not exist or cannot be read."""
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
        texts += [*walk.texts, *_hidden_errors(lines, walk.commands)]
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


def _shell_of(shebang: str) -> str | None:
    """Return the shell named in a shebang line; None for another program."""
    words = shebang[2:].split()
    if words and base(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    name = base(words[0]) if words else ""
    return name if name in SHELLS or name in ("csh", "tcsh", "fish") else None


def _syntax(path: Path, shell: str | None) -> tuple[str | None, int | None, str | None]:
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


def _hidden_errors(lines: Sequence[str], commands: Sequence[JobCommand]) -> list[JobText]:
    """Return errors that are hard to see: a blank or comment after a backslash, typographic dashes and quotes."""
    found: list[JobText] = []
    dashed = {command.line for command in commands if command.words[0].startswith("-")}
    escaped = {  # "\\ " is a word or the end of one
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
    """Return the folders of the job's output files."""
    start = next((d.value for d in reversed(asked) if d.obeyed and d.option == "chdir" and d.value), "")
    found: list[JobFolder] = []
    for directive in asked:
        if directive.obeyed and directive.option in ("output", "error") and directive.value:
            folder = os.path.dirname(directive.value)
            if folder:
                found.append(JobFolder(directive.line, folder, _exists(folder, start, path)))
    return found


def _exists(folder: str, start: str, path: Path) -> bool | None:
    """Whether a folder exists, relative to here or to the script; None if only the job's nodes can determine it."""
    if _PLACEHOLDER in folder or "$" in folder or folder.startswith("~"):
        return None
    if os.path.isabs(folder) or os.path.isabs(start):
        whole = os.path.join(start, folder)
        return True if os.path.isdir(whole) else False if _known_here(whole) else None
    return any(os.path.isdir(os.path.join(where, start, folder)) for where in (os.curdir, path.parent))


def _known_here(folder: str) -> bool:
    """Whether a folder's file system exists on this machine, unlike /scratch/me of another cluster."""
    parts = [part for part in folder.split("/") if part]
    return len(parts) > 1 and os.path.isdir("/" + "/".join(parts[:2]))


def _config(commands: Sequence[JobCommand]) -> str | None:
    """Return the accelerate config passed to a launcher."""
    for command in commands:
        if command.launcher and (names := KNOWN[command.launcher].config):
            for place, word in enumerate(command.arguments):
                name, equals, value = word.partition("=")
                if name in names:
                    following = command.arguments[place + 1 : place + 2]
                    return value if equals else following[0] if following else None
    return None
