"""Is every node built alike?"""

from __future__ import annotations

from mgpu.check import Answer, Severity, check
from mgpu.snapshot import Fleet

from ._families import judged

_SHOW = "srun -N{count:number} -w {nodes:hosts} --ntasks-per-node=1 --label"
_QUERY = f"{_SHOW} nvidia-smi --format=csv --query-gpu="


@check(Severity.ERROR, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_gpu_model_differs(fleet: Fleet) -> Answer:
    """Some nodes have other GPUs than the nodes they are with.

    Why: every step waits for the slowest GPU, a batch that fits one does not fit the other, and NCCL may choose another
    algorithm on each side.

    Fix: ask Slurm for one type of GPU.
    """
    return judged(
        fleet, "gpu_model", "one GPU model",
        "Every step waits for the slower GPUs, and what fits into the one need not fit into the other.",
        "Ask for one type of GPU: #SBATCH --gpus-per-node=TYPE:N, or a --constraint of the site.",
        (f"{_SHOW} nvidia-smi -L",),
    )  # fmt: skip


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-errors/index.html")
def fleet_gpu_count_differs(fleet: Fleet) -> Answer:
    """Some nodes have another number of GPUs than their siblings.

    Why: a GPU has fallen off the bus (Xid 79), was not granted, or is hidden. The launcher starts the same number of
    ranks on every node: one of them finds no GPU and fails, and all others wait for it.

    Fix: leave the node out, and tell the admins what is missing.
    """
    return judged(
        fleet, "gpu_count", "the same number of GPUs",
        "A rank without a GPU fails at once, and all other ranks wait for it in the first collective.",
        "See what is left there; the kernel's log tells of a GPU that fell off the bus (Xid 79).",
        (f"{_SHOW} nvidia-smi -L", f"{_SHOW} mgpu doctor --quick"),
    )  # fmt: skip


@check(Severity.ERROR, source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/")
def fleet_gpu_memory_differs(fleet: Fleet) -> Answer:
    """GPUs of some nodes have less or more memory than the same model has elsewhere.

    Why: another variant of the model, a MIG or vGPU slice, or ECC that takes its share: the rank with the least memory
    runs out of it first, in a run that fits everywhere else.

    Fix: set MIG and ECC alike, or leave the nodes out.
    """
    return judged(
        fleet, "gpu_memory", "the same GPU memory",
        "The rank with the least memory runs out of it, in a run that fits everywhere else.",
        "Compare MIG and ECC there with the others.", (f"{_QUERY}name,memory.total,ecc.mode.current,mig.mode.current",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvidia-smi/index.html")
def fleet_gpu_settings_differ(fleet: Fleet) -> Answer:
    """GPUs of some nodes are set otherwise than elsewhere: power limit, clocks, ECC, MIG, modes.

    Why: a synchronous step takes as long as the slowest rank: one node with a lower power limit or fixed clocks slows
    all of them.

    Fix: have the settings brought in line; an admin can do it with nvidia-smi.
    """
    return judged(
        fleet, "gpu_settings", "the same GPU settings",
        "Every step waits for the slowest rank: one node that is set slower slows all of them.",
        "Have an admin set the GPUs there as on the other nodes (-pl, -rgc, -e, -mig of nvidia-smi).",
        (f"{_QUERY}power.limit,clocks.max.sm,ecc.mode.current,mig.mode.current",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html")
def fleet_gpu_links_differ(fleet: Fleet) -> Answer:
    """GPUs of some nodes are connected otherwise than elsewhere: NVLinks, fabric, PCIe.

    Why: links that are down, a fabric manager that is not running or a slot of fewer lanes: the ring of all nodes is as
    fast as its slowest link.

    Fix: have the node examined and reset.
    """
    return judged(
        fleet, "gpu_links", "the same GPU links",
        "The ring through all nodes is as fast as its slowest link.",
        "Look at the links there, and tell the admins.",
        (f"{_SHOW} nvidia-smi topo -m", f"{_SHOW} nvidia-smi nvlink --status"),
    )  # fmt: skip


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html")
def fleet_gpu_health_differs(fleet: Fleet) -> Answer:
    """GPUs of some nodes report a state that those of the others do not.

    Why: rows to be remapped, a repair that waits for a reset, a recovery that is asked for: the GPU still computes, and
    may stop doing so in the middle of a run.

    Fix: see what the doctor says on that node.
    """
    return judged(
        fleet, "gpu_health", "the GPUs report the same state",
        "The GPU still computes, and may stop doing so in the middle of a run.",
        "See what the doctor says there.", (f"{_SHOW} mgpu doctor --quick",),
    )  # fmt: skip


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/2428")
def fleet_network_cards_differ(fleet: Fleet) -> Answer:
    """Some nodes have other network cards than the others, or some that are down.

    Why: NCCL pairs the cards of each node with those of the next. One that is missing, down, slower or of another MTU
    slows all nodes down to it, and with NCCL_IGNORE_NET_MISMATCH the ranks hang.

    Fix: name the cards that all nodes have, or leave the node out.
    """
    return judged(
        fleet, "network_cards", "the same network cards",
        "The slowest card decides for all nodes; cards that only some nodes have may end in a hang.",
        "Look at the ports there; NCCL_IB_HCA and NCCL_SOCKET_IFNAME name those that all nodes have.",
        (f"{_SHOW} ibstat -s", f"{_SHOW} ip -br link"),
    )  # fmt: skip


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1136")
def fleet_cpus_differ(fleet: Fleet) -> Answer:
    """Some nodes have other CPUs or another amount of memory than the others.

    Why: fewer CPUs feed the GPUs more slowly, less memory ends a run that fits elsewhere; NCCL tunes itself by the
    CPU's maker, and hung where nodes of two makers were mixed.

    Fix: ask Slurm for the same on every node.
    """
    return judged(
        fleet, "cpus", "the same CPUs and memory",
        "Fewer CPUs feed the GPUs more slowly, and less memory ends a run that fits elsewhere.",
        "Ask for whole nodes (--exclusive --mem=0), or for the same --cpus-per-task and --mem on each.",
        ("scontrol show node {nodes:hosts}",),
    )  # fmt: skip


@check(Severity.INFO, source="https://docs.nvidia.com/networking/software/firmware-downloads/index.html")
def fleet_firmware_differs(fleet: Fleet) -> Answer:
    """Some nodes have other firmware on GPUs or network cards than the others.

    Why: they were maintained at another time, or a part was exchanged. It explains differences in speed and faults that
    only some nodes show.

    Fix: nothing, unless these nodes behave otherwise.
    """
    return judged(
        fleet, "firmware", "the same firmware",
        "They were maintained at another time; that explains faults that only some nodes show.",
        "Nothing, unless these nodes behave otherwise.",
    )  # fmt: skip
