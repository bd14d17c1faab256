"""Does every GPU compute, and all of them the same?"""

from __future__ import annotations

from collections import Counter

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Rank, Ranks
from mgpu.text import counted, listed

from ._diagnoses import DIAGNOSES
from ._rank_states import of_kind, through, where_is, who

_CUDA = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_FINITE = "https://pytorch.org/docs/stable/generated/torch.isfinite.html"
_REPRODUCIBLE = "https://docs.nvidia.com/cuda/cublas/index.html"


def _faulty(rank: Rank, ranks: Ranks) -> tuple[Fix, ...]:
    """What is done with a device that does not compute as it must."""
    if rank.gpu_uuid is None:
        return (Fix("Test the memory of this machine; on the CPU nothing else alters numbers.", ("mgpu doctor",)),)
    return (
        Fix("Leave it out, and have it looked at.", ("mgpu doctor --deep",)),
        Fix("Have it tested for longer.", ("dcgmi diag -r 3",), who="admin"),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/generated/torch.cuda.device_count.html")
def rank_without_gpu(ranks: Ranks) -> Answer:
    """A rank finds no GPU of its own.

    Why: Each rank takes the GPU of its local rank among those that its process may see.
    More: CUDA_VISIBLE_DEVICES hides some, or num_processes is larger than the number of GPUs. Such a rank would train
    on the CPU, or not at all.

    Fix: See which GPUs are visible, and make num_processes their number.
    """
    without = of_kind(ranks, "no_gpu", "no_gpu_for_rank")
    if without:
        rank = without[0]
        return Problem(
            f"{who(rank)} has no GPU (device): {rank.error}",
            fix=commands("mgpu doctor", "nvidia-smi -L"),
            evidence={
                "rank": rank.rank,
                "local_rank": rank.local_rank,
                "host": rank.host,
                "visible": rank.evidence.get("visible", 0),
            },
            subjects=tuple(f"rank {r.rank}" for r in without),
        )
    strayed = [rank for rank in ranks.ranks if rank.device == "cpu" and not ranks.cpu]
    if strayed:
        rank = strayed[0]
        return Problem(
            f"{who(rank)} computes on the CPU (device), and the run is one on GPUs",
            "Something in its environment sends it there; it would train a hundred times slower, and say nothing.",
            Fix("Unset what keeps it off the GPU.", ("unset ACCELERATE_USE_CPU", "mgpu doctor")),
            {"rank": rank.rank, "local_rank": rank.local_rank, "host": rank.host, "visible": None},
            tuple(f"rank {r.rank}" for r in strayed),
        )
    placed = [rank for rank in ranks.ranks if rank.device]
    return Ok(f"{counted(len(placed), 'rank')} found a device") if placed else Skip("no rank came to its device")


@check(Severity.ERROR, source=_CUDA, because_of=DIAGNOSES)
def gpu_error_in_rank(ranks: Ranks) -> Answer:
    """CUDA reports an error in a rank.

    Why: a kernel did not run, the GPU fell off the bus or met an error of its memory; torch then ends the process.
    "no kernel image" means that this PyTorch was built for other GPUs. The other ranks wait for it in vain.

    Fix: See what the driver says of it, and use the GPUs one by one.
    """
    found = of_kind(ranks, "cuda_error")
    if found:
        rank = found[0]
        step = next((step.rung for step in rank.steps if step.ok is False), "?")
        return Problem(
            f"{who(rank)} met a CUDA error ({step}): {rank.error}",
            f'It was at "{rank.last_word}", on {where_is(rank)}.',
            (
                commands("sudo dmesg | grep -i xid", "mgpu doctor --deep"),
                Fix("See the whole error.", (shell("cat {:path}/rank{:number}.json", ranks.folder, rank.rank),)),
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
    return _after_device(ranks, "no rank met a CUDA error")


def _after_device(ranks: Ranks, said: str) -> Answer:
    """What a check answers where no rank complained: only when one came far enough to."""
    return Ok(said) if through(ranks, "device") else Skip('no rank came through "device"')


@check(Severity.ERROR, source=_FINITE, because_of=("gpu_memory_altered",))
def rank_computes_not_finite(ranks: Ranks) -> Answer:
    """Matrix products of small numbers come out infinite or NaN on a rank.

    Why: the inputs are ordinary numbers and the result of the same computation is finite elsewhere. A device that does
    this turns the loss of all ranks into NaN, because gradients are averaged.

    Fix: do not train on it.
    """
    found = of_kind(ranks, "not_finite")
    if found:
        rank = found[0]
        return Problem(
            f"{who(rank)} computes NaN or infinity (device): {rank.error}",
            f"It computes on {where_is(rank)}. Every other rank would inherit its NaN with the gradients.",
            _faulty(rank, ranks),
            {"rank": rank.rank, "dtype": rank.evidence.get("dtype"), "gpu": rank.gpu_uuid, "host": rank.host},
            tuple(f"rank {r.rank}" for r in found),
        )
    return _after_device(ranks, "every matrix product was finite")


@check(Severity.ERROR, source=_REPRODUCIBLE, because_of=("gpu_memory_altered",))
def rank_computes_unsteadily(ranks: Ranks) -> Answer:
    """The same computation on the same device gives other bits the second time.

    Why: one stream and equal inputs give equal bits. A device that does not repeat itself computes wrongly now and
    then, which nothing reports: the loss is worse than it should be.

    Fix: do not train on it.
    """
    found = of_kind(ranks, "unsteady_bits")
    if found:
        rank = found[0]
        return Problem(
            f"{who(rank)} does not compute the same twice (device): {rank.error}",
            f"It computes on {where_is(rank)}.",
            _faulty(rank, ranks),
            {
                "rank": rank.rank,
                "dtype": rank.evidence.get("dtype"),
                "first": rank.evidence.get("first"),
                "second": rank.evidence.get("second"),
                "gpu": rank.gpu_uuid,
                "host": rank.host,
            },
            tuple(f"rank {r.rank}" for r in found),
        )
    return _after_device(ranks, "every rank computed the same twice")


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/dynamic-page-retirement/index.html")
def gpu_memory_altered(ranks: Ranks) -> Answer:
    """Memory that a rank wrote does not hold what was written.

    Why: memory cells or the way to them are defective and no error correction caught it. Parameters and gradients that
    lie there are wrong.

    Fix: do not train on it; have the memory tested.
    """
    found = of_kind(ranks, "memory_altered")
    if found:
        rank, told = found[0], found[0].evidence
        step = next((step.rung for step in rank.steps if step.ok is False), "device")
        return Problem(
            f"{who(rank)}: {told.get('wrong')} of {told.get('of')} numbers in memory are altered ({step})",
            f"Written and read back on {where_is(rank)}; the first: {told.get('got')} instead of "
            f"{told.get('expected')}.",
            _faulty(rank, ranks),
            {
                "rank": rank.rank,
                "gpu": rank.gpu_uuid,
                "host": rank.host,
                "wrong": told.get("wrong"),
                "expected": told.get("expected"),
                "got": told.get("got"),
            },
            tuple(f"rank {r.rank}" for r in found),
        )
    checked = [mib for rank in ranks.ranks if (mib := rank.measured.get("memory_checked_mib"))]
    if not checked:
        return Skip("no rank wrote and read memory on purpose (level quick)")
    return Ok(f"{min(checked):.0f} MiB written and read back on {counted(len(checked), 'rank')}")


@check(
    Severity.ERROR,
    source=_REPRODUCIBLE,
    because_of=("gpu_memory_altered", "rank_computes_not_finite", "rank_computes_unsteadily"),
)
def ranks_compute_differently(ranks: Ranks) -> Answer:
    """The same computation gives other bits on one rank.

    Why: equal GPUs with equal libraries agree bit for bit; one that does not computes wrongly, which nothing reports:
    gradients of all ranks are averaged with its errors.

    Fix: do not train on the odd one; have it examined.
    """
    groups = {name: members for name, members in _alike(ranks).items() if len(members) > 1}
    if not groups:
        return Skip("no two ranks computed on devices of one model")
    for (model, kind), members in groups.items():
        digests = {rank.rank: rank.computed[kind] for rank in members}
        (usual, number), *others = Counter(digests.values()).most_common()
        if not others:
            continue
        even = others[0][1] == number  # nobody can say which of them is right
        odd = [rank for rank in members if even or digests[rank.rank] != usual]
        ids = listed(rank.rank for rank in odd)
        title = (
            f"ranks {ids} compute different bits in {kind} (device)"
            if even
            else f"{'rank' if len(odd) == 1 else 'ranks'} {ids} {'computes' if len(odd) == 1 else 'compute'} "
            f"other bits in {kind} than {number} equal ranks (device)"
        )
        return Problem(
            title,
            f"All of them compute on {model}, where the same kernels give the same bits.",
            _faulty(odd[0], ranks),
            {f"rank_{number}": digest for number, digest in digests.items()},
            tuple(f"rank {rank.rank}" for rank in odd),
        )
    kinds = dict.fromkeys(kind for _, kind in groups)
    several = {rank.rank for members in groups.values() for rank in members}
    return Ok(f"the same bits on {len(several)} ranks in {listed(kinds)}")


def _alike(ranks: Ranks) -> dict[tuple[str, str], list[Rank]]:
    """Ranks that must agree, by what they compute on and in which dtype: GPUs of one model and size (cards of one name
    may have more or fewer multiprocessors, and other kernels), the CPU of one host."""
    groups: dict[tuple[str, str], list[Rank]] = {}
    for rank in ranks.ranks:
        on_cpu = f"the CPU of {rank.host}" if rank.device == "cpu" else None
        model = (rank.kernels or rank.gpu_name) if rank.gpu_name else on_cpu
        for kind in rank.computed if model else ():
            groups.setdefault((model or "", kind), []).append(rank)
    return groups
