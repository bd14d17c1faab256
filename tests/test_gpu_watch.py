"""Does somebody who starts a run on GPUs hear whether all of them work, and is never told so wrongly?

The fake NVML stands for the GPUs; what it says changes while it is read.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mgpu import durations, errors
from mgpu.launch import gpu_readings_file, gpu_table, gpu_usage, gpu_watch, list_runs, registry
from mgpu.probes import gpu_monitor
from mgpu.probes.gpu_monitor import ListedProcess, Reading
from mgpu.process import boot
from mgpu.process.command import Command
from mgpu.report import screen as report_screen
from mgpu.snapshot import GpuWork, Snapshot
from tests import fake_nvml
from tests.checks.facts import GIB, MIB, config, facts, uuid
from tests.conftest import environment
from tests.scripts import SCRIPTS, wait_for
from tests.terminal import CONTROL_C, Terminal

PIDS = (4000, 4001, 4002, 4003)  # of ranks 0 to 3
COMMAND = Command(("python", "train.py"), run_id="f00d", ranks=4)
FOREIGN = ListedProcess(777, 20 * GIB, None)  # a pid of the host's, in a container


def on(*pids: int) -> tuple[ListedProcess, ...]:
    return tuple(ListedProcess(pid, 60 * GIB, True) for pid in pids)


def reading(percent: int | None = 95, gib: float = 61.0, pids: Sequence[int] | None = (), **more: Any) -> Reading:
    listed = None if pids is None else on(*pids)
    usual = Reading(int(gib * GIB), 80 * GIB, percent, 600.0, 700.0, listed)
    return replace(usual, **more)


def training() -> list[Reading]:
    return [reading(92 + rank, 61 + rank / 2, (PIDS[rank],)) for rank in range(4)]


IDLE = reading(0, 600 / 1024)


class Gauges:
    """What the child would have read: the test says it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.number, self.silent_s, self.trouble, self.ended = 0, 0.0, None, False
        self.now: list[Reading] = []

    def read(self) -> Mapping[str, Reading]:
        return {uuid(index): reading for index, reading in enumerate(self.now)}

    def end(self) -> None:
        self.ended = True


class Going:
    """A run that goes on, second after second, under a clock that the test turns."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.seconds, self.started, self.last_output = 0.0, 0.0, 0.0
        self.ranks = {rank: SimpleNamespace(pid=pid) for rank, pid in enumerate(PIDS)}
        self.said: list[str] = []
        self.noted: list[str] = []
        self.gauges = Gauges()
        snapshot = Snapshot(**facts(config=config(), **changes))
        self.watch = gpu_watch.Watch(snapshot, COMMAND, folder, lambda: self.seconds, lambda *_, **__: self.gauges)  # type: ignore[arg-type]

    def say(self, text: str) -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        self.noted.append(text)

    def go(self, seconds: float, *gpus: Reading, silent: bool = False) -> list[str]:
        """So many seconds in which the GPUs do this; what was said meanwhile."""
        before, end = len(self.said), self.seconds + seconds
        while self.seconds < end:
            self.seconds += 1.0 if self.seconds < 120 else 2.0  # as the child does
            self.gauges.now = list(gpus)
            self.gauges.number += 1
            if not silent:
                self.last_output = self.seconds
            self.watch.tick(self)
        return self.said[before:]


@pytest.fixture
def going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Going:
    """A run of four ranks on four GPUs, of which nothing is stored: hours pass in it."""
    monkeypatch.setattr(gpu_readings_file, "write", lambda folder, stored: None)
    return Going(tmp_path)


# What is said while it goes on


def test_all_train_is_said_once(going: Going) -> None:
    assert going.go(59, *training()) == []
    (said,) = going.go(30, *training())
    assert said == "after 1 min all 4 GPUs train: 61-62 of 80 GiB, 92-95 % busy"
    assert going.go(1200, *training()) == []


def test_a_long_start_is_not_called_idle(going: Going) -> None:
    """Tokenising for eight minutes; then the first batches; judged is what comes after them."""
    (said,) = going.go(480, *[IDLE] * 4)
    assert said == "after 1 min no GPU is busy yet (loading, tokenizing, compiling?); still monitoring"
    (said,) = going.go(180, *training())
    assert said.startswith("after 9 min") and "all 4 GPUs train" in said


def test_a_rank_that_prepares_the_data_for_all_is_waited_for(going: Going) -> None:
    """The others are 100 % busy with waiting for it; it has a context, and no work yet."""
    waiting = [reading(0, 1.1, (PIDS[0],)), *(reading(100, 1.4, (pid,)) for pid in PIDS[1:])]
    assert going.go(300, *waiting) == []
    assert "all 4 GPUs train" in going.go(120, *training())[0]


def test_one_that_never_works_is_told_in_the_end(going: Going) -> None:
    waiting = [reading(0, 1.1, (PIDS[0],)), *(reading(100, 1.4, (pid,)) for pid in PIDS[1:])]
    (said,) = going.go(700, *waiting)
    assert said == "after 10 min 3 of 4 GPUs busy, idle: GPU 0: 1 of 80 GiB, 0-100 % busy"


def test_an_idle_gpu_is_named_with_why_that_usually_is(going: Going) -> None:
    said = going.go(90, *training()[:3], IDLE)
    assert said == [
        "after 1 min 1 of 4 GPUs is not training: GPU 3 (rank 3)",
        "Compare num_processes in the config with the number of GPUs. In the script, look for cuda:0, .cuda(), "
        'device_map="auto" and CUDA_VISIBLE_DEVICES.  nvidia-smi',
    ]
    assert going.go(900, *training()[:3], IDLE) == []


def test_all_ranks_on_the_first_gpu(going: Going) -> None:
    said = going.go(90, reading(99, 70, PIDS), IDLE, IDLE, IDLE)
    assert said[0] == "after 1 min 4 ranks share GPU 0: ranks 0, 1, 2 and 3"
    assert "not training" not in " ".join(said)  # it follows from the first


def test_in_a_container_the_pids_tell_nothing(going: Going) -> None:
    """NVML has the host's: neither "no process" nor "all on one GPU" may follow from them."""
    foreign = [replace(one, processes=(replace(FOREIGN, pid=700 + n),)) for n, one in enumerate(training())]
    assert "all 4 GPUs train" in going.go(90, *foreign)[0]
    assert [gpu.processes for gpu in going.watch.result().gpus or ()] == [None] * 4


