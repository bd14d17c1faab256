"""What is shipped: sdist, wheel, the checks inside them, and mgpu.pyz. Does each of them work where it is installed?"""

from __future__ import annotations

import email
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from mgpu.one_file import build as one_file_build
from mgpu.version import __version__
from tests import installed
from tests.conftest import ROOT, environment, missing, need

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
    """A folder with the sdist and the wheel built from that sdist, and below `direct` the wheel built from the tree."""
    if importlib.util.find_spec("build") is None:
        missing("build is not installed")
    folder = tmp_path_factory.mktemp("built")
    # From a copy of what git would hold: building in the tree would leave an egg-info there.
    source = folder / "source"
    source.mkdir()
    (source / "docs").mkdir()
    for name in ("mgpu", "checks", "pyproject.toml", "README.md", "LICENSE", "docs/man"):
        run("cp", "-r", str(ROOT / name), str(source / name), cwd=folder)
    try:
        enough = int(metadata.version("setuptools").partition(".")[0]) >= 77
    except metadata.PackageNotFoundError:
        enough = False
    isolation = ["--no-isolation"] if enough else []
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    build = (sys.executable, "-m", "build", *isolation)
    run(*build, "--outdir", str(folder), str(source), cwd=folder, env=env)
    run(*build, "--wheel", "--outdir", str(folder / "direct"), str(source), cwd=folder, env=env)
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
    assert "docs/man/mgpu.1" in names


def test_the_same_sources_give_the_same_bytes(built: Path, wheel: Path) -> None:
    """With SOURCE_DATE_EPOCH, in another folder and at another time; and the sdist gives the wheel of the tree."""
    (direct,) = (built / "direct").glob("*.whl")
    assert direct.name == wheel.name and direct.read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_the_checks_inside_mgpu(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = email.message_from_bytes(archive.read(next(n for n in names if n.endswith("/METADATA"))))
        scripts = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    files = {path.relative_to(ROOT / "checks").as_posix() for path in (ROOT / "checks").rglob("*.py")}
    assert {name.removeprefix("mgpu/checks/") for name in names if name.startswith("mgpu/checks/")} == files
    info = f"mgpu_doctor-{__version__}"
    assert {name.partition("/")[0] for name in names} == {"mgpu", f"{info}.dist-info", f"{info}.data"}
    data = {name.removeprefix(f"{info}.data/data/share/") for name in names if name.startswith(f"{info}.data")}
    assert data == {
        "bash-completion/completions/mgpu.bash", "fish/vendor_completions.d/mgpu.fish", "zsh/site-functions/_mgpu",
        *(f"man/man1/{path.name}" for path in (ROOT / "docs" / "man").glob("*.1")),
    }  # fmt: skip
    assert f"{info}.dist-info/licenses/LICENSE" in names
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "mgpu").rglob("*.py")}
    assert sources <= names and "mgpu/py.typed" in names
    assert {"mgpu = mgpu.__main__:main", "mgpu-doctor = mgpu.__main__:main"} <= set(scripts.splitlines())
    assert (about["Name"], about["Version"]) == ("mgpu-doctor", __version__)
    required = about.get_all("Requires-Dist") or []
    assert not any(re.match(r"torch|accelerate", line) for line in required if "extra" not in line)
    # Without a bound: the user's are never replaced.
    assert [line for line in required if '"train"' in line] == [
        'torch; extra == "train"', 'accelerate; extra == "train"',
    ]  # fmt: skip
    assert about.get_all("License-File") == ["LICENSE"] and about["License-Expression"] == "MIT"


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
    env = environment(tmp_path / "home", without=("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"))
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


# ---- installed without torch, and as one file

