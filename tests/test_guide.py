"""Does a beginner come from nothing to a training that learned something, and is told at each step what comes next?"""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.cli import guide
from tests.conftest import Run, environment
from tests.documentation import DOCS, blocks, files

# Each screen of bare mgpu names the same four steps.
TUTORIAL = DOCS / "tutorial.md"
STEPS = ("mgpu doctor", "mgpu configure", "mgpu smoke-test", "mgpu launch")


def state(screen: str, command: str) -> str:
    """What bare mgpu says of one step."""
    found = re.search(rf"^  {command} +(.*)$", screen, re.MULTILINE)
    assert found, screen
    return found.group(1)


def following(screen: str) -> str:
    """The command that bare mgpu proposes."""
    found = re.search(r"^Next:  (.*)$", screen, re.MULTILINE)
    assert found, screen
    return found.group(1)


def test_from_nothing_to_a_trained_model(mgpu: Run, tmp_path: Path) -> None:
    """The tutorial's script and commands, in its order."""
    here = tmp_path / "project"
    here.mkdir()
    (here / "train.py").write_text(files(TUTORIAL)["train.py"], "utf-8")
    look, change, configure, smoke, launch = (
        command for block in blocks(TUTORIAL) if block.is_run for _, *command in block.commands
    )

    def bare() -> str:
        done = mgpu(cwd=here)
        assert (done.returncode, done.stderr) == (errors.READY, "")
        assert max(map(len, done.stdout.splitlines())) <= 80
        for command in STEPS:
            assert state(done.stdout, command)
        return done.stdout

    screen = bare()
    assert "not run yet" in state(screen, "mgpu doctor")
    assert "no ./accelerate.yaml" in state(screen, "mgpu configure")
    assert following(screen) == "mgpu doctor"

    doctor = mgpu(*look, cwd=here)
    assert doctor.returncode == errors.NO_GPU, doctor.stdout + doctor.stderr
    screen = bare()
    assert "no GPU here, just now" in state(screen, "mgpu doctor")
    assert following(screen) == "mgpu configure"

    changed = mgpu(*change, cwd=here)
    assert changed.returncode == errors.READY and "Ported train.py" in changed.stdout, changed.stdout + changed.stderr
    assert all(line in changed.stdout for line in re.findall(r"^[-+] .*", _difference(), re.MULTILINE))

    configured = mgpu(*configure, cwd=here)
    assert configured.returncode == errors.READY, configured.stdout + configured.stderr
    assert "mgpu smoke-test" in configured.stdout
    screen = bare()
    assert "./accelerate.yaml" in state(screen, "mgpu configure")
    assert "not verified" in state(screen, "mgpu smoke-test")
    assert following(screen) == "mgpu smoke-test"

    tested = mgpu(*smoke, cwd=here)
    assert tested.returncode == errors.READY, tested.stdout + tested.stderr
    assert "Next:  mgpu launch train.py" in tested.stdout
    screen = bare()
    assert "verified just now" in state(screen, "mgpu smoke-test")
    assert following(screen) == "mgpu launch train.py"
    again = mgpu(*configure, cwd=here).stdout  # the same file: configure says what bare mgpu says of it
    assert "already up to date" in again and "Not verified" not in again
    assert again.endswith("Verified just now.\nNext:  mgpu launch train.py\n")

    trained = mgpu(*launch, cwd=here)
    assert trained.returncode == 0, trained.stderr
    found = re.search(r"^test accuracy (\d+\.\d) %$", trained.stdout, re.MULTILINE)
    assert found, trained.stdout
    assert float(found.group(1)) >= 95.0
    assert "mgpu: finished, exit 0" in trained.stderr
    assert following(bare()) == "mgpu launch train.py"

    config = here / "accelerate.yaml"
    config.write_text(config.read_text().replace("mixed_precision: 'no'", "mixed_precision: bf16"))
    screen = bare()
    assert "not verified: mixed_precision no -> bf16" in " ".join(screen.split())
    assert following(screen) == "mgpu smoke-test"


def _difference() -> str:
    """The difference that the tutorial shows."""
    return next(block.text for block in blocks(TUTORIAL) if block.language == "diff")


