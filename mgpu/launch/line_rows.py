"""The rows of the summary for the user's own launch line: where its facts come from, and what is not known."""

from __future__ import annotations

from mgpu.launchers.foreign_line import Line
from mgpu.launchers.framework_yaml import Settings
from mgpu.text import counted, visible

_MARKS = "MGPU_RUN_ID, SPT_NOENV: they mark the processes of the run. The command is started as written"


def config_text(line: Line) -> str:
    """Return the row for a line whose launcher reads no accelerate config."""
    read = line.settings is not None and not line.settings.unread
    return f"none; read from the command line{f' and {visible(line.settings.path)}' if read and line.settings else ''}"


def mode_text(line: Line) -> str:
    """Return how many ranks the line starts, and what is known about precision and strategy."""
    here = f"{counted(line.ranks, 'rank')} here" if line.ranks else "number of ranks not known before the start"
    if line.nodes > 1:
        here += f", {line.nodes} nodes"
    if line.launcher in ("command", "python"):
        here = "one process" if line.ranks == 1 else "one process, or the ranks that it starts"
    settings = line.settings
    if settings is not None and not settings.unread:
        known = [settings.strategy, settings.precision]
        return ", ".join([*(text for text in known if text), here])
    name = f"{line.program.name}: " if line.program.name and line.launcher not in ("command", "python") else ""
    return f"{name}{here}; precision and strategy set by the script"


def notes_text(line: Line) -> str:
    """Return what the user should know about the line, a line of text each."""
    found = list(line.notes)
    if line.nodes > 1:
        found.append(f"{line.nodes} nodes: mgpu watches the ranks of this node. Start the line on each node")
    if line.settings:
        found += _of_settings(line.settings)
    return "\n".join(found)


def _of_settings(settings: Settings) -> list[str]:
    if settings.unread:
        return [f"{visible(settings.path)} {settings.unread}"]
    return (
        [f"{visible(settings.path)} names {visible(settings.missing)}: no such file here"] if settings.missing else []
    )


def marks_text() -> str:
    """Return the row for the environment."""
    return _MARKS
