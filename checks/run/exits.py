"""Which exit code did a rank or the launcher end with, and did a GPU fail meanwhile?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Run

from .._xid import XIDS
from ._ended_ranks import EXPLAINED, STOP_SIGNALS, fallen_ranks, nothing_found, rank_name, rank_subjects, signal_name

_EXITING_METHODS = "https://docs.python.org/3/library/argparse.html#exiting-methods"
_LAUNCHER_ENDS = "mgpu: a launcher that ends with an error before any rank was seen under it"

# Of signals that end a process and that no other check here explains; signal(7), setrlimit(2).
_SIGNAL_MEANS = {
    5: "a trap: a failed assertion of a library, or a debugger's breakpoint",
    10: "somebody sent it (Slurm warns so before the time limit), and the script does not handle it",
    12: "somebody sent it (Slurm warns so before the time limit), and the script does not handle it",
    13: "what read its output was gone",
    14: "a timer that the script or a library had set",
    24: "its CPU time limit, ulimit -t",
    25: "its limit of a file's size, ulimit -f",
    31: "a system call that the container's or the machine's sandbox (seccomp) does not allow",
}
_HARDWARE = frozenset({"memory", "link", "firmware", "reset", "bus", "board"})
_EXIT = "mgpu: exit codes as the shell has them, https://docs.python.org/3/library/subprocess.html"


@check(Severity.ERROR, source=_EXITING_METHODS, role="secondary", kind="launcher")
def run_arguments_wrong(run: Run) -> Answer:
    """The script, or its launcher, refused its arguments and ended with 2.

    Why: A program ends with 2 when it does not know an argument, or misses one; its usage stands in the output.
    More: python does it when it cannot open the script.

    Fix: Read the usage in the output, and correct the arguments behind the script's name.
    """
    first = fallen_ranks(run)[:1]
    code = first[0].exit_code if first else run.exit_code if not run.ranks else None
    if code != 2 or run.signalled or run.timed_out:
        return nothing_found(run, "arguments were not refused")
    return Problem(
        "arguments were refused (exit code 2)",
        fix=Fix("correct the arguments behind the script's name; --help there is the script's own"),
        evidence={"exit_code": 2},
        subjects=rank_subjects(first),
    )


@check(Severity.ERROR, source=_EXIT, role="root", kind="launcher")
def run_launcher_killed(run: Run) -> Answer:
    """The launcher itself was killed by a signal, and no rank had failed before.

    Why: The ranks were still at work, and were ended with it. No traceback is left by that; the program is not what
    failed.
    More: SIGKILL comes from the kernel (memory), from Slurm, or from somebody's kill -9.

    Fix: Look who did it: the kernel's log, sacct for a Slurm job.
    """
    fell = any(rank.exit_code for rank in run.ranks)
    if run.launcher_code >= 0 or fell or run.signalled or run.timed_out:
        return nothing_found(run, "the launcher was not killed before its ranks")
    name = signal_name(run.launcher_code)
    short = (run.oom_kills or 0) > 0 or bool(run.killed) or run.slurm == "OUT_OF_MEMORY"
    if short:
        return Skip("it was for want of memory: run_out_of_memory")
    return Problem(
        f"the launcher itself was killed ({name}), not a rank",
        fix=(
            Fix("see who ended it", ('sudo dmesg -T | grep -iE "oom|killed process"',), who="admin"),
            Fix(
                "in a Slurm job, ask what Slurm did", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS,ReqMem",)
            ),
        ),
        evidence={"launcher_code": run.launcher_code},
    )


@check(Severity.ERROR, source=_LAUNCHER_ENDS, role="wrapper", kind="launcher")
def run_launcher_failed(run: Run) -> Answer:
    """The launcher ended with an error before it had started a single rank.

    Why: It refused its config, could not be imported, could not meet the other machines, or its port was taken. Nothing
    of the training has run.

    Fix: Read the launcher's own error, the last lines of the output.
    """
    if not run.watched:
        return Skip("it ran elsewhere: nobody saw whether it started a rank")
    if run.exit_code == 0 or run.ranks or run.signalled or run.timed_out:
        return nothing_found(run, "the launcher started its ranks")
    return Problem(
        f"the launcher ended with {run.exit_code} before it started a rank",
        fix=Fix("read the last lines of the output, and validate the config", ("mgpu configure --validate",)),
        evidence={"launcher_code": run.launcher_code},
    )


@check(Severity.ERROR, source=_EXIT, role="wrapper", kind="script", tags=("last_line",))
def run_rank_failed(run: Run) -> Answer:
    """A rank ended with an exit code that is not 0, or by a signal of which no other check tells.

    Why: A Python exception ends a process with 1; any other number is the script's own (sys.exit). A signal comes from
    a limit (ulimit), from a sandbox, or from somebody who sent it.

    Fix: Read what this rank wrote last, or what the script means by that number.
    """
    fallen = tuple(rank for rank in fallen_ranks(run) if rank.exit_code not in EXPLAINED | STOP_SIGNALS)
    if not fallen:
        return nothing_found(run, "no rank ended itself with an error")
    first = fallen[0]
    code = first.exit_code or 0
    said = f": {first.error}" if first.error else ""
    if code < 0:
        means = _SIGNAL_MEANS.get(-code, "somebody sent it, or the kernel did")
        how = f"was ended by {signal_name(code)}: {means}"
        why = f"{signal_name(code)} ends a process at once, without a traceback"
    else:
        how = f"ended with exit code {code}{said}"
        why = "A Python exception, or sys.exit(1)" if code == 1 else "The script's own sys.exit, or a library's"
    return Problem(
        f"{rank_name(first)} {how}",
        f"{why}. Nothing else that mgpu knows was found in what it wrote.",
        Fix(
            "read what it wrote last; each rank's own file makes that easier"
            if len(run.ranks) > 1
            else "read what it wrote last"
        ),
        {"exit_code": first.exit_code, "error": first.error},
        rank_subjects(fallen),
    )


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html", role="root", kind="xid")
def run_gpu_fell_out(run: Run) -> Answer:
    """The driver reported a fault of a GPU (Xid) while the training ran.

    Why: The Xid is what the driver saw first: memory that cannot be corrected, a link, the GPU's firmware, or the bus.
    What CUDA and NCCL report afterwards are its consequences.

    Fix: Do what NVIDIA's catalogue says for the number; train on the other GPUs until then.
    """
    if run.xids is None:
        return Skip("the kernel's log is not readable by this user, so Xids are not known")
    for text in run.xids:
        number = re.match(r"\d+", text)
        known = XIDS.get(int(number[0])) if number else None
        if run.exit_code and known and known.kind in _HARDWARE:
            return Problem(
                f"a GPU failed: Xid {text}",
                f"Xid {known.code}: {known.meaning}. What CUDA and NCCL say after it are consequences.",
                (
                    Fix(known.action, ("sudo nvidia-smi -q | less",), who="admin"),
                    Fix("leave that GPU out until then", ("mgpu launch --gpus LIST ...",)),
                ),
                {"xid": known.code},
            )
    return Ok(f"no Xid of hardware in the kernel's log meanwhile ({len(run.xids)} of other kinds)")
