"""Which checks does each command ask? One value a selection; what a check declares, it declares itself (`Check`)."""

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
    """Some of the checks: by area, by what they declare, and by what is known of the machine. Data; `judge` asks them.

    Families that are not selected are not imported, which is most of what it costs to ask a few checks.
    """

    only: tuple[str, ...] | None = None  # areas
    without: tuple[str, ...] = ()  # areas
    where: Wanted = _every
    here: Callable[[Snapshot], Wanted] = _anywhere
    as_errors: bool = False  # whatever the severity they declare


def _is_error(check: Check) -> bool:
    return check.severity is Severity.ERROR


def _applies(snapshot: Snapshot) -> Wanted:
    """The doctor asks about the machine: checks on a config, a smoke test, a stamp or a deep look only where that fact
    is given, or was asked for and could not be had; checks on GPUs not for a config that runs on the CPU."""
    of_files = {f for f in ("script", "job_script", "log", "fleet") if getattr(snapshot, f) is not None}
    if of_files and snapshot.host is None:  # files are judged, and no machine
        unread = snapshot.script is not None and snapshot.script.error is not None  # its other checks can tell nothing
        return lambda c: (
            bool(of_files & set(c.facts))
            and all(getattr(snapshot, fact) for fact in c.facts)
            and not (unread and c.area == "script" and "unreadable" not in c.tags)
        )
    absent = {f for f in OF_A_RUN if getattr(snapshot, f) is None and snapshot.gap(f).kind == "not_asked"}
    on_cpu = bool(snapshot.plan and snapshot.plan.cpu_ranks)
    return lambda c: not absent & set(c.facts) and not (on_cpu and c.family.gpu_only)


def _may_start(snapshot: Snapshot) -> Wanted:
    """A rehearsal on the CPU does without the driver and the GPUs."""
    assert snapshot.plan is not None
    on_cpu = snapshot.plan.cpu_ranks is not None
    return lambda c: not (on_cpu and c.family.stops_start == "on_gpus")


def _on_node(snapshot: Snapshot) -> Wanted:
    applies = _applies(snapshot)
    on_cpu = snapshot.plan is not None and snapshot.plan.cpu_ranks is not None
    return lambda c: applies(c) and not (on_cpu and c.family.stops_start == "on_gpus")


# Families about a run that has ended, or about a file.
_LATER = ("smoke", "log", "run", "work", "script", "job", "fleet")

ALL = Selection()
# mgpu doctor, on a machine or on files.
DOCTOR = Selection(here=_applies)
# Before any rank is started: what certainly fails, and the other errors.
START = Selection(without=_LATER, where=lambda c: c.fails_at_start, here=_may_start, as_errors=True)
DOUBTS = Selection(without=_LATER, where=lambda c: _is_error(c) and not c.fails_at_start and c.area != "stamp")
# Is the config verified on this machine?
VERIFIED = Selection(only=("stamp",))
# Does another process use the GPUs?
BUSY = Selection(without=_LATER, where=lambda c: c.stops_launch == "busy_gpus")
SCRIPT = Selection(only=("script",))
JOB_SCRIPT = Selection(only=("job",))
# A config file, which is often checked where it will not run: whether this machine is the one it names, and whether it
# still is as it was verified, are the doctor's questions.
CONFIG = Selection(
    without=("network", "smoke", "job", "fleet"),
    where=lambda c: "config" in c.facts and not {"stamp", "script"} & set(c.facts),
)
# What the ranks of a smoke test did.
SMOKE = Selection(only=("smoke",))
# A run that has ended, and one that goes on.
ENDED = Selection(only=("run", "log"))
GPU_WORK = Selection(only=("work",))
WATCH_START = Selection(only=("work",), where=lambda c: c.watch == "start")
WATCH_LATER = Selection(only=("work",), where=lambda c: c.watch == "later")
# The machine itself: no file, and no run.
MACHINE = Selection(without=(*_LATER, "stamp", "config"))
# Many nodes: all together; one that was saved; one in the pre-flight of a job, which tries the network by itself, and
# whose stamp is of one machine.
FLEET = Selection(only=("fleet",))
SAVED_NODE = Selection(without=_LATER, here=_applies)
NODE = Selection(
    without=(*_LATER, "stamp", "network"),
    where=lambda c: _is_error(c) and "network_guess" not in c.tags,
    here=_on_node,
)


@cache
def launch(*stops: LaunchStop) -> Selection:
    """What is asked before every launch; `stops`: what applies to this one."""
    return Selection(without=_LATER, where=lambda c: c.stops_launch in stops, as_errors=True)
