"""What the installed DeepSpeed says of a file (config/deepspeed_loader.py), and what the commands make of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from mgpu.config import ask_all, deepspeed_loader
from mgpu.config.deepspeed_json import read_text
from mgpu.config.reading import parse_config
from mgpu.snapshot import DeepSpeedVerdict
from tests.conftest import Run

if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("deepspeed is not installed", allow_module_level=True)

STAGE2 = {"zero_optimization": {"stage": 2}}
EXTRA = "Extra inputs are not permitted"
# fmt: off
ACCEPTED: dict[str, dict[str, Any]] = {
    "batch sizes of several ranks": {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, **STAGE2},
    "no batch size": STAGE2,
    "auto": {
        "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "loss_scale": 0}, "gradient_clipping": "auto",
        "zero_optimization": {"stage": "auto", "offload_optimizer": {"device": "auto"}}, "train_batch_size": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    },
    "an unknown auto in zero_optimization": {"zero_optimization": {"stage": 2, "my_notes": "auto"}},
    "unknown keys elsewhere": {**STAGE2, "my_notes": 1, "zero3_init_flag": True, "optimizer": {"type": "A", "eps": 1}},
    "stage as a Boolean": {"zero_optimization": True},
}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "unknown in zero_optimization": (
        {"zero_optimization": {"stage": 2, "my_notes": 1}}, {"zero_optimization.my_notes": EXTRA},
    ),
    "unknown in a section of zero_optimization": (
        {"zero_optimization": {"offload_param": {"device": "cpu", "fast_init": True}}},
        {"zero_optimization.offload_param.fast_init": EXTRA},
    ),
    "a value": ({"zero_optimization": {"stage": 5}}, {"zero_optimization.stage": "Input should be 0, 1, 2"}),
    "no section": ({"zero_optimization": [2]}, {"zero_optimization": "must be a mapping"}),
    "both precisions": (
        {"bf16": {"enabled": True}, "fp16": {"enabled": True}}, {"bf16.enabled": "simultaneously enabled"},
    ),
    "a setting outside zero_optimization": ({"communication_data_type": "x"}, {"communication_data_type": "Invalid"}),
}
# fmt: on
NEWER: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "keys of the precisions": (
        "0.17.1",
        {"fp16": {"opt_level": "O2", "min_loss_scale": 0.5}, "bf16": {"loss_scale": 0}, **STAGE2},
        {"fp16.opt_level": EXTRA, "fp16.min_loss_scale": "valid integer", "bf16.loss_scale": EXTRA},
    ),
    "removed sections": (
        "0.19.8",
        {"amp": {"enabled": False}, "elasticity": {}, "zero_optimization": {"mics_shard_size": 2, "my_notes": 1}},
        {
            "amp": "removed",
            "elasticity": "removed",
            "zero_optimization.mics_shard_size": "removed",
            "zero_optimization.my_notes": EXTRA,
        },
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts() -> dict[str, DeepSpeedVerdict | None]:
    """DeepSpeed's verdict on all files above, from one import of it."""
    values = {**ACCEPTED, **{name: given for name, (given, _) in REFUSED.items()}}
    values |= {name: given for name, (_, given, _) in NEWER.items()}
    config = parse_config(b"distributed_type: 'NO'\nnum_processes: 1\n", "missing.yaml")
    _, files = ask_all([config], [read_text(json.dumps(one), name) for name, one in values.items()])
    return {file.path: file.loader for file in files}


def found(verdict: DeepSpeedVerdict | None) -> dict[str | None, str]:
    assert verdict is not None
    return {one.key: one.message for one in verdict.refusals}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(verdicts: dict[str, DeepSpeedVerdict | None], name: str) -> None:
    assert found(verdicts[name]) == {}


def compare(verdict: DeepSpeedVerdict | None, expected: dict[str, str]) -> None:
    messages = found(verdict)
    assert set(messages) == set(expected)
    assert all(expected[str(key)] in message for key, message in messages.items()), messages


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_key(verdicts: dict[str, DeepSpeedVerdict | None], name: str) -> None:
    compare(verdicts[name], REFUSED[name][1])


