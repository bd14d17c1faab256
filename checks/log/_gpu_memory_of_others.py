"""Do other processes hold a full GPU's memory, and which ones? The numbers of torch's message show it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import Log, UncaughtException

from ._gpu_memory import Numbers, Process, read_numbers

_SMALL_SHARE = 0.05  # of the GPU: what other processes hold does not explain the failure
_MINOR_SHARE = 0.25  # likewise: it adds to the failure, which the place of the failure explains better
_MOST_OF_GPU = 0.5
_OF_ITS_OWN = 4.0  # GiB: what CUDA, cuDNN and NCCL hold in a process, outside of torch's own memory, is less
_RANK_CONTEXT = 2.5  # GiB: what a process holds that opened a GPU only by mistake
_NEARLY_ALL = 0.8  # of what the other processes hold: the largest of them explains it alone
_CLOSE_PIDS = 50
_SEVERAL = 3
_FAR_PIDS = 1000  # one launcher starts its ranks at once: their pids are closer
# fmt: off
SMALLER = Fix("Halve the batch per GPU and double gradient accumulation. The effective batch size stays the same.",
              ("accelerate launch --gradient_accumulation_steps 2 ...",))
SHARD = Fix("Shard the model and the optimizer over the GPUs (FSDP, ZeRO), or recompute activations.",
            ("mgpu configure",))
OTHERS = Fix("List other processes on the GPU.",
             ("nvidia-smi", "mgpu doctor --only gpu_busy,gpu_memory_without_process"))
OWN_GPU = Fix("Select the rank's GPU before the first CUDA call, and load checkpoints into host memory.",
              ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "torch.load(path, map_location='cpu')",
               "mgpu doctor --script train.py"))
APART = Fix("Keep the run off that GPU, or stop the other program. An inference server can also take less.",
            ("nvidia-smi", "export CUDA_VISIBLE_DEVICES=1,2,3  # without GPU 0, for example",
             "vllm serve ORG/MODEL --gpu-memory-utilization 0.4",
             "python -m sglang.launch_server --mem-fraction-static 0.4 ..."))
# fmt: on


def is_alone(read: Numbers) -> bool:
    """Whether other processes hold too little to matter."""
    others, _ = _others(read)
    return bool(others and read.total) and sum(one.held for one in others) < _SMALL_SHARE * (read.total or 0.0)


def _others(read: Numbers) -> tuple[tuple[Process, ...], str]:
    """Return the processes that are not this one, and what this one holds as text.

    In a container, torch can list this process under the host's pid. It is the one whose memory fits what torch has
    reserved in it, and CUDA's own few hundred MiB.
    """
    if read.own is not None or len(read.processes) < 2:
        return read.processes, "" if read.own is None else f"{read.own:.2f} GiB"
    reserved = (read.allocated or 0.0) + (read.unallocated or 0.0)
    if read.allocated is None:
        return (), ""
    own = min(read.processes, key=lambda one: abs(one.held - reserved))
    return tuple(one for one in read.processes if one is not own), own.text


def taken(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the process that holds the memory. None if the others hold too little to matter."""
    read = read_numbers(groups["numbers"])
    others, own = _others(read)
    held = sum(one.held for one in others)
    if not others or not read.total:
        return None
    small = len(others) > 1 and max(one.held for one in others) <= _RANK_CONTEXT
    if small and held >= (read.tried or 0.0) and not _far_apart(others):
        return _opened_by_ranks(others, held, own, read.total)
    if held < _MINOR_SHARE * read.total:
        return None
    most = max(others, key=lambda one: one.held)
    this = f", this one {own}" if own else ""
    if len(others) > 1 and most.held < _NEARLY_ALL * held:
        return _taken_by_several(others, read.total, this)
    filled = most.held >= _MOST_OF_GPU * read.total
    return Meaning(
        f"a GPU's memory is full, and another process (pid {most.pid}) uses {most.text} of its {read.total:.2f} GiB"
        f"{this}",
        "It is another program (an inference server, a notebook, another user's run), an orphaned rank of an earlier "
        "run, or a second rank of this run on the same GPU. "
        + (
            "This run cannot fit beside it: a smaller batch does not help."
            if filled
            else "The GPU is shared: what it holds is missing here."
        ),
        (APART, OTHERS, OWN_GPU) if filled else (OTHERS, OWN_GPU, SMALLER),
    )


def _taken_by_several(others: tuple[Process, ...], total: float, this: str) -> Meaning:
    """Explain processes none of which holds most of what all others hold; `this` is the title's part about this one."""
    held = sum(one.held for one in others)
    most = max(others, key=lambda one: one.held)
    near = _started_together(others)
    together = (
        f" The pids of {len(near)} are close together ({near[0]} to {near[-1]}): one script probably started them, as "
        "runs of a sweep or as ranks of one run."
        if near
        else ""
    )
    return Meaning(
        f"a GPU's memory is full: {len(others)} other processes use {held:.1f} of its {total:.2f} GiB{this}",
        f"None of them alone fills it: the largest (pid {most.pid}) uses {most.text}. They are other runs, notebooks "
        f"or servers, orphaned ranks of an earlier run, or ranks of this run on the same GPU.{together}",
        (
            OTHERS,
            Fix(
                "Start runs one after the other, or each on a GPU of its own.",
                ("CUDA_VISIBLE_DEVICES=1 python train.py",),
            ),
            OWN_GPU,
            *((SMALLER,) if held < _MOST_OF_GPU * total else ()),
        ),
    )


