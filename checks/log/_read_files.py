"""Which file could not be read, and which line of it, if its exception does not name them?

Only of a launch: the recorder has seen the file that the failed line read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mgpu.check import Fix, Problem
from mgpu.command_line import Command, shell
from mgpu.snapshot import ReadFile, UncaughtException

from ._messages import exception_of, short_name

_LONGEST_PATH = 80  # characters of a title
_IN_ONE_LINE = re.compile(r": line \d+ column \d+ \(char (?P<before>\d+)\)$")
_BYTE = re.compile(r"'(?P<codec>[\w-]+)' codec can't decode bytes? (?P<byte>0x\w+)?")
_COUNTED = re.compile(r"^Error tokenizing data.* in line (?P<line>\d{1,12}),")  # of pandas
_UNNAMED = ", whose name the message does not have"
_OF_YAML = ("ScannerError", "ParserError", "ComposerError", "ConstructorError", "ReaderError")
_ANY_JSON = ("a file or an answer is not valid JSON: E", "a JSON file has a mistake in its text")
_PLACEHOLDER = re.compile(r"\bFILE\b")
# What a file is, by its first bytes, that no reader of data accepts; why, and what to do.
_NO_DATA = {
    "a Git LFS pointer": (
        "The repository was cloned without git-lfs: the file names its content, and does not have it.",
        "Fetch the content with git-lfs.",
    ),
    "an HTML page": (
        "A download that the server answers with a page (an error, a login, a notice) leaves such a file.",
        "Read the page, then download the file again.",
    ),
    "empty": (
        "What should write it was stopped, the disk was full, or another process has only begun to write it.",
        "Make or download the file again, and look for others like it.",
    ),
}


def with_read_file(problem: Problem, facts: Mapping[str, Any]) -> Problem:
    """Return the problem with the file that the failed line read."""
    one = exception_of(problem, facts)
    file = next((line.read for line in one.recorded if line.read), None) if one is not None else None
    if one is None or file is None:
        return problem
    form = file.form if file.size_bytes else "empty"
    refused = file.fault or file.line is None  # else the line was read, and what was done with it failed
    if form in _NO_DATA and refused and short_name(one.type) != "UnicodeDecodeError":
        return _no_data(problem, one, file, form)
    if file.line is None and (counted := _COUNTED.search(one.message)):
        file = replace(file, line=int(counted["line"]))
    return _at_line(problem, one, file) if file.line is not None else _of_file(problem, file)


def _no_data(problem: Problem, one: UncaughtException, file: ReadFile, form: str) -> Problem:
    why, text = _NO_DATA[form]
    look = {
        "a Git LFS pointer": shell("git lfs install; git lfs pull --include {:path}", file.path),
        "an HTML page": shell("head -c 600 {:path}", file.path),
        "empty": shell("ls -l {:path}; df -h {:folder}", file.path, file.path),
    }
    message = one.message.partition(". ")[0][:200].rstrip(".")
    raised = f"{short_name(one.type)}: {message}" if message else short_name(one.type)
    size = "" if form == "empty" else f" of {file.size_bytes:,} bytes"
    return replace(
        problem,
        title=f"{_path(file)} is {form}{size} ({one.place or 'the script'})",
        cause=f"{why} {raised}.",
        fix=(Fix(text, (look[form],)),),
    )


def _at_line(problem: Problem, one: UncaughtException, file: ReadFile) -> Problem:
    short, where = short_name(one.type), f"line {file.line} of {_path(file)}"
    title, cause, others = f"{problem.title}: {where}", problem.cause, _filled(problem, file)
    if short == "ParserError" and not file.fault:  # its message has the line
        title = f"{problem.title}: {_path(file)}"
    elif not file.fault:
        cause = f"The last line that was read is {where}. {cause}"
    elif (position := _IN_ONE_LINE.search(one.message)) and short == "JSONDecodeError":
        title, cause, others = _of_json(problem, one, file, int(position["before"])) or (title, cause, others)
    elif short == "UnicodeDecodeError" and (found := _BYTE.search(one.message)):
        title = f"{where} is not {found['codec']} text" + (f": byte {found['byte']}" if found["byte"] else "")
    elif short in _OF_YAML:
        title = f"{where} is not valid YAML: {one.message}"
        cause = (
            "The mistake is there or just before it: other indentation than its neighbors, a tab, a missing space "
            "after a colon, a colon or a % in a text without quotes, or a tag that this loader does not accept."
        )
        others = (Fix("Look for tabs.", (shell(r"grep -nP '\t' {:path}", file.path),)),)
    look = Fix(
        f"Look at line {file.line} of the file.", (shell("sed -n {:number}p {:path} | cat -v", file.line, file.path),)
    )
    return replace(problem, title=title, cause=cause, fix=(look, *others))


def _of_json(
    problem: Problem, one: UncaughtException, file: ReadFile, before: int
) -> tuple[str, str, tuple[Fix, ...]] | None:
    """Return title, cause and fixes of a file that is JSON, or JSON Lines; None if its problem knows more.

    `before`: characters before the place where the reader stopped, in the file or in the line.
    """
    where, every = f"line {file.line} of {_path(file)}", _check(file, by_line=True)
    if file.fault == "blank":
        return (
            f"{where} is empty, and is read as JSON",
            "Each line of the file is read as one JSON value, and an empty line is none.",
            (Fix("Skip empty lines.", ("if line.strip():  # before json.loads(line)",)), every),
        )
    if file.fault == "invalid_row":
        said = _IN_ONE_LINE.sub("", one.message).removesuffix(" at")
        return (
            f"{where} is not JSON: {said} at column {before + 1}",
            "Each line of the file is read as one JSON value. Usual reasons: the line was cut off when its writer "
            "stopped, several processes wrote at the same time, or a text has a line break in it.",
            (every,),
        )
    if not problem.title.startswith(_ANY_JSON):
        return None
    at_end = before >= file.size_bytes - 1
    cause = "The file ends there: it was cut off." if at_end else "The mistake is there or just before it."
    return f"{_path(file)} is not JSON: {one.message}", cause, (_check(file),)


def _check(file: ReadFile, *, by_line: bool = False) -> Fix:
    if by_line:
        return Fix("Check all lines.", (shell("python -m json.tool --json-lines {:path} > /dev/null", file.path),))
    return Fix("Check the whole file.", (shell("python -m json.tool {:path} > /dev/null", file.path),))


def _of_file(problem: Problem, file: ReadFile) -> Problem:
    """Return the problem of a file whose line is not known: it is binary, or the reader does not count lines."""
    path = _path(file)
    form = f", by its first bytes {file.form}" if file.form else ""
    title = _named(problem.title.replace(_UNNAMED, f": {path}"), file.path, path)
    title = title if path in title else f"{title}: {path}"
    fixes = _filled(problem, file)
    look = Fix(
        "Check this file, and copy or make it again.", (shell("ls -l {path:path}; file {path:path}", path=file.path),)
    )
    looks = (look,) if not any("ls -l" in one and file.path in one for fix in fixes for one in fix.commands) else ()
    cause = f"The file is {path} ({file.size_bytes:,} bytes{form}). {problem.cause}"
    return replace(problem, title=title, cause=cause, fix=(*looks, *fixes))


def _path(file: ReadFile) -> str:
    return file.path if len(file.path) <= _LONGEST_PATH else f"...{file.path[-_LONGEST_PATH:]}"


def _named(text: str, path: str, shown: str) -> str:
    """Return a text with the path of the file in place of its name alone, as the code has it."""
    name = path.rpartition("/")[2]
    return re.sub(rf"(?<![\w./'\"-]){re.escape(name)}(?![\w./'\"-])", lambda _: shown, text) if name != path else text


def _filled(problem: Problem, file: ReadFile) -> tuple[Fix, ...]:
    """Return the fixes with the file's path in place of FILE, or of its name alone."""
    return tuple(replace(fix, commands=tuple(_fill(one, file.path) for one in fix.commands)) for fix in problem.fixes)


def _fill(command: str, path: str) -> str:
    quoted = "'" in command or '"' in command
    if not quoted and (word := shell("{:path}", path)) and (named := _named(command, path, word)) != command:
        return Command(named)
    if quoted or not _PLACEHOLDER.search(command):
        return command
    template = command.replace("{", "{{").replace("}", "}}")
    return shell(_PLACEHOLDER.sub("{path:path}", template), path=path) or command
