"""checks/work.py"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import GpuWork, Run
from tests.checks.facts import GIB, MIB, Case, informs, problem, run, skips, table, warns, well


def gpus(*changes: dict[str, Any], **all_of_them: Any) -> tuple[GpuWork, ...]:
    """The four GPUs of a good run; `changes` of the first, the second ... ones."""
    usual = run().gpus or ()
    each = [*changes, *({} for _ in usual)]
    return tuple(replace(gpu, **all_of_them, **change) for gpu, change in zip(usual, each, strict=False))


def of(*changes: dict[str, Any], **all_of_them: Any) -> Run:
    return run(gpus=gpus(*changes, **all_of_them))


GONE = {"processes": (), "busy_percent": 0.0, "busy_share": 0.0, "peak_bytes": 600 * MIB, "before_bytes": 600 * MIB}
UNTOLD = {"processes": None}  # in a container
IDLE = {"idle_s": 400.0, "now_percent": 0.0}
NOW = {"idle_s": 1.0}
SPINNING = {"now_percent": 100.0, "power_percent": 18.0, "usual_power_percent": 74.0, "idle_s": 0.0}

CASES = (
    informs("gpus_not_watched", "the GPUs were not monitored", "nvidia-smi", run=run(gpus=None, gpus_gap="NVML hangs")),
    informs("gpus_not_watched", "the GPUs were not monitored to the end", "nvidia-smi", run=run(gpus_gap="NVML ended")),
    well("gpus_not_watched", "4 GPUs monitored"),
    skips("gpus_not_watched", "no GPU to monitor", run=run(gpus=None)),

    warns("ranks_on_one_gpu", "4 ranks share GPU 0: ranks 0, 1, 2 and 3", "LOCAL_RANK",
        run=of({"processes": (4000, 4001, 4002, 4003)}, GONE, GONE, GONE)),
    warns("ranks_on_one_gpu", "2 ranks share GPU 1: ranks 1 and 3", "set_device",
        run=of({}, {"processes": (4001, 4003)}, {}, GONE)),
    well("ranks_on_one_gpu", "more than one of 4 ranks"),
    well("ranks_on_one_gpu", "more than one of 4 ranks",
        run=of({"processes": (4000, 9001, 9002)})),  # a rank's own children
    skips("ranks_on_one_gpu", "unknown which rank was on which GPU", run=of(**UNTOLD)),
    skips("ranks_on_one_gpu", "8 ranks share 4 GPUs", run=replace(of({"processes": (4000, 4001)}), expected=8)),

    warns("gpu_context_of_other_ranks", "ranks 1, 2 and 3 also use memory on GPU 0", "set_device",
        run=of({"processes": (4000, 4001, 4002, 4003)})),
    warns("gpu_context_of_other_ranks", "rank 2 also uses memory on GPU 0", "map_location",
        run=of({"processes": (4000, 4002)})),
    well("gpu_context_of_other_ranks", "every rank is on one GPU only"),
    well("gpu_context_of_other_ranks", "no GPU has two ranks",  # one process that spreads a model over all
        run=of(processes=(4000,))),
    well("gpu_context_of_other_ranks", "every rank is on one GPU only",  # it has no other: ranks_on_one_gpu tells it
        run=of({}, {"processes": (4001, 4003)}, {}, GONE)),
    skips("gpu_context_of_other_ranks", "unknown which rank was on which GPU", run=of(**UNTOLD)),

    warns("gpu_idle_in_run", "1 of 4 GPUs is not training: GPU 3 (rank 3)", "num_processes", run=of({}, {}, {}, GONE)),
    warns("gpu_idle_in_run", "3 of 4 GPUs are not training: GPUs 1, 2 and 3", "cuda:0", run=of({}, GONE, GONE, GONE)),
    warns("gpu_idle_in_run", "1 of 4 GPUs is not training: GPU 3", "device_map",
        run=of(UNTOLD, UNTOLD, UNTOLD, GONE | UNTOLD)),
    warns("gpu_idle_in_run", "GPU 3", "num_processes",  # somebody else's work on it is not the run's
        run=of({}, {}, {}, {"processes": ()})),
    warns("gpu_idle_in_run", "none of 4 GPUs was used", "mgpu doctor",
        run=of(GONE, GONE, GONE, GONE, samples=60)),
    well("gpu_idle_in_run", "4 of 4 GPUs used"),
    well("gpu_idle_in_run", "4 of 4 GPUs used",  # no pids, but a context: it waits
        run=of({}, {}, {}, GONE | UNTOLD | {"peak_bytes": 1100 * MIB})),
    well("gpu_idle_in_run", "3 of 4 GPUs used, 1 unknown",
        run=of({}, {}, {}, {"processes": None, "busy_share": None})),
    well("gpu_idle_in_run", "3 of 4 GPUs used", run=of({}, {}, {}, GONE, samples=4)),
    skips("gpu_idle_in_run", "failed before", run=replace(of(GONE, GONE, GONE, GONE, samples=60), exit_code=1)),
    skips("gpu_idle_in_run", "no data on GPU activity", run=run(gpus=None)),

    warns("gpu_starved", "the GPUs were busy 31 % of the time", "num_workers", run=of(busy_percent=31.0)),
    warns("gpu_starved", "the GPUs are busy 31 % of the time", "num_workers",
        run=replace(of(busy_percent=31.0, samples=15), going=True, seconds=70.0)),
    well("gpu_starved", "93 % busy on average"),
    well("gpu_starved", "93 % busy", run=of({}, {}, {}, GONE)),
    skips("gpu_starved", "too short", run=replace(of(busy_percent=31.0), seconds=40.0)),
    skips("gpu_starved", "no data on GPU utilization", run=of(busy_percent=None)),

    informs("gpu_memory_nearly_full", "GPU 2 (rank 2): memory nearly full, 78 GiB of 80 GiB", "accumulation",
        run=of({}, {}, {"peak_bytes": 78 * GIB})),
    well("gpu_memory_nearly_full", "at most 60 GiB of 80 GiB"),
    skips("gpu_memory_nearly_full", "no data on GPU memory", run=of(peak_bytes=None)),

    warns("gpus_uneven", "GPU 0 (rank 0) differed from the others: 78 GiB of memory, the others 52 GiB", "map_location",
        run=of({"peak_bytes": 78 * GIB}, *({"peak_bytes": 52 * GIB},) * 3)),
    warns("gpus_uneven", "GPU 2 (rank 2) differed from the others: busy 20 % of the time, the others 93 %",
        "mgpu doctor --deep",
        run=of({}, {}, {"busy_percent": 20.0})),
    well("gpus_uneven", "4 GPUs evenly loaded"),
    well("gpus_uneven", "4 GPUs evenly loaded", run=of({"peak_bytes": 66 * GIB})),
    skips("gpus_uneven", "fewer than two", run=run(gpus=gpus()[:1])),
    skips("gpus_uneven", "no data on GPU activity", run=of(busy_percent=None, peak_bytes=None)),

    warns("gpu_fell_idle", "GPU 2 (rank 2) has been idle for 7 min while the others are busy", "py-spy dump --pid 4002",
        run=replace(of(NOW, NOW, IDLE, NOW), going=True)),
    warns("gpu_fell_idle", "all 4 GPUs have been idle for 7 min", "py-spy dump --pid 4000",
        run=replace(of(**IDLE), going=True)),
    warns("gpu_fell_idle", "all 4 GPUs had been idle for 7 min", "Check where its rank is.",
        run=replace(of(**IDLE), exit_code=130, signalled="SIGINT")),
    well("gpu_fell_idle", "4 of 4 GPUs busy at the last reading", run=of(**NOW)),
    well("gpu_fell_idle", "0 of 4 GPUs", run=of(**IDLE)),  # it ended well: the last minutes went into saving
    well("gpu_fell_idle", "2 of 4 GPUs", run=replace(of(NOW, NOW, IDLE | {"idle_s": 200.0}, NOW | {"idle_s": 90.0}),
        going=True)),
    skips("gpu_fell_idle", "no GPU was busy", run=of(idle_s=None)),

    warns("gpus_spin_in_silence",
        "all 4 GPUs are 100 % busy at 18 % of their power limit, without output for 12 min: probably a hang",
        "py-spy", run=replace(of(**SPINNING), going=True, quiet_s=720.0)),
    well("gpus_spin_in_silence", "last output 12 min ago, power at most 88 % of the limit",
         # a long silence at full power
        run=replace(of(**SPINNING | {"power_percent": 88.0}), quiet_s=720.0)),
    well("gpus_spin_in_silence", "last output 12 min ago, power at most 18 % of the limit",
         # a small model: its steps draw no more
        run=replace(of(**SPINNING | {"usual_power_percent": 20.0}), quiet_s=720.0)),
    well("gpus_spin_in_silence", "last output 20 s ago, power at most 18 % of the limit",
        run=replace(of(**SPINNING), quiet_s=20.0)),
    skips("gpus_spin_in_silence", "no data on GPU load, power or the run's output",
        run=replace(of(**SPINNING | {"power_percent": None}), quiet_s=720.0)),
    skips("gpus_spin_in_silence", "no data on GPU load, power or the run's output",  # what its steps drew is not known
        run=replace(of(**SPINNING | {"usual_power_percent": None}), quiet_s=720.0)),
    skips("gpus_spin_in_silence", "no data on GPU load, power or the run's output",
        run=replace(of(SPINNING | {"usual_power_percent": None}, SPINNING, SPINNING, SPINNING), quiet_s=720.0)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_what_ranks_do_not_touch_is_told_with_the_memory_of_all() -> None:
    found = problem("gpu_idle_in_run", run=of({}, {}, {}, GONE))
    assert found.evidence["gpu_3_peak_bytes"] == 600 * MIB and found.subjects == ("GPU 3",)
    assert found.cause == "The run had no process and no memory there, while it used GPUs 0, 1 and 2."
