"""The rules of the house, held against every check there is."""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import graphlib
import importlib
import inspect
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mgpu.snapshot
import tests.checks
from mgpu import engine
from mgpu.check import Answer, Check, Ok, Problem, Skip
from mgpu.snapshot import FACTS, LoaderVerdict, Plan, Ranks, Snapshot, Step
from tests.checks.facts import (
    DOCKER,
    YAML,
    Case,
    config,
    facts,
    gpu,
    gpus,
    lost,
    no_driver,
    rank,
    ranks,
    seen,
    system,
    torch_runtime,
    uuid,
)
from tests.conftest import AREAS, CHECKS, ROOT

# What a check's module may import besides mgpu.check, mgpu.snapshot and its neighbours: nothing that reads the machine.
PURE = {
    "__future__", "ast", "collections", "dataclasses", "difflib", "enum", "fractions", "functools", "itertools",
    "keyword", "math", "re", "shlex", "typing",
}  # fmt: skip
# What a check may not call even without an import.
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}
# A module of one of these names would be imported in place of the real one wherever its folder comes first on the path.
TAKEN = {
    "accelerate", "click", "datasets", "deepspeed", "numpy", "prompt_toolkit", "psutil", "pynvml", "pytest",
    "questionary", "rich", "ruamel", "tomli", "torch", "torchvision", "transformers", "triton", "typer", "yaml",
}  # fmt: skip
LONGEST_TITLE = 200


def every_check(test: Callable[[Check], None]) -> Any:
    """One test for each area, which asks all checks of the area: a test for each of a thousand checks costs more than
    what it asks. The failure names them."""

    def of_area(area: str) -> None:
        wrong: dict[str, Exception] = {}
        for check in (check for check in CHECKS.values() if check.area == area):
            try:
                test(check)
            except Exception as error:
                wrong[check.id] = error
        for first in wrong.values():
            raise AssertionError("\n".join(f"{name}: {error!r}" for name, error in wrong.items())) from first

    of_area.__name__, of_area.__doc__, of_area.__module__ = test.__name__, test.__doc__, test.__module__
    return pytest.mark.parametrize("area", sorted({check.area for check in CHECKS.values()}))(of_area)


@cache
def cases() -> dict[str, tuple[Case, ...]]:
    """The tables of tests/checks, by check."""
    found: dict[str, list[Case]] = {check_id: [] for check_id in CHECKS}
    for module_info in pkgutil.iter_modules(tests.checks.__path__, "tests.checks."):
        if module_info.name.rpartition(".")[2].startswith("test_"):
            for case in importlib.import_module(module_info.name).CASES:
                found.setdefault(case.check, []).append(case)
    return {check_id: tuple(table) for check_id, table in found.items()}


@cache
def machines() -> tuple[Snapshot, ...]:
    """Whole machines, healthy and not, that every check is asked about."""
    nothing: dict[str, Any] = {"gpus": (), "links": (), "visible": seen()}
    broken = config("a: [", loader=None)
    sick = gpus(
        4,
        lost(3),
        gpu(
            0, ecc_uncorrected_volatile=1, clock_event_reasons=0xE0, power_limit_w=300.0, compute_mode=2, mig_mode=True
        ),
        gpu(1, name="NVIDIA A100", nvlinks=(), fabric_state=1, pcie_width=8, processes=None, numa_node=None),
    )
    leftovers = {"NCCL_P2P_DISABLE": "1", "NCCL_TIMEOUT": "1", "OMP_NUM_THREADS": "x", "RANK": "0", "PET_NNODES": "2"}
    return (
        Snapshot(**facts()),
        Snapshot(**facts(**nothing, driver=no_driver(), torch_runtime=torch_runtime(0), plan=Plan(cpu_ranks=2))),
        Snapshot(**facts(**nothing, driver=no_driver("UNKNOWN", pci_gpus=8), container=DOCKER, config=broken)),
        Snapshot(**facts(gpus=sick, env=leftovers, system=system(shm_total_bytes=1, shm_free_bytes=1))),
        Snapshot(**facts(gpus=sick, ranks=Ranks(2, ("start",), (), "died", 1, 10.0), config=config("debug: 'no'\n"))),
    )


