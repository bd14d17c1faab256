"""Which checks are asked, what the engine makes of their answers, and which verdict and exit code follow."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from mgpu import engine, errors
from mgpu.check import Answer, Check, Crash, Fix, Ok, Place, Problem, Severity, Skip
from mgpu.engine import Outcome, choose, run, run_check
from mgpu.engine.verdict import exit_code, of_machine
from mgpu.errors import MgpuError
from mgpu.report import findings
from mgpu.report.document import counts
from mgpu.snapshot import Driver, Gap, GapKind, Host, LeftProcess, Pci, Plan, Snapshot, System
from tests.checks.facts import (
    driver,
    facts,
    gpu,
    gpus,
    host,
    leftovers,
    lost,
    no_driver,
    process,
    seen,
    slurm,
    system,
    torch_runtime,
)
from tests.conftest import AREAS, CHECKS, ROOT

ALL = tuple(CHECKS.values())
PROBLEM = Problem("it is purple", "because", Fix("paint it"))


def made(name: str, answer: Any, severity: Severity = Severity.ERROR, because_of: tuple[str, ...] = ()) -> Check:
    """A check of the fact `host` that gives this answer, or raises it."""

    def function(host: Host) -> Answer:
        if isinstance(answer, Exception):
            raise answer
        found: Answer = answer
        return found

    function.__name__ = name
    return Check(function, severity, "mgpu: a test", because_of)


HERE = Snapshot(host=host())


# --- loading and choosing ----------------------------------------------------------------------------------------


def test_checks_come_by_area_in_display_order() -> None:
    areas = [check.area for check in engine.load()]
    places = [AREAS.index(area) for area in areas]
    assert places == sorted(places)
    assert engine.load() == engine.load()


def test_within_an_area_checks_come_as_they_are_written() -> None:
    for area in {check.area for check in ALL}:
        family = f"mgpu.checks.{area}"
        order = getattr(sys.modules[family], "ORDER", ())
        files = [f"{family}.{name}" for name in order] or [family]
        facts = (".log.circumstances", ".log.job_facts", ".log.setup_facts", ".log.versions_shown")
        no_finding = (".log.noise", *facts)
        files = [file for file in files if not file.endswith(no_finding)]
        written = [inspect.unwrap(c.function) for c in ALL if c.area == area]
        places = [(function.__module__, function.__code__.co_firstlineno) for function in written]
        assert list(dict.fromkeys(file for file, _ in places)) == files
        assert places == sorted(places, key=lambda place: (files.index(place[0]), place[1]))


def test_a_folder_names_all_of_its_files() -> None:
    for folder in {path.parent for path in (ROOT / "checks").glob("*/*.py")}:
        order: tuple[str, ...] = sys.modules[f"mgpu.checks.{folder.name}"].ORDER
        assert sorted(order) == sorted(path.stem for path in folder.glob("[!_]*.py")), folder


def test_every_area_has_a_row_on_the_screen() -> None:
    shown = {area for _, areas in findings.ROWS for area in areas}
    assert {check.area for check in ALL} <= shown


def ids(checks: Sequence[Check]) -> list[str]:
    return [check.id for check in checks]


@pytest.mark.parametrize(
    ("only", "skip", "found"),
    [
        (["shm_too_small"], [], ["shm_too_small"]),
        (["shm-too-small"], [], ["shm_too_small"]),
        ([" shm_too_small "], [], ["shm_too_small"]),
        (["stamp"], [], ["config_not_verified", "config_changed_since_verified"]),
        (["stamp", "shm_too_small"], [], ["shm_too_small", "config_not_verified", "config_changed_since_verified"]),
        (["stamp"], ["config-not-verified"], ["config_changed_since_verified"]),
        (["stamp"], ["stamp"], []),
        (["stamp", ""], [""], ["config_not_verified", "config_changed_since_verified"]),
    ],
)
def test_choose(only: list[str], skip: list[str], found: list[str]) -> None:
    assert sorted(ids(choose(ALL, only, skip))) == sorted(found)


def test_choose_keeps_the_order_and_all_by_default() -> None:
    assert choose(ALL) == ALL
    assert ids(choose(ALL, only=["stamp", "gpu"])) == [c.id for c in ALL if c.area in ("gpu", "stamp")]
    assert ids(choose(ALL, skip=["config"])) == [c.id for c in ALL if c.area != "config"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("shm_to_small", "shm_too_small"), ("gpus", "gpu"), ("xyzzy", None), ("network-", "network")],
)
@pytest.mark.parametrize("which", ["only", "skip"])
def test_a_name_nobody_bears_is_refused_with_the_nearest(which: str, name: str, nearest: str | None) -> None:
    with pytest.raises(MgpuError) as raised:
        choose(ALL, **{which: [name]})
    assert raised.value.exit_code == errors.USAGE == 2
    assert name.replace("-", "_") in raised.value.message
    assert "--list-checks" in raised.value.message
    if nearest:
        assert f"Did you mean {nearest}?" in raised.value.message


def test_a_word_of_several_names_lists_them() -> None:
    with pytest.raises(MgpuError, match="Did you mean shm_too_small, shm_not_writable, shm_holds_leftovers or"):
        choose(ALL, only=["shm"])


# --- asking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(GapKind))
def test_a_fact_with_a_gap_is_skipped_with_its_reason(kind: GapKind) -> None:
    snapshot = Snapshot(gaps={"host": Gap(kind, "uname did not answer in 3 s")})
    (outcome,) = run_check(made("one", Ok("well")), snapshot)
    assert outcome.answer == Skip("uname did not answer in 3 s")
    assert outcome.status == "skip"
    assert (outcome.unknown, outcome.not_asked) == (kind != "not_asked", kind == "not_asked")  # left out on purpose
    assert outcome.unsettling == (kind in ("timed_out", "crashed"))


def test_of_several_missing_facts_the_gravest_is_told() -> None:
    def both(host: Host, system: System, driver: Driver) -> Answer:
        return Ok("well")

    gaps = {
        "host": Gap("not_asked", "left out"),
        "system": Gap("timed_out", "no answer"),
        "driver": Gap("no_permission", "root only"),
    }
    one = Check(both, Severity.ERROR, "https://example.org")
    assert run_check(one, Snapshot(gaps=gaps))[0].answer == Skip("no answer")
    del gaps["system"]
    assert run_check(one, Snapshot(gaps=gaps, system=system()))[0].answer == Skip("root only")


def test_a_fact_nobody_asked_for_is_skipped_and_settles() -> None:
    (outcome,) = run_check(made("one", Ok("well")), Snapshot())
    assert outcome.answer == Skip("host was not checked")
    assert (outcome.unknown, outcome.unsettling) == (True, False)


def test_the_gap_of_the_fact_that_is_missing_is_the_one_that_is_told() -> None:
    def function(host: Host, plan: Plan) -> Answer:
        return Ok("well")

    check = Check(function, Severity.ERROR, "mgpu: a test")
    gaps = {"host": Gap("timed_out", "host"), "plan": Gap("no_permission", "plan")}
    assert run_check(check, replace(HERE, gaps=gaps))[0].answer == Skip("plan")
    assert run_check(check, Snapshot(gaps=gaps))[0].answer == Skip("host")
    assert run_check(check, replace(HERE, plan=Plan(), gaps=gaps))[0].answer == Ok("well")


def test_what_is_known_to_be_empty_is_known() -> None:
    def function(gpus: tuple[object, ...]) -> Answer:
        return Ok(f"{len(gpus)}")

    assert run_check(Check(function, Severity.ERROR, "mgpu: a test"), Snapshot(gpus=()))[0].answer == Ok("0")


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), KeyError("x"), AssertionError()])
def test_an_exception_is_a_crash_of_that_check_alone(error: Exception) -> None:
    broken, sound = run([made("broken", error), made("sound", Ok("well"))], HERE)
    assert isinstance(broken.answer, Crash)
    assert broken.status == "crash"
    assert broken.problem is None
    assert broken.answer.error == f"{type(error).__name__}: {error}"
    assert "Traceback" in broken.answer.trace and type(error).__name__ in broken.answer.trace
    assert sound.status == "ok"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_swallowed(error: type[BaseException]) -> None:
    def function(host: Host) -> Answer:
        raise error

    with pytest.raises(error):
        run_check(Check(function, Severity.ERROR, "mgpu: a test"), HERE)


@pytest.mark.parametrize(
    ("severity", "status"), [(Severity.ERROR, "fail"), (Severity.WARNING, "warn"), (Severity.INFO, "info")]
)
def test_the_status_of_a_problem_is_the_severity_of_its_check(severity: Severity, status: str) -> None:
    (outcome,) = run_check(made("one", PROBLEM, severity), HERE)
    assert (outcome.status, outcome.problem) == (status, PROBLEM)


def test_several_problems_are_several_outcomes() -> None:
    second = replace(PROBLEM, title="it is green")
    outcomes = run([made("many", (PROBLEM, second), because_of=("cause",)), made("cause", PROBLEM)], HERE)
    assert [o.problem for o in outcomes] == [PROBLEM, second, PROBLEM]
    assert [o.because_of for o in outcomes] == [("cause",), ("cause",), ()]


@pytest.mark.parametrize(
    ("cause", "folded"),
    [
        (PROBLEM, ("cause",)),
        ((PROBLEM, PROBLEM), ("cause",)),
        (Ok("well"), ()),
        (Skip("not here"), ()),
        (ValueError("x"), ()),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_only_a_problem_that_was_found_explains_another(cause: Any, folded: tuple[str, ...], first: bool) -> None:
    consequence = made("consequence", PROBLEM, because_of=("absent", "cause"))
    checks = [made("cause", cause), consequence] if first else [consequence, made("cause", cause)]
    outcomes = {o.check.id: o for o in run(checks, HERE)}
    assert outcomes["consequence"].because_of == folded
    assert outcomes["cause"].because_of == ()


def test_what_is_well_is_explained_by_nothing() -> None:
    outcomes = run([made("cause", PROBLEM), made("consequence", Ok("well"), because_of=("cause",))], HERE)
    assert outcomes[1].because_of == ()


def test_one_lost_gpu_is_one_root() -> None:
    manager = LeftProcess(812, "nv-fabricmanage", "fabric_manager", False)
    machine = facts(
        gpus=gpus(4, lost(3)), torch_runtime=torch_runtime(3), plan=Plan(expect_gpus=4),
        leftovers=leftovers(processes=(manager,)),
    )  # fmt: skip
    found = {o.check.id: o.because_of for o in run(ALL, Snapshot(**machine)) if o.problem}
    assert {name for name, because in found.items() if not because} == {"gpu_lost"}
    assert {"gpu_lost", "gpu_count_unexpected", "torch_sees_fewer_gpus"} <= set(found)


# --- the verdict and the exit code -------------------------------------------------------------------------------


def outcome(status: str, severity: Severity = Severity.ERROR) -> Outcome:
    """An outcome with this status; `timed_out` and `not_asked` are skips for a fact that is not known."""
    if status in ("fail", "warn", "info"):
        severity = {"fail": Severity.ERROR, "warn": Severity.WARNING, "info": Severity.INFO}[status]
    answers: dict[str, Ok | Skip | Problem | Crash] = {
        "ok": Ok("well"),
        "skip": Skip("not here"),
        "timed_out": Skip("no answer in 5 s"),
        "not_asked": Skip("was not checked"),
        "crash": Crash("ValueError", "trace"),
    }
    answer = answers.get(status, PROBLEM)
    unknown = status in ("timed_out", "not_asked")
    return Outcome(made(status, answer, severity), answer, 0.0, (), unknown, status == "timed_out")


NO_GPU = no_driver()


@pytest.mark.parametrize(
    ("statuses", "known", "verdict", "code"),
    [
        (["ok", "skip", "info"], driver(), "ready", 0),
        (["ok", "not_asked"], driver(), "ready", 0),
        ([], driver(), "ready", 0),
        (["ok", "warn"], driver(), "ready_with_warnings", 0),
        (["ok", "fail"], driver(), "not_ready", 1),
        (["crash"], driver(), "unknown", 3),
        (["timed_out"], driver(), "unknown", 3),
        (["warn", "timed_out"], driver(), "unknown", 3),
        # 1 before 3 before 4 before 0
        (["fail", "crash", "timed_out", "warn"], NO_GPU, "not_ready", 1),
        (["crash", "warn"], NO_GPU, "unknown", 3),
        (["timed_out"], NO_GPU, "unknown", 3),
        (["ok", "warn", "not_asked"], NO_GPU, "no_gpu", 4),
        (["ok"], NO_GPU, "no_gpu", 4),
        # nothing is known of the driver
        (["not_asked"], None, "unknown", 3),
        (["ok"], None, "ready", 0),
    ],
)
def test_verdict_and_exit_code(statuses: list[str], known: Driver | None, verdict: str, code: int) -> None:
    for order in (statuses, statuses[::-1]):
        found = of_machine([outcome(status) for status in order], Snapshot(driver=known))
        assert (found, exit_code(found)) == (verdict, code)


@pytest.mark.parametrize("status", ["crash", "timed_out"])
@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_only_what_could_fail_makes_the_verdict_uncertain(status: str, severity: Severity) -> None:
    assert of_machine([outcome(status, severity)], Snapshot(driver=driver())) == "ready"


def test_no_gpu_is_what_was_wanted() -> None:
    wanted = Snapshot(driver=NO_GPU, plan=Plan(expect_gpus=0))
    assert of_machine([outcome("ok")], wanted) == "ready"
    assert of_machine([outcome("warn")], wanted) == "ready_with_warnings"
    assert of_machine([outcome("ok")], replace(wanted, plan=Plan(expect_gpus=1))) == "no_gpu"


@pytest.mark.parametrize(
    ("verdict", "code", "strict"),
    [("ready", 0, 0), ("ready_with_warnings", 0, 1), ("not_ready", 1, 1), ("unknown", 3, 3), ("no_gpu", 4, 4)],
)
def test_strict_makes_warnings_fail_and_nothing_else(verdict: Any, code: int, strict: int) -> None:
    assert exit_code(verdict) == code
    assert exit_code(verdict, strict=True) == strict


MACHINES: list[tuple[Callable[[], Snapshot], str]] = [
    (lambda: Snapshot(**facts()), "ready"),
    (lambda: Snapshot(**facts(gpus=gpus(4, lost(3)))), "not_ready"),
    (lambda: Snapshot(**facts(gpus=gpus(4, gpu(1, processes=(process(),))))), "ready_with_warnings"),
    (lambda: Snapshot(**facts(system=None), gaps={"system": Gap("timed_out", "no answer in 5 s")}), "unknown"),
    (lambda: Snapshot(**facts(kernel_log=None), gaps={"kernel_log": Gap("timed_out", "no answer in 5 s")}), "ready"),
    (
        lambda: Snapshot(
            **facts(
                driver=NO_GPU,
                gpus=(),
                links=(),
                torch_runtime=torch_runtime(0),
                pci=Pci((), True, 0),
                slurm=slurm(gpus_on_node=0),
            )
        ),
        "no_gpu",
    ),
    (Snapshot, "unknown"),
]


@pytest.mark.parametrize(("machine", "verdict"), MACHINES, ids=[verdict for _, verdict in MACHINES])
def test_whole_machines(machine: Callable[[], Snapshot], verdict: str) -> None:
    snapshot = machine()
    outcomes = run(ALL, snapshot)
    assert of_machine(outcomes, snapshot) == verdict, [o.problem.title for o in outcomes if o.problem]
    assert sum(counts(outcomes).values()) == len(outcomes)


def test_counts_have_every_status() -> None:
    statuses = ("ok", "info", "warn", "fail", "skip", "crash")
    assert counts([]) == dict.fromkeys((*statuses, "waived"), 0)
    assert counts([outcome(status) for status in statuses] * 2) == dict.fromkeys(statuses, 2) | {"waived": 0}


def test_case_does_not_count_in_names() -> None:
    assert engine.choose(tuple(CHECKS.values()), ["GPU_Lost"]) == engine.choose(tuple(CHECKS.values()), ["gpu_lost"])


def test_a_fault_of_a_gpu_that_is_hidden_on_purpose_is_a_warning() -> None:
    sick = gpus(4, gpu(2, ecc_uncorrected_volatile=7))
    check = [CHECKS["gpu_ecc_uncorrected"]]
    hidden, used = seen(0, 1, value="0,1"), seen(0, 2, value="0,2")
    assert [o.status for o in engine.run(check, Snapshot(**facts(gpus=sick, visible=hidden)))] == ["warn"]
    assert [o.status for o in engine.run(check, Snapshot(**facts(gpus=sick, visible=used)))] == ["fail"]
    assert [o.status for o in engine.run(check, Snapshot(**facts(gpus=sick, visible=seen(0, 1, 2, 3))))] == ["fail"]


def test_what_several_problems_explain_is_told_under_one_of_them() -> None:
    def problem(title: str, key: str) -> Problem:
        return replace(PROBLEM, title=title, place=Place("a.yaml", 1, 1, key))

    slight = made("slight", problem("a is red", "x.a"), Severity.WARNING)
    first, second = made("first", problem("b is red", "b")), made("second", problem("c is red", "c"))
    named = made("named", problem("c makes it stop", ""), because_of=("slight", "first", "second"))
    same = made("same", problem("it stops", "b"), because_of=("second", "first"))
    other = made("other", problem("it stops", "x.a"), because_of=("slight", "second"))
    deep = made("deep", problem("it stops", "d"), because_of=("same",))
    outcomes = run([slight, first, second, named, same, other, deep], HERE)
    effects = engine.explained(outcomes)
    under = {o.check.id: [c.check.id for c in effects.get(id(o), ())] for o in outcomes}
    told = {"first": ["same", "deep"], "second": ["named", "other"]}
    assert under == {o.check.id: told.get(o.check.id, []) for o in outcomes}