def test_damaged_files_are_no_verdict(mgpu: Run, tmp_path: Path) -> None:
    """A config that cannot be read and a remembered verdict that is no JSON: still four steps, exit 0."""
    (tmp_path / "accelerate.yaml").write_bytes(b"\xff\xfe num_processes: [")
    remembered = tmp_path / "home" / "state" / "mgpu"
    remembered.mkdir(parents=True)
    (remembered / "doctor.json").write_text("[]")
    done = mgpu()
    assert (done.returncode, done.stderr) == (errors.READY, "")
    assert "not run yet" in state(done.stdout, "mgpu doctor")
    assert "not verified" in state(done.stdout, "mgpu smoke-test")


def test_first_step_that_is_not_done() -> None:
    def step(command: str, found: guide.State) -> guide.Step:
        return guide.Step(command, "", found, "")

    done = [step(command, "done") for command in STEPS[:3]]
    last = step(STEPS[3], "todo")
    assert guide.next_step([*done, last]).command == "mgpu launch"
    assert guide.next_step([step(STEPS[0], "trouble"), *done[1:], last]).command == "mgpu doctor"
    assert guide.next_step([done[0], step(STEPS[1], "todo"), done[2], last]).command == "mgpu configure"


def test_a_login_node(mgpu: Run, tmp_path: Path) -> None:
    """No GPU, a Slurm: the config is to be for its nodes; with that config the last step is the job's."""
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "sbatch").symlink_to("/bin/false")
    remembered = tmp_path / "home" / "state" / "mgpu"
    remembered.mkdir(parents=True)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    (remembered / "doctor.json").write_text(
        json.dumps({"verdict": "no_gpu", "time": now, "host": None, "python": sys.prefix})
    )
    env = {"PATH": f"{commands}:{os.environ['PATH']}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert following(mgpu(env=env).stdout) == "mgpu configure --slurm"

    (tmp_path / "accelerate.yaml").write_text("# For Slurm: the job script\nnum_machines: 2\nnum_processes: 4\n")
    assert following(mgpu(env=env).stdout) == "mgpu configure --slurm"
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n")
    done = mgpu(env=env)
    assert following(done.stdout) == "mgpu launch --slurm train.sbatch"
    assert "part of the job" in state(done.stdout, "mgpu smoke-test")


def terminal(folder: Path, **variables: str) -> Any:
    """Bare mgpu on a pseudo-terminal of 24 x 80."""
    pexpect = pytest.importorskip("pexpect")
    (folder / "home").mkdir(exist_ok=True)
    env = environment(folder / "home", {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **variables})
    return pexpect.spawn(
        sys.executable, ["-m", "mgpu"], cwd=str(folder), env=env, encoding="utf-8", timeout=30, dimensions=(24, 80)
    )


def ended(child: Any) -> int | None:
    """The exit code, once the terminal is closed."""
    import pexpect

    child.expect(pexpect.EOF)
    child.close()
    status: int | None = child.exitstatus
    return status


@pytest.mark.parametrize(
    "keys", ["\x1b", "\x1b[B\x1b[B\x1b[B\x1b[B\r", "\x1b[A\r"], ids=["Esc", "down to Leave", "up to Leave"]
)
def test_leaving_is_no_error(tmp_path: Path, keys: str) -> None:
    child = terminal(tmp_path)
    for command in STEPS:
        child.expect_exact(command)
    child.expect_exact("What next?")
    child.expect_exact("Leave")
    child.send(keys)
    assert ended(child) == errors.READY
    assert not (tmp_path / "accelerate.yaml").exists() and not (tmp_path / "home" / "state").exists()


def test_ctrl_c_at_the_question(tmp_path: Path) -> None:
    child = terminal(tmp_path)
    child.expect_exact("Leave")
    child.send("\x03")
    assert ended(child) == errors.INTERRUPTED


def test_plain_questions_run_the_next_step(tmp_path: Path) -> None:
    """A terminal that cannot move its cursor, and Enter for what is proposed: the doctor runs, and is remembered."""
    child = terminal(tmp_path, TERM="dumb")
    child.expect_exact("1. mgpu doctor")
    child.expect_exact("Enter for 1")
    child.sendline("")
    child.expect_exact("no GPU here, just now")
    child.expect_exact("5. Leave")
    child.sendline("5")
    assert ended(child) == errors.READY
    assert (tmp_path / "home" / "state" / "mgpu" / "doctor.json").exists()


def test_nobody_is_asked_in_ci(tmp_path: Path) -> None:
    assert ended(terminal(tmp_path, CI="true")) == errors.READY
    assert os.listdir(tmp_path) == ["home"]
