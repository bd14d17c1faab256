"""Is the rendezvous port free?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Network, Plan, Slurm

from .._interfaces import several_nodes


def _hosts_the_rendezvous(network: Network, slurm: Slurm) -> bool:
    """Whether this machine is known to be the rendezvous node."""
    return slurm.node_rank == 0 or (network.master is not None and network.master.local is True)


def _port_problem(network: Network, plan: Plan, cause: str) -> Problem:
    pid = network.port_owner_pid if network.port_owner_mine and (network.port_owner_pid or 0) > 1 else None
    return Problem(
        f"port {network.port} is in use by {network.port_owner or 'a process that this user may not see'}",
        cause,
        Fix(
            "Find the process; stop it if it is left over from an earlier run, or use another port.",
            (
                shell("ss -ltnp 'sport = :{:number}'", network.port),
                *((shell("kill {:pid}", pid),) if pid else ()),
                *(
                    ("mgpu launch --port auto ...",)
                    if plan.nodes == 1
                    else (shell("mgpu launch --port {:number} ...", network.port_free),)
                    if network.port_free
                    else ()
                ),
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
    """The rendezvous port is in use.

    Why: another run, or one that did not exit, is using it. In a single-node run, newer launchers choose another
    port; older ones stop with "address already in use".

    Fix: stop the leftover process, or choose another port.
    """
    if not network.port_busy:
        return Ok(f"port {network.port} is free")
    if plan.nodes > 1 and _hosts_the_rendezvous(network, slurm):
        return Skip("see master_port_busy")
    if plan.nodes > 1:
        cause = "If this is the rendezvous node, the launch fails or joins another run. Other nodes are not affected."
    else:
        cause = "The rendezvous uses it. Older launchers, and torchrun with a fixed port, fail."
    return _port_problem(network, plan, cause)


@check(
    Severity.ERROR,
    source="https://github.com/pytorch/pytorch/issues/126510",
    because_of=("rank_orphaned",),
    stops_launch="named_port",
    given=several_nodes,
)
def master_port_busy(network: Network, plan: Plan, slurm: Slurm) -> Answer:
    """The rendezvous port is in use on the rendezvous node.

    Why: rank 0 stops with "address already in use" while the others wait for it. With torchrun's c10d rendezvous,
    and a process that answers on the port, every node hangs silently.

    Fix: stop the leftover process, or choose another port on all nodes.
    """
    if not _hosts_the_rendezvous(network, slurm):
        return Skip("this machine is not known to be the rendezvous node")
    if not network.port_busy:
        return Ok(f"port {network.port} is free")
    return _port_problem(network, plan, "All nodes use it for the rendezvous: the launch fails, or hangs.")