# --- pure --------------------------------------------------------------------------------------------------------

_seen: list[str] | None = None
_WATCHED = (
    "open", "import", "exec", "compile", "subprocess.", "socket.", "os.", "shutil.", "tempfile.", "glob.", "ctypes.",
    "urllib.", "pty.", "signal.", "fcntl.", "mmap.", "sqlite3.", "syslog.", "webbrowser.",
)  # fmt: skip


def _watch(event: str, _: tuple[Any, ...]) -> None:
    if _seen is not None and event.startswith(_WATCHED):
        _seen.append(event)


@pytest.fixture(scope="module", autouse=True)
def hooked() -> None:
    """An audit hook can never be taken away again, so it only listens while a check is asked."""
    for kind in vars(mgpu.snapshot).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            with contextlib.suppress(TypeError):  # compiles the constructor, which happens once in a process
                kind()
    sys.addaudithook(_watch)


def watched(check: Check, snapshot: Snapshot) -> tuple[list[engine.Outcome], list[str]]:
    """The check's outcomes, and what it did to the world meanwhile."""
    global _seen
    _seen = []
    try:
        outcomes = engine.run_check(check, snapshot)
        return outcomes, list(_seen)
    finally:
        _seen = None


def test_the_guard_sees_files_processes_sockets_and_imports() -> None:
    def reads(plan: Plan) -> Answer:
        with open("/dev/null"):
            import plistlib  # noqa: F401

        import os
        import socket

        socket.socket().close()
        os.system("true")
        return Ok("done")

    sys.modules.pop("plistlib", None)
    check = Check(reads, next(iter(CHECKS.values())).severity, "https://example.org")
    _, done = watched(check, Snapshot(plan=Plan()))
    assert {"open", "import", "socket.__new__", "os.system"} <= set(done)


@every_check
def test_a_check_is_pure(check: Check) -> None:
    for snapshot in (*machines(), *(case.snapshot for case in cases()[check.id] if not case.bug)):
        handed = [getattr(snapshot, fact) for fact in check.facts]  # a check sees nothing else
        before = copy.deepcopy(handed)
        first, done = watched(check, snapshot)
        second, _ = watched(check, snapshot)
        assert done == []
        assert [o.answer for o in first] == [o.answer for o in second]
        assert handed == before


@every_check
def test_a_check_never_crashes_on_a_whole_machine(check: Check) -> None:
    for snapshot in machines():
        for outcome in engine.run_check(check, snapshot):
            assert outcome.status != "crash", outcome.answer


def test_a_healthy_machine_has_no_problem() -> None:
    found = [(o.check.id, o.answer) for o in engine.run(CHECKS.values(), Snapshot(**facts())) if o.problem]
    assert found == []


@every_check
def test_with_nothing_known_nothing_is_claimed(check: Check) -> None:
    (outcome,) = engine.run_check(check, Snapshot())
    assert isinstance(outcome.answer, Skip)
    assert outcome.unknown
    assert not outcome.unsettling


@every_check
def test_with_any_one_fact_unknown_nothing_is_claimed(check: Check) -> None:
    for fact in check.facts:
        (outcome,) = engine.run_check(check, Snapshot(**facts() | {fact: None}))
        assert isinstance(outcome.answer, Skip), fact


# --- documented and typed ----------------------------------------------------------------------------------------


@every_check
def test_the_docstring_says_what_why_and_how_to_fix(check: Check) -> None:
    what, why, fix = check.doc.split("\n\n")
    assert "\n" not in what, "the listing shows the first line"
    assert re.fullmatch(r"\S.*[^.]\.", what)
    assert ". " not in what, "one sentence"
    assert why.startswith("Why: ")
    assert fix.startswith("Fix: ")
    assert why.endswith(".") and fix.endswith(".")


