"""Does a launch end as its training ended, with the right cause and the right rank, and leave nothing behind?

Real launches of two ranks through accelerate and torchrun, without torch in the ranks. What ends by itself is started
together with the others, once for this file.
"""

from __future__ import annotations

import errno
import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mgpu import errors
from mgpu.launch import hand_off, report, run_outcome
from mgpu.launch.request import Request
from mgpu.process import processes
from mgpu.process.command import Command
from mgpu.snapshot import Snapshot
from tests.checks.facts import run
from tests.conftest import ROOT, Run, environment, missing
from tests.scripts import ONE_PROCESS, SCRIPTS, kill_all, marked, start, wait_for, write_config
from tests.terminal import Terminal
from tests.test_schema import RUN

TORCHRUN = ("--launcher", "torchrun")


@dataclass(frozen=True)
class End:
    """How one launch ended."""

    code: int
    said: str
    document: dict[str, Any]
    folder: Path

    @property
    def cause(self) -> str | None:
        """The id."""
        found = self.document.get("probable_cause")
        return found["id"] if found else None

    @property
    def first(self) -> tuple[int | None, str | None, int | None]:
        """The first rank to fail: which, its signal, its exit code."""
        found = self.document.get("first_failure") or {}
        return found.get("rank"), found.get("signal"), found.get("exit")


# What is started, and in which way it ends: mgpu's options and the script's arguments.
RUNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "well": (TORCHRUN, ("well",)),
    "exit": (TORCHRUN, ("exit", "3")),
    "raise": ((), ("raise",)),
    "killed": ((), ("SIGKILL",)),
    "crashed": (TORCHRUN, ("SIGSEGV",)),
    "aborted": (TORCHRUN, ("SIGABRT",)),
    "exits": (TORCHRUN, ("exits",)),
    "says": (TORCHRUN, ("says",)),
    "early": (TORCHRUN, ("early",)),
    "command": (TORCHRUN, ("command",)),
    "arguments": (TORCHRUN, ("arguments", "--lr")),
    "memory": (TORCHRUN, ("memory",)),
    "alone": (("--gpus", "1"), ("exit", "3")),
    "untold": (("--gpus", "1", "--no-triage"), ("SIGKILL",)),
    "script": ((), ()),
}


def prepared(folder: Path) -> Path:
    (folder / "tmp").mkdir(parents=True)
    shutil.copy(SCRIPTS / "comes_to_its_end.py", folder / "train.py")
    shutil.copy(SCRIPTS / "waits.py", folder)
    write_config(folder)
    return folder


def launch(folder: Path, options: tuple[str, ...], arguments: tuple[str, ...], **more: Any) -> subprocess.Popen[str]:
    script = "train.py" if arguments else "gone.py"
    env = {"TOKEN": "hf_abcdefghijklmnopqrstuvwxyz", "TMPDIR": str(folder / "tmp")} | dict(more.pop("env", {}))
    given = ("--unverified", "allow", "--log-dir", "logs", "--json-result", "result.json")
    return start("launch", *given, *options, script, *arguments, folder=folder, env=env, **more)


def ended(runner: subprocess.Popen[str], folder: Path, limit_s: float = 120) -> End:
    _, said = runner.communicate(timeout=limit_s)
    document = json.loads((folder / "result.json").read_text())
    RUN.validate(document)
    assert document["exit_code"] == runner.returncode
    assert not marked(folder)
    assert not list((folder / "tmp").glob("torchelastic_*"))
    return End(runner.returncode, said, document, folder)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, End]]:
    """Every launch of RUNS, two at a time."""
    base = tmp_path_factory.mktemp("ends")
    folders = {name: prepared(base / name) for name in RUNS}
    found: dict[str, End] = {}
    try:
        waiting: list[tuple[str, subprocess.Popen[str]]] = []
        for name, (options, arguments) in RUNS.items():
            waiting.append((name, launch(folders[name], options, arguments)))
            if len(waiting) == 2:
                first, runner = waiting.pop(0)
                found[first] = ended(runner, folders[first])
        for name, runner in waiting:
            found[name] = ended(runner, folders[name])
        yield found
    finally:
        for folder in folders.values():
            kill_all(folder)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    yield prepared(tmp_path)
    kill_all(tmp_path)


