"""checks/_faults*.py: every row fires at its first bad release, not at the fixed one, and only if all its facts match.

The machines are made from the rows, so that a new row is tested without a line here. A new kind of condition needs one.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Problem
from mgpu.snapshot import NcclLibrary, Plan, Snapshot
from tests.checks.facts import config, driver, facts, gpus, host, nccl, pytorch, seen
from tests.conftest import CHECKS

engine.load()  # makes mgpu.checks importable
_faults: Any = importlib.import_module("mgpu.checks._faults")
_nccl: Any = importlib.import_module("mgpu.checks._faults_nccl")
_training: Any = importlib.import_module("mgpu.checks._faults_training")
ROWS = (*_nccl.NCCL_FAULTS, *_nccl.DRIVER_FAULTS, *_training.TORCH_FAULTS, *_training.TRAINING_FAULTS)

SOME_USES = "versions_known_bad_in_some_uses"
CHECK_OF = {
    "nccl": "nccl_version_known_bad", "driver": "driver_version_known_bad", "torch": "torch_version_known_bad",
    "triton": "torch_version_known_bad",
}  # fmt: skip
# A name that each pattern of GPUs is to match, and one near it that it must not.
NAMES = {
    r"\bGB[23]00\b": ("NVIDIA GB300", "NVIDIA B300"),
    r"\bGB200\b": ("NVIDIA GB200", "NVIDIA B200"),
    r"\bB200\b": ("NVIDIA B200", "NVIDIA GB200"),
    "H100": ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"),
}
_ZERO = "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: {precision}\ndeepspeed_config:\n"
_FSDP = (
    "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: {precision}\nfsdp_config:\n  fsdp_version: {version}\n"
)
BF16, FP16 = {"precision": "bf16"}, {"precision": "fp16"}
# A config that uses the feature, and the nearest that does not.
CONFIGS = {
    "deepspeed_accumulate": (
        _ZERO.format(**BF16) + "  zero_stage: 3\n  gradient_accumulation_steps: 2\n",
        _ZERO.format(**BF16) + "  zero_stage: 3\n  gradient_accumulation_steps: 1\n",
    ),
    "fsdp": (_FSDP.format(version=1, precision="'no'"), "distributed_type: MULTI_GPU\nnum_processes: 4\n"),
    "fsdp2_accumulate": (_FSDP.format(version=2, precision="'no'"), _FSDP.format(version=1, precision="'no'")),
    "fsdp2_mixed": (_FSDP.format(version=2, **BF16), _FSDP.format(version=2, precision="'no'")),
    "fsdp2_no_classes": (
        _FSDP.format(version=2, precision="'no'") + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
        _FSDP.format(version=2, precision="'no'") + "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n",
    ),
    "fsdp2_ram_efficient": (
        _FSDP.format(version=2, precision="'no'") + "  fsdp_cpu_ram_efficient_loading: true\n",
        _FSDP.format(version=2, precision="'no'") + "  fsdp_cpu_ram_efficient_loading: false\n",
    ),
    "fsdp2_ram_efficient_offload": (
        _FSDP.format(version=2, precision="'no'")
        + "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: true\n",
        _FSDP.format(version=2, precision="'no'") + "  fsdp_offload_params: true\n",
    ),
    "several_nodes": (
        "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 0\n",
        "distributed_type: MULTI_GPU\nnum_processes: 8\n",
    ),
    "zero_0_fp16": (_ZERO.format(**FP16) + "  zero_stage: 0\n", _ZERO.format(**BF16) + "  zero_stage: 0\n"),
    "zero_1_or_2": (_ZERO.format(**BF16) + "  zero_stage: 1\n", _ZERO.format(**BF16) + "  zero_stage: 3\n"),
    "zero_2": (_ZERO.format(**BF16) + "  zero_stage: 2\n", _ZERO.format(**BF16) + "  zero_stage: 1\n"),
    "zero_clip": (
        _ZERO.format(**BF16) + "  zero_stage: 2\n  gradient_clipping: 1.0\n",
        _ZERO.format(**BF16) + "  zero_stage: 2\n",
    ),
    "zero_nvme": (
        _ZERO.format(**BF16) + "  zero_stage: 3\n  offload_optimizer_device: nvme\n",
        _ZERO.format(**BF16) + "  zero_stage: 3\n  offload_optimizer_device: cpu\n",
    ),
}


def name(row: Any) -> str:
    return f"{row.package}{row.versions}"


def every_row(test: Any) -> Any:
    return pytest.mark.parametrize("row", ROWS, ids=name)(test)


def first_bad(row: Any) -> str:
    """The first release of a range; without one, some older release."""
    found = re.search(r"[>=]=([\d.]+)", row.versions)
    return found[1] if found else "0.1"


def first_good(row: Any) -> str | None:
    """The release that ends the range; `fixed_in` may be a later one, if another row covers those between."""
    found = re.search(r"<([\d.]+)", row.versions)
    return found[1] if found else None


def machine(row: Any, version: str) -> dict[str, Any]:
    """Facts on which every condition of the row is met, with this release installed."""
    changes: dict[str, Any] = {}
    if row.compute:
        changes["compute_capability"] = row.compute[0]
    if row.gpus:
        changes["name"] = NAMES[row.gpus][0]
    found = gpus(row.gpu_count or 4, **changes)
    if row.mixed_gpus:
        found = (*found[:-1], replace(found[-1], compute_capability=(8, 0)))
    made: dict[str, Any] = {
        "host": host(machine=row.machine or "x86_64"), "gpus": found, "plan": Plan(nodes=2 if row.several_nodes else 1),
        "packages": {}, "visible": seen(*range(len(found))),
    }  # fmt: skip
    if row.feature:
        made["config"] = config(CONFIGS[row.feature][0], accumulate=2 if row.feature == "fsdp2_accumulate" else None)
    match row.package:
        case "nccl":
            made["nccl"] = nccl(NcclLibrary("/x/libnccl.so.2", version, "wheel"))
        case "driver":
            made["driver"] = driver(version=version)
        case "torch":
            made["pytorch"] = pytorch(version=version)
        case package:
            made["packages"] = {package: version}
    return made


def names_the_row(row: Any, made: dict[str, Any]) -> bool:
    """Whether the check of this row reports it, as the doctor would."""
    check = SOME_USES if row.use else CHECK_OF.get(row.package, "versions_known_bad_for_config")
    (outcome,) = engine.run_check(CHECKS[check], Snapshot(**facts(**made)))
    assert outcome.status != "crash", outcome.answer
    if not isinstance(outcome.answer, Problem):
        return False
    return any(str(value).startswith(row.url + " ") for value in outcome.answer.evidence.values())


@every_row
def test_it_fires_at_the_first_bad_release_and_not_at_the_fixed_one(row: Any) -> None:
    assert names_the_row(row, machine(row, first_bad(row)))
    good = first_good(row)
    if good is None:
        assert row.versions.startswith("==")
        assert not names_the_row(row, machine(row, f"{first_bad(row)}.post9")) or row.fixed_in is None
        good = row.fixed_in
    if good is not None:
        shared = [other for other in ROWS if other.url == row.url and other is not row]
        assert not shared, "two rows with one source cannot be told apart here"
        assert not names_the_row(row, machine(row, good))
    if row.fixed_in:
        assert not names_the_row(row, machine(row, row.fixed_in))


def near_misses(row: Any, made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same machine with one condition not met, by the condition."""
    found: dict[str, dict[str, Any]] = {}
    if row.machine:
        found["machine"] = {"host": host(machine="ppc64le")}
    if row.compute:
        found["compute"] = {"gpus": tuple(replace(g, compute_capability=(8, 6)) for g in made["gpus"])}
        found["unknown compute"] = {"gpus": tuple(replace(g, compute_capability=None) for g in made["gpus"])}
    if row.gpus:
        found["name"] = {"gpus": tuple(replace(g, name=NAMES[row.gpus][1]) for g in made["gpus"])}
        found["unknown name"] = {"gpus": tuple(replace(g, name=None) for g in made["gpus"])}
    if row.gpu_count:
        found["count"] = {"gpus": gpus(row.gpu_count + 1), "visible": seen(*range(row.gpu_count + 1))}
    if row.mixed_gpus:
        found["equal GPUs"] = {"gpus": gpus(len(made["gpus"]))}
    if row.several_nodes:
        found["one node"] = {"plan": Plan()}
    if row.gsp:
        found["no firmware"] = {"gpus": tuple(replace(g, gsp_firmware=None) for g in made["gpus"])}
    if row.feature:
        found["config"] = {"config": config(CONFIGS[row.feature][1])}
    return found


