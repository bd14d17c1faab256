"""Which environment does mgpu examine if its own Python has no torch, and where does mgpu.pyz unpack itself?

The same with real installations: test_packaging.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mgpu.one_file import self_unpacking
from mgpu.process import training_python


def test_the_order_of_the_environments(tmp_path: Path) -> None:
    def home(name: str) -> str:
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
        return str(tmp_path / name)

    venv, conda = home("venv"), home("conda")

    def chosen(**environ: str) -> str | None:
        found = training_python.in_sight({"PATH": "", **environ}, str(tmp_path))
        return found.chosen if found else None

    assert chosen() == "no environment in sight"
    assert chosen(CONDA_PREFIX=conda, CONDA_DEFAULT_ENV="base") == "conda's base environment"
    home(".venv")
    assert chosen(CONDA_PREFIX=conda, CONDA_DEFAULT_ENV="base") == ".venv in this folder"
    assert chosen(CONDA_PREFIX=conda, CONDA_DEFAULT_ENV="train") == "active conda environment"
    assert chosen(CONDA_PREFIX=conda, VIRTUAL_ENV=venv) == "active virtual environment"
    assert chosen(VIRTUAL_ENV=sys.prefix) is None  # the one that runs this
    assert chosen(VIRTUAL_ENV=str(tmp_path / "removed")) == ".venv in this folder"


def test_a_python_on_path_counts_if_it_has_torch(tmp_path: Path) -> None:
    for name, answer in (("with", "True"), ("without", "False")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python3").write_text(f"#!/bin/sh\necho {answer}\n")
        (tmp_path / name / "python3").chmod(0o755)
    found = training_python.in_sight({"PATH": str(tmp_path / "with")}, str(tmp_path))
    assert found == training_python.Found(str(tmp_path / "with" / "python3"), "python on PATH")
    for path in (str(tmp_path / "without"), "with", ""):
        none = training_python.in_sight({"PATH": path}, str(tmp_path))
        assert none is not None and not none.path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_environment_of_another_user_is_not_run(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    os.chown(tmp_path / ".venv", 4711, -1)
    found = training_python.in_sight({"PATH": ""}, str(tmp_path))
    assert found is not None and not found.path


def test_one_file_unpacks_only_where_others_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache" / "mgpu").mkdir(parents=True)
    (tmp_path / "cache" / "mgpu").chmod(0o777)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    first, second = self_unpacking._parents()
    with pytest.raises(PermissionError):
        self_unpacking._claim(first)
    self_unpacking._claim(second)
    assert Path(second).parent == tmp_path / "tmp" and Path(second).stat().st_mode & 0o777 == 0o700
    (tmp_path / "tmp" / "link").symlink_to(second)
    with pytest.raises(PermissionError):
        self_unpacking._claim(str(tmp_path / "tmp" / "link"))