def test_well(ends: Mapping[str, End]) -> None:
    end = ends["well"]
    assert (end.code, end.cause, end.document["first_failure"]) == (0, None, None)
    assert re.search(r"^mgpu: finished, exit 0, \d+ s$", end.said, re.MULTILINE)
    assert "Probable" not in end.said and "Rerun" not in end.said


@pytest.mark.parametrize(
    ("name", "code", "cause", "first"),
    [
        ("exit", 3, "run_rank_failed", (1, None, 3)),
        ("raise", 1, "log_exception", (1, None, 1)),
        ("killed", 137, "run_rank_killed", (1, "SIGKILL", 137)),
        ("crashed", 139, "run_rank_crashed", (1, "SIGSEGV", 139)),
        ("aborted", 134, "run_rank_aborted", (1, "SIGABRT", 134)),
        ("arguments", 2, "log_argument_unknown", (1, None, 2)),
        ("exits", 134, "run_rank_aborted_at_exit", (1, "SIGABRT", 134)),
        ("says", 1, "run_rank_failed", (1, None, 1)),
        ("command", 1, "log_command_failed", (1, None, 1)),
    ],
)
def test_exit_status_cause_and_rank(ends: Mapping[str, End], name: str, code: int, cause: str, first: Any) -> None:
    end = ends[name]
    assert (end.code, end.cause, end.first) == (code, cause, first), end.said
    assert f"[{cause}]" in " ".join(end.said.split())
    assert end.said.count("Probable cause") == end.said.count("First to fail") == 1
    assert "rank 0 stopped because rank 1" in end.said


def test_the_last_words_of_the_rank_that_failed_first(ends: Mapping[str, End]) -> None:
    """… although the other rank printed its lost connection after them."""
    text = " ".join(ends["says"].said.partition("end of your program")[2].split())
    assert "Last output the dataset is empty, giving up" in text
    assert "[log_peer_gone]" not in text


def test_a_rank_that_finished_is_not_blamed_for_an_exit_of_another(ends: Mapping[str, End]) -> None:
    end = ends["early"]
    assert (end.code, end.cause, end.first) == (5, "run_rank_failed", (0, None, 5)), end.said
    text = " ".join(end.said.split())
    assert "rank 1 had finished before, without an error" in text and "rank 1 stopped" not in text


def test_the_box(ends: Mapping[str, End]) -> None:
    end = ends["raise"]
    box = end.said.partition("end of your program")[2]
    assert re.search(r"^mgpu: FAILED after \d+ s, exit 1$", box, re.MULTILINE)
    words = " ".join(box.split())
    assert "First to fail rank 1 (host " in words and "ValueError: the loss is odd at train.py:" in words
    assert "(direct cause: KeyError: 'loss')" in words and "Evidence run.log:" in words
    assert f"Log logs/run.log Rerun mgpu launch {'--unverified allow'}" in words
    assert json.loads((end.folder / "logs" / "result.json").read_text()) == end.document
    assert (end.folder / "logs" / "result.json").stat().st_mode & 0o077 == 0


def test_the_report_of_a_run_that_failed(ends: Mapping[str, End], mgpu: Run, tmp_path: Path) -> None:
    """A page and an archive; the archive gives the same cause and verdict in another folder."""
    folder = ends["raise"].folder
    home = {"HOME": str(folder / "home"), "XDG_STATE_HOME": str(folder / "home" / "state")}
    done = mgpu("launch", "--report", "--json-result", "case.json", cwd=folder, env=home)
    assert done.returncode == 0 and "FAILED" in done.stdout, done.stderr
    assert re.search(r"^Script     \S", done.stdout, re.MULTILINE) and max(map(len, done.stdout.splitlines())) <= 80
    (page,), (archive,) = folder.glob("mgpu-report-*.html"), folder.glob("mgpu-report-*.mgpu.tar.gz")
    assert page.name in done.stdout and (page.stat().st_mode & 0o777) == 0o600
    case = json.loads((folder / "case.json").read_text("utf-8"))
    assert case["probable_cause"]["id"] == ends["raise"].cause and case["run"]["exit_code"] == 1
    shown = page.read_text("utf-8")
    assert case["headline"]["text"].split(" · ")[0] in html.unescape(shown)
    assert "hf_abcdefghijklmnopqrstuvwxyz" not in shown and case["host"]["name"].startswith("host-")
    assert [one["rank"] for one in case["run"]["courses"]] == [0, 1] and case["run"]["tail"]
    again = json.loads(mgpu("doctor", "--from", str(archive), "--json").stdout)
    assert (again["verdict"], again["exit_code"]) == (case["verdict"], case["exit_code"])
    assert again["probable_cause"]["id"] == case["probable_cause"]["id"]
    gone = mgpu("launch", "--report", "--attach", cwd=folder, env=home)
    assert gone.returncode == 2 and "choose one" in gone.stderr
    job = mgpu("launch", "--slurm", "--report", "12", cwd=folder, env=home)
    assert job.returncode == 2 and "--log OUTPUT --format html" in job.stderr


