"""May every GPU run at its full speed?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Driver, Gpu

from ._gpus import reset, was_running
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)

_NVML = "https://docs.nvidia.com/deploy/nvml-api/"

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h): a mask, to be tested bit by bit.
_HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _HW_POWER_BRAKE = 0x08, 0x20, 0x40, 0x80
# A power limit this share below another was set by somebody, and slows every rank to the slowest GPU.
_CAPPED = 0.95
# Application clocks are set in steps of 15 MHz (nvidia-smi -q -d SUPPORTED_CLOCKS); gcm warns from 30 MHz on.
_CLOCK_DRIFT_MHZ = 30
# P8 is the idle state; a GPU that computes is at P0 to P2 (nvmlPstates_t: 0 is the fastest).
_IDLE_STATE = 8
_COMPUTING_PERCENT = 80


@check(Severity.WARNING, source=_NVML)
def gpu_too_hot(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU slows down because of its temperature, or is at the limit of it.

    Why: clocks are halved or worse, and in data-parallel training all ranks wait for the slowest.

    Fix: air flow, fans, dust, the room.
    """
    known = [gpu for gpu in gpus if gpu.clock_event_reasons is not None]
    bad = [gpu for gpu in gpus if (gpu.clock_event_reasons or 0) & (_SW_THERMAL | _HW_THERMAL) or _at_its_limit(gpu)]
    if bad:
        hot = "" if bad[0].temperature_c is None else f" ({bad[0].temperature_c} C)"
        slowed = any((gpu.clock_event_reasons or 0) & (_SW_THERMAL | _HW_THERMAL) for gpu in bad)
        return Problem(
            f"{gpu_list(g.index for g in bad)} {'slowed by' if slowed else 'at the limit of its'} temperature{hot}",
            "The GPU protects itself by lowering its clocks; every step then takes as long as on the hottest GPU.",
            Fix(
                "Check fans, air flow and inlet temperature.", ("nvidia-smi -q -d TEMPERATURE,PERFORMANCE",), "hardware"
            ),
            {f"gpu_{gpu.index}_reasons": gpu.clock_event_reasons for gpu in bad}
            | {f"gpu_{gpu.index}_temperature_c": gpu.temperature_c for gpu in bad},
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


def _at_its_limit(gpu: Gpu) -> bool:
    """Whether its temperature has reached what the board slows down at, or is above what it should operate at."""
    if gpu.temperature_margin_c is not None and gpu.temperature_margin_c <= 0:
        return True
    if gpu.temperature_c is None:
        return False
    slowdown, highest = gpu.temperature_slowdown_c or 0, gpu.temperature_max_c or 0
    return gpu.temperature_c >= slowdown > 0 or gpu.temperature_c > highest > 0


@check(Severity.WARNING, source=_NVML, because_of=("gpu_too_hot",))
def gpu_memory_too_hot(gpus: tuple[Gpu, ...]) -> Answer:
    """The memory of a GPU is hotter than it may be.

    Why: the GPU lowers its clocks to protect the memory, and memory errors become more likely; in data-parallel
    training all ranks wait for the slowest.

    Fix: air flow, fans, thermal pads.
    """
    known = [gpu for gpu in gpus if gpu.memory_temperature_c is not None and gpu.memory_temperature_max_c]
    bad = [gpu for gpu in known if (gpu.memory_temperature_c or 0) > (gpu.memory_temperature_max_c or 0)]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: memory at {gpu.memory_temperature_c} C, "
            f"{gpu.memory_temperature_max_c} C is the limit",
            "Above this temperature the GPU slows down and its memory errs more often.",
            Fix("Check fans, air flow and inlet temperature.", ("nvidia-smi -q -d TEMPERATURE",), "hardware"),
            {f"gpu_{g.index}_memory_c": g.memory_temperature_c for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"memory is cool on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML, because_of=("gpu_too_hot", "gpu_power_braked"))
def gpu_slowed_by_hardware(gpus: tuple[Gpu, ...]) -> Answer:
    """The hardware of a GPU holds its clocks down, and names neither heat nor the power brake.

    Why: a power draw beyond what the board may take, or a supply that sags, halves the clocks or worse. In
    data-parallel training every step takes as long as on this GPU. Two readings in a row had it: the flag also flashes
    up when clocks change.

    Fix: power cables and supplies.
    """
    known = [gpu for gpu in gpus if gpu.clock_event_reasons is not None]
    bad = [
        gpu
        for gpu in known
        if (gpu.clock_event_reasons or 0) & (_HW_SLOWDOWN | _HW_THERMAL | _HW_POWER_BRAKE) == _HW_SLOWDOWN
    ]
    if bad:
        return Problem(
            f"{gpu_list(g.index for g in bad)} slowed down by its hardware",
            "The board holds its clocks down, most often because of its power supply.",
            Fix("Check power cables and supplies.", ("nvidia-smi -q -d PERFORMANCE,POWER",), "hardware"),
            {f"gpu_{gpu.index}_reasons": gpu.clock_event_reasons for gpu in bad},
            tuple(f"GPU {gpu.index}" for gpu in bad),
        )
    return Ok(f"no hardware slowdown on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


def _share(gpu: Gpu) -> float:
    """How much of the board's default power limit it may take."""
    return (gpu.power_limit_w or 0) / (gpu.power_limit_default_w or 1)


def _restore_power(gpus: Iterable[Gpu]) -> Fix:
    return Fix(
        "Restore the default limit.",
        tuple(
            shell("sudo nvidia-smi -i {:number} -pl {:number}", gpu.index, f"{gpu.power_limit_default_w:.0f}")
            for gpu in gpus
        ),
        who="admin",
    )


def _limited(gpus: tuple[Gpu, ...]) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu.power_limit_w and gpu.power_limit_default_w and not gpu.lost]


@check(Severity.WARNING, source=_NVML)
def gpu_power_limits_differ(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has a lower power limit than its siblings of the same model.

    Why: it runs at lower clocks than they do, and data-parallel training runs at the pace of the slowest rank. Somebody
    set it, and it was left.

    Fix: restore the default, or give all the same limit.
    """
    known = _limited(gpus)
    best: dict[str | None, float] = {}
    for gpu in known:
        best[gpu.name] = max(best.get(gpu.name, 0.0), min(_share(gpu), 1.0))
    bad = [gpu for gpu in known if _share(gpu) < _CAPPED * best[gpu.name]]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)} capped at {gpu.power_limit_w:.0f} W of {gpu.power_limit_default_w:.0f} "
            "W, unlike the others",
            "A lower power limit means lower clocks under load, for all ranks.",
            _restore_power(bad),
            {f"gpu_{g.index}_limit_w": g.power_limit_w for g in known},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"equal power limits on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.INFO, source=_NVML)
def gpu_power_capped(gpus: tuple[Gpu, ...]) -> Answer:
    """All GPUs of a model have a power limit below the board's default.

    Why: somebody chose to save power or heat: training is slower than the data sheet's numbers, evenly on all ranks.

    Fix: nothing, unless nobody wants the cap.
    """
    known = _limited(gpus)
    highest: dict[str | None, float] = {}
    for gpu in known:
        highest[gpu.name] = max(highest.get(gpu.name, 0.0), _share(gpu))
    bad = [gpu for gpu in known if highest[gpu.name] < _CAPPED]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)} capped at {gpu.power_limit_w:.0f} W of {gpu.power_limit_default_w:.0f} "
            "W",
            "A lower power limit means lower clocks under load.",
            _restore_power(bad),
            {f"gpu_{g.index}_limit_w": g.power_limit_w for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"default power limit on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML)
def gpu_application_clocks_lowered(gpus: tuple[Gpu, ...]) -> Answer:
    """Somebody set the application clocks of a GPU below the board's default.

    Why: under load the GPU runs at these clocks, and every rank waits for the slowest GPU. Left over from a
    measurement, most often.

    Fix: reset the application clocks.
    """
    known = [gpu for gpu in gpus if gpu.application_clock_mhz and gpu.application_clock_default_mhz]
    bad = [
        gpu
        for gpu in known
        if (gpu.application_clock_default_mhz or 0) - (gpu.application_clock_mhz or 0) >= _CLOCK_DRIFT_MHZ
    ]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: application clock {gpu.application_clock_mhz} MHz, default "
            f"{gpu.application_clock_default_mhz} MHz",
            "The GPU keeps to this clock under load, however cool it is.",
            Fix("Reset them.", tuple(shell("sudo nvidia-smi -i {:number} -rac", g.index) for g in bad), who="admin"),
            {f"gpu_{g.index}_mhz": g.application_clock_mhz for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )
    return Ok(f"default application clocks on {len(known)} of {len(gpus)} GPUs") if known else Skip("no GPU here tells")


@check(Severity.WARNING, source=_NVML, because_of=("gpu_too_hot", "gpu_power_braked", "gpu_slowed_by_hardware"))
def gpu_stuck_in_low_power(gpus: tuple[Gpu, ...], driver: Driver) -> Answer:
    """A GPU computes, and stays in the performance state of an idle one.

    Why: under load the driver raises the clocks at once. A GPU that does not follow runs at a fraction of its speed,
    and every rank with it, until it is reset.

    Fix: reset it when nothing runs there.
    """
    known = [gpu for gpu in gpus if gpu.performance_state is not None and gpu.utilization_percent is not None]
    busy = [gpu for gpu in known if (gpu.utilization_percent or 0) >= _COMPUTING_PERCENT and was_running(gpu, driver)]
    bad = [gpu for gpu in busy if (gpu.performance_state or 0) >= _IDLE_STATE]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)}: {gpu.utilization_percent} % busy in state P{gpu.performance_state}",
            "Its clocks do not rise under load.",
            Fix("Reset it when nothing runs there; then the driver's version.",
                reset(bad), "admin"),
            {f"gpu_{g.index}_sm_clock_mhz": g.sm_clock_mhz for g in bad},
            tuple(f"GPU {g.index}" for g in bad),
        )  # fmt: skip
    if not busy:
        return Skip("no GPU computes just now" if known else "no GPU here tells")
    return Ok(f"{len(busy)} busy of {len(gpus)} GPUs run at full state")
