"""Do the probes start before the options are read exactly where they will be wanted, and is none left behind?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu import cli
from mgpu.cli import early_probes
from mgpu.doctor import run as doctor_run
from mgpu.probes import prefetch, runner
from tests.conftest import ROOT, environment


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    asked: list[Any] = []

    def start(probes: Any, **_: Any) -> list[Any]:
        asked.append(probes)
        return [object()]

    monkeypatch.setattr(runner, "start", start)
    yield asked
    prefetch.take()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("doctor --quick", None),  # starts its own
        ("configure", None),
        ("configure --validate a.yaml b.yaml --no-loader", runner.OF_CONFIGS),
        ("configure --validate --target 4xA100", None),
        ("configure --validate a.yaml --from m.json", None),
        ("configure --validate --help", None),
        ("configure --show-origin a.yaml", None),
        ("smoke-test", runner.QUICK),
        ("smoke-test --cpu 2 --level quick", runner.QUICK),
        ("smoke-test --show", None),
        ("smoke-test --json-schema", None),
        ("smoke-test --help", None),
        ("", None),
        ("--version", None),
    ],
)
def test_what_is_started(line: str, wanted: Any, started: list[Any]) -> None:
    early_probes.start(line.split())
    assert started == ([] if wanted is None else [wanted])
    assert (prefetch.take() is not None) is (wanted is not None)
    assert prefetch.take() is None


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("doctor", runner.DEFAULT),
        ("doctor --quick", runner.QUICK),
        ("doctor -v --quick --json -o x", runner.QUICK),
        ("doctor --save m.json --compare n.json", runner.DEFAULT),
        ("doctor --deep", runner.DEFAULT),
        ("doctor --from m.json", None),
        ("doctor --from=m.json", None),
        ("doctor --explain shm_too_small", None),
        ("doctor --list-checks", None),
        ("doctor --json-schema", None),
        ("doctor --help", None),
        ("doctor -h", None),
        ("doctor -vh", None),
        ("doctor --log a.log b.log", None),
        ("doctor --no-such-option", None),
    ],
)
def test_what_the_doctor_starts(
    line: str, wanted: Any, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(runner, "end", ended.append)
    for name in ("run", "list_checks", "explain"):
        monkeypatch.setattr(doctor_run, name, lambda *_: 0)
    cli.run(line.split())
    assert started == ([] if wanted is None else [wanted])
    assert len(ended) == len(started)


@pytest.mark.parametrize("line", ["doctor --quick --no-such-option", "doctor --timeout", "doctor --format yaml"])
def test_a_wrong_command_line_leaves_no_child_behind(line: str, tmp_path: Path) -> None:
    env = environment(tmp_path / "home", {"MGPU_MARK": str(tmp_path)})
    done = subprocess.run(
        [sys.executable, "-m", "mgpu", *line.split()], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MGPU_MARK") == str(tmp_path):
                left.append(process)
        except psutil.Error:
            continue
    assert left == []
