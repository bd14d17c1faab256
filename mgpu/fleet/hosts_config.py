"""`mgpu configure --hosts`: the machine that a config for several hosts is for, and the address to meet at."""

from __future__ import annotations

import sys
from pathlib import Path

from mgpu import errors
from mgpu.command_line import shell
from mgpu.config import facts
from mgpu.errors import MgpuError
from mgpu.fleet import hosts_doctor, route
from mgpu.hosts.named_hosts import names, read_hosts
from mgpu.report import output
from mgpu.snapshot import Snapshot, from_json
from mgpu.wizard import answers as decisions
from mgpu.wizard import answers_file
from mgpu.wizard.answers import Answers


def look(decided: Answers, python: str = "") -> tuple[tuple[Snapshot, int, str], Answers]:
    """Examine the hosts of the answers side by side.

    Returns the facts of the first host, the number of hosts and their names, and the answers with the address of the
    first host that all others reached. Raises MgpuError if a host is not reached or has another number of GPUs.
    """
    assert decided.hosts is not None
    hosts = read_hosts(decided.hosts)
    with output.progress() as show:
        fleet, examination = hosts_doctor.examine(hosts, hosts_doctor.Subject(python or sys.executable), show)
    doctor = shell("mgpu doctor --hosts {}", decided.hosts) or "mgpu doctor --hosts ..."
    if fleet.missing:
        name, why = next(iter(fleet.missing.items()))
        raise MgpuError(f"{name}: {why}\n  {doctor}", errors.NOT_READY)
    machines = {name: from_json(examination.found[name]["facts"]) for name in names(hosts)}
    counts = {name: len(machine.gpus or ()) for name, machine in machines.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise MgpuError(
            f"the hosts have different numbers of GPUs ({shown}); accelerate starts the same number of ranks on each. "
            "Choose with --gpus N",
            errors.NOT_READY,
        )
    first = hosts[0].name
    if len(hosts) > 1 and (way := route.into(fleet, first)) is not None and "address" not in decided.origins:
        decided = decisions.with_decision(decided, "address", way.address, "probe")
    if "nodes" not in decided.origins or decided.nodes != len(hosts):
        decided = decisions.with_decision(decisions.without(decided, ["nodes"]), "nodes", len(hosts), "probe")
    return (machines[first], len(hosts), ", ".join(counts)), decided


def kept(config: str) -> str:
    """Return the hosts in the answers beside a config for several machines; "" if there are none or it is for one."""
    path = Path(config).parent / answers_file.DEFAULT_FILE
    if not (path.is_file() and Path(config).is_file()) or facts(Path(config), ask_loader=False).num_machines < 2:
        return ""
    try:
        return answers_file.read(str(path)).hosts or ""
    except MgpuError:
        return ""
