"""Which single change makes the failed stage work, and what is therefore the cause?

These checks use the trials of the search: the failed stage, run again with one change.
"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks
from mgpu.text import counted, listed

from .._wording import gpu_list
from ._trials import (
    AS_CONFIGURED,
    evidence,
    failed_at,
    format_groups,
    other_cause,
    repeated_result,
    stopgap,
    subjects,
    working_change,
    working_groups,
)

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_GLOO = "https://docs.pytorch.org/docs/stable/distributed.html"


@check(Severity.ERROR, source=_GLOO)
def variable_breaks_run(ranks: Ranks) -> Answer:
    """The failed stage works without a variable that is set in this shell.

    Why: NCCL, gloo and torch settings from another machine may name an interface, an adapter or a path that this
    one does not have; the ranks then wait for each other, or fail to connect.

    Fix: unset it, also in the shell's startup files, the job script and the container image.
    """
    found = working_change(ranks)
    if found is None or not found.environment or any(found.environment.values()):
        return other_cause(ranks)
    names = tuple(found.environment)
    them, verb = ("it", "breaks") if len(names) == 1 else ("them", "break")
    return Problem(
        f"{listed(names)} {verb} the run ({failed_at(ranks)}): works without {them}",
        f"{repeated_result(ranks)} Nothing else was changed between the failed and the successful run.",
        Fix(
            f"Remove {them} from the environment, and from the files that set {them}.", (shell("unset {:name}", names),)
        ),
        evidence(ranks, found),
        subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def p2p_between_gpus_fails(ranks: Ranks) -> Answer:
    """Direct GPU-to-GPU transfer does not work: the failed stage works with NCCL_P2P_DISABLE=1.

    Why: Data that one GPU writes into another GPU's memory does not arrive. Usual causes: IOMMU or ACS in the BIOS,
    a virtual machine, or consumer cards without peer access.
    More: The driver reports that the GPUs can access each other's memory.

    Fix: Disable PCIe ACS, and the IOMMU or its translation (kernel parameter iommu=pt).
    More: Until then, disable direct transfers.
    """
    found = working_change(ranks)
    if found is None or found.environment.get("NCCL_P2P_DISABLE") != "1":
        return other_cause(ranks)
    groups = working_groups(ranks)
    between = f" between GPUs {format_groups(groups)}" if len(groups) > 1 else ""
    return Problem(
        f"direct GPU-to-GPU transfer{between} does not work ({failed_at(ranks)}): works with NCCL_P2P_DISABLE=1",
        fix=(
            commands("mgpu doctor --only pcie", who="admin"),
            stopgap(found, "slower: all data goes through host memory"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def shared_memory_transport_fails(ranks: Ranks) -> Answer:
    """NCCL's shared memory does not work: the failed stage works with NCCL_SHM_DISABLE=1.

    Why: NCCL keeps its buffers between ranks of one node in /dev/shm.
    More: It is full or too small (64 MiB in a container by default), or the container blocks NUMA calls that NCCL's
    host buffers need.

    Fix: Free space in /dev/shm; a container needs --shm-size or --ipc=host.
    More: Remove files left by earlier runs.
    """
    found = working_change(ranks)
    if found is None or found.environment.get("NCCL_SHM_DISABLE") != "1":
        return other_cause(ranks)
    return Problem(
        f"NCCL's shared memory does not work ({failed_at(ranks)}): works with NCCL_SHM_DISABLE=1",
        fix=(
            commands("df -h /dev/shm", "ls -l /dev/shm"),
            stopgap(found, "slower: ranks without a direct path communicate over the network"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def infiniband_transport_fails(ranks: Ranks) -> Answer:
    """InfiniBand or RoCE does not work: the failed stage works with NCCL_IB_DISABLE=1.

    Why: NCCL finds adapters with an active port, but data sent over them does not arrive.
    More: A port has no subnet manager or the wrong GID, the locked-memory limit is too low, or adapters of
    different fabrics have the same name.

    Fix: Check the ports, the locked-memory limit and the GIDs.
    More: Select the right adapters with NCCL_IB_HCA.
    """
    found = working_change(ranks)
    if found is None or found.environment.get("NCCL_IB_DISABLE") != "1":
        return other_cause(ranks)
    return Problem(
        f"InfiniBand (or RoCE) does not work ({failed_at(ranks)}): works with NCCL_IB_DISABLE=1",
        fix=(
            commands("ibstat", "ulimit -l", "mgpu doctor", who="admin"),
            stopgap(found, "5 to 20 times slower between nodes: all traffic uses TCP"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_ENV)
def nvls_fails(ranks: Ranks) -> Answer:
    """NVLink SHARP does not work: the failed stage works with NCCL_NVLS_ENABLE=0.

    Why: Reductions in the NVSwitches need a multicast group, and the fabric does not provide a working one.
    More: The fabric manager must configure the switches, and no multicast group of an earlier program may be left
    over. Some drivers and virtual machines report support but fail.

    Fix: Restart the fabric manager when no job is running; then check its log.
    More: Or restart the machine, and use compatible driver and NCCL versions.
    """
    found = working_change(ranks)
    if found is None or found.environment.get("NCCL_NVLS_ENABLE") != "0":
        return other_cause(ranks)
    return Problem(
        f"NVLink SHARP does not work ({failed_at(ranks)}): works with NCCL_NVLS_ENABLE=0",
        fix=(
            commands("sudo systemctl restart nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager", who="admin"),
            stopgap(found, "large all-reduces are slower"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_ENV)
def wrong_interface(ranks: Ranks) -> Answer:
    """The ranks use a network interface that does not reach the other ranks.

    Why: by default NCCL uses the first suitable interface, and gloo the one that the host name resolves to. That
    may be a container bridge, a VPN, or an address in another network. The ranks then wait for a connection that is
    never made.

    Fix: Set the interface wherever the run is started.
    """
    found = working_change(ranks)
    names = [name for name in (found.environment if found else {}) if name.endswith("_SOCKET_IFNAME")]
    if found is None or not any(found.environment[name] for name in names):
        return other_cause(ranks)
    interface = found.environment[names[0]]
    return Problem(
        f"the ranks use a network interface that does not work ({failed_at(ranks)}): works over {interface}",
        f"By default they cannot connect to each other; over {interface} they can.",
        commands(*tuple(shell("export {:name}={}", name, found.environment[name]) for name in names)),
        evidence(ranks, found),
        subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def nccl_fails_gloo_works(ranks: Ranks) -> Answer:
    """NCCL fails with every setting that was tried, but gloo works.

    Why: the ranks, the rendezvous and the network work; NCCL or its driver does not. Either the NCCL version does
    not match the driver or the GPU, or a GPU's links are faulty.

    Fix: Check NCCL's logs, and the doctor's results for NCCL and the driver.
    """
    found = working_change(ranks)
    if found is None or not found.change.startswith("gloo"):
        return other_cause(ranks)
    return Problem(
        f"NCCL does not work ({failed_at(ranks)}), but gloo does",
        f"{counted(len(ranks.trials) - 1, 'other change')} did not help, so the cause is not a single NCCL transport.",
        commands("mgpu doctor --only nccl", "mgpu doctor --only driver"),
        evidence(ranks, found),
        subjects(ranks),
    )


def _with_gpus(numbers: list[int]) -> Fix:
    test = shell("mgpu smoke-test --gpus {:numbers}", ",".join(map(str, numbers)))
    text, caveat = "Until then, use GPUs that work together:", f"only {counted(len(numbers), 'GPU')} in use"
    return Fix(text, ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", test), kind="stopgap", caveat=caveat)


@check(Severity.ERROR, source=_TROUBLE, because_of=("p2p_between_gpus_fails",))
def gpu_pair_fails(ranks: Ranks) -> Answer:
    """Some GPUs do not work together, but others do.

    Why: a GPU, its slot, cable or bridge is faulty, or so is the path between two halves of the machine. No NCCL
    setting worked around it.

    Fix: Have the GPU, its slot and its links checked.
    More: Until then, exclude the GPU that is in every failing pair.
    """
    parts = {trial.gpus: trial.ok for trial in ranks.trials if trial.gpus}
    bad: list[set[int]] = [set(gpus) for gpus, works in parts.items() if works is False]
    good: list[set[int]] = [set(gpus) for gpus, works in parts.items() if works]
    if not bad or not good:
        if not parts:
            return other_cause(ranks)
        return Skip("no group of GPUs works") if bad else Ok(f"{counted(len(good), 'group')} of GPUs tested, all work")
    working = {gpu for part in good for gpu in part}
    suspects = sorted(gpu for gpu in bad[0] if all(gpu in part for part in bad) and gpu not in working)
    failing = listed("-".join(map(str, sorted(gpus))) for gpus in bad)
    alone = len(suspects) == 1
    whole = max((sorted(part) for part in good), key=len)
    return Problem(
        f"{gpu_list(suspects)} {'does' if alone else 'do'} not work with the others ({failed_at(ranks)})"
        if suspects
        else f"GPUs {failing} do not work together ({failed_at(ranks)}); {format_groups([whole])} do",
        f"Fails with GPUs {failing}; works with {listed('-'.join(map(str, sorted(gpus))) for gpus in good)}.",
        (
            commands("nvidia-smi -q", "nvidia-smi nvlink -e", who="hardware"),
            _with_gpus(whole),
        ),
        evidence(ranks, None),
        tuple(f"GPU {gpu}" for gpu in suspects),
    )


@check(Severity.ERROR, source="https://docs.pytorch.org/docs/stable/notes/fsdp.html")
def strategy_fails_ddp_works(ranks: Ranks) -> Answer:
    """The training steps work with DDP, but not with the config's strategy.

    Why: The same steps ran on the same ranks; only the strategy was changed.
    More: The ranks and the connections between them work: the version of torch, accelerate or DeepSpeed, or an
    option in the strategy's config section, is wrong.

    Fix: Check the strategy's section of the config, and the versions.
    More: See the rank's error.
    """
    found = working_change(ranks)
    if found is None or not found.change.startswith("DDP instead"):
        return other_cause(ranks)
    return Problem(
        f"the training steps fail with {found.change.rpartition(' ')[2]} ({failed_at(ranks)}) but work with DDP",
        fix=commands("mgpu doctor --only packages"),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source="https://docs.pytorch.org/docs/stable/amp.html")
def precision_fails(ranks: Ranks) -> Answer:
    """The training steps work in fp32, but not in the config's precision.

    Why: The same steps ran on the same ranks; only the precision was changed.
    More: The GPU or this torch build does not support this precision, or not for all operations.

    Fix: Set mixed_precision in the config to one that the GPU supports: bf16 needs Ampere, fp8 Ada or Hopper.
    """
    found = working_change(ranks)
    if found is None or not found.change.startswith("fp32 instead"):
        return other_cause(ranks)
    precision = found.change.rpartition(" ")[2]
    return Problem(
        f"the training steps fail in {precision} ({failed_at(ranks)}) but work in fp32",
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source="mgpu: the checkpoint is written into the run folder instead")
def checkpoint_folder_fails(ranks: Ranks) -> Answer:
    """The checkpoint can be written to the run folder, but not to the checkpoint folder.

    Why: The same ranks wrote the same checkpoint; only the folder was changed.
    More: Its file system is full or read-only, does not support rename, or shows writes of other processes late.

    Fix: Check whether it is full, read-only, or not writable for you.
    More: Use another folder, or contact the file system's administrator.
    """
    found = working_change(ranks)
    if found is None or not found.change.startswith("checkpoint in"):
        return other_cause(ranks)
    return Problem(
        f"the checkpoint folder does not work ({failed_at(ranks)}), but the run folder does",
        fix=commands("df -h", "mount | column -t"),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.WARNING, source="mgpu: the failed stage is run a second time")
def failure_does_not_repeat(ranks: Ranks) -> Answer:
    """The failed stage works the second time, with nothing changed.

    Why: A failure that occurred once may occur again, so the test counts as failed.
    More: The cause is intermittent: another program on the GPUs, a short lack of memory, a link that occasionally
    loses data, or a race. A training run of several days would run into it.

    Fix: Run a longer test while nothing else is running here.
    """
    again = ranks.trials[0] if ranks.trials else None
    if again is None or again.change != AS_CONFIGURED or not again.ok:
        return other_cause(ranks) if again is None else Ok("the failure is reproducible")
    return Problem(
        f"failed once ({failed_at(ranks)}), then worked with nothing changed",
        fix=commands("mgpu smoke-test --level long"),
        evidence=evidence(ranks, again),
        subjects=subjects(ranks),
    )
