"""How are the CPUs shared among the ranks, and do ranks stay near their GPUs? Affects speed, never results."""

from __future__ import annotations

from typing import Final

from mgpu.snapshot import Snapshot
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.devices import Devices
from mgpu.wizard.proposal_types import Option, Part, Setting, origin_of
from mgpu.wizard.software import installed_version

# Keep small: more threads rarely help a rank that computes on a GPU, and loader workers help up to about 3
# (ml-engineering, "training/performance"; Lightning's suggested maximum is CPUs / ranks - 1).
_MOST_THREADS: Final = 4
_MOST_WORKERS: Final = 8
THREADS_FLAG: Final = "--num_cpu_threads_per_process"
PINNING_FLAG: Final = "--enable_cpu_affinity"


def host(snapshot: Snapshot, answers: Answers, used: Devices, *, deepspeed: bool, offload: bool = False) -> Part:
    """Return rows for threads, DataLoader workers and CPU pinning, and the flags that mgpu launch adds."""
    cores = _cores(snapshot)
    threads, workers = _shares(cores, used, offload)
    pinned, why_not = _decide_pinning(snapshot, answers, used)
    rows, notes, flags, problems = [], [], [], []
    for name, given in (("threads", answers.threads), ("workers", answers.workers)):
        if given is not None and given < (1 if name == "threads" else 0):
            problems.append(f"{name} {given}: must be at least {1 if name == 'threads' else 0}")
    threads = answers.threads if answers.threads is not None else threads
    workers = answers.workers if answers.workers is not None else workers
    if threads is not None or workers is not None:
        rows.append(_cpu_row(answers, used, cores, threads, workers))
    if threads is not None and threads > 1 and not problems:
        if deepspeed:
            notes.append(f"accelerate does not set a thread count with DeepSpeed: export OMP_NUM_THREADS={threads}.")
        else:
            flags += [THREADS_FLAG, str(threads)]
    if answers.workers is not None:
        notes.append(f"Set the DataLoader workers in your script: num_workers={workers}.")
    if cores is not None and (threads or 1) + (workers or 0) > max(2, cores // used.ranks):
        notes.append(f"{threads} threads and {workers} workers on each of {used.ranks} ranks exceed the {cores} CPUs.")
    options: dict[str, tuple[Option, ...]] = {}
    if not used.cpu:
        rows.append(_pinning_row(snapshot, answers, pinned, why_not))
        options["numa"] = (
            Option("yes", "Keep each rank on the CPUs near its GPU", why_not, why_not is None),
            Option("no", "Let the operating system place the ranks", None, why_not is not None),
        )
        flags += [PINNING_FLAG] if pinned else []
        if answers.numa and why_not:
            notes.append(f"CPU pinning stays off: {why_not}.")
    chosen = {"numa": "yes" if pinned else "no"} if options else {}
    chosen |= {name: str(n) for name, n in (("threads", threads), ("workers", workers)) if n is not None}
    return Part(tuple(rows), options, chosen, tuple(problems), tuple(notes), tuple(flags))


def _cores(snapshot: Snapshot) -> int | None:
    """Return the CPUs this process may use (affinity, cgroup, Slurm allocation), not all that the machine has."""
    granted = snapshot.slurm.cpus_on_node if snapshot.slurm else None
    if snapshot.system is None:
        return granted
    return min(snapshot.system.cpus_usable, granted or snapshot.system.cpus_usable)


def _shares(cores: int | None, used: Devices, offload: bool) -> tuple[int | None, int | None]:
    """Return threads and workers per rank.

    Workers get half of the CPUs that a GPU rank has left after its threads; the rest is for the system. A CPU-offloaded
    optimizer gets the other half too.
    """
    if cores is None:
        return None, None
    each = max(1, cores // used.ranks)
    threads = each if used.cpu else max(1, min(_MOST_THREADS, each // 4))
    spare = each if used.cpu else each - threads
    workers = min(_MOST_WORKERS, max(spare // 2, 1 if each > 1 else 0))
    return max(threads, each - workers) if offload else threads, workers


def _cpu_row(answers: Answers, used: Devices, cores: int | None, threads: int | None, workers: int | None) -> Setting:
    given = [name for name in ("threads", "workers") if answers[name] is not None]
    origin: Origin = origin_of(answers, given[0]) if given else "probe"
    unit = "rank" if used.cpu else "GPU"
    why = f"{cores} CPUs for {used.ranks} {unit}{'s' if used.ranks > 1 else ''}" if cores is not None else ""
    shown = " / ".join("?" if number is None else str(number) for number in (threads, workers))
    return Setting("threads / workers", f"{shown} per {unit}", origin, why, "threads")


def _decide_pinning(snapshot: Snapshot, answers: Answers, used: Devices) -> tuple[bool, str | None]:
    """Return whether ranks are pinned, and why they cannot be."""
    why_not = _no_pinning(snapshot, used)
    return answers.numa is not False and why_not is None, why_not


def _no_pinning(snapshot: Snapshot, used: Devices) -> str | None:
    nodes = snapshot.system.numa_nodes if snapshot.system else None
    if used.cpu:
        return "CPU ranks have no GPU to stay near"
    if nodes is None:
        return "number of NUMA nodes unknown"
    if nodes < 2:
        return "one NUMA node"
    if any(gpu.cpus_near is None for gpu in used.gpus):
        return "CPUs near each GPU unknown"
    if used.mig or not used.first:
        # utils/environment.py override_numa_affinity passes the local rank to NVML and ignores the mask.
        return "accelerate assumes local rank = GPU number, and would pin to the CPUs of other GPUs"
    if snapshot.packages is not None and not (
        installed_version(snapshot, "nvidia-ml-py") or installed_version(snapshot, "pynvml")
    ):
        return "accelerate needs nvidia-ml-py for it; not installed"
    return None


def _pinning_row(snapshot: Snapshot, answers: Answers, pinned: bool, why_not: str | None) -> Setting:
    nodes = snapshot.system.numa_nodes if snapshot.system else None
    if why_not:
        return Setting("CPU pinning", "off", "rule", why_not, "numa")
    origin: Origin = "probe" if answers.numa is None else origin_of(answers, "numa")
    return Setting("CPU pinning", "on" if pinned else "off", origin, f"{nodes} NUMA nodes", "numa")
