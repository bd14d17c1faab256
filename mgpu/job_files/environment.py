"""Write the shell lines that load the current software in a job: modules, conda, a virtual environment.

By default a job gets the variables of the shell from which it is submitted. The lines make the script work when it is
submitted from another shell, too.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path


def setup_lines(environ: Mapping[str, str] = os.environ, python: str | None = None) -> tuple[str, ...]:
    """Return lines for Job.setup: modules, then conda, then the virtual environment on top; absolute, quoted.

    `python`: the training's interpreter if it differs from the shell's, whose environment is then used. Reads only the
    variables, and whether a few files exist.
    """
    lines = _modules(environ)
    home = _home(python) if python else None
    if python and home is None:  # a system or standalone interpreter, in no environment
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
    """Return an interpreter's environment, by its path: symbolic links lead out of it and are not followed."""
    home = Path(os.path.abspath(python)).parent.parent
    return home if (home / "pyvenv.cfg").is_file() or _is_conda(home) else None


def _is_conda(home: Path) -> bool:
    return (home / "conda-meta").is_dir()


def _modules(environ: Mapping[str, str]) -> list[str]:
    """Return the lines for Environment Modules or Lmod.

    Both list the loaded modules in LOADEDMODULES, in load order (https://modules.readthedocs.io/en/latest/module.html,
    https://lmod.readthedocs.io).
    """
    loaded = [name for name in environ.get("LOADEDMODULES", "").split(":") if name]
    if not loaded:
        return []
    # A batch script's shell is not a login shell: it has the command `module` only if it was exported.
    places = [Path(environ[name]) / "init" / "bash" for name in ("LMOD_PKG", "MODULESHOME") if environ.get(name)]
    start = [f"source {shlex.quote(str(place))}" for place in places if place.is_file()][:1]
    return [*start, f"module load {shlex.join(loaded)}"]


def _conda(environ: Mapping[str, str], home: Path) -> list[str]:
    """Return the lines for conda's start script and `conda activate`, or the ones for micromamba."""
    name = shlex.quote(str(home))
    if conda := environ.get("CONDA_EXE"):
        start = Path(conda).parent.parent / "etc" / "profile.d" / "conda.sh"
        if start.is_file():
            return [f"source {shlex.quote(str(start))}", f"conda activate {name}"]
    if mamba := environ.get("MAMBA_EXE"):
        return [f'eval "$({shlex.quote(mamba)} shell hook --shell bash)"', f"micromamba activate {name}"]
    return [f'export PATH={shlex.quote(str(home / "bin"))}:"$PATH"']
