"""Does a run survive its terminal, and is it found again: listed, followed, ended, also when its supervisor is gone?"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from mgpu import durations, errors, quantities
from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.launch import detached, follow, list_runs, registry, run_entry, show_runs, stop
from mgpu.launch.registry import Entry
from mgpu.launch.request import Request
from mgpu.process import boot, log_follower, processes, run_log
from mgpu.prompts.question import Question
from mgpu.snapshot import Hang, HangRank
from tests.conftest import Run, environment
from tests.scripts import ONE_PROCESS, SCRIPTS, kill_all, marked, start, wait_for, write_config
from tests.test_schema import STATUS

ALONE = ("launch", "--yes", "--unverified", "allow", "--launcher", "python")
TWO = ("launch", "--yes", "--unverified", "allow", "-c", "two.yaml")
STOPPED = Hang(42.0, 1.0, (HangRank(0, state="sleeping"), HangRank(1, state="stopped")))
OUTPUT = "début False\nstep 2/2\rdone".encode()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with scripts and configs; nothing that runs here outlives the test."""
    shutil.copy(SCRIPTS / "lasts.py", tmp_path)
    write_config(tmp_path, ONE_PROCESS)
    write_config(tmp_path, name="two.yaml")
    yield tmp_path
    for path in entries_of(tmp_path).glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            if registry.is_supervised(left := registry.load(path)):
                os.kill(left.pid, signal.SIGKILL)
    kill_all(tmp_path)


def entries_of(folder: Path) -> Path:
    return folder / "home" / "state" / "mgpu" / "runs"


def detach(mgpu: Run, here: Path, *script: str, options: tuple[str, ...] = ALONE, **more: Any) -> Entry:
    """Start a run that goes on by itself; its entry."""
    done = mgpu(*options, "--detach", *script, **more)
    assert done.returncode == errors.READY, done.stderr
    return registry.load(entries_of(here) / f"{done.stdout.strip()}.json")


# Runs that go on


def test_a_run_survives_its_terminal(here: Path, mgpu: Run) -> None:
    """Started in a terminal that is then closed: it is listed, followed, left and followed to its end."""
    terminal = pexpect.spawn(
        sys.executable, ["-m", "mgpu", *ALONE, "--detach", "lasts.py", "3", "--token", "hf_abcdefghijklmnopqrstuv"],
        cwd=str(here), env=environment(here / "home", {"TERM": "xterm"}), encoding="utf-8", timeout=60,
    )  # fmt: skip
    terminal.expect(r"--stop (\S+)")
    run = terminal.match.group(1)
    terminal.expect(pexpect.EOF)
    terminal.close(force=True)
    assert terminal.exitstatus == errors.READY
    wait_for(lambda: (here / "ready.0").exists(), 20)
    path = entries_of(here) / f"{run}.json"
    entry = registry.load(path)
    _is_on_its_own(entry)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "hf_abc" not in path.read_text("utf-8") and "--token ***" in " ".join(entry.target)

    listed = mgpu("launch", "--status")
    assert listed.returncode == errors.READY
    assert re.search(rf"^{re.escape(run)} +running +just now +1 of 1 +lasts\.py 3", listed.stdout, re.MULTILINE)
    one = mgpu("launch", "--status", run[-4:])
    assert one.returncode == errors.READY
    assert (
        re.search(rf"pid {(here / 'ready.0').read_text()}, (sleeping|running)", one.stdout)
        and "Last line  début False" in one.stdout
    )

    left = start("launch", "--attach", folder=here)
    assert left.stdout is not None and left.stdout.readline() == "début False\n"
    left.send_signal(signal.SIGINT)
    assert left.wait(20) == errors.INTERRUPTED
    assert left.stderr is not None and f"{run} is still running." in left.stderr.read()

    os.kill(entry.pid, signal.SIGHUP)
    with (here / "seen").open("wb") as seen:
        followed = start("launch", "--attach", run[:-1], folder=here, stdout=seen)
        wait_for(lambda: (here / "seen").stat().st_size, 20)
        (here / "go").touch()
        _, said = followed.communicate(timeout=30)
    assert (followed.returncode, (here / "seen").read_bytes()) == (3, OUTPUT), said
    assert "FAILED" in said and "exit 3" in said

    ended = mgpu("launch", "--status", "--json-result", "-", run)
    assert ended.returncode == errors.NOT_READY
    STATUS.validate(document := json.loads(ended.stdout))
    (told,) = document["runs"]
    assert (told["state"], told["exit_code"], told["last_line"], told["alive"]) == ("ended", 3, "done", [])
    assert not marked(here)


