"""Which exit code did a rank or the launcher return, and did a GPU fail during the run?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Run

from .._xid import XIDS
from ._ended_ranks import EXPLAINED, STOP_SIGNALS, failed_ranks, ok_for_run, rank_name, rank_subjects, signal_name

_EXITING_METHODS = "https://docs.python.org/3/library/argparse.html#exiting-methods"
_LAUNCHER_EXIT = "mgpu: a launcher that exits with an error before it has started any rank"

# Signals that no other check here explains; signal(7), setrlimit(2).
_SIGNAL_MEANS = {
    5: "a failed assertion in a library, or a debugger breakpoint",
    10: "another process sent it (Slurm does so before the time limit), and the script does not handle it",
    12: "another process sent it (Slurm does so before the time limit), and the script does not handle it",
    13: "the process that read its output had exited",
    14: "a timer set by the script or a library expired",
    24: "it exceeded its CPU time limit (ulimit -t)",
    25: "it exceeded its file size limit (ulimit -f)",
    31: "it made a system call that the container's or the node's sandbox (seccomp) does not allow",
}
_HARDWARE = frozenset({"memory", "link", "firmware", "reset", "bus", "board"})
_EXIT = "mgpu: exit codes as the shell has them, https://docs.python.org/3/library/subprocess.html"


@check(Severity.ERROR, source=_EXITING_METHODS, role="secondary", kind="launcher", tags=("last_line",))
def run_arguments_wrong(run: Run) -> Answer:
    """The script, or its launcher, rejected its arguments (exit code 2).

    Why: A program exits with 2 if an argument is unknown or missing. It prints its usage.
    More: python does so if it cannot open the script.

    Fix: Read the usage in the output, and correct the arguments after the script's name.
    """
    first = failed_ranks(run)[:1]
    code = first[0].exit_code if first else run.exit_code if not run.ranks else None
    if code != 2 or run.signalled or run.timed_out:
        return ok_for_run(run, "arguments were not rejected")
    return Problem(
        "arguments were rejected (exit code 2)",
        fix=Fix("Correct the arguments after the script's name. A --help there is the script's own."),
        evidence={"exit_code": 2},
        subjects=rank_subjects(first),
    )


@check(Severity.ERROR, source=_EXIT, role="root", kind="launcher")
def run_launcher_killed(run: Run) -> Answer:
    """The launcher itself was killed by a signal, before any rank failed.

    Why: The ranks were still running and were stopped with it. There is no traceback, and the program did not fail.
    More: SIGKILL comes from the kernel (memory), from Slurm, or from another user's kill -9.

    Fix: Find out what sent it: check the kernel log, and sacct for a Slurm job.
    """
    failed = any(rank.exit_code for rank in run.ranks)
    if run.launcher_code >= 0 or failed or run.signalled or run.timed_out:
        return ok_for_run(run, "the launcher was not killed before its ranks")
    name = signal_name(run.launcher_code)
    short = (run.oom_kills or 0) > 0 or bool(run.killed) or run.slurm == "OUT_OF_MEMORY"
    if short:
        return Skip("it ran out of memory: run_out_of_memory")
    return Problem(
        f"the launcher itself was killed ({name}), not a rank",
        fix=(
            Fix("Find out what killed it.", ('sudo dmesg -T | grep -iE "oom|killed process"',), who="admin"),
            Fix("In a Slurm job, query Slurm.", ("sacct -j $SLURM_JOB_ID -o JobID,State,ExitCode,MaxRSS,ReqMem",)),
        ),
        evidence={"launcher_code": run.launcher_code},
    )


@check(Severity.ERROR, source=_LAUNCHER_EXIT, role="wrapper", kind="launcher")
def run_launcher_failed(run: Run) -> Answer:
    """The launcher failed before it started any rank.

    Why: It rejected its config, could not be imported, could not reach the other nodes, or its port was in use.
    Training did not start.

    Fix: Read the launcher's error in the last lines of the output.
    """
    if not run.watched:
        return Skip("the run was not observed, so it is unknown whether a rank started")
    if run.exit_code == 0 or run.ranks or run.signalled or run.timed_out:
        return ok_for_run(run, "the launcher started its ranks")
    return Problem(
        f"the launcher exited with code {run.exit_code} before it started a rank",
        fix=Fix("Read the last lines of the output, and validate the config.", ("mgpu configure --validate",)),
        evidence={"launcher_code": run.launcher_code},
    )


@check(Severity.ERROR, source=_EXIT, role="wrapper", kind="script", tags=("last_line",))
def run_rank_failed(run: Run) -> Answer:
    """A rank exited with a nonzero code, or with a signal that no other check explains.

    Why: A Python exception exits with 1. Any other code comes from the script itself (sys.exit). A signal comes from a
    limit (ulimit), from a sandbox, or from another process.

    Fix: Read the last lines of this rank, or check what the script means by that code.
    """
    failed = tuple(rank for rank in failed_ranks(run) if rank.exit_code not in EXPLAINED | STOP_SIGNALS)
    if not failed:
        return ok_for_run(run, "no rank exited with an error of its own")
    first = failed[0]
    code = first.exit_code or 0
    error = f": {first.error}" if first.error else ""
    if code < 0:
        means = _SIGNAL_MEANS.get(-code, "another process or the kernel sent it")
        how = f"was killed by {signal_name(code)}: {means}"
        why = f"{signal_name(code)} kills a process at once, without a traceback"
    else:
        how = f"exited with code {code}{error}"
        why = (
            "A Python exception, or sys.exit with 1 or a message"
            if code == 1
            else "A sys.exit in the script or a library"
        )
    return Problem(
        f"{rank_name(first)} {how}",
        f"{why}. Its output contains no other known error.",
        Fix(
            "Read its last lines. A separate log file per rank makes this easier."
            if len(run.ranks) > 1
            else "Read its last lines."
        ),
        {"exit_code": first.exit_code, "error": first.error},
        rank_subjects(failed),
    )


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html", role="root", kind="xid")
def run_gpu_fell_out(run: Run) -> Answer:
    """The driver reported a GPU fault (Xid) during the run.

    Why: The Xid is the first error that the driver detected: an uncorrectable memory error, or a fault of a link, the
    GPU's firmware, or the bus. What CUDA and NCCL report afterwards are its consequences.

    Fix: Do what NVIDIA's catalog recommends for this Xid. Use the other GPUs until then.
    """
    if run.xids is None:
        return Skip("this user cannot read the kernel log, so Xids are unknown")
    for text in run.xids:
        number = re.match(r"\d+", text)
        known = XIDS.get(int(number[0])) if number else None
        if run.exit_code and known and known.kind in _HARDWARE:
            return Problem(
                f"a GPU failed: Xid {text}",
                f"Xid {known.code}: {known.meaning}. What CUDA and NCCL report after it are consequences.",
                (
                    Fix(known.action, ("sudo nvidia-smi -q | less",), who="admin"),
                    Fix("Exclude that GPU until then.", ("mgpu launch --gpus LIST ...",)),
                ),
                {"xid": known.code},
            )
    return Ok(f"no hardware Xid in the kernel log during the run ({len(run.xids)} of other kinds)")
