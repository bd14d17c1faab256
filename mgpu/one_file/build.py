"""Which files make `mgpu.pyz`, and how is it written so that the same files give the same bytes?"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from mgpu import exit_status
from mgpu.errors import NOT_READY, USAGE, MgpuError
from mgpu.process import child_process, scratch
from mgpu.text import listed
from mgpu.version import __version__

# Without libcst, which is compiled: `doctor --script --fix` uses the one of the environment, if it has it.
REQUIRED: Final = (
    ("typer", "typer"),
    ("rich", "rich"),
    ("questionary", "questionary"),
    ("nvidia-ml-py", "pynvml"),
    ("PyYAML", "yaml"),
    ("tomlkit", "tomlkit"),
    ("tomli", "tomli"),
)
_CHECK_S: Final = 60.0
_PACKAGES: Final = {"mgpu": "mgpu", "checks": "mgpu/checks"}  # in a clone, the checks are beside mgpu
_ROOT: Final = Path(__file__).resolve().parents[2]
_COMPILED: Final = (".so", ".pyd", ".dylib")
_KEPT: Final = re.compile(r"\.(py|pyi|typed|json|sh)$|\.dist-info/(METADATA|licenses/.*|LICEN[CS]E.*|COPYING.*)$")
_OWN: Final = (".py", ".typed", ".sh", ".json", ".bash", ".fish", "")  # "": _mgpu, for zsh
_EARLIEST: Final = 315532800  # 1980-01-01, the first time that a zip file can hold


@dataclass(frozen=True)
class Made:
    """What was written."""

    files: int
    bytes: int
    pythons: str


def write(path: Path, *, this_python: bool = False) -> Made:
    """Write the file. Raises MgpuError if a package is missing, or compiled where it must not be.

    `this_python`: with compiled packages; the file then runs in this version of Python only.
    """
    data, files = archive(this_python=this_python)
    with scratch.folder() as folder:
        (folder / path.name).write_bytes(data)
        _check(folder / path.name)
    path.write_bytes(data)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    version = f"Python {_this()}" if this_python else "every Python from 3.10"
    return Made(files, len(data), version)


def archive(*, this_python: bool) -> tuple[bytes, int]:
    """Return the bytes of the file and how many files it has. Raises MgpuError if a package is missing."""
    files = dict(sorted(_files(this_python)))
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    about = {"name": f"{__version__}-{digest.hexdigest()[:16]}", "python": _this() if this_python else ""}
    files["about.json"] = json.dumps(about).encode()
    files["__main__.py"] = Path(__file__).with_name("self_unpacking.py").read_bytes()
    stream = io.BytesIO(b"")
    stream.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as target:
        for name, data in files.items():
            target.writestr(_entry(name), data)
    return stream.getvalue(), len(files)


def _this() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry with the time of SOURCE_DATE_EPOCH and the same permissions for everyone."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    when = time.gmtime(max(_EARLIEST, int(given) if given.isdecimal() else _EARLIEST))
    entry = zipfile.ZipInfo(name, when[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def _files(this_python: bool) -> Iterator[tuple[str, bytes]]:
    """Yield every file with its name in the archive: mgpu's, then those of its packages."""
    for package, there in _PACKAGES.items():
        folder = _ROOT / package
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix in _OWN and "__pycache__" not in path.parts:
                yield f"{there}/{path.relative_to(folder).as_posix()}", path.read_bytes()
    for distribution in distributions():  # nvidia-ml-py has an example.py beside its module
        for file in distribution.files or ():
            name = file.as_posix()
            kept = _KEPT.search(name) or (this_python and name.endswith(_COMPILED))
            if kept and name != "example.py" and not name.startswith("..") and "__pycache__" not in name:
                yield name, Path(str(distribution.locate_file(file))).read_bytes()


def _check(path: Path) -> None:
    """Start the file with only its own packages. Raises MgpuError if one of them needs a compiled part.

    PyYAML, tomli and wcwidth have the same in Python; pydantic, which typer 0.29 needs, has not.
    """
    modules = ",".join(module for _, module in REQUIRED)
    with scratch.folder() as cache:
        alone = [sys.executable, "-S", str(path.absolute())]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": ""}
        helped = child_process.run([*alone, "launch", "--help"], _CHECK_S, env=environment)
        (place,) = (cache / "mgpu").iterdir()
        imports = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(place)!r}); import {modules}"]
        imported = child_process.run(imports, _CHECK_S, env=environment)
    for done in (helped, imported):
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise MgpuError(
                f"a package is compiled for one Python: {lines[-1] if lines else done.returncode}\n"
                "  For every Python, build where typer does not need pydantic:  pip install 'typer<0.29'\n"
                "  For this Python only:  --this-python",
                NOT_READY,
            )


def distributions() -> list[metadata.Distribution]:
    """Return the installed packages that mgpu needs, with those that they need. Raises MgpuError."""
    found: dict[str, metadata.Distribution] = {}
    wanted, missing = [name for name, _ in REQUIRED], list[str]()
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in (needed.lower() for needed, _ in REQUIRED):
                missing.append(name)
            continue  # of another system or Python
        for line in distribution.requires or ():
            requirement, _, marker = line.partition(";")
            if "extra" not in marker and (match := re.match(r"[\w.-]+", requirement.strip())):
                wanted.append(match[0])
    if missing:
        raise MgpuError(f"not installed here: {listed(sorted(missing), 'and')}", NOT_READY)
    return [found[name] for name in sorted(found)]


def main() -> int:
    """Write the file that the command line names, and return the exit code. Raises MgpuError."""
    flag = "--this-python"
    names = [word for word in sys.argv[1:] if word != flag]
    if len(names) != 1 or names[0].startswith("-"):
        raise MgpuError(f"usage: python -m mgpu.one_file.build [{flag}] FILE.pyz", USAGE)
    made = write(Path(names[0]), this_python=flag in sys.argv[1:])
    print(f"Wrote {names[0]}: {made.files} files, {made.bytes / 1e6:.1f} MB, for {made.pythons}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_status.guarded(main))
