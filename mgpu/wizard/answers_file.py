"""How are answers saved to a file, read from TOML, JSON or YAML, and updated without losing the user's additions?"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mgpu import errors, file_reading, files, messages
from mgpu.errors import MgpuError, clip, reason
from mgpu.structured_text import Malformed, json_of, toml_of, yaml_of
from mgpu.version import __version__
from mgpu.wizard import answers as keys
from mgpu.wizard import existing_file
from mgpu.wizard.answers import KEYS, SECTIONS, Answers, Origin
from mgpu.wizard.decision import Decision

DEFAULT_FILE: Final = "mgpu.answers.toml"
REPLAY: Final = "mgpu configure --yes"  # reads the default file of this folder
SCHEMA: Final = 1
NOTES: Final = "notes"  # the user's own table: ignored, and kept when saving
_HEAD: Final = ("schema", "mgpu")
_ALWAYS: Final = ("gpus", "precision", "strategy")  # saved even if not decided
MOST_BYTES: Final = 256 << 10  # mgpu writes about 2 KiB; tomllib takes about a second for this limit
_OF_THIS_MACHINE: Final = frozenset({"gpus", "threads", "workers", "numa", "port"})
_MOST_SHOWN = 200  # characters of a value in a message


def read(path: str) -> Answers:
    """Read the answers of a file; "-" is stdin. Raises MgpuError with the place, the value and what is allowed."""
    try:
        if path == "-":
            raw, name = file_reading.standard_input(most=MOST_BYTES), "stdin"
        else:
            raw, name = file_reading.read(path, most=MOST_BYTES), path
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise MgpuError(f"--answers {path}: {error.strerror or reason(error)}", errors.USAGE) from None
    except UnicodeDecodeError:
        raise MgpuError(f"--answers {path}: not UTF-8 text", errors.USAGE) from None
    return loads(text, name)


def with_default_file(answers: Answers, label: str) -> Answers:
    """Return the answers with those of the default file in this folder, and say so. Raises MgpuError.

    `label`: of another machine or engine, whose own file comes first. Without one, it gets what this folder's answers
    say about the model and the batch, but nothing about devices that it may not have, nodes and jobs.
    """
    name = next((one for one in (named(DEFAULT_FILE, label), DEFAULT_FILE) if Path(one).is_file()), "")
    if not name:
        return answers
    files.target_inside(Path(name))  # it is written too
    try:
        found = read(name)
        if label and name == DEFAULT_FILE:
            here = [one for one in found.origins if one in _OF_THIS_MACHINE or keys.BY_NAME[one].section == "machines"]
            found = keys.without(found, here)
        merged = keys.merge(answers, found)
        if wrong := keys.contradiction(merged):
            raise MgpuError(wrong, errors.USAGE)
    except MgpuError as error:
        hint = f"\n  {name} in this folder is read by default; --no-answers ignores it"
        raise MgpuError(f"{error.message}{hint}", error.exit_code) from None
    if merged.origins != answers.origins:
        messages.notice(f"with the answers in {name} (--no-answers ignores them)")
    return merged


def named(file: str, label: str) -> str:
    """Return the default name of a file for this machine, or for another one or an engine: accelerate.4xT4.yaml."""
    stem, dot, suffix = file.rpartition(".")
    return f"{stem}.{label}{dot}{suffix}" if label else file


def loads(text: str, name: str, origin: Origin = "answers") -> Answers:
    """Read the answers in a text; `name` decides the format, and is in messages. Raises MgpuError."""
    values: dict[str, Any] = {}
    for path, raw in _entries(_tree(text, name), text, name):
        where = f"{name}{_line(text, path)}"
        try:
            key = keys.key_named(".".join(path))
        except MgpuError as error:
            raise MgpuError(f"{where}: {clip(error.message, _MOST_SHOWN)}", errors.USAGE) from None
        shown = json.dumps(raw, ensure_ascii=False, default=str)
        given_as = f"{where}: {'.'.join(path)} = {clip(shown, _MOST_SHOWN)}"
        try:
            value = keys.parse(key.name, raw)
        except ValueError as error:
            raise MgpuError(f"{given_as}: {clip(str(error), 2 * _MOST_SHOWN)}", errors.USAGE) from None
        if key.name in values:
            raise MgpuError(f"{where}: {key.dotted} is set twice", errors.USAGE)
        values[key.name] = value
    if values.get("accum") is not None and values.get("effective_batch") is not None:
        raise MgpuError(
            f"{name}: batch.accum and batch.effective_batch cannot be used together: "
            "accumulation follows from the effective batch",
            errors.USAGE,
        )
    return Answers(**values, origins=dict.fromkeys(values, origin))


def _entries(tree: dict[str, Any], text: str, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) of all answers. A plain name may be outside its table."""
    if "schema" in tree and tree["schema"] != SCHEMA:
        given = clip(repr(tree["schema"]))
        raise MgpuError(
            f"{name}{_line(text, ('schema',))}: schema {given}: this mgpu ({__version__}) only reads {SCHEMA}",
            errors.USAGE,
        )
    for top, value in tree.items():
        if top in _HEAD or top == NOTES:
            continue
        if isinstance(value, dict):
            if top == "env":
                raise MgpuError(
                    f"{name}{_line(text, (top,))}: [env] is not supported by this version: remove it, and set the "
                    "variables when you start mgpu launch",
                    errors.USAGE,
                )
            if top not in SECTIONS:
                near = difflib.get_close_matches(top, SECTIONS, n=1, cutoff=0.5)
                hint = f"Did you mean [{near[0]}]?" if near else f"Choose {', '.join(f'[{s}]' for s in SECTIONS)}."
                raise MgpuError(f"{name}{_line(text, (top,))}: unknown table [{top}]. {hint}", errors.USAGE)
            yield from (((top, str(key)), inner) for key, inner in value.items())
        else:
            yield (str(top),), value


