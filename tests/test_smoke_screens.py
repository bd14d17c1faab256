"""What does `mgpu smoke-test` show: while the ranks climb, at the end, and in the formats for programs?

Screens are made from ranks that are told, not run, so that they are the same each time; one real run is watched in a
terminal.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from mgpu import cli, errors, probes
from mgpu.check import Crash, Fix, Problem, Severity
from mgpu.config import facts as config_facts
from mgpu.engine import Outcome
from mgpu.engine.verdict import SmokeVerdict, of_ranks
from mgpu.errors import MgpuError
from mgpu.launchers.gpu_selection import wanted_gpus
from mgpu.launchers.project_folder import RUNS, RUNS_BEFORE
from mgpu.probes import gpu_monitor
from mgpu.report import screen as report_screen
from mgpu.smoke import config_under_test as subjects
from mgpu.smoke import formats, watch
from mgpu.smoke import report as verdicts
from mgpu.smoke import run as smoke
from mgpu.smoke import screen as screens
from mgpu.smoke.config_under_test import Subject
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.report import Result
from mgpu.smoke.request import Request
from mgpu.snapshot import Bandwidth, PairRun, Plan, Rank, Ranks, Scaling, Snapshot, Step, Trial, gpu_in_use, to_json
from tests import fake_nvml
from tests.checks import facts as known
from tests.checks.facts import uuid
from tests.conftest import ROOT, Run, environment
from tests.scripts import TWO_RANKS, kill_all, marked, write_config
from tests.terminal import CONTROL_C, Terminal, same_screen
from tests.test_formats import outcome
from tests.test_schema import SMOKE
from tests.verdicts import judged

GIB = 1 << 30
WIDTHS = pytest.mark.parametrize("width", [40, 80, 120])
NAMED = {40: "_40_columns", 80: "", 120: "_120_columns"}


def plain(width: int = 80) -> report_screen.Screen:
    """A screen that is read afterwards."""
    return report_screen.Screen(width, False, False, io.StringIO())


def text(lines: Sequence[report_screen.Line], width: int = 80) -> str:
    """The lines as they are written without a terminal."""
    screen = plain(width)
    screen.show(lines)
    assert isinstance(screen.stream, io.StringIO)
    return screen.stream.getvalue()


# ---- while the ranks climb


class Told:
    """A run folder in which ranks that do not exist tell of themselves."""

    def __init__(self, folder: Path, ranks: int, **more: Any) -> None:
        self.folder, self.number = folder, ranks
        self.view = watch.View(Orders(str(folder), ranks, **more))

    def word(self, rung: str, word: str, *ranks: int, order: int = 1, **report_: Any) -> None:
        for rank in ranks or range(self.number):
            self._write(rank, order=order, rung=rung, word=word, limit_s=None, identity=report_)

    def passed(self, *rungs: str) -> None:
        for rank in range(self.number):
            for rung in rungs:
                done = {"rung": rung, "ok": True, "detail": f"{rung} is well", "seconds": 0.4}
                self._write(rank, order=1, rung=rung, done=done, report=None)

    def _write(self, rank: int, **record: Any) -> None:
        with (self.folder / f"rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps({"time": 0, **record}) + "\n")
        self.view.read()


@pytest.fixture
def training(tmp_path: Path) -> Told:
    """Four ranks on GPUs at step 13."""
    told = Told(tmp_path, 4, strategy="fsdp", precision="bf16")
    for rank in range(4):
        told.word("start", "begins", rank, gpu_uuid=uuid(rank))
    told.passed(*STAGES[:5])
    told.word("train", "step 13 of 20", order=50)
    told.word("train", "step 12 of 20", 2, order=40)
    return told


def paced(view: watch.View, *times: float) -> screens.Pace:
    """As if the ranks had been seen at these times, the last step at the last."""
    clock = iter(times)
    pace = screens.Pace(lambda: next(clock))
    for number, journal in view.journals.items():
        pace.first[number] = (1, 0.0)
        pace.last[number] = (1, 0.0)
        step = screens.step_of(journal.word)
        if step:
            pace.last[number] = (step, next(clock))
    return pace


@WIDTHS
def test_the_picture_of_ranks_on_gpus(training: Told, width: int) -> None:
    view = training.view
    readings = {uuid(n): gpu_monitor.Reading(int(6.2 * GIB), 79 * GIB, 97 - n) for n in range(4)}
    indices = {uuid(n): n for n in range(4)}
    pace = paced(view, 0.972, 0.972, 0.984, 0.972)
    lines = [
        *screens.stage_rows(view, plain(width), False),
        *screens.rank_table(view, plain(width), pace, indices, readings),
    ]
    shown = text(lines, width)
    assert max(map(len, shown.splitlines())) <= width
    same_screen(shown, f"smoke_training{NAMED[width]}")


def test_columns_of_which_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    told = Told(tmp_path, 2, cpu=True)
    told.word("start", "import torch", 0)
    shown = text(screens.rank_table(told.view, plain(), screens.Pace(lambda: 0.0), {}, {}))
    assert shown.splitlines() == ["", "  rank  last progress", "  0     import torch", "  1     starting"]


def test_of_many_ranks_those_furthest_behind_are_shown(tmp_path: Path) -> None:
    told = Told(tmp_path, 64, cpu=True)
    for rank in range(64):
        told.word("train", f"step {rank} of 99", rank, order=100 - rank)
    shown = text(screens.rank_table(told.view, plain(), screens.Pace(lambda: 0.0), {}, {})).splitlines()
    assert [line.split()[0] for line in shown[2:10]] == [str(rank) for rank in range(56, 64)]
    assert shown[10].strip() == "56 ranks further ahead are not shown"


def test_a_hostile_word_stays_in_its_line(tmp_path: Path) -> None:
    told = Told(tmp_path, 2, cpu=True)
    told.word("train", "a\x1b[2Jb\nc" + "x" * 200, 0)
    shown = text(screens.rank_table(told.view, plain(), screens.Pace(lambda: 0.0), {}, {}))
    assert "\x1b" not in shown and max(map(len, shown.splitlines())) <= 80 and len(shown.splitlines()) == 4


def test_pace_starts_again_with_the_next_training() -> None:
    now = [0.0]
    pace = screens.Pace(lambda: now[0])

    journal = SimpleNamespace(word="")
    view: Any = SimpleNamespace(journals={0: journal})
    for at, word in ((0.0, "step 1 of 20"), (2.0, "step 5 of 20"), (3.0, "DDP: step 1 of 4"), (4.0, "step 2 of 4")):
        now[0], journal.word = at, word
        pace.update(view)
    assert (pace.step(0), pace.seconds(0)) == (2, 1.0)


# ---- the live screen in a terminal


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """`tests/scripts/shows_rungs.py` in a terminal."""
    running: list[Terminal] = []

    def begin(what: str, *, columns: int = 80, lines: int = 40, ranks: int = 2, **env: str) -> Terminal:
        command = [sys.executable, "-m", "tests.scripts.shows_rungs", str(ranks), what]
        clean = environment(tmp_path, {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **env})
        running.append(Terminal(command, env=clean, cwd=ROOT, columns=columns, lines=lines))
        return running[-1]

    yield begin
    for terminal in running:
        terminal.child.close(force=True)


def left_as_it_was(raw: bytes) -> bool:
    """The cursor is shown again, and the alternate screen was never used."""
    return b"\x1b[?1049" not in raw and raw.rfind(b"\x1b[?25h") > raw.rfind(b"\x1b[?25l") >= 0


@WIDTHS
def test_what_stays_when_all_have_passed(watched: Callable[..., Terminal], width: int) -> None:
    terminal = watched("passes", columns=width)
    assert terminal.end() == 0
    assert left_as_it_was(terminal.raw)
    rows = [line for line in terminal.text.splitlines() if "ok" in line.split()[:2]]
    assert len(rows) == len(STAGES) and terminal.text.endswith("the end")
    assert "elapsed" not in terminal.text and "last progress" not in terminal.text


def test_at_most_four_pictures_a_second(watched: Callable[..., Terminal]) -> None:
    terminal = watched("runs")
    terminal.see("step 1 of 6")
    before, began = terminal.raw.count(b"elapsed"), time.monotonic()
    while time.monotonic() - began < 2:
        assert terminal._read()
    assert 2 <= terminal.raw.count(b"elapsed") - before <= 4 * (time.monotonic() - began) + 4
    terminal.press(CONTROL_C)
    assert terminal.end() == errors.INTERRUPTED
    assert left_as_it_was(terminal.raw)


def test_ranks_that_stopped_stay_on_the_screen(watched: Callable[..., Terminal]) -> None:
    terminal = watched("stops")
    assert terminal.end() == 0
    assert "FAIL  6 training steps   ranks 0-1: step 3 of 6" in terminal.text
    assert "7 checkpoint       not reached" in terminal.text and "last progress" in terminal.text


def test_a_window_lower_than_the_picture(watched: Callable[..., Terminal]) -> None:
    terminal = watched("runs", lines=12)
    terminal.see("step 1 of 6")
    terminal.see("elapsed")
    terminal.press(CONTROL_C)
    assert terminal.end() == errors.INTERRUPTED


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"MGPU_ACCESSIBLE": "1"}])
def test_a_terminal_that_is_not_painted_again(watched: Callable[..., Terminal], env: dict[str, str]) -> None:
    terminal = watched("passes", **env)
    assert terminal.end() == 0
    rungs = [line for line in terminal.text.splitlines() if line.split()[-1] != "end"]
    assert len(rungs) == len(STAGES) and all(" ok " in line for line in rungs)
    assert b"\x1b[?25l" not in terminal.raw and b"\x1b[2K" not in terminal.raw


@pytest.mark.parametrize("env", [{"LC_ALL": "C"}, {"NO_COLOR": "1"}])
def test_without_letters_or_colours(watched: Callable[..., Terminal], env: dict[str, str]) -> None:
    terminal = watched("passes", **env)
    assert terminal.end() == 0
    if "LC_ALL" in env:
        assert terminal.raw.isascii()
    else:
        assert b"\x1b[1m" not in terminal.raw and b"\x1b[3" not in terminal.raw  # no weight, no colour
    assert left_as_it_was(terminal.raw)


def test_a_real_run_in_a_terminal(tmp_path: Path) -> None:
    write_config(tmp_path)
    env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8"})
    terminal = Terminal([sys.executable, "-m", "mgpu", "smoke-test", "--level", "quick"], env=env, cwd=tmp_path)
    try:
        assert terminal.end(90) == errors.READY, terminal.text
    finally:
        kill_all(tmp_path)
    assert left_as_it_was(terminal.raw)
    assert "Testing accelerate.yaml on 2 CPU ranks (gloo): DDP, fp32." in terminal.text
    assert "ACCELERATE_USE_CPU=true (this machine has no NVIDIA GPU)" in terminal.text
    assert "PASSED  2 CPU ranks trained together correctly" in terminal.text
    assert "Not part of --level quick: checkpoint, bandwidth" in terminal.text
    (folder,) = (tmp_path / RUNS).iterdir()
    SMOKE.validate(json.loads((folder / "smoke.json").read_text()))
    # the same, later
    shown = subprocess.run(
        [sys.executable, "-m", "mgpu", "smoke-test", "--show"], env=env, cwd=tmp_path, text=True, capture_output=True
    )
    assert shown.returncode == errors.READY and "Last result of accelerate.yaml: just now" in shown.stdout
    assert shown.stdout.count(" ok ") == len(STAGES) - 2 and shown.stdout.count(" skip ") == 2
    assert "Verified: this config works on this machine" in shown.stdout


def test_control_c_in_a_real_run(tmp_path: Path) -> None:
    write_config(tmp_path)
    env = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8"})
    terminal = Terminal([sys.executable, "-m", "mgpu", "smoke-test"], env=env, cwd=tmp_path, columns=40)
    try:
        terminal.see("Ctrl-C stops")
        terminal.press(CONTROL_C)
        assert terminal.end(30) == errors.INTERRUPTED
        assert (
            "Interrupted after " in terminal.text
            and "(exit 130)." in terminal.text
            and "Traceback" not in terminal.text
        )
        assert left_as_it_was(terminal.raw) and not marked(tmp_path)
    finally:
        kill_all(tmp_path)


# ---- the verdict


def rank(number: int, **changes: Any) -> Rank:
    """A rank on a GPU that passed every rung."""
    steps = tuple(Step(rung, True, f"{rung} is well", 0.5) for rung in STAGES)
    usual: dict[str, Any] = {"steps": steps, "world_size": 4, "accelerate_world_size": 4}
    return replace(known.rank(number), **usual | changes)


def ranks(*members: Rank, **changes: Any) -> Ranks:
    found = members or tuple(rank(number) for number in range(4))
    usual = Ranks(4, STAGES, found, "finished", 0, 30.0, folder=".mgpu/runs/smoke-20261121-1004", level="standard")
    return replace(usual, **changes)


def measured_ranks() -> Ranks:
    """Four ranks that were timed."""
    rows = (Bandwidth("all_reduce", "nccl", 4, 64 << 20, 4.7e-4, 5e-4, 142.7, 214.0),)
    scaling = (
        Scaling(1, 1000.0, 0.08, 0.08, 1.0), Scaling(2, 1930.0, 0.083, 0.08, 0.965),
        Scaling(4, 3710.0, 0.086, 0.08, 0.9275),
    )  # fmt: skip
    members = [
        rank(
            number, bandwidth=rows, scaling=scaling, skipped=("FSDP1: the config says fsdp_version 2",),
            pairs=tuple(PairRun(other, True, None, 96.0 + other, 2e-6) for other in range(4) if other != number),
        )
        for number in range(4)
    ]  # fmt: skip
    return ranks(*members)


def result(told: Ranks, *outcomes: Outcome, verdict: SmokeVerdict = "passed", code: int = 0, **more: Any) -> Result:
    config = replace(known.config(), path="accelerate.yaml")
    machine = replace(Snapshot(**known.facts(ranks=told, config=config, rehearsal=None)), taken="2026-11-21T10:04:00Z")
    return Result(machine, outcomes, verdict, code, 14.62, **more)


def hang() -> tuple[Ranks, tuple[Outcome, ...]]:
    """Two pairs of GPUs cannot reach each other."""
    steps = (*(Step(rung, True, f"{rung} is well", 0.5) for rung in STAGES[:3]), Step("collectives", None))
    members = [replace(rank(number), steps=steps, finished=False, last_word="all-reduce") for number in range(4)]
    trials = (
        Trial("as configured", False), Trial("NCCL_P2P_DISABLE=1", True, busbw_gb_per_s=12.34),
        Trial("GPUs 0,1", True, gpus=(0, 1)), Trial("NCCL_IB_DISABLE=1", None, "no time left"),
    )  # fmt: skip
    cause = Problem(
        "rungs collectives: direct GPU-to-GPU transfer between {0,1} and {2,3} hangs",
        "These pairs cross the CPU. Usual reason: IOMMU/ACS in the BIOS, or consumer cards without peer access.",
        (
            Fix("Turn off PCIe ACS, or set iommu=pt.", who="admin"),
            Fix("Works now, slower.", ("export NCCL_P2P_DISABLE=1",), kind="stopgap"),
        ),
        {"rank": 0, "rung": "collectives"},
    )
    late = Problem("rank 2 never came", "It waits.", Fix("See above."))
    outcomes = (
        outcome("p2p_between_gpus_hangs", cause, area="smoke"),
        outcome("ranks_hang", late, area="smoke", because_of=("p2p_between_gpus_hangs",)),
        outcome("rank_is_slow", Problem("rank 3 is slow", "It waits.", Fix("Look.")), Severity.WARNING, "smoke"),
    )
    return ranks(*members, ended="stalled", launcher_exit=None, trials=trials), outcomes


@WIDTHS
def test_the_verdict_of_a_pass(width: int) -> None:
    said = verdicts.lines(
        result(measured_ranks(), stamped=".mgpu/verified.json"), Request(), plain(width)
    )  # fmt: skip
    same_screen(text(said, width), f"smoke_passed{NAMED[width]}")


@WIDTHS
def test_the_verdict_of_a_failure(width: int) -> None:
    told, outcomes = hang()
    tell = screens.Trials(plain(width))
    for trial in told.trials:
        tell(trial)
    assert isinstance(tell.screen.stream, io.StringIO)
    said = verdicts.lines(result(told, *outcomes, verdict="failed", code=1), Request(), plain(width))
    same_screen(tell.screen.stream.getvalue() + text(said, width), f"smoke_failed{NAMED[width]}")


def test_one_cause_is_named_and_its_consequences_fold_under_it() -> None:
    told, outcomes = hang()
    said = text(verdicts.lines(result(told, *outcomes, verdict="failed", code=1), Request(), plain(120)), 120)
    assert said.count("ranks_hang") == 1 and "Also     ranks_hang: rank 2 never came" in said
    assert said.index("rank_is_slow") < said.index("FAILED")  # other findings stand before the verdict
    assert said.partition("FAILED")[2].splitlines()[1].strip() == "p2p_between_gpus_hangs"


def test_an_interrupted_run_says_what_is_left() -> None:
    told = ranks(ended="interrupted", launcher_exit=None)
    said = text(verdicts.lines(result(told, verdict="unknown", code=130), Request(), plain()))
    assert said == "Interrupted after 15 s (exit 130).\n"
    left = replace(told, left_running=(4711, 4712))
    said = text(verdicts.lines(result(left, verdict="unknown", code=130), Request(), plain()))
    assert said.splitlines()[1] == "2 processes could not be killed: 4711 4712"


def verdict_of(told: Ranks, outcomes: Sequence[Outcome]) -> tuple[SmokeVerdict, int]:
    return of_ranks(told, outcomes, interrupted=errors.INTERRUPTED)


def test_a_crashed_check_is_no_pass() -> None:
    crashed = outcome("gpus_explode", Crash("ValueError: x", "Traceback: …"), area="smoke")
    assert verdict_of(ranks(), [crashed]) == ("unknown", errors.UNKNOWN)
    said = text(verdicts.lines(result(ranks(), crashed, verdict="unknown", code=3), Request(), plain()))
    assert "UNKNOWN  gpus_explode crashed. This is a bug in mgpu." in said and "Verified" not in said


def test_what_a_run_amounts_to() -> None:
    bad = outcome("x", Problem("t", "c", Fix("f")), area="smoke")
    doubtful = outcome("x", Problem("t", "c", Fix("f")), Severity.WARNING, "smoke")
    assert verdict_of(ranks(), [doubtful]) == ("passed", errors.READY)
    assert verdict_of(ranks(), [bad]) == ("failed", errors.NOT_READY)
    assert verdict_of(ranks(ended="timed_out"), [bad]) == ("failed", errors.TIMED_OUT)
    assert verdict_of(ranks(ended="interrupted"), [bad]) == ("unknown", errors.INTERRUPTED)


@pytest.mark.parametrize(
    ("changes", "request_", "words"),
    [
        ({"cpu": True}, Request(cpu=4), "CPU rehearsal, not recorded."),
        ({"cpu": True}, Request(), "The config sets use_cpu: this machine's GPUs were not used."),
        ({"level": "quick", "rungs": STAGES[:6]}, Request(), "Not part of --level quick: checkpoint, bandwidth"),
        ({}, Request(gpus="2"), "Not recorded: only some of the GPUs were tested."),
        ({}, Request(stamp=False), "Not recorded (--no-stamp)."),
        (
            {"cpu": True, "strategy": "deepspeed"},
            Request(),
            "Not recorded: DeepSpeed needs GPUs, so DDP was tested instead.",
        ),
        ({"expected": 1, "ranks": (rank(0),)}, Request(), "PASSED  1 GPU trained correctly in"),
    ],
)
def test_what_a_pass_does_not_say(changes: dict[str, Any], request_: Request, words: str) -> None:
    assert words in text(verdicts.lines(result(replace(ranks(), **changes)), request_, plain(120)), 120)


# ---- formats


def document(told: Result) -> dict[str, Any]:
    """The JSON document, as the schema has it."""
    found: dict[str, Any] = json.loads(formats.text_of(told, Request(format="json")))
    SMOKE.validate(found)
    return found


def test_json_of_a_pass() -> None:
    found = document(result(measured_ranks()))
    assert [stage["name"] for stage in found["stages"]] == list(STAGES)
    assert round(found["bandwidth"][0]["busbw_gb_per_s"]) == 214 and found["scaling"][-1]["ranks"] == 4
    assert [pair["ranks"] for pair in found["pairs"]] == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert found["pairs"][0]["gb_per_s"] == 96.0 and found["pairs"][0]["ok"] is True
    assert found["skipped"] == ["FSDP1: the config says fsdp_version 2"] and found["culprit"] is None
    assert found["config"]["path"] == "accelerate.yaml" and found["left"]["processes"] == []


def test_json_of_a_failure() -> None:
    told, outcomes = hang()
    found = document(result(told, *outcomes, verdict="failed", code=1))
    assert found["culprit"]["rank"] == 0 and found["culprit"]["rung"] == "collectives"
    status = {stage["name"]: (stage["status"], stage["detail"]) for stage in found["stages"]}
    assert status["collectives"] == ("fail", "ranks 0-3: all-reduce")
    assert status["pairs"] == ("skip", "not reached")
    assert [trial["ok"] for trial in found["diagnosis"]] == [False, True, True, None]
    assert {check["verify"] for check in found["checks"]} == {"mgpu smoke-test"}


def test_junit_has_every_rung_and_every_check() -> None:
    told, outcomes = hang()
    left_out = replace(told, rungs=STAGES[:6], level="quick")
    root = ElementTree.fromstring(
        formats.text_of(result(left_out, *outcomes, verdict="failed", code=1), Request(format="junit"))
    )
    assert root.get("name") == "mgpu smoke-test"
    rungs, smoke_suite = root.findall("testsuite")
    cases = {str(case.get("name")): case for case in rungs.findall("testcase")}
    assert list(cases) == list(STAGES)
    failure = cases["collectives"].find("failure")
    assert failure is not None and "direct GPU-to-GPU transfer" in str(failure.get("message"))
    skipped = cases["checkpoint"].find("skipped")
    assert skipped is not None and skipped.get("message") == "not part of level quick"
    assert {case.get("name") for case in smoke_suite.findall("testcase")} == {o.check.id for o in outcomes}
    assert int(str(root.get("tests"))) == len(STAGES) + 3 and int(str(root.get("failures"))) == 3


def test_github_annotates_and_ends_with_the_verdict() -> None:
    told, outcomes = hang()
    lines = formats.text_of(result(told, *outcomes, verdict="failed", code=1), Request(format="github")).splitlines()
    assert lines[0].startswith("::error title=p2p_between_gpus_hangs::rungs collectives")
    assert "%0AAlso ranks_hang: rank 2 never came" in lines[0]
    assert lines[-1].startswith("FAILED  rungs collectives: direct GPU-to-GPU")


def test_markdown_can_be_shown_to_everybody() -> None:
    """It is judged again, without the names."""
    steps = (*(Step(rung, True, f"{rung} is well", 0.5) for rung in STAGES[:3]), Step("collectives", None))
    stopped = rank(1, steps=steps, finished=False, process_state="stopped", silent_s=9.0, error="on node7")
    told = ranks(rank(0), stopped, expected=2, ended="stalled")
    machine_ = result(told).snapshot
    found = formats.text_of(
        result(told, *judged(machine_), verdict="failed", code=1), Request(format="markdown")
    )  # fmt: skip
    assert found.startswith("### mgpu smoke-test: FAILED\n")
    assert "| **FAIL** | collectives | ranks 0-1: step 20 of 20" in found and "#### 1. `rank_frozen` FAIL" in found
    assert "node7" not in found and uuid(0) not in found and "pid 5001" not in found


@pytest.mark.parametrize("format", ["human", "json", "junit", "github", "markdown"])
def test_a_refusal_in_every_format(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Snapshot(**known.facts(ranks=None, rehearsal=None))
    busy = ["GPU 0: ada's process (pid 4711) is using it"]
    output = tmp_path / "out"
    code = formats.report_refusal((), machine, Request(format=format, output=str(output)), 0.5, busy)
    assert code == errors.REFUSED
    said = output.read_text()
    assert "ada's process" in said.replace("&#x27;", "'").replace("\n", " ").replace("  ", " ") or format == "junit"
    if format == "json":
        SMOKE.validate(json.loads(said))
        assert json.loads(said)["exit_code"] == errors.REFUSED and "--allow-busy" in json.loads(said)["error"]
    assert not capsys.readouterr().out


def test_json_also_where_nothing_could_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert formats.report_failure(Request(format="json"), "interrupted", errors.INTERRUPTED, 0.1) == errors.INTERRUPTED
    out, err = capsys.readouterr()
    SMOKE.validate(json.loads(out))
    assert json.loads(out)["error"] == "interrupted" and err == "mgpu: interrupted\n"


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["smoke-test", "--json-schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "mgpu.smoke/1.0"


# ---- --show


def keep(folder: Path, told: Result, name: str = "smoke-1", age_s: float = 0.0, base: str = RUNS) -> Path:
    """A run folder, as the runner leaves it."""
    path = folder / base / name
    path.mkdir(parents=True)
    document_, facts = verdicts.result_paths(str(path))
    document_.write_text(formats.text_of(told, Request(format="json")))
    facts.write_text(json.dumps(to_json(told.snapshot)))
    os.utime(document_, (time.time() - age_s,) * 2)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with a config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGPU_LOG_DIR", raising=False)
    monkeypatch.delenv("MGPU_CONFIG", raising=False)
    write_config(tmp_path)
    return tmp_path


def test_show_prints_the_newest_and_ends_like_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told, outcomes = hang()
    keep(here, result(ranks()), age_s=86400 * 3, base=RUNS_BEFORE)
    newest = keep(here, result(told, *outcomes, verdict="failed", code=1), "smoke-2", 7200)
    assert cli.run(["smoke-test", "--show"]) == errors.NOT_READY
    out = capsys.readouterr().out
    assert "Last result of accelerate.yaml: 2 hours ago (" in out and "smoke-2" in out and "FAILED" in out
    assert "FAIL  4 collectives" in out and "skip  5 rank pairs" in out
    assert cli.run(["smoke-test", "--show", "--json"]) == errors.NOT_READY
    assert json.loads(capsys.readouterr().out) == json.loads((newest / "smoke.json").read_text())
    shutil.rmtree(newest)
    assert cli.run(["smoke-test", "--show"]) == errors.READY
    assert "3 days ago" in capsys.readouterr().out


def test_show_is_about_this_config(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(here, result(ranks()))
    write_config(here, name="other.yaml")
    assert cli.run(["smoke-test", "--show", "-c", "other.yaml"]) == errors.USAGE
    assert "no smoke test result for other.yaml here" in capsys.readouterr().err
    assert cli.run(["smoke-test", "--show"]) == errors.READY


def test_show_falls_back_to_the_stamp(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {
        "time": "2026-11-20T10:00:00Z",
        "facts": {"file": "accelerate.yaml"},
        "rungs": ["start", "train"],
        "measured": {},
    }
    (here / ".mgpu").mkdir()
    (here / ".mgpu" / "verified.json").write_text(json.dumps({"schema": 1, "entries": {"x": entry}}))
    assert cli.run(["smoke-test", "--show"]) == errors.READY
    assert "accelerate.yaml passed" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["{", "[]", '{"schema": "mgpu.doctor/1.0"}'])
def test_show_passes_over_what_is_no_result(damage: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep(here, result(ranks()))
    (path / "smoke.json").write_text(damage)
    assert cli.run(["smoke-test", "--show"]) == errors.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_show_of_damaged_facts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep(here, result(ranks()))
    (path / "facts.json").write_text("{}x")
    assert cli.run(["smoke-test", "--show"]) == errors.USAGE
    assert "cannot be read" in capsys.readouterr().err
    assert cli.run(["smoke-test", "--show", "--json"]) == errors.READY


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_show_without_some_of_the_streams(closed: str, here: Path) -> None:
    keep(here, result(ranks()))
    command = f"{sys.executable} -m mgpu smoke-test --show {closed}"
    assert subprocess.run(["sh", "-c", command], env=environment(here / "home"), cwd=here).returncode == errors.READY


# ---- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "xml"], "--format xml: choose human, json"),
        (["--level", "short"], "--level short: choose quick, standard or long"),
        (["--timeout", "nan"], "--timeout"),
        (["--stall-timeout", "inf"], "--stall-timeout"),
        (["--cpu", "5000"], "--cpu 5000: give a number from 1 to 1024"),
        (["--cpu", "2", "--gpus", "2"], "--cpu uses no GPUs: remove --gpus"),
        (["--cpu", "2", "--fill", "50"], "remove --fill"),
        (["--cpu", "2", "--allow-busy"], "remove --allow-busy"),
        (["--show", "--cpu", "2", "--fill", "0"], "--show only prints the last result: remove --cpu"),
        (["--show", "--baseline", "x", "--gpus", "2"], "remove --gpus, --baseline"),
        (["--gpus", "0"], "at least 1"),
        (["--gpus", "a"], "give a number of GPUs (2) or a list"),
        (["--gpus", "0,0"], "lists a GPU twice"),
        (["--gpus", "-1"], "--gpus -1"),
        (["--gpus", ","], "--gpus ,"),
    ],
)
def test_bad_options(options: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["smoke-test", *options]) == errors.USAGE
    out, err = capsys.readouterr()
    assert words in err and not out and "Traceback" not in err


@pytest.mark.parametrize(("said", "meant"), [("2", 2), ("0,2", (0, 2)), ("3,", (3,)), (" 1,0 ", (1, 0))])
def test_gpus_as_they_are_said(said: str, meant: Any) -> None:
    assert wanted_gpus(said) == meant


def machine(**changes: Any) -> Snapshot:
    return Snapshot(**known.facts(**{"ranks": None, "rehearsal": None, **changes}))


def subject(folder: Path, written: str = TWO_RANKS, **more: str) -> Subject:
    for name, value in more.items():
        written = "\n".join(line if not line.startswith(name) else f"{name}: {value}" for line in written.splitlines())
    return Subject(config_facts(write_config(folder, written), ask_loader=False), "accelerate.yaml")


@pytest.mark.parametrize(
    ("wanted", "gpus", "kind"), [("2", (0, 1), "MULTI_GPU"), ("3,", (3,), "NO"), ("2,0", (2, 0), "MULTI_GPU")]
)
def test_some_of_the_gpus(wanted: str, gpus: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    whole = subject(tmp_path, gpu_ids="all")
    narrow, seen = subjects.select_gpus(whole, machine(), Request(gpus=wanted), scratch)
    assert narrow.changed and narrow.config.path.startswith(str(scratch)) and narrow.config.sha256 is None
    assert (narrow.config.num_processes, narrow.config.distributed_type) == (len(gpus), kind)
    assert narrow.environment["CUDA_VISIBLE_DEVICES"] == ",".join(uuid(index) for index in gpus)
    assert seen.visible is not None and seen.visible.gpus == gpus


@pytest.mark.parametrize(
    ("wanted", "changes", "words"),
    [
        ("5", {}, "4 usable here"),
        ("0,9", {}, "no GPU 9, GPUs are numbered 0 to 3"),
        ("0,3", {"visible": known.seen(0, 1)}, "CUDA_VISIBLE_DEVICES hides GPU 3"),
        ("1,", {"gpus": known.gpus(4, known.lost(1))}, "GPU 1 does not respond"),
        ("4", {"gpus": known.gpus(4, known.lost(1))}, "3 usable here"),
        ("1", {"gpus": ()}, "no usable GPU here"),
    ],
)
def test_gpus_that_cannot_be_had(wanted: str, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(MgpuError, match=words) as error:
        subjects.select_gpus(subject(tmp_path), machine(**changes), Request(gpus=wanted), tmp_path)
    assert error.value.exit_code == errors.USAGE


def test_a_gpu_that_somebody_works_on(tmp_path: Path) -> None:
    busy = machine(gpus=known.gpus(4, known.gpu(1, processes=(known.process(),))))
    assert gpu_in_use.find_busy_gpus(subject(tmp_path).config, busy) == ["GPU 1: ada's process (pid 4711) is using it"]
    _, narrow = subjects.select_gpus(subject(tmp_path), busy, Request(gpus="0,2"), tmp_path)
    assert gpu_in_use.find_busy_gpus(subject(tmp_path).config, narrow) == []
    mine = machine(gpus=known.gpus(4, known.gpu(1, processes=(known.process(mine=True),))))
    assert gpu_in_use.find_busy_gpus(subject(tmp_path).config, mine) == []
    assert gpu_in_use.find_busy_gpus(subject(tmp_path).config, busy, cpu=True) == []


def test_a_gpu_that_somebody_works_on_is_not_loaded(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = machine(gpus=known.gpus(4, known.gpu(1, processes=(known.process(),))))
    monkeypatch.setattr(smoke, "_probe", lambda *_: busy)
    assert cli.run(["smoke-test", "--json"]) == errors.REFUSED
    told = json.loads(capsys.readouterr().out)
    SMOKE.validate(told)
    assert told["verdict"] == "unknown" and "GPU 1: ada's process (pid 4711) is using it" in told["error"]
    assert [check["id"] for check in told["checks"]] == ["gpu_busy"]
    assert cli.run(["smoke-test"]) == errors.REFUSED
    out = capsys.readouterr().out
    assert "NOT STARTED  GPU 1: ada's process" in out and "--allow-busy" in out and not (here / RUNS).exists()


def test_a_rehearsal_that_does_not_fit_is_checked_by_itself(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands keep the user's options: the doctor has no CPU ranks, and a config would be lost."""
    system = known.system(cpus_allowed=2, memory_available_bytes=64 << 30)
    write_config(here, TWO_RANKS, "other.yaml")

    def gather(*_: object, plan: Plan, **__: object) -> Snapshot:
        return replace(machine(system=system, slurm=known.slurm()), plan=plan)

    monkeypatch.setattr(probes, "gather", gather)
    assert cli.run(["smoke-test", "-c", "other.yaml", "--cpu", "64", "--checkpoint-dir", "/data"]) != 0
    out = capsys.readouterr().out
    assert "1 of 1  cpu_ranks_exceed_machine" in out  # and not that there are more ranks than GPUs
    assert "Check    mgpu smoke-test --config other.yaml --cpu 64 --checkpoint-dir /data\n" in out, out
    same = "--level standard --checkpoint-dir /data"
    assert f"mgpu smoke-test --config other.yaml --cpu 24 {same}\n" in out
    assert f"mgpu smoke-test --config other.yaml --cpu 64 {same.replace(' --ch', ' --timeout 437 --ch')}\n" in out