@every_row
def test_it_does_not_fire_if_a_condition_is_not_met_or_not_known(row: Any) -> None:
    made = machine(row, first_bad(row))
    for what, changes in near_misses(row, made).items():
        assert not names_the_row(row, made | changes), what


@every_row
def test_a_row_is_a_sentence_with_a_dated_source(row: Any) -> None:
    assert re.fullmatch(r"https://\S+", row.url)
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", row.seen) and row.seen <= _faults.TABLES_DATE
    assert row.effect.endswith(".") and len(row.effect) < 150
    assert row.use is None or not row.use.endswith(".")
    if row.fixed_in and (good := first_good(row)):
        assert tuple(map(int, good.split("."))) <= tuple(map(int, row.fixed_in.split(".")))


def test_there_are_many_rows_and_every_feature_is_used() -> None:
    assert len(ROWS) >= 35
    assert {row.feature for row in ROWS if row.feature} == set(CONFIGS) == set(_faults.FEATURES)
    assert {row.gpus for row in ROWS if row.gpus} == set(NAMES)


def test_a_healthy_machine_of_today_has_no_row() -> None:
    """What PyPI had in 2026-11, on four H100s: nothing to report."""
    today = {
        "pytorch": pytorch(version="2.15.0"), "nccl": nccl(NcclLibrary("/x", "2.30.7", "wheel")),
        "packages": {"torch": "2.15.0", "accelerate": "1.15.0", "transformers": "5.24.0", "deepspeed": "0.19.8"},
    }  # fmt: skip
    for check in ("nccl_version_known_bad", "torch_version_known_bad", SOME_USES, "versions_newer_than_mgpu_knows"):
        (outcome,) = engine.run_check(CHECKS[check], Snapshot(**facts(**today)))
        assert outcome.status == "ok", outcome.answer
