"""A run writes into a folder of its own, and removes only what the marker there lists."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.fleet import artifacts
from mgpu.launchers.project_folder import RUNS
from mgpu.launchers.run_folder import (
    LAUNCH,
    MARKER,
    PRE_FLIGHT,
    SMOKE_TEST,
    TRIAL,
    Kind,
    claim_folder,
    find_obstacle,
    make_below,
    plan_folder,
)

# What a project can hold beside its scripts; all of it was deleted or replaced once.
MINE = (
    "rank_model.py", "ranking.csv", "rank0.ckpt.pt", "rank0.json", "nccl.notes.txt", "run.log", "run.log.2", "mgpu.log",
    "result.json", "gpus.json", "try-1/rank0.json", "orders.json", "facts.json", "launcher.log", "ask", "hostfile",
    "machines/mine.json", "alone/mine", "pairs/mine", "together/mine", "nodes.sh",
)  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    for name in MINE:
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(f"mine: {name}")
    return tmp_path / "project"


def assert_untouched(mine: Path) -> None:
    assert {name: (mine / name).read_text() for name in MINE} == {name: f"mine: {name}" for name in MINE}


def run_once(folder: Path, kind: Kind, *names: str) -> Path:
    """A run of this kind with --log-dir FOLDER that writes these files."""
    with claim_folder(plan_folder(str(folder), kind), kind, named=True) as path:
        for name in names:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text("of mgpu")
    return path


@pytest.mark.parametrize("kind", [SMOKE_TEST, LAUNCH], ids=lambda kind: kind.name)
def test_the_users_files_stay(mine: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine)
    for wanted in (".", str(mine), "../project"):
        path = run_once(Path(wanted), kind, "rank0.json", "run.log", "result.json")
        assert path.resolve().parent == mine
        assert_untouched(mine)


def test_a_pre_flight_refuses_a_folder_with_files_of_its_names(mine: Path) -> None:
    with pytest.raises(MgpuError, match="mgpu did not create") as error, claim_folder(mine, PRE_FLIGHT, named=True):
        pass
    assert error.value.exit_code == errors.REFUSED
    assert_untouched(mine)


def test_a_pre_flight_writes_beside_other_files(tmp_path: Path) -> None:
    """The job script names the very folder, and Slurm writes the job's output there."""
    (tmp_path / "slurm-7.out").write_text("mine")
    for _ in range(2):
        assert run_once(tmp_path, PRE_FLIGHT, "nodes.sh", "hostfile") == tmp_path
    assert (tmp_path / "slurm-7.out").read_text() == "mine"


