"""Do the ranks form the world that the config requires, each with its own GPU?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks
from mgpu.text import counted, listed

from ._causes import LOST
from ._diagnoses import DIAGNOSES
from ._rank_states import TORCH, own_failure, rank_name, stage_of

_INTERFACES = "https://pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use"
_ACCELERATE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"


@check(Severity.ERROR, source=_ACCELERATE)
def ranks_not_of_one_world(ranks: Ranks) -> Answer:
    """The ranks do not form the world that the config requires.

    Why: Each rank would train alone on all of the data, and write the same checkpoint.
    More: accelerate starts every rank, finds no device, and lets each one train alone: world size 1 on every rank,
    each of them "main", exit code 0. `accelerate test` reports this as a success.

    Fix: Check which devices torch finds.
    """
    reporting = [rank for rank in ranks.ranks if rank.world_size is not None]
    wrong = [
        r for r in reporting if r.world_size != ranks.expected or r.accelerate_world_size not in (None, ranks.expected)
    ]
    if wrong:
        rank = wrong[0]
        sizes = {r.rank: r.accelerate_world_size if r.world_size == ranks.expected else r.world_size for r in wrong}
        return Problem(
            f"expected {counted(ranks.expected, 'rank')}, but {rank_name(rank)} has world size {sizes[rank.rank]}",
            fix=commands("mgpu doctor"),
            evidence={"rung": "group", **{f"rank_{number}": size for number, size in sizes.items()}},
            subjects=tuple(f"rank {r.rank}" for r in wrong),
        )
    if not reporting:
        return Skip("no rank reached the process group")
    return Ok(f"{len(reporting)} of {ranks.expected} ranks have world size {ranks.expected}")


@check(Severity.ERROR, source=TORCH)
def ranks_share_a_gpu(ranks: Ranks) -> Answer:
    """Two ranks use the same GPU.

    Why: Each rank needs its own GPU.
    More: NCCL rejects two ranks on one GPU, or they run at half speed and run out of memory.

    Fix: Set num_processes to the number of visible GPUs.
    """
    users: dict[str, list[int]] = {}
    for rank in ranks.ranks:
        if rank.gpu_uuid:
            users.setdefault(rank.gpu_uuid, []).append(rank.rank)
    shared = {uuid: members for uuid, members in users.items() if len(members) > 1}
    if shared:
        uuid, members = next(iter(shared.items()))
        return Problem(
            f"ranks {', '.join(map(str, members))} all use {uuid}",
            fix=commands("mgpu doctor -v"),
            evidence={"rung": "device", **{gpu: len(members) for gpu, members in shared.items()}},
            subjects=tuple(f"rank {number}" for number in members),
        )
    return Ok(f"{len(users)} GPUs, one rank each") if users else Skip("no rank is on a GPU with a known UUID")


@check(Severity.ERROR, source=TORCH, because_of=LOST)
def ranks_never_came(ranks: Ranks) -> Answer:
    """Some ranks did not reach the rendezvous.

    Why: they exited or hang earlier, on their node. A process group needs all ranks.

    Fix: Check the result and the logs on that node.
    """
    failed = own_failure(ranks, "ranks_missing")
    if failed:
        reported = failed.evidence
        absent, hosts = list(reported.get("ranks") or ()), list(reported.get("hosts") or ())
        names = f"rank{'s' if len(absent) > 1 else ''} {listed(absent[:8])}{' and more' if len(absent) > 8 else ''}"
        there = f" on {listed(hosts)}" if hosts else ""
        return Problem(
            f'{names}{there} did not reach stage "group" within {reported.get("limit_s")} s',
            f'{rank_name(failed)} waited for {"them" if len(absent) > 1 else "it"} at "{failed.last_word}".',
            commands("cat .mgpu/runs/smoke-*/launcher.log"),
            {
                "rank": absent[0] if absent else None,
                "rung": _stage_of_absent(absent, ranks),
                "host": hosts[0] if hosts else None,
                "waiting": failed.rank,
            },
            tuple(f"rank {number}" for number in absent),
        )
    came = [rank for rank in ranks.ranks if rank.peers]
    return Ok(f"all {len(came[0].peers)} ranks connected") if came else Skip("no rank reached the rendezvous")


def _stage_of_absent(absent: list[int], ranks: Ranks) -> str:
    """Return the stage that the first absent rank is in; "group" for a rank of another node."""
    rank = next((rank for rank in ranks.ranks if absent and rank.rank == absent[0]), None)
    return stage_of(rank, ranks) if rank is not None else "group"


@check(Severity.ERROR, source=_INTERFACES, because_of=DIAGNOSES)
def rank_interface_missing(ranks: Ranks) -> Answer:
    """A variable selects a network interface for the ranks that does not exist.

    Why: GLOO_SOCKET_IFNAME is the exact name of an interface, NCCL_SOCKET_IFNAME a list of prefixes. Names differ
    between nodes; gloo and NCCL stop if none matches.

    Fix: Unset it, or name an interface of this machine.
    """
    failed = own_failure(ranks, "interface_missing")
    if failed is None:
        heard = [rank for rank in ranks.ranks if rank.peers]
        return Ok("the selected interfaces exist") if heard else Skip("no rank got that far")
    reported = failed.evidence
    variable, there = reported.get("variable"), list(reported.get("interfaces") or ())
    other = next((name for name in there if name != "lo"), "lo")
    return Problem(
        f'{rank_name(failed)} in stage "group": {variable}={reported.get("value")}, but {failed.host} has no '
        "such interface",
        f"Its interfaces: {listed(there)}.",
        commands(shell("unset {:name}", variable), shell("export {:name}={:interface}", variable, other)),
        {
            "rank": failed.rank,
            "rung": "group",
            "host": failed.host,
            "variable": str(variable),
            "value": str(reported.get("value")),
        },
        (f"rank {failed.rank}",),
    )


@check(Severity.ERROR, source=_ACCELERATE, because_of=("ranks_not_of_one_world",))
def ranks_laid_out_otherwise(ranks: Ranks) -> Answer:
    """The launcher distributed the ranks over the nodes differently than the config.

    Why: Ranks, GPUs and checkpoints would not be where they are expected.
    More: Every node starts num_processes / num_machines ranks, and rank 0 is on node 0. With a c10d rendezvous,
    nodes are numbered in the order they join, regardless of --machine_rank.

    Fix: Start the test with the node rank that the launcher assigns to this node.
    """
    failed = own_failure(ranks, "wrong_layout")
    if failed is None:
        heard = [rank for rank in ranks.ranks if rank.world_size is not None]
        if not heard:
            return Skip("no rank reached the process group")
        return Ok(f"{counted(len(heard), 'rank')} placed as configured")
    reported = failed.evidence
    node = reported.get("found") if reported.get("what") == "number of this machine" else ranks.node
    return Problem(
        f'{rank_name(failed)} in stage "start": {reported.get("what")} is {reported.get("found")} for the launcher, '
        f"but {reported.get('wanted')} in the config",
        fix=commands(shell("mgpu smoke-test --node-rank {:number}", node)),
        evidence={
            "rank": failed.rank,
            "rung": stage_of(failed, ranks),
            "found": reported.get("found"),
            "wanted": reported.get("wanted"),
        },
        subjects=(f"rank {failed.rank}",),
    )
