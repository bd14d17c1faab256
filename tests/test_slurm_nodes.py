"""What a node of a Slurm job stores of its ranks, and what is removed there: without Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mgpu.launch import node_pace, node_ranks, pace_report
from mgpu.launch.node_pace import NodePace, NodeTimes, PaceOfPart, RankTimes
from mgpu.launch.pace_watch import Ended, PaceWatch, compare, pace_of
from mgpu.process import processes
from mgpu.slurm import node_files, node_watch
from mgpu.snapshot import EndedRank, Hang, NotFinite, Run
from tests.conftest import environment
from tests.scripts import wait_for
from tests.test_rank_facts import Says

STEP_S, OPTIMIZER_S = 0.2, 0.004


def node(number: int, *, late: float = 0.0, ahead: float = 0.0, jitter: float = 0.0, **more: object) -> NodeTimes:
    """One rank on a node: its collectives begin `late`, and its clock is `ahead`; all leave a collective together."""
    steps, starts = [], []
    for step in range(1, 41):
        end = 1000.0 + step * STEP_S + ahead + (jitter if number and step % 2 else 0.0)
        steps.append((step, end, 0.0, step * OPTIMIZER_S, 0.0))
        starts.append(("0", step, end - OPTIMIZER_S - 0.05 - 0.04 + late))
    found = NodeTimes(7, f"machine {number}", False, (RankTimes(number, tuple(steps), tuple(starts)),))
    return replace(found, **more)  # type: ignore[arg-type]


def test_clocks_that_differ_change_nothing() -> None:
    """The same ranks, with one clock and with clocks that differ by days."""
    for ahead in (0.0, 0.037, -3.7, 200_000.0):
        times = node_pace.joined([node(0), node(1, late=0.04, ahead=ahead)])
        assert times is not None
        pace = pace_of(list(compare(*times).values()))
        assert pace is not None and pace.step_s == pytest.approx(STEP_S)
        assert [one.last_share for one in pace.ranks] == [0.0, 1.0]
        assert pace.ranks[0].wait_s == pytest.approx(0.04, abs=1e-4) and pace_report.is_uneven(pace)


def test_equal_ranks_with_clocks_that_differ_are_equal() -> None:
    times = node_pace.joined([node(0), node(1, ahead=0.05)])
    assert times is not None
    assert not pace_report.is_uneven(pace_of(list(compare(*times).values())))


def test_clocks_that_cannot_be_compared() -> None:
    """Optimizers that do not begin together say nothing about the clocks; too few steps neither."""
    assert node_pace.joined([node(0), node(1, jitter=0.05)]) is None
    few = node(1)
    (rank,) = few.ranks
    assert node_pace.joined([node(0), replace(few, ranks=(replace(rank, steps=rank.steps[:4]),))]) is None


def test_clocks_that_are_synchronized_are_believed() -> None:
    """Unless they contradict the steps."""
    known = node(0, synchronized=True), node(1, jitter=0.05, synchronized=True)
    assert node_pace.joined(known) is not None
    assert node_pace.joined([known[0], node(1, ahead=90.0, jitter=0.05, synchronized=True)]) is None
    assert node_pace.joined([node(0), node(1, jitter=0.05, machine="machine 0")]) is not None


def test_the_first_node_joins_all(tmp_path: Path) -> None:
    """Once both nodes have stored the same moment."""
    now = [100.0]
    pace, says = NodePace(tmp_path / "local", tmp_path / "node-n1", 2, first=True), Says()
    assert pace._all is not None
    pace._all._clock = lambda: now[0]
    pace.expected, pace.world = 1, 2
    places = [tmp_path / "node-n1", tmp_path / "node-n2"]
    for number, place in enumerate(places):
        place.mkdir()
        node_pace.write(place, node(number, late=0.04 * number))
    assert node_pace.read(places[1]) == node(1, late=0.04)
    node_pace.write(places[1], replace(node(1, late=0.04), round=6))
    pace._due = 1e9  # no rank is asked
    pace.tick(says)
    assert pace_report.read(tmp_path) is None  # one has stored an earlier moment
    now[0] += 60
    node_pace.write(places[1], node(1, late=0.04))
    pace.tick(says)
    found = pace_report.read(tmp_path)
    assert found is not None and [one.last_share for one in found.ranks] == [0.0, 1.0]
    assert pace_report.is_uneven(found) and says.said == []  # what follows the job says it
    node_pace.remove(places[0])
    assert node_pace.read(places[0]) is None and pace_report.read(tmp_path) is None


def _part(tmp_path: Path, number: int, *, late: float = 0.0) -> PaceOfPart:
    """A node of two that were started with --node-rank, which has stored its steps; its rank is not asked."""
    place = tmp_path / f"node{number}"
    place.mkdir(parents=True)
    node_pace.write(place, node(number, late=late))
    records = node_ranks.NodeRanks((EndedRank(number, host=f"host{number}"),), None, 2, ended=False)
    (place / node_ranks.NAME).write_text(json.dumps(asdict(records)))
    pace = PaceOfPart(place, number, 2, 1, 2)
    pace._due = 1e9
    return pace


def test_nodes_that_share_a_folder_are_compared_by_the_first(tmp_path: Path) -> None:
    """Of a run without Slurm and without --hosts."""
    first, second, says = _part(tmp_path, 0), _part(tmp_path, 1, late=0.04), Says()
    for pace in (first, second):
        pace.tick(says)
        assert not pace.gap()
    found = first.result()
    assert found is not None and [(one.host, one.last_share) for one in found.ranks] == [("host0", 0.0), ("host1", 1.0)]
    ((said, important),) = says.said
    assert said.startswith("host host1 is slower: ") and important
    assert pace_report.read(tmp_path / "node0") == found and pace_report.read(tmp_path / "node1") is None


def test_nodes_with_folders_of_their_own_say_what_is_not_known(tmp_path: Path) -> None:
    first, says = _part(tmp_path / "a", 0), Says()
    second = _part(tmp_path / "b", 1)
    first.tick(says)
    assert first.result() is None and not says.said
    for number, pace in enumerate((first, second)):
        assert pace.gap().startswith(f"node {number} of 2: the steps of the other nodes are not known here")
        assert "the same --log-dir" in pace.gap() and "--hosts" in pace.gap()
    node_pace.remove(tmp_path / "a" / "node0")
    assert not first.gap(), "it had nothing to compare: no steps, or too short a run"


def test_a_node_asks_at_the_same_moment_as_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert NodePace(tmp_path, tmp_path / "node-n1", 2, first=False).pause(15.0) == 20.0
    assert NodePace(tmp_path, tmp_path / "node-n1", 33, first=False).pause(15.0) == 20.0
    monkeypatch.setattr("time.time", lambda: 1021.0)
    assert NodePace(tmp_path, tmp_path / "node-n1", 33, first=False).pause(15.0) == 59.0
    assert PaceWatch(tmp_path, 2).pause(15.0) == 15.0


def test_only_steps_whose_collectives_are_known_are_stored() -> None:
    from mgpu.launch.pace_watch import Times

    ends = {3: {number: Ended(10.0 + number, 0.5, 0.25, 0.0) for number in range(1, 11)}}
    (found,) = node_pace._recent(Times(ends, {3: {("0", 9): 18.5, ("0", 10): 19.5}}))
    assert found == RankTimes(
        3, ((9, 19.0, 0.5, 0.25, 0.0), (10, 20.0, 0.5, 0.25, 0.0)), (("0", 9, 18.5), ("0", 10, 19.5))
    )


# Memory, and values that are not finite


def test_the_ranks_of_all_nodes(tmp_path: Path) -> None:
    """Joined with what the launcher has printed; a rank whose node has stored nothing is listed without memory."""
    for number in (1, 2):
        records = node_ranks.RankRecords(tmp_path / "none", tmp_path / f"node-n{number}", f"n{number}")
        (tmp_path / f"node-n{number}").mkdir()
        records.tick({number: processes.Rank(os.getpid(), local_rank=0)}, 4, ended=number == 1)
    place = tmp_path / "node-n2"
    first = node_ranks.read(place)
    assert first is not None and not first.ended and first.not_finite is None
    value = NotFinite(2, "loss", "nan", 7, 5.0)
    content = json.loads((place / node_ranks.NAME).read_text())
    content["not_finite"] = [{"rank": 2, "what": "loss", "value": "nan", "step": 7, "at": 5.0, "line": None}]
    (place / node_ranks.NAME).write_text(json.dumps(content))
    known = EndedRank(1, 3, first=True, host="n1", pid=7)
    run = node_ranks.with_records(Run(3, 3, 9.0, ranks=(known,)), tmp_path)
    assert [(one.rank, one.exit_code, one.host, one.peak_bytes is None) for one in run.ranks] == [
        (0, None, None, True),
        (1, 3, "n1", False),
        (2, None, "n2", False),
        (3, None, None, True),
    ]
    assert (run.ranks[1].first, run.ranks[1].pid, run.ranks[1].local_rank) == (True, 7, 0)
    assert run.not_finite == (value,) and run.expected == 4
    assert node_ranks.with_records(run, None) is run
    assert node_ranks.with_records(run, tmp_path / "none").not_finite is None


# What is left on a node


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder as the ranks of a job make it."""
    folder = tmp_path / f"mgpu-{os.geteuid()}-12-n1"
    os.close(node_files.claim(folder))
    for name in ("0.7.stacks", "0.7.beat", "0.7.nan", "0.7.flight.tmp"):
        (folder / "recorder" / name).touch()
    os.mkfifo(folder / "recorder" / "0.7.ask")
    return folder


