"""What does Slurm know of a job? From `scontrol show job` while it remembers it (MinJobAge, 5 minutes by default), then
from `sacct` where there is accounting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mgpu.errors import UNKNOWN, MgpuError
from mgpu.probes import cluster
from mgpu.scheduler import client
from mgpu.scheduler.client import Answer, Question

# fmt: off
# doc/html/job_state_codes of github.com/SchedMD/slurm, 2026-08. What is not among these goes on.
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
})
# fmt: on
# With these the job has nodes.
STARTED = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_GONE = re.compile(r"Invalid job id specified|Invalid job id \d+")
_UNKNOWN = ("", "Unknown", "N/A", "(null)", "None", "None assigned")
_SACCT = ("State", "ExitCode", "NodeList", "Start", "Reason", "JobName", "Elapsed", "Restarts", "Partition")
_SACCT_OLD = ("State", "ExitCode", "NodeList", "Start", "Reason", "JobName", "Elapsed")  # Restarts came with 23.02


@dataclass(frozen=True)
class Record:
    """A job, as Slurm tells it."""

    job: int
    state: str  # PENDING, RUNNING, COMPLETED ...
    reason: str = ""  # why it waits, or how it ended: Resources, NonZeroExitCode
    exit_code: int = 0  # of the batch script
    signal: int = 0  # that ended it
    nodes: str = ""  # in Slurm's form: n[1-3]
    start: str = ""  # of a job that waits: the estimate
    output: str = ""  # the file that its script writes to
    errors: str = ""
    name: str = ""
    partition: str = ""
    restarts: int = 0
    array: bool = False
    script: str = ""  # as it was submitted
    ran_s: float | None = None  # its last run, as Slurm counts it

    @property
    def ended(self) -> bool:
        """Whether it is over, its cleaning up included."""
        return self.state in ENDED

    @property
    def started(self) -> bool:
        """Whether it has nodes."""
        return self.state in STARTED


def asking(job: int) -> Question:
    """Ask about a job; `told` reads the answer."""
    return Question("scontrol", "--oneliner", "show", "job", str(job), limit_s=client.LOOK_S)


def told(job: int, answer: Answer) -> Record | None:
    """What scontrol says; None where it has nothing to say (`gone` tells whether it has forgotten the job)."""
    records = [record for line in answer.out.splitlines() if (record := of_scontrol(line))]
    return next((record for record in records if record.job == job), records[-1] if records else None)


def gone(answer: Answer) -> bool:
    """Whether the controller does not remember the job any more (or never knew it)."""
    return bool(_GONE.search(answer.err + answer.out))


def of(job: int) -> Record | None:
    """A job, once; None when Slurm knows no such job. Raises MgpuError where there is no Slurm, or it does not say."""
    answer = asking(job).wait()
    if record := told(job, answer):
        return record
    if (record := accounted(job)) is None and not gone(answer):
        words = answer.err.strip() or "it does not answer (scontrol ping)"
        raise MgpuError(f"Slurm cannot be asked about job {job}: {words}", UNKNOWN)
    return record


def accounted(job: int) -> Record | None:
    """A job that is over, by the accounting; None where there is none, or it does not know the job."""
    if not client.is_there("sacct"):
        return None
    for fields in (_SACCT, _SACCT_OLD):
        words = ("--allocations", "--noheader", "--parsable2", f"--jobs={job}", f"--format={','.join(fields)}")
        answer = client.ask("sacct", *words, limit_s=client.LOOK_S)
        if answer.code == 0:
            return of_sacct(job, answer.out, fields)
        if "Invalid field" not in answer.err:
            return None
    return None


def of_scontrol(line: str) -> Record | None:
    """A line of `scontrol --oneliner show job`."""
    fields: dict[str, str] = {}
    for one in re.split(r"\s(?=[A-Z][A-Za-z:/]*=)", line.strip()):
        name, equals, value = one.partition("=")
        if equals:
            fields.setdefault(name, "" if value.strip() in _UNKNOWN else value.strip())
    if not fields.get("JobId", "").isdecimal():
        return None
    code, signal = _code(fields.get("ExitCode", ""))
    return Record(
        int(fields["JobId"]),
        fields.get("JobState", "").split(",")[0],
        fields.get("Reason", ""),
        code,
        signal,
        fields.get("NodeList", ""),
        fields.get("StartTime", ""),
        fields.get("StdOut", ""),
        fields.get("StdErr", ""),
        fields.get("JobName", ""),
        fields.get("Partition", ""),
        int(fields["Restarts"]) if fields.get("Restarts", "").isdecimal() else 0,
        "ArrayJobId" in fields,
        fields.get("Command", ""),
        _seconds(fields.get("RunTime", "")),
    )


def of_sacct(job: int, text: str, fields: tuple[str, ...] = _SACCT) -> Record | None:
    """What `sacct --parsable2` says: the last line of the job, which is its last run."""
    lines = [line.split("|") for line in text.splitlines() if line.strip()]
    if not lines or len(lines[-1]) < len(fields):
        return None
    found = {name: "" if value in _UNKNOWN else value for name, value in zip(fields, lines[-1], strict=False)}
    code, signal = _code(found.get("ExitCode", ""))
    state = found["State"].split(" ")[0].rstrip("+")  # "CANCELLED by 1000"
    restarts = found.get("Restarts", "")
    return Record(
        job,
        state,
        found.get("Reason", ""),
        code,
        signal,
        found.get("NodeList", ""),
        found.get("Start", ""),
        name=found.get("JobName", ""),
        partition=found.get("Partition", ""),
        restarts=int(restarts) if restarts.isdecimal() else 0,
        ran_s=_seconds(found.get("Elapsed", "")),
    )


def files(path: str, record: Record) -> tuple[str, ...]:
    """What a file of the job may be called: as scontrol has it, or with the patterns filled in that it leaves there.

    One that Slurm does not know stays as it is, also in the name on the disk (measured on 22.05 with %r).
    """
    node = re.split(r"[,\[]", record.nodes)[0]
    known = {
        "j": str(record.job),
        "A": str(record.job),
        "x": record.name,
        "r": str(record.restarts),
        "%": "%",
        "n": "0",
        "t": "0",
        "s": "batch",
        **({"N": node} if node and "[" not in record.nodes else {}),
    }
    filled = re.sub(r"%\d*([a-zA-Z%])", lambda found: known.get(found[1], found[0]), path)
    return tuple(dict.fromkeys((path, filled))) if path else ()


def _seconds(text: str) -> float | None:
    """Slurm's "[DAYS-]HH:MM:SS"."""
    try:
        found = cluster.seconds(text)
    except ValueError:
        return None
    return None if found is None else float(found)


def _code(text: str) -> tuple[int, int]:
    """Slurm's "CODE:SIGNAL"."""
    found = re.fullmatch(r"(\d+):(\d+)", text.strip())
    return (int(found[1]), int(found[2])) if found else (0, 0)
