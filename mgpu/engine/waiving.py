"""Which findings does the project accept? They are shown as waived, and do not count as failures or warnings.

The facts of the checks in `checks/local_rules.py` are collected here too: waivers that expired or name no check.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Sequence
from dataclasses import replace

from mgpu import engine
from mgpu.engine.outcome import Outcome, Waived
from mgpu.engine.plugins import Plugins
from mgpu.project_settings import Project
from mgpu.snapshot import LocalRules, WaivedCheck

_NO_PLUGINS = Plugins()
_OWN = "local_rules"  # the area that judges the waivers: not waived


def rules_of(project: Project | None, added: Plugins = _NO_PLUGINS) -> LocalRules | None:
    """Return the waivers and plug-ins as facts; None if there are none."""
    waived = project.waivers if project else ()
    if not (waived or added.names or added.broken):
        return None
    ids = {check.id for check in (*engine.load(), *added.checks)} if waived else set()
    waivers = tuple(
        WaivedCheck(
            one.check,
            one.reason,
            one.until,
            one.line,
            one.check in ids,
            next(iter(difflib.get_close_matches(one.check, ids, n=1)), None),
        )
        for one in waived
    )
    today = datetime.date.today().isoformat()
    return LocalRules(str(project.path) if project else "", today, waivers, added.names, added.broken)


def waive(outcomes: Sequence[Outcome], rules: LocalRules | None) -> tuple[Outcome, ...]:
    """Return the outcomes with the waived problems marked. What only a waived problem explains stands for itself."""
    active = {
        one.check: Waived(one.reason, one.until)
        for one in (rules.waivers if rules else ())
        if one.until is None or rules is None or one.until >= rules.today
    }
    waived = {o.check.id for o in outcomes if o.check.id in active and o.problem and o.check.area != _OWN}
    if not waived:
        return tuple(outcomes)
    return tuple(
        replace(
            outcome,
            waived=active[outcome.check.id] if outcome.check.id in waived and outcome.problem else None,
            because_of=tuple(id for id in outcome.because_of if id not in waived),
        )
        for outcome in outcomes
    )