def test_what_mgpu_has_made_is_removed(made: Path) -> None:
    assert node_files.remove(made) == "" and not made.exists()
    assert node_files.remove(made) == ""
    made.mkdir(0o700)
    assert node_files.remove(made) == "" and not made.exists()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("link", "is a link or a file"), ("file", "is a link or a file"), ("inner link", "is a link or a file"),
        ("open to others", "of this user alone"), ("other user", "of this user alone"),
        ("other file", "contains 'notes.txt'"), ("inner file", "contains 'model.pt'"), ("a link in it", "'1.7.beat'"),
        ("a second name", "contains '1.7.beat'"), ("name", "not have the name"), ("user", "not have the name"),
    ],
)  # fmt: skip
def test_what_mgpu_may_not_have_made_stays(made: Path, tmp_path: Path, how: str, why: str) -> None:
    theirs = tmp_path / "theirs"
    if how in ("link", "file"):
        made = made.rename(theirs).with_name(made.name)
        made.symlink_to(theirs) if how == "link" else made.touch()
    elif how == "inner link":
        (made / "recorder").rename(theirs)
        (made / "recorder").symlink_to(theirs)
    elif how == "open to others":
        made.chmod(0o770)
    elif how == "other user":
        os.chown(made, 65534, 65534)
    elif how == "other file":
        (made / "notes.txt").write_text("mine")
    elif how == "inner file":
        (made / "recorder" / "model.pt").write_text("mine")
    elif how == "a link in it":
        theirs.write_text("mine")
        (made / "recorder" / "1.7.beat").symlink_to(theirs)
    elif how == "a second name":
        theirs.write_text("mine")
        os.link(theirs, made / "recorder" / "1.7.beat")
    else:
        made = made.rename(tmp_path / ("mgpu-test" if how == "name" else f"mgpu-{os.geteuid() + 1}-12-n1"))
    before = sorted(tmp_path.rglob("*"))
    trouble = node_files.remove(made)
    assert trouble.startswith("not removed: ") and why in trouble
    assert sorted(tmp_path.rglob("*")) == before


