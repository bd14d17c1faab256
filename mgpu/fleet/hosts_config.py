"""`mgpu configure --hosts`: the machine that a config for several hosts is for, and the address to meet at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mgpu import errors
from mgpu.command_line import from_words, shell
from mgpu.config import facts
from mgpu.errors import MgpuError
from mgpu.fleet import hosts_doctor, route
from mgpu.hosts.named_hosts import names, read_hosts
from mgpu.report import output
from mgpu.snapshot import Snapshot, from_json
from mgpu.wizard import answers as decisions
from mgpu.wizard import answers_file
from mgpu.wizard.answers import Answers


def look(decided: Answers) -> tuple[tuple[Snapshot, int, str], Answers]:
    """Examine the hosts of the answers side by side.

    Returns the facts of the weakest host, the number of hosts and their names, and the answers with the address of the
    first host that all others reached. Raises MgpuError if a host is not reached, or if the hosts have different
    numbers of GPUs and the answers do not say how many ranks each gets.
    """
    assert decided.hosts is not None
    hosts = read_hosts(decided.hosts, decided.hosts_python or "")
    with output.progress() as show:
        fleet, examination = hosts_doctor.examine(hosts, hosts_doctor.Subject(), show)
    doctor = shell("mgpu doctor --hosts {}", decided.hosts) or "mgpu doctor --hosts ..."
    if fleet.missing:
        name, why = next(iter(fleet.missing.items()))
        raise MgpuError(f"{name}: {why}\n  {doctor}", errors.NOT_READY)
    machines = {name: from_json(examination.found[name]["facts"]) for name in names(hosts)}
    if not (any(host.slots for host in hosts) or decided.gpus):
        _require_equal({name: len(machine.gpus or ()) for name, machine in machines.items()}, decided.hosts)
    first = hosts[0].name
    if len(hosts) > 1 and (way := route.into(fleet, first)) is not None and "address" not in decided.origins:
        decided = decisions.with_decision(decided, "address", way.address, "probe")
    if "nodes" not in decided.origins or decided.nodes != len(hosts):
        decided = decisions.with_decision(decisions.without(decided, ["nodes"]), "nodes", len(hosts), "probe")
    weakest = min(machines.values(), key=_strength)
    return (weakest, len(hosts), ", ".join(machines)), decided


def _require_equal(counts: Mapping[str, int], hosts: str) -> None:
    """Raise MgpuError (1) with the two ways out if the hosts have different numbers of GPUs."""
    if len(set(counts.values())) < 2:
        return
    shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
    least = min(counts.values())
    all_of_them, ways = [shell("{:host} slots={:number}", name, count) for name, count in counts.items() if count], []
    if least and all(all_of_them):
        lines = from_words(("printf", "%s\\n", *all_of_them))
        ways = [
            f"  {lines} > hosts.txt",
            "  mgpu configure --hosts hosts.txt      all GPUs, one rank on each",
            f"  {shell('mgpu configure --hosts {} --gpus {:number}', hosts, least)}      the same number on each host",
        ]
    text = f"the hosts have different numbers of GPUs ({shown})"
    none = [name for name, count in counts.items() if not count]
    more = "" if least else f"; leave out {', '.join(none)}, or check its driver: mgpu doctor"
    raise MgpuError("\n".join([f"{text}{more}", *ways]), errors.NOT_READY)


def _strength(machine: Snapshot) -> tuple[int, tuple[int, int], int]:
    """Sort key: the config must also fit the host with the fewest GPUs, the oldest of them and the least memory."""
    gpus = machine.gpus or ()
    oldest = min((gpu.compute_capability for gpu in gpus if gpu.compute_capability), default=(0, 0))
    return len(gpus), oldest, min((gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes), default=0)


def kept(config: str) -> tuple[str, str]:
    """Return the hosts in the answers beside a config for several machines, and their Python.

    Both are "" if there are none or the config is for one machine.
    """
    path = Path(config).parent / answers_file.DEFAULT_FILE
    if not (path.is_file() and Path(config).is_file()) or facts(Path(config), ask_loader=False).num_machines < 2:
        return "", ""
    try:
        found = answers_file.read(str(path))
    except MgpuError:
        return "", ""
    return found.hosts or "", found.hosts_python or ""
