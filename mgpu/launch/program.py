"""Which script or module is to be run?"""

from __future__ import annotations

from pathlib import Path

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.launch.request import Request


def named(request: Request) -> list[str]:
    """What the launcher is to run: a script and its arguments, or -m and a module."""
    target = list(request.target)
    if target[:1] == ["--"]:
        target = target[1:]
    if not target:
        raise MgpuError("which script?  mgpu launch [OPTIONS] SCRIPT [ARGS...]", errors.USAGE)
    if request.module:
        return ["-m", *target]
    if not Path(target[0]).is_file():
        raise MgpuError(_none_such(target[0]), errors.NOT_FOUND)
    return target


def _none_such(name: str) -> str:
    import difflib

    if name.startswith("-"):
        return f"launch has no option {name} (options of mgpu come before the script)"
    folder = Path(name).parent
    try:
        scripts = sorted(p.name for p in folder.iterdir() if p.suffix == ".py")
    except OSError:
        scripts = []
    near = difflib.get_close_matches(Path(name).name, scripts, n=1)
    return f"no script {name}.{f' Did you mean {folder / near[0]}?' if near else ''}"