def test_the_next_run_starts_without_what_the_last_one_wrote(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert run_once(logs, LAUNCH, "run.log", "run.log.1", "run.log.2", "result.json") == logs
    (logs / "result.csv").write_text("mine")
    (logs / "run.log.old").write_text("mine")
    with claim_folder(plan_folder(str(logs), LAUNCH), LAUNCH, named=True) as path:
        assert path == logs
        assert sorted(os.listdir(logs)) == [MARKER, "result.csv", "run.log.old"]


def test_a_file_that_the_user_put_there_since_then(tmp_path: Path) -> None:
    """It has a name that mgpu uses, but it is not one of the files that the marker lists."""
    logs = tmp_path / "logs"
    run_once(logs, SMOKE_TEST, "rank0.json", "smoke.json")
    (logs / "rank7.json").write_text("mine")
    assert "rank7.json" in str(find_obstacle(logs, SMOKE_TEST))
    assert run_once(logs, SMOKE_TEST, "rank0.json").parent == logs
    assert (logs / "rank7.json").read_text() == "mine" and (logs / "rank0.json").exists()


def test_a_smoke_test_and_a_launch_share_a_folder(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_once(tmp_path / "logs", SMOKE_TEST, "rank0.json") == tmp_path / "logs"
        assert run_once(tmp_path / "logs", LAUNCH, "run.log") == tmp_path / "logs"
    assert {"rank0.json", "run.log"} <= set(os.listdir(tmp_path / "logs"))


def test_a_run_that_was_killed_is_cleared_away(tmp_path: Path) -> None:
    """Its marker lists patterns: nothing that fits them was there before it."""
    logs = tmp_path / "logs"
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom mgpu.launchers.run_folder import *\n"
        f"folder = claim_folder(Path({str(logs)!r}), SMOKE_TEST, named=True)\npath = folder.__enter__()\n"
        "trial = make_below(path / 'try-1', TRIAL)\n"
        "for name in ('rank0.jsonl', 'rank11.beat', 'nccl.n1.77.txt', 'turn.n1', 'orders.json', 'notes.rank0.json'):\n"
        "    (path / name).touch(); (trial / name).touch()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -9
    (logs / "try-1" / "notes.rank0.json").unlink()
    with claim_folder(plan_folder(str(logs), SMOKE_TEST), SMOKE_TEST, named=True) as path:
        assert path == logs and sorted(os.listdir(logs)) == [MARKER, "notes.rank0.json"]


def test_a_trial_folder_with_a_file_of_the_users_stays(tmp_path: Path) -> None:
    with claim_folder(tmp_path / "logs", SMOKE_TEST, named=True) as path:
        (make_below(path / "try-1", TRIAL) / "rank0.json").touch()
    (path / "try-1" / "mine.txt").write_text("mine")
    with pytest.raises(MgpuError, match="did not create all of its try-1"):
        run_once(path, SMOKE_TEST)
    assert sorted(os.listdir(path / "try-1")) == ["mine.txt"]


def test_the_folders_of_a_pre_flight(tmp_path: Path) -> None:
    """Each smoke test in it has a marker of its own; what is not listed stays, and is named."""
    folder = tmp_path / "pre"
    with claim_folder(folder, PRE_FLIGHT, named=True):
        make_below(folder / "machines", artifacts.machines(["n1", "n2"]))
        (folder / "machines" / "n1.json").touch()
        (folder / "alone").mkdir()
        run_once(folder / "alone" / "n1.n1", SMOKE_TEST, "rank0.json")
        (folder / "hostfile").write_text("n1\n")
    with claim_folder(folder, PRE_FLIGHT, named=True):
        assert sorted(os.listdir(folder)) == [MARKER, "hostfile"]  # a shell may still need the hostfile
        (folder / "alone").mkdir()
        run_once(folder / "alone" / "n1.n1", SMOKE_TEST, "rank0.json")
        (folder / "alone" / "n1.n1" / "mine").touch()
    with (
        pytest.raises(MgpuError, match="did not create all of its alone"),
        claim_folder(folder, PRE_FLIGHT, named=True),
    ):
        pass
    assert (folder / "alone" / "n1.n1" / "mine").exists()


def test_a_marker_that_came_with_a_repository_lists_nothing(tmp_path: Path) -> None:
    run_once(tmp_path / "theirs", LAUNCH, "run.log")
    marker = json.loads((tmp_path / "theirs" / MARKER).read_text())
    marker["wrote"]["launch"] += ["train.py", "../secret", "/etc/passwd", ".."]
    (tmp_path / "theirs" / MARKER).write_text(json.dumps(marker))
    shutil.copytree(tmp_path / "theirs", tmp_path / "clone")
    for name in ("clone/train.py", "secret", "clone/run.log"):
        (tmp_path / name).write_text("mine")
    assert run_once(tmp_path / "clone", LAUNCH, "run.log").parent == tmp_path / "clone"
    assert {(tmp_path / name).read_text() for name in ("clone/train.py", "secret", "clone/run.log")} == {"mine"}
    run_once(tmp_path / "theirs", LAUNCH)  # even in its own folder it reaches nothing outside
    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"schema": 1, "inode": 1, "wrote": {}}', "\0"])
def test_a_marker_that_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    (tmp_path / "run.log").write_text("mine")
    assert run_once(tmp_path, LAUNCH, "run.log").parent == tmp_path
    assert (tmp_path / "run.log").read_text() == "mine" and (tmp_path / MARKER).read_text() == text


def test_a_listed_name_that_is_a_link_now(tmp_path: Path) -> None:
    run_once(tmp_path / "logs", LAUNCH, "run.log", "result.json")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "logs" / "run.log").unlink()
    (tmp_path / "logs" / "run.log").symlink_to(tmp_path / "mine")
    with pytest.raises(MgpuError, match=r"did not create all of its run\.log"):
        run_once(tmp_path / "logs", LAUNCH, "run.log")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_marker_that_is_a_link_or_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / MARKER).symlink_to(tmp_path / "mine")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / MARKER)
    for name in ("a", "b"):
        assert run_once(tmp_path / name, LAUNCH, "run.log").parent == tmp_path / name
    assert (tmp_path / "mine").read_text() == "mine"


