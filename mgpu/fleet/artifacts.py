"""What does a pre-flight leave in its folder: for the job script, for people, and for programs?

nodes.sh and hostfile (what the rest of the job script runs on), passing_nodes.txt, failing_nodes.txt (NAME <tab>
REASON), preflight.json, machines/NODE.json (each node as `mgpu doctor --save` would write it).
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import file_reading, files, hostlist
from mgpu.command_line import is_kind
from mgpu.launchers.run_folder import Kind
from mgpu.structured_text import json_of

if TYPE_CHECKING:
    from mgpu.fleet.fleet_json import PreflightDocument

NODES_SH, HOSTFILE, DOCUMENT = "nodes.sh", "hostfile", "preflight.json"
PASSING, FAILING, MACHINES = "passing_nodes.txt", "failing_nodes.txt", "machines"
TESTS = ("alone", "pairs", "together")  # folders with the logs of the stages
_LARGEST = 16 << 20  # bytes of a document; an entry of a node has about 1 KiB
_GPUS = re.compile(r"(?P<type>[^:,=]+:)?(?P<number>\d+)")
_NOTHING = "# All nodes of the job are good and wanted: nothing changes.\n"


def nodes_sh(
    chosen: Sequence[str], of_job: Sequence[str], hostfile: Path, tasks_per_node: int, environ: Mapping[str, str]
) -> str:
    """What the job script sources: from there on srun, and whoever counts the nodes, know only of the chosen ones.

    srun takes the nodes from SLURM_HOSTFILE, a line for each task; SLURM_JOB_NODELIST alone does not bind it. The two
    counts must agree with the file (measured with Slurm 22.05).
    """
    head = "# Written by mgpu smoke-test --slurm, to be sourced before the first srun of the job.\n"
    if list(chosen) == list(of_job):
        return head + _NOTHING
    count, tasks, names = len(chosen), len(chosen) * tasks_per_node, hostlist.fold(chosen)
    values = {
        "SLURM_HOSTFILE": str(hostfile),
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_NNODES": str(count),
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_TASKS_PER_NODE": f"{tasks_per_node}(x{count})" if count > 1 else str(tasks_per_node),
    }
    # Of --gpus, "6" or "a100:6": srun would ask for as many on fewer nodes.
    all_gpus = _GPUS.fullmatch(environ.get("SLURM_GPUS", ""))
    if all_gpus and of_job and int(all_gpus["number"]) % len(of_job) == 0:
        values["SLURM_GPUS"] = f"{all_gpus['type'] or ''}{int(all_gpus['number']) // len(of_job) * count}"
    left_out = hostlist.fold(node for node in of_job if node not in chosen)
    left_out = left_out if not left_out or is_kind("hosts", left_out) else "nodes with names that are none"
    said = f"# {count} of the job's {len(of_job)} nodes; left out: {left_out}\n"
    return head + said + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def hostfile(chosen: Sequence[str], tasks_per_node: int) -> str:
    """A line for each task, node after node."""
    return "".join(f"{node}\n" * tasks_per_node for node in chosen)


def failing(bad: Mapping[str, str]) -> str:
    """A line for each bad node: its name, a tab, why."""
    return "".join(f"{node}\t{' '.join(why.split())}\n" for node, why in bad.items())


def machines(nodes: Sequence[str]) -> Kind:
    """What the folder of the nodes' facts holds."""
    return Kind("machines", "", tuple(f"{node}.json" for node in nodes))


def write(
    folder: Path,
    document: PreflightDocument,
    *,
    of_job: Sequence[str],
    tasks_per_node: int,
    environ: Mapping[str, str],
) -> None:
    """All files but the machines. nodes.sh is the last, and is there only where the job may go on. Raises MgpuError."""
    from mgpu.report.document import text

    (folder / NODES_SH).unlink(missing_ok=True)
    chosen = document["chosen"]
    files.write(folder / DOCUMENT, text(document))
    files.write(folder / PASSING, "".join(f"{node}\n" for node in document["good"]))
    files.write(folder / FAILING, failing({entry["node"]: entry["reason"] for entry in document["bad"]}))
    if chosen:
        files.write(folder / HOSTFILE, hostfile(chosen, tasks_per_node))
        script = nodes_sh(chosen, of_job, (folder / HOSTFILE).absolute(), tasks_per_node, environ)
        files.write(folder / NODES_SH, script)


def keep_machine(folder: Path, node: str, snapshot: Any) -> None:
    """A node's facts, as the doctor saves them: `mgpu doctor --compare-nodes` reads them again."""
    from mgpu.report.document import facts_text
    from mgpu.snapshot import to_json
    from mgpu.snapshot.redaction import redacted

    if "/" in node or node.startswith("."):
        return
    files.write(folder / MACHINES / f"{node}.json", facts_text(to_json(redacted(snapshot))), mode=0o600)


def read(folder: Path) -> dict[str, Any] | None:
    """The document of a pre-flight; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        document = json_of(file_reading.read(folder / DOCUMENT, most=_LARGEST))
        if isinstance(document, dict) and str(document.get("schema", "")).startswith("mgpu.preflight/"):
            return document if isinstance(document.get("bad", []), list) else None
    return None
