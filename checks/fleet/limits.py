"""Do ranks have the same limits and the same files on every node?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.hostlist import fold
from mgpu.snapshot import Fleet
from mgpu.text import counted

from ._families import judge
from ._ways import ON_NODES, leave_out, look_at


@check(Severity.WARNING, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_shm_differs(fleet: Fleet) -> Answer:
    """The size of /dev/shm differs on some nodes.

    Why: NCCL and the data loader keep buffers there: if it is too small, ranks die with a bus error.
    More: The run works on all other nodes.

    Fix: Have it mounted as on the other nodes (mount -o remount,size=... /dev/shm, or --shm-size).
    """
    return judge(fleet, "shm", "same /dev/shm size", f"{ON_NODES} df -h /dev/shm")


@check(Severity.WARNING, source="https://slurm.schedmd.com/faq.html#memlock")
def fleet_limits_differ(fleet: Fleet) -> Answer:
    """Limits differ on some nodes: open files, locked memory or processes.

    Why: The node with the lowest limit fails in a run that works on all other nodes.
    More: slurmd passes on the limits it was started with, which may differ between nodes. InfiniBand needs locked
    memory, data loaders need files and processes.

    Fix: Have the limits of slurmd's service made equal (LimitMEMLOCK, LimitNOFILE), or set them in the job script.
    """
    return judge(fleet, "limits", "same limits", f"{ON_NODES} bash -c 'ulimit -a'")


@check(Severity.WARNING, source="https://slurm.schedmd.com/quickstart_admin.html")
def fleet_storage_differs(fleet: Fleet) -> Answer:
    """The run's folders are on different file systems on some nodes.

    Why: If a mount is missing, a local folder of the same name is used, which no other node shares.
    More: The data is missing there, or a checkpoint is written where no other node finds it.

    Fix: Check the mounts there, and contact an administrator.
    More: Or exclude the node.
    """
    return judge(fleet, "storage", "same file systems", f"{ON_NODES} df -hT . /tmp $HOME")


@check(Severity.ERROR, source="mgpu: the launcher of every node reads the config and the script for itself")
def fleet_folder_not_shared(fleet: Fleet) -> Answer:
    """A folder that the job needs is not shared by all nodes.

    Why: the other nodes do not find files that the first node writes there (the config, the script, a checkpoint).
    Their launchers fail, and the first node waits for them until the rendezvous times out.

    Fix: use a folder on a file system that all nodes share.
    """
    if fleet.unshared is None:
        return Skip("whether folders are shared was not tested")
    problems = tuple(
        Problem(
            f"{folder} is not shared: {fold(nodes)} {'does' if len(nodes) == 1 else 'do'} not see it",
            "A file that the first node wrote is missing on these nodes: the folder is local there, or does not exist.",
            (
                Fix(
                    "Start the job from a folder that all nodes share.",
                    look_at(fleet, nodes, "srun -N{count:number} -w {nodes:hosts} df -hT {folder:path}", folder=folder),
                ),
                leave_out(nodes, fleet),
            ),
            {"folder": folder, "nodes": fold(nodes), "of": len(fleet.nodes)},
            subjects=nodes,
        )
        for folder, nodes in fleet.unshared.items()
        if nodes
    )
    return problems or Ok(f"the job's folders are shared by {counted(len(fleet.nodes), 'node')}")
