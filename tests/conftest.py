"""What the tests share: checks asked by id, the mgpu command as a user runs it, tools that may be missing."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Check
from mgpu.engine import Outcome
from mgpu.snapshot import Snapshot
from tests import fake_nvml

ROOT = Path(__file__).resolve().parents[1]
CHECKS: dict[str, Check] = {check.id: check for check in engine.load()}
AREAS: tuple[str, ...] = sys.modules["mgpu.checks"].ORDER


def pytest_configure(config: pytest.Config) -> None:
    """Compile mgpu once. The processes of the tests write no bytecode (`environment`) but read it: without it each of
    the thousands compiles a hundred modules, which is half of its work."""
    if not hasattr(config, "workerinput"):
        for folder in ("mgpu", "checks", "tests/scripts"):
            compileall.compile_dir(ROOT / folder, quiet=2, workers=2)


# Beside tests/checks/: what starts no process, or few.
_QUICK = frozenset({
    "test_architecture", "test_catalogue", "test_compare", "test_engine", "test_exit_code", "test_flow", "test_formats",
    "test_nccl_log", "test_report", "test_slurm_writing", "test_target",
})  # fmt: skip
_LONG = frozenset({"test_each_kind_of_failure_that_people_report_has_its_cause", "test_redaction_changes_no_verdict"})


def _is_quick(path: Path) -> bool:
    return path.parent.name == "checks" or path.stem in _QUICK


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` does not even import the other files, which takes longer than its tests."""
    others = config.getoption("markexpr") == "quick" and collection_path.name.startswith("test_")
    return True if others and not _is_quick(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m quick`: every check and most pure functions, within a minute."""
    for item in items:
        if _is_quick(item.path) and item.name not in _LONG:
            item.add_marker("quick")


def missing(reason: str) -> None:
    """Skip a test whose tool is not here; under MGPU_TESTS=all (as in .ci/run) that is a failure."""
    if os.environ.get("MGPU_TESTS") == "all":
        pytest.fail(f"MGPU_TESTS=all, but {reason}")
    pytest.skip(reason)


def need(tool: str) -> str:
    """The path of a program the test cannot do without."""
    path = shutil.which(tool)
    if path is None:
        missing(f"{tool} is not installed")
    assert path is not None
    return path


def ask_all(check_id: str, **facts: Any) -> list[Outcome]:
    """Every outcome of one check, asked by its id with facts as literals."""
    return engine.ask(CHECKS[check_id], Snapshot(**facts))


@pytest.fixture
def ask() -> Callable[..., Outcome]:
    """Ask one check by its id: `ask("shm_too_small", system=…)`; exactly one outcome is expected."""

    def one(check_id: str, **facts: Any) -> Outcome:
        outcomes = ask_all(check_id, **facts)
        assert len(outcomes) == 1, outcomes
        return outcomes[0]

    return one


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mgpu(tmp_path: Path) -> Run:
    """Run `python -m mgpu ARGS` as a user would: own state and home folder, cwd = tmp_path, no terminal.

    Keywords: env (added), without (variables removed), cwd, stdin, timeout, python.
    """
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)

    def run(
        *arguments: str,
        env: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        cwd: Path | None = None,
        timeout: float = 120,
        python: str = sys.executable,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.run(
            [python, "-m", "mgpu", *arguments],
            env=environment(home, env, without),
            cwd=cwd or tmp_path,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake libnvidia-ml.so.1, compiled once."""
    return fake_nvml.build(tmp_path_factory.getbasetemp() / "fake_nvml")


@pytest.fixture
def on(mgpu: Run, library: Path, tmp_path: Path) -> Run:
    """Run mgpu on a described machine: `on("a100_sxm_x4", [FAULTS["ecc"]], "doctor", "--quick")`."""

    def run(name: str, lines: Sequence[str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        described = fake_nvml.machine(tmp_path / "described", name, *lines)
        env = fake_nvml.environment(library, described) | options.pop("env", {})
        return mgpu(*arguments, env=env, **options)

    return run


def environment(home: Path, added: Mapping[str, str] | None = None, without: Sequence[str] = ()) -> dict[str, str]:
    """A clean user's environment: nothing of the CI's, the source tree importable, everything private to the test."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ
    }
    clean = {
        **kept,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(added or {}),
    }
    return {name: value for name, value in clean.items() if name not in without}
