"""Does every GPU compute, and do all of them get the same results?"""

from __future__ import annotations

from collections import Counter

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted, listed

from ._diagnoses import DIAGNOSES
from ._rank_states import (
    failures_of_kind,
    hardware_of,
    last_progress,
    rank_name,
    ranks_that_passed,
    report_of,
    stage_of,
)

_CUDA = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_FINITE = "https://pytorch.org/docs/stable/generated/torch.isfinite.html"
_REPRODUCIBLE = "https://docs.nvidia.com/cuda/cublas/index.html"


def _device_fixes(rank: Rank, ranks: Ranks) -> tuple[Fix, ...]:
    """Return the fixes for a device that computes wrong results."""
    if rank.gpu_uuid is None:
        return (Fix("Test the memory of this machine, the most likely cause on the CPU.", ("mgpu doctor",)),)
    return (
        Fix("Exclude it, and test it.", ("mgpu doctor --deep",)),
        Fix("Have it tested for longer.", ("dcgmi diag -r 3",), who="admin"),
    )


def _placement(rank: Rank) -> dict[str, str | int | float | None]:
    return {"rank": rank.rank, "rung": "device", "local_rank": rank.local_rank, "host": rank.host}


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/generated/torch.cuda.device_count.html")
def rank_without_gpu(ranks: Ranks) -> Answer:
    """A rank has no GPU of its own.

    Why: Each rank uses the visible GPU with the number of its local rank.
    More: CUDA_VISIBLE_DEVICES hides some GPUs, or num_processes is larger than the number of GPUs. Such a rank
    would train on the CPU, or not at all.

    Fix: Check which GPUs are visible, and set num_processes to their number.
    """
    without = failures_of_kind(ranks, "no_gpu", "no_gpu_for_rank")
    if without:
        rank = without[0]
        return Problem(
            f"device: {rank_name(rank)} has no GPU: {rank.error}",
            fix=commands("mgpu doctor", "nvidia-smi -L"),
            evidence=_placement(rank) | {"visible": rank.evidence.get("visible", 0)},
            subjects=tuple(f"rank {r.rank}" for r in without),
        )
    strayed = [rank for rank in ranks.ranks if rank.device == "cpu" and not ranks.cpu]
    if strayed:
        rank = strayed[0]
        return Problem(
            f"device: {rank_name(rank)} computes on the CPU in a GPU run",
            "A setting in its environment selects the CPU. It would silently train a hundred times slower.",
            Fix("Unset the variable that keeps it off the GPU.", ("unset ACCELERATE_USE_CPU", "mgpu doctor")),
            _placement(rank) | {"visible": None},
            tuple(f"rank {r.rank}" for r in strayed),
        )
    placed = [rank for rank in ranks.ranks if rank.device]
    return Ok(f"{counted(len(placed), 'rank')} found a device") if placed else Skip("no rank reached its device")


@check(Severity.ERROR, source=_CUDA, because_of=DIAGNOSES)
def gpu_error_in_rank(ranks: Ranks) -> Answer:
    """CUDA reports an error in a rank.

    Why: a kernel did not run, the GPU fell off the bus or had a memory error; torch then stops the process. "no
    kernel image" means that this PyTorch was built for other GPUs. The other ranks wait for it until they time out.

    Fix: Check the driver's messages, and test the GPUs one by one.
    """
    found = failures_of_kind(ranks, "cuda_error")
    if found:
        rank = found[0]
        step = next((step.rung for step in rank.steps if step.ok is False), stage_of(rank, ranks))
        return Problem(
            f"{step}: CUDA error on {rank_name(rank)}: {rank.error}",
            f"{last_progress(rank)}, on {hardware_of(rank)}.",
            (
                commands("sudo dmesg | grep -i xid", "mgpu doctor --deep"),
                Fix("Show the complete error.", (report_of(rank, ranks),)),
            ),
            {
                "rank": rank.rank,
                "rung": step,
                "code": rank.evidence.get("code"),
                "gpu": rank.gpu_uuid,
                "host": rank.host,
            },
            tuple(f"rank {r.rank}" for r in found),
        )
    return _after_device(ranks, "no rank had a CUDA error")


def _after_device(ranks: Ranks, said: str) -> Answer:
    """Return the answer if no rank reported a failure: Ok only if a rank passed the stage."""
    return Ok(said) if ranks_that_passed(ranks, "device") else Skip('no rank passed stage "device"')


@check(Severity.ERROR, source=_FINITE, because_of=("gpu_memory_altered",))
def rank_computes_not_finite(ranks: Ranks) -> Answer:
    """Matrix products of small numbers are infinite or NaN on a rank.

    Why: the inputs are ordinary numbers, and the same computation is finite elsewhere. Such a device turns the loss
    of all ranks into NaN, because gradients are averaged.

    Fix: do not train on it.
    """
    found = failures_of_kind(ranks, "not_finite")
    if found:
        rank = found[0]
        return Problem(
            f"device: {rank_name(rank)} computes NaN or infinity: {rank.error}",
            f"It uses {hardware_of(rank)}. Every other rank would receive its NaN with the gradients.",
            _device_fixes(rank, ranks),
            {
                "rank": rank.rank,
                "rung": "device",
                "dtype": rank.evidence.get("dtype"),
                "gpu": rank.gpu_uuid,
                "host": rank.host,
            },
            tuple(f"rank {r.rank}" for r in found),
        )
    return _after_device(ranks, "every matrix product was finite")


