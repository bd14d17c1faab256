"""How is a config mended without losing anything that somebody wrote into it?

Every edit replaces, adds or takes away only the characters it is about: PyYAML's parser, the one accelerate reads with,
says where keys and values begin and end, in YAML of any style and in JSON. So comments, order, quotes, indentation,
blank lines and line ends stay as they were. Afterwards the text is read again: anything that differs beyond the edit,
or a comment that is gone, means that the text is left alone.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mgpu.check import Edit
from mgpu.config.text_edits import CannotMend, Document, comments
from mgpu.structured_text import Malformed, json_of, yaml_of

__all__ = ["CannotMend", "apply", "comments", "diff"]
_BOM = "\ufeff"


def apply(text: str, edits: Sequence[Edit], *, json_only: bool = False) -> str:
    """The text with the edits made, everything else as it was. Raises CannotMend; then nothing of it is made."""
    bom, text = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    lines = sorted((edit for edit in edits if edit.kind == "drop_line"), key=lambda e: e.line or 0, reverse=True)
    for edit in [*lines, *(edit for edit in edits if edit.kind != "drop_line")]:
        text = _make(text, edit, json_only)
    return bom + text


def diff(old: str, new: str, name: str) -> list[str]:
    """The unified diff, a line each."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="", n=1))


# ---- one edit


def _make(text: str, edit: Edit, json_only: bool) -> str:
    """One edit, and the proof that it did nothing else."""
    before = _values(text, json_only)
    document = Document(text, json_only)
    if edit.kind == "drop_line":
        new, expected = document.without_line(edit.line or 0), before
    else:
        path = tuple(edit.key.split("."))
        expected = _expected(before, path, edit)
        if edit.kind == "set":
            new = document.with_value(path, edit.value)
        elif edit.kind == "delete":
            new = document.without(path)
        else:
            new = document.renamed(path, tuple(edit.to.split(".")))
    if _canonical(_values(new, json_only)) != _canonical(expected):
        raise CannotMend("the file would say something else besides")
    lost = Counter(comments(text)) - Counter(comments(new)) - Counter(document.removed_comments)
    if lost:
        raise CannotMend("a comment would be lost")
    return new


def _values(text: str, json_only: bool) -> Any:
    try:
        return json_of(text) if json_only else yaml_of(text)
    except Malformed:
        raise CannotMend("the file cannot be read") from None


def _canonical(data: Any) -> str:
    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return [[repr(key), plain(value)] for key, value in sorted(part.items(), key=lambda one: repr(one[0]))]
        return [plain(one) for one in part] if isinstance(part, list) else [type(part).__name__, repr(part)]

    return json.dumps(plain(data))


def _expected(data: Any, path: tuple[str, ...], edit: Edit) -> Any:
    """What the file has to say after the edit."""
    data = copy.deepcopy(data) if data is not None else {}
    if not isinstance(data, dict):
        raise CannotMend("the file is no mapping of keys")
    if edit.kind == "set":
        _put(data, path, edit.value)
        return data
    holder, name = _holder(data, path)
    value = holder.pop(name)
    if edit.kind == "rename":
        _put(data, tuple(edit.to.split(".")), value, fresh=True)
    return data


def _holder(data: dict[Any, Any], path: tuple[str, ...]) -> tuple[dict[Any, Any], Any]:
    """The mapping that holds the key of this path, and the key as YAML read it."""
    for place, word in enumerate(path):
        names = [key for key in data if _said(key, word)]
        if not names:
            break
        if place == len(path) - 1:
            return data, names[-1]
        if not isinstance(data[names[-1]], dict):
            break
        data = data[names[-1]]
    raise CannotMend(f"there is no {'.'.join(path)}")


def _said(key: Any, word: str) -> bool:
    """Whether YAML reads this word as that key (`no` is False)."""
    if isinstance(key, str):
        return key == word
    try:
        return bool(yaml_of(word) == key)
    except Malformed:
        return False


def _put(data: dict[Any, Any], path: tuple[str, ...], value: Any, *, fresh: bool = False) -> None:
    for word in path[:-1]:
        if data.get(word) is None:
            data[word] = {}
        data = data[word]
        if not isinstance(data, dict):
            raise CannotMend(f"{word} is no section")
    if fresh and path[-1] in data:
        raise CannotMend(f"{'.'.join(path)} is there already")
    data[path[-1]] = value
