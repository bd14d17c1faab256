"""Do all ranks wait, but not in the same collective, or in one that does not finish?"""

from __future__ import annotations

from collections import defaultdict

from mgpu.check import WHY, Answer, Fix, Problem, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import AS_RECORDED, Collective, Hang
from mgpu.text import listed

from ._findings import SAME_AS, SOURCE, other_reason
from ._ras import sentence
from ._verdict import Rank, Verdict, at, evidence, inside, names, subjects, verdict, what_waiting_do

_MOST_TITLES = 4  # ranks with their addresses


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_collectives_differ(hang: Hang) -> Answer:
    """The ranks wait in different collectives, or in one with different shapes.

    Why: Collectives are matched by their order. A rank that skips one, or starts one alone, meets the wrong one.
    More: Usual causes: a collective inside `if rank == 0`, a branch that depends on a rank's own data, different
    numbers of batches, gather of tensors with different sizes.

    Fix: Let every rank call the same collectives in the same order, with the same shapes.
    """
    found = verdict(hang)
    if found.kind != "differ":
        return other_reason(hang)
    if not found.differing:
        lines = "; ".join(f"{names([rank])}{at(rank)}" for rank in found.suspects or found.waiting)
        return _problem(hang, found, f"the ranks wait in different collectives: {lines}")
    calls: dict[str, list[int]] = defaultdict(list)
    for rank, collective in found.differing:
        calls[_called(collective)].append(rank)
    by_number = {rank.number: rank for rank in (*found.suspects, *found.waiting)}
    said = [
        f"{names([by_number[number] for number in numbers])} called {call}"
        for call, numbers in sorted(calls.items(), key=lambda one: len(one[1]))
    ]
    return _problem(hang, found, ", but ".join(said))


def _problem(hang: Hang, found: Verdict, title: str) -> Problem:
    cause = " ".join(filter(None, (_left_loop(hang), sentence(hang)))) or WHY
    return Problem(title, cause, Fix(), evidence(hang, found), subjects(found.suspects))


def _left_loop(hang: Hang) -> str:
    """Say that some ranks have left a loop of the script that others are in."""
    loop = hang.left_loop
    if loop is None:
        return ""
    left, inside = (f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}" for ranks in (loop.left, loop.inside))
    have, are = ("have" if len(loop.left) > 1 else "has"), ("are" if len(loop.inside) > 1 else "is")
    return (
        f"{left.capitalize()} {have} left the loop at {loop.place} ({loop.code.rstrip(':')}), and {inside} {are} still "
        "in it: a break or a return that not all ranks reach, or fewer iterations (batches) than the others have."
    )


def _called(collective: Collective) -> str:
    where = f" at {collective.caller.place}" if collective.caller else ""
    return f"{collective.title}{where}"


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_rank_behind(hang: Hang) -> Answer:
    """All ranks wait in collectives, and one has started fewer than the others.

    Why: It did not start the one that the others wait in. It waits in a collective of another group, or for a rank that
    is not in this one.

    Fix: Let every rank call the same collectives in the same order.
    """
    found = verdict(hang)
    if found.kind != "behind":
        return other_reason(hang)
    rank = found.suspects[0]
    waits = "" if rank.facts.state == AS_RECORDED and rank.pending is None else f", and waits{inside(rank)}{at(rank)}"
    title = f"{names(found.suspects)} did not start {found.differing[0][1].title}{waits}"
    why = " ".join(filter(None, (what_waiting_do(found), _left_loop(hang), sentence(hang))))
    return Problem(title, why, Fix(), evidence(hang, found), subjects(found.suspects))


