"""Is the rendezvous address of a multi-node run right?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, Network, Plan, Slurm
from mgpu.text import listed

from .._interfaces import ONE_MACHINE, is_dead_end, is_loopback, outgoing_interfaces

_TORCHRUN = "https://pytorch.org/docs/stable/elastic/run.html"


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/107021", stops_launch="several_nodes")
def master_unresolvable(network: Network, plan: Plan) -> Answer:
    """The name of the rendezvous node does not resolve.

    Why: every rank connects to it first, and retries for minutes.
    More: With an unknown name (a typo, a placeholder left in a script, a node without DNS) they retry for minutes,
    then report "The client socket has timed out".

    Fix: use the address of the first node, as printed there.
    """
    master = network.master
    if plan.nodes < 2 or master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no rendezvous address is set")
    if master.addresses:
        return Ok(f"{master.name} is {master.addresses[0]}")
    return Problem(
        f"{master.origin} {master.name!r} does not resolve: {master.error}",
        fix=Fix(commands=("hostname -I", "export MASTER_ADDR=ADDRESS")),
        evidence={"name": master.name, "from": master.origin, "error": master.error},
    )


@check(
    Severity.ERROR,
    source="https://github.com/pytorch/pytorch/issues/107021",
    because_of=("network_leads_nowhere",),
    stops_launch="several_nodes",
)
def master_unreachable(network: Network, plan: Plan) -> Answer:
    """This machine has no route to the rendezvous node.

    Why: connecting to it fails at once with "Network is unreachable" or "No route to host", and the launcher
    retries until it times out.

    Fix: use an address of the first node in one of these networks.
    """
    master = network.master
    if plan.nodes < 2 or master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no rendezvous address is set")
    if not master.addresses:
        return Skip("its name does not resolve")
    if master.route_error is None:
        return Ok(f"the route to {master.name} uses {master.interface or 'an interface of this machine'}")
    out = outgoing_interfaces(network)
    return Problem(
        f"no route to {master.name} ({master.addresses[0]}): {master.route_error}",
        f"This machine is on {listed(f'{i.name} ({i.addresses[0]})' for i in out) or 'no network'}.",
        Fix(commands=("export MASTER_ADDR=ADDRESS",)),
        {"name": master.name, "addresses": " ".join(master.addresses), "error": master.route_error},
    )


@check(Severity.ERROR, source=_TORCHRUN, because_of=("hostname_is_loopback",), stops_launch="several_nodes")
def master_is_local_only(network: Network, plan: Plan, slurm: Slurm, env: Mapping[str, str]) -> Answer:
    """The rendezvous address of a multi-node run is reachable only from the node itself.

    Why: on each node it means that node.
    More: Each node connects to itself and waits for the others.

    Fix: use the first node's address in the cluster network.
    """
    master = network.master
    if plan.nodes < 2 or master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no rendezvous address is set")
    if not master.addresses:
        return Skip("its name does not resolve")
    ends = {address: i for i in network.interfaces if is_dead_end(i) for address in i.addresses}
    bad = [address for address in master.addresses if is_loopback(address) or address in ends]
    if len(bad) < len(master.addresses):
        return Ok(f"{master.name} is {master.addresses[0]}")
    if master.name == network.hostname:
        return Skip("this machine's own name: see hostname_is_loopback")
    if env.get("RANK") == "0" and slurm.job_id is None:  # Kubeflow sets localhost for rank 0 only
        return Skip("valid for rank 0; the other ranks may have another address")
    where = ends[bad[0]].name if bad[0] in ends else "lo"
    named = master.name if master.name == bad[0] else f"{master.name} ({bad[0]})"
    return Problem(
        f"the rendezvous address of {plan.nodes} nodes is {named}, an address of {where}",
        fix=Fix(commands=("hostname -I", "export MASTER_ADDR=ADDRESS")),
        evidence={"name": master.name, "from": master.origin, "addresses": " ".join(master.addresses)},
    )


@check(
    Severity.WARNING,
    source="https://github.com/pytorch/pytorch/issues/79388",
    because_of=("master_is_local_only", "hostname_is_loopback"),
)
def master_elsewhere(network: Network, plan: Plan, slurm: Slurm, env: Mapping[str, str]) -> Answer:
    """This machine has rank 0, but the rendezvous address is not one of its own.

    Why: the other nodes would connect to a host other than rank 0's; with NAT or an alias, torchrun cannot detect
    its host.
    More: With the static rendezvous, rank 0 listens here while the others connect to another host. With torchrun's
    c10d rendezvous, each node checks whether the address is its own; with NAT or an alias none matches, and all
    time out.

    Fix: use an address of this machine.
    """
    if plan.nodes < 2 or network.master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("no rendezvous address is set")
    rank = str(slurm.node_rank) if slurm.node_rank is not None else env.get("PET_NODE_RANK")
    if rank != "0":
        return Skip("this machine is not known to be the first node")
    if network.master.local is None or not network.master.addresses:
        return Skip("the addresses are unknown")
    if network.master.local:
        return Ok(f"{network.master.name} is this machine")
    own = next((i.addresses[0] for i in outgoing_interfaces(network)), "ADDRESS")
    return Problem(
        f"this is node 0, but {network.master.origin} is {network.master.name} ({network.master.addresses[0]})",
        fix=(
            Fix(commands=(shell("export MASTER_ADDR={:host}", own),)),
            Fix("With NAT, configure this node as the host in torchrun.", ("torchrun --rdzv-conf is_host=true ...",)),
        ),
        evidence={"name": network.master.name, "from": network.master.origin, "rank": rank},
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/79388")
def config_address_not_here(config: Config, network: Network) -> Answer:
    """The config is for the first node, but its main_process_ip is not an address of this machine.

    Why: rank 0 listens on this machine, and all other ranks connect to main_process_ip. If that is another host,
    they wait until they time out.

    Fix: set it to this machine's address, or set machine_rank to this node's rank.
    """
    address, rank = config.values.get("main_process_ip"), config.values.get("machine_rank", 0)
    if config.num_machines < 2 or not isinstance(address, str) or type(rank) is not int or rank != 0:
        return Skip("single-node run, or not the first node")
    here = {one: i.name for i in network.interfaces for one in i.addresses}
    if not here:
        return Skip("the interfaces cannot be listed")
    if address in here:
        return Ok(f"{address} is {here[address]}")
    if network.master and network.master.name == address and network.master.local is not None:
        if network.master.local:
            return Ok(f"{address} is this machine")
    elif address == network.hostname:
        return Ok(f"{address} is this machine's name")
    elif not re.fullmatch(r"[\d.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*|address6?-[0-9a-f]{8}", address) or is_loopback(
        address
    ):
        return Skip(f"{address} was not resolved here")
    mark = config.marks.get("main_process_ip")
    own = next((i.addresses[0] for i in outgoing_interfaces(network)), "ADDRESS")
    return Problem(
        f"machine_rank is 0, but main_process_ip {address} is not an address of this machine",
        f"This machine has {listed(one for one in here if not is_loopback(one)) or 'no address'}.",
        Fix(commands=(shell("accelerate launch --main_process_ip {:host} ...", own),)),
        {"main_process_ip": address, "machine_rank": rank},
        place=Place(config.path, mark.line, mark.column, "main_process_ip") if mark else Place(config.path),
    )
