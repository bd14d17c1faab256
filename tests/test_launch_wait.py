"""`mgpu launch --wait SEC`: until no other process uses the GPUs, on a described machine whose process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import fake_nvml
from tests.conftest import Run, environment
from tests.fake_nvml import FAULTS

CONFIG = "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 1\nmixed_precision: bf16\n"


@pytest.fixture
def start(library: Path, tmp_path: Path) -> subprocess.Popen[str]:
    """A launch that waits for a GPU that is in use."""
    (tmp_path / "accelerate.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text("import torch\n")
    described = fake_nvml.machine(tmp_path / "described", "a100_sxm_x4", FAULTS["busy"])
    env = environment(tmp_path, fake_nvml.environment(library, described))
    command = [sys.executable, "-m", "mgpu", "launch", "--wait", "60", "--dry-run", "train.py"]
    return subprocess.Popen(command, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def first_line(run: subprocess.Popen[str]) -> str:
    assert run.stderr is not None
    line = run.stderr.readline()
    assert line.startswith("mgpu: waiting up to 1 min for GPU "), line
    return line


def test_it_goes_on_when_the_other_process_ends(start: subprocess.Popen[str], tmp_path: Path) -> None:
    first_line(start)
    fake_nvml.machine(tmp_path / "described", "a100_sxm_x4")
    out, err = start.communicate(timeout=60)
    assert "mgpu: free after" in err and "nothing reserves the GPUs until the start" in err
    assert "in use" not in out


def test_ctrl_c_ends_the_wait(start: subprocess.Popen[str]) -> None:
    first_line(start)
    threading.Timer(0.1, start.send_signal, [signal.SIGINT]).start()
    out, err = start.communicate(timeout=60)
    assert start.returncode == 130
    assert "Traceback" not in err and out == ""


def test_after_the_time_it_is_refused_as_without_waiting(on: Run, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text("import torch\n")
    done = on("a100_sxm_x4", [FAULTS["busy"]], "launch", "--wait", "1", "--unverified", "refuse", "train.py")
    assert done.returncode == 125
    assert "still in use after" in done.stderr
    refused = on("a100_sxm_x4", [], "launch", "--wait", "1", "--slurm", "train.py")
    assert refused.returncode == 2 or "--wait" in refused.stderr
