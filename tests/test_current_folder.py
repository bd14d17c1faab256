"""Is anything of the project folder executed by mgpu, by the launchers that it starts, or by its own ranks?

A project may have a `json.py` or a folder `accelerate`. The user's ranks import what they would without mgpu.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mgpu.launchers import argv
from mgpu.process import interpreter
from tests.conftest import environment, missing
from tests.scripts import ONE_PROCESS, TWO_RANKS, write_config

# linecache: Python 3.13 imports it for `python -c`, before the first statement runs.
FILES = (
    "accelerate/__init__.py", "torch/__init__.py", "numpy/__init__.py", "contextlib.py", "json.py", "typing.py",
    "pynvml.py", "linecache.py", "dataclasses.py", "yaml.py",
)  # fmt: skip
MARKS = """\
import os, sys
with open({marks!r}, "a") as marks:
    marks.write(f"{{__name__}} in {{getattr(sys, 'orig_argv', sys.argv)}}\\n")
raise ImportError("the file of a project")
"""
# Writes what a rank has, and imports nothing but built-in modules.
RANK = """\
import os, sys
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as told:
    told.write(repr({"path": sys.path, "flags": str(sys.flags), "python": {
        name: value for name, value in os.environ.items() if name.startswith("PYTHON")}}))
"""
MGPU = "import sys\nfrom mgpu.__main__ import main\nmain()\n"


class Project:
    """A folder that shadows modules, a script in a folder below it, and mgpu as its console script starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.marks = folder / "project", folder / "marks"
        self.env = environment(folder / "home")
        self.mgpu = folder / "bin" / "mgpu"
        for path, text in {
            **{self.folder / name: MARKS.format(marks=str(self.marks)) for name in FILES},
            self.folder / "sub" / "train.py": RANK,
            self.mgpu: MGPU,
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "home").mkdir()

    def run(
        self, *words: str, env: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command line in the project, or in another folder."""
        return subprocess.run(
            words, cwd=folder or self.folder, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def mark(self) -> str:
        """What was executed of the project so far."""
        return self.marks.read_text() if self.marks.exists() else ""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("shadows"))


def ranks_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """What each rank has told, rank 0 first."""
    return [ast.literal_eval(path.read_text()) for path in sorted(folder.glob(f"{name}.*"))]


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "--json"),
        ("configure", "--yes", "--output", "written.yaml"),
        ("smoke-test", "--cpu", "2", "--level", "quick"),
    ],
    ids=lambda words: words[0],
)
def test_nothing_of_the_project_is_executed(project: Project, words: Sequence[str]) -> None:
    write_config(project.folder)
    done = project.run(sys.executable, str(project.mgpu), *words)
    assert project.mark() == "", done.stdout + done.stderr
    if words[0] != "doctor":  # its verdict is about this machine
        assert done.returncode == 0, done.stdout + done.stderr
        return
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["torch_import_fails"]["status"] == "ok"
    shadowed = checks["module_shadowed_here"]
    assert shadowed["status"] == "warn" and "accelerate/" in shadowed["title"] and "json.py" in shadowed["title"]


def test_nothing_of_the_project_is_executed_under_m(project: Project) -> None:
    """`python -m mgpu` puts the current folder on sys.path itself. The real accelerate is asked about the config."""
    write_config(project.folder)
    done = project.run(sys.executable, "-m", "mgpu", "configure", "--validate", "accelerate.yaml", "--json")
    assert project.mark() == "", done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "valid"  # "unknown" where accelerate could not be asked


def test_a_script_is_told_what_hides_modules_beside_it(project: Project) -> None:
    """In the folder of a script, wherever the doctor is started. A script in a folder of its own has nothing beside."""
    for script, wanted in (("train.py", "warn"), ("sub/train.py", "ok")):
        (project.folder / script).write_text(RANK)
        path = str(project.folder / script)
        done = subprocess.run(
            [sys.executable, str(project.mgpu), "doctor", "--script", path, "--json"], cwd=project.mgpu.parent,
            env=project.env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
        assert checks["script_folder_hides_module"]["status"] == wanted, done.stdout
    assert project.mark() == ""


# The launchers and their ranks


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "torchrun -m", "python"])
def test_ranks_have_the_path_of_those_of_the_console_script(project: Project, launcher: str) -> None:
    """The launcher executes nothing of the project, and its ranks find modules where they do without mgpu."""
    beside, folder = Path(sys.executable).parent, project.folder
    target = ["sub/train.py"]
    if launcher == "torchrun -m":  # whose ranks have the current folder first: one that hides nothing
        folder, target = project.folder.parent / "plain", ["-m", "sub.train"]
        shutil.copytree(project.folder / "sub", folder / "sub")
    name = launcher.partition(" ")[0]
    write_config(folder, ONE_PROCESS if name == "python" else TWO_RANKS)
    plain = {
        "accelerate": [str(beside / "accelerate"), "launch", "--config_file", "accelerate.yaml"],
        "torchrun": [str(beside / "torchrun"), "--nproc-per-node", "2", "--master-port", "0"],
        "python": [sys.executable],
    }[name]
    if not Path(plain[0]).exists():
        missing(f"{plain[0]} is not there")
    ours = [sys.executable, str(project.mgpu), "launch", "--no-recorder", "--unverified", "allow", "--launcher", name]
    found: dict[str, list[dict[str, Any]]] = {}
    for who, words in (("ours", ours), ("plain", plain)):
        name_of_files = f"{who} of {launcher}"
        done = project.run(*words, *target, name_of_files, env={"ACCELERATE_USE_CPU": "true"}, folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        found[who] = ranks_of(folder, name_of_files)
    assert len(found["ours"]) == (1 if name == "python" else 2)
    assert found["ours"] == found["plain"]
    assert not any("PYTHONSAFEPATH" in rank["python"] for rank in found["ours"])
    assert project.mark() == ""


def test_the_launchers_words_for_each_python() -> None:
    words = interpreter.module("/opt/env/bin/python", "3.11.0rc1", "torch.distributed.run")
    assert words == ["/opt/env/bin/python", "-P", "-m", "torch.distributed.run"]
    old = interpreter.module("python3.10", "3.10.13", "accelerate.commands.launch")
    assert old[:2] == ["python3.10", "-c"] and "'" not in old[2]  # a shell quotes it as a whole
    for start in (words, old, ["python", "-m", "accelerate.commands.launch"]):
        whole = [*start, "--config_file", "accelerate.yaml", "train.py"]
        assert argv.by_accelerate(whole) is any("accelerate" in word for word in start)
    assert not argv.by_accelerate(["python", "-P", "-m", "torch.distributed.run", "x", "accelerate.commands.launch"])


# Any Python that runs a text or a module for mgpu

TOLD = """\
import json, os, sys
print(json.dumps([sys.argv[1:], sys.path, os.environ.get("PYTHONSAFEPATH"), json.__file__]))
"""
MODULE = f"def main():\n    exec({TOLD!r})\n\n\nif __name__ == '__main__':\n    main()\n"


@cache
def pythons() -> list[str]:
    """The interpreters of this machine that mgpu supports, each once."""
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 15)]
    found: dict[str, str] = {}
    for python in [sys.executable, *filter(None, named)]:
        done = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found.setdefault(done.stdout, python)
    return list(found.values())


@pytest.mark.parametrize("how", ["text", "bare text", "on a node", "on a node, as the user has it", "module"])
def test_no_python_finds_the_current_folder(project: Project, how: str) -> None:
    """Its sys.path is that of `python -c` but for the first entry. Files of the project that are imported fail."""
    for python in pythons():
        _finds_nothing_here(project, python, how)


def _finds_nothing_here(project: Project, python: str, how: str) -> None:
    user = "1" if how.endswith("has it") else None
    env = {**project.env, "PYTHONPATH": str(project.folder.parent / "lib")}
    (project.folder.parent / "lib").mkdir(exist_ok=True)
    (project.folder.parent / "lib" / "tells.py").write_text(
        f"def main():\n    exec({TOLD!r})\nif __name__ == '__main__':\n    main()\n"
    )
    if user:
        env["PYTHONSAFEPATH"] = user
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout
    start = {
        "text": interpreter.text(python, TOLD),
        "bare text": interpreter.text(python, TOLD, "-I", "-S"),
        "module": interpreter.module(python, version, "tells"),
    }.get(how, [python, "-c", interpreter.text_on_nodes(TOLD)])
    if how.startswith("on a node"):
        env = interpreter.on_nodes(env)
    done = subprocess.run(
        [*start, "a", "-b"], cwd=project.folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0 and project.mark() == "", done.stderr
    arguments, path, variable, origin = json.loads(done.stdout)
    assert arguments == ["a", "-b"] and variable == user and not origin.startswith(str(project.folder))
    wanted = subprocess.run(
        [python, *(["-I", "-S"] if how == "bare text" else []), "-c", "import sys; print(sys.path)"],
        cwd=project.mgpu.parent, env=env, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert path == [entry for entry in ast.literal_eval(wanted) if entry]
