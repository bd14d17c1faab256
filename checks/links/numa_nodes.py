"""Are the GPUs close to each other, and to the CPUs of this process?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Link, Pci, Visible
from mgpu.text import counted

from .._gpus import names_of
from .._wording import gpu_list
from ._pairs import sharing

_LEVELS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level"


@check(Severity.INFO, source=_LEVELS)
def gpus_span_numa_nodes(gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible) -> Answer:
    """The visible GPUs hang on different NUMA nodes and have no NVLink between them.

    Why: between the nodes all traffic crosses the CPU interconnect.
    More: That works; two GPUs of one NUMA node are just faster together.

    Fix: let the launcher pin each rank to its node.
    More: For a run on fewer GPUs choose those of one node.
    """
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.numa_node is not None:
            nodes.setdefault(gpu.numa_node, []).append(gpu.index)
    if not nodes:
        return Skip("the GPUs' NUMA nodes are not known")
    if len(nodes) == 1:
        return Ok(f"all on NUMA node {next(iter(nodes))}")
    shared = sharing(links, visible)
    if shared and all(link.nvlinks for link in shared):
        return Ok(f"{len(nodes)} NUMA nodes, joined by NVLink")
    where = "; ".join(f"{gpu_list(members)} near node {node}" for node, members in sorted(nodes.items()))
    return Problem(
        where,
        fix=Fix(commands=("mgpu configure",)),
        evidence={f"node_{node}": len(members) for node, members in sorted(nodes.items())},
    )


@check(Severity.WARNING, source="https://slurm.schedmd.com/gres.html")
def cpus_far_from_gpus(gpus: tuple[Gpu, ...], visible: Visible, pci: Pci) -> Answer:
    """None of the CPUs this process may use is near one of the visible GPUs.

    Why: this process's affinity leaves it only CPUs of another socket; copies to these GPUs cross between sockets.
    More: An affinity mask (taskset, a cpuset, Slurm without GPU binding) leaves only cores of another socket. Every
    copy to that GPU, and NCCL's own threads, then cross between the sockets.

    Fix: ask for CPUs near the GPUs; outside Slurm, widen the mask.
    More: Ask for CPUs of the GPU's own socket, or use the GPUs of the sockets you have.
    """
    places = [(gpu, found) for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci))]
    known = [(gpu, found) for gpu, found in places if found.cpus_near_usable is not None]
    if not known:
        return Skip("which CPUs are near the visible GPUs is not known")
    far = [(gpu, found) for gpu, found in known if not found.cpus_near_usable]
    if not far:
        return Ok(f"CPUs near each of {counted(len(known), 'GPU')} may be used")
    near = far[0][1].cpus_near or "0"
    return Problem(
        f"no usable CPU near {gpu_list(gpu.index for gpu, _ in far)}",
        fix=Fix(
            commands=("srun --gres-flags=enforce-binding ...", shell("taskset -c {:numbers} mgpu launch ...", near))
        ),
        evidence={f"gpu_{gpu.index}_cpus_near": found.cpus_near for gpu, found in far},
        subjects=names_of(gpu for gpu, _ in far),
    )
