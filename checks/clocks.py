"""Can every GPU run at full speed?"""

from __future__ import annotations

from collections.abc import Iterable

from mgpu.check import Answer, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Driver, Gpu

from ._gpus import driver_was_running, gpu_problem, gpu_subjects, reset_commands
from ._wording import gpu_list

FAMILY = Family(gpu_only=True)

_NVML = "https://docs.nvidia.com/deploy/nvml-api/"

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h): a mask, to be tested bit by bit.
_HW_SLOWDOWN, _SW_THERMAL, _HW_THERMAL, _HW_POWER_BRAKE = 0x08, 0x20, 0x40, 0x80
# A power limit below this share of another one was set on purpose, and slows every rank to the slowest GPU.
_CAPPED = 0.95
# Application clocks are set in steps of 15 MHz (nvidia-smi -q -d SUPPORTED_CLOCKS); gcm warns from 30 MHz.
_CLOCK_DRIFT_MHZ = 30
# P8 is the idle state; a computing GPU is in P0 to P2 (nvmlPstates_t: 0 is the fastest).
_IDLE_STATE = 8
_COMPUTING_PERCENT = 80


@check(Severity.WARNING, source=_NVML)
def gpu_too_hot(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU slows down because of its temperature, or has reached its temperature limit.

    Why: a hot GPU lowers its clocks to protect itself, and every training step takes as long as on the slowest GPU.

    Fix: check fans, airflow and inlet temperature.
    """
    known = [gpu for gpu in gpus if gpu.clock_event_reasons is not None]
    bad = [gpu for gpu in gpus if (gpu.clock_event_reasons or 0) & (_SW_THERMAL | _HW_THERMAL) or _is_at_limit(gpu)]
    if bad:
        hot = "" if bad[0].temperature_c is None else f" ({bad[0].temperature_c} C)"
        slowed = any((gpu.clock_event_reasons or 0) & (_SW_THERMAL | _HW_THERMAL) for gpu in bad)
        return Problem(
            f"{gpu_list(g.index for g in bad)} {'throttled by' if slowed else 'at the limit of its'} temperature{hot}",
            fix=Fix(commands=("nvidia-smi -q -d TEMPERATURE,PERFORMANCE",), who="hardware"),
            evidence={f"gpu_{gpu.index}_reasons": gpu.clock_event_reasons for gpu in bad}
            | {f"gpu_{gpu.index}_temperature_c": gpu.temperature_c for gpu in bad},
            subjects=gpu_subjects(bad),
        )
    return (
        Ok(f"no thermal slowdown on {len(known)} of {len(gpus)} GPUs")
        if known
        else Skip("not reported by any GPU here")
    )


@check(Severity.WARNING, source=_NVML)
def gpu_power_braked(gpus: tuple[Gpu, ...]) -> Answer:
    """An external power-brake signal slows a GPU down.

    Why: the power supply or the rack signals the GPU to slow down.
    More: The GPU runs at a fraction of its clocks, and all ranks wait for it.

    Fix: check power supplies and cables.
    """
    known = [gpu for gpu in gpus if gpu.clock_event_reasons is not None]
    bad = [gpu for gpu in known if (gpu.clock_event_reasons or 0) & _HW_POWER_BRAKE]
    if bad:
        return gpu_problem(
            bad,
            "hardware power brake",
            {"reasons": "clock_event_reasons"},
            Fix(commands=("nvidia-smi -q -d PERFORMANCE,POWER",), who="hardware"),
        )
    return Ok(f"no power brake on {len(known)} of {len(gpus)} GPUs") if known else Skip("not reported by any GPU here")


def _is_at_limit(gpu: Gpu) -> bool:
    """Return whether the temperature has reached the slowdown threshold or exceeds the maximum operating value."""
    if gpu.temperature_margin_c is not None and gpu.temperature_margin_c <= 0:
        return True
    if gpu.temperature_c is None:
        return False
    slowdown, highest = gpu.temperature_slowdown_c or 0, gpu.temperature_max_c or 0
    return gpu.temperature_c >= slowdown > 0 or gpu.temperature_c > highest > 0


@check(Severity.WARNING, source=_NVML, because_of=("gpu_too_hot",))
def gpu_memory_too_hot(gpus: tuple[Gpu, ...]) -> Answer:
    """The memory of a GPU is above its temperature limit.

    Why: above this temperature the GPU slows down and memory errors become more frequent.
    More: In data-parallel training all ranks wait for the slowest one.

    Fix: check fans, airflow and inlet temperature.
    """
    known = [gpu for gpu in gpus if gpu.memory_temperature_c is not None and gpu.memory_temperature_max_c]
    bad = [gpu for gpu in known if (gpu.memory_temperature_c or 0) > (gpu.memory_temperature_max_c or 0)]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"memory at {gpu.memory_temperature_c} C (limit {gpu.memory_temperature_max_c} C)",
            {"memory_c": "memory_temperature_c"},
            Fix(commands=("nvidia-smi -q -d TEMPERATURE",), who="hardware"),
        )
    return (
        Ok(f"memory temperature normal on {len(known)} of {len(gpus)} GPUs")
        if known
        else Skip("not reported by any GPU here")
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_too_hot", "gpu_power_braked"))
def gpu_slowed_by_hardware(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU's hardware lowers its clocks for a reason other than heat or the power brake.

    Why: the board lowers its clocks, usually because of its power supply.
    More: Power draw above the board's limit, or a supply whose voltage drops, halves the clocks or worse. In
    data-parallel training every step takes as long as on this GPU. Two readings in a row showed the flag, because it
    also appears briefly when clocks change.

    Fix: check power cables and supplies.
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
            fix=Fix(commands=("nvidia-smi -q -d PERFORMANCE,POWER",), who="hardware"),
            evidence={f"gpu_{gpu.index}_reasons": gpu.clock_event_reasons for gpu in bad},
            subjects=gpu_subjects(bad),
        )
    return (
        Ok(f"no hardware slowdown on {len(known)} of {len(gpus)} GPUs")
        if known
        else Skip("not reported by any GPU here")
    )


def _power_share(gpu: Gpu) -> float:
    """Return the power limit as a share of the board's default."""
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


def _with_power_limit(gpus: tuple[Gpu, ...]) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu.power_limit_w and gpu.power_limit_default_w and not gpu.lost]