def test_what_an_earlier_job_has_left(made: Path) -> None:
    """Removed if nothing watches it and no rank records there; never that of another node or user."""

    def folder(name: str) -> Path:
        path = made.with_name(name)
        os.close(node_files.claim(path))
        (path / "recorder" / f"0.{os.getpid()}.stacks").touch()
        return path

    user = os.geteuid()
    stays = [folder(f"mgpu-{user}-11-n2"), folder(f"mgpu-{user + 1}-11-n1"), folder(f"mgpu-{user}-11-x-n1")]
    watched = folder(f"mgpu-{user}-10-n1")
    lock = node_files.claim(watched)
    recorded = made.with_name(f"mgpu-{user}-9-n1")
    variables = environment(made.parent, {"MGPU_RECORDER": str(recorded / "recorder"), "RANK": "0"})
    rank = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], env=variables, stdin=-1, stdout=-1)
    try:
        assert rank.stdout is not None and rank.stdout.readline()
        os.close(node_files.claim(recorded))
        (recorded / "recorder" / f"0.{rank.pid}.stacks").touch()
        node_files.remove_left_over(made.with_name(f"mgpu-{user}-13-n1"))
        assert not made.exists() and watched.exists() and recorded.exists() and all(one.exists() for one in stays)
    finally:
        rank.communicate(b"\n")
    os.close(lock)
    wait_for(lambda: processes.state_of(rank.pid) is None, 5)
    node_files.remove_left_over(made.with_name(f"mgpu-{user}-13-n1"))
    assert not watched.exists() and not recorded.exists() and all(one.exists() for one in stays)


def test_the_end_of_a_job_is_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Slurm prints when it cancels a job that hangs withdraws the verdict only until the watch is ended."""
    from mgpu.hangs import hang_files

    (tmp_path / "node-n1").mkdir()
    run = node_watch.NodeRun(tmp_path / "recorder", None, "7")
    node_of_job = node_watch.Node(tmp_path / "node-n1", tmp_path, "n1", nodes=1, first=True)
    for later, stays in ((0.0, True), (60.0, False)):
        watch = node_watch.NodeWatch(node_of_job, run, 30.0, "report")
        watch._watch.verdict = Hang(40.0, 1.0)
        watch.tick()
        assert hang_files.read(tmp_path) == Hang(40.0, 1.0)
        watch._watch.verdict = None
        watch.tick()
        assert hang_files.read(tmp_path) is None
        now = time.monotonic() + later
        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", lambda now=now: now)
            watch.end()
        assert (hang_files.read(tmp_path) is not None) is stays
        hang_files.remove(tmp_path)