def test_two_runs_at_the_same_time(tmp_path: Path) -> None:
    """Both would write one log, and each would judge by what the other writes."""
    for kind in (SMOKE_TEST, LAUNCH):
        with claim_folder(tmp_path / "logs", LAUNCH, named=True):
            with pytest.raises(MgpuError, match="another run is writing to") as error:
                run_once(tmp_path / "logs", kind)
            assert error.value.exit_code == errors.REFUSED
        run_once(tmp_path / "logs", kind)


def test_a_run_that_outlives_its_command_keeps_its_list(tmp_path: Path) -> None:
    with claim_folder(tmp_path / "logs", LAUNCH, named=True, outlived=True) as path:
        pass
    (path / "run.log").touch()  # written by the process that went on
    assert find_obstacle(path, LAUNCH) is None


def test_a_new_folder_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`.mgpu/runs` is a file: the logs go to a private temporary folder, and mgpu says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGPU_LOG_DIR", raising=False)
    Path(".mgpu").mkdir()
    Path(RUNS).touch()
    with claim_folder(plan_folder("", SMOKE_TEST), SMOKE_TEST, named=False) as folder:
        assert folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert str(folder) in capsys.readouterr().err
    assert not folder.exists()  # nothing was written


def test_a_folder_that_nobody_named_is_always_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_LOG_DIR", str(tmp_path / "elsewhere"))
    folders = set()
    for _ in range(3):
        with claim_folder(plan_folder("", SMOKE_TEST), SMOKE_TEST, named=False) as folder:
            (folder / "smoke.json").touch()
            folders.add(folder)
    assert len(folders) == 3 and {folder.parent for folder in folders} == {tmp_path / "elsewhere"}
    there = plan_folder("", LAUNCH)
    there.mkdir()  # another run takes it meanwhile
    with claim_folder(there, LAUNCH, named=False) as folder:
        assert folder == there.with_name(f"{there.name}-2")
    assert not folder.exists()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "file/logs"):
        with pytest.raises(MgpuError, match="is a file") as error:
            plan_folder(str(tmp_path / name), LAUNCH)
        assert error.value.exit_code == errors.USAGE


def test_runs_is_a_link_that_leaves_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project" / "inside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("MGPU_LOG_DIR", raising=False)
    for link, target in ((Path(".mgpu"), "../outside"), (Path(RUNS), "../../outside")):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(target)
        with pytest.raises(MgpuError, match=r"^\.mgpu/runs leads to .*outside this folder") as error:
            plan_folder("", LAUNCH)
        assert error.value.exit_code == errors.REFUSED and os.listdir(tmp_path / "outside") == []
        monkeypatch.setenv("MGPU_LOG_DIR", RUNS)  # now the user has named it
        assert plan_folder("", LAUNCH).parent == Path(RUNS)
        monkeypatch.delenv("MGPU_LOG_DIR")
        link.unlink()
    Path(RUNS).symlink_to("../inside")
    assert plan_folder("", LAUNCH).parent == Path(RUNS)


def test_the_folder_of_a_project_is_ignored_by_git_and_goes_when_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGPU_LOG_DIR", raising=False)
    with claim_folder(plan_folder("", LAUNCH), LAUNCH, named=False) as folder:
        assert folder.parent == Path(RUNS) and Path(".mgpu/.gitignore").read_text() == "*\n"
    assert os.listdir() == []
    Path(".mgpu").mkdir()
    Path(".mgpu/.gitignore").write_text("runs/\n")  # the user's
    with claim_folder(plan_folder("", LAUNCH), LAUNCH, named=False):
        pass
    assert os.listdir(".mgpu") == [".gitignore"]