def test_a_pid_of_the_host_that_happens_to_be_one_of_ours(going: Going) -> None:
    """One that does not exist here shows that none of them is meant."""
    foreign = [replace(one, processes=(*on(PIDS[0]), FOREIGN)) for one in training()]
    assert "all 4 GPUs train" in going.go(90, *foreign)[0]
    assert [gpu.processes for gpu in going.watch.result().gpus or ()] == [None] * 4


def test_processes_that_are_all_others(going: Going) -> None:
    """No process of the run under any pid: it may be that NVML counts otherwise."""
    others = [replace(one, processes=(ListedProcess(9000, 20 * GIB, False),)) for one in training()]
    assert "all 4 GPUs train" in going.go(90, *others)[0]
    assert [gpu.processes for gpu in going.watch.result().gpus or ()] == [None] * 4


def test_a_process_without_memory_is_not_on_the_gpu(going: Going) -> None:
    """As NVML shows one for each GPU that a process could reach."""
    there = [
        replace(one, processes=(*on(PIDS[n]), ListedProcess(PIDS[0], 0, True))) for n, one in enumerate(training())
    ]
    assert "all 4 GPUs train" in going.go(90, *there)[0]
    assert [gpu.processes for gpu in going.watch.result().gpus or ()] == [(pid,) for pid in PIDS]


def test_in_a_container_a_gpu_without_memory_and_work_is_idle_all_the_same(going: Going) -> None:
    foreign = [replace(one, processes=(FOREIGN,)) for one in training()[:3]]
    assert "GPU 3 (rank 3)" in going.go(90, *foreign, replace(IDLE, processes=()))[0]


def test_starved_gpus_are_told_when_it_lasts(going: Going) -> None:
    low = [replace(one, busy_percent=31) for one in training()]
    assert going.go(170, *low) == []  # the first steps may be compiling
    said = going.go(60, *low)
    assert said[0] == "after 3 min the GPUs are busy 31 % of the time" and "num_workers" in said[1]


def test_no_gpu_used_at_all(going: Going) -> None:
    assert "no GPU is busy yet" in going.go(590, *[IDLE] * 4)[0]
    said = going.go(60, *[IDLE] * 4)
    assert said[0] == "after 10 min none of 4 GPUs is used: the program runs on the CPU"


