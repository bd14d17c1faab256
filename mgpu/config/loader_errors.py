"""Why is a text not valid YAML or JSON, in plain words, and where is the error?

PyYAML reports where parsing stopped, often a line after the error, and in terms of the YAML grammar. This module
detects the usual errors; for all others it returns PyYAML's message.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mgpu.errors import reason
from mgpu.snapshot import Mark

# Message, position, and kind of fault, from which checks/config/text.py selects the fix.
Refusal = tuple[str, Mark, str]

_WRONG_INDENT = "not YAML: the indentation does not match the lines around it"
# A line of a terminal, copied together with the file that it printed: "$ cat a.yaml", "me@box:~$ cat a.yaml".
_OF_A_SHELL = re.compile(r"(?:[\w.-]+@[\w.-]+[^\s$#]*\s?[$#]\s+\w|[$>%]\s+\w)|(?:cat|vim?|nano|less)\s+[\w./~-]+\s*$")
_NO_COLON = "not YAML: a colon followed by a space is missing"


def not_json(text: str, error: BaseException) -> Refusal:
    """Explain invalid JSON: the usual errors in plain words, else Python's message."""
    if not isinstance(error, json.JSONDecodeError):
        words = "it is nested too deeply" if isinstance(error, RecursionError) else error
        return f"not JSON: {words}", Mark(1, 1), "json"
    before, there = text[: error.pos].rstrip(), text[error.pos :]
    comma = len(before) - 1 if there[:1] in ("}", "]") and before.endswith(",") else -1
    if there[:1] == "," and there[1:].lstrip()[:1] in ("}", "]"):
        comma = error.pos  # Python 3.13 points at the comma itself
    if comma >= 0:
        mark = Mark(text.count("\n", 0, comma) + 1, comma - text.rfind("\n", 0, comma))
        return "not JSON: trailing comma before the closing bracket", mark, "comma"
    if not text.lstrip():
        return "the file is empty", Mark(1, 1), "empty"
    if text.lstrip()[0] not in "{[/#" and re.search(r"^[A-Za-z_]+:(\s|$)", text, re.MULTILINE):
        return "not JSON: the file contains YAML, but accelerate reads .json files as JSON", Mark(1, 1), "suffix"
    mark = Mark(error.lineno, error.colno)
    if there.startswith(("//", "/*", "#")):
        return "not JSON: comments are not allowed in JSON", mark, "comment"
    if there.startswith("'"):
        return "not JSON: strings need double quotes, not single quotes", mark, "json"
    if word := re.match(r"(True|False|None)\b", there):
        literal = {"True": "true", "False": "false", "None": "null"}[word[1]]
        return f"not JSON: {word[1]} is Python. Use {literal}", mark, "json"
    return f"not JSON: {error.msg}", mark, "json"


