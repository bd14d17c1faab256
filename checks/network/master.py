"""Do the ranks of several machines look for each other at the right address?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, Network, Plan, Slurm
from mgpu.text import listed

from .._interfaces import ONE_MACHINE, dead_end, is_loopback, leading_out

_TORCHRUN = "https://pytorch.org/docs/stable/elastic/run.html"


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/107021", stops_launch="several_nodes")
def master_unresolvable(network: Network, plan: Plan) -> Answer:
    """The name of the machine where the ranks meet does not resolve.

    Why: every rank connects to it first, and retries for minutes.
    More: With a name that nobody knows (a typo, a placeholder left in a script, a node without DNS) they retry for
    minutes: "The client socket has timed out".

    Fix: give the address of the first machine, as it prints it there.
    """
    master = network.master
    if plan.nodes < 2 or master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("nothing says where the ranks meet")
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
    """This machine has no route to the machine where the ranks meet.

    Why: connecting to it fails at once with "Network is unreachable" or "No route to host", and the launcher retries
    until it gives up.

    Fix: give an address of the first machine in one of these networks.
    """
    master = network.master
    if plan.nodes < 2 or master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("nothing says where the ranks meet")
    if not master.addresses:
        return Skip("its name does not resolve")
    if master.route_error is None:
        return Ok(f"the way to {master.name} goes through {master.interface or 'an interface of this machine'}")
    out = leading_out(network)
    return Problem(
        f"no way to {master.name} ({master.addresses[0]}): {master.route_error}",
        f"This machine is on {listed(f'{i.name} ({i.addresses[0]})' for i in out) or 'no network'}.",
        Fix(commands=("export MASTER_ADDR=ADDRESS",)),
        {"name": master.name, "addresses": " ".join(master.addresses), "error": master.route_error},
    )


@check(Severity.ERROR, source=_TORCHRUN, because_of=("hostname_is_loopback",), stops_launch="several_nodes")
def master_is_local_only(network: Network, plan: Plan, slurm: Slurm, env: Mapping[str, str]) -> Answer:
    """The address where several machines shall meet is one that only its own machine reaches.

    Why: it means another machine on each of them.
    More: Every one waits for the others at its own door.

    Fix: give the first machine's address in the cluster network.
    """
    master = network.master
    if plan.nodes < 2 or master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("nothing says where the ranks meet")
    if not master.addresses:
        return Skip("its name does not resolve")
    ends = {address: i for i in network.interfaces if dead_end(i) for address in i.addresses}
    bad = [address for address in master.addresses if is_loopback(address) or address in ends]
    if len(bad) < len(master.addresses):
        return Ok(f"{master.name} is {master.addresses[0]}")
    if master.name == network.hostname:
        return Skip("it is this machine's own name: see hostname_is_loopback")
    if env.get("RANK") == "0" and slurm.job_id is None:  # Kubeflow tells rank 0, and it alone, localhost
        return Skip("rank 0 may call itself so; the others were told something else")
    where = ends[bad[0]].name if bad[0] in ends else "lo"
    named = master.name if master.name == bad[0] else f"{master.name} ({bad[0]})"
    return Problem(
        f"{plan.nodes} machines shall meet at {named}, an address of {where}",
        fix=Fix(commands=("hostname -I", "export MASTER_ADDR=ADDRESS")),
        evidence={"name": master.name, "from": master.origin, "addresses": " ".join(master.addresses)},
    )


@check(
    Severity.WARNING,
    source="https://github.com/pytorch/pytorch/issues/79388",
    because_of=("master_is_local_only", "hostname_is_loopback"),
)
def master_elsewhere(network: Network, plan: Plan, slurm: Slurm, env: Mapping[str, str]) -> Answer:
    """This machine has rank 0, and the address where the ranks meet is not one of its own.

    Why: the others would look for rank 0 where it is not; with NAT or an alias the launcher cannot tell.
    More: The static rendezvous lets rank 0 listen, so the others knock at another machine. torchrun's c10d rendezvous
    asks each machine whether the address is its own, and with NAT or an alias nobody says yes: all time out.

    Fix: use an address of this machine.
    """
    if plan.nodes < 2 or network.master is None:
        return ONE_MACHINE if plan.nodes < 2 else Skip("nothing says where the ranks meet")
    rank = str(slurm.node_rank) if slurm.node_rank is not None else env.get("PET_NODE_RANK")
    if rank != "0":
        return Skip("this machine is not known to be the first")
    if network.master.local is None or not network.master.addresses:
        return Skip("the addresses are not known")
    if network.master.local:
        return Ok(f"{network.master.name} is this machine")
    own = next((i.addresses[0] for i in leading_out(network)), "ADDRESS")
    return Problem(
        f"this is machine 0, and {network.master.origin} is {network.master.name} ({network.master.addresses[0]})",
        fix=(
            Fix(commands=(shell("export MASTER_ADDR={:host}", own),)),
            Fix("With NAT, tell torchrun who is the host.", ("torchrun --rdzv-conf is_host=true ...",)),
        ),
        evidence={"name": network.master.name, "from": network.master.origin, "rank": rank},
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/issues/79388")
def config_address_not_here(config: Config, network: Network) -> Answer:
    """The config says that this is the first machine, and its main_process_ip is not one of this machine's addresses.

    Why: rank 0 listens on this machine, and all others connect to main_process_ip. When that is another machine, they
    wait until they time out.

    Fix: set it to this machine's address, or machine_rank to its place.
    """
    address, rank = config.values.get("main_process_ip"), config.values.get("machine_rank", 0)
    if config.num_machines < 2 or not isinstance(address, str) or type(rank) is not int or rank != 0:
        return Skip("one machine, or not the first of several")
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
    elif not re.fullmatch(r"[\d.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*|address-[0-9a-f]{8}", address) or is_loopback(address):
        return Skip(f"{address} was not resolved here")
    mark = config.marks.get("main_process_ip")
    own = next((i.addresses[0] for i in leading_out(network)), "ADDRESS")
    return Problem(
        f"machine_rank 0 is here, and main_process_ip {address} is not an address of this machine",
        f"This machine has {listed(one for one in here if not is_loopback(one)) or 'no address'}.",
        Fix(commands=(shell("accelerate launch --main_process_ip {:host} ...", own),)),
        {"main_process_ip": address, "machine_rank": rank},
        place=Place(config.path, mark.line, mark.column, "main_process_ip") if mark else Place(config.path),
    )
