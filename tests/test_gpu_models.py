"""A machine that is not here, by the name of its GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu import engine, errors
from mgpu.errors import MgpuError
from mgpu.planning import gpu_models
from mgpu.report import describe
from mgpu.snapshot import FACTS, loads
from tests import machines
from tests.conftest import CHECKS
from tests.test_snapshot import dumped


@pytest.mark.parametrize(
    ("spec", "nodes", "number", "name", "capability", "mib"),
    [
        ("4xA100-80GB", 1, 4, "NVIDIA A100-80GB", (8, 0), 81920),
        ("8xH100", 1, 8, "NVIDIA H100", (9, 0), 81559),
        ("2x4xA100-40GB", 2, 4, "NVIDIA A100-40GB", (8, 0), 40960),
        ("1xRTX4090", 1, 1, "NVIDIA RTX4090", (8, 9), 24564),
        (" 4 x nvidia a100 sxm4 80gb ", 1, 4, "NVIDIA A100-80GB", (8, 0), 81920),
        ("2X8XNVIDIA H100 80GB HBM3", 2, 8, "NVIDIA H100", (9, 0), 81559),
        ("2xGeForce RTX 3090", 1, 2, "NVIDIA RTX3090", (8, 6), 24576),
        ("1xTesla T4", 1, 1, "NVIDIA T4", (7, 5), 15360),
        ("8xV100-SXM2-32GB", 1, 8, "NVIDIA V100-32GB", (7, 0), 32768),
    ],
)
def test_a_target_has_what_its_name_says(
    spec: str, nodes: int, number: int, name: str, capability: tuple[int, int], mib: int
) -> None:
    found = gpu_models.parse(spec)
    gpus = found.snapshot.gpus
    assert gpus is not None and found.snapshot.visible is not None
    assert (found.nodes, len(gpus)) == (nodes, number)
    assert {(gpu.name, gpu.compute_capability, gpu.memory_total_bytes) for gpu in gpus} == {
        (name, capability, mib << 20)
    }
    assert found.snapshot.visible.gpus == tuple(range(number))
    assert found.text == (f"{nodes} nodes with {number} x {name} each" if nodes > 1 else f"{number} x {name}")
    assert describe.machine(found.snapshot) == f"{number} x {name}"


def test_everything_else_is_unknown_and_says_so() -> None:
    snapshot = gpu_models.parse("4xA100-80GB").snapshot
    for fact in set(FACTS) - {"driver", "gpus", "visible"}:
        assert getattr(snapshot, fact) is None
        assert snapshot.gap(fact).reason == "4xA100-80GB is a target, not a machine"
    assert loads(dumped(snapshot)) == snapshot


@pytest.mark.parametrize("spec", ["4xA100-80GB", "1xT4", "cpu"])
def test_no_check_finds_an_error_in_a_target(spec: str) -> None:
    outcomes = engine.run(CHECKS.values(), gpu_models.parse(spec).snapshot)
    assert not [o.check.id for o in outcomes if o.status in ("fail", "crash")]


def test_a_machine_without_a_gpu() -> None:
    found = gpu_models.parse(" CPU ")
    assert (found.snapshot.gpus, found.nodes) == ((), 1)
    assert found.snapshot.driver is not None and not found.snapshot.driver.any_gpu


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("8xA100", "ambiguous, use A100-40GB or A100-80GB"),
        ("8xV100", "ambiguous, use V100-16GB or V100-32GB"),
        ("2xRTX 5060 Ti", "ambiguous, use RTX5060Ti-8GB or RTX5060Ti-16GB"),
        ("2xRTX 409", "Did you mean RTX4090 or RTX4090D or RTX5090?"),
        ("2xFoo", "unknown GPU model 'Foo'"),
        ("2xFoo", "A100-80GB, "),
        ("2xFoo", "mgpu configure --from machine.json"),
        ("0xH100", "1 to 64 GPUs"),
        ("65xH100", "1 to 64 GPUs"),
        ("0x4xH100", "1 to 100,000 nodes"),
        ("H100", "for example 4xA100-80GB"),
        ("", "for example 4xA100-80GB"),
        ("4cpu", "for example 4xA100-80GB"),
        ("4xcpu", "unknown GPU model"),
        ("999999999x8xH100", "for example"),
        ("²xH100", "for example"),
    ],
)
def test_what_is_no_target(spec: str, said: str) -> None:
    with pytest.raises(MgpuError, match=r"^--target") as raised:
        gpu_models.parse(spec)
    assert said in str(raised.value) and raised.value.exit_code == errors.USAGE


def test_a_part_of_a_name_is_another_gpu() -> None:
    """L40S contains L40 and L4, GH200 H200, GB200 B200, A10G A10."""
    for model in gpu_models.MODELS:
        found = gpu_models.parse(f"1x{model.name}").snapshot.gpus
        assert found is not None and found[0].memory_total_bytes == model.memory_mib << 20
        for also in model.also:
            assert gpu_models.parse(f"1x{also}").snapshot.gpus == found


@pytest.mark.parametrize("name", machines.NAMES)
def test_targets_agree_with_real_machines(name: str) -> None:
    """Memory and compute capability of the same model, where a real machine was recorded or described."""
    known = 0
    for gpu in machines.machine(name).gpus or ():
        try:
            found = gpu_models.parse(f"1x{gpu.name}").snapshot.gpus
        except MgpuError:
            continue
        assert found is not None
        assert found[0].compute_capability == gpu.compute_capability
        assert found[0].memory_total_bytes == gpu.memory_total_bytes
        known += 1
    assert known == len(machines.machine(name).gpus or ())


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_a_sentence(text: str) -> None:
    try:
        gpu_models.parse(text)
    except MgpuError as error:
        assert str(error).startswith("--target")