def not_yaml(text: str, error: Exception) -> Refusal:
    """Explain invalid YAML: the usual errors in plain words, else PyYAML's message."""
    import yaml

    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)  # as PyYAML counts them
    for number, line in enumerate(lines, 1):
        if re.match(r"<{7}(\s|$)", line):
            return f"unresolved merge conflict ({line.strip()[:40]})", Mark(number, 1), "conflict"
    if isinstance(error, yaml.reader.ReaderError):
        at = error.position
        mark = Mark(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        code = error.character if isinstance(error.character, int) else ord(error.character)
        return f"not YAML: the character U+{code:04X} is not allowed", mark, "character"
    for number, line in enumerate(lines, 1):
        if found := re.match(r"[^#'\"]*?(\{\{|\{%)", line):
            shown = "{{ }}" if found[1] == "{{" else "{% %}"
            return (
                f"an unrendered template: {shown} was not replaced",
                Mark(number, found.start(1) + 1),
                "template",
            )
    if pasted := next((n for n, line in enumerate(lines, 1) if _OF_A_SHELL.match(line)), 0):
        return "not YAML: a shell command pasted with the file", Mark(pasted, 1), "command"
    context, problem = getattr(error, "context", None), getattr(error, "problem", None) or reason(error)
    mark = _mark(getattr(error, "problem_mark", None) or getattr(error, "context_mark", None))
    begun = _mark(getattr(error, "context_mark", None) or getattr(error, "problem_mark", None))
    if "found another document" in problem:
        return "a second document begins here (---), but accelerate accepts only one", mark, "documents"
    if "could not determine a constructor" in problem:
        return f"not YAML for accelerate: {problem.partition('for the ')[2]} is not allowed", mark, "tag"
    if plain := _character(problem, mark, lines) or _layout(context, problem, mark, begun, lines):
        return plain
    words = f"not YAML: {f'{context}: ' if context else ''}{problem}"
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
    return words, mark if mark.line <= last else Mark(last, 1), "yaml"  # the end of the text is not a useful position


def _mark(at: Any) -> Mark:
    return Mark(at.line + 1, at.column + 1) if at else Mark(1, 1)


def _character(problem: str, mark: Mark, lines: list[str]) -> Refusal | None:
    """Explain a character that is not allowed at its position."""
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    if "'\\t' that cannot start" in problem:
        if line[: mark.column - 1].strip():
            return "not YAML: a tab after the colon instead of a space", mark, "tab_inside"
        return "not YAML: a tab. YAML must be indented with spaces", mark, "tab"
    if line.lstrip().startswith("```"):
        return "not YAML: a Markdown code fence (```)", Mark(mark.line, 1), "fence"
    if found := re.search(r"character '(.)' that cannot start", problem):
        return f"not YAML: a value that starts with {found[1]} needs quotes", mark, "quotes"
    if "undefined alias" in problem:
        return "not YAML: a value that starts with * needs quotes", mark, "quotes"
    if "expected escape sequence" in problem or "unknown escape character" in problem:
        return "not YAML: invalid backslash escape in double quotes", mark, "backslash"
    return None


def _layout(context: str | None, problem: str, mark: Mark, begun: Mark, lines: list[str]) -> Refusal | None:
    """Explain a missing colon, space, bracket or quote, or wrong indentation."""
    if "could not find expected ':'" in problem:
        foreign = "\uff1a" in lines[begun.line - 1]
        return f"{_NO_COLON}{' (this one is U+FF1A)' if foreign else ''}", begun, "colon"
    if "found unexpected end of stream" in problem and context and "quoted scalar" in context:
        return "not YAML: the quote opened here is never closed", begun, "quote"
    if problem.startswith("expected ',' or") and mark.line > begun.line:
        return "not YAML: the bracket that opens here is never closed", begun, "bracket"
    if "found '<stream end>'" in problem and (open_ := _left_open(lines)):
        return "not YAML: the bracket that opens here is never closed", open_, "bracket"
    if "but found '<block mapping start>'" in problem:
        return _WRONG_INDENT, mark, "indent"
    if "mapping values are not allowed" not in problem:
        return None
    line = lines[mark.line - 1]
    if re.search(r"[^\s:]:\s", line[: mark.column - 1]):
        return "not YAML: a second colon in the line. Values with a colon need quotes", mark, "quotes"
    above = next((n for n in range(mark.line - 1, 0, -1) if lines[n - 1].split("#")[0].strip()), None)
    if above is None:
        return None
    if re.search(r":(\s|$)", lines[above - 1].split("#")[0]):
        return _WRONG_INDENT, Mark(mark.line, len(line) - len(line.lstrip()) + 1), "indent"
    return _NO_COLON, Mark(above, len(lines[above - 1]) - len(lines[above - 1].lstrip()) + 1), "colon"


def _left_open(lines: list[str]) -> Mark | None:
    """Return the last unclosed bracket, ignoring quotes and comments."""
    begun: list[Mark] = []
    for number, line in enumerate(lines, 1):
        plain = re.sub(r"'[^']*'|\"[^\"]*\"|(^|\s)#.*", lambda found: " " * len(found[0]), line)
        for found in re.finditer(r"[\[\]{}]", plain):
            if found[0] in "[{":
                begun.append(Mark(number, found.start() + 1))
            elif begun:
                begun.pop()
    return begun[-1] if begun else None