_NOT_SET = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")  # else each start compiles all of mgpu
Slim = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def slim(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of a fresh environment with mgpu-doctor and what pip installs for it."""
    if subprocess.run([*installed.PIP, "--version"], capture_output=True, check=False).returncode:
        missing("pip is not installed")
    folder = tmp_path_factory.mktemp("slim")
    python = installed.fresh(folder / "venv")
    installed.install(python, installed.wheelhouse(folder / "wheels"), str(wheel))
    return python


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with torch, without mgpu."""
    return installed.with_torch(tmp_path_factory.mktemp("training") / "venv").parents[1]


@pytest.fixture(scope="session")
def one_file(tmp_path_factory: pytest.TempPathFactory, slim: Path) -> Path:
    """mgpu.pyz for this Python, made in the fresh environment."""
    path = tmp_path_factory.mktemp("one_file") / "mgpu.pyz"
    command = [str(slim), "-m", "mgpu.one_file.build", "--this-python", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=path.parent, check=False)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def here(tmp_path: Path) -> Slim:
    """Run a command in an empty folder with a user's clean environment, without a Python on PATH that has torch."""
    folder = tmp_path / "project"
    folder.mkdir()

    def call(*command: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        clean = environment(tmp_path / "home", {"PATH": "/usr/bin:/bin", **(env or {})}, without=_NOT_SET)
        words = [str(word) for word in command]
        return subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, timeout=200, check=False)

    return call


def test_pip_installs_no_torch(slim: Path, here: Slim) -> None:
    (site,) = (slim.parents[1] / "lib").glob("python*/site-packages")
    names = {path.name for path in site.iterdir()}
    assert {"mgpu", "typer", "rich", "questionary", "pynvml.py", "yaml", "tomlkit", "tomli", "libcst"} <= names
    assert not {"torch", "accelerate", "psutil", "numpy"} & names
    for program in ("mgpu", "mgpu-doctor"):
        assert here(slim.with_name(program), "--version").stdout == f"mgpu {__version__}\n"
    share = slim.parents[1] / "share"
    assert {path.name for path in (share / "man" / "man1").iterdir()} >= {"mgpu.1", "mgpu-smoke-test.1"}
    assert (share / "zsh" / "site-functions" / "_mgpu").is_file()
    assert here(slim.with_name("mgpu"), "launch", "--help").returncode == 0


def test_without_torch_it_examines_the_environment_in_sight(
    slim: Path, training: Path, here: Slim, tmp_path: Path
) -> None:
    mgpu, python = slim.with_name("mgpu"), str(training / "bin" / "python")

    def examined(env: Mapping[str, str] | None = None) -> tuple[str, str | None]:
        saved = tmp_path / "saved.json"
        python = None
        while python is None:  # its probe has a limit, which a loaded machine may exceed
            here(mgpu, "doctor", "--quick", "--no-redact", "--save", saved, env=env)
            python = json.loads(saved.read_text())["python"]
            saved.unlink()
        return python["executable"], python.get("chosen")

    assert examined({"VIRTUAL_ENV": str(training)}) == (python, "active virtual environment")
    (tmp_path / "project" / ".venv").symlink_to(training)
    assert examined()[1] == ".venv in this folder"


def test_without_an_environment_it_says_so(slim: Path, here: Slim) -> None:
    mgpu = slim.with_name("mgpu")
    shown = " ".join(here(mgpu, "doctor", "--quick").stdout.split())
    assert "(no environment in sight)" in shown and "pip install" not in shown
    assert "pass its Python with --python" in shown and "NOT READY" in shown
    refused = here(mgpu, "smoke-test", "--cpu", "2")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "mgpu smoke-test --python PATH" in refused.stderr


def test_an_environment_that_mgpu_cannot_run_in_is_reported(slim: Path, here: Slim, tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "python"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 3.8\n")
    old.chmod(0o755)
    report = here(slim.with_name("mgpu"), "doctor", "--quick", env={"VIRTUAL_ENV": str(tmp_path / "old")})
    assert f"{old} (active virtual environment) is not examined: Python 3.8 is too old" in report.stderr


def test_a_run_uses_the_environments_python_and_nothing_of_mgpu(slim: Path, training: Path, here: Slim) -> None:
    config = training.parent / "one.yaml"
    config.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\nuse_cpu: true\n")
    script = training.parent / "train.py"
    script.write_text("import sys\nprint('runs in', sys.executable, [p for p in sys.path if 'slim' in p])\n")
    python = training / "bin" / "python"
    options = ("launch", "--launcher", "python", "--gpus", "1", "--unverified", "allow", "--no-recorder", "--yes")
    done = here(slim.with_name("mgpu"), *options, "--config", config, "--python", python, script)
    assert f"runs in {python} []" in done.stdout, done.stdout + done.stderr


def test_one_file_does_all_four_steps_with_another_environment(one_file: Path, training: Path, here: Slim) -> None:
    env = {"VIRTUAL_ENV": str(training)}
    mgpu = (sys.executable, "-S", one_file)  # -S: a Python without any packages
    assert here(*mgpu, "--version").stdout == f"mgpu {__version__}\n"
    written = here(*mgpu, "configure", "--yes", env=env)
    assert written.returncode == 0 and "own loader" in " ".join(written.stdout.split()), written.stdout + written.stderr
    assert "It was not run." in here(*mgpu, "doctor", "--script", __file__).stdout
    printed = here(*mgpu, "launch", "--print-command", __file__, env=env)
    assert f"{training}/bin/python" in printed.stdout, printed.stderr
    tested = here(*mgpu, "smoke-test", "--cpu", "1", "--level", "quick", env=env)
    assert "PASSED" in tested.stdout, tested.stdout + tested.stderr


def test_one_file_for_every_python_needs_packages_without_compiled_parts(slim: Path, here: Slim) -> None:
    """typer 0.29 needs pydantic, which is compiled; before it did not."""
    done = here(slim, "-m", "mgpu.one_file.build", "mgpu.pyz")
    if done.returncode:
        assert "pip install 'typer<0.29'" in done.stderr and "pydantic" in done.stderr, done.stderr
    else:
        assert "every Python from 3.10" in done.stdout


def test_one_file_has_the_same_bytes_each_time(one_file: Path) -> None:
    assert one_file.read_bytes().startswith(b"#!/usr/bin/env python3\n") and os.access(one_file, os.X_OK)
    assert one_file_build.archive(this_python=True) == one_file_build.archive(this_python=True)


def test_one_file_has_all_files_of_mgpu(one_file: Path, wheel: Path, here: Slim) -> None:
    def own(path: Path) -> set[str]:
        with zipfile.ZipFile(path) as archive:
            return {name for name in archive.namelist() if name.startswith("mgpu/")}

    assert own(one_file) == own(wheel)
    assert "gpu_lost" in here(sys.executable, "-S", one_file, "doctor", "--demo").stdout


def test_what_one_file_takes_along_is_what_mgpu_needs() -> None:
    wanted = {line.partition(">")[0].partition("=")[0].strip() for line in PROJECT["project"]["dependencies"]}
    assert wanted - {"libcst"} == {name for name, _ in one_file_build.REQUIRED}


# ---- release


def test_the_man_pages_are_those_of_the_options() -> None:
    """After a change of an option: `python -m mgpu.cli.manual`."""
    from mgpu.cli import manual

    assert {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "man").iterdir()} == manual.pages()


def test_groff_accepts_the_man_pages() -> None:
    groff = need("groff")
    for path in (ROOT / "docs" / "man").iterdir():
        done = subprocess.run([groff, "-man", "-ww", "-z", str(path)], capture_output=True, text=True, check=True)
        assert not done.stderr, done.stderr


def test_the_recipe_has_the_dependencies_and_the_version() -> None:
    recipe = yaml.safe_load((ROOT / "docs" / "packaging" / "recipe.yaml").read_text("utf-8"))
    wanted = {line.replace(" ", "").lower() for line in PROJECT["project"]["dependencies"]}
    given = {line.replace(" ", "").lower() for line in recipe["requirements"]["run"]}
    assert given - {"python>=${{python_min}}", "__linux"} == wanted
    assert recipe["context"]["version"] == __version__
    assert f">={recipe['context']['python_min']}" == PROJECT["project"]["requires-python"]
    points = [f"{name} = {where}" for name, where in PROJECT["project"]["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == points


def test_only_publishing_may_get_a_token_of_the_index() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert jobs["publish"]["needs"] == "try" and jobs["try"]["needs"] == "build"
    commands = "\n".join(step.get("run", "") for step in jobs["build"]["steps"])
    assert "twine check --strict" in commands and "mgpu.one_file.build mgpu.pyz" in commands
    assert commands.index("rm -r tests") < commands.index("-m build")  # the sdist would have a part of them
    classified = {name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if ":: Python :: 3." in name}
    assert set(jobs["try"]["strategy"]["matrix"]["python"]) == classified
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used and all(re.search(r"@[0-9a-f]{40}$", action) for action in used), "a tag can be moved"


def test_the_release_makes_the_links_of_the_readme_absolute(tmp_path: Path) -> None:
    """A package index shows the page without the repository around it. The repository's address is known there only."""
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]["build"]["steps"]
    (script,) = (step["run"] for step in steps if step.get("name") == "Links that also work on PyPI")
    shutil.copy(ROOT / "README.md", tmp_path)
    env = {"PATH": os.environ["PATH"], "GITHUB_REPOSITORY": "me/mgpu", "GITHUB_REF_NAME": "v1.2"}
    subprocess.run(["bash", "-eu", "-c", script], cwd=tmp_path, env=env, check=True)
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text("utf-8"))
    assert links and all(link.startswith("https://") for link in links), links
    assert "https://raw.githubusercontent.com/me/mgpu/v1.2/tests/screens/doctor_demo.svg" in links
    assert all((ROOT / link.partition("/v1.2/")[2]).exists() for link in links)
