"""What the tests share: checks asked by id, the mgpu command as a user runs it, tools that may be missing."""

from __future__ import annotations

import compileall
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Check
from mgpu.engine import Outcome
from mgpu.snapshot import Snapshot
from tests import fake_nvml

ROOT = Path(__file__).resolve().parents[1]
STARTUP = ROOT / "tests" / "scripts" / "startup"  # has a sitecustomize
PYTHONPATH = f"{STARTUP}{os.pathsep}{ROOT}"  # of what the tests start
CHECKS: dict[str, Check] = {check.id: check for check in engine.load()}
AREAS: tuple[str, ...] = sys.modules["mgpu.checks"].ORDER


def pytest_configure(config: pytest.Config) -> None:
    """Compile mgpu once. The processes of the tests write no bytecode (`environment`) but read it: without it each of
    the thousands compiles a hundred modules, which is half of its work."""
    sys.dont_write_bytecode = False  # of the tests themselves, with their asserts rewritten: 10 s for each worker
    gc.set_threshold(100_000)  # with 20,000 tests a collection takes a second, and finds nothing
    if not hasattr(config, "workerinput"):
        for folder in ("mgpu", "checks", "tests/scripts"):
            compileall.compile_dir(ROOT / folder, quiet=2, workers=2)


# Beside tests/checks/: what starts no process, or few.
_QUICK = frozenset({
    "test_architecture", "test_catalogue", "test_changes", "test_engine", "test_exit_code", "test_flow", "test_formats",
    "test_nccl_log", "test_report", "test_sbatch", "test_gpu_models", "test_hosts_units",
})  # fmt: skip
_LONG = frozenset({"test_each_kind_of_failure_that_people_report_has_its_cause", "test_redaction_changes_no_verdict"})


# Seconds of wall time each, the longest first. They are started first: one that is started last runs alone at the end.
LONG_FILES = (
    "test_hosts_launch", "test_smoke_faults", "test_hang", "test_slurm_hang", "test_smoke", "test_rehearsal_launch",
    "test_hostile", "test_foreign_launch", "test_rehearsal", "test_slurm_ranks", "test_smoke_planted",
    "test_slurm_hosts", "test_hosts_hang", "test_slurm_preflight", "test_slurm_jobs", "test_hang_launch",
    "test_smoke_hosts", "test_packaging", "test_snapshot", "test_hosts_ends",
    "test_hosts_faults", "test_rank_facts", "test_port", "test_launch", "test_launch_ends", "test_ssh_hosts",
    "test_slurm_launch", "test_slurm_hooks", "test_slurm_configure", "test_doctor", "test_guide", "test_hang_hosts",
    "test_file_reading", "test_diagnosis", "test_log_noise", "test_left_behind", "test_smoke_watch", "test_recorder",
    "test_gpu_stress", "test_smoke_bandwidth", "test_smoke_checkpoint", "test_smoke_training", "test_memory",
    "test_machines", "test_corruption", "test_fuzz", "test_gate", "test_fixes_fed_back", "test_config_fuzz",
    "test_model_lookup", "test_answers", "test_documentation", "test_style", "test_shown_commands", "test_secrets",
    "test_every_check", "test_triage",
)  # fmt: skip


def _is_quick(path: Path) -> bool:
    return path.parent.name == "checks" or path.stem in _QUICK


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` does not even import the other files, which takes longer than its tests."""
    others = config.getoption("markexpr") == "quick" and collection_path.name.startswith("test_")
    return True if others and not _is_quick(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first. `-m quick`: every check and most pure functions, within a minute."""
    place = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))
    for item in items:
        if _is_quick(item.path) and item.name not in _LONG:
            item.add_marker("quick")


def pytest_collection_finish() -> None:
    """What was collected stays: no collection of garbage looks at it again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, in the order of the items: what its tests share is then made once.

    None, which leaves it to xdist, for one of the other ways (`--dist`).
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # else by the number of tests
    return LoadFileScheduling(config, log)


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
    return engine.run_check(CHECKS[check_id], Snapshot(**facts))


@pytest.fixture
def ask() -> Callable[..., Outcome]:
    """Ask one check by its id: `ask("shm_too_small", system=…)`; exactly one outcome is expected."""

    def one(check_id: str, **facts: Any) -> Outcome:
        outcomes = ask_all(check_id, **facts)
        assert len(outcomes) == 1, outcomes
        return outcomes[0]

    return one


@dataclass(frozen=True)
class Forked:
    """How a command line ended that was run in a fork."""

    code: int | str  # "killed": it took too long
    stdout: str
    stderr: str
    seconds: float  # of the processor
    memory: int  # KiB


class Forks:
    """One interpreter with all of mgpu imported, which forks for every command line: see `scripts/forks_mgpu.py`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str | None = os.devnull,
        timeout: float = 90,
        limited: bool = False,
    ) -> Forked:
        """Run `mgpu ARGV`."""
        if self.process is None:
            self.process = self._started()
        assert self.process.stdin is not None and self.process.stdout is not None
        texts = self.folder / "stdout", self.folder / "stderr"
        order = {
            "argv": argv, "folder": str(cwd), "environment": dict(env), "stdin": stdin, "stdout": str(texts[0]),
            "stderr": str(texts[1]), "timeout": timeout, "limited": limited,
        }  # fmt: skip
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        ended: dict[str, Any] = json.loads(self.process.stdout.readline())
        stdout, stderr = (path.read_text("utf-8", "replace") for path in texts)
        return Forked(ended["code"], stdout, stderr, ended["seconds"], ended["memory"])

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "tests" / "scripts" / "forks_mgpu.py")]
        env = environment(self.folder)
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=self.folder
        )

    def end(self) -> None:
        """End the interpreter."""
        if self.process is not None:
            self.process.communicate()


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs command lines of mgpu at a fraction of the cost of a new process."""
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.end()


Run = Callable[..., "subprocess.CompletedProcess[str]"]
# What a fork cannot show: how Python and mgpu start, what is imported, what the loader of libraries finds.
_STARTS_NOTHING = {"--dry-run", "--print-command"}
_OF_THE_START = ("PYTHON", "LC_", "LANG", "LD_PRELOAD")


@pytest.fixture
def mgpu(tmp_path: Path, forks: Forks) -> Run:
    """Run `python -m mgpu ARGS` as a user would: own state and home folder, cwd = tmp_path, no terminal.

    `doctor`, `configure` and whatever starts nothing run in a fork of an interpreter that has imported mgpu, which is
    several times as fast, unless the call has `fresh=True` or changes what counts at the start of a process.

    Keywords: env (added), without (variables removed), cwd, stdin, timeout, python, fresh.
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
        fresh: bool = False,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        changed = [*(env or {}), *without]
        if (
            (arguments[:1] in (("doctor",), ("configure",)) or _STARTS_NOTHING & {*arguments})
            and not (fresh or options or any(name.startswith(_OF_THE_START) for name in changed))
            and python == sys.executable
        ):
            everything = environment(home, env, without)
            done = forks.run(arguments, cwd=cwd or tmp_path, env=everything, timeout=timeout)
            if not isinstance(done.code, int):
                raise subprocess.TimeoutExpired(["mgpu", *arguments], timeout, done.stdout, done.stderr)
            return subprocess.CompletedProcess(["mgpu", *arguments], done.code, done.stdout, done.stderr)
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
        "PYTHONPATH": PYTHONPATH,
        "PYTHONDONTWRITEBYTECODE": "1",
        **(added or {}),
    }
    return {name: value for name, value in clean.items() if name not in without}