def test_one_that_falls_idle_later_is_told_once(going: Going) -> None:
    going.go(300, *training())
    stuck = [*training()[:2], replace(training()[2], busy_percent=0), training()[3]]
    assert going.go(290, *stuck) == []  # an evaluation may take this long
    said = going.go(120, *stuck)
    assert said[0].endswith("GPU 2 (rank 2) has been idle for 5 min while the others are busy")
    assert said[1] == f"Check where its rank is.  py-spy dump --pid {PIDS[2]}"
    assert going.go(1800, *stuck) == []


def test_a_hang_is_full_load_at_little_power_in_silence(going: Going) -> None:
    going.go(300, *training())
    spins = [replace(one, busy_percent=100, power_w=120.0) for one in training()]
    assert going.go(590, *spins, silent=True) == []
    said = going.go(120, *spins, silent=True)
    assert said[0].endswith("output for 10 min: probably a hang") and "py-spy dump --pid 4000" in said[1]
    assert going.go(1800, *spins, silent=True) == []


def test_a_long_silence_at_full_power_is_no_hang(going: Going) -> None:
    going.go(300, *training())
    assert going.go(3600, *[replace(one, busy_percent=100) for one in training()], silent=True) == []


def test_a_small_model_that_always_draws_little_does_not_hang(going: Going) -> None:
    assert len(going.go(3600, *[replace(one, busy_percent=100, power_w=120.0) for one in training()], silent=True)) == 1


def test_what_nvml_does_not_tell_is_not_made_up(going: Going) -> None:
    """MIG and some virtual GPUs: no utilisation, no processes."""
    dark = Reading(20 * GIB, 80 * GIB, None)
    assert going.go(700, *[dark] * 4) == ["after 1 min 4 GPUs; NVML does not report utilization: 20 of 80 GiB"]
    seen = going.watch.result().gpus or ()
    assert [(gpu.busy_percent, gpu.busy_share, gpu.idle_s, gpu.processes) for gpu in seen] == [(None,) * 4] * 4


def test_with_nothing_told_nothing_is_claimed(going: Going) -> None:
    nothing = Reading(None, None, None)
    assert going.go(700, *[nothing] * 4) == ["after 10 min 4 GPUs; NVML does not report utilization"]


# What is kept for the end


def test_the_facts_of_the_end(going: Going) -> None:
    going.go(100, *[IDLE] * 4)
    going.go(200, *training())
    going.go(60, *training()[:3], reading(0, 75, (PIDS[3],)))
    going.go(40, *[IDLE] * 4)  # saving, after the last step
    seen = going.watch.result()
    assert seen.gpus is not None and seen.gap is None and seen.after_s == 2.0
    assert [gpu.rank for gpu in seen.gpus] == [0, 1, 2, 3]
    assert [gpu.samples for gpu in seen.gpus] == [140] * 4  # neither the long start nor the saving
    assert seen.gpus[0].busy_percent == 92.0 and seen.gpus[0].busy_share == 1.0
    last = seen.gpus[3]
    assert last.peak_bytes == 75 * GIB and last.busy_share == round(110 / 140, 3)
    assert last.processes == (PIDS[3],) and last.idle_s == 100.0 and seen.gpus[0].idle_s == 40.0
    assert last.before_bytes == 600 * MIB and last.total_bytes == 80 * GIB
    assert gpu_usage.peak(seen.gpus) == "peak memory 75 of 80 GiB (rank 3)"
    assert gpu_usage.busy(seen.gpus) == "75-94 % busy"


def test_the_ranks_of_the_second_machine(going: Going) -> None:
    going.ranks = {rank: SimpleNamespace(pid=pid) for rank, pid in enumerate(PIDS, 4)}
    going.go(3, *training())
    assert [gpu.rank for gpu in going.watch.result().gpus or ()] == [4, 5, 6, 7]


