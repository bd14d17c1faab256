"""A script that trains alone is noticed on the way: by bare mgpu and by the wizard, which offers to change it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu import errors
from mgpu.port import needed
from tests.conftest import ROOT, Run, environment
from tests.scripts import write_config
from tests.terminal import Terminal

SCRIPTS = ROOT / "tests" / "port_scripts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script for one GPU, from which the wizard asks nothing else."""
    here = tmp_path / "project"
    here.mkdir()
    shutil.copy(SCRIPTS / "classifier.py", here / "train.py")
    return here


def test_which_scripts(folder: Path) -> None:
    assert needed.port_command(folder / "train.py") == f"mgpu doctor --script {folder / 'train.py'} --fix"
    assert needed.port_command(folder / "other.py") == needed.port_command(folder) == ""
    (folder / "train.py").write_text("def broken(:\n")
    assert needed.port_command(folder / "train.py") == ""
    shutil.copy(ROOT / "tests" / "train_digits.py", folder / "train.py")
    assert needed.port_command(folder / "train.py") == ""


def test_bare_mgpu_shows_the_step_until_it_is_done(folder: Path, mgpu: Run) -> None:
    write_config(folder)
    screen = mgpu(cwd=folder).stdout
    assert "  mgpu doctor --fix let the script train on all GPUs    train.py uses one GPU\n" in screen
    ported = mgpu("doctor", "--script", "train.py", "--fix", "--yes", cwd=folder)
    assert "Ported train.py" in ported.stdout
    assert "doctor --fix" not in mgpu(cwd=folder).stdout


def test_the_wizard_offers_it(folder: Path, tmp_path: Path) -> None:
    env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8", "TERM": "dumb"})
    arguments = ("mgpu", "configure", "--edit", "accelerate.yaml")
    write_config(folder)
    for declines in (True, False):
        terminal = Terminal([sys.executable, "-m", *arguments], env=env, cwd=folder)
        terminal.see("Write")
        terminal.press("\r")
        terminal.see("train.py trains on one GPU. Change it to train on all?")
        terminal.press("2\r" if declines else "1\r")
        if not declines:
            terminal.see("Write train.py? [y/N]")
            assert "+from accelerate" in terminal.text
            terminal.press("y\r")
        assert terminal.end() == errors.READY
        assert ("mgpu doctor --script train.py --fix" in terminal.text) is declines
        assert ("accelerator" in (folder / "train.py").read_text()) is not declines
    assert (folder / "train.py.bak").exists() or list(folder.glob("train.py*bak*"))


def test_a_reader_that_has_enough(folder: Path, tmp_path: Path) -> None:
    """`| head -1`: no message, and nothing is written."""
    before = (folder / "train.py").read_text()
    shell = f"{sys.executable} -m mgpu doctor --script train.py --fix --dry-run | head -1"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=folder, env=environment(tmp_path / "home"), capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.startswith("train.py for any number of ranks"), done.stderr) == (True, "")
    assert (folder / "train.py").read_text() == before