def test_out_of_memory_by_a_limit_of_the_process(ends: Mapping[str, End]) -> None:
    end = ends["memory"]
    assert (end.code, end.cause, end.first) == (1, "log_host_memory_refused", (1, None, 1)), end.said
    assert "MemoryError" in (end.document["first_failure"]["exception"] or "")


def test_no_triage(ends: Mapping[str, End]) -> None:
    end = ends["untold"]
    assert (end.code, end.cause) == (137, None)
    assert "Probable cause" not in end.said and "FAILED" in end.said


def test_exit_code_of_one_process(ends: Mapping[str, End]) -> None:
    """accelerate's launcher for one process makes 1 of it."""
    end = ends["alone"]
    assert (end.code, end.first) == (3, (0, None, 3)), end.said


def test_script_that_is_missing(ends: Mapping[str, End]) -> None:
    end = ends["script"]
    assert end.code == errors.NOT_FOUND and "gone.py" in end.said
    assert end.document["phase"] == "preflight"


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A control group of 500 MiB, as a container or a job has one."""
    root = Path("/sys/fs/cgroup")
    old = root / "memory"
    group = (old if old.is_dir() else root) / f"mgpu-ends-{os.getpid()}"
    made = False
    try:
        group.mkdir()
        made = True
        (group / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")).write_text(str(500 << 20))
    except OSError as error:
        if made:
            group.rmdir()
        missing(f"no control group can be made here: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_out_of_memory_in_a_control_group(small_cgroup: Path, here: Path) -> None:
    command = [sys.executable, "-m", "mgpu", "launch", "--unverified", "allow", "--json-result", "result.json"]
    line = f"echo $$ > {small_cgroup}/cgroup.procs; exec {' '.join(command)} --gpus 1 train.py cgroup"
    runner = subprocess.Popen(
        ["sh", "-c", line], cwd=here, env=environment(here / "home"), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = ended(runner, here)
    assert (end.code, end.cause, end.first) == (137, "run_out_of_memory", (0, "SIGKILL", 137)), end.said
    assert end.document["oom_kills"] >= 1


# Stopped by hand


def waiting(folder: Path, runner: subprocess.Popen[str], ranks: int = 2) -> None:
    wait_for(lambda: all((folder / f"at.{rank}").exists() for rank in range(ranks)) or runner.poll() is not None)
    assert runner.poll() is None


def test_hang_that_is_interrupted_names_the_rank_that_was_stopped(here: Path) -> None:
    runner = launch(here, TORCHRUN, ("hang",))
    waiting(here, runner)
    pid = int((here / "at.1").read_text())
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    wait_for(lambda: "rank 1" in (here / "logs" / "run.log").read_text("utf-8", "replace"))
    runner.send_signal(signal.SIGINT)
    end = ended(runner, here)
    assert (end.code, end.cause) == (130, "run_rank_silent"), end.said
    assert "rank 1 is stopped (SIGSTOP)" in end.document["probable_cause"]["title"]
    assert re.search(r"rank 0 (at train\.py:\d+ )?exited when the run was stopped", " ".join(end.said.split()))
    assert re.search(r"^mgpu: stopped by SIGINT after \d+ s, exit 130$", end.said, re.MULTILINE)


def test_hang_that_is_terminated(here: Path) -> None:
    runner = launch(here, ("--gpus", "1"), ("wait",))
    waiting(here, runner, 1)
    runner.send_signal(signal.SIGTERM)
    end = ended(runner, here)
    assert (end.code, end.cause) == (143, "run_stopped")
    assert end.document["signalled"] == "SIGTERM"


def test_terminal_that_is_closed(here: Path) -> None:
    write_config(here, ONE_PROCESS)
    given = ("launch", "--unverified", "allow", "--yes", "--log-dir", "logs", "train.py", "wait")
    terminal = Terminal([sys.executable, "-m", "mgpu", *given], env=environment(here / "home"), cwd=here)
    wait_for(lambda: terminal._read() and (here / "at.0").exists())
    terminal.child.ptyproc.fileobj.close()  # as when a window is closed, or ssh is cut
    _, status = wait_for(lambda: (got := os.waitpid(terminal.child.pid, os.WNOHANG))[0] and got, 60)
    assert os.waitstatus_to_exitcode(status) == 129
    assert not marked(here)
    stored = here / "logs" / "result.json"
    document = json.loads(stored.read_text())
    assert (document["exit_code"], document["signalled"]) == (129, "SIGHUP")
    assert document["probable_cause"]["id"] == "run_stopped"


# What is not even started


def test_port_that_is_taken(here: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        end = ended(launch(here, (*TORCHRUN, "--port", str(taken.getsockname()[1])), ("well",)), here)
    assert (end.code, end.cause) == (1, "log_port_taken"), end.said
    assert end.document["first_failure"] is None


def test_launcher_that_is_missing(here: Path) -> None:
    """An accelerate of which only the folder is left."""
    (here / "broken" / "accelerate").mkdir(parents=True)
    (here / "broken" / "accelerate" / "__init__.py").touch()
    runner = launch(here, ("--launcher", "accelerate"), ("well",), env={"PYTHONPATH": f"{here / 'broken'}:{ROOT}"})
    end = ended(runner, here)
    assert (end.code, end.cause) == (1, "log_submodule_missing"), end.said
    assert end.document["first_failure"] is None and end.document["ranks"] == []


# What the end cannot be told by


@pytest.mark.parametrize(
    "text", ['{"message": {"message": "the cause"}}', '{"message": "the cause\\nmore"}', json.dumps(
        {"message": {"message": "the cause", "extraInfo": {"py_callstack": "x" * (100 << 10)}}}
    )]
)  # fmt: skip
def test_an_error_file(tmp_path: Path, text: str) -> None:
    assert _error_of(tmp_path, text) == {0: "the cause"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '"x"', "null", '{"message": null}', '{"message": 3}', "[1]", "\0"])
def test_an_error_file_that_is_something_else(tmp_path: Path, text: str) -> None:
    assert _error_of(tmp_path, text) == {}


def _error_of(folder: Path, text: str) -> dict[int, str]:
    path = folder / "error.json"
    path.write_text(text)
    after = run_outcome.Aftermath()
    after._read_error(0, processes.Rank(1, str(path)))
    return after._errors


@pytest.mark.parametrize(
    ("number", "told"), [(errno.EAGAIN, True), (errno.ENOSPC, True), (errno.EPIPE, False), (errno.EIO, False)]
)
def test_an_end_that_cannot_be_told_says_so(
    number: int, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*args: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(run_outcome.Aftermath, "run", fails)
    monkeypatch.delenv("MGPU_DEBUG", raising=False)
    gpus = SimpleNamespace(result=lambda: SimpleNamespace(gpus=None, after_s=None, gap=None, quiet_s=None))
    ended: Any = SimpleNamespace(seconds=1.0, timed_out=False)
    watches: Any = SimpleNamespace(gpus=gpus, after=run_outcome.Aftermath())
    hand_off._report_end(Request(), Command(("true",)), Path("."), Snapshot(), ended, watches, 3)
    said = capsys.readouterr().err
    assert ("could not determine why the run ended" in said and "the training exited with code 3" in said) is told
    assert bool(said) is told


@pytest.mark.parametrize(
    ("output", "own_line"), [(b"step 1", False), (b"50%\r", False), (b"done\n", True), (b"", True)]
)
def test_the_report_starts_on_its_own_line(
    output: bytes, own_line: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_bytes(output)
    report.report_end(Request(), Command(("true",)), tmp_path, run())
    assert capsys.readouterr().err.startswith("---" if own_line else "\n---")


def test_no_process_can_be_started_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of processes: the kernel's log is not known, and the rest is told."""

    def fails(*args: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("mgpu.process.child_process.start", fails)
    assert run_outcome._kernel(1.0) == (None, None)