def test_the_gpus_are_those_of_gpu_ids(tmp_path: Path) -> None:
    run = Going(tmp_path)
    two = config("distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 1,3\n")
    snapshot = Snapshot(**facts(config=two))
    run.watch = gpu_watch.Watch(
        snapshot, replace(COMMAND, ranks=2), tmp_path, lambda: run.seconds, lambda *_, **__: run.gauges  # type: ignore[arg-type]
    )  # fmt: skip
    run.go(90, IDLE, reading(90, 50, PIDS[:1]), IDLE, reading(90, 50, PIDS[1:2]))
    assert [(gpu.index, gpu.rank) for gpu in run.watch.result().gpus or ()] == [(1, 0), (3, 1)]
    assert "all 2 GPUs train" in run.said[0]


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (None, ""),
        ((), ""),
        ((GpuWork(0, "a"),), ""),
        ((GpuWork(0, "a", peak_bytes=6 * GIB, total_bytes=80 * GIB),), "peak memory 6.0 of 80 GiB"),
        (
            (GpuWork(0, "a", peak_bytes=9, total_bytes=80), GpuWork(4, "b", peak_bytes=40 * GIB, total_bytes=79 * GIB)),
            "peak memory 40 of 79 GiB (GPU 4)",
        ),
    ],
)
def test_the_peak_in_words(gpus: tuple[GpuWork, ...] | None, words: str) -> None:
    assert gpu_usage.peak(gpus) == words


# Nobody looks


def test_a_child_that_dies_is_told_at_the_end(going: Going) -> None:
    going.go(100, *training())
    going.gauges.trouble = "the gauges probe failed: NVMLError_Unknown: Unknown Error"  # type: ignore[assignment]
    going.gauges.number = -1000
    assert going.go(60, *training()) == []
    seen = going.watch.result()
    assert seen.gap is not None and "NVMLError_Unknown" in seen.gap and "1 min 41 s after the start" in seen.gap
    assert seen.gpus is not None and seen.gpus[0].samples > 90  # what was seen before still counts
    assert "GPU monitoring stopped" in going.noted[0] and len(going.noted) == 1


def test_a_child_that_hangs_is_given_up(going: Going) -> None:
    going.gauges.number, going.gauges.silent_s = -1000, 61.0
    assert going.go(80) == []
    seen = going.watch.result()
    assert seen.gpus is None and seen.gap is not None and "NVML has not answered for 61 s" in seen.gap


def test_a_bug_of_ours_does_not_end_the_run(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_usage.Tally, "take", lambda *_: 1 / 0)
    going.go(5, *training())
    assert "a bug in mgpu: " in (going.watch.result().gap or "") and len(going.noted) == 1


@pytest.mark.parametrize("changes", [{"gpus": ()}, {"gpus": None}, {"config": None}])
def test_without_gpus_no_child_is_started(tmp_path: Path, changes: dict[str, Any]) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a child was started")

    run = Going(tmp_path)
    snapshot = replace(Snapshot(**facts(config=config())), **changes)
    run.watch = gpu_watch.Watch(snapshot, COMMAND, tmp_path, lambda: run.seconds, never)
    assert run.go(100, silent=True) == []
    assert run.watch.result() == gpu_watch.Watched(quiet_s=100.0) and list(tmp_path.iterdir()) == []


def test_a_config_for_the_cpu_is_not_watched(tmp_path: Path) -> None:
    run = Going(tmp_path)
    snapshot = Snapshot(**facts(config=config("use_cpu: true\nnum_processes: 4\n")))
    run.watch = gpu_watch.Watch(snapshot, COMMAND, tmp_path, lambda: run.seconds)
    run.go(5)
    assert run.watch.gauges is None and run.watch.result().gap is None


# Stored for others


def test_the_latest_reading_is_stored(tmp_path: Path) -> None:
    Going(tmp_path).go(70, *training())
    path = tmp_path / gpu_readings_file.NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [p.name for p in tmp_path.iterdir()] == [
        gpu_readings_file.NAME
    ]
    found = gpu_readings_file.load_readings(tmp_path)
    assert found is not None and found.gap is None and "all 4 GPUs train" in found.said[0]
    assert [(now.index, now.rank, now.pids, now.busy_percent) for now in found.now[:2]] == [
        (0, 0, (PIDS[0],), 92), (1, 1, (PIDS[1],), 93),
    ]  # fmt: skip
    assert (
        gpu_readings_file.line(replace(found, at=time.time() - 3.5))
        == "4 GPUs, 61-62 of 80 GiB, 92-95 % busy (3 s ago)"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"at": 1}', "[" * 100_000, '{"at": 1.0, "gpus": [], "now": [1]}'])
def test_what_is_no_reading_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / gpu_readings_file.NAME).write_text(text)
    assert gpu_readings_file.load_readings(tmp_path) is None
    assert gpu_readings_file.load_readings(tmp_path / "none") is None and gpu_readings_file.line(None) == ""


