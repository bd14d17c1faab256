"""Is every GPU healthy and set up for training?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Gpu, Plan, Visible

from ._knowledge import counted, gib, gpu_list, usable_count, use_only

_DEBUG = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/"
_MEMORY = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"
_NVML = "https://docs.nvidia.com/deploy/nvml-api/"

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h): a mask, to be tested bit by bit.
_SW_THERMAL, _HW_THERMAL, _HW_POWER_BRAKE = 0x20, 0x40, 0x80
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
# A power limit this share below the board's default was set by somebody, and slows every rank to the slowest GPU.
_CAPPED = 0.95


def _reset(gpus: list[Gpu]) -> tuple[str, ...]:
    return tuple(f"sudo nvidia-smi --gpu-reset -i {gpu.uuid or gpu.index}" for gpu in gpus)


@check(Severity.ERROR, source="mgpu: what --expect-gpus asks", because_of=("gpu_lost", "visible_devices_cut_short"))
def gpu_count_unexpected(gpus: tuple[Gpu, ...], visible: Visible, plan: Plan) -> Answer:
    """There are not as many usable GPUs as the plan expects.

    Why: a job that counts on N GPUs and gets fewer fails at start, or trains on with a smaller batch than planned.

    Fix: find the missing GPU (lost, hidden by CUDA_VISIBLE_DEVICES, not granted by Slurm), or change the plan.
    """
    if plan.expect_gpus is None:
        return Skip("no number was asked for (--expect-gpus)")
    lost = {gpu.index for gpu in gpus if gpu.lost}
    usable = usable_count(visible) - len(lost.intersection(visible.gpus))
    if usable == plan.expect_gpus:
        return Ok(f"{counted(usable, 'usable GPU')}, as expected")
    return Problem(
        f"{counted(usable, 'usable GPU')}, {plan.expect_gpus} expected",
        f"The driver shows {len(gpus)}, {len(lost)} of them lost; CUDA_VISIBLE_DEVICES leaves {usable_count(visible)}.",
        Fix("See which GPUs are there and which are hidden.", ("mgpu doctor -v",)),
        {"driver": len(gpus), "lost": len(lost), "visible": usable_count(visible), "expected": plan.expect_gpus},
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_lost",))
def gpu_answers_in_part(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU answers some of the driver's questions with an error.

    Why: not "not supported", which is normal, but an error: the GPU or its firmware is in trouble, and what it did not
    answer could not be judged.

    Fix: see what nvidia-smi says of it; reset it when nothing runs there.
    """
    bad = [gpu for gpu in gpus if gpu.trouble and not gpu.lost]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: {counted(sum(len(g.trouble) for g in bad), 'question')} met an error",
            f"GPU {bad[0].index}: {'; '.join(bad[0].trouble[:4])}.",
            Fix("Ask nvidia-smi; reset it when it is idle.", (f"nvidia-smi -q -i {bad[0].index}",), who="admin"),
            {f"gpu_{gpu.index}": "; ".join(gpu.trouble) for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    answered = sum(not gpu.lost for gpu in gpus)
    if not answered:
        return Skip("no GPU answers" if gpus else "no GPU here")
    return Ok(f"{counted(answered, 'GPU')} answered every question")


@check(Severity.INFO, source="https://slurm.schedmd.com/gres.html")
def gpu_not_permitted(gpus: tuple[Gpu, ...]) -> Answer:
    """The driver counts GPUs that this process may not use.

    Why: a cgroup (Slurm, a container) keeps them for others. CUDA numbers the permitted ones from 0.

    Fix: nothing, unless the job asked for more.
    """
    bad = [gpu.index for gpu in gpus if not gpu.permitted]
    if bad:
        return Problem(
            f"{gpu_list(bad)} of {len(gpus)}: not for this process",
            "The job or container was granted the others only.",
            Fix("Ask for more GPUs if you need them.", ("srun --gpus=N ...",)),
            {"permitted": len(gpus) - len(bad), "counted": len(gpus)},
            tuple(f"GPU {index}" for index in bad),
        )
    return Ok(f"this process may use all {counted(len(gpus), 'GPU')}") if gpus else Skip("no GPU here")


@check(Severity.ERROR, source=_DEBUG)
def gpu_ecc_uncorrected(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has met memory errors that its ECC could not correct, since the driver was loaded.

    Why: the damaged page may hold weights or gradients; the process that touches it is killed (Xid 48, 94, 95), and
    every other rank then waits in a collective.

    Fix: drain the node and reset the GPU. If the count comes back, the board goes to its vendor.
    """
    known = [gpu for gpu in gpus if gpu.ecc_uncorrected_volatile is not None]
    bad = [gpu for gpu in known if gpu.ecc_uncorrected_volatile]
    if bad:
        errors = sum(gpu.ecc_uncorrected_volatile or 0 for gpu in bad)
        return Problem(
            f"{counted(errors, 'uncorrected ECC error')} on {gpu_list(g.index for g in bad)} "
            "since the driver was loaded",
            "The memory of this GPU gave wrong bits that ECC could not repair; a rank that touches them is killed.",
            Fix("Stop the jobs on it, then reset it. If it comes back: the vendor.", _reset(bad), who="admin"),
            {f"gpu_{gpu.index}": gpu.ecc_uncorrected_volatile for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    if not known:
        return Skip("no GPU here reports ECC errors")
    return Ok(f"no uncorrected errors on {len(known)} of {len(gpus)} GPUs")


@check(Severity.ERROR, source=_MEMORY)
def gpu_row_remap_failed(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has run out of spare memory rows.

    Why: a bad row could not be replaced, so it will be hit again: the board is at its end.

    Fix: run the field diagnostic, then replace the board.
    """
    known = [gpu for gpu in gpus if gpu.rows_remap_failed is not None]
    bad = [gpu for gpu in known if gpu.rows_remap_failed]
    if bad:
        return Problem(
            f"row remapping failed on {gpu_list(g.index for g in bad)}",
            "No spare row was left for a bad one. NVIDIA's rule for this flag is to return the board.",
            Fix("Run NVIDIA's field diagnostic and return the board.", ("nvidia-smi -q -d ROW_REMAPPER",), "hardware"),
            {f"gpu_{gpu.index}_remapped": gpu.rows_remapped_uncorrectable for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"spare rows on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here remaps rows")


@check(Severity.WARNING, source=_MEMORY)
def gpu_row_remap_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU waits for a reset to replace a bad memory row.

    Why: the page is out of use and running work is safe; the replacement takes effect at the next reset. Not a fault of
    the board.

    Fix: reset the GPU, or reboot, when it is idle.
    """
    known = [gpu for gpu in gpus if gpu.rows_remap_pending is not None]
    bad = [gpu for gpu in known if gpu.rows_remap_pending]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: a row remap waits for a reset",
            "A bad memory row was taken out of use; its spare comes into use at the next reset.",
            Fix("Reset it when nothing runs there.", _reset(bad), who="admin"),
            {f"gpu_{gpu.index}_remapped": gpu.rows_remapped_uncorrectable for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"no remap waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here remaps rows")


@check(Severity.WARNING, source="https://docs.nvidia.com/deploy/dynamic-page-retirement/")
def gpu_retired_pages_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU waits for a reset to retire a bad memory page.

    Why: until the reset the page may be handed out again, and a process that gets it fails.

    Fix: reset the GPU, or reboot, when it is idle.
    """
    known = [gpu for gpu in gpus if gpu.retired_pages_pending is not None]
    bad = [gpu for gpu in known if gpu.retired_pages_pending]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: page retirement waits for a reset",
            "A bad page is still in use until the GPU is reset.",
            Fix("Reset it when nothing runs there.", _reset(bad), who="admin"),
            {f"gpu_{gpu.index}_pending": True for gpu in bad},
            subjects=tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"none waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here retires pages")


@check(Severity.ERROR, source=_NVML, because_of=("gpu_lost", "gpu_ecc_uncorrected"))
def gpu_wants_recovery(gpus: tuple[Gpu, ...]) -> Answer:
    """The driver asks for a GPU to be reset or the machine to be rebooted.

    Why: the driver's own verdict after an error: the GPU works wrongly or not at all until this is done.

    Fix: do what the driver asks for, after the jobs there have ended.
    """
    known = [gpu for gpu in gpus if gpu.recovery_action is not None]
    bad = [gpu for gpu in known if gpu.recovery_action]
    if bad:
        what = _RECOVERY.get(bad[0].recovery_action or 0, f"recovery action {bad[0].recovery_action}")
        reboot = any(gpu.recovery_action in (2, 7) for gpu in bad)
        return Problem(
            f"{gpu_list(g.index for g in bad)}: the driver asks to {what}",
            "After an error the driver holds this GPU unfit until that was done.",
            Fix(f"{what[0].upper()}{what[1:]}.", ("sudo reboot",) if reboot else _reset(bad), who="admin"),
            {f"gpu_{gpu.index}": gpu.recovery_action for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    if not known:
        return Skip("this driver does not tell")
    return Ok(f"the driver asks for nothing on {len(known)} of {len(gpus)} GPUs")


@check(Severity.WARNING, source=_NVML)
def gpu_too_hot(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU slows down because of its temperature.

    Why: clocks are halved or worse, and in data-parallel training all ranks wait for the slowest.

    Fix: air flow, fans, dust, the room.
    """
    known = [gpu for gpu in gpus if gpu.clock_event_reasons is not None]
    bad = [gpu for gpu in known if (gpu.clock_event_reasons or 0) & (_SW_THERMAL | _HW_THERMAL)]
    if bad:
        hot = "" if bad[0].temperature_c is None else f" ({bad[0].temperature_c} C)"
        return Problem(
            f"{gpu_list(g.index for g in bad)} slowed by temperature{hot}",
            "The GPU protects itself by lowering its clocks; every step then takes as long as on the hottest GPU.",
            Fix(
                "Check fans, air flow and inlet temperature.", ("nvidia-smi -q -d TEMPERATURE,PERFORMANCE",), "hardware"
            ),
            {f"gpu_{gpu.index}_reasons": gpu.clock_event_reasons for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"no thermal slowdown on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML)
def gpu_power_braked(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU is held down by the power-brake signal from outside.

    Why: the power supply or the rack asserts the brake; the GPU runs at a fraction of its clocks, all ranks with it.

    Fix: power supplies, cables, the rack's power limit.
    """
    known = [gpu for gpu in gpus if gpu.clock_event_reasons is not None]
    bad = [gpu for gpu in known if (gpu.clock_event_reasons or 0) & _HW_POWER_BRAKE]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: hardware power brake",
            "Power supply or rack tells the GPU to slow down.",
            Fix("Check power supplies and cables.", ("nvidia-smi -q -d PERFORMANCE,POWER",), "hardware"),
            {f"gpu_{gpu.index}_reasons": gpu.clock_event_reasons for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"no power brake on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML)
def gpu_power_capped(gpus: tuple[Gpu, ...]) -> Answer:
    """Somebody set a power limit below the board's default.

    Why: the GPU is slower than its siblings, and data-parallel training runs at the pace of the slowest rank.

    Fix: restore the default, when nobody wants the cap.
    """
    known = [gpu for gpu in gpus if gpu.power_limit_w and gpu.power_limit_default_w]
    bad = [gpu for gpu in known if (gpu.power_limit_w or 0) < _CAPPED * (gpu.power_limit_default_w or 0)]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)} capped at {gpu.power_limit_w:.0f} W "
            f"of {gpu.power_limit_default_w:.0f} W",
            "A lower power limit means lower clocks under load.",
            Fix(
                "Restore the default limit.",
                tuple(f"sudo nvidia-smi -i {g.index} -pl {g.power_limit_default_w:.0f}" for g in bad),
                who="admin",
            ),
            {f"gpu_{g.index}_limit_w": g.power_limit_w for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"default power limit on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.ERROR, source=_NVML)
def gpu_compute_prohibited(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU is in compute mode "prohibited".

    Why: CUDA may not make a context there: the rank fails with "all CUDA-capable devices are busy or unavailable".

    Fix: set the compute mode back to default.
    """
    known = [gpu for gpu in gpus if gpu.compute_mode is not None]
    bad = [gpu for gpu in known if gpu.compute_mode == _PROHIBITED]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: compute mode prohibited",
            "No process may make a CUDA context on this GPU.",
            Fix("Set it back to default.", tuple(f"sudo nvidia-smi -i {g.index} -c DEFAULT" for g in bad), who="admin"),
            {f"gpu_{gpu.index}_mode": gpu.compute_mode for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"{len(known)} of {len(gpus)} GPUs allow compute") if known else Skip("no GPU here tells")


@check(Severity.INFO, source=_NVML)
def gpu_compute_exclusive(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU allows one process at a time (compute mode "exclusive process").

    Why: one rank per GPU works; a second process there fails, for example a notebook, an evaluation job, or loader
    workers that touch CUDA.

    Fix: nothing, or set the compute mode to default.
    """
    known = [gpu for gpu in gpus if gpu.compute_mode is not None]
    bad = [gpu for gpu in known if gpu.compute_mode == _EXCLUSIVE_PROCESS]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: one process at a time",
            "A second process on this GPU gets \"all CUDA-capable devices are busy or unavailable\".",
            Fix("Share it only if you need to.",
                tuple(f"sudo nvidia-smi -i {g.index} -c DEFAULT" for g in bad), "admin"),
            {f"gpu_{gpu.index}_mode": gpu.compute_mode for gpu in bad},
            subjects=tuple(f"GPU {gpu.index}" for gpu in bad),
        )  # fmt: skip
    return Ok(f"{len(known)} of {len(gpus)} GPUs can be shared") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/")
def gpu_split_by_mig(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU is split into MIG instances.

    Why: a CUDA process sees one MIG instance, the first, and no GPU beside it; NCCL cannot join instances of one GPU.
    Data-parallel training over MIG instances does not work.

    Fix: switch MIG off for multi-GPU training, or train on one instance.
    """
    known = [gpu for gpu in gpus if gpu.mig_mode is not None]
    bad = [gpu for gpu in known if gpu.mig_mode]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)} split by MIG",
            "CUDA shows a process one MIG instance and no whole GPU beside it.",
            Fix(
                "Switch MIG off on idle GPUs.", tuple(f"sudo nvidia-smi -i {g.index} -mig 0" for g in bad), who="admin"
            ),
            {f"gpu_{gpu.index}_instances": len(gpu.mig_uuids) for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"MIG is off on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here knows MIG")


def _differ(now: bool | None, pending: bool | None) -> bool:
    """A mode that is not known does not differ."""
    return None not in (now, pending) and now != pending


@check(Severity.INFO, source=_NVML)
def gpu_mode_change_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A change of ECC or MIG mode waits for a reset.

    Why: the GPU will come back with another amount of memory, or split, after the next reset or reboot.

    Fix: reset the GPU now, or know that it will change.
    """
    known = [gpu for gpu in gpus if gpu.ecc_enabled is not None or gpu.mig_mode is not None]
    bad = [
        gpu for gpu in known if _differ(gpu.ecc_enabled, gpu.ecc_pending) or _differ(gpu.mig_mode, gpu.mig_mode_pending)
    ]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)}: a mode change waits for a reset",
            "ECC or MIG was switched and takes effect at the next reset: memory size or GPU count will change.",
            Fix("Reset it when nothing runs there.", _reset(bad), who="admin"),
            {
                f"gpu_{g.index}": f"ECC {g.ecc_enabled} -> {g.ecc_pending}, MIG {g.mig_mode} -> {g.mig_mode_pending}"
                for g in bad
            },
            subjects=tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"nothing waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here has these modes")


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/ddp.html")
def gpus_of_mixed_models(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The visible GPUs are not all of one model.

    Why: all ranks get the same micro-batch and wait for each other: the smallest memory and the slowest GPU decide, and
    the oldest one decides whether bf16 is native.

    Fix: train on the GPUs of one model.
    """
    models: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.index in visible.gpus and gpu.name:
            models.setdefault(gpu.name, []).append(gpu.index)
    if len(models) > 1:
        best = max(models.values(), key=len)
        return Problem(
            "; ".join(f"{gpu_list(indices)}: {name}" for name, indices in models.items()),
            "The slowest GPU sets the pace and the smallest memory the batch for all.",
            Fix("Train on one model only.", use_only(best, gpus)),
            {name: len(indices) for name, indices in models.items()},
        )
    if not models:
        return Skip("no visible GPU with a name")
    return Ok(f"{len(visible.gpus)} x {next(iter(models))}")


@check(Severity.ERROR, source="mgpu: what --expect-free asks", because_of=("gpu_busy",))
def gpu_memory_below_plan(gpus: tuple[Gpu, ...], visible: Visible, plan: Plan) -> Answer:
    """A visible GPU has less free memory than the plan expects.

    Why: the rank on it stops with out-of-memory, and the others with it.

    Fix: free the GPU, or leave it out.
    """
    if plan.expect_free_bytes is None:
        return Skip("no amount was asked for (--expect-free)")
    used = [gpu for gpu in gpus if gpu.index in visible.gpus and gpu.memory_free_bytes is not None]
    short = [gpu for gpu in used if (gpu.memory_free_bytes or 0) < plan.expect_free_bytes]
    if short:
        return Problem(
            f"{gpu_list(g.index for g in short)}: {gib(short[0].memory_free_bytes or 0)} free, "
            f"{gib(plan.expect_free_bytes)} expected",
            "A rank on it would stop with out-of-memory.",
            Fix("See who holds the memory.", ("nvidia-smi",)),
            {f"gpu_{gpu.index}_free_bytes": gpu.memory_free_bytes for gpu in short},
            tuple(f"GPU {gpu.index}" for gpu in short),
        )
    return Ok(f"{len(used)} GPUs have {gib(plan.expect_free_bytes)} free") if used else Skip("no visible GPU tells")