def _is_on_its_own(entry: Entry) -> None:
    """The supervisor leads no session, has no terminal, and holds no stream of the one who started it."""
    fields = Path(f"/proc/{entry.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    session, terminal = int(fields[3]), int(fields[4])
    assert terminal == 0 and session not in (entry.pid, os.getsid(0))
    assert {os.readlink(f"/proc/{entry.pid}/fd/{number}") for number in (0, 1, 2)} == {os.devnull}
    assert entry.detached and entry.launcher is not None


def test_two_ranks_are_ended(here: Path, mgpu: Run) -> None:
    entry = detach(mgpu, here, "lasts.py", "0", options=TWO)
    wait_for(lambda: all((here / f"ready.{rank}").exists() for rank in (0, 1)), 60)
    assert re.search(r"running +\S.* +2 of 2 +lasts\.py 0", mgpu("launch", "--status").stdout)
    done = mgpu("launch", "--stop")
    assert (done.returncode, done.stdout) == (errors.READY, ""), done.stderr
    assert f"stopping {entry.id}" in done.stderr and "stopped by SIGTERM" in done.stderr
    assert not marked(here)
    after = registry.load(entries_of(here) / f"{entry.id}.json")
    assert (registry.state(after), after.exit_code) == ("ended", 143)
    again = mgpu("launch", "--stop", entry.id)
    assert again.returncode == errors.READY and "has already ended: stopped by SIGTERM" in again.stderr
    none = mgpu("launch", "--stop")
    assert none.returncode == errors.NOT_READY and "no run is active" in none.stderr
    followed = mgpu("launch", "--attach")
    assert (followed.returncode, followed.stdout.count("début")) == (143, 2)


def test_killed_supervisor(here: Path, mgpu: Run) -> None:
    """What nobody watches over any more is called lost, and its output is still there."""
    reading, writing = os.pipe()
    entry = detach(mgpu, here, "lasts.py", "0", pass_fds=(writing,))
    os.close(writing)
    assert os.read(reading, 1) == b"", "the run holds no stream of whoever started it: ssh would wait for it"
    os.close(reading)
    wait_for(lambda: (here / "ready.0").exists(), 20)
    os.kill(entry.pid, signal.SIGKILL)
    wait_for(lambda: not marked(here), 20)
    listed = mgpu("launch", "--status")
    assert re.search(rf"^{re.escape(entry.id)} +lost ", listed.stdout, re.MULTILINE)
    assert mgpu("launch", "--status", entry.id).returncode == errors.NOT_READY
    followed = mgpu("launch", "--attach", entry.id)
    assert (followed.returncode, followed.stdout) == (errors.UNKNOWN, "début False\n")
    assert "lost" in followed.stderr and "how the training ended is unknown" in followed.stderr


def test_runs_in_the_foreground_are_known_and_end_in_time(here: Path, mgpu: Run) -> None:
    """Two that last: `--stop` asks which. One whose time is limited: it ends by itself."""
    lasting = [start(*ALONE, "--log-dir", name, "lasts.py", "0", folder=here) for name in ("one", "another")]
    timed = start(*ALONE, "--log-dir", "limited", "--timeout", "1", "lasts.py", "0", folder=here)
    _, said = timed.communicate(timeout=60)
    assert timed.returncode == errors.TIMED_OUT, said
    assert "--timeout" in said
    wait_for(lambda: len(list(entries_of(here).glob("*.json"))) == 3, 20)
    assert re.search(r"^limited-\w{4} +timed out .* 124 ", mgpu("launch", "--status").stdout, re.MULTILINE)
    which = mgpu("launch", "--stop")
    assert which.returncode == errors.USAGE
    assert len(re.findall(r"mgpu launch --stop (?:one|another)-", which.stderr)) == 2, which.stderr
    assert mgpu("launch", "--stop", "one").returncode == errors.READY
    lasting[0].communicate(timeout=30)
    assert (lasting[0].returncode, lasting[1].poll()) == (143, None)
    lasting[1].send_signal(signal.SIGSTOP)
    wait_for(lambda: "suspended" in mgpu("launch", "--status").stdout, 10)
    assert mgpu("launch", "--stop").returncode == errors.READY
    lasting[1].communicate(timeout=30)
    assert lasting[1].returncode == 143
    assert not marked(here)


def test_a_reader_that_goes_away_ends_only_what_it_read(here: Path, mgpu: Run) -> None:
    """`mgpu launch --attach | head -1`, of a run that is silent afterwards."""
    detach(mgpu, here, "lasts.py", "0")
    reading, writing = os.pipe()
    followed = start("launch", "--attach", folder=here, stdout=writing)
    os.close(writing)
    assert os.read(reading, 100)
    os.close(reading)
    followed.communicate(timeout=20)
    assert followed.returncode == 128 + signal.SIGPIPE
    assert mgpu("launch", "--status", registry.load(next(entries_of(here).iterdir())).id).returncode == errors.READY


def test_a_launcher_that_does_not_start(here: Path) -> None:
    """The one who waits is told, with the launcher's own words."""
    program = """
import sys
from pathlib import Path
from mgpu.errors import MgpuError
from mgpu.launch import detached
from mgpu.launch.request import Request
from mgpu.process.command import Command
from mgpu.snapshot import Snapshot

try:
    detached.start(Request(detach=True), Command(("./nowhere",), run_id="a" * 32), Path("."), Snapshot())
except MgpuError as error:
    print(error.message)
    sys.exit(error.exit_code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, env=environment(here / "home"), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == errors.NOT_FOUND, done.stderr
    assert "the launcher was not found" in done.stdout


def test_a_full_disk_ends_no_supervisor() -> None:
    with detached.Tolerant("/dev/full", "w") as file:
        assert file.write(b"a word") == 6


# Entries


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the entries of this process are: a fresh folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = registry.folder()
    path.mkdir(parents=True, mode=0o700)
    return path


def entry(runs: Path, id_: str = "20261121-1012-3f2a", **changed: Any) -> Entry:
    """The entry of a run that this very process supervises; kept as a file."""
    of_now = Entry(
        id=id_, run_id=f"{id_}-mark", host=socket.gethostname(), boot_id=boot.boot_id(),
        pid_space=registry.pid_space(), pid=os.getpid(), pid_started=registry.started_at(os.getpid()) or 0,
        folder=str(runs.parent / id_), cwd=os.path.realpath("."), target=("train.py", "--lr", "1"),
        command=("python", "train.py"), config="accelerate.yaml", started=durations.now(), ranks=1,
    )  # fmt: skip
    made = dataclasses.replace(of_now, **changed)
    (runs / f"{id_}.json").write_text(json.dumps(dataclasses.asdict(made)), "utf-8")
    return made


@pytest.mark.parametrize(
    ("changed", "state", "words"),
    [
        ({}, "running", ""),
        ({"ended": "2026-11-21T10:12:00Z", "exit_code": 0}, "ended", ""),
        ({"pid_started": 1}, "lost", ""),  # another process has its pid now
        ({"pid": 1 << 30}, "lost", ""),
        ({"boot_id": "of another start of this machine"}, "lost", ""),
        ({"boot_id": "of another machine", "host": "node7"}, "elsewhere", "on host node7"),
        ({"pid_space": 1, "host": "node7"}, "elsewhere", "in another container on node7"),
    ],
)
def test_what_a_run_does_now(runs: Path, changed: dict[str, Any], state: str, words: str) -> None:
    made = entry(runs, **changed)
    assert registry.refresh(made) == (made, state)
    if words:
        assert registry.whereabouts(made) == words
        with pytest.raises(MgpuError, match=re.escape(words)) as error:
            stop.run(made.id, [made])
        assert error.value.exit_code == errors.UNKNOWN
        with pytest.raises(MgpuError, match=re.escape(words)):
            follow.attach(made)


def test_the_last_word_counts(runs: Path) -> None:
    """A supervisor that ends between the two looks has said how."""
    running = entry(runs, pid=1 << 30)
    ended = entry(runs, pid=1 << 30, ended=durations.now(), exit_code=3)
    assert registry.refresh(running) == (ended, "ended")


def test_entries_that_cannot_be_read(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = entry(runs)
    outside = runs.parent / "outside.json"
    shutil.copy(runs / f"{good.id}.json", outside)
    (runs / "link.json").symlink_to(outside)
    (runs / "empty.json").write_text("")
    (runs / "list.json").write_text("[]")
    (runs / "deep.json").write_text("[" * 100_000)
    (runs / "bytes.json").write_bytes(b"\xff\xfe")
    (runs / "large.json").write_text(" " * (1 << 20))
    (runs / "later.json").write_text('{"schema": 99}')
    (runs / "other.json").write_text((runs / f"{good.id}.json").read_text())
    os.mkfifo(runs / "pipe.json")
    found, troubles = registry.entries()
    assert found == [good]
    assert [Path(trouble.split()[0]).stem for trouble in troubles] == [
        "bytes", "deep", "empty", "large", "later", "link", "list", "other", "pipe",
    ]  # fmt: skip
    assert show_runs.run(Request(status=True), None, found, troubles) == errors.READY
    shown = capsys.readouterr().out
    assert "written by another version of mgpu" in " ".join(shown.split()) and "train.py --lr 1" in shown


def test_a_run_is_named(runs: Path) -> None:
    old = entry(runs, "20261120-0900-aaaa", started="2026-11-20T09:00:00Z")
    new = entry(runs, "20261121-0900-bbbb", started="2026-11-21T09:00:00Z", ended="2026-11-21T09:00:01Z")
    found, _ = registry.entries()
    assert found == [new, old]
    assert registry.find(None, found) == old  # the latest that still runs
    assert registry.find(None, [new]) == new
    for name in (old.id, "20261120", "aaaa", old.folder):
        assert registry.find(name, found) == old
    for name, words in (
        ("2026", "2026 is ambiguous: 20261121-0900-bbbb, 20261120-0900-aaaa"),
        ("nothing", "run nothing not found"),
    ):
        with pytest.raises(MgpuError, match=words) as error:
            registry.find(name, found)
        assert error.value.exit_code == errors.USAGE
    with pytest.raises(MgpuError, match="no runs found"):
        registry.find(None, [])


def test_a_run_of_this_folder_comes_first(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name, no option takes the run of another folder while this one has a run."""
    other, here = tmp_path / "other", tmp_path / "here"
    here.mkdir()
    mine = entry(runs, "mine-aaaa", cwd=str(here), started="2026-11-20T09:00:00Z", ended="2026-11-20T09:00:01Z")
    entry(runs, "theirs-bbbb", cwd=str(other))
    monkeypatch.chdir(here)
    found = registry.entries()[0]
    assert [one.id for one in found] == ["theirs-bbbb", "mine-aaaa"]
    assert registry.find(None, found) == mine
    logs = entry(runs, "logs-cccc", cwd=str(other), folder=str(here / ".mgpu/runs/1"), started="2026-01-01T00:00:00Z")
    assert registry.find(None, registry.entries()[0]) == logs


def test_no_run_of_another_folder_is_stopped_without_its_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mgpu.prompts import prompts

    stopped: list[str] = []

    def signaled(entry: Entry) -> bool:
        stopped.append(entry.id)
        return True

    monkeypatch.setattr(stop, "_signal_supervisor", signaled)
    monkeypatch.setattr(stop, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(stop, "_GRACE_S", 0.0)
    theirs = entry(runs, "theirs-bbbb", cwd="/projects/other", target=("fit.py", "--lr", "2"))

    def refused(*active: Entry) -> str:
        with pytest.raises(MgpuError) as error:
            stop.run(None, active)
        assert error.value.exit_code == errors.USAGE and not stopped
        return error.value.message

    message = refused(theirs)
    assert "nothing was stopped: no run of this folder is active" in message
    for text in ("mgpu launch --stop theirs-bbbb", "fit.py --lr 2", "/projects/other  (not the current folder)"):
        assert text in message
    monkeypatch.setattr("mgpu.report.screen.can_ask", lambda: True)
    asked: list[str] = []

    def declined(question: Question) -> str:
        asked.append(question.text)
        return question.default

    monkeypatch.setattr(prompts, "ask", declined)
    assert "mgpu launch --stop theirs-bbbb" in refused(theirs) and asked == ["Stop it?"]
    second = entry(runs, "more-cccc", cwd="/projects/more")
    assert "several are in another folder" in refused(theirs, second) and len(asked) == 1

    mine = [entry(runs, f"mine-{end}") for end in ("aaaa", "dddd")]
    message = refused(*mine, theirs)
    assert "several runs of this folder are active" in message and "theirs" not in message
    capsys.readouterr()
    stop.run(None, [mine[0], theirs])
    assert stopped == ["mine-aaaa"]
    said = capsys.readouterr().err
    assert "Script     train.py --lr 1" in said and f"Folder     {os.path.realpath('.')}\n" in said
    stop.run("theirs", [mine[0], theirs])
    assert stopped == ["mine-aaaa", "theirs-bbbb"]
    assert "/projects/other  (not the current folder)" in capsys.readouterr().err


def test_which_run_it_is_is_always_shown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script, and the folder if it is another one: by --attach, --watch, --report and --why."""
    done: dict[str, Any] = {"ended": "2099-01-01T00:00:00Z", "exit_code": 0}
    theirs = entry(runs, "theirs-bbbb", cwd="/projects/other", **done)
    mine = entry(runs, "mine-aaaa", **done)
    from mgpu.launch import gpu_table, why

    for show in (
        follow.attach,
        gpu_table.watch,
        lambda one: why.run(Request(why=True), one.id, [one]),
    ):
        for one, elsewhere in ((theirs, True), (mine, False)):
            assert show(one) == errors.READY
            said = "".join(capsys.readouterr())
            assert "Script     train.py --lr 1" in said, said
            assert ("Folder     /projects/other  (not the current folder)" in said) is elsewhere, said


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_the_table_of_runs_fits(
    columns: int, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the folder of each run if they differ; no column is without its name, and no path is cut."""
    monkeypatch.setenv("COLUMNS", str(columns))
    long = ("pretrain.py", "--data", "/datasets/some/where", "--lr", "0.001")
    mine = entry(runs, "20261121-1012-aaaa", ended=durations.now(), exit_code=0)
    theirs = entry(runs, "20261121-1013-bbbb", cwd="/projects/other", target=long)
    Path(theirs.folder).mkdir()
    hang_files.write(
        Path(theirs.folder), Hang(42.0, 1.0, (HangRank(0, state="sleeping"), HangRank(1, state="stopped")))
    )
    assert show_runs.run(Request(status=True), None, [mine, theirs], []) == errors.READY
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns, shown
    head = shown.splitlines()[0]
    assert "..." not in head and head.split()[:2] == ["RUN", "STATE"]
    assert "/projects/other" in shown and " ".join(long) in " ".join(shown.split())
    assert re.search(r"bbbb +no progress", shown) and "no progress for 42 s: rank 1 is stopped" in " ".join(
        shown.split()
    )
    assert show_runs.run(Request(status=True), None, [mine], []) == errors.READY
    alone = capsys.readouterr().out
    assert "FOLDER" not in alone and " in " not in alone


def test_a_hang_is_shown_to_the_one_who_attaches(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is already known, another one that is found later, and that the run goes on."""
    going = entry(runs)
    folder = Path(going.folder)
    folder.mkdir()
    (folder / "run.log").write_text("step 1\n")
    hang_files.write(folder, STOPPED)
    passes: Iterator[Callable[[], object]] = iter(
        [
            lambda: hang_files.write(folder, dataclasses.replace(STOPPED, quiet_s=99.0)),
            lambda: hang_files.remove(folder),
            lambda: entry(runs, ended=durations.now(), exit_code=0, started=going.started),
        ]
    )
    monkeypatch.setattr(follow, "_LOOK_S", 0.0)
    monkeypatch.setattr(follow, "_pause", lambda: next(passes)())
    assert follow.attach(going) == errors.READY
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("rank 1 is stopped") == 1 and "no progress for 42 s" in said.partition("your program")[0]
    assert f"mgpu launch --why {going.id}" in said and "the run makes progress again" in said


def test_old_entries_are_forgotten(runs: Path, tmp_path: Path) -> None:
    from mgpu.process.command import Command

    for number in range(60):
        entry(runs, f"ended-{number:04}", started=f"2026-01-01T00:00:{number:02}Z", ended="2026-01-02T00:00:00Z")
    entry(runs, "going-0000", started="2025-01-01T00:00:00Z")
    entry(runs, "abroad-0000", started="2025-01-01T00:00:00Z", host="node7", boot_id="another")
    command = Command(("python", "train.py", "--hub_token", "abcdef"), run_id="c0de" * 8, script="train.py")
    with run_entry.running(command, tmp_path / "a b\n", Request(config="x.yaml")) as kept:
        path = runs / f"{kept.entry.id}.json"
        assert path.name == "a-b-c0de.json"
        assert registry.refresh(kept.entry)[1] == "running"
        path.unlink()
        path.symlink_to(tmp_path / "victim")
        kept.ended(3, signalled=signal.SIGTERM)
    assert not (tmp_path / "victim").exists() and "abcdef" not in path.read_text()
    last = registry.load(path)
    assert (last.exit_code, last.signalled, last.config, last.target) == (3, "SIGTERM", "x.yaml", ("train.py",))
    left = {made.id for made in registry.entries()[0]}
    assert len(left) == 50 + 2 and {"going-0000", "abroad-0000", "ended-0059", "ended-0011", last.id} <= left
    assert "ended-0010" not in left


def test_a_folder_that_a_later_run_has(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log that is there now is not passed off as the earlier run's."""
    early = entry(
        runs, "logs-aaaa", folder=str(runs), started="2026-11-20T09:00:00Z", ended="2026-11-20T09:00:01Z", exit_code=3
    )
    late = entry(runs, "logs-bbbb", folder=str(runs))
    (runs / "run.log").write_text("of the later one\n")
    assert registry.find(str(runs), registry.entries()[0]) == late
    assert follow.attach(early) == 3
    assert show_runs.run(Request(status=True), early.id, [early, late], []) == errors.NOT_READY
    told = capsys.readouterr()
    assert "of the later one" not in told.out
    assert "a later run, logs-bbbb" in told.err and "a later run, logs-bbbb" in told.out


def test_a_folder_that_a_run_still_writes_to(runs: Path, here: Path, mgpu: Run) -> None:
    going = entry(runs, folder=str(here / "logs"))
    assert registry.writes_to(here / "logs") == going and registry.writes_to(here) is None
    done = mgpu(*ALONE, "--log-dir", "logs", "lasts.py", "0", env={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]})
    assert done.returncode == errors.USAGE and f"{going.id} still writes its logs to logs" in done.stderr


def test_no_is_an_answer_that_changes_nothing(here: Path) -> None:
    """What an earlier run left is still there."""
    (here / "logs").mkdir()
    (here / "logs" / "run.log").write_text("before")
    alone = "import torch\nfor x in range(3):\n    loss.backward()\n    optimizer.step()\n"
    (here / "lasts.py").write_text(alone)  # a finding, so that there is something to ask
    options = ["--unverified", "allow", "--launcher", "python", "--log-dir", "logs", "--json-result", "result.json"]
    terminal = pexpect.spawn(
        sys.executable, ["-m", "mgpu", "launch", *options, "lasts.py", "0"],
        cwd=str(here), env=environment(here / "home", {"TERM": "dumb"}), encoding="utf-8", timeout=60,
    )  # fmt: skip
    terminal.expect("Start")
    terminal.expect("Type a number")
    terminal.sendline("2")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == errors.LAUNCH_REFUSED
    assert (here / "logs" / "run.log").read_text() == "before"
    told = json.loads((here / "result.json").read_text())
    assert (told["phase"], told["exit_code"]) == ("preflight", errors.LAUNCH_REFUSED) and "No" in told["error"]


def test_no_place_for_entries_costs_only_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu.process.command import Command

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with run_entry.running(Command(("true",), run_id="c0de"), tmp_path, Request()) as kept:
        kept.ended(0)
    with pytest.raises(MgpuError, match="could not be found again") as error:
        run_entry.can_keep()
    assert error.value.exit_code == errors.LAUNCH_REFUSED


def test_what_is_left_of_a_lost_run_is_ended(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = entry(runs, pid=1 << 30)
    rank = subprocess.Popen(["sleep", "60"], env={"MGPU_RUN_ID": lost.run_id, "PATH": os.environ["PATH"]})
    try:
        wait_for(lambda: processes.processes_of_run(lost.run_id))  # the kernel shows its variables late
        assert show_runs.run(Request(status=True), lost.id, [lost], []) == errors.NOT_READY
        assert f"its processes are still running ({rank.pid})" in " ".join(capsys.readouterr().out.split())
        assert follow.attach(lost) == errors.UNKNOWN
        assert f"its processes are still running ({rank.pid})" in capsys.readouterr().err
        assert stop.run(None, [lost]) == errors.READY
        assert rank.wait(10) == -signal.SIGTERM
    finally:
        rank.kill()
        rank.wait()
    said = capsys.readouterr().err
    assert "was lost, its supervisor is no longer running: stopped 1 leftover process" in said
    assert "Script     train.py --lr 1" in said
    assert registry.refresh(lost)[1] == "ended"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(attach=True, target=("train.py", "--lr", "1")), "accepts at most one run"),
        (Request(attach=True, target=("--help",)), "accepts at most one run"),
        (Request(stop=True, target=("",)), "accepts at most one run"),
        (Request(status=True, stop=True), "--status and --stop: choose one"),
        (Request(attach=True, exec_=True), "omit --exec"),
        (Request(attach=True, detach=True), "omit --detach"),
        (Request(stop=True, timeout_s=3), "omit --timeout"),
        (Request(stop=True, json_result="x"), "omit --json-result"),
        (Request(status=True, node=0), "omit --node-rank"),
        (Request(status=True, triage=False), "omit --no-triage"),
        (Request(status=True, log_dir="x"), "omit --log-dir"),
    ],
)
def test_what_does_not_go_together(request_: Request, words: str) -> None:
    with pytest.raises(MgpuError, match=re.escape(words)) as error:
        follow.run(request_)
    assert error.value.exit_code == errors.USAGE


