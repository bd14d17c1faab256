"""Did the driver log Xids of programs, unknown ones, or older ones?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Gpu, KernelLog
from mgpu.text import counted, listed

from .._kernel_log_lines import is_recent, no_events
from .._xid import CATALOG
from ._events import current_events, gpu_name, kind_of, problem_of, xids_since_load

_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_SUSPECT_CRASHES = 3  # program crashes that make a GPU suspect if no other GPU has any: a heuristic, hence an info


@check(
    Severity.INFO,
    source=CATALOG,
    because_of=("xid_gpu_fell_off_bus", "xid_memory_damaged", "xid_nvlink_failed", "xid_firmware_crashed"),
)
def xid_program_crashed(kernel_log: KernelLog) -> Answer:
    """A program crashed on a GPU (Xid 13, 31, 43 and similar).

    Why: nearly always an out-of-bounds access in a kernel or an extension. The program got "an illegal memory access
    was encountered" or "unspecified launch failure". The GPU itself is healthy.

    Fix: run the program with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer.
    """
    events = current_events(kernel_log, "program")
    if not events:
        return no_events("Xid for a crashed program", kernel_log)
    who = events[-1].process or "a program"
    return problem_of(
        events,
        kernel_log,
        f"{who} caused the error (CUDA error 700 or 719 in its log). Other programs are not affected.",
        Fix(
            "If it is yours, find the faulty kernel.",
            ("CUDA_LAUNCH_BLOCKING=1 python train.py", "compute-sanitizer python train.py"),
        ),
    )


@check(Severity.INFO, source=_DEBUG, because_of=("xid_gpu_fell_off_bus", "xid_memory_damaged", "gpu_ecc_uncorrected"))
def xid_keeps_to_one_gpu(kernel_log: KernelLog, gpus: tuple[Gpu, ...]) -> Answer:
    """Programs crash repeatedly on one GPU and on no other.

    Why: either the same rank of a faulty program crashes each time, or the GPU is faulty.
    More: A faulty program crashes on any GPU, while a faulty GPU makes many programs crash.

    Fix: reverse the order of the GPUs. If the crashes stay on the same GPU, the GPU is faulty.
    """
    if len(gpus) < 2:
        return Skip("no second GPU to compare with")
    events = [e for e in xids_since_load(kernel_log) if kind_of(e) == "program" and e.pci and e.process]
    crashed: dict[str | None, set[str | None]] = {}
    for event in events:
        crashed.setdefault(event.pci, set()).add(event.process)
    worst = max(crashed, key=lambda pci: len(crashed[pci]), default=None)
    if worst is None or len(crashed[worst]) < _SUSPECT_CRASHES or len(crashed) > 1:
        return Ok(f"{counted(sum(map(len, crashed.values())), 'crashed program')} on {counted(len(crashed), 'GPU')}")
    mine = [event for event in events if event.pci == worst]
    where = gpu_name(mine[-1])
    return Problem(
        f"{len(crashed[worst])} programs crashed on {where}, none on another GPU",
        fix=Fix(commands=("export CUDA_VISIBLE_DEVICES=1,0",)),
        evidence={"xids": listed(sorted({event.code or 0 for event in mine})), "programs": len(crashed[worst])},
        subjects=(where,),
    )


@check(Severity.INFO, source=CATALOG)
def xid_not_classified(kernel_log: KernelLog) -> Answer:
    """The driver logged an Xid that mgpu does not classify.

    Why: NVIDIA publishes no action that a user could take, or the Xid is newer than mgpu's table.

    Fix: look it up.
    """
    events = current_events(kernel_log, "other", None)
    if not events:
        return no_events("unclassified Xid", kernel_log)
    return problem_of(events, kernel_log, "NVIDIA's catalog may recommend an action.", Fix(f"Look it up: {CATALOG}"))


@check(Severity.INFO, source=CATALOG)
def xid_of_earlier_days(kernel_log: KernelLog) -> Answer:
    """A GPU had errors more than a day ago, or before the driver was last loaded.

    Why: the cause may have been fixed since, which the log does not show. It matters if this GPU fails again.

    Fix: nothing now.
    """
    serious = {"memory", "link", "firmware", "reset", "bus", "board"}
    now = {id(event) for event in xids_since_load(kernel_log) if is_recent(event)}
    events = [e for e in kernel_log.events if e.kind == "xid" and kind_of(e) in serious and id(e) not in now]
    if not events:
        return Ok("no serious Xid of earlier days in the kernel log")
    return problem_of(
        events,
        kernel_log,
        "This is not a current fault, but it matters if the GPU fails again.",
        Fix("Nothing now."),
    )
