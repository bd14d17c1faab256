"""Read Slurm's record of a job.

From `scontrol show job` until the job is dropped (MinJobAge, 5 minutes by default), then from `sacct` if accounting is
enabled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mgpu.errors import UNKNOWN, MgpuError
from mgpu.probes import cluster
from mgpu.scheduler import client
from mgpu.scheduler.client import Answer, Question

# fmt: off
# doc/html/job_state_codes of github.com/SchedMD/slurm, 2026-08. In all other states the job has not ended.
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
})
# fmt: on
# In these states the job has nodes.
STARTED = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_GONE = re.compile(r"Invalid job id specified|Invalid job id \d+")
_COMMAND_NAME = re.compile(r"^scontrol: (?:(?:error|fatal): )?")
_UNKNOWN = ("", "Unknown", "N/A", "(null)", "None", "None assigned")
_SACCT = ("State", "ExitCode", "NodeList", "Start", "Reason", "JobName", "Elapsed", "Restarts", "Partition")
_SACCT_OLD = ("State", "ExitCode", "NodeList", "Start", "Reason", "JobName", "Elapsed")  # Restarts came with 23.02


@dataclass(frozen=True)
class Record:
    """Slurm's record of a job."""

    job: int
    state: str  # PENDING, RUNNING, COMPLETED ...
    reason: str = ""  # why it waits, or how it ended: Resources, NonZeroExitCode
    exit_code: int = 0  # of the batch script
    signal: int = 0  # the signal that ended it
    nodes: str = ""  # as a Slurm host list: n[1-3]
    start: str = ""  # of a pending job: the estimated start time
    output: str = ""  # the file for its script's output
    errors: str = ""
    name: str = ""
    partition: str = ""
    restarts: int = 0
    array: bool = False
    script: str = ""  # as submitted
    ran_s: float | None = None  # duration of its last run, according to Slurm

    @property
    def ended(self) -> bool:
        """Whether it has ended, including Slurm's cleanup."""
        return self.state in ENDED

    @property
    def started(self) -> bool:
        """Whether it has nodes."""
        return self.state in STARTED


def query(job: int) -> Question:
    """Start a query about a job; `parse_answer` reads the answer."""
    return Question("scontrol", "--oneliner", "show", "job", str(job), limit_s=client.LOOK_S)


def parse_answer(job: int, answer: Answer) -> Record | None:
    """Return the job's record from scontrol's answer; None if there is none (see `is_dropped`)."""
    records = [record for line in answer.out.splitlines() if (record := parse_scontrol(line))]
    return next((record for record in records if record.job == job), records[-1] if records else None)


def is_dropped(answer: Answer) -> bool:
    """Whether the controller has no record of the job, because it dropped it or never had one."""
    return bool(_GONE.search(answer.err + answer.out))


def read_record(job: int) -> Record | None:
    """Query a job once; None if Slurm has no record of it. Raises MgpuError if Slurm is missing or does not answer."""
    answer = query(job).wait()
    if record := parse_answer(job, answer):
        return record
    if (record := read_accounting(job)) is None and not is_dropped(answer):
        why = _last_message(answer.err) or "the controller does not answer (scontrol ping)"
        raise MgpuError(f"cannot query Slurm about job {job}: {why}", UNKNOWN)
    return record


def _last_message(text: str) -> str:
    """Return the last message of a Slurm command, which is why it gave up, without the name of the command."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _COMMAND_NAME.sub("", lines[-1]) if lines else ""


def read_accounting(job: int) -> Record | None:
    """Return a finished job's record from sacct; None without accounting, or if it has no record of the job."""
    if not client.is_there("sacct"):
        return None
    for fields in (_SACCT, _SACCT_OLD):
        options = ("--allocations", "--noheader", "--parsable2", f"--jobs={job}", f"--format={','.join(fields)}")
        answer = client.ask("sacct", *options, limit_s=client.LOOK_S)
        if answer.code == 0:
            return parse_sacct(job, answer.out, fields)
        if "Invalid field" not in answer.err:
            return None
    return None


def parse_scontrol(line: str) -> Record | None:
    """Return the record from a line of `scontrol --oneliner show job`."""
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


def parse_sacct(job: int, text: str, fields: tuple[str, ...] = _SACCT) -> Record | None:
    """Return the record from `sacct --parsable2`: the job's last line, which is its last run."""
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
    """Return the possible names of a job's file: as scontrol prints it, and with the remaining patterns expanded.

    Slurm leaves unknown patterns unchanged, also in the file name on disk (measured on 22.05 with %r).
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
    """Parse Slurm's "[DAYS-]HH:MM:SS"."""
    try:
        found = cluster.parse_time(text)
    except ValueError:
        return None
    return None if found is None else float(found)


def _code(text: str) -> tuple[int, int]:
    """Parse Slurm's "CODE:SIGNAL"."""
    found = re.fullmatch(r"(\d+):(\d+)", text.strip())
    return (int(found[1]), int(found[2])) if found else (0, 0)
