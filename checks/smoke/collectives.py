"""Does the data that ranks send each other arrive unchanged?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.snapshot import Gpu, Link, PairRun, Rank, Ranks
from mgpu.text import counted, listed

from ._diagnoses import DIAGNOSES
from ._rank_states import TORCH, failures_of_kind, hardware_of, median, rank_name, ranks_that_passed

_RTX6KPRO = "https://github.com/voipmonitor/rtx6kpro"

# Share of the median of pairs with the same kind of link. Over PCIe 5, pairs of one kind reached 39 to 51 GB/s, the
# lowest 0.76 of the highest (voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md).
_PAIR_SHARE = 0.7
_SIBLINGS = 3  # minimum number of pairs of one kind to compare


@check(Severity.ERROR, source=TORCH, because_of=DIAGNOSES)
def collective_gives_wrong_numbers(ranks: Ranks) -> Answer:
    """A collective completes without an error but returns wrong numbers.

    Why: every rank sends small integers that the others know. If all others receive wrong numbers from one rank,
    its GPU memory or its link alters them. Gradients would be altered in the same way without any error.

    Fix: exclude the rank's GPU, or find the transport that alters the data.
    """
    heard = failures_of_kind(ranks, "wrong_numbers")
    if ranks.expected == 1:
        return Skip("one rank does not communicate")
    if not heard:
        sound = ranks_that_passed(ranks, "collectives")
        return Ok(f"exact on {counted(len(sound), 'rank')}") if sound else Skip("no rank passed the collectives")
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
        title = f"{rank_name(culprit) if culprit else f'rank {accused}'} {why} (collectives: {names})"
    where = f" It computes on {hardware_of(culprit)}." if culprit else ""
    example: Mapping[str, Any] = next(iter(heard[0].evidence.get("wrong", ())), {})
    gpu, host = (culprit.gpu_uuid, culprit.host) if culprit else (None, None)
    found: dict[str, Any] = {"received_by": complaints, "collectives": names}
    found |= {"expected": example.get("expected"), "got": example.get("got")}
    found |= {f"rank_{number}_suspects": listed(suspects) or "none" for number, suspects in views.items()}
    return Problem(
        title,
        f"{counted(len(views), 'rank')} of {len(ranks.ranks)} received wrong numbers ({complaints}). First on rank "
        f"{heard[0].rank}: {heard[0].error}.{where}{_gloo_sentence(heard[0])}",
        _fixes(culprit if accused is not None else heard[0]),
        {"rank": accused, "rung": "collectives", "gpu": gpu, "host": host, **found},
        tuple(f"rank {number}" for number in numbers),
    )


def _suspect(views: Mapping[int, list[int]]) -> tuple[int | None, str]:
    """Return the one rank that explains all wrong numbers, and how; or None, and why there is no single one."""
    votes = Counter(suspect for suspects in views.values() for suspect in suspects)
    if not votes:
        return None, "only sums are wrong, which does not show the sender"
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
        return first, f"sends wrong numbers according to {number} of {len(accusing)} ranks"
    return None, f"no single rank explains it (wrong data from {listed(sorted(votes))})"


def _gloo_sentence(rank: Rank) -> str:
    if rank.gloo_works is None:
        return ""
    return " Over gloo, from host memory, " + (
        "the same numbers arrive correctly: the network works, but NCCL or the path between GPUs does not."
        if rank.gloo_works
        else "they do not arrive correctly either: NCCL is not the cause."
    )


def _fixes(rank: Rank | None) -> tuple[Fix, ...]:
    """Return the fixes for data that is altered in transit."""
    if rank is None or rank.gpu_uuid is None:
        return (
            Fix("Test the memory and the network of the hosts; gloo itself does not alter data.", ("mgpu doctor",)),
        )
    return (
        Fix(
            "Test each GPU and each copy between two GPUs separately; then exclude the one that fails.",
            ("mgpu doctor --deep",),
        ),
        Fix("Have GPU, memory and NVLink tested for longer.", ("dcgmi diag -r 3",), who="admin"),
    )


@check(Severity.ERROR, source=TORCH, because_of=(*DIAGNOSES, "collective_gives_wrong_numbers"))
def pair_gives_wrong_numbers(ranks: Ranks) -> Answer:
    """Numbers sent between two ranks arrive wrong.

    Why: the path between these two GPUs alters data: PCIe peer access that the IOMMU translates, a failing NVLink,
    or defective memory. Every collective over this path is wrong too.

    Fix: check whether all bad pairs have one GPU in common.
    """
    by_number = {rank.rank: rank for rank in ranks.ranks}
    tested = [(rank, pair) for rank in ranks.ranks for pair in rank.pairs if pair.ok is not None]
    tried, bad = len(tested), dict[tuple[int, int], str]()
    for rank, pair in tested:
        if not pair.ok:
            bad.setdefault((min(rank.rank, pair.other), max(rank.rank, pair.other)), pair.detail or "wrong")
    if not bad:
        return Ok(f"{counted(tried // 2 or tried, 'pair')} exact") if tried else Skip("no pair was tested")
    names = [f"{a}-{b}" for a, b in bad]
    counts = Counter(number for pair in bad for number in pair)
    shared = [number for number, count in counts.items() if count == len(bad) > 1]
    (a, b), detail = next(iter(bad.items()))
    ends = "; ".join(
        f"rank {number} is on {hardware_of(by_number[number])}" for number in shared or (a, b) if number in by_number
    )
    common = f"; all include rank {shared[0]}" if len(shared) == 1 else ""
    return Problem(
        f"pairs: wrong numbers between ranks {listed(names[:8])}{common}",
        f"{detail}. {ends}.",
        _fixes(by_number.get(shared[0] if shared else a)),
        {
            "pairs": ", ".join(names),
            "of": tried // 2 or tried,
            "rank": shared[0] if len(shared) == 1 else None,
            "rung": "pairs",
            "gpu_a": by_number[a].gpu_uuid if a in by_number else None,
            "gpu_b": by_number[b].gpu_uuid if b in by_number else None,
        },
        tuple(f"rank {number}" for number in (shared or (a, b))),
    )


@check(Severity.WARNING, source=_RTX6KPRO, because_of=("pair_gives_wrong_numbers", "ranks_share_a_gpu"))
def pair_much_slower(ranks: Ranks, gpus: tuple[Gpu, ...], links: tuple[Link, ...]) -> Answer:
    """Two GPUs exchange data much more slowly than others with the same kind of link.

    Why: All collectives also use this pair, and wait for it.
    More: A PCIe link has fewer lanes or a lower generation, NVLinks are down, or other traffic uses the link. A
    ring is as fast as its slowest pair.

    Fix: Compare their links with those of the other GPUs.
    """
    rates = _rates(ranks, gpus, links)
    kinds: dict[str, list[float]] = {}
    for kind, rate in rates.values():
        kinds.setdefault(kind, []).append(rate)
    compared = {kind: median(found) for kind, found in kinds.items() if len(found) >= _SIBLINGS}
    if not compared:
        return Skip(f"fewer than {_SIBLINGS} GPU pairs with one kind of link were timed")
    slow = {pair: (kind, rate) for pair, (kind, rate) in rates.items() if rate < _PAIR_SHARE * compared.get(kind, 0.0)}
    if not slow:
        return Ok(f"{sum(len(kinds[kind]) for kind in compared)} pairs, none below {_PAIR_SHARE} of its kind's median")
    (a, b), (kind, rate) = min(slow.items(), key=lambda found: found[1][1] / compared[found[1][0]])
    others = f" (and {counted(len(slow) - 1, 'pair')} more)" if len(slow) > 1 else ""
    return Problem(
        f"pair {a}-{b} ({kind}): {rate:.3g} GB/s, other pairs of this kind {compared[kind]:.3g}{others}",
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
    """Return the timed pairs of GPUs, with the kind of link between them and the better of their two measurements.

    CPU ranks are left out: they share cores and memory, so their speed means nothing.
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
    """Return the kind of link between two ranks' GPUs; None if unknown."""
    if other is None:
        return "network" if nodes > 1 and pair.ok else None
    a, b = index.get(rank.gpu_uuid or ""), index.get(other.gpu_uuid or "")
    if a is None or b is None or a == b:
        return None
    kind = kinds.get((min(a, b), max(a, b)))
    return kind if kind != "?" else None


@check(Severity.INFO, source=TORCH)
def gloo_fails_beside_nccl(ranks: Ranks) -> Answer:
    """In a run that uses NCCL, gloo does not work.

    Why: gloo uses TCP between the addresses that the host names resolve to, NCCL an interface that it chooses
    itself. Monitored barriers, asynchronous checkpoints and gathering objects on the CPU use gloo.

    Fix: Select the interface that connects the nodes.
    """
    tried = [rank for rank in ranks.ranks if rank.gloo_works is not None]
    if not tried:
        return Skip("gloo was not tested in addition to NCCL")
    failed = [rank for rank in tried if not rank.gloo_works]
    if not failed:
        return Ok(f"gloo works in addition to NCCL on {counted(len(tried), 'rank')}")
    rank = failed[0]
    reason = next((text for text in rank.skipped if text.startswith("gloo ")), "wrong numbers")
    return Problem(
        f"collectives: gloo does not work on {rank_name(rank)}",
        f"{reason}. NCCL is checked separately.",
        commands("export GLOO_SOCKET_IFNAME=eth0", "ip -brief address"),
        {"rank": rank.rank, "rung": "collectives", "host": rank.host},
        tuple(f"rank {r.rank}" for r in failed),
    )
