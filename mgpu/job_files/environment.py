"""Which shell lines give a job the software of here and now: modules, conda, a virtual environment?

A job starts with the variables of the shell it was submitted from, if nobody says otherwise; the lines say it once
more, for the day when the script is submitted from another shell.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path


def setup_lines(environ: Mapping[str, str] = os.environ, python: str | None = None) -> tuple[str, ...]:
    """Lines for Job.setup: modules first, then conda, then the virtual environment that lies on top; absolute, quoted.

    `python`: the training's interpreter, where it is another one than the shell's; its environment then counts. Nothing
    is read but the variables and whether a few files are there.
    """
    lines = _modules(environ)
    home = _home(python) if python else None
    if python and home is None:  # of the system, or somewhere by itself: no environment of this shell's
        return (*lines, f'export PATH={shlex.quote(os.path.dirname(os.path.abspath(python)))}:"$PATH"')
    if home is not None and _is_conda(home):
        return (*lines, *_conda(environ, home))
    if conda := environ.get("CONDA_PREFIX"):
        lines += _conda(environ, Path(conda))
    if home is None:
        home = Path(environ["VIRTUAL_ENV"]) if environ.get("VIRTUAL_ENV") else None
    if home is None and not conda:
        home = _home(sys.executable)
    if home is not None and (home / "bin" / "activate").is_file():
        lines.append(f"source {shlex.quote(str(home / 'bin' / 'activate'))}")
    return tuple(lines)


def _home(python: str) -> Path | None:
    """The environment that an interpreter belongs to, by its place: its links lead out of it and are not followed."""
    home = Path(os.path.abspath(python)).parent.parent
    return home if (home / "pyvenv.cfg").is_file() or _is_conda(home) else None


def _is_conda(home: Path) -> bool:
    return (home / "conda-meta").is_dir()


def _modules(environ: Mapping[str, str]) -> list[str]:
    """Environment Modules and Lmod: both keep the loaded ones in LOADEDMODULES, in the order in which they were loaded
    (https://modules.readthedocs.io/en/latest/module.html, https://lmod.readthedocs.io)."""
    loaded = [name for name in environ.get("LOADEDMODULES", "").split(":") if name]
    if not loaded:
        return []
    # A batch script's shell is no login shell: it has the command `module` only if it was exported to it.
    places = [Path(environ[name]) / "init" / "bash" for name in ("LMOD_PKG", "MODULESHOME") if environ.get(name)]
    start = [f"source {shlex.quote(str(place))}" for place in places if place.is_file()][:1]
    return [*start, f"module load {shlex.join(loaded)}"]


def _conda(environ: Mapping[str, str], home: Path) -> list[str]:
    """conda's own start script and its `activate`; micromamba's, where that is what made the environment."""
    name = shlex.quote(str(home))
    if conda := environ.get("CONDA_EXE"):
        start = Path(conda).parent.parent / "etc" / "profile.d" / "conda.sh"
        if start.is_file():
            return [f"source {shlex.quote(str(start))}", f"conda activate {name}"]
    if mamba := environ.get("MAMBA_EXE"):
        return [f'eval "$({shlex.quote(mamba)} shell hook --shell bash)"', f"micromamba activate {name}"]
    return [f'export PATH={shlex.quote(str(home / "bin"))}:"$PATH"']
