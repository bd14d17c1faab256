"""A healthy machine as literals, and cases: what one check answers when some of its facts are changed.

`fails("shm_too_small", "/dev/shm is 64 MiB", "--shm-size", system=system(shm_total_bytes=64 * MIB))` reads: on the
healthy machine with this `system`, the check fails, its title has these words, and a fix has those.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mgpu import engine
from mgpu.check import Check, Ok, Problem, Skip
from mgpu.config import reading
from mgpu.engine import Outcome, Status
from mgpu.snapshot import (
    FACTS,
    Baseline,
    Batch,
    Call,
    Checksum,
    Collective,
    Config,
    Container,
    DeepSpeedJson,
    Driver,
    EndedRank,
    Fleet,
    Folder,
    Gpu,
    GpuProcess,
    GpuRun,
    GpuWork,
    Hang,
    HangRank,
    HcaPort,
    Host,
    InfiniBand,
    Interface,
    JobScript,
    Kernel,
    KernelEvent,
    KernelLog,
    Leftovers,
    Libraries,
    Library,
    Link,
    LoaderVerdict,
    LocalRules,
    Log,
    Loss,
    Master,
    Measurement,
    Nccl,
    NcclLibrary,
    NcclLine,
    NcclLog,
    Network,
    NvLink,
    NvmlWait,
    OptimizerStep,
    Pci,
    PciDevice,
    PeerCopy,
    Plan,
    Python,
    Pytorch,
    Rank,
    Ranks,
    Rehearsal,
    RehearsedLoader,
    RehearsedOptimizer,
    RehearsedRank,
    Run,
    SavedCheckpoint,
    Script,
    Slurm,
    Snapshot,
    StackFrame,
    Stamp,
    Step,
    Storage,
    System,
    Timeline,
    TorchDevice,
    TorchRuntime,
    Visible,
    WaivedCheck,
    Wrapper,
)
from tests.conftest import CHECKS

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

MIB, GIB = 1 << 20, 1 << 30


def uuid(index: int) -> str:
    return f"GPU-{index}a1b2c3d-0000-4000-8000-0123456789ab"


def nvlinks(active: int, down: int = 0, remote: Literal["gpu", "switch"] = "switch") -> tuple[NvLink, ...]:
    up = tuple(NvLink(n, True, remote, None, 26562, 0) for n in range(active))
    return up + tuple(NvLink(active + n, False, "unknown", None) for n in range(down))


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """A healthy H100 of an 8-GPU NVSwitch board."""
    healthy = Gpu(
        index=index,
        uuid=uuid(index),
        name="NVIDIA H100 80GB HBM3",
        pci=f"00000000:{0x1A + index:02X}:00.0",
        compute_capability=(9, 0),
        memory_total_bytes=80 * GIB,
        memory_used_bytes=600 * MIB,
        memory_free_bytes=80 * GIB - 600 * MIB,
        numa_node=index // 2,
        cpus_near="0-47",
        temperature_c=34,
        temperature_slowdown_c=87,
        power_w=71.5,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        utilization_percent=0,
        clock_event_reasons=1,  # idle
        persistence_mode=True,
        compute_mode=0,
        mig_mode=False,
        mig_mode_pending=False,
        ecc_enabled=True,
        ecc_pending=True,
        ecc_uncorrected_volatile=0,
        ecc_uncorrected_aggregate=0,
        rows_remapped_uncorrectable=0,
        rows_remap_pending=False,
        rows_remap_failed=False,
        retired_pages_pending=False,
        serial=f"16519230123{45 + index}",
        minor=index,
        virtualization=0,
        memory_reserved_bytes=551 * MIB,
        bar1_total_bytes=128 * GIB,
        bar1_used_bytes=8 * MIB,
        ecc_corrected_volatile=0,
        ecc_sram_threshold_exceeded=False,
        rows_banks_without_spare=0,
        retired_pages=0,
        repair_pending=False,
        memory_unrepairable=False,
        inforom_valid=True,
        memory_temperature_c=40,
        memory_temperature_max_c=95,
        temperature_max_c=86,
        temperature_margin_c=53,
        sm_clock_mhz=345,
        sm_clock_max_mhz=1980,
        application_clock_mhz=1980,
        application_clock_default_mhz=1980,
        performance_state=0,
        display_active=False,
        vbios="96.00.89.00.01",
        gsp_firmware="580.65.06",
        pcie_width=16,
        pcie_width_max=16,
        pcie_generation=5,
        pcie_replays=0,
        pcie_generation_max=5,
        pcie_generation_max_gpu=5,
        recovery_action=0,
        fabric_state=3,
        fabric_status=0,
        fabric_health_mask=0,
        fabric_clique=0,
        c2c_enabled=False,
        nvlinks=nvlinks(18),
        processes=(),
    )
    return replace(healthy, **changes)


def lost(index: int, why: str = "GPU_IS_LOST") -> Gpu:
    """As the probe leaves a GPU that fell off the bus: nothing but its number is known."""
    return Gpu(index, None, None, None, None, None, None, None, nvlinks=None, lost=why)


def gpus(number: int = 4, *others: Gpu, **changes: Any) -> tuple[Gpu, ...]:
    """Equal GPUs, and others in place of those with the same index."""
    found = {index: gpu(index, **changes) for index in range(number)} | {other.index: other for other in others}
    return tuple(found[index] for index in sorted(found))


def seen(*indices: int, value: str | None = None, **changes: Any) -> Visible:
    return replace(Visible(value, indices, by_number=value is not None), **changes)


def process(**changes: Any) -> GpuProcess:
    """Somebody's training."""
    return replace(GpuProcess(4711, "compute", 30 * GIB, "python", "ada", False), **changes)


