"""Known faults of NCCL's releases and of the driver, each with its source.

Read in NVIDIA's release notes and tags, or confirmed in the linked thread by a maintainer or by a bisection of the
released wheels.
"""

from __future__ import annotations

from ._faults import Fault

_TAG = "https://github.com/NVIDIA/nccl/releases/tag/"
_LL128 = "export NCCL_PROTO=^LL128"

# fmt: off
NCCL_FAULTS: tuple[Fault, ...] = (
    # The slot-return path got a weak compare-exchange in 2.28.9 (src/proxy.cc; 2.28.7 still had a strong one).
    Fault(
        "nccl", ">=2.28.9,<2.29.3",
        "Proxy slots leak on ARM until one rank waits for a slot indefinitely: GPUs at 100 %, no error, no timeout.",
        "2.29.3", "https://github.com/marin-community/marin/issues/7344", "2026-11", machine="aarch64",
    ),
    Fault(
        "nccl", "<2.28.9",
        "The main thread and the proxy thread see each other's writes in another order: runs hang at large scale.",
        "2.29.3", "https://github.com/NVIDIA/nccl/issues/2353", "2026-11", machine="aarch64", several_nodes=True,
    ),
    Fault(
        "nccl", "==2.31.2",
        "A receiving proxy erases the flag of a later registered operation: silent hang, GPUs at 100 %.",
        None, "https://github.com/NVIDIA/nccl/issues/2389", "2026-11", several_nodes=True,
        use="collectives captured in CUDA graphs", stopgap="export NCCL_GRAPH_REGISTER=0",
    ),
    Fault(
        "nccl", "<2.29.2",
        "Hangs if GPU Direct RDMA is turned off on GB200 or GB300 with ConnectX-8.",
        "2.29.2", f"{_TAG}v2.29.2-1", "2026-11", gpus=r"\bGB[23]00\b", several_nodes=True,
        use="NCCL_NET_GDR_LEVEL=LOC",
    ),
    Fault(
        "nccl", ">=2.30.3,<2.30.4",
        "Hangs on GB200 if the GPUs of a group are not contiguous.",
        "2.30.4", "https://github.com/NVIDIA-NeMo/RL/pull/3351", "2026-11", gpus=r"\bGB200\b",
    ),
    Fault(
        "nccl", ">=2.25,<2.26",
        "The kernels need more shared memory than this GPU has: the first collective fails.",
        "2.26.2", "https://github.com/NVIDIA/nccl/issues/1637", "2026-11", compute=((12, 0), (12, 1)),
    ),
    Fault(
        "nccl", ">=2.25,<2.26",
        "ncclCommAbort hangs: when a rank fails, the others do not exit, and the job hangs.",
        "2.26.2", "https://github.com/pytorch/pytorch/issues/149153", "2026-11",
    ),
    Fault(
        "nccl", "<2.26.2",
        "Ranks on different GPU architectures can choose different algorithms: a collective hangs.",
        "2.26.2", f"{_TAG}v2.26.2-1", "2026-11", mixed_gpus=True,
    ),
    Fault(
        "nccl", "<2.22.3",
        "Hangs if the nodes have CPUs of different kinds.",
        "2.22.3", "https://github.com/NVIDIA/nccl/issues/1136", "2026-11", several_nodes=True,
        use="nodes with different CPUs",
    ),
    Fault(
        "nccl", ">=2.20.5,<2.22.3",
        "The queue of the kernels leaks entries: after many graph launches, all ranks hang.",
        "2.22.3", "https://github.com/NVIDIA/nccl/issues/1251", "2026-11", use="collectives captured in CUDA graphs",
    ),
    Fault(
        "nccl", ">=2.20.3,<2.20.5",
        "ncclCommSplit fails to connect (Unix socket).",
        "2.20.5", f"{_TAG}v2.20.5-1", "2026-11", use="process groups that are split (device_id=, HSDP)",
    ),
    Fault(
        "nccl", ">=2.19,<2.20.3",
        "Connecting the ranks for all-to-all deadlocks.",
        "2.20.3", "https://github.com/NVIDIA/nccl/issues/1116", "2026-11", several_nodes=True,
        use="all-to-all (mixture of experts)", stopgap="export NCCL_CUMEM_ENABLE=0",
    ),
    Fault(
        "nccl", ">=2.18,<2.18.3",
        "Tree with LL128 corrupts data if each GPU has its own network adapter.",
        "2.18.3", "https://github.com/NVIDIA/nccl/commit/ea38312273e5b9a19a224c9ff4c10b7fcf441eaf", "2026-11",
        several_nodes=True, stopgap=_LL128,
    ),
    Fault(
        "nccl", ">=2.12,<2.18.1",
        "Send and receive with unequal sizes (alltoallv) hang.",
        "2.18.1", "https://github.com/NVIDIA/nccl/issues/788", "2026-11", several_nodes=True,
        use="all-to-all with unequal sizes",
    ),
    Fault(
        "nccl", "<2.15.5",
        "All-reduce between two H100 GPUs hangs (Ring with LL128).",
        "2.15.5", "https://github.com/NVIDIA/nccl/commit/cb111f764a6d46370f24f75101d6b219bb2dda54", "2026-11",
        gpus="H100", gpu_count=2, stopgap=_LL128,
    ),
)

DRIVER_FAULTS: tuple[Fault, ...] = (
    Fault(
        "driver", ">=525,<525.105.17",
        "Calls to the GPU's firmware time out (Xid 119), and the GPU needs a reset.",
        "525.105.17", "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/446", "2026-11", gsp=True,
    ),
    Fault(
        "driver", "<570.133.20",
        "NVIDIA supports HGX B200 from 570.133.20 on.",
        "570.133.20", "https://github.com/NVIDIA/cloud-native-docs/pull/184", "2026-11", gpus=r"\bB200\b",
    ),
)
# fmt: on