def test_wrong_use_on_the_command_line(here: Path, mgpu: Run) -> None:
    for arguments in (("--attach", "lasts.py", "--epochs", "3"), ("--detach", "--exec", "lasts.py")):
        done = mgpu("launch", *arguments)
        assert (done.returncode, done.stdout) == (errors.USAGE, ""), arguments
    nothing = mgpu("launch", "--attach")
    assert nothing.returncode == errors.USAGE and "no runs found" in nothing.stderr
    assert "No runs found" in mgpu("launch", "--status").stdout


# What a run has written


def test_a_log_is_followed_through_its_parts(tmp_path: Path) -> None:
    """Byte for byte: the lines that the log itself adds at the head of a part are passed over."""
    output = log_follower.Output(tmp_path)
    assert not output.is_there and output.read() == b""
    log = run_log.RunLog(tmp_path, print, most=4000)
    sent = received = b""
    for number in range(300):
        data = b"%04d \xff\x1b[1m%s\n" % (number, b"x" * (number % 90))
        log.write(memoryview(data))
        sent += data
        if number % 3 == 0:
            while data := output.read():
                received += data
    while data := output.read():
        received += data
    assert received == sent
    assert len(run_log.parts(tmp_path)) == 3, "the log has been in parts, of which some are gone"
    late = log_follower.Output(tmp_path)
    everything = b""
    while data := late.read():
        everything += data
    assert re.search(rb"\[mgpu: [\d,]+ bytes omitted here", everything), "what is missing is said"
    tail = log_follower.Output(tmp_path)
    tail.skip_to_tail()
    log.write(memoryview(b"later\n"))
    lines = (tail.read() + tail.read()).splitlines(keepends=True)
    assert lines[-20:] == [*sent.splitlines(keepends=True)[-19:], b"later\n"]
    assert len(lines) <= 101
    log.close()