def link(a: int, b: int, **changes: Any) -> Link:
    return replace(Link(a, b, "NODE", 18, True, 0, 0, 0, 0), **changes)


def links(number: int = 4, **changes: Any) -> tuple[Link, ...]:
    return tuple(link(a, b, **changes) for a in range(number) for b in range(a + 1, number))


def driver(**changes: Any) -> Driver:
    nodes = ("/dev/nvidia-uvm", "/dev/nvidiactl", *(f"/dev/nvidia{n}" for n in range(4)))
    healthy = Driver(
        None, None, "580.65.06", (13, 0), "13.580.65.06", "580.65.06", 4, nodes, True, (), None, True, 0, None, 0.05
    )  # fmt: skip
    return replace(healthy, **changes)


def no_driver(error: str = "LIBRARY_NOT_FOUND", **changes: Any) -> Driver:
    """NVML does not respond; with LIBRARY_NOT_FOUND and no changes: a machine without any NVIDIA GPU."""
    return replace(Driver(error, "no words", None, None, None, None, 0, (), None), **changes)


def host(**changes: Any) -> Host:
    return replace(Host("node7", "Ubuntu 24.04", "6.8.0-45-generic", "x86_64", False), **changes)


def python(**changes: Any) -> Python:
    own = "/opt/env/bin/python"
    usual = Python(
        own, "3.11.9", own, own, None, "/opt/env/bin/accelerate", own, "venv", "/opt/env",
        (".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so"),
    )  # fmt: skip
    return replace(usual, **changes)


ARCHES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


def pytorch(**changes: Any) -> Pytorch:
    usual = Pytorch(
        True, "2.9.0+cu130", "13.0", None, "/opt/env/lib/torch", ARCHES, "nvidia-nccl-cu13==2.29.7",
        (".cpython-311-x86_64-linux-gnu.so",),
    )  # fmt: skip
    return replace(usual, **changes)


