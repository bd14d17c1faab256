"""Which checks do installed packages and this site add?

* Entry points of the group `mgpu.checks` in installed packages: each names a module with checks.
* Files in `/etc/mgpu/checks`, for which only root may be able to write: mgpu also runs as root, in prologs.

Only `mgpu doctor` runs them. A plug-in that cannot be loaded is a finding (`checks/local_rules.py`), never a traceback.
Importing importlib.metadata takes longer than a quick doctor, so it is imported only if a package declares the group.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

from mgpu import file_reading
from mgpu.check import Check
from mgpu.errors import clip, reason
from mgpu.snapshot import FACTS, BrokenPlugin

Loader: TypeAlias = Callable[[], ModuleType]
GROUP: Final = "mgpu.checks"
SITE: Final = Path("/etc/mgpu/checks")
_MOST_BYTES = 1 << 20
_ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Plugins:
    """The checks of the plug-ins that were loaded, the names of these, and those that were not."""

    checks: tuple[Check, ...] = ()
    names: tuple[str, ...] = ()
    broken: tuple[BrokenPlugin, ...] = ()


@cache
def load() -> Plugins:
    """Load all plug-ins, once."""
    from mgpu import engine

    taken = {check.id for check in engine.load()}
    checks: list[Check] = []
    names: list[str] = []
    broken: list[BrokenPlugin] = []
    for name, module in _modules(broken):
        found = [one for one in vars(module).values() if isinstance(one, Check)]
        wrong = next(filter(None, (_fault(one, taken) for one in found)), "" if found else "it has no checks")
        if wrong:
            broken.append(BrokenPlugin(name, wrong))
            continue
        taken |= {one.id for one in found}
        checks += found
        names.append(name)
    return Plugins(tuple(checks), tuple(names), tuple(broken))


def _fault(check: Check, taken: set[str]) -> str:
    """Return why a check cannot run; "" if it can."""
    if check.id in taken:
        return f"its check {check.id} has the id of another check"
    unknown = next((fact for fact in check.facts if fact not in FACTS), None)
    if unknown:
        return f"its check {check.id} reads {clip(unknown)!r}, which is not a fact"
    if "\n\nWhy: " not in check.doc or "\n\nFix: " not in check.doc:
        return f"the docstring of its check {check.id} has no Why or no Fix"
    return ""


def _modules(broken: list[BrokenPlugin]) -> Iterator[tuple[str, ModuleType]]:
    """Yield the name and module of each plug-in that can be imported; add the others to `broken`."""
    for name, plugin in (*_of_packages(), *_of_site(broken)):
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for the report
                module = plugin()
        except (Exception, SystemExit) as error:
            broken.append(BrokenPlugin(name, reason(error)))
            continue
        yield name, module


# ---- packages


def _of_packages() -> Iterator[tuple[str, Loader]]:
    if not any(map(_declares, dict.fromkeys(sys.path))):
        return
    from importlib import metadata

    for entry in metadata.entry_points(group=GROUP):
        yield f"{entry.name} ({entry.value})", entry.load


def _declares(folder: str) -> bool:
    """Whether a package in a folder of sys.path has entry points of the group."""
    with contextlib.suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        return any(_has_group(one.path) for one in entries if one.name.endswith((".dist-info", ".egg-info")))
    return False


def _has_group(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "entry_points.txt"), "rb") as file:
            return b"[mgpu.checks]" in file.read(_MOST_BYTES)
    except OSError:
        return False


# ---- the site's folder


def _of_site(broken: list[BrokenPlugin]) -> Iterator[tuple[str, Loader]]:
    if not SITE.is_dir():
        return
    try:
        for folder in (SITE.parent, SITE):
            _refuse_writable(folder)
        files = sorted(SITE.glob("*.py"))
    except OSError as error:
        broken.append(BrokenPlugin(str(SITE), error.strerror or reason(error), unsafe=True))
        return
    for path in files:
        try:
            source = file_reading.read_own(path, most=_MOST_BYTES, owner=_ROOT)
        except OSError as error:
            broken.append(BrokenPlugin(str(path), error.strerror or reason(error), unsafe=True))
            continue
        yield str(path), partial(_module_of, path, source)


def _refuse_writable(folder: Path) -> None:
    """Raise OSError if others than root can replace files in a folder."""
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise file_reading.Unreadable(f"{folder} is not a folder")
    if about.st_uid != _ROOT:
        raise file_reading.Unreadable(f"{folder} does not belong to root")
    if about.st_mode & _OTHERS_WRITE:
        raise file_reading.Unreadable(f"other users can write to {folder}")


def _module_of(path: Path, source: bytes) -> ModuleType:
    """Run the bytes that were read, and not the file again, which may have changed."""
    module = ModuleType(f"site_checks.{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), vars(module))
    return module
