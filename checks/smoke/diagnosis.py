"""Which one change makes the failed rung work, and what does that say of the cause?

A check of these answers from the trials of the search: the rung that failed, climbed again with one thing changed.
"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Ranks
from mgpu.text import counted, listed

from .._wording import gpu_list
from ._trials import (
    AS_CONFIGURED,
    as_configured,
    braces,
    cure,
    evidence,
    islands,
    nothing_found,
    stood,
    stopgap,
    subjects,
)

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TROUBLE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_GLOO = "https://docs.pytorch.org/docs/stable/distributed.html"


@check(Severity.ERROR, source=_GLOO)
def variable_breaks_run(ranks: Ranks) -> Answer:
    """The failed rung works without a variable that is set in this shell.

    Why: settings of NCCL, gloo and torch that were right on another machine name an interface, an adapter or a way that
    this one does not have; the ranks then wait for each other, or fail when they meet.

    Fix: unset it, also in the shell's start files, the job script and the container image.
    """
    found = cure(ranks)
    if found is None or not found.environment or any(found.environment.values()):
        return nothing_found(ranks)
    names = tuple(found.environment)
    them = "it" if len(names) == 1 else "them"
    return Problem(
        f"{listed(names)} {'breaks' if len(names) == 1 else 'break'} the run ({stood(ranks)}): works without {them}",
        f"{as_configured(ranks)} Nothing else was changed between the try that failed and the one that worked.",
        Fix(f"Take {them} out of the environment, and of what sets {them}.", (shell("unset {:name}", names),)),
        evidence(ranks, found),
        subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def p2p_between_gpus_fails(ranks: Ranks) -> Answer:
    """Direct transfer from GPU to GPU does not work: the failed rung works with NCCL_P2P_DISABLE=1.

    Why: What one GPU writes into the memory of another does not arrive. Usual reason: IOMMU or ACS in the BIOS, a
    virtual machine, or consumer cards without peer access.
    More: The driver promises that the GPUs reach each other's memory.

    Fix: Turn off PCIe ACS, and the IOMMU or its translation (kernel parameter iommu=pt).
    More: Until then switch direct transfer off.
    """
    found = cure(ranks)
    if found is None or found.environment.get("NCCL_P2P_DISABLE") != "1":
        return nothing_found(ranks)
    groups = islands(ranks)
    between = f" between GPUs {braces(groups)}" if len(groups) > 1 else ""
    return Problem(
        f"direct GPU-to-GPU transfer{between} does not work ({stood(ranks)}): works with NCCL_P2P_DISABLE=1",
        fix=(
            commands("mgpu doctor --only pcie", who="admin"),
            stopgap(found, "slower: all data goes through host memory"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def shared_memory_transport_fails(ranks: Ranks) -> Answer:
    """NCCL's shared memory does not work: the failed rung works with NCCL_SHM_DISABLE=1.

    Why: NCCL keeps its buffers between ranks of one machine in /dev/shm.
    More: It is full or too small (64 MiB in a container by default), or NUMA calls that NCCL's host buffers need are
    forbidden in the container.

    Fix: Make room in /dev/shm; a container needs --shm-size or --ipc=host.
    More: Remove what earlier runs left.
    """
    found = cure(ranks)
    if found is None or found.environment.get("NCCL_SHM_DISABLE") != "1":
        return nothing_found(ranks)
    return Problem(
        f"NCCL's shared memory does not work ({stood(ranks)}): works with NCCL_SHM_DISABLE=1",
        fix=(
            commands("df -h /dev/shm", "ls -l /dev/shm"),
            stopgap(found, "slower: ranks that have no direct way talk over the network"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def infiniband_transport_fails(ranks: Ranks) -> Answer:
    """InfiniBand or RoCE does not work: the failed rung works with NCCL_IB_DISABLE=1.

    Why: NCCL finds adapters with an active port, and what it sends over them does not arrive.
    More: A port has no subnet manager or the wrong GID, too little memory may be locked, or adapters of different
    fabrics have one name.

    Fix: Look at the ports, the limit of locked memory and the GIDs.
    More: Choose the right adapters with NCCL_IB_HCA.
    """
    found = cure(ranks)
    if found is None or found.environment.get("NCCL_IB_DISABLE") != "1":
        return nothing_found(ranks)
    return Problem(
        f"InfiniBand (or RoCE) does not work ({stood(ranks)}): works with NCCL_IB_DISABLE=1",
        fix=(
            commands("ibstat", "ulimit -l", "mgpu doctor", who="admin"),
            stopgap(found, "5 to 20 times slower between machines: everything goes over TCP"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_ENV)
def nvls_fails(ranks: Ranks) -> Answer:
    """NVLink SHARP does not work: the failed rung works with NCCL_NVLS_ENABLE=0.

    Why: Adding inside the NVSwitches needs a multicast group, and the fabric does not give one that works.
    More: The fabric manager has to set the switches up, and no multicast group of an earlier program may be left; some
    drivers and virtual machines fail where they promise it.

    Fix: Restart the fabric manager when no job runs; then look at its log.
    More: Or restart the machine, and use a driver and an NCCL that fit.
    """
    found = cure(ranks)
    if found is None or found.environment.get("NCCL_NVLS_ENABLE") != "0":
        return nothing_found(ranks)
    return Problem(
        f"NVLink SHARP does not work ({stood(ranks)}): works with NCCL_NVLS_ENABLE=0",
        fix=(
            commands("sudo systemctl restart nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager", who="admin"),
            stopgap(found, "all-reduce of large sizes is slower"),
        ),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source=_ENV)
def wrong_interface(ranks: Ranks) -> Answer:
    """The ranks talk over a network interface that does not reach the others.

    Why: without a name NCCL takes the first interface it likes, and gloo the one that the hostname resolves to: a
    bridge of containers, a VPN, an address of another network. The ranks then wait for a connection that never comes.

    Fix: Name the interface wherever the run is started.
    """
    found = cure(ranks)
    names = [name for name in (found.environment if found else {}) if name.endswith("_SOCKET_IFNAME")]
    if found is None or not any(found.environment[name] for name in names):
        return nothing_found(ranks)
    interface = found.environment[names[0]]
    return Problem(
        f"the ranks choose a network interface that does not work ({stood(ranks)}): works over {interface}",
        f"Left alone they do not find each other; over {interface} they do.",
        commands(*tuple(shell("export {:name}={}", name, found.environment[name]) for name in names)),
        evidence(ranks, found),
        subjects(ranks),
    )


@check(Severity.ERROR, source=_TROUBLE)
def nccl_fails_gloo_works(ranks: Ranks) -> Answer:
    """NCCL does not work in any of the ways that were tried, and gloo does.

    Why: the ranks, the rendezvous and the network are well; NCCL or the driver under it is not. A version of NCCL that
    does not fit the driver or the GPU, or a fault of a GPU's links.

    Fix: Read what NCCL says in its logs, and what the doctor says of its version and the driver.
    """
    found = cure(ranks)
    if found is None or not found.change.startswith("gloo"):
        return nothing_found(ranks)
    return Problem(
        f"NCCL does not work ({stood(ranks)}), gloo does",
        f"{counted(len(ranks.trials) - 1, 'other change')} did not help: it is not one transport of NCCL alone.",
        commands("mgpu doctor --only nccl", "mgpu doctor --only driver"),
        evidence(ranks, found),
        subjects(ranks),
    )


def _with_gpus(numbers: list[int]) -> Fix:
    test = shell("mgpu smoke-test --gpus {:numbers}", ",".join(map(str, numbers)))
    text, caveat = "Until then use GPUs that work together:", f"only {counted(len(numbers), 'GPU')} in use"
    return Fix(text, ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", test), kind="stopgap", caveat=caveat)


@check(Severity.ERROR, source=_TROUBLE, because_of=("p2p_between_gpus_fails",))
def gpu_pair_fails(ranks: Ranks) -> Answer:
    """Some GPUs do not work together, and others do.

    Why: a fault of one GPU, its slot, cable or bridge, or of the way between two halves of the machine. No setting of
    NCCL made it work.

    Fix: Have the GPU, its slot and its links looked at.
    More: Until then leave out the GPU that is in every pair that fails.
    """
    parts = {trial.gpus: trial.ok for trial in ranks.trials if trial.gpus}
    bad: list[set[int]] = [set(gpus) for gpus, works in parts.items() if works is False]
    good: list[set[int]] = [set(gpus) for gpus, works in parts.items() if works]
    if not bad or not good:
        if not parts:
            return nothing_found(ranks)
        return Skip("no part of the GPUs works") if bad else Ok(f"{counted(len(good), 'part')} of the GPUs work alone")
    working = {gpu for part in good for gpu in part}
    suspects = sorted(gpu for gpu in bad[0] if all(gpu in part for part in bad) and gpu not in working)
    failing = listed("-".join(map(str, sorted(gpus))) for gpus in bad)
    alone = len(suspects) == 1
    whole = max((sorted(part) for part in good), key=len)
    return Problem(
        f"{gpu_list(suspects)} {'does' if alone else 'do'} not work with the others ({stood(ranks)})"
        if suspects
        else f"GPUs {failing} do not work together ({stood(ranks)}); {braces([whole])} do",
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
    """The training steps work with DDP, and not with the strategy of the config.

    Why: The same steps on the same ranks; only the strategy was changed.
    More: The ranks and the ways between them are well: a version of torch, accelerate or DeepSpeed does not fit, or an
    option of its section in the config.

    Fix: Look at the strategy's section of the config, and at the versions.
    More: See the error of the rank.
    """
    found = cure(ranks)
    if found is None or not found.change.startswith("DDP instead"):
        return nothing_found(ranks)
    return Problem(
        f"the training steps fail with {found.change.rpartition(' ')[2]} ({stood(ranks)}) and work with DDP",
        fix=commands("mgpu doctor --only packages"),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source="https://docs.pytorch.org/docs/stable/amp.html")
def precision_fails(ranks: Ranks) -> Answer:
    """The training steps work in fp32, and not in the precision of the config.

    Why: The same steps on the same ranks; only the precision was changed.
    More: The GPU or the build of torch does not have this precision, or not for all operations.

    Fix: Set mixed_precision in the config to one that the GPU has: bf16 needs Ampere, fp8 Ada or Hopper.
    """
    found = cure(ranks)
    if found is None or not found.change.startswith("fp32 instead"):
        return nothing_found(ranks)
    precision = found.change.rpartition(" ")[2]
    return Problem(
        f"the training steps fail in {precision} ({stood(ranks)}) and work in fp32",
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.ERROR, source="mgpu: the checkpoint is written into the run folder instead")
def checkpoint_folder_fails(ranks: Ranks) -> Answer:
    """The checkpoint can be written into the run folder, and not into the one that was named.

    Why: The same checkpoint by the same ranks; only the folder was changed.
    More: Its file system is full, read-only, without rename or slow to show what another process wrote.

    Fix: See whether it is full, read-only, or may not be written by you.
    More: Take another folder, or ask the file system's administrator.
    """
    found = cure(ranks)
    if found is None or not found.change.startswith("checkpoint in"):
        return nothing_found(ranks)
    return Problem(
        f"the folder for checkpoints does not work ({stood(ranks)}); the run folder does",
        fix=commands("df -h", "mount | column -t"),
        evidence=evidence(ranks, found),
        subjects=subjects(ranks),
    )


@check(Severity.WARNING, source="mgpu: the failed rung is climbed a second time")
def failure_does_not_repeat(ranks: Ranks) -> Answer:
    """The rung that failed works the second time, with nothing changed.

    Why: What failed once may fail again: the verdict stands.
    More: Something comes and goes: another program on the GPUs, memory that was short for a moment, a link that loses
    data now and then, a race. A training that lasts days would meet it.

    Fix: Run the test again, and for longer, while nothing else runs here.
    """
    again = ranks.trials[0] if ranks.trials else None
    if again is None or again.change != AS_CONFIGURED or not again.ok:
        return nothing_found(ranks) if again is None else Ok("the failure repeats")
    return Problem(
        f"it failed ({stood(ranks)}), and works now, with nothing changed",
        fix=commands("mgpu smoke-test --level long"),
        evidence=evidence(ranks, again),
        subjects=subjects(ranks),
    )
