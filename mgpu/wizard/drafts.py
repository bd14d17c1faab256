"""Where are the answers of an unfinished session saved, in case of Ctrl-C or a lost connection?

One draft for each project folder, under $XDG_STATE_HOME/mgpu/drafts, readable by its owner only, replaced in one step
after every answer. A damaged draft is renamed and never blocks a new session.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from mgpu import errors, files
from mgpu.errors import MgpuError, clip, reason
from mgpu.file_reading import read_own
from mgpu.structured_text import toml_of
from mgpu.wizard import answers as decisions
from mgpu.wizard import flow
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.decision import Mode
from mgpu.wizard.flow import State

_SCHEMA = 1
_MOST_BYTES = 100_000
_FIELDS = frozenset(key.name for key in decisions.KEYS)


def path_of(folder: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of a folder's draft (its name and a short hash); None if no state can be saved."""
    whole = os.fsencode(folder.resolve())
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-.") or "project"
    try:
        state = files.state_folder(environ)
    except OSError:
        return None
    return state / "drafts" / f"{name[:60]}-{hashlib.sha256(whole).hexdigest()[:6]}.toml"


def save(path: Path | None, state: State) -> bool:
    """Save a state; return False on failure, because a lost draft must not stop the questions."""
    if path is None:
        return False
    try:
        files.private_folder(path.parent.parent)
        files.private_folder(path.parent)
        files.write(path, dumps(state), mode=0o600)
    except (OSError, MgpuError):
        return False
    return True


def load(path: Path | None) -> tuple[State | None, str]:
    """Return the saved state, or None; and a message if a draft could not be read."""
    if path is None:
        return None, ""
    try:
        return loads(read_own(path, most=_MOST_BYTES).decode("utf-8")), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, MgpuError) as error:
        if isinstance(error, OSError) and error.errno != errno.EFBIG:
            return None, f"the draft {path} cannot be read: {reason(error)}"
        aside = path.with_name(f"{path.name}.damaged")
        with contextlib.suppress(OSError):
            path.replace(aside)
        words = error.message if isinstance(error, MgpuError) else reason(error)
        return None, f"the draft is damaged ({words}) and was moved to {aside}"


def drop(path: Path | None) -> None:
    """Delete a draft, if there is one."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def saved_at(path: Path | None) -> str:
    """Return when a draft was last saved, for the menu: 10:42, or the date if it was not today."""
    if path is None:
        return ""
    try:
        when = datetime.fromtimestamp(path.stat().st_mtime)
    except OSError:
        return ""
    return when.strftime("%H:%M" if when.date() == datetime.now().date() else "%Y-%m-%d")


def dumps(state: State) -> str:
    """Return a state as TOML."""
    lines = [
        "# Saved answers of an unfinished mgpu configure. Discard: mgpu configure --fresh",
        f"schema = {_SCHEMA}",
        f"step = {_toml_string(state.step)}",
        f"mode = {_toml_string(state.mode)}",
        f"asked = [{', '.join(_toml_string(name) for name in state.asked)}]",
        f"editing = {_toml_string(state.editing)}",
        f"output = {_toml_string(state.output)}",
        f"from_file = {'true' if state.from_file else 'false'}",
        f"source = {_toml_string(state.answers.source)}",
        "",
        "[answers]",
    ]
    secret = {name for name in _FIELDS if decisions.holds_secret(name, state.answers[name])}  # asked again
    kept = [name for name in sorted(_FIELDS - secret) if name in state.answers.origins]
    # A value that came with another decision (the size of a model that was looked up) is saved with it.
    kept += [n for n in sorted(_FIELDS - secret) if n not in kept and state.answers[n] not in (None, "auto")]
    lines += [f"{name} = {_toml_string(decisions.as_typed(name, state.answers[name]))}" for name in kept]
    lines += [
        "",
        "[origins]",
        *(
            f"{name} = {_toml_string(origin)}"
            for name, origin in sorted(state.answers.origins.items())
            if name not in secret
        ),
    ]
    return "\n".join(lines) + "\n"


def loads(text: str) -> State:
    """Read a state from text. Raises ValueError for anything that `dumps` does not write."""
    tree = toml_of(text)
    if tree.get("schema") != _SCHEMA:
        raise ValueError(f"schema {clip(repr(tree.get('schema')))}, expected {_SCHEMA}")
    answers, origins = tree.get("answers", {}), tree.get("origins", {})
    asked = tree.get("asked", [])
    words = [tree.get(name, "") for name in ("step", "mode", "editing", "output", "source")]
    if not isinstance(asked, list) or not all(isinstance(word, str) for word in (*words, *asked)):
        raise ValueError("not written by mgpu")
    step, mode, editing, output, source = words
    steps = (*flow.QUESTIONS, *flow.SCREENS, *flow.ENDS)
    if step not in steps or mode not in ("quick", "guided") or not set(asked) <= set(flow.QUESTIONS):
        raise ValueError("unknown question")
    if editing not in ("", flow.FILE, *flow.QUESTIONS) or (
        editing and step not in flow.QUESTIONS and step != flow.FILE
    ):
        raise ValueError("unknown row of the review")
    if not isinstance(answers, dict) or not isinstance(origins, dict) or not set(answers) | set(origins) <= _FIELDS:
        raise ValueError("unknown answer")
    if not all(origin in get_args(Origin) for origin in origins.values()):
        raise ValueError("unknown source of an answer")
    values: dict[str, Any] = {name: decisions.parse(name, value) for name, value in answers.items()}
    found = Answers(**values, source=source, origins=origins)
    walk: Mode = "guided" if mode == "guided" else "quick"
    return State(found, step, walk, tuple(asked), editing, output=output, from_file=tree.get("from_file") is True)


def resume(path: Path | None) -> State:
    """Return the draft for `--resume`. Raises MgpuError if there is none."""
    state, trouble = load(path)
    if state is None:
        raise MgpuError(trouble or "there is no draft for this folder\n  mgpu configure  starts one", errors.USAGE)
    return state


def _toml_string(text: str) -> str:
    """Return a TOML string: JSON's escapes are valid in TOML, except for DEL and surrogates."""
    plain = text.encode("utf-8", "replace").decode("utf-8").replace("\x7f", "?")
    return json.dumps(plain, ensure_ascii=False)
