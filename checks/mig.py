"""What does CUDA show on GPUs split into MIG instances?"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Config, Driver, Gpu, Visible
from mgpu.text import counted

from ._gpus import gpu_problem, gpu_subjects, use_only
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)

_MIG = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html"
# From this driver on, CUDA lists one compute instance of every GPU instance alongside whole GPUs. Older drivers show a
# process one instance and nothing else (MIG user guide, CUDA device enumeration).
_LISTS_ALL = (570,)


def _shows_one_instance(driver: Driver) -> bool:
    return bool(driver.version) and version_numbers(driver.version) < _LISTS_ALL


def _switch_mig_off(gpus: list[Gpu]) -> Fix:
    return Fix(
        "Disable MIG on idle GPUs.",
        tuple(shell("sudo nvidia-smi -i {:number} -mig 0", g.index) for g in gpus),
        who="admin",
    )


def _gpus_with_mig_mode(gpus: tuple[Gpu, ...], visible: Visible) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.mig_mode is not None]


@check(Severity.WARNING, source=_MIG)
def gpu_split_by_mig(gpus: tuple[Gpu, ...], visible: Visible, driver: Driver) -> Answer:
    """Some visible GPUs are split into MIG instances and others are not.

    Why: drivers before 570 show a process one instance and no other GPU. Newer ones list instances and whole GPUs
    together, so a rank gets a fraction of a GPU or no device, and NCCL cannot connect two instances of one GPU.

    Fix: use the whole GPUs.
    More: Hide the split GPU, or disable MIG on it.
    """
    known = _gpus_with_mig_mode(gpus, visible)
    bad = [gpu for gpu in known if gpu.mig_mode]
    whole = [index for index in visible.gpus if index not in {gpu.index for gpu in bad}]
    if bad and whole:
        return Problem(
            f"{gpu_list(g.index for g in bad)} split by MIG",
            "CUDA shows a process one MIG instance and no whole GPU."
            if _shows_one_instance(driver)
            else "CUDA lists the instances alongside whole GPUs. A rank on an instance has a fraction of a GPU.",
            (Fix(commands=use_only(whole, gpus)), _switch_mig_off(bad)),
            {f"gpu_{gpu.index}_instances": len(gpu.mig_uuids) for gpu in bad},
            gpu_subjects(bad),
        )
    if bad:
        return Ok("all visible GPUs are split")
    if not known:
        return Skip("no visible GPU supports MIG")
    return Ok(f"MIG is off on {len(known)} of {len(visible.gpus)} visible GPUs")


@check(Severity.INFO, source="https://github.com/NVIDIA/nccl/issues/1716")
def gpus_all_split_by_mig(gpus: tuple[Gpu, ...], visible: Visible, driver: Driver) -> Answer:
    """All visible GPUs are split into MIG instances.

    Why: a single instance works for training, but a run over several does not: NCCL allows one rank per GPU, and
    drivers before 570 show a process only one instance.

    Fix: select one instance.
    More: Train with one process on that instance. For several ranks, disable MIG.
    """
    known = _gpus_with_mig_mode(gpus, visible)
    bad = [gpu for gpu in known if gpu.mig_mode and gpu.mig_uuids]
    if bad and len(bad) == len(visible.gpus):
        number = sum(len(gpu.mig_uuids) for gpu in bad)
        return Problem(
            f"{gpu_list(g.index for g in bad)} split by MIG into {counted(number, 'instance')}",
            "CUDA shows a process the first instance, unless CUDA_VISIBLE_DEVICES selects another."
            if _shows_one_instance(driver)
            else "NCCL cannot connect two instances of one GPU. Use each for a separate training run.",
            (Fix(commands=(shell("export CUDA_VISIBLE_DEVICES={:id}", bad[0].mig_uuids[0]),)), _switch_mig_off(bad)),
            {f"gpu_{gpu.index}_instances": len(gpu.mig_uuids) for gpu in bad},
            gpu_subjects(bad),
        )
    if visible.mig:
        more = f" and {len(visible.more_mig)} more" if visible.more_mig else ""
        return Ok(f"CUDA_VISIBLE_DEVICES selects the instance {visible.mig}{more}")
    return Ok("there are whole GPUs") if known else Skip("no visible GPU supports MIG")


@check(Severity.WARNING, source=_MIG)
def mig_without_instance(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """MIG is enabled on a GPU that has no instance.

    Why: no instance was created on this GPU, or this process has no access to one, so CUDA finds no device on it.
    More: CUDA cannot use such a GPU as a whole either.

    Fix: create an instance.
    More: Or disable MIG.
    """
    on = [gpu for gpu in _gpus_with_mig_mode(gpus, visible) if gpu.mig_mode]
    known = [gpu for gpu in on if not any(query.startswith("mig_uuids") for query in gpu.trouble)]
    bad = [gpu for gpu in known if not gpu.mig_uuids]
    if bad:
        return gpu_problem(
            bad,
            "MIG is enabled, but there is no instance to use",
            {"instances": lambda gpu: 0},
            (
                Fix(
                    commands=tuple(shell("sudo nvidia-smi mig -i {:number} -cgi 0 -C", g.index) for g in bad),
                    who="admin",
                ),
                _switch_mig_off(bad),
            ),
        )
    if not known:
        return Skip("no visible GPU is split by MIG")
    return Ok(f"instances on {len(known)} of {len(visible.gpus)} visible GPUs")


@check(Severity.ERROR, source=_MIG)
def mig_with_several_ranks(gpus: tuple[Gpu, ...], visible: Visible, driver: Driver, config: Config) -> Answer:
    """The config starts several processes, but CUDA shows each of them the same single MIG instance.

    Why: every rank after the first finds no device of its own.
    More: With drivers before 570 every rank sees only the first instance, so the second rank fails with "invalid device
    ordinal", and the first waits for it.

    Fix: start one process.
    More: For several ranks, hide the split GPUs or disable MIG.
    """
    split = [gpu for gpu in _gpus_with_mig_mode(gpus, visible) if gpu.mig_mode and gpu.mig_uuids]
    if not split and not visible.mig:
        return Skip("no visible GPU is split by MIG")
    ranks = config.ranks_here
    if ranks is None or config.values.get("use_cpu") is True:
        return Skip("the ranks run on the CPU" if ranks else "unknown number of processes")
    if ranks < 2:
        return Ok("one process, one instance")
    if not _shows_one_instance(driver):
        newer = f"driver {driver.version} lists several instances"
        return Skip(newer if driver.version else "the driver does not report its version")
    whole = [index for index in visible.gpus if index not in {gpu.index for gpu in split}]
    return Problem(
        f"{counted(ranks, 'rank')}, but CUDA shows each of them the same MIG instance",
        fix=(
            Fix(f"Use the whole GPUs ({len(whole)}).", use_only(whole, gpus))
            if whole
            else Fix(commands=("mgpu configure",)),
            *([_switch_mig_off(split)] if split else []),
        ),
        evidence={"ranks": ranks, "split": len(split), "CUDA_VISIBLE_DEVICES": visible.value, "driver": driver.version},
        subjects=gpu_subjects(split),
    )