@pytest.mark.parametrize("name", NEWER)
def test_refused_by_newer_releases(verdicts: dict[str, DeepSpeedVerdict | None], name: str) -> None:
    since, _, expected = NEWER[name]
    verdict = verdicts[name]
    assert verdict is not None
    if tuple(map(int, verdict.deepspeed.split(".")[:3])) < tuple(map(int, since.split("."))):
        pytest.skip(f"DeepSpeed {verdict.deepspeed} is older than {since}")
    compare(verdict, expected)


# --- its limits --------------------------------------------------------------------------------------------------


def test_a_missing_library_is_no_verdict() -> None:
    def load(values: dict[str, Any]) -> None:
        if "amp" in values:
            raise ValueError("removed")
        if "needs_library" in values:
            raise ImportError("no module of this name")

    assert deepspeed_loader._refusals({"needs_library": 1}, load) is None
    found = deepspeed_loader._refusals({"amp": 1, "needs_library": 1}, load)
    assert found == [{"message": "ValueError: removed", "key": "amp"}]
    assert deepspeed_loader._refusals({"steps_per_print": 1}, load) == []


def test_a_deepspeed_that_cannot_load_anything_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(values: dict[str, Any]) -> None:
        raise ImportError("libaio.so.1")

    assert deepspeed_loader._loader() is not None
    monkeypatch.setattr("deepspeed.runtime.config.DeepSpeedConfig", broken)
    assert deepspeed_loader._loader() is None


def test_a_file_with_thousands_of_keys_is_loaded_only_some_hundred_times() -> None:
    loads = 0

    def load(values: dict[str, Any]) -> None:
        nonlocal loads
        loads += 1
        raise ValueError("always")

    found = deepspeed_loader._refusals({f"key{number}": 1 for number in range(9000)}, load)
    assert found == [{"message": "ValueError: always", "key": None}] and 0 < loads < 300


# --- the command -------------------------------------------------------------------------------------------------

REJECTED = '{"bf16": {"enabled": "maybe"}, "zero_optimization": {"stage": 2, "overlap_com": true}}\n'
ACCELERATE = """\
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 2
deepspeed_config:
  deepspeed_config_file: ds.json
"""


def test_validate_asks_deepspeed(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(REJECTED)
    (tmp_path / "a.yaml").write_text(ACCELERATE)
    done = mgpu("configure", "--validate", "ds.json", "a.yaml", "--json", cwd=tmp_path)
    own, named = json.loads(done.stdout)["files"]
    assert (own["verdict"], named["verdict"], done.returncode) == ("invalid", "invalid", 1)
    assert not own["loader"]["accepted"] and "bf16.enabled" in own["loader"]["error"]
    assert own["loader"]["deepspeed"] == named["loader"]["deepspeed"] and named["loader"]["accepted"]
    failed = [{one["id"] for one in file["checks"] if one["status"] == "fail"} for file in (own, named)]
    assert failed[0] == {"deepspeed_zero_key_unknown", "deepspeed_file_refused"}
    assert failed[1] == {"config_deepspeed_zero_key_unknown", "config_deepspeed_file_refused"}


def test_without_the_loader_only_what_every_deepspeed_rejects_is_an_error(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"amp": {"enabled": false}, "zero_optimization": {"stage": 2}}\n')
    (tmp_path / "ds.json").write_text(REJECTED)
    done = mgpu("configure", "--validate", "old.json", "ds.json", "--json", "--no-loader", cwd=tmp_path)
    old, rejected = json.loads(done.stdout)["files"]
    assert (old["verdict"], rejected["verdict"]) == ("valid", "invalid") and old["loader"] is None
    assert [one["id"] for one in old["checks"] if one["status"] == "warn"] == ["deepspeed_key_removed"]
    said = mgpu("configure", "--validate", "old.json", "--no-loader", cwd=tmp_path).stdout
    assert "not loaded with DeepSpeed" in " ".join(said.split())


def test_doctor_asks_it_unless_it_is_to_be_quick(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": "maybe"}}\n')
    status = {}
    for option in ("--quick", "--only=deepspeed_file_refused"):
        done = mgpu("doctor", option, "--config", "ds.json", "--json", cwd=tmp_path)
        checks = {one["id"]: one["status"] for one in json.loads(done.stdout)["checks"]}
        status[option] = checks["deepspeed_file_refused"]
    assert list(status.values()) == ["skip", "fail"]
