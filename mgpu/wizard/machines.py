"""How many nodes does the run use, and where is their rendezvous? What differs between nodes is never in the file."""

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
    """The number of nodes, and the rows about them."""

    nodes: int
    part: Part


def machines(snapshot: Snapshot, answers: Answers, engine: str = "") -> Machines:
    """Return the number of nodes and the address of the first. `engine`: starts the nodes and sets the rendezvous."""
    nodes = answers.nodes if answers.nodes is not None else 1
    origin: Origin
    problems = [] if nodes >= 1 else [f"{nodes} nodes: must be at least 1"]
    nodes = max(1, nodes)
    if engine:
        origin = "rule" if answers.nodes is None else origin_of(answers, "nodes")
        spare = f", {answers.spare} spare" if answers.spare else ""
        text = f"{nodes} {TITLES[engine]} node{'' if nodes == 1 else 's'}{spare}"
        row = Setting("nodes", text, origin, "each gets its rank from the job", "nodes", {"num_machines": nodes})
        return Machines(nodes, Part((row,), {}, {"nodes": str(nodes)}, tuple(problems)))
    slurm = snapshot.slurm
    if slurm is not None and slurm.job_id is not None and slurm.nodes is not None and nodes > slurm.nodes:
        problems.append(f"{nodes} nodes: this Slurm job has {slurm.nodes}; request more with  sbatch --nodes={nodes}")
    origin = "rule" if answers.nodes is None else origin_of(answers, "nodes")
    text = (
        "1" if nodes == 1 else f"{nodes}, over ssh: {answers.hosts}" if answers.hosts else f"{nodes}, started by hand"
    )
    rows = [Setting("nodes", text, origin, "this machine" if nodes == 1 else "", "hosts", {"num_machines": nodes})]
    notes: tuple[str, ...] = ()
    if nodes > 1:
        address_row, wrong = _address(snapshot, answers)
        rows.append(address_row)
        problems += wrong
        by_hand = "Start mgpu smoke-test and mgpu launch on every node, each with its own --node-rank."
        notes = () if answers.hosts else (by_hand,)
    return Machines(nodes, Part(tuple(rows), {}, {"nodes": str(nodes)}, tuple(problems), notes))


def port(answers: Answers, nodes: int, *, single_process: bool) -> Part:
    """Return the rendezvous port. `single_process`: accelerate starts one process, without a rendezvous."""
    number, row, problems = _port(answers, nodes, single_process)
    return Part((row,), {}, {"port": "auto" if number is None else str(number)}, tuple(problems))


def _port(answers: Answers, nodes: int, single_process: bool) -> tuple[int | None, Setting, list[str]]:
    given = answers.port or None  # for accelerate, 0 means a free one, which is the default here
    problems = []
    if given is not None and not 0 < given < 65536:
        problems.append(f"port {given}: must be from 1 to 65535")
    keys: dict[str, Any] = {}
    if nodes > 1:
        fixed = given or DEFAULT_PORT
        origin: Origin = origin_of(answers, "port") if given else "rule"
        row = Setting("port", str(fixed), origin, "same on all nodes", "port", {"main_process_port": fixed})
        return fixed, row, problems
    if given is None or single_process:
        why = "a free one at every launch" if not single_process else "a single process needs none"
        return None, Setting("port", "automatic" if not single_process else "none", "rule", why, "port"), problems
    keys["main_process_port"] = given
    return given, Setting("port", str(given), origin_of(answers, "port"), "chosen", "port", keys), problems


def _address(snapshot: Snapshot, answers: Answers) -> tuple[Setting, list[str]]:
    address, origin, why = answers.address, origin_of(answers, "address"), "of the first node"
    if address is None:
        address, why = _guess(snapshot)
        origin = "probe" if address else "-"
    if address is None:
        row = Setting("address", "needed", origin, "of the first node, reachable by the others", "address")
        return row, ["several nodes need the address of the first one: --address"]
    wrong = why_unreachable(address)
    problems = [f"address {address}: {wrong}"] if wrong else []
    row = Setting("address", address, origin, why, "address", {"main_process_ip": address})
    return row, problems


def _guess(snapshot: Snapshot) -> tuple[str | None, str]:
    """Return an address for the first node: Slurm's first node, else a reachable one of this machine."""
    network = snapshot.network
    if network is None:
        return None, ""
    if network.master and network.master.origin == "SLURM_JOB_NODELIST" and not why_unreachable(network.master.name):
        return network.master.name, "the first node of the Slurm job"
    for interface in network.interfaces:
        if interface.loopback or interface.virtual or not interface.up or interface.routable is False:
            continue
        for address in interface.addresses:
            if not why_unreachable(address):
                return address, f"this machine's {interface.name}, assumed to be the first node"
    return None, ""


def why_unreachable(address: str) -> str | None:
    """Return why other nodes cannot reach this address, judging by its text; None if they may."""
    if "://" in address:
        return "remove the http:// or other scheme"
    if address in ("localhost", "localhost.localdomain"):
        return "every node would wait for itself; use an address that the others can reach"
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        if ":" in address:
            return "remove the port; use --port"
        if re.fullmatch(r"[0-9.]+", address) or not _NAME.fullmatch(address):
            return "not a host name or an IPv4 address"
        return None
    if number.version == 6:
        return "accelerate joins address and port with a colon, so IPv6 addresses do not work; use a host name"
    if number.is_loopback or number.is_unspecified or number.is_link_local or number.is_multicast:
        return "the other nodes cannot reach it; use an address on their shared network"
    return None
