"""Is every GPU healthy and set up for training?"""

from __future__ import annotations

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Plan, Visible
from mgpu.text import counted

from ._gpus import gpu_problem, reset, same_models, usable_count, use_only
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
    """Whether the driver itself has too few GPUs: what only a job was not given is no fault of the node."""
    there, lost, expected = (int(problem.evidence[name] or 0) for name in ("driver", "lost", "expected"))
    return there - lost < expected


@check(
    Severity.ERROR,
    source="mgpu: what --expect-gpus asks",
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
    """There are not as many usable GPUs as the plan expects.

    Why: a job that counts on N GPUs and gets fewer fails at start, or trains on with a smaller batch than planned.

    Fix: see which GPUs are there and which are hidden.
    More: Find the missing GPU (lost, hidden by CUDA_VISIBLE_DEVICES, not granted by Slurm), or change the plan.
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
        Fix(commands=("mgpu doctor -v",)),
        {"driver": len(gpus), "lost": len(lost), "visible": usable_count(visible), "expected": plan.expect_gpus},
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_lost",))
def gpu_answers_in_part(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU answers some of the driver's questions with an error.

    Why: not "not supported", which is normal, but an error: the GPU or its firmware is in trouble, and what it did not
    answer could not be judged.

    Fix: ask nvidia-smi; reset it when it is idle.
    """
    bad = [gpu for gpu in gpus if gpu.trouble and not gpu.lost]
    if bad:
        return gpu_problem(
            bad,
            f"{counted(sum(len(g.trouble) for g in bad), 'question')} met an error",
            {"": lambda gpu: "; ".join(gpu.trouble)},
            Fix(commands=(shell("nvidia-smi -q -i {:number}", bad[0].index),), who="admin"),
            cause=f"GPU {bad[0].index}: {'; '.join(bad[0].trouble[:4])}.",
        )
    answered = sum(not gpu.lost for gpu in gpus)
    if not answered:
        return Skip("no GPU answers" if gpus else "no GPU here")
    return Ok(f"{counted(answered, 'GPU')} answered every question")


@check(Severity.INFO, source="https://slurm.schedmd.com/gres.html", because_of=("slurm_granted_no_gpus",))
def gpu_not_permitted(gpus: tuple[Gpu, ...]) -> Answer:
    """The driver counts GPUs that this process may not use.

    Why: the job or container was granted the others only.
    More: A cgroup (Slurm, a container) keeps them for others. CUDA numbers the permitted ones from 0.

    Fix: ask for more GPUs if you need them.
    """
    bad = [gpu.index for gpu in gpus if not gpu.permitted]
    if bad:
        return Problem(
            f"{gpu_list(bad)} of {len(gpus)}: not for this process",
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
    """The driver asks for a GPU to be reset or the machine to be rebooted.

    Why: after an error the driver holds this GPU unfit for new work until that was done.
    More: An IMEX domain that is to be recovered matters to runs over several machines only.

    Fix: do what the driver asks for, after the jobs there have ended.
    """
    known = [gpu for gpu in gpus if gpu.recovery_action is not None]
    asked = [gpu for gpu in known if gpu.recovery_action]
    bad = [gpu for gpu in asked if gpu.recovery_action != _RECOVER_IMEX or plan.nodes > 1]
    if bad:
        what = _RECOVERY.get(bad[0].recovery_action or 0, f"recovery action {bad[0].recovery_action}")
        return gpu_problem(bad, f"the driver asks to {what}", {"": "recovery_action"}, _recovery(what, bad))
    if not known:
        return Skip("this driver does not tell")
    imex = f"; {counted(len(asked), 'GPU')} would have the IMEX domain recovered" if asked else ""
    return Ok(f"the driver asks for nothing on {len(known) - len(asked)} of {len(gpus)} GPUs{imex}")


def _recovery(what: str, gpus: list[Gpu]) -> Fix:
    """What the driver asks for, in commands; a reset of the GPU is right for some of it only."""
    words = f"{what[0].upper()}{what[1:]}"
    actions = {gpu.recovery_action for gpu in gpus}
    if not actions.isdisjoint(_REBOOTS):
        return Fix(f"{words}.", ("sudo reboot",), who="admin")
    if _DRAIN_P2P in actions:
        again = tuple(shell("nvidia-smi -q -i {:number} | grep -i 'recovery action'", gpu.index) for gpu in gpus)
        return Fix(f"{words}: end all processes that use several GPUs; then see what it asks for.", again, who="admin")
    if actions == {_RECOVER_IMEX}:
        return Fix(
            f"{words}: start its service again on each machine of it.",
            ("sudo systemctl restart nvidia-imex", "nvidia-imex-ctl -N"),
            who="admin",
        )
    return Fix(f"{words}.", reset(gpus), who="admin")


@check(Severity.ERROR, source=_NVML)
def gpu_compute_prohibited(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A visible GPU is in compute mode "prohibited".

    Why: no process may make a CUDA context on this GPU.
    More: On the card of a display it is often meant; such a card has to be hidden.

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
                *([Fix("Or use the others.", use_only(others, gpus))] if others else []),
            ),
        )
    if not known:
        return Skip("no visible GPU tells")
    return Ok(f"{len(known)} of {len(visible.gpus)} visible GPUs allow compute")


@check(Severity.INFO, source=_NVML)
def gpu_compute_exclusive(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A visible GPU allows one process at a time (compute mode "exclusive process").

    Why: a second process on this GPU gets "all CUDA-capable devices are busy or unavailable".
    More: One rank per GPU works; a second process there fails, for example a notebook, an evaluation job, or loader
    workers that touch CUDA.

    Fix: share it only if you need to.
    More: Nothing, or set the compute mode to default.
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
        return Skip("no visible GPU tells")
    return Ok(f"{len(known)} of {len(visible.gpus)} visible GPUs can be shared")


@check(Severity.ERROR, source="https://docs.nvidia.com/deploy/mps/", because_of=("gpu_busy",))
def gpu_exclusive_taken(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """A GPU that allows one process at a time is taken by another process.

    Why: a second process on this GPU gets "all CUDA-capable devices are busy or unavailable".
    More: In compute mode "exclusive process" the first process keeps the GPU. The rank that comes second fails with
    "all CUDA-capable devices are busy or unavailable", and the others wait for it.

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
            f"one process at a time, and pid {holder.pid} is there",
            {"processes": lambda gpu: len(gpu.processes or ())},
            Fix(commands=use_only(free, gpus)) if free else Fix("Wait until it ends.", ("nvidia-smi",)),
        )
    if not known:
        return Skip("no visible GPU lists its processes")
    if not exclusive:
        return Ok(f"{len(known)} of {len(visible.gpus)} visible GPUs can be shared")
    return Ok(f"{len(exclusive)} of {len(known)} visible GPUs take one process, and are free")


def _differ(now: bool | None, pending: bool | None) -> bool:
    """A mode that is not known does not differ."""
    return None not in (now, pending) and now != pending


@check(Severity.INFO, source=_NVML)
def gpu_mode_change_pending(gpus: tuple[Gpu, ...]) -> Answer:
    """A change of ECC or MIG mode waits for a reset.

    Why: ECC or MIG was switched and takes effect at the next reset: memory size or GPU count will change.

    Fix: reset it when nothing runs there.
    """
    known = [gpu for gpu in gpus if gpu.ecc_enabled is not None or gpu.mig_mode is not None]
    bad = [
        gpu for gpu in known if _differ(gpu.ecc_enabled, gpu.ecc_pending) or _differ(gpu.mig_mode, gpu.mig_mode_pending)
    ]
    if bad:
        return gpu_problem(
            bad,
            "a mode change waits for a reset",
            {"": lambda g: f"ECC {g.ecc_enabled} -> {g.ecc_pending}, MIG {g.mig_mode} -> {g.mig_mode_pending}"},
            Fix(commands=reset(bad), who="admin"),
        )
    return Ok(f"nothing waits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here has these modes")


@check(Severity.WARNING, source="https://pytorch.org/docs/stable/notes/ddp.html")
def gpus_of_mixed_models(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """The visible GPUs are not all of one model.

    Why: the slowest GPU sets the pace and the smallest memory the batch for all.
    More: The oldest one decides whether bf16 is native.

    Fix: train on one model only.
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
        return Skip("no visible GPU with a name")
    return Ok(f"{len(visible.gpus)} x {next(iter(models))}")


@check(Severity.WARNING, source=_QUERIES)
def gpu_inforom_corrupt(gpus: tuple[Gpu, ...]) -> Answer:
    """The InfoROM of a GPU is corrupted.

    Why: its checksums are wrong: error counts and settings of the board cannot be trusted.
    More: The board keeps its settings, its error counts and its list of bad memory there. What is lost cannot be
    judged, and bad memory may come back into use.

    Fix: ask the vendor.
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
    return Ok(f"valid on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.INFO, source=_QUERIES)
def gpu_vbios_differs(gpus: tuple[Gpu, ...], visible: Visible) -> Answer:
    """Visible GPUs of one model carry different firmware (VBIOS).

    Why: boards of one model with different firmware may differ in clocks and power.
    More: Boards that were exchanged one by one look like this; NCCL does not mind.

    Fix: have them brought to one version if one is slower.
    """
    told = [(name, [gpu for gpu in members if gpu.vbios]) for name, members in same_models(gpus, visible).items()]
    for name, members in told:
        versions: dict[str, list[int]] = {}
        for gpu in members:
            versions.setdefault(gpu.vbios or "", []).append(gpu.index)
        if len(versions) > 1:
            return Problem(
                f"{name}: VBIOS " + "; ".join(f"{version} on {gpu_list(who)}" for version, who in versions.items()),
                fix=Fix(who="hardware"),
                evidence={version: len(who) for version, who in versions.items()},
            )
    number = sum(len(members) for _, members in told)
    return Ok(f"one VBIOS on {number} of {len(visible.gpus)} visible GPUs") if number else Skip("no visible GPU tells")