# -- formats --------------------------------------------------------------------------------------------------------


def _tree(text: str, name: str) -> dict[str, Any]:
    suffix = Path(name).suffix.lower()
    if suffix == ".json" or (suffix not in (".toml", ".yaml", ".yml") and text.lstrip().startswith("{")):
        tree = _json(text, name)
    elif suffix in (".yaml", ".yml"):
        tree = _yaml(text, name)
    else:
        tree = _toml(text, name, else_yaml=suffix != ".toml")
    if not isinstance(tree, dict):
        raise MgpuError(f"{name}: expected tables of keys, found {_kind(tree)}", errors.USAGE)
    return {str(key): value for key, value in tree.items()}


def _kind(tree: Any) -> str:
    return {list: "a list", str: "text", type(None): "an empty file", bool: "a boolean"}.get(type(tree), "a number")


def _toml(text: str, name: str, *, else_yaml: bool) -> Any:
    try:
        return toml_of(text)
    except Malformed as error:
        if else_yaml and re.search(r"^\s*\w+:", text, re.MULTILINE):
            return _yaml(text, name)
        raise _syntax_error(name, error, "TOML") from None


def _json(text: str, name: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise MgpuError(f"{name}: duplicate key {clip(repr(key))}", errors.USAGE)
            found[key] = value
        return found

    try:
        return json_of(text, pairs=once)
    except Malformed as error:
        raise _syntax_error(name, error, "JSON") from None


def _yaml(text: str, name: str) -> Any:
    import yaml

    def look(node: Any) -> None:
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(node, name)

    try:
        return yaml_of(text, _plain_times(yaml.SafeLoader), look)
    except Malformed as error:
        raise _syntax_error(name, error, "YAML") from None


def _syntax_error(name: str, error: Malformed, format: str) -> MgpuError:
    where = f":{error.line}:{error.column}" if error.line else ""
    return MgpuError(f"{name}{where}: {str(error).removeprefix('not JSON: ')} ({format})", errors.USAGE)


def _plain_times(safe: Any) -> Any:
    """Return the safe loader without YAML 1.1's base-60 numbers, which read 12:00:00 as 43200."""

    def whole(loader: Any, node: Any) -> Any:
        return node.value if ":" in node.value else loader.construct_yaml_int(node)

    loader = type("Loader", (safe,), {})
    loader.add_constructor("tag:yaml.org,2002:int", whole)  # type: ignore[attr-defined]
    return loader


def _refuse_twice(node: Any, name: str) -> None:
    seen: set[str] = set()
    for key, value in node.value:
        word = str(key.value)
        if word in seen:
            raise MgpuError(f"{name}:{key.start_mark.line + 1}: duplicate key {clip(repr(word))}", errors.USAGE)
        seen.add(word)
        if word in SECTIONS and value.id == "mapping":
            _refuse_twice(value, name)


def _line(text: str, path: tuple[str, ...]) -> str:
    """Return ":7" if a key is on line 7, matched by its looks in all three formats; "" if it is not found."""
    wanted = list(path)
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"""\s*\{?\s*(?:\[\s*)?["']?([\w.-]+)["']?\s*(\]|=|:)""", line)
        if found and wanted and found[1] == wanted[0]:
            wanted.pop(0)
        elif found and found[1] == ".".join(path):
            wanted = []
        if not wanted:
            return f":{number}"
    return ""


# -- writing --------------------------------------------------------------------------------------------------------


