"""Do the ranks form the one world that the config asks for, each with a GPU of its own?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks
from mgpu.text import counted, listed

from ._causes import LOST
from ._diagnoses import DIAGNOSES
from ._rank_states import TORCH, own_failure, who

_INTERFACES = "https://pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use"
_ACCELERATE = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"


@check(Severity.ERROR, source=_ACCELERATE)
def ranks_not_of_one_world(ranks: Ranks) -> Answer:
    """The ranks do not form the world the config asks for.

    Why: Each rank would train for itself on the whole data, and write the same checkpoint.
    More: accelerate starts every rank, finds no device to train on, and lets each train alone: world size 1 on every
    rank, each of them "main", exit code 0. Its own `accelerate test` calls that a success.

    Fix: See what torch sees.
    """
    heard = [rank for rank in ranks.ranks if rank.world_size is not None]
    wrong = [
        r for r in heard if r.world_size != ranks.expected or r.accelerate_world_size not in (None, ranks.expected)
    ]
    if wrong:
        rank = wrong[0]
        told = {r.rank: r.accelerate_world_size if r.world_size == ranks.expected else r.world_size for r in wrong}
        return Problem(
            f"{counted(ranks.expected, 'rank')} wanted; {who(rank)} sees a world of {told[rank.rank]}",
            fix=commands("mgpu doctor"),
            evidence={f"rank_{number}": world for number, world in told.items()},
            subjects=tuple(f"rank {r.rank}" for r in wrong),
        )
    if not heard:
        return Skip("no rank came as far as the process group")
    return Ok(f"{len(heard)} of {ranks.expected} ranks see a world of {ranks.expected}")


@check(Severity.ERROR, source=TORCH)
def ranks_share_a_gpu(ranks: Ranks) -> Answer:
    """Two ranks use the same GPU.

    Why: Each rank needs a GPU of its own.
    More: NCCL refuses two ranks on one GPU, or the two run at half speed and out of memory.

    Fix: Make num_processes the number of visible GPUs.
    """
    users: dict[str, list[int]] = {}
    for rank in ranks.ranks:
        if rank.gpu_uuid:
            users.setdefault(rank.gpu_uuid, []).append(rank.rank)
    shared = {uuid: who for uuid, who in users.items() if len(who) > 1}
    if shared:
        uuid, who = next(iter(shared.items()))
        return Problem(
            f"ranks {', '.join(map(str, who))} all use {uuid}",
            fix=commands("mgpu doctor -v"),
            evidence={gpu: len(members) for gpu, members in shared.items()},
            subjects=tuple(f"rank {number}" for number in who),
        )
    return Ok(f"{len(users)} GPUs, one rank each") if users else Skip("no rank is on a GPU with a known UUID")


@check(Severity.ERROR, source=TORCH, because_of=LOST)
def ranks_never_came(ranks: Ranks) -> Answer:
    """Some ranks did not come to where all meet.

    Why: they ended or hang before it, on their machine; a process group is formed by all or by none.

    Fix: Look at the verdict and the logs on that machine.
    """
    failed = own_failure(ranks, "ranks_missing")
    if failed:
        told = failed.evidence
        absent, hosts = list(told.get("ranks") or ()), list(told.get("hosts") or ())
        names = f"rank{'s' if len(absent) > 1 else ''} {listed(absent[:8])}{' and more' if len(absent) > 8 else ''}"
        there = f" on {listed(hosts)}" if hosts else ""
        return Problem(
            f'{names}{there} did not come to "group" within {told.get("limit_s")} s',
            f'{who(failed)} waited for {"them" if len(absent) > 1 else "it"} at "{failed.last_word}".',
            commands("cat runs/smoke-*/launcher.log"),
            {"rank": absent[0] if absent else None, "host": hosts[0] if hosts else None, "waiting": failed.rank},
            tuple(f"rank {number}" for number in absent),
        )
    came = [rank for rank in ranks.ranks if rank.peers]
    return Ok(f"all {len(came[0].peers)} ranks came") if came else Skip("no rank came as far as meeting the others")


@check(Severity.ERROR, source=_INTERFACES, because_of=DIAGNOSES)
def rank_interface_missing(ranks: Ranks) -> Answer:
    """A variable tells the ranks to talk over an interface that does not exist.

    Why: GLOO_SOCKET_IFNAME is the exact name of an interface, NCCL_SOCKET_IFNAME a list of prefixes. Names differ from
    machine to machine; gloo and NCCL stop when there is none.

    Fix: Unset it, or name an interface of this machine.
    """
    failed = own_failure(ranks, "interface_missing")
    if failed is None:
        heard = [rank for rank in ranks.ranks if rank.peers]
        return Ok("the interfaces that the ranks were told exist") if heard else Skip("no rank came as far")
    told = failed.evidence
    variable, there = told.get("variable"), list(told.get("interfaces") or ())
    other = next((name for name in there if name != "lo"), "lo")
    return Problem(
        f'{who(failed)} at "group": {variable}={told.get("value")}, and {failed.host} has no such interface',
        f"There are: {listed(there)}.",
        commands(shell("unset {:name}", variable), shell("export {:name}={:interface}", variable, other)),
        {"rank": failed.rank, "host": failed.host, "variable": str(variable), "value": str(told.get("value"))},
        (f"rank {failed.rank}",),
    )


@check(Severity.ERROR, source=_ACCELERATE, because_of=("ranks_not_of_one_world",))
def ranks_laid_out_otherwise(ranks: Ranks) -> Answer:
    """The launcher spread the ranks over the machines otherwise than the config says.

    Why: Ranks, GPUs and the checkpoints they write would not be where they are looked for.
    More: Every machine starts num_processes / num_machines ranks, and rank 0 is on machine 0. With a rendezvous of type
    c10d the machines are numbered as they come, whatever --machine_rank says.

    Fix: Start the test with the number that the launcher gives this machine.
    """
    failed = own_failure(ranks, "wrong_layout")
    if failed is None:
        heard = [rank for rank in ranks.ranks if rank.world_size is not None]
        if not heard:
            return Skip("no rank came as far as the process group")
        return Ok(f"{counted(len(heard), 'rank')} where the config wants them")
    told = failed.evidence
    node = told.get("found") if told.get("what") == "number of this machine" else ranks.node
    return Problem(
        f'{who(failed)} at "start": {told.get("what")} is {told.get("found")} for the launcher, '
        f"{told.get('wanted')} for the config",
        fix=commands(shell("mgpu smoke-test --node-rank {:number}", node)),
        evidence={"rank": failed.rank, "found": told.get("found"), "wanted": told.get("wanted")},
        subjects=(f"rank {failed.rank}",),
    )