def test_a_folder_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    assert "all 4 GPUs train" in Going(tmp_path / "gone").go(90, *training())[0]


# Seen live


def entry(folder: Path, **changes: Any) -> registry.Entry:
    """A run that this process supervises."""
    pid = os.getpid()
    new = registry.Entry(
        "20261121-1012-f00d", "f00d", "node7", boot.boot_id(), registry.pid_space(), pid,
        registry.started_at(pid) or 0, str(folder), str(folder), ("train.py",), (), "", durations.now(), ranks=4,
    )  # fmt: skip
    return replace(new, **changes)


def shown(found: registry.Entry, width: int = 80, state: registry.State = "running", glyphs: bool = False) -> str:
    screen = report_screen.Screen(width, glyphs, False, io.StringIO())
    screen.show(gpu_table.table(found, state, screen))
    return str(screen.stream.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Entry:
    """A run at work, with readings and a log."""
    monkeypatch.setattr(
        list_runs, "ranks", lambda entry: [{"rank": n, "pid": pid, "state": "running"} for n, pid in enumerate(PIDS)]
    )
    run = Going(tmp_path / "20261121-1012")
    run.watch.folder.mkdir()
    run.go(65, *training())
    (run.watch.folder / "run.log").write_text("step 99\nstep 100 loss \x1b[1m0.123\x1b[0m\n")
    return replace(entry(run.watch.folder), cwd=os.path.realpath("."))


def test_the_table(known: registry.Entry) -> None:
    first, *lines = shown(known).splitlines()
    assert first.startswith("20261121-1012-f00d  running for ")
    assert lines == [
        "Script     train.py",
        "GPU  rank  pid   memory GiB  busy  W    load",
        "0    0     4000  61.0 / 80   92 %  600  ##################..",
        "1    1     4001  61.5 / 80   93 %  600  ###################.",
        "2    2     4002  62.0 / 80   94 %  600  ###################.",
        "3    3     4003  62.5 / 80   95 %  600  ###################.",
        "mgpu: after 1 min all 4 GPUs train: 61-62 of 80 GiB, 92-95 % busy",
        "log: step 100 loss 0.123",
    ]
    assert "██░" in shown(known, glyphs=True)


@pytest.mark.parametrize("width", [20, 40, 60])
def test_the_table_on_a_narrow_screen(known: registry.Entry, width: int) -> None:
    text = shown(replace(known, cwd="/projects/a-folder-with-a-name-that-is-longer-than-the-screen/is-wide"), width)
    assert all(len(line) <= width for line in text.splitlines()), text
    assert "61.0 / 80" in text or width == 20


def test_the_table_says_where_a_process_is_not(known: registry.Entry) -> None:
    folder = Path(known.folder)
    found = gpu_readings_file.load_readings(folder)
    assert found is not None
    first, second, *others = found.now
    all_on_one = (replace(first, pids=PIDS), *(replace(now, pids=()) for now in (second, *others)))
    gpu_readings_file.write(folder, replace(found, now=all_on_one))
    lines = shown(known).splitlines()
    assert lines[3].startswith("0    0,1,2,3  4000 +3") and lines[4].split()[:3] == ["1", "none", "-"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"at": 0.0}, "the last reading is"),
        ({"gap": "NVML has not answered for 61 s"}, "GPU monitoring stopped: NVML has not answered"),
        ({"now": ()}, "rank  pid   state"),
    ],
)
def test_the_table_tells_what_it_does_not_know(known: registry.Entry, changes: dict[str, Any], words: str) -> None:
    found = gpu_readings_file.load_readings(Path(known.folder))
    assert found is not None
    gpu_readings_file.write(Path(known.folder), replace(found, **changes))
    assert words in shown(known)


def test_a_run_on_the_cpu_shows_its_ranks(known: registry.Entry) -> None:
    (Path(known.folder) / gpu_readings_file.NAME).unlink()
    text = shown(replace(known, started="2026-01-01T00:00:00Z"))
    assert "2     4002  running" in text and "no GPU of this run is monitored" in text