@pytest.mark.parametrize(
    ("data", "whole", "last"),
    [
        (b"a\nb\nc\n", True, b"b\nc\n"),
        (b"a\nb\nc\ngrow", True, b"b\nc\ngrow"),
        (b"a\n", True, b"a\n"),
        (b"", True, b""),
        (b"half\nb\n", False, b"b\n"),
        (b"alf 1%\r 2%\r 3%", False, b" 2%\r 3%"),
        (b"abc", False, b"abc"),
    ],
)
def test_last_lines(data: bytes, whole: bool, last: bytes) -> None:
    assert log_follower.last_lines(data, 2, whole=whole) == last


def test_last_line_of_a_progress_bar(tmp_path: Path) -> None:
    assert list_runs.last_line(tmp_path) == ""
    (tmp_path / "run.log").write_bytes(b"start\n 10%|#\r 20%|##\x1b[A\r \n\n")
    assert list_runs.last_line(tmp_path) == "20%|##"


# What is told


@pytest.mark.parametrize(
    ("changed", "word", "rest"),
    [
        ({"exit_code": 0}, "finished", " after 1 min 5 s, exit 0"),
        ({"exit_code": 3}, "FAILED", " after 1 min 5 s, exit 3"),
        ({"exit_code": 143, "signalled": "SIGTERM"}, "stopped", " by SIGTERM after 1 min 5 s, exit 143"),
        ({"exit_code": 0, "signalled": "SIGTERM"}, "finished", " after 1 min 5 s, exit 0"),
        ({"exit_code": 124, "signalled": "SIGTERM", "timed_out": True}, "timed out", " after 1 min 5 s, exit 124"),
        ({}, "FAILED", " after 1 min 5 s, exit code unknown"),
    ],
)
def test_how_a_run_ended(runs: Path, changed: dict[str, Any], word: str, rest: str) -> None:
    made = entry(runs, started="2026-11-21T10:00:00Z", ended="2026-11-21T10:01:05Z", **changed)
    assert list_runs.state_word(made, "ended")[0] == word
    assert list_runs.ending(made) == rest


def test_what_ends_a_detached_run(monkeypatch: pytest.MonkeyPatch) -> None:
    session = "0::/user.slice/user-1000.slice/session-3.scope\n"
    manager = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u1.scope\n"
    assert "systemd-run --user --scope" in detached._of_logind(session, 1000, lambda: True)
    assert detached._of_logind(session, 1000, lambda: False) == ""
    assert detached._of_logind(session, 0, lambda: True) == ""
    assert detached._of_logind(manager, 1000, lambda: pytest.fail("nobody needs to ask")) == ""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    assert "Slurm job 4711" in detached.what_ends_it()


def test_moments() -> None:
    assert [quantities.duration_text(seconds) for seconds in (-1, 59.9, 200, 1800, 7200, 8040)] == [
        "0 s",
        "59 s",
        "3 min 20 s",
        "30 min",
        "2 h",
        "2 h 14 min",
    ]
    assert durations.age_text(durations.now()) == "just now"
    assert durations.age_text("2020-01-01T00:00:00Z").endswith("days ago")
    assert durations.age_text("soon") == "at an unknown time" and durations.seconds_between("", "") is None
    assert durations.seconds_between("2026-11-21T10:00:00Z", "2026-11-21T10:01:05Z") == 65