def test_a_rehearsal_takes_of_the_config_what_the_cpu_can(here: Path) -> None:
    write_config(
        here, known.YAML.replace("MULTI_GPU", "FSDP").replace("bf16", "fp16") + "fsdp_config:\n  fsdp_version: 2\n"
    )
    (scratch := here / "scratch").mkdir()
    found = subjects.load_subject(Request(cpu=2), scratch)
    assert (found.strategy, found.cpu, found.changed, found.name) == ("fsdp", True, True, "accelerate.yaml")
    assert found.config.precision == "bf16" and "fsdp_config" not in found.config.values
    assert found.notes == ("fp16 needs a GPU: testing with bf16 instead.",)
    orders = subjects.rank_orders(Request(cpu=2), found, known.driver(), here)
    assert (orders.strategy, orders.precision, orders.cpu, orders.world) == ("fsdp", "bf16", True, 2)


def test_a_config_that_says_use_cpu_is_told_as_what_it_is(here: Path) -> None:
    write_config(here, TWO_RANKS + "use_cpu: true\n")
    found = subjects.load_subject(Request(), here)
    assert found.cpu and not found.changed
    orders = subjects.rank_orders(Request(), found, known.driver(), here)
    assert orders.cpu
    said = text(screens.headline(found, machine(), Request(), orders, {}, (), plain()))
    assert "on 2 CPU ranks (gloo): DDP, fp32." in said and "mgpu sets" not in said


