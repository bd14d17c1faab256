"""How is a config fixed without losing anything that the user wrote?

Every edit replaces, adds or removes only its own characters: PyYAML's parser, which accelerate also uses, returns where
keys and values begin and end, in YAML of any style and in JSON. So comments, order, quotes, indentation, blank lines
and line endings are preserved. The new text is then parsed again: if anything else differs, or a comment is missing,
the edit is discarded.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mgpu.check import Edit
from mgpu.config.text_edits import CannotFix, Document, comments
from mgpu.structured_text import Malformed, json_of, yaml_of

__all__ = ["CannotFix", "apply", "comments", "diff"]
_BOM = "\ufeff"


def apply(text: str, edits: Sequence[Edit], *, json_only: bool = False) -> str:
    """Return the text with all edits applied and nothing else changed. Raises CannotMend if one cannot be applied."""
    bom, text = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    lines = sorted((edit for edit in edits if edit.kind == "drop_line"), key=lambda e: e.line or 0, reverse=True)
    for edit in [*lines, *(edit for edit in edits if edit.kind != "drop_line")]:
        text = _apply_edit(text, edit, json_only)
    return bom + text


def diff(old: str, new: str, name: str) -> list[str]:
    """Return the unified diff, as lines."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="", n=1))


# ---- one edit


def _apply_edit(text: str, edit: Edit, json_only: bool) -> str:
    """Apply one edit, and verify that nothing else changed."""
    before = _values(text, json_only)
    document = Document(text, json_only)
    if edit.kind == "drop_line":
        new, expected = document.delete_line(edit.line or 0), before
    else:
        path = tuple(edit.key.split("."))
        expected = _edited_data(before, path, edit)
        if edit.kind == "set":
            new = document.set_value(path, edit.value)
        elif edit.kind == "delete":
            new = document.delete(path)
        else:
            new = document.rename(path, tuple(edit.to.split(".")))
    if _canonical(_values(new, json_only)) != _canonical(expected):
        raise CannotFix("other values in the file would change")
    lost = Counter(comments(text)) - Counter(comments(new)) - Counter(document.removed_comments)
    if lost:
        raise CannotFix("a comment would be lost")
    return new


def _values(text: str, json_only: bool) -> Any:
    try:
        return json_of(text) if json_only else yaml_of(text)
    except Malformed:
        raise CannotFix("the file cannot be read") from None


def _canonical(data: Any) -> str:
    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return [[repr(key), plain(value)] for key, value in sorted(part.items(), key=lambda one: repr(one[0]))]
        return [plain(one) for one in part] if isinstance(part, list) else [type(part).__name__, repr(part)]

    return json.dumps(plain(data))


def _edited_data(data: Any, path: tuple[str, ...], edit: Edit) -> Any:
    """Return the values that the file must have after the edit."""
    data = copy.deepcopy(data) if data is not None else {}
    if not isinstance(data, dict):
        raise CannotFix("the file is not a mapping of keys")
    if edit.kind == "set":
        _put(data, path, edit.value)
        return data
    holder, name = _find_holder(data, path)
    value = holder.pop(name)
    if edit.kind == "rename":
        _put(data, tuple(edit.to.split(".")), value, fresh=True)
    return data


def _find_holder(data: dict[Any, Any], path: tuple[str, ...]) -> tuple[dict[Any, Any], Any]:
    """Return the mapping that contains the key of this path, and the key as YAML parsed it."""
    for place, word in enumerate(path):
        names = [key for key in data if _is_key(key, word)]
        if not names:
            break
        if place == len(path) - 1:
            return data, names[-1]
        if not isinstance(data[names[-1]], dict):
            break
        data = data[names[-1]]
    raise CannotFix(f"{'.'.join(path)} does not exist")


def _is_key(key: Any, word: str) -> bool:
    """Whether YAML parses this word as that key (`no` is False)."""
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
            raise CannotFix(f"{word} is not a section")
    if fresh and path[-1] in data:
        raise CannotFix(f"{'.'.join(path)} already exists")
    data[path[-1]] = value
