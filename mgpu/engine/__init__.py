"""Loading, selecting and running checks. Commands run them with `judge`."""

from __future__ import annotations

import importlib
import re
import time
import traceback
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mgpu.check import Answer, Check, Crash, Severity, Skip, Tag
from mgpu.engine.outcome import Outcome, Status, explained, mask_outcome
from mgpu.engine.selections import Selection
from mgpu.errors import USAGE, MgpuError
from mgpu.secrets_masking import masked
from mgpu.snapshot import UNSETTLING, Snapshot
from mgpu.snapshot.config_secrets import known_secrets
from mgpu.text import listed

__all__ = ["Outcome", "Status", "explained", "judge", "load"]


def is_our_source_tree(root: Path) -> bool:
    """Whether `root` is a checkout of this project, and its `checks/` folder belongs to mgpu."""
    try:
        return bool(re.search(r'^name = "mgpu-doctor"$', (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE))
    except OSError:
        return False


def _checks_package() -> ModuleType:
    """Import `mgpu.checks`: inside `mgpu/` once installed, beside it in a source tree. Nothing else imports it."""
    root = Path(__file__).resolve().parents[2]
    folders: list[str] = importlib.import_module("mgpu").__path__  # type: ignore[assignment]
    if is_our_source_tree(root) and str(root) not in folders:
        folders.append(str(root))
    return importlib.import_module("mgpu.checks")


def load(only: Collection[str] | None = None, without: Collection[str] = ()) -> tuple[Check, ...]:
    """Return the checks in the order of `ORDER` in `checks/`, and within a file in the order of the source.

    The files of a folder are in the order of its own `ORDER`. `only`, `without`: areas; unselected ones are not
    imported.
    """
    package = _checks_package()
    areas = [area for area in package.ORDER if area not in without and (only is None or area in only)]
    return tuple(check for area in areas for check in _checks_of_area(f"{package.__name__}.{area}"))


@cache  # the tables of logs have more than a thousand
def _checks_of_area(name: str) -> tuple[Check, ...]:
    found: list[Check] = []
    family = importlib.import_module(name)
    files = [importlib.import_module(f"{name}.{file}") for file in getattr(family, "ORDER", ())]
    for module in files or [family]:
        own = (c for c in vars(module).values() if isinstance(c, Check))
        found += [c for c in own if c.function.__module__ == module.__name__]
        found += getattr(module, "SIGNATURES", ())
    return tuple(found)


@cache
def checks_of(selection: Selection) -> tuple[Check, ...]:
    """Return the checks that a selection may run, by their declared attributes."""
    found = (check for check in load(selection.only, selection.without) if selection.where(check))
    return tuple(replace(c, severity=Severity.ERROR) if selection.as_errors else c for c in found)


def selected(snapshot: Snapshot, selection: Selection, among: Sequence[Check] | None = None) -> tuple[Check, ...]:
    """Return the checks that a selection runs on this snapshot. `among`: only these."""
    checks = checks_of(selection) if among is None else filter(selection.where, among)
    here = selection.here(snapshot)
    return tuple(check for check in checks if here(check))


def judge(snapshot: Snapshot, selection: Selection, among: Sequence[Check] | None = None) -> tuple[Outcome, ...]:
    """Run a selection of the checks and return the outcomes. `mgpu.engine.verdict` derives a verdict from them."""
    return run(selected(snapshot, selection, among), snapshot)


def tags(id: str | None, selection: Selection) -> tuple[Tag, ...]:
    """Return the tags of the check with this id; none if it is not in the selection."""
    return next((check.tags for check in checks_of(selection) if check.id == id), ()) if id else ()


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of accelerate's config, which is made from the tables of the checks."""
    found: dict[str, Any] = importlib.import_module(f"{_checks_package().__name__}.config._json_schema").document()
    return found


def choose(checks: Sequence[Check], only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """Return the checks with these ids or areas. Hyphens count as underscores. Raises MgpuError for an unknown name."""
    names = {c.id for c in checks} | {c.area for c in checks}

    def known(given: Iterable[str]) -> set[str]:
        wanted = {name.strip().lower().replace("-", "_") for name in given if name.strip()}
        for name in sorted(wanted - names):
            raise MgpuError(unknown_id(name, names), USAGE)
        return wanted

    include, exclude = known(only), known(skip)
    return tuple(c for c in checks if (not include or {c.id, c.area} & include) and not {c.id, c.area} & exclude)


_NAMES_SHOWN = 4
_CLOSE = 0.6  # of difflib: below it, a name is another word


def unknown_id(name: str, names: Iterable[str]) -> str:
    """Return the message for an unknown check id, with the names that contain it as a word, or the closest one."""
    import difflib

    ordered = sorted(names)
    near = difflib.get_close_matches(name, ordered, n=1, cutoff=0.8)
    if not near:
        words = set(name.split("_"))
        near = [one for one in ordered if words <= set(one.split("_"))]
        near = sorted(near, key=lambda one: (not one.startswith(name), len(one)))[:_NAMES_SHOWN]
    near = near or difflib.get_close_matches(name, ordered, n=1, cutoff=_CLOSE)
    hint = f" Did you mean {listed(near, 'or')}?" if near else ""
    return f"no check or area is named {name!r}.{hint} List them: mgpu doctor --list-checks"


def run_check(check: Check, snapshot: Snapshot) -> list[Outcome]:
    """Run one check and return its outcomes: Skip if a fact it reads is unknown, Crash if it raises."""
    facts = {fact: getattr(snapshot, fact) for fact in check.facts}
    if missing := [fact for fact, value in facts.items() if value is None]:
        return [_unknown(check, missing, snapshot)]
    start = time.perf_counter()
    answers: Answer | Crash
    try:
        answers = check.answer(facts)
    except Exception as error:
        answers = Crash(f"{type(error).__name__}: {error}", traceback.format_exc())
    seconds = time.perf_counter() - start
    if isinstance(answers, tuple):
        return [Outcome(check, problem, seconds) for problem in answers]
    return [Outcome(check, answers, seconds)]


def _unknown(check: Check, missing: Sequence[str], snapshot: Snapshot) -> Outcome:
    """A skip for missing facts, with the most severe reason: a crash, then an unknown fact, then one left out."""
    gaps = [(snapshot.gap(fact), snapshot.left_out(fact)) for fact in missing]
    gap, left_out = min(gaps, key=lambda one: (one[0].kind not in UNSETTLING, one[1]))
    return Outcome(
        check, Skip(gap.reason), 0.0, unknown=not left_out, unsettling=gap.kind in UNSETTLING, not_asked=left_out
    )


def _outside(outcome: Outcome, snapshot: Snapshot) -> bool:
    """Whether a problem concerns only GPUs that the user has hidden from the run on purpose."""
    visible = snapshot.visible
    if visible is None or not visible.value or visible.stopped_by:
        return False
    problem = outcome.problem
    if problem is None or not problem.subjects:
        return False
    used = {f"GPU {index}" for index in visible.gpus}
    return bool(used) and all(s.startswith("GPU ") and s[4:].isdecimal() and s not in used for s in problem.subjects)


def run(checks: Iterable[Check], snapshot: Snapshot) -> tuple[Outcome, ...]:
    """Run checks and return the outcomes in their order. Consequences have the ids of the problems that explain them.

    A remark (info) never explains a fault: reports show remarks only in the details, which would hide the fault.
    """
    known = known_secrets(snapshot)
    mask = cache(lambda text: masked(text, known))  # hundreds of checks give the same answer
    safe = (mask_outcome(outcome, mask) for check in checks for outcome in run_check(check, snapshot))
    outcomes = [replace(outcome, outside=True) if _outside(outcome, snapshot) else outcome for outcome in safe]
    problems = {place: o for place, o in enumerate(outcomes) if o.problem}  # few of more than a thousand
    firing = {o.check.id: o.status for o in problems.values()}

    def explanations(outcome: Outcome) -> tuple[str, ...]:
        causes = (cause for cause in outcome.check.because_of if cause in firing)
        return tuple(cause for cause in causes if firing[cause] != "info" or outcome.status == "info")

    for place, problem in problems.items():
        outcomes[place] = replace(problem, because_of=explanations(problem))
    return tuple(outcomes)
