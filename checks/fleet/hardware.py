"""Do all nodes have the same hardware?"""

from __future__ import annotations

from mgpu.check import Answer, Severity, check
from mgpu.snapshot import Fleet

from ._families import judge
from ._ways import ON_NODES

_QUERY = f"{ON_NODES} nvidia-smi --format=csv --query-gpu="


@check(Severity.ERROR, source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html")
def fleet_gpu_model_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different GPU model.

    Why: Every step waits for the slower GPUs, and a model that fits on one may not fit on the other.
    More: NCCL may also choose different algorithms on them.

    Fix: Request one GPU type: #SBATCH --gpus-per-node=TYPE:N, or a --constraint of your site.
    """
    return judge(fleet, "gpu_model", "same GPU model", f"{ON_NODES} nvidia-smi -L")


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/xid-error_summary/index.html")
def fleet_gpu_count_differs(fleet: Fleet) -> Answer:
    """Some nodes have a different number of GPUs.

    Why: A rank without a GPU fails at once, and all other ranks wait for it in the first collective.
    More: The GPU fell off the bus (Xid 79), was not allocated, or is hidden. The launcher starts the same number of
    ranks on every node.

    Fix: List the GPUs there, and look in the kernel log for a GPU that fell off the bus (Xid 79).
    More: Exclude the node.
    """
    return judge(
        fleet, "gpu_count", "same number of GPUs", f"{ON_NODES} nvidia-smi -L", f"{ON_NODES} mgpu doctor --quick"
    )


@check(Severity.ERROR, source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/")
def fleet_gpu_memory_differs(fleet: Fleet) -> Answer:
    """On some nodes, GPUs of the same model have a different amount of memory.

    Why: The rank with the least memory runs out of it in a run that fits everywhere else.
    More: Possible reasons are another variant of the model, a MIG or vGPU slice, or ECC, which uses part of the memory.

    Fix: Compare the MIG and ECC settings with those of the other nodes.
    More: Make them equal, or exclude the nodes.
    """
    return judge(fleet, "gpu_memory", "same GPU memory", f"{_QUERY}name,memory.total,ecc.mode.current,mig.mode.current")


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/nvidia-smi/index.html")
def fleet_gpu_settings_differ(fleet: Fleet) -> Answer:
    """GPU settings differ on some nodes: power limit, clocks, ECC, MIG or modes.

    Why: Every step waits for the slowest rank: one node with slower settings slows all nodes.
    More: A lower power limit or fixed clocks are enough.

    Fix: Have an administrator apply the settings of the other nodes (nvidia-smi -pl, -rgc, -e, -mig).
    """
    return judge(
        fleet,
        "gpu_settings",
        "same GPU settings",
        f"{_QUERY}power.limit,clocks.max.sm,ecc.mode.current,mig.mode.current",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html")
def fleet_gpu_links_differ(fleet: Fleet) -> Answer:
    """GPU connections differ on some nodes: NVLink, fabric or PCIe.

    Why: The ring through all nodes is as fast as its slowest link.
    More: Links are down, the fabric manager is not running, or a slot has fewer lanes.

    Fix: Check the links there, and contact an administrator.
    More: The node may need a reset.
    """
    return judge(
        fleet,
        "gpu_links",
        "same GPU links",
        f"{ON_NODES} nvidia-smi topo -m",
        f"{ON_NODES} nvidia-smi nvlink --status",
    )


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html")
def fleet_gpu_health_differs(fleet: Fleet) -> Answer:
    """GPUs on some nodes report a different health state.

    Why: The GPU still works, but may fail in the middle of a run.
    More: Row remapping or a repair is pending until a reset, or a recovery is requested.

    Fix: Run mgpu doctor there.
    """
    return judge(fleet, "gpu_health", "same GPU health state", f"{ON_NODES} mgpu doctor --quick")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/2428")
def fleet_network_cards_differ(fleet: Fleet) -> Answer:
    """Network adapters differ on some nodes, or are down.

    Why: The slowest adapter limits all nodes. Adapters that only some nodes have can cause a hang.
    More: NCCL pairs the adapters of each node with those of the next: one that is missing, down, slower or has
    another MTU slows all nodes. With NCCL_IGNORE_NET_MISMATCH, the ranks hang.

    Fix: Check the ports there. Use NCCL_IB_HCA and NCCL_SOCKET_IFNAME to select those that all nodes have.
    More: Or exclude the node.
    """
    return judge(fleet, "network_cards", "same network adapters", f"{ON_NODES} ibstat -s", f"{ON_NODES} ip -br link")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1136")
def fleet_cpus_differ(fleet: Fleet) -> Answer:
    """Some nodes have different CPUs or a different amount of memory.

    Why: Fewer CPUs feed the GPUs more slowly, and with less memory a run fails that fits elsewhere.
    More: NCCL tunes itself for the CPU vendor, and has hung on a mix of nodes from two vendors.

    Fix: Request whole nodes (--exclusive --mem=0), or the same --cpus-per-task and --mem on each.
    """
    return judge(fleet, "cpus", "same CPUs and memory", "scontrol show node {nodes:hosts}")


@check(Severity.INFO, source="https://docs.nvidia.com/networking/software/firmware-downloads/index.html")
def fleet_firmware_differs(fleet: Fleet) -> Answer:
    """GPU or network adapter firmware differs on some nodes.

    Why: They were updated at different times, which can explain faults that only some nodes have.
    More: Or a part was replaced. It can also explain differences in speed.

    Fix: Nothing, unless these nodes behave differently.
    """
    return judge(fleet, "firmware", "same firmware")