def torch_runtime(count: int = 4, **changes: Any) -> TorchRuntime:
    devices = tuple(TorchDevice(n, "NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB, uuid(n)) for n in range(count))
    mapped = {"nccl": WHEEL.path, "cudart": CUDART.path} if count else {}
    usual = TorchRuntime(
        None, count > 0, None, count, devices, True, "2.29.7", True, 2.5, mapped, "2.29.7" if count else None, "9.13.0"
    )  # fmt: skip
    return replace(usual, **changes)


WHEEL = NcclLibrary("/opt/env/lib/nvidia/nccl/lib/libnccl.so.2", "2.29.7", "wheel")


def nccl(*libraries: NcclLibrary, **changes: Any) -> Nccl:
    return replace(Nccl(libraries or (WHEEL,), {"nvidia-nccl-cu13": "2.29.7"}), **changes)


def system(**changes: Any) -> System:
    usual = System(
        cpus_logical=96,
        cpus_allowed=96,
        cpus_quota=None,
        numa_nodes=2,
        memory_total_bytes=1024 * GIB,
        memory_available_bytes=900 * GIB,
        memory_limit_bytes=None,
        shm_total_bytes=512 * GIB,
        shm_free_bytes=512 * GIB,
        shm_writable=True,
        limit_open_files=65536,
        limit_locked_memory_bytes=None,
        limit_processes=None,
        limit_stack_bytes=8 * MIB,
        tmp_free_bytes=100 * GIB,
        cwd_free_bytes=100 * GIB,
        cwd_writable=True,
        tasks_used=900,
        oom_kills=0,
    )
    return replace(usual, **changes)


BARE = Container(None, False, 2, (), False, None, False)
DOCKER = Container("docker", False, 2, (), True, False, True)
KUBERNETES = Container("kubernetes", False, 2, (), False, None, True)
WSL = Container(None, True, 2, (), False, None, False)


def container(kind: str | None = "docker", **changes: Any) -> Container:
    """A container of some kind, or none."""
    return replace(DOCKER if kind else BARE, **{"kind": kind} | changes)


LO = Interface(
    "lo", True, True, ("127.0.0.1", "::1"), False, 65536, None, "loopback", True, None, True, False, False
)  # fmt: skip
ETH = Interface(
    "eno1", True, False, ("10.20.30.7",), False, 1500, 25_000, "physical", True, True, True, False, True
)  # fmt: skip
BRIDGE = replace(ETH, name="docker0", addresses=("172.17.0.1",), virtual=True, speed_mbit_per_s=None, kind="bridge")


def network(**changes: Any) -> Network:
    usual = Network(
        "node7", ("10.20.30.7",), None, True, (LO, ETH, BRIDGE), 29500, False, None, default_routes=("eno1",), pdsh=True
    )
    return replace(usual, **changes)


def master(**changes: Any) -> Master:
    """The first of two machines, seen from the other."""
    usual = Master("node1", "MASTER_ADDR", ("10.20.30.1",), None, False, "eno1")
    return replace(usual, **changes)


def slurm(**changes: Any) -> Slurm:
    usual = Slurm(
        "4242", 1, 0, "1", 4, True, on_allocated_node=True, step_id="0", job_gpus="0,1,2,3", cpus_per_task=96,
        cpus_on_node=96, local_id=0, seconds_left=86400.0,
    )  # fmt: skip
    return replace(usual, **changes)


YAML = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 1
num_processes: 4
mixed_precision: bf16
"""


def config(text: str = YAML, **changes: Any) -> Config:
    """A config file as the reader understands it, positions included."""
    values, marks, scalars, faults = reading.parse(textwrap.dedent(text))
    asked = LoaderVerdict(True, None, "1.15.0")
    return replace(Config("mgpu.yaml", "0" * 64, values, marks, faults, asked, scalars=scalars), **changes)


RUNGS = ("start", "collectives", "train")  # three of the nine


def rank(number: int, **changes: Any) -> Rank:
    """A rank that passed every rung."""
    usual = Rank(
        number,
        local_rank=number,
        host="node7",
        pid=5000 + number,
        device=f"cuda:{number}",
        gpu_uuid=uuid(number),
        world_size=2,
        accelerate_world_size=2,
        steps=tuple(Step(rung, True) for rung in RUNGS),
        last_word="step 20 of 20",
        last_word_order=99,
        gpu_name="NVIDIA H100 80GB HBM3",
        gpu_pci=f"0000:{0x1A + number:02x}:00.0",
        numa_node=number // 2,
        cpus="0-47",
        computed={"fp32": "c0ffee", "bf16": "decaf"},
        parameters="feed",
        finished=True,
    )
    return replace(usual, **changes)


def waiting(number: int, **changes: Any) -> Rank:
    """A rank that waits in the training steps."""
    stuck = rank(
        number,
        steps=(Step("start", True), Step("collectives", True), Step("train", None)),
        last_word="step 7 of 20",
        last_word_order=27,
        computed={},
        parameters=None,
        finished=False,
        process_state="sleeping",
        silent_s=0.1,
    )
    return replace(stuck, **changes)


def ranks(*members: Rank, **changes: Any) -> Ranks:
    members = members or (rank(0), rank(1))
    return replace(Ranks(len(members), RUNGS, members, "finished", 0, 10.0), **changes)


def nccl_log(**changes: Any) -> NcclLog:
    """What NCCL says on two GPUs of one NVSwitch machine."""
    usual = NcclLog(
        version="2.29.7+cuda13.0", interfaces=("eth0:10.0.0.7",), network="Socket",
        connections=(NcclLine(0, 1, "P2P/CUMEM"), NcclLine(1, 0, "P2P/CUMEM")), channels=24, trees=True, nvls=False,
        cumem=True,
    )  # fmt: skip
    return replace(usual, **changes)


def baseline(**changes: Any) -> Baseline:
    """An earlier result of the same machine."""
    return replace(Baseline(".mgpu/runs/smoke-6/smoke.json", "2026-11-01T10:00:00Z", True), **changes)


NOW = {"config": "aaaa", "driver": "580.65.06", "nccl": "2.29.7"}


def stamp(**changes: Any) -> Stamp:
    return replace(Stamp(NOW, "2026-11-20", NOW, RUNGS), **changes)


def pci_device(index: int = 0, **changes: Any) -> PciDevice:
    """The H100 `index` on the bus, under a switch of its own."""
    usual = PciDevice(
        f"0000:{0x1A + index:02x}:00.0", "gpu", "10de", "2330", "nvidia", True, index // 2, "0-47", None, None, None,
        None, (f"pci0000:{0x15 + index:02x}", f"0000:{0x15 + index:02x}:01.0"), False, 0, cpus_near_usable=48,
        pci_class="030200",
    )  # fmt: skip
    return replace(usual, **changes)


def nic(index: int = 0, **changes: Any) -> PciDevice:
    """The network card beside GPU `index`."""
    usual = replace(
        pci_device(index), address=f"0000:{0x5A + index:02x}:00.0", kind="nic", vendor="15b3", device="1021",
        driver="mlx5_core", names=(f"mlx5_{index}",), width=16, width_max=16, speed_gt_per_s=32.0,
        speed_max_gt_per_s=32.0, pci_class="020700",
    )  # fmt: skip
    return replace(usual, **changes)


def pci(*devices: PciDevice, **changes: Any) -> Pci:
    devices = devices or (*(pci_device(n) for n in range(4)), *(nic(n) for n in range(4)))
    return replace(Pci(devices, True, 4, "intel", "580.65.06"), **changes)


def hca(index: int = 0, **changes: Any) -> HcaPort:
    usual = HcaPort(
        f"mlx5_{index}", 1, "InfiniBand", "ACTIVE", None, 400.0, 4, firmware="28.39.1002", board="MT_0000000838",
        pci=f"0000:{0x5A + index:02x}:00.0", numa_node=index // 2, interfaces=(f"ib{index}",), link_downed=0,
    )  # fmt: skip
    return replace(usual, **changes)


def infiniband(*ports: HcaPort, **changes: Any) -> InfiniBand:
    ports = ports or tuple(hca(n) for n in range(4))
    nodes = tuple(f"/dev/infiniband/uverbs{n}" for n in range(len(ports)))
    return replace(InfiniBand(ports, nodes, (), True, 864000.0), **changes)


NO_INFINIBAND = InfiniBand(())


def kernel(**changes: Any) -> Kernel:
    usual = Kernel(
        modules=("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem", "ib_core", "ib_uverbs", "mlx5_core"),
        driver_flavour="open",
        command_line="",
        iommu="off",
        dmesg_restricted=False,
        overcommit_memory=0,
        port_range=(32768, 60999),
        files_used=4096,
        files_max=9_223_372_036_854_775_807,
        cpus_online=96,
        cpus_present=96,
        cpu_governor="performance",
        load_1min=0.4,
        swap_used_bytes=0,
        remove_ipc=False,
        cpu_driver="intel_pstate",
        smt="on",
        secure_boot=False,
        reserved_ports="",
        committed_bytes=40 * GIB,
        commit_limit_bytes=520 * GIB,
        peer_options=(),
    )
    return replace(usual, **changes)


def event(kind: str = "xid", code: int | None = 79, **changes: Any) -> KernelEvent:
    usual = KernelEvent("xid", code, "0000:1a:00", "python (pid 4711)", 120.0, f"NVRM: Xid (PCI:0000:1a:00): {code}")
    return replace(usual, **{"kind": kind} | changes)


def kernel_log(*events: KernelEvent, **changes: Any) -> KernelLog:
    return replace(KernelLog("/dev/kmsg", events, 86400.0), **changes)


def folder(role: str = "current", path: str = "/work/run", **changes: Any) -> Folder:
    usual = Folder(
        "current", path, True, "ext4", "/", 1000 * GIB, 500 * GIB, 60_000_000, True, False, 0.0001, None
    )  # fmt: skip
    return replace(usual, **{"role": role} | changes)


def storage(*folders: Folder, **changes: Any) -> Storage:
    usual = (
        folder(),
        folder("temporary", "/tmp"),
        folder("home", "/home/ada"),
        folder("hf_cache", "/home/ada/.cache/huggingface/hub"),
        folder("torch_cache", "/home/ada/.cache/torch"),
        folder("triton_cache", "/home/ada/.triton/cache"),
        folder("inductor_cache", "/tmp/torchinductor_ada"),
        folder("extensions", "/home/ada/.cache/torch_extensions"),
    )
    found = {one.role: one for one in usual} | {one.role: one for one in folders}
    return replace(Storage(tuple(found.values()), 3), **changes)


def leftovers(**changes: Any) -> Leftovers:
    return replace(Leftovers((), (), True), **changes)


LIBCUDA = Library("cuda", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", "system", "580.65.06", True)
CUDART = Library("cudart", "/opt/env/lib/nvidia/cu13/lib/libcudart.so.13", "wheel")


def libraries(*found: Library, **changes: Any) -> Libraries:
    """The libraries of the wheels and the driver; `found` take the place of those with the same name, or join them."""
    names = {one.name for one in found}
    usual = Libraries(
        (*(one for one in (LIBCUDA, CUDART) if one.name not in names), *found),
        {"nvidia-nccl-cu13": "2.29.7", "nvidia-cudnn-cu13": "9.13.0.50"},
        cuda_home="/usr/local/cuda",
        nvcc="13.0",
        compiler="13",
        ninja="1.13.0",
        nvcc_path="/usr/local/cuda/bin/nvcc",
        c_compiler="13",
        requires={
            "torch": ("python>=3.10", "nvidia-cudnn-cu13==9.13.0.50", "nvidia-nccl-cu13==2.29.7"),
            "accelerate": ("python>=3.10", "torch>=2.0.0"),
        },
    )
    return replace(usual, **changes)


def gpu_run(index: int = 0, **changes: Any) -> GpuRun:
    """An H100 that did all that `--deep` asks of it."""
    others = tuple(PeerCopy(other, True, True) for other in range(4) if other != index)
    usual = GpuRun(
        index=index,
        uuid=uuid(index),
        ended="done",
        stage="peers",
        model="NVIDIA H100 80GB HBM3",
        multiprocessors=132,
        seconds=6.2,
        cuda_version=(13, 0),
        libcuda="/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06",
        memory_free_bytes=79 * GIB,
        memory_intact=True,
        results={"fp32": "c0ffee", "bf16": "beef", "fp16": "feed"},
        nccl_path=WHEEL.path,
        nccl_version="2.29.7",
        peers=others,
    )
    return replace(usual, **changes)


def gpu_runs(number: int = 4, *others: GpuRun) -> tuple[GpuRun, ...]:
    found = {index: gpu_run(index) for index in range(number)} | {other.index: other for other in others}
    return tuple(found[index] for index in sorted(found))


def script(**changes: Any) -> Script:
    """A script in which nothing is wrong."""
    return replace(Script("train.py"), **changes)


def job_script(**changes: Any) -> JobScript:
    """A job script in which nothing is wrong: it starts nothing."""
    return replace(JobScript("job.sbatch", lines=2, shebang="#!/bin/bash"), **changes)


def log(**changes: Any) -> Log:
    """The log of a run in which nothing went wrong."""
    return replace(Log(("run.log",), 4_000, 60, ranks=(0, 1, 2, 3)), **changes)


def run(**changes: Any) -> Run:
    """A run of four ranks that ended well."""
    ended = tuple(EndedRank(rank, 0, local_rank=rank, host="node7", pid=4000 + rank, gpu=rank) for rank in range(4))
    work = tuple(
        GpuWork(rank, uuid(rank), rank, (4000 + rank,), 3600, 93.0, 0.99, 60 << 30, 80 << 30) for rank in range(4)
    )
    good = Run(
        0, 0, 3661.0, ranks=ended, expected=4, oom_kills=0, memory_total_bytes=512 << 30,
        memory_lowest_bytes=300 << 30, xids=(), killed=(), gpus=work, gpus_after_s=1.0, log=".mgpu/runs/20261121-1012",
    )  # fmt: skip
    return replace(good, **changes)


NODES = ("n1", "n2", "n3", "n4")


def checksum(value: float) -> Checksum:
    return Checksum(value, abs(value), 2 * value)


def rehearsed_step(number: int, *gradients: float, **changes: Any) -> OptimizerStep:
    """A step of 10 ms. Without gradients: the same on every rank."""
    found = tuple(map(checksum, gradients or (0.5 * number, 0.25)))
    usual = OptimizerStep(
        number, found, 0.1, 1, line="/run/train.py:31", backward_line="/run/train.py:30", step_s=0.01, loader_s=0.001,
        backward_s=0.004, optimizer_s=0.001, saving_s=0.0, samples=4,
    )  # fmt: skip
    return replace(usual, **changes)


def rehearsed_optimizer(*steps: OptimizerStep, **changes: Any) -> RehearsedOptimizer:
    usual = RehearsedOptimizer(
        "SGD", 2, wrapped=2, names=("weight", "bias"), shapes=("2x8", "2"), start=(checksum(1.0), checksum(0.5)),
        line="/run/train.py:31", steps=steps or tuple(map(rehearsed_step, range(1, 5))),
    )  # fmt: skip
    return replace(usual, **changes)


def batches(first: int, number: int = 4, epoch: int = 0) -> tuple[Batch, ...]:
    """Batches of two samples that differ from those with another `first`."""
    found = range(first, first + number)
    return tuple(Batch(n, epoch, f"b{place}", (f"s{place}", f"t{place}"), 2) for n, place in enumerate(found))


def rehearsed_loader(first: int = 0, **changes: Any) -> RehearsedLoader:
    """A loader whose two passes of four batches have different orders. `first`: its first sample."""
    both = (*batches(first), *tuple(replace(one, epoch=1) for one in batches(first + 1, 3)))
    usual = RehearsedLoader(
        "Images", 16, 4, 2, "DistributedSampler", "BatchSampler", 2, True, line="/run/train.py:28", trains=True,
        epochs=(0, 1), delivered=(4,), batches=both,
    )  # fmt: skip
    return replace(usual, **changes)


def rehearsed_rank(number: int, *loaders: RehearsedLoader, **changes: Any) -> RehearsedRank:
    """A rank that made all its steps."""
    usual = RehearsedRank(
        number, 6000 + number, 2, 2, "gloo", group_line="/run/train.py:4",
        wrappers=(Wrapper("DDP", 2, 2, True, "/run/train.py:20"),), optimizers=(rehearsed_optimizer(),),
        losses=tuple(Loss(0.7, line="/run/train.py:30") for _ in range(4)),
        loaders=loaders or (rehearsed_loader(10 * number),), calls=(Call("all_reduce", "2", "float32", 2),),
        checkpoints=(SavedCheckpoint("/run/model.pt", True),) if number == 0 else (),
        random_states={"torch": f"r{number}"}, reached=True, ended=True,
    )  # fmt: skip
    return replace(usual, **changes)


def measurement(**changes: Any) -> Measurement:
    """A script measured on two GPUs: 10 GiB between steps, 8 GiB more at the peak with a batch of 8."""
    usual = Measurement(
        "train.py", "5c71", "a45", 2, False, 20, 0.1, 0.002, 0.01, 0.06, 0.005, 0.015, 0.01, 160.0, 8,
        static_bytes=10 * GIB, peak_bytes=18 * GIB, reserved_bytes=19 * GIB, host_bytes=3 * GIB, precision="bf16",
        strategy="MULTI_GPU", taken="2026-11-20T10:00:00Z", run=".mgpu/runs/smoke-1",
    )  # fmt: skip
    return replace(usual, **changes)


def rehearsal(*ranks: RehearsedRank, **changes: Any) -> Rehearsal:
    """A script that made all its steps. Without ranks: on two."""
    usual = Rehearsal(
        "train.py", 4, 2, "stopped", ranks or (rehearsed_rank(0), rehearsed_rank(1)), True, "torchrun", 0, 9.5, 300.0,
        log=".mgpu/runs/smoke-1/script.log", folder="/run", own_folder="/run/.mgpu/runs/smoke-1",
    )  # fmt: skip
    return replace(usual, **changes)


def local_rules(**changes: Any) -> LocalRules:
    """One waiver that counts, and one plug-in."""
    waiver = WaivedCheck("gpu_busy", "ticket 4711", "2027-01-31", 4, True)
    return replace(LocalRules("/work/run/pyproject.toml", "2026-11-23", (waiver,), ("site_disks",)), **changes)


def fleet(**changes: Any) -> Fleet:
    """Four nodes that are alike, and were all asked at once."""
    good = Fleet(
        NODES, clock_offsets_s=dict.fromkeys(NODES, 0.0), unshared={}, compared=250,
        roles={"4 x NVIDIA H100 80GB HBM3": NODES}, known=(*sorted(FACTS), "files"),
    )  # fmt: skip
    return replace(good, **changes)


@cache
def frame(text: str = "", function: str = "train", *, file: str = "/home/me/train.py", line: int = 31) -> StackFrame:
    """A frame of the user's own script, or of a library."""
    return StackFrame(file, line, function, text, "/site-packages/" in file)


IN_TORCH = frame(function="all_reduce", file="/v/site-packages/torch/distributed/distributed_c10d.py", line=3245)


def hang_rank(rank: int = 0, *frames: StackFrame, **changes: Any) -> HangRank:
    """A rank that is asked twice: without frames, it computes."""
    stack = frames or (frame("loss = step(x)"),)
    usual = HangRank(rank, 4000 + rank, "sleeping", False, False, None, None, stack, False, None, 20, 31.0)
    return replace(usual if frames else replace(usual, busy=True, state="running"), **changes)


def waits(rank: int, *collectives: Collective, **changes: Any) -> HangRank:
    """A rank that waits in a collective."""
    return hang_rank(rank, IN_TORCH, frame("dist.all_reduce(x)", line=35), collectives=collectives, **changes)


def hang(*ranks: HangRank, **changes: Any) -> Hang:
    """A run without progress for 45 s. Without ranks: two that compute."""
    found = ranks or (hang_rank(0), hang_rank(1))
    return replace(Hang(45.0, 2.0, found, len(found), len(found), 1800.0, "gloo"), **changes)


@cache
def _healthy() -> dict[str, Any]:
    """Made once: no fact of a snapshot can be changed."""
    return {
        "host": host(),
        "python": python(),
        "driver": driver(),
        "gpus": gpus(),
        "links": links(),
        "nvml_wait": NvmlWait(None),
        "env": {},
        "pytorch": pytorch(),
        "torch_runtime": torch_runtime(),
        "nccl": nccl(),
        "packages": {"torch": "2.9.0", "accelerate": "1.15.0"},
        "system": system(),
        "container": BARE,
        "network": network(),
        "slurm": slurm(),
        "pci": pci(),
        "infiniband": infiniband(),
        "kernel": kernel(),
        "kernel_log": kernel_log(),
        "storage": storage(),
        "leftovers": leftovers(),
        "libraries": libraries(),
        "gpu_runs": gpu_runs(),
        "plan": Plan(),
        "config": config(),
        "deepspeed_json": (DeepSpeedJson("ds.json", {"zero_optimization": {"stage": 2}}),),
        "ranks": ranks(),
        "rehearsal": rehearsal(),
        "nccl_log": nccl_log(),
        "baseline": baseline(),
        "stamp": stamp(),
        "script": script(),
        "job_script": job_script(),
        "log": log(),
        "run": run(),
        "hang": hang(),
        "fleet": fleet(),
        "local_rules": local_rules(),
        "timeline": Timeline("run-1", "2026-11-20T10:00:00Z", 60.0),
    }


def facts(**changes: Any) -> dict[str, Any]:
    """Every fact of a healthy machine with four H100s, some of them changed."""
    healthy = _healthy() | changes
    healthy.setdefault("visible", seen(*(gpu.index for gpu in healthy["gpus"] or ())))
    assert set(healthy) == set(FACTS), "a new fact needs a healthy value here"
    return healthy


@dataclass(frozen=True)
class Case:
    """What one check answers to some facts."""

    check: str
    status: Status
    words: str  # in the title, the evidence of an Ok, or the reason of a Skip
    fix: str | None = None  # in a command or the text of a fix
    at: tuple[int, int] | None = None  # line and column in the config
    bug: str | None = None  # a known fault of the check: the case is expected to fail until it is mended
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.check}-{self.status}"

    @property
    def asked(self) -> Check:
        return CHECKS[self.check]

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot(**facts(**self.changes))

    def answer(self) -> Outcome:
        outcomes = engine.run_check(self.asked, self.snapshot)
        assert len(outcomes) == 1, outcomes
        return outcomes[0]

    def verify(self) -> None:
        outcome = self.answer()
        answer = outcome.answer
        assert outcome.status == self.status, answer
        if isinstance(answer, Ok):
            assert self.words in answer.evidence
        elif isinstance(answer, Skip):
            assert self.words in answer.reason
        else:
            found = outcome.problem
            assert found is not None
            assert self.words in found.title
            offered = [text for fix in found.fixes for text in (*fix.commands, fix.text)]
            assert self.fix and any(self.fix in text for text in offered), offered
            if self.at is not None:
                assert found.place is not None
                assert (found.place.line, found.place.column) == self.at


def fails(
    check: str, title: str, fix: str, /, *, at: tuple[int, int] | None = None, bug: str | None = None, **changes: Any
) -> Case:
    """The check finds an error."""
    return Case(check, "fail", title, fix, at, bug, changes)


def warns(
    check: str, title: str, fix: str, /, *, at: tuple[int, int] | None = None, bug: str | None = None, **changes: Any
) -> Case:
    """The check warns."""
    return Case(check, "warn", title, fix, at, bug, changes)


def informs(
    check: str, title: str, fix: str, /, *, at: tuple[int, int] | None = None, bug: str | None = None, **changes: Any
) -> Case:
    """The check has something to say that needs no action."""
    return Case(check, "info", title, fix, at, bug, changes)


def well(check: str, evidence: str, /, *, bug: str | None = None, **changes: Any) -> Case:
    """The check answers Ok."""
    return Case(check, "ok", evidence, bug=bug, changes=changes)


def skips(check: str, reason: str, /, *, bug: str | None = None, **changes: Any) -> Case:
    """The check does not look."""
    return Case(check, "skip", reason, bug=bug, changes=changes)


def problem(check: str, /, **changes: Any) -> Problem:
    """The one problem a check finds on the healthy machine with some facts changed."""
    found = Case(check, "fail", "", changes=changes).answer().problem
    assert found is not None
    return found


def table(cases: Iterable[Case]) -> list[ParameterSet]:
    """The cases as parameters of a test."""
    return [
        pytest.param(
            case, id=str(case), marks=[pytest.mark.xfail(strict=True, reason=case.bug)] if case.bug else []
        )
        for case in cases
    ]  # fmt: skip
