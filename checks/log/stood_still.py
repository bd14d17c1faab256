"""Did a run stand still: were its processes stopped, or did it take far longer for a step than before?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.quantities import duration_text
from mgpu.snapshot import Log, StalledCollective

_DIST = "https://docs.pytorch.org/docs/stable/distributed.html"
_FACTOR = 2.0  # of the timeout: a watchdog that runs reports it within seconds
_MORE_S = 600.0
_ALIKE = 0.1  # share by which the ranks' times can differ
# fmt: off
_WHY = ("the machine or the virtual machine was suspended, the job was stopped (SIGSTOP, scontrol suspend, a paused "
        "container), or storage, the network or a driver hung")
_FIXES = (
    Fix("Check whether the node was suspended or hung at that time.",
        ("sudo dmesg -T | grep -iE 'suspend|resume|blocked for more|not responding|xid'", "last -x | head",
         "sacct -j JOBID --format=JobID,State,Start,End,Suspended"), who="admin"),
    Fix("Resume from the last checkpoint. A longer timeout does not help.", ("mgpu launch train.py",)),
)
_SILENT_FIXES = (
    Fix("If its output goes to a file, turn buffering off: the last lines are lost when it is stopped.",
        ("export PYTHONUNBUFFERED=1",)),
    Fix("Let mgpu watch the run: it asks the ranks what they wait for.", ("mgpu launch --slurm train.py",)),
    Fix("Or ask a process while it hangs.", ("py-spy dump --pid PID",)),
    Fix("If it really computes for that long, print its progress, and request more time."),
)
# fmt: on


def _late(log: Log) -> list[StalledCollective]:
    """Return the reports of watchdogs that came far later than their timeout."""
    return [
        one
        for one in log.stalled
        if one.waited_s and one.timeout_s and one.waited_s > max(_FACTOR * one.timeout_s, one.timeout_s + _MORE_S)
    ]


@check(Severity.ERROR, source=_DIST, role="secondary", kind="timeout", tags=("precise",))
def log_processes_stood_still(log: Log) -> Answer:
    """The watchdogs of several ranks reported a timeout hours late: they, too, did not run.

    Why: A watchdog checks its timeout every few seconds. If ranks report a collective that ran for several times its
    timeout, at the same time, their processes were stopped: the machine was suspended, the job was stopped, or a disk,
    the network or a driver hung.

    Fix: Look in the logs of the node and of the scheduler for what stopped it, then resume from the last checkpoint.
    """
    late = _late(log)
    waited = [one.waited_s for one in late if one.waited_s]
    if len(late) < 2 or max(waited) > (1 + _ALIKE) * min(waited):
        return Ok("no timeouts that several ranks reported late")
    first = late[0]
    line = next((one for one in log.seen if one.signature == "log_collective_timed_out"), None)
    limit, ran = first.timeout_s or 0, min(waited)
    return Problem(
        f"the processes probably stood still for about {duration_text(ran - limit)}: the ranks report a timeout that "
        "much too late",
        f"A collective with a timeout of {duration_text(limit)} had run for {duration_text(ran)} on {len(late)} ranks, "
        "equally long on each. NCCL's watchdog checks it every few seconds, so the watchdogs did not run either: "
        f"{_WHY}. The collective that they name is not the cause.",
        _FIXES,
        {
            "line": line.text if line else None,
            "waited_s": min(waited),
            "timeout_s": first.timeout_s,
        },
        place=Place(line.file, line.line) if line else None,
    )


@check(
    Severity.ERROR,
    source="https://github.com/RVC-Project/Retrieval-based-Voice-Conversion-WebUI/issues/1882",
    role="secondary",
    kind="network",
    tags=("precise",),
    same_as=("log_peer_gone",),
)
def log_step_took_long(log: Log) -> Answer:
    """A step took many times longer than those before it, and then a connection between the ranks broke.

    Why: The machine of one rank was suspended, or storage or the network hung. A connection that stays silent for that
    long is closed.

    Fix: Look in the logs of the nodes for that time, then resume from the last checkpoint.
    """
    pause = log.pause
    lost = next((one for one in log.seen if one.signature == "log_peer_gone" and not one.survived), None)
    if pause is None or lost is None:
        return Ok("no unusually long step before a connection was lost")
    return Problem(
        f"the connection to another rank was lost after a step of {duration_text(pause.seconds)}, where "
        f"{duration_text(pause.usual_s)} were usual",
        f'Line {pause.line:,} came that late ("{pause.text}"). Probably {_WHY}. The connection broke after that. '
        "Otherwise, the process at the other end exited, and its own log has the reason.",
        (
            *_FIXES,
            Fix("Read the log of the rank at the other end.", ("mgpu doctor --log rank0.log rank1.log ...",)),
        ),
        {"line": lost.text, "seconds": pause.seconds, "usual_s": pause.usual_s},
        place=Place(lost.file, lost.line),
    )


@check(
    Severity.ERROR,
    source="https://slurm.schedmd.com/sbatch.html#OPT_time",
    role="root",
    kind="scheduler",
    tags=("precise", "job_limit"),
    same_as=("log_slurm_time_up",),
)
def log_silent_until_limit(log: Log) -> Answer:
    """The job was silent for a long time before its time limit: it hung, or its output was still in a buffer.

    Why: Ranks that wait for each other, for a file system or for a server print nothing. More time would not help then.

    Fix: Let mgpu watch the run: it asks the ranks what they wait for while they wait.
    """
    silence = log.silence
    limit = next((one for one in log.seen if one.signature == "log_slurm_time_up" and not one.survived), None)
    if silence is None or limit is None:
        return Ok("no silence before a time limit")
    usual = f" Before, a line came every {duration_text(silence.usual_s)}." if silence.usual_s >= 1 else ""
    return Problem(
        f"the program printed nothing for {duration_text(silence.seconds)} before Slurm stopped the job at its time "
        "limit: it hung, or its output was still in a buffer",
        f'Line {silence.line:,} is its last one: "{silence.text}".{usual} If it hung, more time would not have helped. '
        "Ranks that wait for each other, for storage or for a server print nothing.",
        _SILENT_FIXES,
        {"line": limit.text, "seconds": silence.seconds, "usual_s": silence.usual_s},
        place=Place(limit.file, limit.line),
    )
