"""Over how many machines does the run go, and where do they meet? What differs between them is never in the file."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Final

from mgpu.job_formats import TITLES
from mgpu.snapshot import Snapshot
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.proposal_types import Part, Setting, origin_of

DEFAULT_PORT: Final = 29500  # accelerate's and torchrun's own
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Machines:
    """How many machines, and the rows about them."""

    nodes: int
    part: Part


def machines(snapshot: Snapshot, answers: Answers, engine: str = "") -> Machines:
    """How many machines, and where the others find the first. `engine`: what starts them and tells them that."""
    nodes = answers.nodes if answers.nodes is not None else 1
    origin: Origin
    problems = [] if nodes >= 1 else [f"{nodes} machines: at least 1"]
    nodes = max(1, nodes)
    if engine:
        origin = "rule" if answers.nodes is None else origin_of(answers, "nodes")
        spare = f", {answers.spare} spare" if answers.spare else ""
        text = f"{nodes} node{'' if nodes == 1 else 's'} of {TITLES[engine]}{spare}"
        row = Setting("machines", text, origin, "each gets its rank from the job", "nodes", {"num_machines": nodes})
        return Machines(nodes, Part((row,), {}, {"nodes": str(nodes)}, tuple(problems)))
    slurm = snapshot.slurm
    if slurm is not None and slurm.job_id is not None and slurm.nodes is not None and nodes > slurm.nodes:
        problems.append(
            f"{nodes} machines: this Slurm job has {slurm.nodes}; ask for more with  sbatch --nodes={nodes}"
        )
    origin = "rule" if answers.nodes is None else origin_of(answers, "nodes")
    text = "1" if nodes == 1 else f"{nodes}, started by hand"
    rows = [Setting("machines", text, origin, "this one" if nodes == 1 else "", "nodes", {"num_machines": nodes})]
    notes: tuple[str, ...] = ()
    if nodes > 1:
        address_row, wrong = _address(snapshot, answers)
        rows.append(address_row)
        problems += wrong
        notes = ("mgpu smoke-test and mgpu launch run on one machine so far: start each machine with its own command.",)
    return Machines(nodes, Part(tuple(rows), {}, {"nodes": str(nodes)}, tuple(problems), notes))


def port(answers: Answers, nodes: int, *, single_process: bool) -> Part:
    """The port where the ranks meet. `single_process`: accelerate starts one without torchrun; it meets nobody."""
    number, row, problems = _port(answers, nodes, single_process)
    return Part((row,), {}, {"port": "auto" if number is None else str(number)}, tuple(problems))


def _port(answers: Answers, nodes: int, single_process: bool) -> tuple[int | None, Setting, list[str]]:
    given = answers.port or None  # 0 asks accelerate for a free one, as leaving it out does here
    problems = []
    if given is not None and not 0 < given < 65536:
        problems.append(f"port {given}: ports are numbers from 1 to 65535")
    keys: dict[str, Any] = {}
    if nodes > 1:
        fixed = given or DEFAULT_PORT
        origin: Origin = origin_of(answers, "port") if given else "rule"
        row = Setting("port", str(fixed), origin, "the same on all machines", "port", {"main_process_port": fixed})
        return fixed, row, problems
    if given is None or single_process:
        why = "a free one at every launch" if not single_process else "one process meets nobody"
        return None, Setting("port", "automatic" if not single_process else "none", "rule", why, "port"), problems
    keys["main_process_port"] = given
    return given, Setting("port", str(given), origin_of(answers, "port"), "chosen", "port", keys), problems


def _address(snapshot: Snapshot, answers: Answers) -> tuple[Setting, list[str]]:
    address, origin, why = answers.address, origin_of(answers, "address"), "of the first machine"
    if address is None:
        address, why = _guess(snapshot)
        origin = "probe" if address else "-"
    if address is None:
        row = Setting("address", "needed", origin, "of the first machine, as the others reach it", "address")
        return row, ["several machines need the address of the first one: --address"]
    wrong = unreachable(address)
    problems = [f"address {address}: {wrong}"] if wrong else []
    row = Setting("address", address, origin, why, "address", {"main_process_ip": address})
    return row, problems


def _guess(snapshot: Snapshot) -> tuple[str | None, str]:
    """An address of the first machine: Slurm's first node, else one of this machine that others can reach."""
    network = snapshot.network
    if network is None:
        return None, ""
    if network.master and network.master.origin == "SLURM_JOB_NODELIST" and not unreachable(network.master.name):
        return network.master.name, "the first node of the Slurm job"
    for interface in network.interfaces:
        if interface.loopback or interface.virtual or not interface.up or interface.routable is False:
            continue
        for address in interface.addresses:
            if not unreachable(address):
                return address, f"this machine's, {interface.name}: it is taken as the first"
    return None, ""


def unreachable(address: str) -> str | None:
    """Why other machines cannot reach this address, as far as its text tells."""
    if "://" in address:
        return "without http:// or any other scheme"
    if address in ("localhost", "localhost.localdomain"):
        return "every machine would wait for itself; an address the others reach"
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        if ":" in address:
            return "without a port; that has a key of its own"
        if re.fullmatch(r"[0-9.]+", address) or not _NAME.fullmatch(address):
            return "no host name and no IPv4 address"
        return None
    if number.version == 6:
        return "accelerate puts address and port together with a colon, so IPv6 numbers do not work: a name does"
    if number.is_loopback or number.is_unspecified or number.is_link_local or number.is_multicast:
        return "the other machines cannot reach it; an address on the network between them"
    return None