def test_the_headline_says_what_is_used(tmp_path: Path) -> None:
    whole = subject(tmp_path)
    orders = Orders(str(tmp_path), 2, precision="bf16", fill_percent=50, level="long")
    added = {"CUDA_VISIBLE_DEVICES": ",".join(uuid(n) for n in range(2)), "NCCL_DEBUG": "INFO"}
    request_ = Request(level="long", fill_percent=50)
    said = text(screens.headline(whole, machine(), request_, orders, added, ("gpu_busy",), plain(200)), 200)
    assert "on 2 GPUs: DDP, bf16." in said and f"Warnings  gpu_busy  (details: mgpu doctor -c {whole.name})" in said
    assert "Level long, limit 900 s, up to 1 GiB + 50 % of the free memory per GPU." in said
    assert "NCCL_DEBUG=INFO" in said and "CUDA_VISIBLE_DEVICES=GPU-" in said


# ---- the gauges


def test_gauges_read_a_described_machine(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = fake_nvml.machine(tmp_path, "h100_sxm_x8", fake_nvml.FAULTS["busy"])
    for name, value in fake_nvml.environment(library, described).items():
        monkeypatch.setenv(name, value)
    found = gpu_monitor.Gauges(interval_s=0.05)
    try:
        deadline = time.monotonic() + 20
        while not (readings := found.read()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        found.child.process.kill()
        found.child.process.wait()
        found.read()
        found.came -= 10
        assert found.read() == {}  # nothing is told of a GPU that was not heard of for a while
    finally:
        found.end()
    assert len(readings) == 8 and found.child.process.poll() is not None
    (busy,) = [reading for reading in readings.values() if reading.busy_percent == 97]
    assert busy.used_bytes == 32306 << 20 and busy.total_bytes is not None


def test_gauges_end_with_their_reader(library: Path, tmp_path: Path) -> None:
    """Also when it is killed."""
    described = fake_nvml.machine(tmp_path, "h100_sxm_x8")
    code = (
        "import time; from mgpu.probes.gpu_monitor import Gauges; g = Gauges(0.05)\n"
        "while not g.read(): time.sleep(0.02)\n"
        "print(g.child.process.pid, flush=True); time.sleep(60)"
    )
    env = environment(tmp_path, fake_nvml.environment(library, described, {}))
    reader = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    pid = int(reader.stdout.readline())
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline, "the child outlived its reader"
        time.sleep(0.05)


def test_gauges_without_nvml_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gpu_monitor.Gauges(interval_s=0.05)
    found.child.process.wait(20)
    assert found.read() == {}
    found.end()


def test_nothing_of_a_gpu_is_imported_here(mgpu: Run) -> None:
    code = (
        "import sys, mgpu.smoke.run, mgpu.smoke.screen, mgpu.smoke.show_last, mgpu.probes.gpu_monitor\n"
        "from mgpu.smoke.ranks.memory import MEMORY_BYTES\n"
        "print([name for name in ('torch', 'pynvml', 'accelerate') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_terminal_that_is_gone_at_the_end(tmp_path: Path) -> None:
    """The ranks are ended by then; what they did is judged and kept all the same."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    told = Told(tmp_path, 2)
    show = screens.StageScreen(report_screen.Screen(80, False, False, Gone()), machine())
    with show:
        show(told.view, True)


@pytest.mark.parametrize(
    ("name", "words"),
    [("nowhere/result.json", "no folder nowhere"), (".", "it is a folder"), ("text/x", "no folder text")],
)
def test_an_output_that_cannot_be_written_is_told_at_once(here: Path, name: str, words: str) -> None:
    (here / "text").write_text("", "utf-8")
    with pytest.raises(MgpuError, match=words) as error:
        Request(output=name).check()
    assert error.value.exit_code == errors.USAGE
    Request(output=str(here / "result.json")).check()
    Request(output=str(here / "text")).check()
    Request(output="/dev/stderr").check()


def test_the_command_of_a_test_that_was_not_started_pastes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a_config_with_quite_a_long_name_that_does_not_fit.yaml"
    write_config(here, "hello\n", name)
    assert cli.run(["smoke-test", "-c", name]) == errors.NOT_READY
    assert f"\n  mgpu doctor --config {name}\n" in capsys.readouterr().out


def test_a_second_interrupt_sweeps_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu.smoke import runner as climbing

    def again(*_: Any) -> Any:
        raise KeyboardInterrupt

    swept: list[Any] = []
    snapshot = machine()
    monkeypatch.setattr(climbing, "_command", lambda *_: None)
    monkeypatch.setattr(climbing, "_start", lambda *_: subprocess.Popen(["true"]))
    monkeypatch.setattr(climbing, "_watch", lambda *_: "interrupted")
    monkeypatch.setattr(climbing, "_end", again)
    monkeypatch.setattr("mgpu.process.leftover_files.sweep", lambda *told: swept.append(told))
    assert snapshot.config is not None
    orders = Orders(folder=str(tmp_path), world=2, rungs=STAGES)
    with pytest.raises(KeyboardInterrupt):
        climbing.run_ranks(climbing.Attempt(snapshot.config, snapshot, orders, 60.0))
    assert len(swept) == 1
