"""How do the shell scripts of a project start a training script?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mgpu.errors import MgpuError
from mgpu.readers.job_script import read as job_script_read
from mgpu.readers.training_script.local_modules import project_folder
from mgpu.readers.training_script.python_source import read_bytes
from mgpu.snapshot import ScriptStart

_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job")
_FOLDERS = ("", "scripts", "slurm", "jobs", "bin", "launch", "run", "sh", "bash")
_MOST_FILES = 60  # in which its name is searched; those with its name are parsed, which takes 10 ms each
_MOST_PARSED = 8


def find(script: Path) -> tuple[ScriptStart, ...]:
    """Return the commands that start a script, in the shell scripts of its folder and of its project's top."""
    found: list[ScriptStart] = []
    name, parsed = script.name.encode(), 0
    for path in _shell_scripts(script):
        try:
            raw = read_bytes(path)
        except OSError:
            continue
        if isinstance(raw, str) or name not in raw or parsed >= _MOST_PARSED:
            continue
        parsed += 1
        found += _starts_in(path, script)
    return tuple(found)


def _shell_scripts(script: Path) -> Iterator[Path]:
    folder = os.path.realpath(script.parent)
    tops = dict.fromkeys([folder, project_folder(folder)])
    seen = 0
    for place in dict.fromkeys(os.path.join(top, inner) for top in tops for inner in _FOLDERS):
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for name in names:
            if name.endswith(_SUFFIXES) and seen < _MOST_FILES:
                seen += 1
                yield Path(place, name)


def _starts_in(path: Path, script: Path) -> list[ScriptStart]:
    try:
        job = job_script_read.read(path)
    except (MgpuError, OSError, RecursionError):
        return []
    shown = os.path.relpath(path, os.path.realpath(script.parent))
    return [
        ScriptStart(
            line=job.place(one.line)[1],
            file=shown,
            launcher=one.launcher or "",
            options=one.arguments,
            arguments=one.words[one.script + 1 :],
        )
        for one in job.launches
        if one.script is not None and _is_name_of(one.words[one.script], script) and job.place(one.line)[0] == job.path
    ]


def _is_name_of(word: str, script: Path) -> bool:
    """Whether a word of a command can be the path of a script: its last parts, as far as they are known."""
    parts = [part for part in word.split("/") if part not in ("", ".", "..") and "$" not in part]
    return bool(parts) and list(Path(os.path.realpath(script)).parts[-len(parts) :]) == parts
