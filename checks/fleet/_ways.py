"""With which command does a person look at a node: Slurm's srun, or ssh for the hosts of --hosts?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mgpu.check import Fix
from mgpu.command_line import Command, Value, from_words, joined, shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet, HostAccess

# Prefix of the commands that show how nodes differ.
ON_NODES = "srun -N{count:number} -w {nodes:hosts} --ntasks-per-node=1 --label"
_IN_SHELL = re.compile(r"bash -l?c '(.*)'")


def ssh(one: HostAccess, *options: str) -> Command:
    """Return the ssh command to a host; "" if its name is not one."""
    valid = shell("ssh {:host}", one.destination) or shell("ssh {:user}", one.destination)
    port = ("-p", str(one.port)) if one.port else ()
    return from_words(("ssh", *options, *port, one.destination)) if valid else valid


def on_host(one: HostAccess, line: Command) -> Command:
    """Return the command that runs a line on a host."""
    return joined((ssh(one), line), " ")


def look_at(fleet: Fleet, nodes: Sequence[str], *lines: str, **values: Value) -> tuple[str, ...]:
    """Return the commands that run lines on these nodes. With ssh, on the first of them.

    A line is a template of `shell`: after the prefix ON_NODES the part that runs on a node, or a command of Slurm.
    """
    known = {"nodes": fold(nodes), "count": len(nodes), **values}
    if fleet.access is None:
        return tuple(shell(line, **known) for line in lines)
    first = next((one for one in fleet.access if one.node in nodes), None)
    if first is None:
        return ()
    found: list[str] = []
    for line in lines:
        inside = line.removeprefix(ON_NODES).strip()
        if inside == line or "{folder" in line:  # a command of Slurm's, or one whose value the other shell would read
            continue
        quoted = _IN_SHELL.fullmatch(inside)
        text = f"'{quoted[1]}'" if quoted else f'"{inside}"' if "'" in inside else inside
        found.append(shell(inside, **known) if first.local else on_host(first, shell(text, **known)))
    return tuple(found) or (ssh(first),)


def leave_out(nodes: Iterable[str], fleet: Fleet) -> Fix:
    """Return the fix of running without these nodes."""
    if fleet.access is None:
        return Fix(
            "Or exclude them.",
            (shell("sbatch --exclude={:hosts} job.sbatch", fold(nodes)),),
            kind="stopgap",
            caveat="the job waits until other nodes are free",
        )
    out = set(nodes)
    left = [one.destination for one in fleet.access if one.node not in out and not one.problem]
    again = (shell("mgpu doctor --hosts {:ids}", ",".join(left)),) if len(left) > 1 else ()
    return Fix("Or leave them out.", again, kind="stopgap", caveat="fewer machines train")
