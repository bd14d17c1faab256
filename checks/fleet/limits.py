"""May a rank do the same on every node, and does it see the same files?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet
from mgpu.text import counted

from ._families import ON_NODES, judged, leave_out


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_shm_differs(fleet: Fleet) -> Answer:
    """/dev/shm of some nodes is larger or smaller than that of the others.

    Why: NCCL and the data loader keep buffers there: ranks end with a bus error where it is too small.
    More: The run works everywhere else.

    Fix: Have it mounted as on the other nodes (mount -o remount,size=... /dev/shm, or --shm-size).
    """
    return judged(fleet, "shm", "the same /dev/shm", f"{ON_NODES} df -h /dev/shm")


@check(Severity.WARNING, source="https://slurm.schedmd.com/faq.html#memlock")
def fleet_limits_differ(fleet: Fleet) -> Answer:
    """Some nodes have other limits than the others: open files, locked memory, processes.

    Why: The node with the lowest limit fails alone, in a run that works everywhere else.
    More: slurmd hands on the limits it was started with, and those of one node may be another's of yesterday.
    InfiniBand needs locked memory, data loaders need files and processes.

    Fix: Have the limits of slurmd's service made the same (LimitMEMLOCK, LimitNOFILE), or set them in the job script.
    """
    return judged(fleet, "limits", "the same limits", f"{ON_NODES} bash -c 'ulimit -a'")


@check(Severity.WARNING, source="https://slurm.schedmd.com/quickstart_admin.html")
def fleet_storage_differs(fleet: Fleet) -> Answer:
    """Some nodes see other file systems under the folders of the run than the others.

    Why: A mount that is missing leaves a local folder of the same name, which no other node shares.
    More: The data is not there, or a checkpoint is written where no other node finds it.

    Fix: Look at the mounts there, and tell the admins.
    More: Or leave the node out.
    """
    return judged(fleet, "storage", "the same file systems", f"{ON_NODES} df -hT . /tmp $HOME")


@check(Severity.ERROR, source="mgpu: the launcher of every node reads the config and the script for itself")
def fleet_folder_not_shared(fleet: Fleet) -> Answer:
    """A folder that the job needs is not the same on all its nodes.

    Why: what the first node writes there (the config, the script, a checkpoint) the others do not find. Their launcher
    ends, and the first node waits for it until the rendezvous times out.

    Fix: work in a folder on a file system that all nodes share.
    """
    if fleet.unshared is None:
        return Skip("whether folders are shared was not tried")
    problems = tuple(
        Problem(
            f"{folder} is not shared: {fold(nodes)} {'does' if len(nodes) == 1 else 'do'} not see it",
            "What the first node wrote there was not found on these: it is a local folder there, or none at all.",
            (
                Fix(
                    "Start the job from a folder that all nodes share.",
                    (shell("srun -N{:number} -w {:hosts} df -hT {:path}", len(nodes), fold(nodes), folder),),
                ),
                leave_out(nodes),
            ),
            {"folder": folder, "nodes": fold(nodes), "of": len(fleet.nodes)},
            subjects=nodes,
        )
        for folder, nodes in fleet.unshared.items()
        if nodes
    )
    return problems or Ok(f"the folders of the job are shared by {counted(len(fleet.nodes), 'node')}")