@check(Severity.ERROR, source=_REPRODUCIBLE, because_of=("gpu_memory_altered",))
def rank_computes_unsteadily(ranks: Ranks) -> Answer:
    """The same computation on the same device gives a different result the second time.

    Why: on one stream, equal inputs give bitwise equal results. Otherwise the device occasionally computes wrong
    results without any error: the loss is worse than it should be.

    Fix: do not train on it.
    """
    found = failures_of_kind(ranks, "unsteady_bits")
    if found:
        rank = found[0]
        return Problem(
            f"device: {rank_name(rank)} gets two results for one computation: {rank.error}",
            f"It uses {hardware_of(rank)}.",
            _device_fixes(rank, ranks),
            {
                "rank": rank.rank,
                "rung": "device",
                "dtype": rank.evidence.get("dtype"),
                "first": rank.evidence.get("first"),
                "second": rank.evidence.get("second"),
                "gpu": rank.gpu_uuid,
                "host": rank.host,
            },
            tuple(f"rank {r.rank}" for r in found),
        )
    return _after_device(ranks, "every rank got the same result twice")


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/dynamic-page-retirement/index.html")
def gpu_memory_altered(ranks: Ranks) -> Answer:
    """A rank's memory does not contain the data that was written.

    Why: memory cells or the path to them are defective, and ECC did not catch it. Parameters and gradients stored
    there are wrong.

    Fix: do not train on it; have the memory tested.
    """
    found = failures_of_kind(ranks, "memory_altered")
    if found:
        rank, reported = found[0], found[0].evidence
        step = next((step.rung for step in rank.steps if step.ok is False), "device")
        return Problem(
            f"{step}: {rank_name(rank)}: {reported.get('wrong')} of {reported.get('of')} numbers in memory are altered",
            f"Written and read back on {hardware_of(rank)}. First wrong number: {reported.get('got')} instead of "
            f"{reported.get('expected')}.",
            _device_fixes(rank, ranks),
            {
                "rank": rank.rank,
                "rung": step,
                "gpu": rank.gpu_uuid,
                "host": rank.host,
                "wrong": reported.get("wrong"),
                "expected": reported.get("expected"),
                "got": reported.get("got"),
            },
            tuple(f"rank {r.rank}" for r in found),
        )
    checked = [mib for rank in ranks.ranks if (mib := rank.measured.get("memory_checked_mib"))]
    if not checked:
        return Skip("no rank tested its memory (level quick)")
    return Ok(f"{min(checked):.0f} MiB written and read back on {counted(len(checked), 'rank')}")


@check(
    Severity.ERROR,
    source=_REPRODUCIBLE,
    because_of=("gpu_memory_altered", "rank_computes_not_finite", "rank_computes_unsteadily"),
)
def ranks_compute_differently(ranks: Ranks) -> Answer:
    """The same computation gives a different result on one rank.

    Why: identical GPUs and libraries give bitwise identical results; a GPU that does not computes wrong results
    without any error, and its errors are averaged into the gradients of all ranks.

    Fix: do not train on the deviating GPU; have it tested.
    """
    groups = {name: members for name, members in _comparable_ranks(ranks).items() if len(members) > 1}
    if not groups:
        return Skip("no two ranks computed on the same device model")
    for (model, kind), members in groups.items():
        digests = {rank.rank: rank.computed[kind] for rank in members}
        (usual, number), *others = Counter(digests.values()).most_common()
        if not others:
            continue
        even = others[0][1] == number  # which of them is right is unknown
        odd = [rank for rank in members if even or digests[rank.rank] != usual]
        ids = listed(rank.rank for rank in odd)
        title = (
            f"device: ranks {ids} compute different results in {kind}"
            if even
            else f"device: {'rank' if len(odd) == 1 else 'ranks'} {ids} {'computes' if len(odd) == 1 else 'compute'} "
            f"different results in {kind} than {number} equal ranks"
        )
        return Problem(
            title,
            f"All of them compute on {model}, where the same kernels give bitwise equal results.",
            _device_fixes(odd[0], ranks),
            {
                "rank": odd[0].rank if len(odd) == 1 else None,
                "rung": "device",
                **{f"rank_{number}": digest for number, digest in digests.items()},
            },
            tuple(f"rank {rank.rank}" for rank in odd),
        )
    kinds = dict.fromkeys(kind for _, kind in groups)
    several = {rank.rank for members in groups.values() for rank in members}
    return Ok(f"bitwise equal on {len(several)} ranks in {listed(kinds)}")


def _comparable_ranks(ranks: Ranks) -> dict[tuple[str, str], list[Rank]]:
    """Return the ranks that must get equal results, by hardware and dtype.

    The hardware is a GPU model and size (cards of one name may have different numbers of multiprocessors, and thus use
    different kernels), or the CPU of one host.
    """
    groups: dict[tuple[str, str], list[Rank]] = {}
    for rank in ranks.ranks:
        on_cpu = f"the CPU of {rank.host}" if rank.device == "cpu" else None
        model = (rank.kernels or rank.gpu_name) if rank.gpu_name else on_cpu
        for kind in rank.computed if model else ():
            groups.setdefault((model or "", kind), []).append(rank)
    return groups
