"""`doctor --demo` and `configure --demo`: every shipped machine, on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mgpu.report import demo
from mgpu.report.demo import DEMOS
from mgpu.snapshot import loads
from tests import demo_machines
from tests.conftest import ROOT, Run

# The exit code, and the check that has to find the planted fault.
EXPECTED: dict[str, tuple[int, str]] = {
    "h100-lost-gpu": (1, "gpu_lost"),
    "h100-ecc": (1, "gpu_ecc_uncorrected"),
    "h100-healthy": (0, ""),
    "a100-nvlink-down": (1, "nvlink_inactive"),
    "a100-small-shm": (1, "shm_too_small"),
    "l40s-driver-mismatch": (1, "driver_library_mismatch"),
    "rtx4090-other-user": (0, "gpu_busy"),
    "no-gpu": (4, ""),
}


def test_the_files_are_those_that_the_tests_describe() -> None:
    names = {one.name for one in DEMOS}
    assert names == set(EXPECTED) == {path.stem for path in demo_machines.FOLDER.iterdir()}
    for name in names:
        text = (demo_machines.FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert text == demo_machines.text(name), "python -m tests.demo_machines"
        assert loads(text) == demo.read(name)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_demo_finds_its_fault_with_the_exit_code_of_a_real_machine(name: str, mgpu: Run) -> None:
    code, check = EXPECTED[name]
    done = mgpu("doctor", "--demo", name, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"], document["demo"]) == (code, code, name)
    roots = [one["id"] for one in document["checks"] if one["status"] in ("fail", "warn") and not one["because_of"]]
    assert roots == [check] if check else not roots
    again = [one["verify"] for one in document["checks"] if one["id"] == check]
    assert all("--only" in line for line in again)


def test_the_screen_says_that_it_is_a_demo(mgpu: Run) -> None:
    shown = mgpu("doctor", "--demo").stdout
    assert shown.startswith("DEMO  h100-lost-gpu: ") and "Not your machine." in shown
    assert "mgpu doctor --demo h100-lost-gpu --only gpu_lost" in shown
    assert shown.endswith("On your machine:  mgpu doctor\n")
    for style in ("markdown", "github", "junit"):
        assert "DEMO h100-ecc" in mgpu("doctor", "--demo", "h100-ecc", "--format", style).stdout or style == "junit"


def test_configure_shows_a_config_and_writes_nothing(mgpu: Run, tmp_path: Path) -> None:
    done = mgpu("configure", "--demo", "--params", "8B")
    assert done.returncode == 0
    assert done.stdout.startswith("DEMO  h100-healthy: ")
    assert "fsdp_version: 2" in done.stdout and "Nothing was written." in done.stdout
    assert not list(tmp_path.glob("*.yaml")) and not list(tmp_path.glob("*.toml"))


def test_wrong_names_and_options_are_refused(mgpu: Run) -> None:
    assert "Did you mean h100-lost-gpu?" in mgpu("doctor", "--demo", "h100-lost").stderr
    assert "accepts one name" in mgpu("doctor", "--demo", "no-gpu", "h100-ecc").stderr
    assert "remove --deep" in mgpu("doctor", "--demo", "--deep").stderr
    assert "remove --from" in mgpu("doctor", "--demo", "--save", "x.json").stderr
    assert "remove --yes" in mgpu("configure", "--demo", "--yes").stderr
    for command in ("doctor", "configure"):
        listed = mgpu(command, "--demo", "list").stdout
        assert all(name in listed for name in EXPECTED)


def test_a_described_machine_of_the_tests_says_how_to_convert_it(mgpu: Run) -> None:
    refused = mgpu("doctor", "--from", str(ROOT / "tests/machines/l40s_x4.json"))
    assert refused.returncode == 2
    assert "python -m tests.machines NAME > FILE" in refused.stderr
    recorded = mgpu("doctor", "--from", str(ROOT / "tests/machines/recorded_vm_without_gpu.json"))
    assert recorded.returncode == 4
