"""Is every GPU healthy and configured for training?"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Plan, Visible
from mgpu.text import counted

from ._gpus import gpu_problem, reset_commands, same_models, usable_count, use_only
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)

_NVML = "https://docs.nvidia.com/deploy/nvml-api/"
_QUERIES = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

# nvmlComputeMode_t
_PROHIBITED, _EXCLUSIVE_PROCESS = 2, 3
# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (pynvml 13)
_RECOVERY = {
    1: "reset the GPU",
    2: "reboot the machine",
    3: "drain P2P traffic",
    4: "drain and reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
_DRAIN_P2P, _RECOVER_IMEX, _REBOOTS = 3, 5, (2, 7)


def _driver_lacks_gpus(problem: Problem) -> bool:
    """Return whether the driver itself has too few GPUs; GPUs not granted to the job are not the node's fault."""
    there, lost, expected = (int(problem.evidence[name] or 0) for name in ("driver", "lost", "expected"))
    return there - lost < expected


@check(
    Severity.ERROR,
    source="mgpu: the --expect-gpus option",
    because_of=(
        "gpu_lost",
        "visible_devices_cut_short",
        "slurm_granted_no_gpus",
        "container_given_no_gpus",
        "container_got_fewer_gpus",
    ),
    condemns_node=_driver_lacks_gpus,
)
def gpu_count_unexpected(gpus: tuple[Gpu, ...], visible: Visible, plan: Plan) -> Answer:
    """The number of usable GPUs differs from the plan.

    Why: a job that expects N GPUs and gets fewer fails at start, or trains with a smaller batch than planned.

    Fix: check which GPUs are present and which are hidden.
    More: Find the missing GPU (lost, hidden by CUDA_VISIBLE_DEVICES, not granted by Slurm), or change the plan.
    """
    if plan.expect_gpus is None:
        return Skip("no expected number (--expect-gpus)")
    lost = {gpu.index for gpu in gpus if gpu.lost}
    usable = usable_count(visible) - len(lost.intersection(visible.gpus))
    if usable == plan.expect_gpus:
        return Ok(f"{counted(usable, 'usable GPU')}, as expected")
    return Problem(
        f"{counted(usable, 'usable GPU')}, {plan.expect_gpus} expected",
        f"The driver shows {len(gpus)}, {len(lost)} of them lost. CUDA_VISIBLE_DEVICES leaves {usable_count(visible)}.",
        Fix(commands=("mgpu doctor -v",)),
        {"driver": len(gpus), "lost": len(lost), "visible": usable_count(visible), "expected": plan.expect_gpus},
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_lost",))
def gpu_answers_in_part(gpus: tuple[Gpu, ...]) -> Answer:
    """Some driver queries of a GPU fail with an error.

    Why: "not supported" would be normal, but these are errors: the GPU or its firmware has a fault, and checks that
    need the failed queries could not run.

    Fix: run nvidia-smi, and reset the GPU when it is idle.
    """
    bad = [gpu for gpu in gpus if gpu.trouble and not gpu.lost]
    if bad:
        return gpu_problem(
            bad,
            f"{counted(sum(len(g.trouble) for g in bad), 'query', 'queries')} failed with an error",
            {"": lambda gpu: "; ".join(gpu.trouble)},
            Fix(commands=(shell("nvidia-smi -q -i {:number}", bad[0].index),), who="admin"),
            cause=f"GPU {bad[0].index}: {'; '.join(bad[0].trouble[:4])}.",
        )
    answered = sum(not gpu.lost for gpu in gpus)
    if not answered:
        return Skip("no GPU responds" if gpus else "no GPU here")
    return Ok(f"{counted(answered, 'GPU')} answered every query")


@check(Severity.INFO, source="https://slurm.schedmd.com/gres.html", because_of=("slurm_granted_no_gpus",))
def gpu_not_permitted(gpus: tuple[Gpu, ...]) -> Answer:
    """The driver lists GPUs that this process may not use.

    Why: the job or container was granted only the other GPUs.
    More: A cgroup (Slurm, a container) reserves them. CUDA numbers the permitted GPUs from 0.

    Fix: request more GPUs if you need them.
    """
    bad = [gpu.index for gpu in gpus if not gpu.permitted]
    if bad:
        return Problem(
            f"{gpu_list(bad)} of {len(gpus)}: not accessible to this process",
            fix=Fix(commands=("srun --gpus=N ...",)),
            evidence={"permitted": len(gpus) - len(bad), "counted": len(gpus)},
            subjects=tuple(f"GPU {index}" for index in bad),
        )
    return Ok(f"this process may use all {counted(len(gpus), 'GPU')}") if gpus else Skip("no GPU here")


@check(
    Severity.ERROR,
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html",
    because_of=("gpu_lost", "gpu_ecc_uncorrected"),
    condemns_node=True,
)
def gpu_wants_recovery(gpus: tuple[Gpu, ...], plan: Plan) -> Answer:
    """The driver requests a reset of a GPU or a reboot.

    Why: after an error, the driver considers this GPU unfit for new work until the requested action is done.
    More: A requested recovery of the IMEX domain matters only to multi-node runs.

    Fix: do what the driver requests when the jobs on it have finished.
    """
    known = [gpu for gpu in gpus if gpu.recovery_action is not None]
    requesting = [gpu for gpu in known if gpu.recovery_action]
    bad = [gpu for gpu in requesting if gpu.recovery_action != _RECOVER_IMEX or plan.nodes > 1]
    if bad:
        what = _RECOVERY.get(bad[0].recovery_action or 0, f"recovery action {bad[0].recovery_action}")
        return gpu_problem(bad, f'the driver requests "{what}"', {"": "recovery_action"}, _recovery_fix(what, bad))
    if not known:
        return Skip("this driver does not report it")
    imex = f"; recovery of the IMEX domain requested on {counted(len(requesting), 'GPU')}" if requesting else ""
    return Ok(f"no action requested on {len(known) - len(requesting)} of {len(gpus)} GPUs{imex}")


def _recovery_fix(what: str, gpus: list[Gpu]) -> Fix:
    """Return the fix for the requested action; not every action is a reset of the GPU."""
    action = f"{what[0].upper()}{what[1:]}"
    actions = {gpu.recovery_action for gpu in gpus}
    if not actions.isdisjoint(_REBOOTS):
        return Fix(f"{action}.", ("sudo reboot",), who="admin")
    if _DRAIN_P2P in actions:
        again = tuple(shell("nvidia-smi -q -i {:number} | grep -i 'recovery action'", gpu.index) for gpu in gpus)
        text = f"{action}: stop all processes that use several GPUs, then check what the driver requests."
        return Fix(text, again, who="admin")
    if actions == {_RECOVER_IMEX}:
        return Fix(
            f"{action}: restart its service on each node of the domain.",
            ("sudo systemctl restart nvidia-imex", "nvidia-imex-ctl -N"),
            who="admin",
        )
    return Fix(f"{action}.", reset_commands(gpus), who="admin")


@check(Severity.ERROR, source=_NVML)
def gpu_compute_prohibited(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A visible GPU is in compute mode "prohibited".

    Why: no process may create a CUDA context on this GPU.
    More: On a display GPU this is often intended. Such a GPU must be hidden from CUDA.

    Fix: set it back to default.
    More: Or hide the GPU.
    """
    known = [gpu for gpu in gpus if gpu.compute_mode is not None and gpu.index in visible.gpus]
    bad = [gpu for gpu in known if gpu.compute_mode == _PROHIBITED]
    others = [index for index in visible.gpus if index not in {gpu.index for gpu in bad}]
    if bad:
        return gpu_problem(
            bad,
            "compute mode prohibited",
            {"mode": "compute_mode"},
            (
                Fix(
                    commands=tuple(shell("sudo nvidia-smi -i {:number} -c DEFAULT", g.index) for g in bad), who="admin"
                ),
                *([Fix("Or use only the other GPUs.", use_only(others, gpus))] if others else []),
            ),
        )
    if not known:
        return Skip("not reported by any visible GPU")
    return Ok(f"{len(known)} of {len(visible.gpus)} visible GPUs allow compute")


@check(Severity.INFO, source=_NVML)
def gpu_compute_exclusive(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A visible GPU allows one process at a time (compute mode "exclusive process").

    Why: a second process on this GPU gets "all CUDA-capable devices are busy or unavailable".
    More: One rank per GPU works. A second process fails, for example a notebook, an evaluation job, or a data loader
    worker that uses CUDA.

    Fix: set the compute mode to default if several processes have to share it.
    More: Otherwise, no action is needed.
    """
    known = [gpu for gpu in gpus if gpu.compute_mode is not None and gpu.index in visible.gpus]
    bad = [gpu for gpu in known if gpu.compute_mode == _EXCLUSIVE_PROCESS]
    if bad:
        return gpu_problem(
            bad,
            "one process at a time",
            {"mode": "compute_mode"},
            Fix(commands=tuple(shell("sudo nvidia-smi -i {:number} -c DEFAULT", g.index) for g in bad), who="admin"),
        )
    if not known:
        return Skip("not reported by any visible GPU")
    return Ok(f"{len(known)} of {len(visible.gpus)} visible GPUs can be shared")


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/mps/", because_of=("gpu_busy",))
def gpu_exclusive_taken(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A GPU that allows one process at a time is in use by another process.

    Why: a second process on this GPU gets "all CUDA-capable devices are busy or unavailable".
    More: In compute mode "exclusive process" the first process keeps the GPU. A rank on it fails, and the others wait
    for it.

    Fix: use the free GPUs.
    """
    known = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.processes is not None]
    exclusive = [gpu for gpu in known if gpu.compute_mode == _EXCLUSIVE_PROCESS]
    bad = [gpu for gpu in exclusive if any(p.kind == "compute" for p in gpu.processes or ())]
    if bad:
        taken = {gpu.index for gpu in gpus if gpu in bad or gpu.lost}
        free = [index for index in visible.gpus if index not in taken]
        holder = next(p for p in bad[0].processes or () if p.kind == "compute")
        return gpu_problem(
            bad,
            f"allows one process at a time, and pid {holder.pid} uses it",
            {"processes": lambda gpu: len(gpu.processes or ())},
            Fix(commands=use_only(free, gpus)) if free else Fix("Wait until the process exits.", ("nvidia-smi",)),
        )
    if not known:
        return Skip("no visible GPU lists its processes")
    if not exclusive:
        return Ok(f"{len(known)} of {len(visible.gpus)} visible GPUs can be shared")
    return Ok(f"{len(exclusive)} of {len(known)} visible GPUs allow one process and are free")


def _differs(now: bool | None, pending: bool | None) -> bool:
    """Return whether a mode change is pending; an unknown mode does not count."""
    return None not in (now, pending) and now != pending


@check(Severity.INFO, source=_NVML)
def gpu_mode_change_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A change of the ECC or MIG mode is pending until a reset.

    Why: ECC or MIG was changed. At the next reset the memory size or the number of GPUs will change.

    Fix: reset it when nothing runs on it.
    """
    known = [gpu for gpu in gpus if gpu.ecc_enabled is not None or gpu.mig_mode is not None]
    bad = [
        gpu
        for gpu in known
        if _differs(gpu.ecc_enabled, gpu.ecc_pending) or _differs(gpu.mig_mode, gpu.mig_mode_pending)
    ]
    if bad:
        return gpu_problem(
            bad,
            "mode change pending until a reset",
            {"": lambda g: f"ECC {g.ecc_enabled} -> {g.ecc_pending}, MIG {g.mig_mode} -> {g.mig_mode_pending}"},
            Fix(commands=reset_commands(bad), who="admin"),
        )
    return (
        Ok(f"no change pending on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here has these modes")
    )


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/ddp.html")
def gpus_of_mixed_models(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The visible GPUs are of different models.

    Why: the slowest GPU sets the pace for all, and the smallest memory limits the batch size.
    More: The oldest GPU determines whether bf16 is supported natively.

    Fix: use only one GPU model.
    """
    models: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.name:
            models.setdefault(gpu.name, []).append(gpu.index)
    if len(models) > 1:
        best = max(models.values(), key=len)
        return Problem(
            "; ".join(f"{gpu_list(indices)}: {name}" for name, indices in models.items()),
            fix=Fix(commands=use_only(best, gpus)),
            evidence={name: len(indices) for name, indices in models.items()},
        )
    if not models:
        return Skip("no visible GPU reports its name")
    return Ok(f"{len(visible.gpus)} x {next(iter(models))}")


@check(Severity.WARNING, source=_QUERIES)
def gpu_inforom_corrupt(gpus: tuple[Gpu, ...]) -> Answer:
    """The InfoROM of a GPU is corrupted.

    Why: its checksums are wrong, so the board's error counts and settings cannot be trusted.
    More: The InfoROM stores settings, error counts and the list of bad memory. Without that list, bad memory may be
    used again.

    Fix: contact the vendor.
    """
    known = [gpu for gpu in gpus if gpu.inforom_valid is not None]
    bad = [gpu for gpu in known if not gpu.inforom_valid]
    if bad:
        return gpu_problem(
            bad,
            "the InfoROM is corrupted",
            {"serial": "serial"},
            Fix(commands=(shell("nvidia-smi -q -i {:number}", bad[0].index),), who="hardware"),
        )
    return Ok(f"valid on {len(known)} of {len(gpus)} GPUs") if known else Skip("not reported by any GPU here")


@check(Severity.INFO, source=_QUERIES)
def gpu_vbios_differs(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Visible GPUs of one model have different firmware (VBIOS) versions.

    Why: boards of one model with different firmware may differ in clocks and power.
    More: This is typical after individual boards were replaced. It does not affect NCCL.

    Fix: if one GPU is slower, have the firmware updated to one version.
    """
    known = [(name, [gpu for gpu in members if gpu.vbios]) for name, members in same_models(gpus, visible).items()]
    for name, members in known:
        versions: dict[str, list[int]] = {}
        for gpu in members:
            versions.setdefault(gpu.vbios or "", []).append(gpu.index)
        if len(versions) > 1:
            return Problem(
                f"{name}: VBIOS " + "; ".join(f"{version} on {gpu_list(who)}" for version, who in versions.items()),
                fix=Fix(who="hardware"),
                evidence={version: len(who) for version, who in versions.items()},
            )
    number = sum(len(members) for _, members in known)
    return (
        Ok(f"one VBIOS version on {number} of {len(visible.gpus)} visible GPUs")
        if number
        else Skip("not reported by any visible GPU")
    )