@every_check
def test_parameters_are_facts_with_their_very_type(check: Check) -> None:
    wanted = {name: without_none(hint) for name, hint in typing.get_type_hints(Snapshot).items() if name in FACTS}
    hints = typing.get_type_hints(check.function)
    assert hints.pop("return") == Answer
    assert set(check.facts) == set(hints)
    for name, hint in hints.items():
        assert hint == wanted.get(name), name
    for parameter in inspect.signature(check.function).parameters.values():
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        assert parameter.default is parameter.empty


def without_none(hint: Any) -> Any:
    """`X | None` -> X"""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    return hint


@every_check
def test_the_source_can_be_followed(check: Check) -> None:
    url = r"https://[^\s()]+( \([\w./-]+(, \w+)?\))?"
    measured = r"measured .+ \d{4}-\d{2}(-\d{2})?"
    assert re.fullmatch(rf"{url}|{measured}|mgpu: .+", check.source)


# --- named -------------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_well_formed() -> None:
    loaded = engine.load()
    ids = [check.id for check in loaded]
    assert len(ids) == len(set(ids))
    assert [name for name in ids if not re.fullmatch(r"[a-z][a-z0-9_]+", name)] == []
    areas = {check.area for check in loaded}
    assert areas <= set(AREAS)
    assert areas.isdisjoint(ids), "--only could not tell an area from a check"


def test_a_retired_id_is_not_used_again() -> None:
    retired = {name for home in (engine, sys.modules["mgpu.checks"]) for name in getattr(home, "RETIRED", ())}
    assert retired.isdisjoint(CHECKS)


def test_explanations_exist_and_do_not_go_in_circles() -> None:
    because = {check.id: set(check.because_of) for check in CHECKS.values()}
    assert {name for names in because.values() for name in names} <= set(CHECKS)
    assert [check_id for check_id, names in because.items() if check_id in names] == []
    tuple(graphlib.TopologicalSorter(because).static_order())


def test_no_module_hides_another_library() -> None:
    taken = sys.stdlib_module_names | TAKEN
    paths = [path for folder in ("mgpu", "checks") for path in sorted((ROOT / folder).rglob("*.py"))]
    names = {path: path.parent.name if path.stem == "__init__" else path.stem for path in paths}
    assert len(paths) > 400
    assert [str(path) for path, name in names.items() if name in taken] == []


# What of mgpu a check may read: what a check and a fact are, and constants that the wizard goes by as well.
ALLOWED_OF_MGPU = {
    "mgpu.planning.bandwidth", "mgpu.planning.measured", "mgpu.check", "mgpu.command_line", "mgpu.planning.memory",
    "mgpu.hostlist", "mgpu.known_launchers", "mgpu.notebook_cells", "mgpu.one_node",
    "mgpu.planning.rehearsal", "mgpu.planning.requirements", "mgpu.quantities", "mgpu.several_ranks",
    "mgpu.signature", "mgpu.snapshot", "mgpu.text",
}  # fmt: skip


def test_check_modules_import_only_what_is_pure() -> None:
    paths = sorted((ROOT / "checks").rglob("*.py"))
    assert len(paths) > 100
    assert {str(path): found for path in paths if (found := impurities(path))} == {}