def test_without_a_terminal_it_is_shown_once(known: registry.Entry, capsys: pytest.CaptureFixture[str]) -> None:
    ended = replace(known, ended="2026-11-21T10:20:00Z", exit_code=3)
    assert gpu_table.watch(ended) == 3
    assert "FAILED" in capsys.readouterr().out
    assert gpu_table.watch(known) == 0
    assert "61.0 / 80" in capsys.readouterr().out


# All of it, on a machine that is described

HAND_OFF = """\
import sys
from dataclasses import replace
from pathlib import Path
from mgpu import probes
from mgpu.config import facts
from mgpu.launch import hand_off
from mgpu.launchers.argv import Command
from mgpu.launch.request import Request
snapshot = replace(probes.gather([probes.NVML]), config=facts(Path("accelerate.yaml"), ask_loader=False))
command = Command((sys.executable, sys.argv[1], "."), run_id="c0ffee", launcher="torchrun", ranks=2, script="train.py")
Path("logs").mkdir()
sys.exit(hand_off.hand_off(Request(json_result="result.json"), command, Path("logs"), snapshot))
"""


def test_a_run_from_its_start_to_its_end(library: Path, tmp_path: Path) -> None:
    """In one terminal the run, in others who looks at it."""
    described = fake_nvml.machine(tmp_path / "described", "a100_sxm_x4")
    (tmp_path / "accelerate.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 1\n")
    env = environment(tmp_path / "home", {**fake_nvml.environment(library, described), "MGPU_WATCH_AFTER": "2"})
    run = Terminal([sys.executable, "-c", HAND_OFF, str(SCRIPTS / "on_gpus.py")], env=env, cwd=tmp_path)
    looks = [sys.executable, "-m", "mgpu", "launch", "--watch"]
    try:
        run.see(" s all 2 GPUs train: 31-32 of 80 GiB, 95-96 % busy")
        looker = Terminal(looks, env=env, cwd=tmp_path, lines=24)
        text = looker.see("q or Ctrl-C: leave")
        assert "0    0" in text and "31.0 / 80   95 %" in text and "log: step 1" in text, text
        looker.press("q")
        assert looker.end() == 0 and "is still running.  mgpu launch --attach" in looker.text
        pids = [
            now.pids
            for now in (gpu_readings_file.load_readings(tmp_path / "logs") or gpu_readings_file.Stored(0, (), ())).now
        ]
        assert [pid and len(pid) for pid in pids] == [1, 1] and f"{pids[1] and pids[1][0]}" in text
        looker = Terminal([*looks, "logs"], env=env, cwd=tmp_path, lines=24)
        looker.see("q or Ctrl-C: leave")
        looker.press(CONTROL_C)
        assert looker.end() == errors.INTERRUPTED and run.child.isalive()
        looker = Terminal(looks, env=env | {"LC_ALL": "C", "NO_COLOR": "1"}, cwd=tmp_path, columns=40, lines=24)
        looker.see("32.0 / 80   96 %")
        (tmp_path / "stop").touch()
        assert (run.end(), looker.end()) == (3, 3)
    finally:
        (tmp_path / "stop").touch()
    assert looker.text.isascii() and b"\x1b[3" not in looker.raw, looker.text
    assert "FAILED" in looker.text and "log: step 100" in looker.text
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["exit_code"] == 3, told


def test_the_child_tells_who_computes_where(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = fake_nvml.machine(tmp_path, "a100_sxm_x4", f"1.compute_processes = {os.getpid()}:5GiB")
    for name, value in {**fake_nvml.environment(library, described), "MGPU_WATCH_AFTER": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MGPU_RUN_ID", "not ours")
    found = gpu_monitor.Gauges(0.05, "MGPU_RUN_ID=f00d")
    try:
        wait_for(found.read, 20)
        listed = [reading.processes for reading in found.read().values()]
        assert listed[1] == (ListedProcess(os.getpid(), 5 * GIB, False),) and listed[0] == ()
        fake_nvml.change(described, f"1.compute_processes = {fake_nvml.NOBODY}:5GiB", "2.power = 300000")
        wait_for(
            lambda: [r.processes for r in found.read().values()][1] == (ListedProcess(fake_nvml.NOBODY, 5 * GIB, None),)
        )
        assert [reading.power_w for reading in found.read().values()][2] == 300.0
        fake_nvml.change(described, "0.memory = abort")
        wait_for(lambda: (found.read(), found.trouble)[1])
        assert found.trouble == "the process that reads NVML was killed by signal 6"
    finally:
        found.end()
