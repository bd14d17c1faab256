"""Where is a key in a text, and which edit of the text changes only this key?

Uses PyYAML's node tree, which has start and end of every key and value, in YAML of any style and in JSON.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from mgpu.structured_text import Malformed, composed, yaml_loader, yaml_of


class CannotFix(Exception):
    """The text cannot be edited safely. The message is a clause with the reason."""


def comments(text: str) -> list[str]:
    """Return all comments of a YAML text, in order."""
    try:
        spans = [(t.start_mark.index, t.end_mark.index) for t in yaml.scan(text) if isinstance(t, yaml.ScalarToken)]
    except yaml.YAMLError:
        return []
    starts = [start for start, _ in spans]
    found: dict[int, str] = {}  # keyed by the end of its line, where a comment ends
    for mark in re.finditer(r"^#|(?<=[\s\ufeff])#", text, re.MULTILINE):
        before = bisect.bisect_right(starts, mark.start()) - 1
        if before < 0 or mark.start() >= spans[before][1]:
            comment = text[mark.start() :].split("\n", 1)[0]
            found.setdefault(mark.start() + len(comment), comment.rstrip())
    return list(found.values())


class Document:
    """A text, its node tree, and the edits that the tree makes possible."""

    def __init__(self, text: str, json_only: bool) -> None:
        self.text = text
        self.json = json_only
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.removed_comments: list[str] = []
        try:
            # JSON can be indented with tabs, YAML cannot. JSON strings never contain a tab.
            self.root = composed(yaml_loader(text.replace("\t", " ") if json_only else text))
        except (yaml.YAMLError, Malformed, RecursionError):
            raise CannotFix("the file cannot be read") from None

    # Looking

    def find(self, path: tuple[str, ...]) -> tuple[Any, Any, Any] | None:
        """Return the nodes of mapping, key and value; of duplicate keys, the one that counts."""
        holder, found = self.root, None
        for word in path:
            found = _entry(holder, word)
            if found is None:
                return None
            parent, holder = holder, found[1]
        return (parent, *found) if found else None

    def end(self, node: Any, after: int) -> int:
        """Return the end of a node, without comments and blank lines after it."""
        if node.start_mark.index < after:
            raise CannotFix("it is a YAML alias")
        if isinstance(node, yaml.ScalarNode):
            end = int(node.end_mark.index)
            return len(self.text[:end].rstrip()) if node.style in ("|", ">") else end
        if node.flow_style:
            return int(node.end_mark.index)
        return max(self.end(part, node.start_mark.index) for part in _parts(node))

    def line_start(self, index: int) -> int:
        """Return the index of the line's first character."""
        return self.text.rfind("\n", 0, index) + 1

    def line_end(self, index: int) -> int:
        r"""Return the index of the line's end; for "\r\n", of the "\r"."""
        found = re.compile(r"\r?\n|\Z").search(self.text, index)
        return found.start() if found else len(self.text)

    # Changing

    def set_value(self, path: tuple[str, ...], value: Any, raw: str = "", comment: str = "") -> str:
        """Return the text with a value replaced, or with the key added if it is missing."""
        found = self.find(path)
        if found is None:
            return self._add(path, value, raw, comment)
        holder, key, node = found
        start, end = node.start_mark.index, self.end(node, key.end_mark.index)
        if isinstance(value, Mapping) and value and not holder.flow_style:
            return self._section(key, start, end, value)
        flow = bool(holder.flow_style)
        if isinstance(node, yaml.ScalarNode) and start < end and node.style not in ("|", ">"):
            quote = self.text[start] if self.text[start] in "'\"" else ""
            return self._replace(start, end, self._render(value, flow, quote), end)
        if start == end or not getattr(node, "flow_style", False):  # empty, or a block on the next lines
            start = self.text.index(":", key.end_mark.index) + 1
            return f"{self.text[:start]} {self._render(value, flow)}{self.text[end:]}"
        return self._replace(start, end, self._render(value, flow), end)

    def delete(self, path: tuple[str, ...]) -> str:
        """Return the text without a key, its value and the comment on its line."""
        found = self.find(path)
        if found is None:
            raise CannotFix(f"{'.'.join(path)} does not exist")
        return self._remove(*found, parent=self.find(path[:-1]) if path[1:] else None)

    def delete_line(self, line: int) -> str:
        """Return the text without the key that begins on this line."""
        for holder, parent in _mappings(self.root, None):
            for key, value in holder.value:
                if key.start_mark.line + 1 == line:
                    return self._remove(holder, key, value, parent)
        raise CannotFix(f"no key begins on line {line}")

    def rename(self, path: tuple[str, ...], to: tuple[str, ...]) -> str:
        """Return the text with a key renamed, in place if it stays in the same section."""
        found = self.find(path)
        if found is None:
            raise CannotFix(f"{'.'.join(path)} does not exist")
        if self.find(to) is not None:
            raise CannotFix(f"{'.'.join(to)} already exists")
        _, key, node = found
        start, end = node.start_mark.index, self.end(node, key.end_mark.index)
        if path[:-1] == to[:-1]:
            quote = self.text[key.start_mark.index] if key.style else ""
            name = self._render(to[-1], True, quote) if quote or self.json else to[-1]
            at = end if "\n" not in self.text[key.start_mark.index : end] else None
            return self._replace(key.start_mark.index, key.end_mark.index, name, at)
        raw = self.text[start:end]
        if not (isinstance(node, yaml.ScalarNode) or node.flow_style) or "\n" in raw:
            raise CannotFix("a value of several lines must be moved manually")
        behind = re.compile(r"[ \t]+#[^\r\n]*").match(self.text, end)
        self.text, removed = self.delete(path), self.removed_comments
        moved = Document(self.text, self.json)
        self.removed_comments = [] if behind else removed
        return moved.set_value(to, None, raw, behind.group() if behind else "")

    # The ways of changing

    def _replace(self, start: int, end: int, new: str, comment_at: int | None) -> str:
        """Replace text; keep a comment after it in its column if there is room."""
        tail = self.text[end:]
        blanks = re.compile(r"( +)#").match(self.text, comment_at) if comment_at is not None else None
        if blanks and comment_at is not None:
            number = len(blanks.group(1))
            room = number if number < 3 else max(2, number - (len(new) - (end - start)))
            tail = self.text[end:comment_at] + " " * room + self.text[comment_at + number :]
        return self.text[:start] + new + tail

    def _section(self, key: Any, start: int, end: int, value: Mapping[str, Any]) -> str:
        """Replace a value with a block of keys."""
        indent = " " * (key.start_mark.column + self._step())
        block = "".join(f"{self.newline}{line}" for line in self._lines(value, indent))
        colon = self.text.index(":", key.end_mark.index) + 1
        if "\n" in self.text[colon:end]:
            return self.text[:colon] + block + self.text[end:]
        stop = self.line_end(end)
        return self.text[:colon] + self.text[max(end, colon) : stop].rstrip() + block + self.text[stop:]

    def _add(self, path: tuple[str, ...], value: Any, raw: str, comment: str) -> str:
        """Add a missing key at the end of its section, which is created if it is missing."""
        depth = len(path) - 1
        while depth and self.find(path[:depth]) is None:
            depth -= 1
        found = self.find(path[:depth]) if depth else None
        holder = found[2] if found else self.root
        name, rest = path[depth], path[depth + 1 :]
        if raw and (rest or (found and not isinstance(holder, yaml.MappingNode)) or not holder):
            value, raw = _plain(raw), ""  # the section is new, so the value is rendered again
        for word in reversed(rest):
            value = {word: value}
        if holder is None:
            gap = "" if not self.text or self.text.endswith("\n") else self.newline
            return self.text + gap + self.newline.join(self._lines({name: value}, "")) + self.newline
        if not isinstance(holder, yaml.MappingNode):
            if not found or holder.tag != "tag:yaml.org,2002:null":
                raise CannotFix(f"{path[depth - 1] if depth else 'the file'} is not a section")
            return self.set_value(path[:depth], {name: value})
        if holder.flow_style:
            return self._add_in_flow(holder, name, raw or self._render(value, True))
        last = max(self.end(v, k.end_mark.index) for k, v in holder.value)
        indent = " " * holder.value[0][0].start_mark.column
        lines = [f"{indent}{name}: {raw}"] if raw else self._lines({name: value}, indent)
        lines[-1] += comment
        stop = self.line_end(last)
        return self.text[:stop] + "".join(f"{self.newline}{line}" for line in lines) + self.text[stop:]

    def _add_in_flow(self, holder: Any, name: str, text: str) -> str:
        new = f"{self._render(name, True)}: {text}"
        if not holder.value:
            start = holder.start_mark.index + 1
            return self.text[:start] + new + self.text[holder.end_mark.index - 1 :]
        key, value = holder.value[-1]
        end = self.end(value, key.end_mark.index)
        start = self.line_start(key.start_mark.index)
        before = self.text[start : key.start_mark.index]
        gap = f"{self.newline}{before}" if not before.strip() else " "
        return f"{self.text[:end]},{gap}{new}{self.text[end:]}"

    def _remove(self, holder: Any, key: Any, node: Any, parent: Any) -> str:
        """Remove an entry from its mapping."""
        start, end = key.start_mark.index, self.end(node, key.end_mark.index)
        if holder.flow_style:
            place = next(n for n, (other, _) in enumerate(holder.value) if other is key)
            if place + 1 < len(holder.value):
                end = holder.value[place + 1][0].start_mark.index
            elif place:
                before, value = holder.value[place - 1]
                start = self.end(value, before.end_mark.index)
            return self._cut(start, end)
        start = self.line_start(start)
        if self.text[start : key.start_mark.index].strip():
            raise CannotFix("the key is not at the start of its line")
        stop = self.line_end(end)
        behind = re.compile(r"\r?\n").match(self.text, stop)
        stop = behind.end() if behind else stop
        if len(holder.value) > 1:
            return self._cut(start, stop)
        if parent is None:
            raise CannotFix("the file would be empty")
        colon = self.text.index(":", parent[1].end_mark.index) + 1
        rest = self._cut(start, stop)
        return f"{rest[:colon]} {{}}{rest[colon:]}"

    def _cut(self, start: int, end: int) -> str:
        """Remove a part of the text, including its comments."""
        self.removed_comments = [] if self.json else comments(self.text[start:end])
        return self.text[:start] + self.text[end:]

    # Writing

    def _step(self) -> int:
        """Return the indentation of sections in this file."""
        for key, value in getattr(self.root, "value", None) or ():
            if isinstance(value, yaml.MappingNode) and not value.flow_style:
                return max(1, int(value.value[0][0].start_mark.column) - int(key.start_mark.column))
        return 2

    def _lines(self, values: Mapping[str, Any], indent: str) -> list[str]:
        """Return the lines of some keys in block style."""
        lines = []
        for key, value in values.items():
            if isinstance(value, Mapping) and value:
                lines += [f"{indent}{key}:", *self._lines(value, indent + " " * self._step())]
            else:
                lines.append(f"{indent}{key}: {self._render(value, False)}")
        return lines

    def _render(self, value: Any, flow: bool, quote: str = "") -> str:
        """Return a value as YAML (or JSON) that parses back to itself."""
        if self.json:
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k}: {self._render(v, True)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(self._render(one, True) for one in value) + "]"
        if isinstance(value, float):
            return str(yaml.safe_dump(value)).split("\n")[0]  # YAML 1.1 parses 1e-05 as text
        if not isinstance(value, str):
            return json.dumps(value)
        if not quote and re.fullmatch(r"[A-Za-z_/][A-Za-z0-9_./-]*", value) and _plain(value) == value:
            return value
        if quote == '"' or not value.isprintable():
            return json.dumps(value, ensure_ascii=not value.isprintable())
        return "'" + value.replace("'", "''") + "'"


def _entry(holder: Any, word: str) -> tuple[Any, Any] | None:
    if not isinstance(holder, yaml.MappingNode):
        return None
    entries = [(key, value) for key, value in holder.value if isinstance(key, yaml.ScalarNode) and key.value == word]
    return entries[-1] if entries else None


def _parts(node: Any) -> list[Any]:
    """Return the nodes in a collection: the value of each pair, or each item."""
    if isinstance(node, yaml.MappingNode):
        return [value if value.start_mark.index >= key.start_mark.index else _alias() for key, value in node.value]
    return list(node.value)


def _alias() -> Any:
    raise CannotFix("it is a YAML alias")


def _mappings(node: Any, parent: Any) -> list[tuple[Any, Any]]:
    """Return every mapping of the tree, with the (mapping, key, value) that contains it."""
    if not isinstance(node, yaml.MappingNode):
        return []
    found = [(node, parent)]
    for key, value in node.value:
        if value.start_mark.index >= key.start_mark.index:  # not an alias, which would lead back
            found += _mappings(value, (node, key, value))
    return found


def _plain(raw: str) -> Any:
    return yaml_of(raw)