def dumps(answers: Answers, old: str = "", replay: str = REPLAY) -> str:
    """Return the decisions as TOML, without anything about the machine.

    Comments, order and unknown keys of the old text stay. `replay`: the command that reads this file again. Raises
    MgpuError if the old text is not TOML.
    """
    if not old.strip() or _ours(old):
        return _fresh(answers, replay)
    return _merge_answers(answers, old)


def _fresh(answers: Answers, replay: str) -> str:
    lines = [
        # A line break in a path would end the comment.
        f"# Answers for mgpu configure, safe to commit. Replay:  {replay if replay.isprintable() else REPLAY}",
        f"schema = {SCHEMA}",
        f'mgpu = "{__version__}"',
    ]
    for section in SECTIONS:
        keys_here = [k for k in KEYS if k.section == section and (k.name in answers.origins or k.name in _ALWAYS)]
        if keys_here:
            lines += ["", f"[{section}]", *(_entry(key, answers) for key in keys_here)]
    return "\n".join(lines) + "\n"


def _entry(key: Decision, answers: Answers) -> str:
    line = f"{key.key} = {_literal(key, answers[key.name])}"
    notes = []
    if key.name in ("params", "trainable") and answers.origins.get(key.name) == "probe":
        notes.append("read from the model")
    if key.name == "gpus" and answers.gpus is None:
        notes.append('"auto" detects them on replay; 2 means any two, [0, 1, 3] these')
    return f"{line:<22} # {notes[0]}" if notes else line


def _literal(key: Decision, value: Any) -> str:
    """Return a value in TOML, as people write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return json.dumps(list(value))
    text = keys.as_typed(key.name, value)
    plain = isinstance(value, int | float) and re.fullmatch(r"\d+|\d+\.\d+|\d+(\.\d+)?e-?\d+", text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _ours(text: str) -> bool:
    """Return whether a text is unchanged since mgpu wrote it, in this version or another."""
    try:
        again = _fresh(loads(text, DEFAULT_FILE), REPLAY)
    except MgpuError:
        return False

    def settled(lines: str) -> str:
        return re.sub(r'^mgpu = ".*"$|\s+# read from the model$|(?<= Replay:  ).*$', "", lines, flags=re.MULTILINE)

    return settled(again) == settled(text)


def _merge_answers(answers: Answers, old: str) -> str:
    """Return the old text with the new answers. What is not decided becomes "auto"; equal values stay as written."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        toml_of(old)
        document = tomlkit.parse(old)
    except (TOMLKitError, Malformed) as error:
        raise MgpuError(str(error), errors.USAGE) from None
    document["schema"] = SCHEMA
    document["mgpu"] = __version__
    for key in KEYS:
        value = answers[key.name]
        table: Any = document.get(key.section)
        home, name = (table, key.key) if isinstance(table, dict) and key.key in table else (document, key.name)
        if name in home and not isinstance(home[name], dict):
            try:
                same = keys.parse(key.name, home[name]) == value
            except ValueError:
                same = False
            if not same:
                home[name] = tomlkit.value(_literal(key, value))
        elif key.name in answers.origins or (key.name in _ALWAYS and isinstance(table, dict)):
            if not isinstance(table, dict):
                document[key.section] = table = tomlkit.table()
            table[key.key] = tomlkit.value(_literal(key, value))
    return tomlkit.dumps(document)


def save(path: Path, answers: Answers, replay: str = REPLAY) -> list[str]:
    """Write the answers file, with a backup of the one it replaces, and return the lines to show.

    `replay`: as for `dumps`. Raises MgpuError for a secret in an answer, because the file is meant to be committed.
    """
    if held := [key.flag for key in KEYS if keys.holds_secret(key.name, answers[key.name])]:
        raise MgpuError(
            f"--save-answers {path}: {', '.join(held)} contains a secret, and answers files are shared.\n"
            "Let the script read it from a file or from its environment",
            errors.USAGE,
        )
    if not path.exists():
        files.write(path, dumps(answers, replay=replay))
        return [f"Wrote {path}", f"  Replay:  {replay}"]
    if path.is_dir():
        raise MgpuError(f"--save-answers {path}: is a folder", errors.USAGE)
    why, old = "", ""
    try:
        old = file_reading.read(path, most=MOST_BYTES).decode("utf-8")
        text = dumps(answers, old, replay)
    except OSError as error:
        raise MgpuError(f"--save-answers {path}: {error.strerror or reason(error)}", errors.NOT_READY) from None
    except (UnicodeDecodeError, MgpuError):
        why, text = ", which was not TOML", dumps(answers, replay=replay)
    if text == old:
        return [f"{path} is already up to date."]
    changes = [] if why else existing_file.differences(path, text)
    kept = f"  (backup: {files.back_up(path)}{why})" if changes or why else ""
    files.write(path, text)
    return [f"Wrote {path}{kept}", *(changes or [f"  Replay:  {replay}"])]
