"""Which Python runs the training, if mgpu's own has no torch, and how does mgpu continue in it?

mgpu without torch (`uvx mgpu-doctor`, pipx, `mgpu.pyz`) is installed outside of the environment it examines. It then
starts itself again in that environment's Python, so that all it finds is what the training run would find. Nothing is
installed there: mgpu and the packages it needs stay where they are, and only mgpu's own processes have their folders on
`sys.path`. The ranks and the probes of the environment do not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mgpu.errors import reason
from mgpu.process import child_process, interpreter

OLDEST: Final = (3, 10)  # the oldest Python that mgpu runs in
PROGRAMS: Final = ("mgpu", "mgpu-doctor")  # the console scripts
_NEEDED: Final = ("typer", "rich", "questionary", "pynvml", "yaml", "tomlkit", "tomli")
_ALONE: Final = "no environment in sight"
_START_S: Final = 20.0  # for an interpreter on a cold network file system
_BOOT: Final = (
    "import json, sys; said = json.loads(sys.argv.pop(1)); sys.argv[0] = said.pop('program'); "
    "sys.path[:0] = said['folders']; from mgpu.process import training_python; "
    "training_python.carried = training_python.Carried(**said); from mgpu.__main__ import main; main()"
)


@dataclass(frozen=True)
class Carried:
    """This mgpu is not installed in the Python that runs it."""

    own: str  # the interpreter that mgpu was started with
    folders: Sequence[str]  # with mgpu and its packages
    chosen: str = ""  # how the interpreter that runs it was found; "": it was not searched for
    values: Mapping[str, Any] | None = None  # of the command's options, already parsed


carried: Carried | None = None  # None: installed in this Python
alone = False  # this Python has no torch, and no environment is in sight


def chosen() -> str | None:
    """Return how this Python was found, for the report; None: it is mgpu's own, where training runs too."""
    return _ALONE if alone else (carried.chosen or None) if carried else None


@dataclass(frozen=True)
class Found:
    """An interpreter of an environment in sight."""

    path: str
    chosen: str  # a value of snapshot.Python.chosen


def has_torch() -> bool:
    """Whether this Python has torch, without importing it."""
    if any(os.path.isdir(os.path.join(folder, "torch")) for folder in sys.path if folder):
        return True
    try:
        return importlib.util.find_spec("torch") is not None  # an editable install
    except (ImportError, ValueError):
        return False


def in_sight(environ: Mapping[str, str] = os.environ, folder: str = ".") -> Found | None:
    """Return the Python of the first environment in sight. None: it is the one that runs this.

    Without any, the path is empty.

    The order is uv's (https://docs.astral.sh/uv/pip/environments/): the active virtual environment, conda's, `.venv`
    here; then conda's base, and last a Python on PATH that has torch, as in a container image.
    """
    for found in _environments(environ, folder):
        if _same_environment(found.path):
            return None
        return found
    for path in _on_path(environ):
        if _imports_torch(path):
            return Found(path, "python on PATH")
    return Found("", _ALONE)


def problem(path: str) -> str | None:
    """Return why mgpu cannot run in this interpreter; None: it can."""
    ask = [path, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = child_process.run(ask, _START_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it does not start ({reason(error)})"
    version = re.fullmatch(r"(\d)\.(\d+)", done.stdout.decode("utf-8", "replace").strip())
    if done.returncode or not version:
        return "not a Python interpreter"
    if (int(version[1]), int(version[2])) < OLDEST:
        return f"Python {version[0]} is too old: {'.'.join(map(str, OLDEST))} or newer is required"
    return None


def is_this(path: str) -> bool:
    """Whether mgpu runs in this interpreter."""
    return os.path.abspath(path) == os.path.abspath(sys.executable)


def enter(found: Found, argv: Sequence[str], values: Mapping[str, Any] | None) -> None:
    """Replace this process with mgpu in another Python. Raises OSError.

    `values`: of the options in `argv`. They are parsed here, because typer may need a package compiled for this Python.
    """
    there = Carried(
        carried.own if carried else sys.executable,
        list(carried.folders) if carried else _own_folders(),
        found.chosen,
        values,
    )
    said = json.dumps({"program": os.path.abspath(sys.argv[0]), **asdict(there)})
    os.execv(found.path, [*interpreter.text(found.path, _BOOT), said, *argv])


def own_command() -> str:
    """Return how a job calls this mgpu, as shell words: by its full path, since a job's PATH may differ."""
    own = carried.own if carried else sys.executable
    called, beside = Path(sys.argv[0]), Path(own).with_name("mgpu")
    if called.suffix == ".pyz":
        return shlex.join([own, str(called.absolute())])
    for path in (called, beside):
        if path.name in PROGRAMS and os.access(path, os.X_OK):
            return shlex.quote(str(path.absolute()))
    return shlex.join([own, "-m", "mgpu"])


def _environments(environ: Mapping[str, str], folder: str) -> Iterator[Found]:
    conda = environ.get("CONDA_PREFIX", "")
    is_base = environ.get("CONDA_DEFAULT_ENV") in ("base", "root")
    places = (
        (environ.get("VIRTUAL_ENV", ""), "active virtual environment"),
        ("" if is_base else conda, "active conda environment"),
        (_trusted(os.path.join(folder, ".venv")), ".venv in this folder"),
        (conda if is_base else "", "conda's base environment"),
    )
    for home, chosen in places:
        for name in ("python", "python3"):
            path = os.path.abspath(os.path.join(home, "bin", name))
            if home and os.access(path, os.X_OK):
                yield Found(path, chosen)
                break


def _trusted(home: str) -> str:
    """Return the folder, or nothing if it belongs to another user, whose programs are not to be run."""
    try:
        owners = {os.lstat(home).st_uid, os.stat(home).st_uid, os.stat(os.path.join(home, "bin")).st_uid}
    except OSError:
        return ""
    return home if owners <= {0, os.geteuid()} else ""


def _same_environment(path: str) -> bool:
    """Whether an interpreter is of the environment that runs this. Links are not followed: they lead out of it."""
    try:
        return os.path.samefile(os.path.dirname(os.path.dirname(path)), sys.prefix)
    except OSError:
        return False


def _on_path(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the first `python3` and `python` on PATH that are not of this environment."""
    for name in ("python3", "python"):
        for folder in environ.get("PATH", "").split(os.pathsep):
            path = os.path.join(folder, name)
            if os.path.isabs(folder) and os.access(path, os.X_OK) and not _same_environment(path):
                yield path
                break


def _imports_torch(path: str) -> bool:
    ask = interpreter.text(path, "import importlib.util; print(importlib.util.find_spec('torch') is not None)")
    try:
        return child_process.run(ask, _START_S).stdout == b"True\n"
    except (OSError, subprocess.TimeoutExpired):
        return False


def _own_folders() -> list[str]:
    """Return the folders with mgpu and its packages, mgpu's first."""
    folders = [str(Path(__file__).resolve().parents[2])]
    for name in _NEEDED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            package = os.path.dirname(spec.origin)
            folders.append(os.path.dirname(package) if spec.submodule_search_locations else package)
    return list(dict.fromkeys(folders))
