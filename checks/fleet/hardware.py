"""Is every node built alike?"""

from __future__ import annotations

from mgpu.check import Answer, Severity, check
from mgpu.snapshot import Fleet

from ._families import ON_NODES, judged

_QUERY = f"{ON_NODES} nvidia-smi --format=csv --query-gpu="


@check(Severity.ERROR, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_gpu_model_differs(fleet: Fleet) -> Answer:
    """Some nodes have other GPUs than the nodes they are with.

    Why: Every step waits for the slower GPUs, and what fits into the one need not fit into the other.
    More: NCCL may choose another algorithm on each side.

    Fix: Ask for one type of GPU: #SBATCH --gpus-per-node=TYPE:N, or a --constraint of the site.
    """
    return judged(fleet, "gpu_model", "one GPU model", f"{ON_NODES} nvidia-smi -L")


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html")
def fleet_gpu_count_differs(fleet: Fleet) -> Answer:
    """Some nodes have another number of GPUs than their siblings.

    Why: A rank without a GPU fails at once, and all other ranks wait for it in the first collective.
    More: The GPU has fallen off the bus (Xid 79), was not granted, or is hidden; the launcher starts the same number of
    ranks on every node.

    Fix: See what is left there; the kernel's log tells of a GPU that fell off the bus (Xid 79).
    More: Leave the node out.
    """
    return judged(
        fleet, "gpu_count", "the same number of GPUs", f"{ON_NODES} nvidia-smi -L", f"{ON_NODES} mgpu doctor --quick"
    )


@check(Severity.ERROR, source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/")
def fleet_gpu_memory_differs(fleet: Fleet) -> Answer:
    """GPUs of some nodes have less or more memory than the same model has elsewhere.

    Why: The rank with the least memory runs out of it, in a run that fits everywhere else.
    More: It is another variant of the model, a MIG or vGPU slice, or ECC that takes its share.

    Fix: Compare MIG and ECC there with the others.
    More: Set them alike, or leave the nodes out.
    """
    return judged(
        fleet, "gpu_memory", "the same GPU memory", f"{_QUERY}name,memory.total,ecc.mode.current,mig.mode.current"
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvidia-smi/index.html")
def fleet_gpu_settings_differ(fleet: Fleet) -> Answer:
    """GPUs of some nodes are set otherwise than elsewhere: power limit, clocks, ECC, MIG, modes.

    Why: Every step waits for the slowest rank: one node that is set slower slows all of them.
    More: A lower power limit or fixed clocks do it.

    Fix: Have an admin set the GPUs there as on the other nodes (-pl, -rgc, -e, -mig of nvidia-smi).
    """
    return judged(
        fleet,
        "gpu_settings",
        "the same GPU settings",
        f"{_QUERY}power.limit,clocks.max.sm,ecc.mode.current,mig.mode.current",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html")
def fleet_gpu_links_differ(fleet: Fleet) -> Answer:
    """GPUs of some nodes are connected otherwise than elsewhere: NVLinks, fabric, PCIe.

    Why: The ring through all nodes is as fast as its slowest link.
    More: Links are down, a fabric manager is not running or a slot has fewer lanes.

    Fix: Look at the links there, and tell the admins.
    More: Have the node reset.
    """
    return judged(
        fleet,
        "gpu_links",
        "the same GPU links",
        f"{ON_NODES} nvidia-smi topo -m",
        f"{ON_NODES} nvidia-smi nvlink --status",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html")
def fleet_gpu_health_differs(fleet: Fleet) -> Answer:
    """GPUs of some nodes report a state that those of the others do not.

    Why: The GPU still computes, and may stop doing so in the middle of a run.
    More: Rows are to be remapped, a repair waits for a reset, or a recovery is asked for.

    Fix: See what the doctor says there.
    """
    return judged(fleet, "gpu_health", "the GPUs report the same state", f"{ON_NODES} mgpu doctor --quick")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/2428")
def fleet_network_cards_differ(fleet: Fleet) -> Answer:
    """Some nodes have other network cards than the others, or some that are down.

    Why: The slowest card decides for all nodes; cards that only some nodes have may end in a hang.
    More: NCCL pairs the cards of each node with those of the next: one that is missing, down, slower or of another MTU
    slows all nodes down to it. With NCCL_IGNORE_NET_MISMATCH the ranks hang.

    Fix: Look at the ports there; NCCL_IB_HCA and NCCL_SOCKET_IFNAME name those that all nodes have.
    More: Or leave the node out.
    """
    return judged(fleet, "network_cards", "the same network cards", f"{ON_NODES} ibstat -s", f"{ON_NODES} ip -br link")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1136")
def fleet_cpus_differ(fleet: Fleet) -> Answer:
    """Some nodes have other CPUs or another amount of memory than the others.

    Why: Fewer CPUs feed the GPUs more slowly, and less memory ends a run that fits elsewhere.
    More: NCCL tunes itself by the CPU's maker, and hung where nodes of two makers were mixed.

    Fix: Ask for whole nodes (--exclusive --mem=0), or for the same --cpus-per-task and --mem on each.
    """
    return judged(fleet, "cpus", "the same CPUs and memory", "scontrol show node {nodes:hosts}")


@check(Severity.INFO, source="https://docs.nvidia.com/networking/software/firmware-downloads/index.html")
def fleet_firmware_differs(fleet: Fleet) -> Answer:
    """Some nodes have other firmware on GPUs or network cards than the others.

    Why: They were maintained at another time; that explains faults that only some nodes show.
    More: Or a part was exchanged; it explains differences in speed too.

    Fix: Nothing, unless these nodes behave otherwise.
    """
    return judged(fleet, "firmware", "the same firmware")