def impurities(path: Path) -> set[str]:
    """What a module imports or calls that could read the machine."""
    tree = ast.parse(path.read_text("utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0}
    impure = {name for name in imported if name.partition(".")[0] not in PURE} - ALLOWED_OF_MGPU
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return impure | called & IMPURE_BUILTINS


# --- tested ------------------------------------------------------------------------------------------------------


@every_check
def test_there_is_a_case_in_which_it_fires_and_one_in_which_it_does_not(check: Check) -> None:
    sound = [case for case in cases()[check.id] if not case.bug]
    firing = [case for case in sound if case.status in ("fail", "warn", "info")]
    quiet = [case for case in sound if case.status == "ok"]
    assert firing, "no table in tests/checks has a case in which it fires"
    assert quiet, "no table in tests/checks has a case in which it answers Ok"
    firing[0].verify()
    quiet[0].verify()


def test_every_case_is_of_a_check_that_exists_and_of_its_family() -> None:
    assert set(cases()) == set(CHECKS)
    for module_info in pkgutil.iter_modules(tests.checks.__path__, "tests.checks."):
        family = module_info.name.rpartition(".")[2]
        if family.startswith("test_"):
            asked = {CHECKS[case.check].area for case in importlib.import_module(module_info.name).CASES}
            (area,) = asked
            assert f"{family.removeprefix('test_')}_".startswith(f"{area}_")  # test_config_sections asks config


# --- answered ----------------------------------------------------------------------------------------------------


@every_check
def test_answers_are_well_formed(check: Check) -> None:
    for snapshot in (*machines(), *(case.snapshot for case in cases()[check.id] if not case.bug)):
        for outcome in engine.run_check(check, snapshot):
            match outcome.answer:
                case Ok(text) | Skip(text):
                    assert text.strip() and "\n" not in text
                case Problem() as problem:
                    well_formed(problem)


def well_formed(problem: Problem) -> None:
    one_line(problem.title)
    assert problem.cause.strip()
    assert problem.fixes
    for fix in problem.fixes:
        assert fix.text.strip() and "\n" not in fix.text
        assert all(command.strip() and "\n" not in command for command in fix.commands)
        assert not any(re.search(r"\bNone\b", command) for command in fix.commands)
        assert fix.who in ("you", "admin", "hardware")
        assert fix.kind in ("fix", "stopgap")
        assert (fix.caveat is not None) == (fix.kind == "stopgap"), "a stopgap, and nothing else, has a price to name"
    assert any(fix.kind == "fix" for fix in problem.fixes)
    assert all(isinstance(key, str) for key in problem.evidence)
    assert all(isinstance(value, str | int | float | bool | None) for value in problem.evidence.values())
    assert all(isinstance(subject, str) for subject in problem.subjects)


def one_line(title: str) -> None:
    assert title.strip() and "\n" not in title and "\r" not in title
    assert len(title) <= LONGEST_TITLE


EIGHT = ",".join(uuid(n) for n in range(8))
HOSTILE: dict[str, dict[str, Any]] = {
    "visible_devices_cut_short": {
        "visible": seen(*range(8), value=f"{EIGHT},GPU-9", stopped_by="GPU-9", why="unknown")
    },
    "visible_devices_hide_all": {"visible": seen(value=f"{EIGHT},{uuid(0)}", stopped_by=uuid(0), why="twice")},
    "visible_devices_hide_some": {"gpus": gpus(9), "visible": seen(*range(8), value=EIGHT)},
    "launcher_variables_left": {"env": {"MASTER_ADDR": "x" * 300}},
    "torchrun_variables_left": {"env": {"PET_MASTER_ADDR": "x\ny"}},
    "torch_boolean_unreadable": {"env": {"TORCH_NCCL_BLOCKING_WAIT": "x" * 300}},
    "torch_import_fails": {"torch_runtime": torch_runtime(0, import_error="ImportError: one\ntwo")},
    "rank_failed": {"ranks": ranks(rank(0, steps=(Step("train", False, "one\ntwo " + "x" * 300),)))},
    "config_key_unknown": {"config": config(YAML + f"{'k' * 120}{'y' * 120}: 1\n", loader=None)},
    "config_environment_unknown": {"config": config(f"compute_environment: {'x' * 300}\n")},
    "config_precision_invalid": {"config": config(f"mixed_precision: {'x' * 300}\n")},
    "config_refused_by_accelerate": {"config": config(loader=LoaderVerdict(False, "one\ntwo", "1.15.0"))},
}


@pytest.mark.parametrize("check_id", HOSTILE)
def test_a_title_stays_a_title_whatever_the_machine_says(check_id: str) -> None:
    for outcome in engine.run_check(CHECKS[check_id], Snapshot(**facts(**HOSTILE[check_id]))):
        assert outcome.problem is not None
        one_line(outcome.problem.title)


def test_the_hostile_machines_make_their_checks_fire() -> None:
    for check_id, changes in HOSTILE.items():
        assert all(o.problem for o in engine.run_check(CHECKS[check_id], Snapshot(**facts(**changes)))), check_id
