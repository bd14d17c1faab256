"""Write the files of a pre-flight for the job script, for people and for programs.

nodes.sh and hostfile (the nodes for the rest of the job script), passing_nodes.txt, failing_nodes.txt (NAME <tab>
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
_LARGEST = 16 << 20  # bytes of a document; a node's entry has about 1 KiB
_GPUS = re.compile(r"(?P<type>[^:,=]+:)?(?P<number>\d+)")
_NOTHING = "# All nodes of the job are healthy and needed: nothing changes.\n"


def nodes_sh(
    chosen: Sequence[str], of_job: Sequence[str], hostfile: Path, tasks_per_node: int, environ: Mapping[str, str]
) -> str:
    """Return the script that the job sources, after which srun and Slurm's variables name only the chosen nodes.

    srun reads the nodes from SLURM_HOSTFILE, one line per task; SLURM_JOB_NODELIST alone has no effect on it. The node
    and task counts must agree with the file (measured with Slurm 22.05).
    """
    head = "# Written by mgpu smoke-test --slurm. Source it before the first srun of the job.\n"
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
    # From --gpus, "6" or "a100:6": srun would request the same total on fewer nodes.
    all_gpus = _GPUS.fullmatch(environ.get("SLURM_GPUS", ""))
    if all_gpus and of_job and int(all_gpus["number"]) % len(of_job) == 0:
        values["SLURM_GPUS"] = f"{all_gpus['type'] or ''}{int(all_gpus['number']) // len(of_job) * count}"
    left_out = hostlist.fold(node for node in of_job if node not in chosen)
    left_out = left_out if not left_out or is_kind("hosts", left_out) else "nodes with invalid names"
    summary = f"# {count} of the job's {len(of_job)} nodes; excluded: {left_out}\n"
    return head + summary + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def hostfile(chosen: Sequence[str], tasks_per_node: int) -> str:
    """Return the host file: one line per task, node by node."""
    return "".join(f"{node}\n" * tasks_per_node for node in chosen)


def failing(bad: Mapping[str, str]) -> str:
    """Return one line per bad node: its name, a tab, the reason."""
    return "".join(f"{node}\t{' '.join(why.split())}\n" for node, why in bad.items())


def machines(nodes: Sequence[str]) -> Kind:
    """Return the contents of the folder with the nodes' facts."""
    return Kind("machines", "", tuple(f"{node}.json" for node in nodes))


def write(
    folder: Path,
    document: PreflightDocument,
    *,
    of_job: Sequence[str],
    tasks_per_node: int,
    environ: Mapping[str, str],
    sourced: bool = True,
) -> None:
    """Write all files except the machines. nodes.sh comes last, and only if the job may continue. Raises MgpuError.

    `sourced`: by a job script; without one, there are no hostfile and nodes.sh.
    """
    from mgpu.report.document import text

    (folder / NODES_SH).unlink(missing_ok=True)
    chosen = document["chosen"]
    files.write(folder / DOCUMENT, text(document))
    files.write(folder / PASSING, "".join(f"{node}\n" for node in document["good"]))
    files.write(folder / FAILING, failing({entry["node"]: entry["reason"] for entry in document["bad"]}))
    if chosen and sourced:
        files.write(folder / HOSTFILE, hostfile(chosen, tasks_per_node))
        script = nodes_sh(chosen, of_job, (folder / HOSTFILE).absolute(), tasks_per_node, environ)
        files.write(folder / NODES_SH, script)


def keep_machine(folder: Path, node: str, snapshot: Any) -> None:
    """Save a node's facts as the doctor does, readable by `mgpu doctor --compare-nodes`."""
    from mgpu.report.document import facts_text
    from mgpu.snapshot import to_json
    from mgpu.snapshot.redaction import redact

    if "/" in node or node.startswith("."):
        return
    files.write(folder / MACHINES / f"{node}.json", facts_text(to_json(redact(snapshot))), mode=0o600)


def read(folder: Path) -> dict[str, Any] | None:
    """Return the document of a pre-flight; None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        document = json_of(file_reading.read(folder / DOCUMENT, most=_LARGEST))
        if isinstance(document, dict) and str(document.get("schema", "")).startswith("mgpu.preflight/"):
            return document if isinstance(document.get("bad", []), list) else None
    return None
