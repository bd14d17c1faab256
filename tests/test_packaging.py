"""What is shipped: sdist, wheel, and the checks inside them."""

from __future__ import annotations

import email
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from mgpu.version import __version__
from tests.conftest import ROOT, environment, missing

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from that sdist."""
    if importlib.util.find_spec("build") is None:
        missing("build is not installed")
    folder = tmp_path_factory.mktemp("built")
    # From a copy of what git would hold: building in the tree would leave an egg-info there.
    source = folder / "source"
    source.mkdir()
    for name in ("mgpu", "checks", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            run("cp", "-r", str(ROOT / name), str(source / name), cwd=folder)
    try:
        enough = int(metadata.version("setuptools").partition(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        enough = False
    isolation = ["--no-isolation"] if enough else []
    run(sys.executable, "-m", "build", *isolation, "--outdir", str(folder), str(source), cwd=folder)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


def test_the_sdist_holds_the_sources(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "mgpu/__init__.py", "mgpu/py.typed", "checks/gpu.py"} <= names
    assert not any(name.startswith(("tests/", "mgpu/checks")) or name.endswith(".pyc") for name in names)


def test_the_wheel_holds_the_checks_inside_mgpu(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = email.message_from_bytes(archive.read(next(n for n in names if n.endswith("/METADATA"))))
        scripts = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    files = {path.relative_to(ROOT / "checks").as_posix() for path in (ROOT / "checks").rglob("*.py")}
    assert {name.removeprefix("mgpu/checks/") for name in names if name.startswith("mgpu/checks/")} == files
    assert {name.partition("/")[0] for name in names} == {"mgpu", f"mgpu_doctor-{__version__}.dist-info"}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "mgpu").rglob("*.py")}
    assert sources <= names and "mgpu/py.typed" in names
    assert "mgpu = mgpu.__main__:main" in scripts
    assert (about["Name"], about["Version"]) == ("mgpu-doctor", __version__)
    required = {line.split(";")[0].strip() for line in about.get_all("Requires-Dist") or [] if "extra" not in line}
    assert {"torch", "accelerate"} <= required  # without a bound: the user's are never replaced


def test_the_installed_wheel_finds_its_own_checks(built: Path, wheel: Path, tmp_path: Path) -> None:
    """In a project that has `checks/`, `mgpu.py` tests and a `pyproject.toml` of its own."""
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # The dependencies are the ones of this interpreter, by links; an editable install of mgpu among them is left out.
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        name = path.name.lower()
        if name.startswith(("mgpu", "__editable__", "__pycache__")) or path.suffix in (".pth", ".egg-link"):
            continue
        (site / path.name).symlink_to(path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    project = tmp_path / "project"
    (project / "checks").mkdir(parents=True)
    (project / "checks" / "__init__.py").write_text("raise SystemExit('the checks of somebody else')\n")
    (project / "checks" / "gpu.py").write_text("raise SystemExit('the checks of somebody else')\n")
    (project / "pyproject.toml").write_text('[project]\nname = "mgpu-doctor"\n')  # even if it says that
    python = str(tmp_path / "venv" / "bin" / "python")
    env = environment(tmp_path / "home", without=("PYTHONPATH",))
    where = run(python, "-c", "import mgpu; print(mgpu.__file__)", cwd=project, env=env).strip()
    assert Path(where).is_relative_to(site)
    every = "import importlib, pkgutil, mgpu; found = pkgutil.walk_packages(mgpu.__path__, 'mgpu.')"
    run(python, "-c", f"{every}; [importlib.import_module(m.name) for m in found if m.name != 'mgpu.__main__']",
        cwd=project, env=env)  # fmt: skip
    question = ("-m", "mgpu", "doctor", "--list-checks", "--json")
    listed = json.loads(run(python, *question, cwd=project, env=env))
    tree = env | {"PYTHONPATH": str(built / "source")}
    assert listed == json.loads(run(sys.executable, *question, cwd=project, env=tree))
    assert len(listed["checks"]) > 90
    assert run(python, "-m", "mgpu", "--version", cwd=project, env=env) == f"mgpu {__version__}\n"
    document = json.loads(
        run(python, "-m", "mgpu", "doctor", "--quick", "--json", "--only", "accelerate_missing", "--expect-gpus", "0",
            cwd=project, env=env)
        if not any(Path("/dev").glob("nvidia*"))
        else '{"checks": [{"id": "accelerate_missing", "status": "ok"}]}'
    )  # fmt: skip
    assert [(c["id"], c["status"]) for c in document["checks"]] == [("accelerate_missing", "ok")]
    assert sorted(path.name for path in project.iterdir()) == ["checks", "pyproject.toml"]


def test_the_packages_listed_are_the_folders() -> None:
    folders = {
        path.parent.relative_to(ROOT)
        for top in ("mgpu", "checks")
        for path in (ROOT / top).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    names = {".".join(folder.parts if folder.parts[0] == "mgpu" else ("mgpu", *folder.parts)) for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == names
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"mgpu.checks": "checks"}
    assert all((ROOT / folder / "__init__.py").exists() for folder in folders)
    assert (ROOT / "mgpu" / "py.typed").exists()
    assert not (ROOT / "mgpu" / "checks").exists()


def test_no_module_bears_the_name_of_another_one() -> None:
    """Launchers put folders of scripts on sys.path: `mgpu/launch/signal.py` there would be imported for `signal`."""
    taken = {*sys.stdlib_module_names, "torch", "accelerate", "yaml", "rich", "typer", "click", "numpy", "psutil"}
    own = {path.stem for folder in ("mgpu", "checks") for path in (ROOT / folder).rglob("*.py")} - {"__init__"}
    assert own & taken <= {"__main__"}


def test_the_build_leaves_the_tree_alone(built: Path) -> None:
    assert not (ROOT / "build").exists() and not (ROOT / "dist").exists()
    assert os.listdir(built)
