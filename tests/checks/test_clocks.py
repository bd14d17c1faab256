"""checks/clocks.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import Case, driver, gpu, gpus, informs, problem, skips, table, uuid, warns, well

CASES = (
    # gpu_too_hot, gpu_power_braked: bits of one mask
    warns("gpu_too_hot", "GPU 1 throttled by temperature (91 C)", "TEMPERATURE",
        gpus=gpus(4, gpu(1, clock_event_reasons=0x20, temperature_c=91))),
    warns("gpu_too_hot", "GPU 1", "TEMPERATURE", gpus=gpus(4, gpu(1, clock_event_reasons=0x40 | 0x08))),
    warns("gpu_too_hot", "GPU 1 throttled by temperature", "TEMPERATURE",
        gpus=gpus(4, gpu(1, clock_event_reasons=0x40))),
    well("gpu_too_hot", "4 of 4", gpus=gpus(clock_event_reasons=0x04 | 0x08 | 0x80)),  # power cap, slowdown, brake
    # … and what the board itself says of its temperature: above 86 it should not operate, at 87 it slows down
    well("gpu_too_hot", "4 of 4", gpus=gpus(temperature_c=86)),
    warns("gpu_too_hot", "GPU 2 at the limit of its temperature (87 C)", "TEMPERATURE",
        gpus=gpus(4, gpu(2, temperature_c=87))),
    warns("gpu_too_hot", "GPU 2", "TEMPERATURE",
        gpus=gpus(4, gpu(2, temperature_c=87, temperature_slowdown_c=90))),
    warns("gpu_too_hot", "GPU 2", "TEMPERATURE", gpus=gpus(4, gpu(2, temperature_c=87, temperature_max_c=None))),
    warns("gpu_too_hot", "GPU 2", "TEMPERATURE", gpus=gpus(4, gpu(2, temperature_margin_c=0))),
    well("gpu_too_hot", "4 of 4", gpus=gpus(temperature_margin_c=1)),
    well("gpu_too_hot", "4 of 4", gpus=gpus(temperature_max_c=0, temperature_slowdown_c=0)),  # a board that has none
    well("gpu_too_hot", "4 of 4", gpus=gpus(temperature_c=None)),
    skips("gpu_too_hot", "not reported by any GPU here", gpus=gpus(clock_event_reasons=None)),
    warns("gpu_power_braked", "GPU 0: hardware power brake", "POWER", gpus=gpus(4, gpu(0, clock_event_reasons=0x88))),
    well("gpu_power_braked", "no power brake on 4 of 4", gpus=gpus(clock_event_reasons=0x04 | 0x20 | 0x40)),
    skips("gpu_power_braked", "not reported by any GPU here", gpus=gpus(clock_event_reasons=None)),
    # gpu_memory_too_hot
    warns("gpu_memory_too_hot", "GPU 1: memory at 96 C (limit 95 C)", "TEMPERATURE",
        gpus=gpus(4, gpu(1, memory_temperature_c=96))),
    well("gpu_memory_too_hot", "memory temperature normal on 4 of 4 GPUs", gpus=gpus(memory_temperature_c=95)),
    skips("gpu_memory_too_hot", "not reported by any GPU here", gpus=gpus(memory_temperature_c=None)),
    skips("gpu_memory_too_hot", "not reported by any GPU here", gpus=gpus(memory_temperature_max_c=None)),
    # gpu_slowed_by_hardware: the bit alone
    warns("gpu_slowed_by_hardware", "GPU 3 slowed down by its hardware", "POWER",
        gpus=gpus(4, gpu(3, clock_event_reasons=0x08))),
    well("gpu_slowed_by_hardware", "4 of 4", gpus=gpus(clock_event_reasons=0x48)),  # heat has a check of its own
    well("gpu_slowed_by_hardware", "4 of 4", gpus=gpus(clock_event_reasons=0x88)),  # and so has the brake
    skips("gpu_slowed_by_hardware", "not reported by any GPU here", gpus=gpus(clock_event_reasons=None)),
    # gpu_power_limits_differ: below 95 % of the best sibling
    warns("gpu_power_limits_differ", "GPU 2 capped at 664 W of 700 W, the others are not",
        "sudo nvidia-smi -i 2 -pl 700", gpus=gpus(4, gpu(2, power_limit_w=664.0))),
    well("gpu_power_limits_differ", "equal power limits on 4 of 4", gpus=gpus(4, gpu(2, power_limit_w=665.0))),
    well("gpu_power_limits_differ", "4 of 4", gpus=gpus(power_limit_w=400.0)),
    well("gpu_power_limits_differ", "4 of 4", gpus=gpus(4, gpu(2, power_limit_w=750.0))),  # raised, the rest default
    well("gpu_power_limits_differ", "4 of 4",
        gpus=gpus(4, gpu(3, name="NVIDIA L4", power_limit_w=72.0, power_limit_default_w=72.0))),
    skips("gpu_power_limits_differ", "not reported by any GPU here", gpus=gpus(power_limit_w=None)),
    # gpu_power_capped: all of a model, below 95 % of the default
    informs("gpu_power_capped", "GPUs 0, 1, 2 and 3 capped at 400 W of 700 W", "-i 3 -pl 700",
        gpus=gpus(power_limit_w=400.0)),
    informs("gpu_power_capped", "GPU 0 capped at 664 W", "-i 0 -pl 700", gpus=gpus(1, power_limit_w=664.0)),
    well("gpu_power_capped", "default power limit on 4 of 4", gpus=gpus(power_limit_w=665.0)),
    well("gpu_power_capped", "4 of 4", gpus=gpus(power_limit_w=750.0)),
    well("gpu_power_capped", "4 of 4", gpus=gpus(4, gpu(2, power_limit_w=300.0))),
    skips("gpu_power_capped", "not reported by any GPU here", gpus=gpus(power_limit_default_w=None)),
    # gpu_application_clocks_lowered: by 30 MHz or more
    warns("gpu_application_clocks_lowered", "GPU 1: application clock 1950 MHz, default 1980 MHz",
        "sudo nvidia-smi -i 1 -rac", gpus=gpus(4, gpu(1, application_clock_mhz=1950))),
    well("gpu_application_clocks_lowered", "4 of 4", gpus=gpus(application_clock_mhz=1951)),
    well("gpu_application_clocks_lowered", "4 of 4", gpus=gpus(application_clock_default_mhz=1275)),  # raised
    skips("gpu_application_clocks_lowered", "not reported by any GPU here", gpus=gpus(application_clock_mhz=None)),
    # gpu_stuck_in_low_power: at 80 % and in P8
    warns("gpu_stuck_in_low_power", "GPU 2: 80 % busy in idle state P8", f"--gpu-reset -i {uuid(2)}",
        gpus=gpus(4, gpu(2, utilization_percent=80, performance_state=8))),
    well("gpu_stuck_in_low_power", "1 busy of 4 GPUs", gpus=gpus(4, gpu(2, utilization_percent=100))),
    well("gpu_stuck_in_low_power", "1 busy of 4",
        gpus=gpus(4, gpu(2, utilization_percent=100, performance_state=7))),
    skips("gpu_stuck_in_low_power", "no GPU is busy right now",
        gpus=gpus(4, gpu(2, utilization_percent=79, performance_state=8))),
    skips("gpu_stuck_in_low_power", "no GPU is busy right now",  # the driver starts, and scrubs memory
        gpus=gpus(4, gpu(2, utilization_percent=100, performance_state=8, persistence_mode=False)),
        driver=driver(init_s=0.5)),
    skips("gpu_stuck_in_low_power", "not reported by any GPU here", gpus=gpus(performance_state=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_a_temperature_that_is_not_known_is_not_told() -> None:
    found = problem("gpu_too_hot", gpus=gpus(1, clock_event_reasons=0x40, temperature_c=None))
    assert "None" not in found.title
