"""Are the modules of its own that a script imports ported with it: all of them, or none?"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from mgpu import files
from mgpu.errors import NOT_READY, REFUSED, USAGE, MgpuError
from mgpu.port import offer as offers
from mgpu.port.port_script import port
from mgpu.port.script_files import SourceFile
from tests.conftest import ROOT
from tests.test_port_changes import HEAD, LOOP

pytestmark = pytest.mark.quick

ENGINE = """\
import torch
from torch import nn


def train(model, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""
UNUSED = """

def of_another_script(x):
    print(x.cuda())


if __name__ == '__main__':
    print(torch.rand(1).cuda())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script whose loop is in engine.py."""
    (tmp_path / "train.py").write_text("from engine import train\n" + HEAD + "train(model, loader, optimizer)\n")
    (tmp_path / "engine.py").write_text(ENGINE + UNUSED)
    (tmp_path / "engine.py").chmod(0o640)
    return tmp_path / "train.py"


def _offer(path: Path, said: list[str] | None = None, *, yes: bool = True, dry_run: bool = False) -> bool:
    say = said.append if said is not None else lambda _: None
    return offers.offer(path, "accelerate", say, yes=yes, dry_run=dry_run, can_ask=not yes)


def _texts(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def test_all_files_are_written_with_a_backup_of_each(project: Path) -> None:
    before, said = _texts(project.parent), list[str]()
    assert _offer(project, said)
    after = _texts(project.parent)
    new = {"train.py.bak", "engine.py.bak", "ranks_of_run.py"}
    assert set(after) == set(before) | new
    assert after["train.py.bak"] == before["train.py"] and after["engine.py.bak"] == before["engine.py"]
    assert (
        b"from ranks_of_run import accelerator\n" in after["engine.py"]
        and b"accelerator.backward(loss)" in after["engine.py"]
    )
    assert after["engine.py"].decode().endswith(UNUSED)  # what this script does not use stays
    assert (project.parent / "engine.py").stat().st_mode & 0o777 == 0o640
    assert [line for line in said if line.startswith(("Ported", "Created"))] == [
        f"Ported {project} (backup: train.py.bak).",
        f"Ported {project.parent / 'engine.py'} (backup: engine.py.bak).",
        f"Created {project.parent / 'ranks_of_run.py'}.",
    ]
    for name in ("train.py", "engine.py", "ranks_of_run.py"):
        ast.parse(after[name])


def test_one_question_for_all_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = _texts(project.parent), list[str]()

    def confirm(new: list[offers._File]) -> bool:
        asked.extend(one.path.name for one in new)
        return False

    monkeypatch.setattr(offers, "_confirm", confirm)
    assert not _offer(project, yes=False)
    assert asked == ["train.py", "engine.py", "ranks_of_run.py"] and _texts(project.parent) == before


def test_without_a_terminal_or_in_a_dry_run_nothing_is_written(project: Path) -> None:
    before = _texts(project.parent)
    assert not _offer(project, dry_run=True)
    with pytest.raises(MgpuError) as error:
        offers.offer(project, "accelerate", lambda _: None, yes=False, dry_run=False, can_ask=False)
    assert error.value.exit_code == USAGE and _texts(project.parent) == before


@pytest.mark.parametrize("failing", ["engine.py", "ranks_of_run.py"])
def test_if_one_file_cannot_be_written_all_stay(project: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = _texts(project.parent), files.write

    def refuse(path: Path, text: str, *, mode: int | None = None) -> None:
        if path.name == failing and "accelerator" in text:
            raise MgpuError(f"cannot write {path}: disk full", NOT_READY)
        write(path, text, mode=mode)

    monkeypatch.setattr(files, "write", refuse)
    with pytest.raises(MgpuError, match="disk full"):
        _offer(project)
    assert _texts(project.parent) == before


def test_a_file_with_the_name_of_the_new_one_is_kept(project: Path) -> None:
    (project.parent / "ranks_of_run.py").write_text("mine = 1\n")
    before = _texts(project.parent)
    with pytest.raises(MgpuError, match="rename it first") as error:
        _offer(project)
    assert error.value.exit_code == REFUSED and _texts(project.parent) == before


def test_a_module_outside_of_the_folder_is_not_touched(project: Path, tmp_path: Path) -> None:
    inner = tmp_path / "tools"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    shutil.move(project, inner / "train.py")
    said: list[str] = []
    assert not _offer(inner / "train.py", said)
    assert "it has no backward pass" in said[0] and (tmp_path / "engine.py").read_text() == ENGINE + UNUSED


def test_only_the_script_if_nothing_else_has_to_change(project: Path) -> None:
    (project.parent / "net.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.Linear(2, 1)\n")
    text = HEAD.replace("model = nn.Linear(2, 1)", "model = build()") + LOOP
    project.write_text("from net import build\n" + text)
    assert _offer(project)
    assert set(_texts(project.parent)) == {"train.py", "train.py.bak", "engine.py", "net.py"}
    assert "accelerator = Accelerator(" in project.read_text()


def test_every_hunk_of_a_project_has_a_reason_and_each_file_its_name(project: Path) -> None:
    said: list[str] = []
    _offer(project, said)
    shown = "\n".join(said)
    assert all(f"\n{project.parent / name}\n" in shown for name in ("train.py", "engine.py", "ranks_of_run.py"))
    main = (ROOT / "tests/port_scripts/project/train.py").read_text()
    paths = (ROOT / "tests/port_scripts/project").glob("[!t]*.py")
    others = [SourceFile(path.name, path.stem, path.read_text()) for path in paths]
    result = port(main, "nothing", others=others)
    assert all(hunk.reasons for one in result.others for hunk in one.hunks)


def test_a_mark_names_its_file() -> None:
    summed = ENGINE.replace("y.cuda())", "y.cuda(), reduction='sum')")
    text = "from engine import train\n" + HEAD + "train(model, loader, optimizer)\n"
    result = port(text, "nothing", others=[SourceFile("engine.py", "engine", summed)])
    assert [place for place, why in result.decisions if "engine.py line 7 sums the loss" in why] == [("engine.py", 8)]


@pytest.mark.parametrize(
    ("how", "used"),
    [
        ("import engine", "engine.train"),
        ("import engine as e", "e.train"),
        ("from engine import *", "train"),
        ("from lib import train", "train"),
        ("from lib import engine", "engine.train"),
    ],
)
def test_the_ways_to_import(how: str, used: str) -> None:
    text = f"{how}\n{HEAD}{used}(model, loader, optimizer)\n"
    name = "lib/engine.py" if "lib" in how else "engine.py"
    others = [SourceFile(name, name.removesuffix(".py").replace("/", "."), ENGINE)]
    if "lib" in how:
        others.append(SourceFile("lib/__init__.py", "lib", "from .engine import train\nfrom . import engine\n"))
    result = port(text, "nothing", others=others)
    assert not result.refused and not result.decisions
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in result.text
    assert "accelerator.backward(loss)" in result.others[0].text