def _started_together(others: tuple[Process, ...]) -> list[int]:
    """Return the pids that are close to their middle one, in order, if most of them are; else nothing."""
    pids = sorted(int(one.pid) for one in others)
    near = [pid for pid in pids if abs(pid - pids[len(pids) // 2]) <= _CLOSE_PIDS]
    return near if len(near) >= _SEVERAL and len(near) > len(pids) / 2 else []


def _far_apart(others: tuple[Process, ...]) -> bool:
    """Whether no two of the processes were started together, by their pids."""
    pids = sorted(int(one.pid) for one in others)
    return all(later - pid > _FAR_PIDS for pid, later in itertools.pairwise(pids))


def held_unseen(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain memory that this process does not have and that is not free either, if no other process is named.

    torch before 2.1 names none. Later ones name those that NVML lists, which does not list what runs in another
    container or belongs to another namespace.
    """
    read = read_numbers(groups["numbers"])
    if read.total is None or read.free is None:
        return None
    own, reserved = _alone_listed(read), read.reserved
    if own is not None:
        rest = read.total - read.free - own
        large = rest >= max(_MINOR_SHARE * read.total, _OF_ITS_OWN)
        return _held_out_of_sight(rest, own, read.total) if large and _would_fit(read, rest) else None
    if reserved is None or read.processes:
        return None
    held = read.total - read.free - reserved
    if held < max(_MINOR_SHARE * read.total, _OF_ITS_OWN) or held < reserved:
        return None
    return Meaning(
        f"a GPU's memory is full, and probably other processes hold {held:.1f} of its {read.total:.2f} GiB: torch has "
        f"reserved only {reserved:.2f} GiB in this one",
        "It is another program (an inference server, a notebook, another user's run), an orphaned rank of an earlier "
        "run, or a second rank of this run on the same GPU. A part can be this process's own, if another library than "
        "torch uses the GPU in it (TensorFlow, JAX). A smaller batch does not help.",
        (APART, OTHERS, OWN_GPU),
    )


def _alone_listed(read: Numbers) -> float | None:
    """Return what this process holds by NVML, CUDA's own memory included; None if that is not certain.

    In a container, the only process that is listed can be this one under the host's pid: it holds at least what torch
    has reserved in it, and little more.
    """
    reserved = (read.allocated or 0.0) + (read.unallocated or 0.0)
    if read.own is not None and not read.processes:
        return read.own if read.own >= reserved else None
    if read.own is None and read.allocated is not None and len(read.processes) == 1:
        (one,) = read.processes
        return one.held if 0.0 <= one.held - reserved < _OF_ITS_OWN else None
    return None


def _would_fit(read: Numbers, rest: float) -> bool:
    """Whether the request needed `rest`: no limit, fragments or size beyond the whole GPU explain its failure."""
    tried, free = read.tried or 0.0, read.free or 0.0
    return read.allowed is None and tried <= rest + free and free <= 1.5 * tried + 1.0


def _held_out_of_sight(rest: float, own: float, total: float) -> Meaning:
    """Explain `rest`, which is in use beside what this process holds, of a process that NVML does not list."""
    filled = rest >= _MOST_OF_GPU * total
    return Meaning(
        f"a GPU's memory is full, and {rest:.1f} of its {total:.2f} GiB are not this process's, which uses "
        f"{own:.2f} GiB",
        "Another process holds them that is not visible from here: in another container or on the host, such as an "
        "inference server, another user's run, or an earlier run that has not exited yet. "
        + (
            "This run cannot fit beside it: a smaller batch does not help."
            if filled
            else "What it holds is missing here: the same run can fit on a GPU that is free."
        ),
        (
            Fix(
                "Compare the GPUs before the start, on the host: nvidia-smi in a container shows the memory in use, "
                "and not the processes of others. Wait for the other process, or stop it.",
                ("nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv", "nvidia-smi"),
            ),
            *(() if filled else (SMALLER,)),
            Fix("Keep the run off the GPUs that are in use.", ("export CUDA_VISIBLE_DEVICES=1,2,3",)),
        ),
    )


def held_beside(line: str, log: Log) -> str:
    """Return a sentence about other processes that hold a minor part of the GPU; empty if there is none."""
    read = read_numbers(line)
    others, _ = _others(read)
    held = sum(one.held for one in others)
    if not others or not read.total or not _SMALL_SHARE <= held / read.total < _MINOR_SHARE:
        return ""
    most = max(others, key=lambda one: one.held)
    return (
        f" In addition, another process (pid {most.pid}) holds {most.text} of the GPU's {read.total:.2f} GiB: "
        "nvidia-smi lists it."
    )


def _opened_by_ranks(others: tuple[Process, ...], held: float, own: str, total: float) -> Meaning:
    """Explain processes that hold no more than what CUDA needs, beside `own`, what this one holds as text."""
    these = f"{len(others)} other processes, probably the other ranks, hold {held:.1f} GiB"
    return Meaning(
        f"a GPU's memory is full: this process holds {own} of its {total:.2f} GiB, and {these}"
        if own
        else f"a GPU's memory is full, and {these} of it",
        "Each of the others has opened this GPU without need: through torch.load without map_location, a tensor on "
        "'cuda' before torch.cuda.set_device, or loader workers that use CUDA. Without them, this rank has "
        f"{held:.1f} GiB more; if that is not enough, its own data do not fit.",
        (OWN_GPU, OTHERS, SMALLER, SHARD),
    )
