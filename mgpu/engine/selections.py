"""Which checks does each command run? One value per selection. The attributes of a check are declared in `Check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from mgpu.check import Check, LaunchStop, Severity
from mgpu.snapshot import OF_A_RUN, Snapshot

Wanted: TypeAlias = Callable[[Check], bool]


def _every(check: Check) -> bool:
    return True


def _anywhere(snapshot: Snapshot) -> Wanted:
    return _every


@dataclass(frozen=True)
class Selection:
    """A subset of the checks: by area, by their attributes, and by the known facts. `judge` runs them.

    Areas that are not selected are not imported, because importing is most of the cost of running a few checks.
    """

    only: tuple[str, ...] | None = None  # areas
    without: tuple[str, ...] = ()  # areas
    where: Wanted = _every
    here: Callable[[Snapshot], Wanted] = _anywhere
    as_errors: bool = False  # regardless of their declared severity


def _is_error(check: Check) -> bool:
    return check.severity is Severity.ERROR


def _applies(snapshot: Snapshot) -> Wanted:
    """Which checks the doctor runs on this snapshot.

    Checks of a config, a smoke test, a stamp or --deep run only if that fact is given, or was requested and could not
    be read. Checks of GPUs do not run for a config that runs on the CPU.
    """
    of_files = {f for f in ("script", "job_script", "log", "hang", "fleet", "run") if getattr(snapshot, f) is not None}
    if of_files and snapshot.host is None:  # only files are judged, not a machine
        unread = snapshot.script is not None and snapshot.script.error is not None  # its other checks cannot run
        of_job = snapshot.job_script is not None and snapshot.config is not None
        return lambda c: (
            bool(
                (of_files | {"local_rules"}) & set(c.facts)
                or (of_job and c.area == "config" and "no_consequence" not in c.tags)
                or c.area == "deepspeed_file"
            )
            and all(getattr(snapshot, fact) for fact in c.facts)
            and not (unread and c.area == "script" and "unreadable" not in c.tags)
        )
    absent = {f for f in OF_A_RUN if getattr(snapshot, f) is None and snapshot.gap(f).kind == "not_asked"}
    on_cpu = bool(snapshot.plan and snapshot.plan.cpu_ranks)
    return lambda c: not absent & set(c.facts) and not (on_cpu and c.family.gpu_only)


def _may_start(snapshot: Snapshot) -> Wanted:
    """A rehearsal on the CPU needs neither the driver nor GPUs."""
    assert snapshot.plan is not None
    on_cpu = snapshot.plan.cpu_ranks is not None
    return lambda c: not (on_cpu and c.family.stops_start == "on_gpus")


def _rehearsed(snapshot: Snapshot) -> Wanted:
    """Without a script, nothing is said about one."""
    return lambda c: snapshot.rehearsal is not None or "rehearsal" not in c.facts


def _on_node(snapshot: Snapshot) -> Wanted:
    applies = _applies(snapshot)
    on_cpu = snapshot.plan is not None and snapshot.plan.cpu_ranks is not None
    return lambda c: applies(c) and not (on_cpu and c.family.stops_start == "on_gpus")


# Areas about a finished run, or about a file.
# fmt: off
_LATER = (
    "smoke", "rehearsal", "log", "run", "hang", "work", "script", "job", "fleet", "local_rules", "deepspeed_file",
)
# fmt: on

ALL = Selection()
# mgpu doctor, on a machine or on files.
DOCTOR = Selection(here=_applies)
# Before any rank starts: problems that certainly fail, and the other errors.
START = Selection(without=_LATER, where=lambda c: c.fails_at_start, here=_may_start, as_errors=True)
OTHER_ERRORS = Selection(without=_LATER, where=lambda c: _is_error(c) and not c.fails_at_start and c.area != "stamp")
# Shown in full before a start, although it stops nothing: the model or the batch does not fit.
BEFORE_START = Selection(only=("config",), where=lambda c: "before_start" in c.tags)
# Is the config verified on this machine?
VERIFIED = Selection(only=("stamp",))
# Does another process use the GPUs?
BUSY = Selection(without=_LATER, where=lambda c: c.stops_launch == "busy_gpus")
SCRIPT = Selection(only=("script",))
JOB_SCRIPT = Selection(only=("job",))
# A config file, which is often checked on a machine where it will not run. Whether this is the machine it names, and
# whether it has changed since it was verified, are checks for the doctor. Importing those of logs
# takes longer than everything else that `configure` does.
CONFIG = Selection(
    without=(*_LATER, "stamp", "network"),
    where=lambda c: "config" in c.facts and not {"stamp", "script"} & set(c.facts),
)
# A DeepSpeed file itself, which `configure --validate` accepts as well.
DEEPSPEED_FILE = Selection(only=("deepspeed_file",))
# What the ranks of a smoke test did, and those of the user's script if it was rehearsed.
SMOKE = Selection(only=("smoke", "rehearsal"), here=_rehearsed)
# A finished run, and a running one.
ENDED = Selection(only=("run", "hang", "log"))
# A running run that makes no progress.
HANG = Selection(only=("hang",))
# At the end of a run, whether it succeeded or not; and, while it runs, whether its ranks work together.
REMARKS = Selection(only=("work", "run"), where=lambda c: c.area == "work" or "remark" in c.tags)
RANKS_ALONE = Selection(
    only=("run",), where=lambda c: "remark" in c.tags and not {"uneven_ranks", "not_finite"} & set(c.tags)
)
FINITE = Selection(only=("run",), where=lambda c: "not_finite" in c.tags)
RANKS_UNEVEN = Selection(only=("run",), where=lambda c: "uneven_ranks" in c.tags)
WATCH_START = Selection(only=("work",), where=lambda c: c.watch == "start")
WATCH_LATER = Selection(only=("work",), where=lambda c: c.watch == "later")
# The machine itself: no file, and no run.
MACHINE = Selection(without=(*_LATER, "stamp", "config"))
# Nodes: all together; a saved one; one in the pre-flight of a job, which tests the network itself and has no stamp for
# this node.
# The waivers and plug-ins themselves, beside the checks of a file.
LOCAL_RULES = Selection(only=("local_rules",))
FLEET = Selection(only=("fleet",))
SAVED_NODE = Selection(without=_LATER, here=_applies)
NODE = Selection(
    without=(*_LATER, "stamp", "network"),
    where=lambda c: _is_error(c) and "network_guess" not in c.tags,
    here=_on_node,
)


@cache
def launch(*stops: LaunchStop) -> Selection:
    """Return the checks before every launch; `stops`: the kinds of stop that apply to this one."""
    return Selection(without=_LATER, where=lambda c: c.stops_launch in stops, as_errors=True)