@check(Severity.WARNING, source=_NVML)
def gpu_power_limits_differ(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU has a lower power limit than other GPUs of the same model.

    Why: a lower power limit means lower clocks under load, for all ranks.
    More: The limit was set manually and never reset.

    Fix: restore the default, or set the same limit on all GPUs.
    """
    known = _with_power_limit(gpus)
    best: dict[str | None, float] = {}
    for gpu in known:
        best[gpu.name] = max(best.get(gpu.name, 0.0), min(_power_share(gpu), 1.0))
    bad = [gpu for gpu in known if _power_share(gpu) < _CAPPED * best[gpu.name]]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)} capped at {gpu.power_limit_w:.0f} W of {gpu.power_limit_default_w:.0f} "
            "W, the others are not",
            fix=_restore_power(bad),
            evidence={f"gpu_{g.index}_limit_w": g.power_limit_w for g in known},
            subjects=gpu_subjects(bad),
        )
    return (
        Ok(f"equal power limits on {len(known)} of {len(gpus)} GPUs") if known else Skip("not reported by any GPU here")
    )


@check(Severity.INFO, source=_NVML)
def gpu_power_capped(gpus: tuple[Gpu, ...]) -> Answer:
    """All GPUs of a model have a power limit below the board's default.

    Why: a lower power limit means lower clocks under load.
    More: Usually set to save power or limit heat. Training is slower than the data sheet says, equally on all ranks.

    Fix: nothing, if the cap is intended.
    """
    known = _with_power_limit(gpus)
    highest: dict[str | None, float] = {}
    for gpu in known:
        highest[gpu.name] = max(highest.get(gpu.name, 0.0), _power_share(gpu))
    bad = [gpu for gpu in known if highest[gpu.name] < _CAPPED]
    if bad:
        gpu = bad[0]
        return Problem(
            f"{gpu_list(g.index for g in bad)} capped at {gpu.power_limit_w:.0f} W of {gpu.power_limit_default_w:.0f} "
            "W",
            fix=_restore_power(bad),
            evidence={f"gpu_{g.index}_limit_w": g.power_limit_w for g in bad},
            subjects=gpu_subjects(bad),
        )
    return (
        Ok(f"default power limit on {len(known)} of {len(gpus)} GPUs")
        if known
        else Skip("not reported by any GPU here")
    )


@check(Severity.WARNING, source=_NVML)
def gpu_application_clocks_lowered(gpus: tuple[Gpu, ...]) -> Answer:
    """A GPU's application clocks are set below the board's default.

    Why: the GPU stays at this clock under load, regardless of its temperature.
    More: Usually left over from a benchmark.

    Fix: reset them.
    """
    known = [gpu for gpu in gpus if gpu.application_clock_mhz and gpu.application_clock_default_mhz]
    bad = [
        gpu
        for gpu in known
        if (gpu.application_clock_default_mhz or 0) - (gpu.application_clock_mhz or 0) >= _CLOCK_DRIFT_MHZ
    ]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"application clock {gpu.application_clock_mhz} MHz, default {gpu.application_clock_default_mhz} MHz",
            {"mhz": "application_clock_mhz"},
            Fix(commands=tuple(shell("sudo nvidia-smi -i {:number} -rac", g.index) for g in bad), who="admin"),
        )
    return (
        Ok(f"default application clocks on {len(known)} of {len(gpus)} GPUs")
        if known
        else Skip("not reported by any GPU here")
    )


@check(Severity.WARNING, source=_NVML, because_of=("gpu_too_hot", "gpu_power_braked", "gpu_slowed_by_hardware"))
def gpu_stuck_in_low_power(gpus: tuple[Gpu, ...], driver: Driver) -> Answer:
    """A GPU is busy but stays in an idle performance state.

    Why: its clocks do not rise under load.
    More: Until it is reset, the GPU runs at a fraction of its speed, and all ranks wait for it.

    Fix: reset it when nothing runs on it. If it recurs, check the driver version.
    """
    known = [gpu for gpu in gpus if gpu.performance_state is not None and gpu.utilization_percent is not None]
    busy = [
        gpu for gpu in known if (gpu.utilization_percent or 0) >= _COMPUTING_PERCENT and driver_was_running(gpu, driver)
    ]
    bad = [gpu for gpu in busy if (gpu.performance_state or 0) >= _IDLE_STATE]
    if bad:
        gpu = bad[0]
        return gpu_problem(
            bad,
            f"{gpu.utilization_percent} % busy in idle state P{gpu.performance_state}",
            {"sm_clock_mhz": "sm_clock_mhz"},
            Fix(commands=reset_commands(bad), who="admin"),
        )
    if not busy:
        return Skip("no GPU is busy right now" if known else "not reported by any GPU here")
    return Ok(f"performance state normal on {len(busy)} busy of {len(gpus)} GPUs")