@check(Severity.ERROR, source=SOURCE, role="root", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_host_unreachable(hang: Hang) -> Answer:
    """Another host does not answer a rank: the network or the host is down.

    Why: The kernel sends the data of a rank again and again, and gets no answer. A process that is only slow or stopped
    would be answered for by its kernel.
    More: The kernel gives up after about 15 minutes (net.ipv4.tcp_retries2).

    Fix: Check whether this host still runs, and the network between the two.
    """
    found = verdict(hang)
    if found.kind != "unreachable":
        return other_reason(hang)
    first = found.suspects[0]
    said = [f"{names([one])} gets no answer from {listed(_hosts(one))}" for one in found.suspects]
    verb = "it waits" if len(said) == 1 else "they wait"
    title = f"{'; '.join(said[:_MOST_TITLES])}: {verb}{inside(first)}{at(first)}"
    look = Fix(commands=(shell("ping -c 3 {:host}", _host_of(first.facts.unanswered[0])),))
    why = f"{what_waiting_do(found)} {WHY}".strip()
    facts = {**evidence(hang, found), "collective": first.pending.title if first.pending else None}
    return Problem(title, why, look, facts, subjects(found.suspects))


def _hosts(rank: Rank) -> list[str]:
    """Return the hosts, each once: "10.0.0.2"; with the port where it is the store's."""
    stores = [one for one in rank.facts.unanswered if " " in one]
    known = {_host_of(one) for one in stores}
    return [*stores, *dict.fromkeys(host for one in rank.facts.unanswered if (host := _host_of(one)) not in known)]


def _host_of(address: str) -> str:
    """Return the host of "10.0.0.2:29500 (the store)"."""
    return address.partition(" ")[0].rpartition(":")[0].strip("[]")


@check(Severity.ERROR, source=SOURCE, role="secondary", kind="timeout", same_as=SAME_AS, tags=("silent_rank",))
def hang_collective_stuck(hang: Hang) -> Answer:
    """All ranks are in the same collective, and it does not finish.

    Why: The data does not arrive: the network between nodes, a GPU, or the transport between GPUs.

    Fix: Test the same ranks with the smoke test, which finds the stage and the pair of GPUs.
    """
    found = verdict(hang)
    if found.kind != "everybody":
        return other_reason(hang)
    first = found.waiting[0]
    title = f"all {len(found.waiting)} ranks wait{inside(first)}{at(first)}, which does not finish"
    if first.pending is None and inside(first).endswith("init_process_group"):
        why = "A rank is missing: world_size is larger than the number of ranks, or another node has not started."
        fix: Fix | tuple[Fix, ...] = Fix("Compare WORLD_SIZE, RANK and MASTER_ADDR on all nodes.")
        return Problem(title, why, fix, evidence(hang, found))
    why = f"{sentence(hang)} {WHY}".strip()
    return Problem(title, why, commands("mgpu smoke-test"), evidence=evidence(hang, found))


@check(Severity.INFO, source=SOURCE)
def hang_others_unknown(hang: Hang) -> Answer:
    """The ranks of this machine wait, and what those of the other nodes do is not known here.

    Why: Each node asks its own ranks. Only together do the answers show which rank keeps the others waiting.
    More: Nodes that write to one folder (--log-dir on shared storage) join what they find, and all give the same
    verdict. Without that, --on-hang stop does not end a run because of ranks that only wait.

    Fix: See what mgpu reports on the other nodes, or ask there. Next time give all nodes the same --log-dir, on storage
    that they share.
    """
    found = verdict(hang)
    if found.kind != "partial":
        return other_reason(hang)
    here, first = found.suspects or found.waiting, (found.suspects or found.waiting)[0]
    verb = "sleep" if found.suspects else "wait"
    does = f"{verb}s" if len(here) == 1 else verb
    where = "" if found.suspects else inside(first)
    rest = hang.world - len(hang.ranks)
    others = "rank of this run does" if rest == 1 else f"{rest:,} ranks of this run do"
    title = f"{names(here)} {does}{where}{at(first)}; what the other {others} is not known here"
    why = f"{sentence(hang)} {WHY}".strip()
    return Problem(title, why, commands("mgpu launch --why"), evidence(hang, found), subjects(found.suspects))
