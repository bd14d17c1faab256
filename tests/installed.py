"""Fresh environments for the tests of the installation: made by pip from this one's packages, without the network."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

from mgpu.one_file import build

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def wheelhouse(folder: Path) -> Path:
    """Wheels of the installed packages that mgpu needs without torch, packed from their files."""
    folder.mkdir()
    for distribution in (*build.distributions(), metadata.distribution("libcst")):
        name = re.sub(r"[-_.]+", "_", distribution.metadata["Name"])
        tag = re.findall(r"^Tag: ((?!py2)\S+)", distribution.read_text("WHEEL") or "", re.MULTILINE)[0]
        with zipfile.ZipFile(folder / f"{name}-{distribution.version}-{tag}.whl", "w") as wheel:
            for file in distribution.files or ():
                path = Path(str(distribution.locate_file(file)))
                if not file.as_posix().startswith("..") and path.suffix != ".pyc" and path.is_file():
                    wheel.write(path, file.as_posix())
    return folder


def fresh(place: Path) -> Path:
    """An empty environment; returns its Python."""
    venv.create(place, symlinks=True, with_pip=False)
    return place / "bin" / "python"


def install(python: Path, wheels: Path, *what: str) -> str:
    """Install into an environment with pip, from a folder only. Returns what pip said."""
    done = subprocess.run(
        [*PIP, "--python", str(python), "install", "--no-index", "--no-compile", "--find-links", str(wheels), *what],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_torch(place: Path) -> Path:
    """An environment in which torch, accelerate and all else of this one can be imported; returns its Python."""
    python = fresh(place)
    (site,) = (place / "lib").glob("python*/site-packages")
    import torch

    (site / "here.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return python
