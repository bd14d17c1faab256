"""Does what the ranks send each other arrive as it was sent?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Gpu, Link, PairRun, Rank, Ranks
from mgpu.text import counted, listed

from ._diagnoses import DIAGNOSES
from ._rank_states import TORCH, median, of_kind, through, where_is, who

_RTX6KPRO = "https://github.com/voipmonitor/rtx6kpro"

# Of the median of the pairs with the same kind of link. Over PCIe 5, pairs of one kind gave 39 to 51 GB/s, the lowest
# 0.76 of the highest (voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md).
_PAIR_SHARE = 0.7
_SIBLINGS = 3  # pairs of one kind, below which none of them is the odd one


@check(Severity.ERROR, source=TORCH, because_of=DIAGNOSES)
def collective_gives_wrong_numbers(ranks: Ranks) -> Answer:
    """A collective ends without an error and gives wrong numbers.

    Why: every rank sends small whole numbers that the others know. What arrives from one rank wrong at all others was
    sent wrong, by its GPU's memory or its way to the others; gradients would be altered in the same way, and nothing
    would report it.

    Fix: leave the rank's GPU out, or find the transport that alters the data.
    """
    heard = of_kind(ranks, "wrong_numbers")
    if ranks.expected == 1:
        return Skip("one rank has nobody to talk to")
    if not heard:
        sound = through(ranks, "collectives")
        return Ok(f"exact on {counted(len(sound), 'rank')}") if sound else Skip("no rank came through the collectives")
    views = {rank.rank: [int(suspect) for suspect in rank.evidence.get("suspects", ())] for rank in heard}
    by_number = {rank.rank: rank for rank in ranks.ranks}
    names = listed(dict.fromkeys(name for rank in heard for name in rank.evidence.get("collectives", ())))
    complaints, numbers = listed(views), tuple(views)
    accused, why = _suspect(views)
    if accused is None:
        culprit = None
        title = f"wrong numbers on {'ranks' if len(views) > 1 else 'rank'} {complaints} (collectives: {names}); {why}"
    else:
        culprit, numbers = by_number.get(accused), (accused,)
        title = f"{who(culprit) if culprit else f'rank {accused}'} {why} (collectives: {names})"
    where = f" It computes on {where_is(culprit)}." if culprit else ""
    example: Mapping[str, Any] = next(iter(heard[0].evidence.get("wrong", ())), {})
    gpu, host = (culprit.gpu_uuid, culprit.host) if culprit else (None, None)
    found: dict[str, Any] = {"received_by": complaints, "collectives": names}
    found |= {"expected": example.get("expected"), "got": example.get("got")}
    found |= {f"rank_{number}_suspects": listed(suspects) or "nobody" for number, suspects in views.items()}
    return Problem(
        title,
        f"{counted(len(views), 'rank')} of {len(ranks.ranks)} received wrong numbers ({complaints}). First on rank "
        f"{heard[0].rank}: {heard[0].error}.{where}{_gloo(heard[0])}",
        _fixes(culprit if accused is not None else heard[0]),
        {"rank": accused, "gpu": gpu, "host": host, **found},
        tuple(f"rank {number}" for number in numbers),
    )


def _suspect(views: Mapping[int, list[int]]) -> tuple[int | None, str]:
    """The one rank that explains what all of them saw, and how; None and why nobody can be named."""
    votes = Counter(suspect for suspects in views.values() for suspect in suspects)
    if not votes:
        return None, "only sums are wrong, and a sum does not tell whose part was"
    accusing = {number: set(suspects) for number, suspects in views.items() if suspects}
    everybody = [suspect for suspect in votes if all(suspect in suspects for suspects in accusing.values())]
    alone = [suspect for suspect in everybody if all(suspects == {suspect} for suspects in accusing.values())]
    if alone:
        return alone[0], "sends wrong numbers"
    if len(accusing) == 1:
        (receiver,) = accusing
        return receiver, f"receives wrong numbers from {counted(len(votes), 'rank')}, and no other rank does"
    (first, number), (_, second) = votes.most_common(2)
    if number > 2 * second:
        return first, f"sends wrong numbers, as {number} of {len(accusing)} ranks see it"
    return None, f"no one rank explains it (what came from {listed(sorted(votes))})"


def _gloo(rank: Rank) -> str:
    if rank.gloo_works is None:
        return ""
    return " Over gloo, from host memory, " + (
        "the same numbers arrive right: the network works, NCCL or the way between GPUs does not."
        if rank.gloo_works
        else "they do not arrive right either: it is not NCCL."
    )


def _fixes(rank: Rank | None) -> tuple[Fix, ...]:
    """What to do about data that is altered on its way."""
    if rank is None or rank.gpu_uuid is None:
        return (Fix("Test the memory and the network of the hosts; gloo itself alters nothing.", ("mgpu doctor",)),)
    return (
        Fix(
            "Use each GPU and each copy between two alone; then leave out the one that fails.", ("mgpu doctor --deep",)
        ),
        Fix("Have GPU, memory and NVLink tested for longer.", ("dcgmi diag -r 3",), who="admin"),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*DIAGNOSES, "collective_gives_wrong_numbers"))
def pair_gives_wrong_numbers(ranks: Ranks) -> Answer:
    """Two ranks alone send each other numbers that arrive wrong.

    Why: the way between these two GPUs alters data: peer access over PCIe that the IOMMU rewrites, a failing NVLink,
    defective memory. Every collective whose ring passes there is wrong as well.

    Fix: see whether all bad pairs have one GPU in common.
    """
    by_number = {rank.rank: rank for rank in ranks.ranks}
    tested = [(rank, pair) for rank in ranks.ranks for pair in rank.pairs if pair.ok is not None]
    tried, bad = len(tested), dict[tuple[int, int], str]()
    for rank, pair in tested:
        if not pair.ok:
            bad.setdefault((min(rank.rank, pair.other), max(rank.rank, pair.other)), pair.detail or "wrong")
    if not bad:
        return Ok(f"{tried // 2 or tried} pairs exact") if tried else Skip("no pair was tried")
    names = [f"{a}-{b}" for a, b in bad]
    counts = Counter(number for pair in bad for number in pair)
    shared = [number for number, count in counts.items() if count == len(bad) > 1]
    (a, b), detail = next(iter(bad.items()))
    ends = "; ".join(
        f"rank {number} is on {where_is(by_number[number])}" for number in shared or (a, b) if number in by_number
    )
    common = f"; all with rank {shared[0]}" if len(shared) == 1 else ""
    return Problem(
        f"{'pair' if len(bad) == 1 else 'pairs'} {listed(names[:8])} {'gives' if len(bad) == 1 else 'give'} "
        f"wrong numbers (pairs){common}",
        f"{detail}. {ends}.",
        _fixes(by_number.get(shared[0] if shared else a)),
        {
            "pairs": ", ".join(names),
            "of": tried // 2 or tried,
            "rank": shared[0] if len(shared) == 1 else None,
            "gpu_a": by_number[a].gpu_uuid if a in by_number else None,
            "gpu_b": by_number[b].gpu_uuid if b in by_number else None,
        },
        tuple(f"rank {number}" for number in (shared or (a, b))),
    )


@check(Severity.WARNING, source=_RTX6KPRO, because_of=("pair_gives_wrong_numbers", "ranks_share_a_gpu"))
def pair_much_slower(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...]) -> Answer:
    """Two GPUs exchange data much slower than others that are joined in the same way.

    Why: All collectives pass between these two as well, and wait for them.
    More: A PCIe link has fewer lanes or a lower generation, NVLinks are down, or somebody else's traffic passes. A ring
    goes as fast as its slowest pair.

    Fix: Compare their links with those of the others.
    """
    rates = _rates(ranks, gpus, links)
    kinds: dict[str, list[float]] = {}
    for kind, rate in rates.values():
        kinds.setdefault(kind, []).append(rate)
    compared = {kind: median(found) for kind, found in kinds.items() if len(found) >= _SIBLINGS}
    if not compared:
        return Skip(f"no {_SIBLINGS} pairs of GPUs with one kind of link were timed")
    slow = {pair: (kind, rate) for pair, (kind, rate) in rates.items() if rate < _PAIR_SHARE * compared.get(kind, 0.0)}
    if not slow:
        return Ok(f"{sum(len(kinds[kind]) for kind in compared)} pairs, none below {_PAIR_SHARE} of its kind's median")
    (a, b), (kind, rate) = min(slow.items(), key=lambda found: found[1][1] / compared[found[1][0]])
    others = f" (and {counted(len(slow) - 1, 'pair')} more)" if len(slow) > 1 else ""
    return Problem(
        f"pair {a}-{b} ({kind}): {rate:.3g} GB/s, others of its kind {compared[kind]:.3g}{others}",
        fix=commands("nvidia-smi topo -m", "mgpu doctor --deep"),
        evidence={
            "pair": f"{a}-{b}",
            "link": kind,
            "gb_per_s": round(rate, 3),
            "usual_gb_per_s": round(compared[kind], 3),
            **{f"pair_{x}_{y}": round(found, 3) for (x, y), (_, found) in slow.items()},
        },
        subjects=(f"rank {a}", f"rank {b}"),
    )


def _rates(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...]) -> dict[tuple[int, int], tuple[str, float]]:
    """Pairs of GPUs that were timed, with the kind of link between them and the better of their two measurements.

    CPU ranks share cores and memory, so that nothing follows from how fast two of them are.
    """
    index = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid}
    kinds = {(link.a, link.b): link.name for link in links}
    members = {rank.rank: rank for rank in ranks.ranks if rank.gpu_uuid}
    rates: dict[tuple[int, int], tuple[str, float]] = {}
    for rank in members.values():
        for pair in rank.pairs:
            kind = _kind(rank, members.get(pair.other), pair, index, kinds, ranks.nodes)
            if kind is not None and pair.gb_per_s:
                key = (min(rank.rank, pair.other), max(rank.rank, pair.other))
                rates[key] = (kind, max(pair.gb_per_s, rates.get(key, (kind, 0.0))[1]))
    return rates


def _kind(
    rank: Rank,
    other: Rank | None,
    pair: PairRun,
    index: Mapping[str, int],
    kinds: Mapping[tuple[int, int], str],
    nodes: int,
) -> str | None:
    """What joins two ranks' GPUs; None when that is not known, so that it is like no other."""
    if other is None:
        return "network" if nodes > 1 and pair.ok else None
    a, b = index.get(rank.gpu_uuid or ""), index.get(other.gpu_uuid or "")
    if a is None or b is None or a == b:
        return None
    kind = kinds.get((min(a, b), max(a, b)))
    return kind if kind != "?" else None


@check(Severity.INFO, source=TORCH)
def gloo_fails_beside_nccl(ranks: Ranks) -> Answer:
    """NCCL is in use, and gloo beside it does not work.

    Why: gloo goes over TCP between the addresses that the hosts' names stand for, NCCL over an interface of its own
    choice. Monitored barriers, asynchronous checkpoints and objects gathered on the CPU use gloo.

    Fix: Name the interface that joins the machines.
    """
    tried = [rank for rank in ranks.ranks if rank.gloo_works is not None]
    if not tried:
        return Skip("gloo was not tried beside NCCL")
    failed = [rank for rank in tried if not rank.gloo_works]
    if not failed:
        return Ok(f"gloo works beside NCCL on {counted(len(tried), 'rank')}")
    rank = failed[0]
    said = next((words for words in rank.skipped if words.startswith("gloo beside NCCL")), "wrong numbers")
    return Problem(
        f"gloo does not work beside NCCL on {who(rank)} (collectives)",
        f"{said}. NCCL itself is judged apart from it.",
        commands("export GLOO_SOCKET_IFNAME=eth0", "ip -brief address"),
        {"rank": rank.rank, "host": rank.host},
        tuple(f"rank {r.rank}" for r in failed),
    )
