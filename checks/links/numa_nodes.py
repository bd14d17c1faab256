"""Are the GPUs close to each other, and to the CPUs of this process?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Link, Pci, Visible
from mgpu.text import counted

from .._gpus import gpu_subjects
from .._wording import gpu_list
from ._pairs import links_in_use

_LEVELS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level"


@check(Severity.INFO, source=_LEVELS)
def gpus_span_numa_nodes(gpus: tuple[Gpu, ...], links: tuple[Link, ...], visible: Visible) -> Answer:
    """The visible GPUs are on different NUMA nodes and have no NVLink between them.

    Why: All traffic between the NUMA nodes crosses the CPU interconnect.
    More: That works, but two GPUs of one NUMA node are faster together.

    Fix: Let the launcher pin each rank to its NUMA node.
    More: For a run on fewer GPUs, select GPUs of one NUMA node.
    """
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.numa_node is not None:
            nodes.setdefault(gpu.numa_node, []).append(gpu.index)
    if not nodes:
        return Skip("the GPUs' NUMA nodes are unknown")
    if len(nodes) == 1:
        return Ok(f"all on NUMA node {next(iter(nodes))}")
    shared = links_in_use(links, visible)
    if shared and all(link.nvlinks for link in shared):
        return Ok(f"{len(nodes)} NUMA nodes, connected by NVLink")
    where = "; ".join(f"{gpu_list(members)} on NUMA node {node}" for node, members in sorted(nodes.items()))
    return Problem(
        where,
        fix=Fix(commands=("mgpu configure",)),
        evidence={f"node_{node}": len(members) for node, members in sorted(nodes.items())},
    )


@check(Severity.WARNING, source="https://slurm.schedmd.com/gres.html")
def cpus_far_from_gpus(gpus: tuple[Gpu, ...], visible: Visible, pci: Pci) -> Answer:
    """This process cannot use any CPU near one of the visible GPUs.

    Why: Its CPU affinity allows only CPUs of another socket, so copies to these GPUs cross between sockets.
    More: An affinity mask (taskset, a cpuset, Slurm without GPU binding) allows only cores of another socket. Every
    copy to that GPU, and NCCL's own threads, then cross between the sockets.

    Fix: Request CPUs near the GPUs. Outside Slurm, widen the mask.
    More: Request CPUs of the GPU's own socket, or use GPUs on the sockets you have.
    """
    places = [(gpu, found) for gpu in gpus if gpu.index in visible.gpus and (found := pci.at(gpu.pci))]
    known = [(gpu, found) for gpu, found in places if found.cpus_near_usable is not None]
    if not known:
        return Skip("the CPUs near the visible GPUs are unknown")
    far = [(gpu, found) for gpu, found in known if not found.cpus_near_usable]
    if not far:
        return Ok(f"usable CPUs near each of {counted(len(known), 'GPU')}")
    near = far[0][1].cpus_near or "0"
    return Problem(
        f"no usable CPU near {gpu_list(gpu.index for gpu, _ in far)}",
        fix=Fix(
            commands=("srun --gres-flags=enforce-binding ...", shell("taskset -c {:numbers} mgpu launch ...", near))
        ),
        evidence={f"gpu_{gpu.index}_cpus_near": found.cpus_near for gpu, found in far},
        subjects=gpu_subjects(gpu for gpu, _ in far),
    )
