"""Why is a text no YAML or no JSON, in plain words, and where is the culprit?

PyYAML names the place where it could not go on, often a line after the one that is wrong, and in the words of the YAML
grammar. The usual reasons are told apart here; its own words are kept for the rest.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mgpu.errors import reason
from mgpu.snapshot import Mark

# Message, place, and the kind of fault, by which checks/config/text.py knows the repair.
Refusal = tuple[str, Mark, str]

_FURTHER = "not YAML: the line is indented otherwise than those it belongs to"
_NO_COLON = "not YAML: no colon with a blank after it"


def not_json(text: str, error: BaseException) -> Refusal:
    """Python's words for broken JSON, and the usual reasons."""
    if not isinstance(error, json.JSONDecodeError):
        words = "it is nested too deep" if isinstance(error, RecursionError) else error
        return f"not JSON: {words}", Mark(1, 1), "json"
    before, there = text[: error.pos].rstrip(), text[error.pos :]
    comma = len(before) - 1 if there[:1] in ("}", "]") and before.endswith(",") else -1
    if there[:1] == "," and there[1:].lstrip()[:1] in ("}", "]"):
        comma = error.pos  # Python 3.13 points at the comma itself
    if comma >= 0:
        mark = Mark(text.count("\n", 0, comma) + 1, comma - text.rfind("\n", 0, comma))
        return "not JSON: a comma before the closing bracket", mark, "comma"
    if not text.lstrip():
        return "the file is empty", Mark(1, 1), "empty"
    if text.lstrip()[0] not in "{[/#" and re.search(r"^[A-Za-z_]+:(\s|$)", text, re.MULTILINE):
        return "not JSON: the file holds YAML, and accelerate goes by its name", Mark(1, 1), "suffix"
    mark = Mark(error.lineno, error.colno)
    if there.startswith(("//", "/*", "#")):
        return "not JSON: a comment, and JSON has none", mark, "comment"
    if there.startswith("'"):
        return "not JSON: text stands in double quotes there, not in single ones", mark, "json"
    if word := re.match(r"(True|False|None)\b", there):
        said = {"True": "true", "False": "false", "None": "null"}[word[1]]
        return f"not JSON: {word[1]} is Python, JSON says {said}", mark, "json"
    return f"not JSON: {error.msg}", mark, "json"


def not_yaml(text: str, error: Exception) -> Refusal:
    """PyYAML's words for broken YAML, and the usual reasons in plain words."""
    import yaml

    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)  # as PyYAML counts them
    for number, line in enumerate(lines, 1):
        if re.match(r"<{7}(\s|$)", line):
            return f"a merge conflict is left in it ({line.strip()[:40]})", Mark(number, 1), "conflict"
    if isinstance(error, yaml.reader.ReaderError):
        at = error.position
        mark = Mark(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        code = error.character if isinstance(error.character, int) else ord(error.character)
        return f"not YAML: the character U+{code:04X} is not allowed", mark, "character"
    for number, line in enumerate(lines, 1):
        if found := re.match(r"[^#'\"]*?(\{\{|\{%)", line):
            shown = "{{ }}" if found[1] == "{{" else "{% %}"
            return (
                f"a template: nobody has filled in what stands in {shown}",
                Mark(number, found.start(1) + 1),
                "template",
            )
    context, problem = getattr(error, "context", None), getattr(error, "problem", None) or reason(error)
    mark = _mark(getattr(error, "problem_mark", None) or getattr(error, "context_mark", None))
    begun = _mark(getattr(error, "context_mark", None) or getattr(error, "problem_mark", None))
    if "found another document" in problem:
        return "a second document begins here (---); accelerate takes one", mark, "documents"
    if "could not determine a constructor" in problem:
        return f"not YAML for accelerate: {problem.partition('for the ')[2]} is not allowed", mark, "tag"
    if plain := _character(problem, mark, lines) or _layout(context, problem, mark, begun, lines):
        return plain
    words = f"not YAML: {f'{context}: ' if context else ''}{problem}"
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
    return words, mark if mark.line <= last else Mark(last, 1), "yaml"  # the end of a text is no place to look at


def _mark(at: Any) -> Mark:
    return Mark(at.line + 1, at.column + 1) if at else Mark(1, 1)


def _character(problem: str, mark: Mark, lines: list[str]) -> Refusal | None:
    """A character that may not stand where it does."""
    line = lines[mark.line - 1] if mark.line <= len(lines) else ""
    if "'\\t' that cannot start" in problem:
        if line[: mark.column - 1].strip():
            return "not YAML: a tab after the colon; a blank belongs there", mark, "tab_inside"
        return "not YAML: a tab; YAML is indented with blanks only", mark, "tab"
    if line.lstrip().startswith("```"):
        return "not YAML: a line of Markdown (```), from the text around the config", Mark(mark.line, 1), "fence"
    if found := re.search(r"character '(.)' that cannot start", problem):
        return f"not YAML: a value may begin with {found[1]} only in quotes", mark, "quotes"
    if "undefined alias" in problem:
        return "not YAML: a value may begin with * only in quotes", mark, "quotes"
    if "expected escape sequence" in problem or "unknown escape character" in problem:
        return "not YAML: in double quotes a backslash is no plain character", mark, "backslash"
    return None


def _layout(context: str | None, problem: str, mark: Mark, begun: Mark, lines: list[str]) -> Refusal | None:
    """A colon, a blank, a bracket or a quote that is missing, or indentation that does not fit."""
    if "could not find expected ':'" in problem:
        foreign = "\uff1a" in lines[begun.line - 1]
        return f"{_NO_COLON}{' (this one is U+FF1A)' if foreign else ''}", begun, "colon"
    if "found unexpected end of stream" in problem and context and "quoted scalar" in context:
        return "not YAML: the quote that begins here is never closed", begun, "quote"
    if problem.startswith("expected ',' or") and mark.line > begun.line:
        return "not YAML: the bracket that opens here is never closed", begun, "bracket"
    if "found '<stream end>'" in problem and (open_ := _left_open(lines)):
        return "not YAML: the bracket that opens here is never closed", open_, "bracket"
    if "but found '<block mapping start>'" in problem:
        return _FURTHER, mark, "indent"
    if "mapping values are not allowed" not in problem:
        return None
    line = lines[mark.line - 1]
    if re.search(r"[^\s:]:\s", line[: mark.column - 1]):
        return "not YAML: a second colon in the line; text that has one needs quotes", mark, "quotes"
    above = next((n for n in range(mark.line - 1, 0, -1) if lines[n - 1].split("#")[0].strip()), None)
    if above is None:
        return None
    if re.search(r":(\s|$)", lines[above - 1].split("#")[0]):
        return _FURTHER, Mark(mark.line, len(line) - len(line.lstrip()) + 1), "indent"
    return _NO_COLON, Mark(above, len(lines[above - 1]) - len(lines[above - 1].lstrip()) + 1), "colon"


def _left_open(lines: list[str]) -> Mark | None:
    """The last bracket without its other half; those in quotes and comments are none."""
    begun: list[Mark] = []
    for number, line in enumerate(lines, 1):
        plain = re.sub(r"'[^']*'|\"[^\"]*\"|(^|\s)#.*", lambda found: " " * len(found[0]), line)
        for found in re.finditer(r"[\[\]{}]", plain):
            if found[0] in "[{":
                begun.append(Mark(number, found.start() + 1))
            elif begun:
                begun.pop()
    return begun[-1] if begun else None
