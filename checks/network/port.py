"""Is the port free at which the ranks shall meet?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Network, Plan, Slurm

from .._interfaces import several_nodes


def _hosts_the_rendezvous(network: Network, slurm: Slurm) -> bool:
    """Whether this machine is known to be the one where the ranks meet."""
    return slurm.node_rank == 0 or (network.master is not None and network.master.local is True)


def _port_problem(network: Network, plan: Plan, cause: str) -> Problem:
    pid = network.port_owner_pid if network.port_owner_mine and (network.port_owner_pid or 0) > 1 else None
    return Problem(
        f"port {network.port} is in use by {network.port_owner or 'a process that this user may not see'}",
        cause,
        Fix(
            "See who it is; end it if it is a leftover, or give this run another port.",
            (
                shell("ss -ltnp 'sport = :{:number}'", network.port),
                *((shell("kill {:pid}", pid),) if pid else ()),
                "accelerate launch --main_process_port PORT ...",
            ),
        ),
        {"port": network.port, "owner": network.port_owner, "nodes": plan.nodes},
    )


@check(
    Severity.WARNING,
    source="https://github.com/huggingface/accelerate/issues/1785",
    because_of=("rank_orphaned",),
    stops_launch="named_port",
)
def port_busy(network: Network, plan: Plan, slurm: Slurm) -> Answer:
    """The port for the rendezvous is taken.

    Why: another run, or one that did not end, listens there. On one machine newer launchers choose another port, older
    ones stop with "address already in use".

    Fix: end the leftover, or choose another port.
    """
    if not network.port_busy:
        return Ok(f"port {network.port} is free")
    if plan.nodes > 1 and _hosts_the_rendezvous(network, slurm):
        return Skip("see master_port_busy")
    if plan.nodes > 1:
        cause = (
            "If this is the machine where the ranks meet, the launch fails or joins a foreign run; others do not care."
        )
    else:
        cause = "The ranks meet there. Older launchers, and torchrun with a fixed port, fail on it."
    return _port_problem(network, plan, cause)


@check(
    Severity.ERROR,
    source="https://github.com/pytorch/pytorch/issues/126510",
    because_of=("rank_orphaned",),
    stops_launch="named_port",
    given=several_nodes,
)
def master_port_busy(network: Network, plan: Plan, slurm: Slurm) -> Answer:
    """On the machine where several machines meet, the port is taken.

    Why: rank 0 stops with "address already in use" while the others wait for it. With torchrun's c10d rendezvous and a
    process that answers there, every machine hangs without a word.

    Fix: end the leftover, or choose another port on all machines.
    """
    if not _hosts_the_rendezvous(network, slurm):
        return Skip("the ranks are not known to meet on this machine")
    if not network.port_busy:
        return Ok(f"port {network.port} is free")
    return _port_problem(network, plan, "The ranks of all machines meet there: the launch fails, or hangs.")
