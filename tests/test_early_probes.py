"""Do the probes start before the options are read exactly where they will be wanted, and is none left behind?"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu import cli
from mgpu.cli import app, early_probes
from mgpu.cli.doctor import _FLAGS, doctor, flags_alone
from mgpu.doctor import run as doctor_run
from mgpu.doctor.request import Request
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
        ("doctor --python /usr/bin/python3", None),
        ("doctor --path /data --quick", None),
        ("doctor --exit-style prolog", None),
        ("doctor --help", None),
        ("doctor -h", None),
        ("doctor -vh", None),
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


@pytest.mark.parametrize(
    "line", ["", "--quick", "--json", "-v", "--verbose --strict", "--quick --quick --json", "--deep", "--quick --deep"]
)
def test_flags_alone_mean_what_the_parser_makes_of_them(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser is left out where it has nothing to parse."""
    seen: list[Any] = []
    monkeypatch.setattr(prefetch, "take", list)
    monkeypatch.setattr(runner, "start", lambda *_, **__: [])

    def run(request: Request) -> int:
        seen.append(replace(request, began=None))
        return 0

    monkeypatch.setattr(doctor_run, "run", run)
    assert cli.run(["doctor", *line.split()]) == 0
    monkeypatch.setattr(app, "flags_alone", lambda _: None)
    assert cli.run(["doctor", *line.split()]) == 0
    assert seen[0] == seen[1]


@pytest.mark.parametrize("line", ["--help", "--only x", "--quick --from x", "x", "--quik", "--timeout=3"])
def test_everything_else_goes_to_the_parser(line: str) -> None:
    assert flags_alone(line.split()) is None


def test_flags_are_the_parsers_own() -> None:
    parameters = inspect.signature(doctor).parameters
    assert all(parameters[name].default is False for name in _FLAGS.values())
