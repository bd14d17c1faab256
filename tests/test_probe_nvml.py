"""The NVML probe, through the real pynvml, on machines that a fake libnvidia-ml.so.1 describes."""

import grp
import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu import engine
from mgpu.probes import NVML, gather, nvml, run
from mgpu.probes.environ import resolve_visible
from mgpu.snapshot import Driver, Gap, Gpu, NvLink, Pci, Plan, Snapshot
from mgpu.snapshot.redaction import redact
from tests.checks.facts import DOCKER, WSL, config, facts, pytorch
from tests.conftest import CHECKS
from tests.fake_nvml import FAULTS, HERE, LIBRARY, MACHINES, NOBODY, build, environment, machine, sysfs

MIB = 1 << 20
HUNG_S = 1.5  # the deadline where a hang is what is tested


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(scope="session")
def healthy_h100(library: Path, scratch: Path) -> Snapshot:
    return read(library, machine(scratch, "h100_sxm_x8"))


def read(library: Path, described: Path, *, system: Path | None = None, deadline_s: float = 30.0) -> Snapshot:
    """What the probe finds on the described machine; /sys and /dev are empty unless `system` holds others."""
    roots = {"sys_root": str(system or library / "no-sys"), "dev_root": str(library / "no-dev")}
    with mock.patch.dict(os.environ, environment(library, described)):
        return gather([replace(NVML, deadline_s=deadline_s, arguments=roots)])


def gpus(snapshot: Snapshot) -> Sequence[Gpu]:
    assert snapshot.gpus is not None, snapshot.gaps
    return snapshot.gpus


def link_names(snapshot: Snapshot) -> dict[tuple[int, int], str]:
    assert snapshot.links is not None, snapshot.gaps
    return {(link.a, link.b): link.name for link in snapshot.links}


def nvlinks(gpu: Gpu) -> Sequence[NvLink]:
    assert gpu.nvlinks is not None
    return gpu.nvlinks


def gaps(snapshot: Snapshot) -> dict[str, Gap]:
    """The gaps of this probe's own facts."""
    return {fact: gap for fact, gap in snapshot.gaps.items() if re.split(r"[.\[]", fact)[0] in NVML.facts}


def cpus(*ranges: tuple[int, int]) -> str:
    """A CPU list as far as the probe's request reaches on the machine that runs the test."""
    end = 64 * ((os.cpu_count() or 1) // 64 + 1)
    return ",".join(f"{first}-{min(last, end - 1)}" for first, last in ranges if first < end)


def test_every_key_of_a_machine_is_one_the_library_serves() -> None:
    served = (HERE / "fake_nvml.c").read_text(encoding="utf-8")
    number = r"(\*|\d+\.\.\d+|\d+)"
    for path in [*(HERE / "machines").glob("*.txt"), None]:
        text = path.read_text(encoding="utf-8") if path else "\n".join(FAULTS.values())
        keys = [line.partition("=")[0].strip() for line in text.splitlines() if "=" in line.partition("#")[0]]
        for key in keys:
            wanted = re.sub(rf"^{number}-{number}\.", "#-#.", key)
            wanted = re.sub(rf"(?<![^.]){number}(?![^.])", "#", wanted)
            assert f'"{wanted}"' in served, f"{path and path.name}: {key}"


@pytest.mark.parametrize("name", MACHINES)
def test_each_machine_says_that_it_is_described(name: str) -> None:
    header = (HERE / "machines" / f"{name}.txt").read_text(encoding="utf-8").partition("\n\n")[0]
    assert "Described, not recorded" in header


def test_h100_sxm_x8(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8"))
    assert snapshot.driver is not None
    assert snapshot.driver.nvml_error is None
    assert (snapshot.driver.version, snapshot.driver.cuda_version) == ("580.65.06", (13, 0))
    assert snapshot.driver.nvml_version == "13.580.65.06"
    assert [gpu.index for gpu in gpus(snapshot)] == list(range(8))
    assert {gpu.name for gpu in gpus(snapshot)} == {"NVIDIA H100 80GB HBM3"}
    assert len({gpu.uuid for gpu in gpus(snapshot)}) == 8
    gpu = gpus(snapshot)[5]
    assert (gpu.uuid, gpu.pci) == ("GPU-6c1e57a9-23b0-4f8d-81f6-b94d0e72a5c8", "0000:c3:00.0")
    assert gpu.compute_capability == (9, 0)
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (81559 * MIB, 562 * MIB)
    assert gpu.memory_free_bytes == (81559 - 562) * MIB
    assert (gpu.temperature_c, gpu.temperature_slowdown_c) == (31, 89)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_limit_default_w) == (72.4, 700.0, 700.0)
    assert (gpu.utilization_percent, gpu.clock_event_reasons) == (0, 1)
    assert (gpu.persistence_mode, gpu.compute_mode) == (True, 0)
    assert (gpu.mig_mode, gpu.mig_mode_pending, gpu.mig_uuids) == (False, False, ())
    assert (gpu.ecc_enabled, gpu.ecc_pending) == (True, True)
    assert (gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate) == (0, 0)
    assert (gpu.rows_remapped_uncorrectable, gpu.rows_remap_pending, gpu.rows_remap_failed) == (0, False, False)
    assert (gpu.pcie_width, gpu.pcie_width_max) == (16, 16)
    assert (gpu.pcie_generation_max, gpu.pcie_generation_max_gpu) == (5, 5)
    assert (gpu.fabric_state, gpu.fabric_status, gpu.recovery_action) == (3, 0, 0)
    assert (gpu.processes, gpu.lost) == ((), None)
    assert (gpu.serial, gpu.minor, gpu.virtualization) == ("1651923012530", 5, 0)
    assert (gpu.vbios, gpu.gsp_firmware) == ("96.00.89.00.01", "580.65.06")
    assert (gpu.memory_reserved_bytes, gpu.bar1_total_bytes, gpu.bar1_used_bytes) == (551 * MIB, 128 << 30, 8 * MIB)
    assert (gpu.ecc_corrected_volatile, gpu.ecc_sram_threshold_exceeded) == (0, None)
    assert snapshot.gaps["gpus[5].ecc_sram_threshold_exceeded"].kind == "no_permission"
    assert (gpu.rows_banks_without_spare, gpu.retired_pages, gpu.repair_pending) == (0, None, False)
    assert (gpu.memory_unrepairable, gpu.inforom_valid) == (None, True)
    assert (gpu.memory_temperature_c, gpu.memory_temperature_max_c) == (40, 95)
    assert (gpu.temperature_max_c, gpu.temperature_margin_c) == (87, 56)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.performance_state) == (345, 1980, 0)
    assert (gpu.application_clock_mhz, gpu.application_clock_default_mhz) == (1980, 1980)
    assert (gpu.display_active, gpu.pcie_generation, gpu.pcie_replays) == (False, 5, 0)
    assert (gpu.fabric_health_mask, gpu.fabric_clique, gpu.fabric_cluster, gpu.c2c_enabled) == (0, 0, None, None)
    assert [link.link for link in nvlinks(gpu)] == list(range(18))
    assert {(link.speed_mb_per_s, link.errors) for link in nvlinks(gpu)} == {(26562, 0)}
    assert all(link.active and link.remote == "switch" for link in nvlinks(gpu))
    assert nvlinks(gpu)[13].remote_pci == "0000:09:00.0"
    assert gpus(snapshot)[0].cpus_near == cpus((0, 55), (112, 167))
    assert gpus(snapshot)[7].cpus_near == cpus((56, 111), (168, 223))

    assert link_names(snapshot) == dict.fromkeys(combinations(range(8), 2), "NV18")
    assert snapshot.links is not None
    topology = {(link.a, link.b): link.topology for link in snapshot.links}
    assert (topology[0, 1], topology[1, 2], topology[4, 7], topology[3, 4]) == ("PXB", "NODE", "NODE", "SYS")
    assert all(link.through_switch and link.p2p_read == link.p2p_write == 0 for link in snapshot.links)
    assert {(link.p2p_atomics, link.p2p_nvlink) for link in snapshot.links} == {(0, 0)}


def test_a100_sxm_x4(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4"))
    assert [gpu.name for gpu in gpus(snapshot)] == ["NVIDIA A100-SXM4-80GB"] * 4
    assert {gpu.memory_total_bytes for gpu in gpus(snapshot)} == {81920 * MIB}
    assert {gpu.compute_capability for gpu in gpus(snapshot)} == {(8, 0)}
    assert {gpu.nvlinks_active for gpu in gpus(snapshot)} == {12}
    assert {link.remote for link in nvlinks(gpus(snapshot)[2])} == {"gpu"}
    assert nvlinks(gpus(snapshot)[2])[11].remote_pci == gpus(snapshot)[1].pci == "0000:41:00.0"
    assert {gpu.fabric_state for gpu in gpus(snapshot)} == {None}
    assert link_names(snapshot) == dict.fromkeys(combinations(range(4), 2), "NV4")
    assert snapshot.links is not None
    assert not any(link.through_switch for link in snapshot.links)
    assert {link.topology for link in snapshot.links} == {"SYS"}


def test_rtx4090_x2(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "rtx4090_x2"))
    first, second = gpus(snapshot)
    assert first.name == second.name == "NVIDIA GeForce RTX 4090"
    assert (first.memory_total_bytes, first.memory_used_bytes) == (24564 * MIB, 402 * MIB)
    assert (first.ecc_enabled, first.ecc_uncorrected_volatile, first.mig_mode) == (None, None, None)
    assert (first.persistence_mode, first.nvlinks, first.recovery_action) == (False, (), None)
    assert first.processes is not None
    (screen,) = first.processes
    assert (screen.pid, screen.kind, screen.memory_bytes) == (NOBODY, "graphics", 9 * MIB)
    assert (screen.name, screen.user, screen.mine) == (None, None, None)
    assert second.processes == ()
    assert link_names(snapshot) == {(0, 1): "PHB"}
    assert snapshot.links is not None
    assert (snapshot.links[0].nvlinks, snapshot.links[0].p2p_read, snapshot.links[0].p2p_write) == (0, 2, 2)
    assert (first.display_active, second.display_active, first.performance_state) == (True, False, 8)
    assert (first.serial, first.inforom_valid, first.application_clock_mhz) == (None, None, None)
    assert {gap.kind for gap in gaps(snapshot).values()} == {"not_supported"}
    assert "gpus[1].ecc_enabled" in snapshot.gaps


def test_t4_x1(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "t4_x1"))
    (gpu,) = gpus(snapshot)
    assert (gpu.name, gpu.compute_capability) == ("Tesla T4", (7, 5))
    assert (gpu.pci, gpu.memory_total_bytes) == ("0000:00:04.0", 15360 * MIB)
    assert (gpu.retired_pages_pending, gpu.rows_remap_pending, gpu.retired_pages) == (False, None, 0)
    assert (gpu.virtualization, gpu.inforom_valid) == (1, True)
    assert (gpu.pcie_width, gpu.pcie_generation_max) == (16, 3)
    assert snapshot.links == ()


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine_lacks_only_what_its_board_does_not_have(name: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, name))
    refused = {fact.rpartition(".")[2]: gap.kind for fact, gap in gaps(snapshot).items() if gap.kind != "not_supported"}
    assert refused in ({}, {"ecc_sram_threshold_exceeded": "no_permission"})
    assert {gpu.lost for gpu in gpus(snapshot)} == {None}
    assert {gpu.trouble for gpu in gpus(snapshot)} == {()}


def test_pci_addresses_lead_to_numa_nodes(library: Path, tmp_path: Path) -> None:
    buses = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
    nodes = {f"0000:{bus}:00.0": i // 4 for i, bus in enumerate(buses)}
    system = sysfs(tmp_path / "sys", nodes, module="580.65.06")
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8"), system=system)
    assert [gpu.numa_node for gpu in gpus(snapshot)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert snapshot.driver is not None
    assert (snapshot.driver.pci_gpus, snapshot.driver.module_version) == (8, "580.65.06")


# Faults that change single facts of single GPUs: everything else stays as it is on the healthy machine.
H100_FAULTS: dict[str, dict[int, dict[str, Any]]] = {
    "ecc": {2: {"ecc_uncorrected_volatile": 7, "ecc_uncorrected_aggregate": 7}},
    "remap_pending": {1: {"rows_remapped_uncorrectable": 1, "rows_remap_pending": True}},
    "remap_failed": {1: {"rows_remapped_uncorrectable": 9, "rows_remap_failed": True}},
    "pcie_width_reduced": {1: {"pcie_width": 8}},
    "compute_prohibited": {0: {"compute_mode": 2}},
    "thermal": {1: {"clock_event_reasons": 0x40, "temperature_c": 93}},
    "power_brake": {1: {"clock_event_reasons": 0x80}},
    "ecc_before": {2: {"ecc_uncorrected_aggregate": 3}},
    "ecc_corrected": {2: {"ecc_corrected_volatile": 1200}},
    "sram_exceeded": {2: {"ecc_sram_threshold_exceeded": True}},
    "memory_unrepairable": {2: {"memory_unrepairable": True}},
    "spare_rows_used_up": {1: {"rows_banks_without_spare": 2}},
    "repair_pending": {1: {"repair_pending": True}},
    "inforom_corrupt": {0: {"inforom_valid": False}},
    "memory_hot": {1: {"memory_temperature_c": 101}},
    "hot_without_reason": {1: {"temperature_c": 90, "temperature_margin_c": -3}},
    "hardware_slowdown": {1: {"clock_event_reasons": 0x8}},
    "power_limit_low": {3: {"power_limit_w": 500.0}},
    "application_clocks": {3: {"application_clock_mhz": 1200}},
    "busy_unseen": {2: {"utilization_percent": 88}},
    "bar1_full": {2: {"bar1_used_bytes": 127 << 30}},
    "vbios_differs": {3: {"vbios": "96.00.30.00.01"}},
    "memory_smaller": {3: {"memory_total_bytes": 76000 * MIB, "memory_free_bytes": (76000 - 562) * MIB}},
    "mig_empty": {0: {"mig_mode": True, "mig_mode_pending": True}},
    "fabric_degraded": {index: {"fabric_health_mask": 1} for index in range(8)},
    "pcie_replays": {2: {"pcie_replays": 5120}},
    "recovery_reset": {2: {"recovery_action": 1}},
    "mig_pending": {0: {"mig_mode": False, "mig_mode_pending": True}},
    "ecc_pending": {2: {"ecc_enabled": False, "ecc_pending": True}},
    "fabric_not_started": {index: {"fabric_state": 1} for index in range(8)},
    "mig_on": {
        0: {
            "mig_mode": True,
            "mig_mode_pending": True,
            "mig_uuids": ("MIG-6d0a1c52-94be-5f37-a8c1-3e7b20f4d965", "MIG-f1b7e863-0c2d-5a94-b5e6-97d8413ac02f"),
        }
    },
}


@pytest.mark.parametrize("fault", H100_FAULTS)
def test_a_fault_changes_its_own_facts_only(fault: str, library: Path, healthy_h100: Snapshot, tmp_path: Path) -> None:
    healthy = healthy_h100
    faulty = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS[fault]))
    changed = H100_FAULTS[fault]
    assert faulty.gpus == tuple(replace(gpu, **changed.get(gpu.index, {})) for gpu in gpus(healthy))
    told = {f"gpus[{index}].{field}" for index, fields in changed.items() for field in fields}
    open_before = {fact: gap for fact, gap in gaps(healthy).items() if fact not in told}
    assert faulty.driver is not None and healthy.driver is not None
    assert replace(faulty.driver, init_s=None) == replace(healthy.driver, init_s=None)
    assert (faulty.links, gaps(faulty)) == (healthy.links, open_before)


def test_every_fault_is_tested() -> None:
    elsewhere = {
        *("driver_not_loaded", "library_mismatch", "nvml_hangs", "nvml_hangs_later", "nvml_aborts"),
        *("nvml_aborts_later", "gpu_lost", "gpu_lost_at_handle", "gpu_lost_half_way", "gpu_lost_in_details"),
        *("gpu_forbidden", "busy", "stuck_in_low_power", "exclusive_taken", "ecc_off"),
        *("nvlink_down", "nvlink_slow", "nvlink_errors"),
    }
    assert set(FAULTS) == set(H100_FAULTS) | elsewhere


def test_a_broken_nvlink_is_seen_at_both_ends_of_a_pair(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS["nvlink_down"]))
    assert [gpu.nvlinks_active for gpu in gpus(snapshot)] == [18, 18, 18, 16, 18, 18, 18, 18]
    assert [link.link for link in nvlinks(gpus(snapshot)[3]) if not link.active] == [4, 5]
    assert {pair: name for pair, name in link_names(snapshot).items() if name != "NV18"} == {
        pair: "NV16" for pair in combinations(range(8), 2) if 3 in pair
    }
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", "0..1.nvlink.0..1.state = 0"))
    assert link_names(snapshot)[0, 1] == "NV2"
    assert link_names(snapshot)[2, 3] == "NV4"


def test_processes_of_others_and_of_oneself(library: Path, tmp_path: Path) -> None:
    mine = f"1.compute_processes = {os.getpid()}:512MiB {NOBODY}:?"
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS["busy"], mine))
    busy, shared = gpus(snapshot)[0], gpus(snapshot)[1]
    assert busy.processes is not None and shared.processes is not None
    assert [(p.pid, p.kind, p.memory_bytes, p.mine) for p in busy.processes] == [(NOBODY, "compute", 31 << 30, None)]
    assert (busy.memory_used_bytes, busy.utilization_percent) == (32306 * MIB, 97)
    own, foreign = shared.processes
    assert (own.pid, own.memory_bytes, own.mine) == (os.getpid(), 512 * MIB, True)
    assert own.name == Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert (foreign.pid, foreign.memory_bytes, foreign.mine) == (NOBODY, None, None)


def test_a_lost_gpu_leaves_the_others_whole(library: Path, healthy_h100: Snapshot, tmp_path: Path) -> None:
    healthy = healthy_h100
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS["gpu_lost"]))
    lost = gpus(snapshot)[3]
    assert (lost.index, lost.lost, lost.uuid, lost.memory_total_bytes) == (3, "GPU_IS_LOST", None, None)
    assert snapshot.gaps["gpus[3].uuid"] == Gap("crashed", "GPU_IS_LOST")
    assert [g for g in gpus(snapshot) if g.index != 3] == [g for g in gpus(healthy) if g.index != 3]
    others = {fact: gap for fact, gap in gaps(snapshot).items() if "3" not in fact}
    assert others == {fact: gap for fact, gap in gaps(healthy).items() if "3" not in fact}
    assert link_names(snapshot)[2, 3] == "?"
    assert link_names(snapshot)[2, 4] == "NV18"


def test_a_gpu_without_handle_leaves_the_others_whole(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS["gpu_lost_at_handle"]))
    assert gpus(snapshot)[3].lost == "GPU_IS_LOST"
    assert snapshot.gaps["gpus[3]"] == Gap("crashed", "GPU_IS_LOST")
    assert [gpu.lost for gpu in gpus(snapshot) if gpu.index != 3] == [None] * 7
    assert set(link_names(snapshot)) == set(combinations((0, 1, 2, 4, 5, 6, 7), 2))


def test_a_gpu_that_one_may_not_open_is_a_gap_of_permission(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", FAULTS["gpu_forbidden"]))
    assert snapshot.gaps["gpus[2]"].kind == "no_permission"
    assert gpus(snapshot)[2].uuid is None
    assert [gpu.name for gpu in gpus(snapshot) if gpu.index != 2] == ["NVIDIA A100-SXM4-80GB"] * 3


def test_a_forbidden_call_is_a_gap_of_permission(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "t4_x1", "0.compute_processes = !4", "0.power = !4"))
    (gpu,) = gpus(snapshot)
    assert (gpu.processes, gpu.power_w, gpu.lost, gpu.temperature_c) == (None, None, None, 43)
    assert snapshot.gaps["gpus[0].processes"] == Gap("no_permission", "NVML: insufficient permissions")
    assert snapshot.gaps["gpus[0].power_w"].kind == "no_permission"


@pytest.mark.parametrize(
    ("init", "name"),
    [
        (FAULTS["library_mismatch"], "LIB_RM_VERSION_MISMATCH"),
        (FAULTS["driver_not_loaded"], "DRIVER_NOT_LOADED"),
        ("init = !4", "NO_PERMISSION"),
        ("init = !999", "UNKNOWN"),
        ("init = !19", "IN_USE"),  # one that pynvml has no words for
        ("init = !777", "ERROR_777"),
    ],
)
def test_an_nvml_that_refuses_is_a_fact_of_the_driver(init: str, name: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", init))
    assert snapshot.driver is not None
    assert (snapshot.driver.nvml_error, snapshot.driver.version) == (name, None)
    assert snapshot.driver.nvml_detail
    for fact in ("gpus", "links"):
        assert getattr(snapshot, fact) is None
        assert snapshot.gaps[fact] == Gap("no_driver", f"NVML does not respond: {name}")


@pytest.mark.parametrize(("fault", "asked"), [("nvml_hangs", "nvmlInit"), ("nvml_hangs_later", "GPU 2")])
def test_an_nvml_that_hangs_costs_its_deadline_and_leaves_no_process(
    fault: str, asked: str, library: Path, tmp_path: Path
) -> None:
    described = machine(tmp_path, "h100_sxm_x8", FAULTS[fault])
    began = time.monotonic()
    snapshot = read(library, described, deadline_s=HUNG_S)
    assert HUNG_S <= time.monotonic() - began < HUNG_S + 10
    hung = Gap("timed_out", f"NVML did not answer in 1.5 s (last step: {asked})")
    assert snapshot.gpus is None and snapshot.links is None
    assert snapshot.gaps["gpus"] == snapshot.gaps["links"] == snapshot.gaps["visible"] == hung
    if fault == "nvml_hangs":
        assert snapshot.driver is None and snapshot.gaps["driver"] == hung
    else:
        assert snapshot.driver is not None and snapshot.driver.version == "580.65.06"
    with mock.patch.dict(os.environ, environment(library, described)):
        (child,) = run([replace(NVML, deadline_s=0.5)])
    assert child.process.returncode == -signal.SIGKILL


def test_the_doctor_as_it_runs_is_not_held_up_for_long() -> None:
    assert NVML.deadline_s + 3 < 15


@pytest.mark.parametrize(("fault", "asked"), [("nvml_aborts", "nvmlInit"), ("nvml_aborts_later", "GPU 1")])
def test_an_nvml_that_aborts_costs_its_own_facts_only(fault: str, asked: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS[fault]))
    killed = Gap("crashed", f"the nvml probe was killed by SIGABRT (last step: {asked})")
    assert snapshot.gpus is None
    assert snapshot.gaps["gpus"] == snapshot.gaps["links"] == killed
    assert (snapshot.driver is None) == (fault == "nvml_aborts")


def test_a_slow_answer_is_still_an_answer(library: Path, tmp_path: Path) -> None:
    slow = read(library, machine(tmp_path, "t4_x1", "init = ~200", "0.temperature = ~200 57", "0.power = ~100 !15"))
    assert (gpus(slow)[0].temperature_c, gpus(slow)[0].lost) == (57, "GPU_IS_LOST")


def test_an_nvml_that_cannot_count_leaves_gpus_and_links_open(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", "count = !999"))
    assert (snapshot.gpus, snapshot.links) == (None, None)
    assert snapshot.gaps["gpus"] == snapshot.gaps["links"] == Gap("crashed", "UNKNOWN")
    assert snapshot.driver is not None and snapshot.driver.version == "580.65.06"


def test_a_driver_without_gpus_is_no_gap(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "", "driver.version = 580.65.06", "count = 0"))
    assert (snapshot.gpus, snapshot.links) == ((), ())
    assert {"gpus", "links", "driver"}.isdisjoint(snapshot.gaps)
    assert snapshot.gaps["driver.cuda_version"].kind == "not_supported"


def test_an_old_library_lacks_functions_and_nothing_else(tmp_path: Path) -> None:
    lacking = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGpuFabricInfoV")
    old = build(tmp_path / "old", without=lacking)
    snapshot = read(old, machine(tmp_path, "h100_sxm_x8"))
    gpu = gpus(snapshot)[7]
    assert (gpu.processes, gpu.fabric_state) == (None, None)
    assert snapshot.gaps["gpus[7].processes"].kind == snapshot.gaps["gpus[7].fabric_state"].kind == "not_supported"
    assert (gpu.name, gpu.nvlinks_active, gpu.lost) == ("NVIDIA H100 80GB HBM3", 18, None)


def test_a_library_without_init_is_an_error_with_a_name(tmp_path: Path) -> None:
    hollow = build(tmp_path / "hollow", without=("nvmlInitWithFlags", "nvmlErrorString"))
    snapshot = read(hollow, machine(tmp_path, "h100_sxm_x8"))
    assert snapshot.driver is not None
    assert snapshot.driver.nvml_error == "FUNCTION_NOT_FOUND"
    assert snapshot.gaps["gpus"].kind == "no_driver"


@pytest.mark.parametrize(
    ("content", "words"),
    [("this is not a library, whatever its name says\n" * 9, "invalid ELF header"), ("", "too short")],
)
def test_a_library_that_does_not_load_keeps_the_words_of_the_loader(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_text(content)
    bus = sysfs(tmp_path / "sys", {"0000:1b:00.0": 0})
    snapshot = read(tmp_path, machine(tmp_path, "h100_sxm_x8"), system=bus)
    assert snapshot.driver is not None
    assert snapshot.driver.nvml_error == "LIBRARY_NOT_FOUND"
    assert snapshot.driver.nvml_detail is not None
    assert LIBRARY in snapshot.driver.nvml_detail and words in snapshot.driver.nvml_detail
    assert snapshot.driver.pci_gpus == 1
    assert snapshot.gpus is None and snapshot.gaps["gpus"].kind == "no_driver"


def test_the_more_specific_line_wins(library: Path, tmp_path: Path) -> None:
    lines = ("2.temperature = 72", "1..2.temperature = 71", "*.temperature = 70", "*.power = 1000", "*.power = 2000")
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", *lines, "2-0.topology = 10", "3-*.topology = 20"))
    assert [gpu.temperature_c for gpu in gpus(snapshot)] == [70, 71, 72, 70]
    assert gpus(snapshot)[0].power_w == 2.0
    assert snapshot.links is not None
    topology = {(link.a, link.b): link.topology for link in snapshot.links}
    assert (topology[0, 2], topology[0, 3], topology[2, 3], topology[0, 1]) == ("PIX", "PXB", "PXB", "SYS")


# What random machines are made of: key -> (text of a value, what the Gpu then says). The first field names the gap.
def _number(largest: int) -> st.SearchStrategy[int]:
    return st.integers(0, largest).filter(lambda number: number not in nvml._NOT_AVAILABLE)


_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="#"), min_size=1, max_size=23).filter(
    lambda text: text == text.strip() and text[0] not in "!~" and text != "abort"
)
_ONE: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "uuid": ("uuid", _TEXT),
    "name": ("name", _TEXT),
    "temperature": ("temperature_c", _number(2**32 - 1)),
    "temperature.1": ("temperature_slowdown_c", _number(200)),
    "power": ("power_w", _number(2**32 - 1)),
    "power_limit": ("power_limit_w", _number(10**6)),
    "power_limit_default": ("power_limit_default_w", _number(10**6)),
    "clock_event_reasons": ("clock_event_reasons", _number(2**64 - 1)),
    "persistence_mode": ("persistence_mode", st.booleans()),
    "compute_mode": ("compute_mode", _number(3)),
    "ecc_errors.uncorrected.0": ("ecc_uncorrected_volatile", _number(2**64 - 1)),
    "ecc_errors.uncorrected.1": ("ecc_uncorrected_aggregate", _number(2**64 - 1)),
    "retired_pages_pending": ("retired_pages_pending", st.booleans()),
    "pcie_width": ("pcie_width", _number(32)),
    "pcie_width_max": ("pcie_width_max", _number(32)),
    "pcie_generation_max": ("pcie_generation_max", _number(7)),
    "pcie_generation_max_gpu": ("pcie_generation_max_gpu", _number(7)),
}
_ERRORS = {
    3: "not_supported",
    4: "no_permission",
    13: "not_supported",
    **dict.fromkeys([6, 8, 10, 15, 16, 19, 999], "crashed"),
}
_GONE = {8: "INSUFFICIENT_POWER", 15: "GPU_IS_LOST", 16: "RESET_REQUIRED"}
_NAMES = _GONE | {6: "NOT_FOUND", 10: "TIMEOUT", 19: "IN_USE", 999: "UNKNOWN"}
_CODES = st.sampled_from(sorted(_ERRORS))


def _answers(value: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of(
        value.map(lambda v: ("value", v)), _CODES.map(lambda code: ("error", code)), st.just(("missing", None))
    )


_GPU = st.fixed_dictionaries(
    {key: _answers(value) for key, (_, value) in _ONE.items()}
    | {
        "memory": _answers(st.tuples(_number(2**48), _number(2**40)).map(sorted)),
        "links": st.lists(st.booleans(), max_size=20),
    }
)
_MACHINES = st.lists(st.one_of(_GPU, _CODES), min_size=1, max_size=4)


def _lines(index: int, gpu: Any) -> list[str]:
    """The description of one random GPU: an error code for one without a handle."""
    if isinstance(gpu, int):
        return [f"{index}.handle = !{gpu}"]
    lines = [f"{index}.pci = 00000000:{index + 1:02X}:00.0", f"{index}.nvlinks = {len(gpu['links'])}"]
    lines += [f"{index}.nvlink.{link}.state = {int(up)}" for link, up in enumerate(gpu["links"])]
    lines += [f"{index}.nvlink.*.remote = 0", f"{index}.nvlink.*.remote_pci = 00000000:{index + 2:02X}:00.0"]
    for key in [*_ONE, "memory"]:
        kind, value = gpu[key]
        if kind == "error":
            lines.append(f"{index}.{key} = !{value}")
        elif kind == "value" and key == "memory":
            lines += [f"{index}.memory = {value[1]}", f"{index}.memory_used = {value[0]}"]
        elif kind == "value":
            lines.append(f"{index}.{key} = {int(value) if isinstance(value, bool) else value}")
    return lines


def _assert_gap(snapshot: Snapshot, fact: str, answer: tuple[str, Any]) -> None:
    kind, code = answer
    assert snapshot.gaps[fact].kind == ("not_supported" if kind == "missing" else _ERRORS[code]), (fact, answer)


@settings(max_examples=25, deadline=None)
@given(described=_MACHINES)
def test_what_is_described_is_what_comes_back(library: Path, scratch: Path, described: list[Any]) -> None:
    lines = [f"count = {len(described)}"] + [line for i, gpu in enumerate(described) for line in _lines(i, gpu)]
    snapshot = read(library, machine(scratch, "", *lines))
    assert len(gpus(snapshot)) == len(described)
    for index, (wanted, gpu) in enumerate(zip(described, gpus(snapshot), strict=True)):
        at = f"gpus[{index}]"
        if isinstance(wanted, int):
            assert snapshot.gaps[at].kind == _ERRORS[wanted]
            assert gpu.uuid is None and gpu.temperature_c is None
            assert gpu.lost == (_NAMES[wanted] if _ERRORS[wanted] == "crashed" else None)
            assert gpu.permitted == (wanted != 4)
            continue
        assert gpu.pci == f"0000:{index + 1:02x}:00.0"
        assert [link.active for link in nvlinks(gpu)] == wanted["links"]
        for key, (field, _) in _ONE.items():
            kind, value = wanted[key]
            if kind == "value":
                assert getattr(gpu, field) == (value / 1000 if field.endswith("_w") else value)
                assert f"{at}.{field}" not in snapshot.gaps
            else:
                assert getattr(gpu, field) is None
                _assert_gap(snapshot, f"{at}.{field}", wanted[key])
        kind, value = wanted["memory"]
        if kind == "value":
            assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == tuple(value)
        else:
            assert gpu.memory_total_bytes is None
            _assert_gap(snapshot, f"{at}.memory_total_bytes", wanted["memory"])
        gone = {
            _GONE[code]
            for kind, code in (wanted[key] for key in [*_ONE, "memory"])
            if kind == "error" and code in _GONE
        }
        assert gpu.lost in gone if gone else gpu.lost is None
        crashed = [
            key for key in [*_ONE, "memory"] if wanted[key][0] == "error" and _ERRORS[wanted[key][1]] == "crashed"
        ]
        assert len(gpu.trouble) == len(crashed)
    handles = [index for index, gpu in enumerate(described) if not isinstance(gpu, int)]
    assert set(link_names(snapshot)) == set(combinations(handles, 2))


@pytest.mark.parametrize(
    "line", ["1.name = A\udcff00", "1.uuid = \udcff", "1.pci = \udcff", "1.nvlink.2.remote_pci = \udcff"]
)
def test_bytes_that_are_no_text_cost_their_own_fact_only(line: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", line))
    assert [gpu.temperature_c for gpu in gpus(snapshot)] == [33, 33, 33, 33]


@pytest.mark.parametrize("line", ["0.nvlink.5.state = !999", "0.nvlink.*.remote = !999", "0.nvlinks = !15"])
def test_nvlinks_that_cannot_be_read_are_a_gap(line: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", line))
    assert gpus(snapshot)[0].nvlinks is None and gpus(snapshot)[0].nvlinks_active is None
    assert snapshot.gaps["gpus[0].nvlinks"].kind == "crashed"
    assert [gpu.nvlinks_active for gpu in gpus(snapshot)[1:]] == [12, 12, 12]
    assert {pair for pair, name in link_names(snapshot).items() if name == "NV4"} == set(combinations((1, 2, 3), 2))
    assert snapshot.links is not None
    assert {link.nvlinks for link in snapshot.links if link.a == 0} == {None}
    assert snapshot.gaps["links[0-1].nvlinks"].kind == "crashed"


def test_processes_on_a_screen_that_cannot_be_read_are_a_gap_of_their_own(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "rtx4090_x2", "0.graphics_processes = !999"))
    assert gpus(snapshot)[0].processes == ()
    assert snapshot.gaps["gpus[0].graphics_processes"].kind == "crashed"
    assert "gpus[0].processes" not in snapshot.gaps


def test_an_older_name_of_a_call_leaves_no_gap(tmp_path: Path) -> None:
    old = build(tmp_path / "old", without=("nvmlDeviceGetCurrentClocksEventReasons",))
    snapshot = read(old, machine(tmp_path, "t4_x1"))
    assert gpus(snapshot)[0].clock_event_reasons == 1
    assert "gpus[0].clock_event_reasons" not in snapshot.gaps


@pytest.mark.parametrize(("line", "kind"), [("2.field.230 =", "not_supported"), ("2.field.230 = !999", "crashed")])
def test_a_field_that_is_refused_is_a_gap(line: str, kind: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", line))
    assert gpus(snapshot)[2].recovery_action is None
    assert snapshot.gaps["gpus[2].recovery_action"].kind == kind


def test_a_forbidden_gpu_is_not_a_lost_one(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", FAULTS["gpu_forbidden"]))
    assert (gpus(snapshot)[2].lost, gpus(snapshot)[2].permitted) == (None, False)


# ---- what is good to know: details


@pytest.mark.parametrize("fault", ["gpu_lost_half_way", "gpu_lost_in_details"])
def test_a_gpu_that_is_lost_while_it_is_asked_leaves_the_others_whole(
    fault: str, library: Path, healthy_h100: Snapshot, tmp_path: Path
) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS[fault]))
    lost = gpus(snapshot)[3]
    assert (lost.lost, lost.uuid) == ("GPU_IS_LOST", gpus(healthy_h100)[3].uuid)
    assert (lost.power_w is None) == (fault == "gpu_lost_half_way")
    assert (lost.serial is None) == (fault == "gpu_lost_half_way")
    assert lost.inforom_valid is None
    assert [g for g in gpus(snapshot) if g.index != 3] == [g for g in gpus(healthy_h100) if g.index != 3]


def test_a_gpu_that_is_lost_at_the_last_question(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", "3.nvlink.17.crc_errors = !15"))
    assert [gpu.lost for gpu in gpus(snapshot)] == [None] * 3 + ["GPU_IS_LOST"] + [None] * 4


def test_each_nvlink_has_its_speed_and_its_errors(library: Path, tmp_path: Path) -> None:
    lines = (FAULTS["nvlink_slow"], FAULTS["nvlink_errors"], "2.nvlink.0.state = 0")
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", *lines))
    links = nvlinks(gpus(snapshot)[3])
    assert (links[4].speed_mb_per_s, links[4].errors) == (19922, 29)
    assert {(link.speed_mb_per_s, link.errors) for link in links if link.link != 4} == {(26562, 0)}
    down = nvlinks(gpus(snapshot)[2])[0]
    assert (down.active, down.speed_mb_per_s, down.errors) == (False, None, None)


def test_the_counters_of_a_newer_nvlink(library: Path, tmp_path: Path) -> None:
    gone = tuple(f"*.nvlink.*.{name} = !3" for name in ("replays", "recoveries", "crc_errors"))
    new = ("*.nvlink.*.rcv_errors = 4", "*.nvlink.*.recovery_events = 1", "*.nvlink.*.speed = 53125")
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", *gone, *new))
    assert {(link.speed_mb_per_s, link.errors) for link in nvlinks(gpus(snapshot)[0])} == {(53125, 5)}
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", *gone, "*.nvlink.*.speed = 0"))
    assert {(link.speed_mb_per_s, link.errors) for link in nvlinks(gpus(snapshot)[0])} == {(None, None)}


def test_an_nvlink_domain_over_several_machines(library: Path, tmp_path: Path) -> None:
    cluster = "5f6ab0e80f1d4c2b9c0e6d1a2b3c4d5e"
    lines = (f"*.fabric_cluster = {cluster}", "*.fabric_clique = 32766", "*.fabric_health = 0x155", "*.c2c = 1")
    gpu = gpus(read(library, machine(tmp_path, "h100_sxm_x8", *lines)))[6]
    assert gpu.fabric_cluster == "5f6ab0e8-0f1d-4c2b-9c0e-6d1a2b3c4d5e"
    assert (gpu.fabric_clique, gpu.fabric_health_mask, gpu.c2c_enabled) == (32766, 0x155, True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2.unrepairable_after_version = 1", True),
        ("2.unrepairable_after_version = 0", False),
        ("2.unrepairable = 0", False),
    ],
)
def test_unrepairable_memory_is_seen_in_either_layout(line: str, expected: bool, library: Path, tmp_path: Path) -> None:
    assert gpus(read(library, machine(tmp_path, "h100_sxm_x8", line)))[2].memory_unrepairable is expected


def test_what_only_root_is_told(library: Path, tmp_path: Path) -> None:
    gpu = gpus(read(library, machine(tmp_path, "a100_sxm_x4", "*.sram_exceeded = 0")))[1]
    assert gpu.ecc_sram_threshold_exceeded is False


def test_retired_pages_are_counted_whatever_made_them_bad(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "t4_x1", "0.field.29 = 40", "0.field.30 = 23"))
    assert gpus(snapshot)[0].retired_pages == 63
    snapshot = read(library, machine(tmp_path, "t4_x1", "0.field.29 = 40", "0.field.30 = !999"))
    assert gpus(snapshot)[0].retired_pages is None


def test_details_that_meet_an_error_are_gaps_and_no_trouble(library: Path, tmp_path: Path) -> None:
    odd = (
        "serial",
        "vbios",
        "virtualization",
        "temperature_margin",
        "clock.1",
        "bar1",
        "rows_spare",
        "repair",
        "inforom",
    )
    lines = [f"1.{key} = !{2 if place % 2 else 999}" for place, key in enumerate(odd)]
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", *lines, "2.fields = !999"))
    gpu = gpus(snapshot)[1]
    assert (gpu.trouble, gpu.lost, gpu.serial, gpu.inforom_valid, gpu.bar1_total_bytes) == ((), None, None, None, None)
    assert snapshot.gaps["gpus[1].serial"] == Gap("crashed", "UNKNOWN")
    assert snapshot.gaps["gpus[2].fields"].kind == "crashed"
    assert gpus(snapshot)[2].memory_temperature_c is None


def test_a_slow_nvml_is_asked_for_what_matters_only(library: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", "0.temperature = ~2100 31", "*.serial = ~3000 1"))
    assert time.monotonic() - began < 15  # the serial numbers alone would take 24
    assert [gpu.temperature_c for gpu in gpus(snapshot)] == [31] * 8
    assert {gpu.serial for gpu in gpus(snapshot)} == {None}
    assert snapshot.gaps["gpus[7].details"].kind == "not_asked"
    assert snapshot.links is not None
    assert {(link.p2p_read, link.p2p_atomics) for link in snapshot.links} == {(0, None)}
    assert {gpu.trouble for gpu in gpus(snapshot)} == {()}


def test_a_slowdown_that_flashes_up_does_not_count(library: Path, tmp_path: Path) -> None:
    flash = ("0.clock_event_reasons_once = 0x48", "0.clock_event_reasons = 0x4", "1.clock_event_reasons_once = 0x1")
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", *flash, "1.clock_event_reasons = 0x40"))
    assert [gpu.clock_event_reasons for gpu in gpus(snapshot)] == [0x4, 0x1, 0x1, 0x1]
    both = ("0.clock_event_reasons_once = 0x48", "0.clock_event_reasons = 0x60")
    assert gpus(read(library, machine(tmp_path, "a100_sxm_x4", *both)))[0].clock_event_reasons == 0x40


def test_a_driver_before_510_does_not_tell_what_it_reserves(tmp_path: Path) -> None:
    old = build(tmp_path / "old", without=("nvmlDeviceGetMemoryInfo_v2",))
    gpu = gpus(read(old, machine(tmp_path, "h100_sxm_x8")))[0]
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (81559 * MIB, 562 * MIB)
    assert gpu.memory_reserved_bytes is None


def test_an_old_pynvml_lacks_details_and_nothing_else(library: Path, tmp_path: Path) -> None:
    """12.535, the oldest that may be installed, knows none of these."""
    import pynvml

    lacking = (
        "c_nvmlEccSramErrorStatus_v1_t", "c_nvmlUnrepairableMemory_v1_t", "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetC2cModeInfoV1", "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    )  # fmt: skip
    older = tmp_path / "older"
    older.mkdir()
    (older / "pynvml.py").write_text(
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('pynvml', {pynvml.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        f"for name in {lacking!r}: delattr(module, name)\n"
        "sys.modules['pynvml'] = module\n"
    )
    described = machine(tmp_path, "h100_sxm_x8", "*.temperature_margin = 5", "*.unrepairable = 1")
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(older)}):
        gpu = gpus(read(library, described))[0]
    assert (gpu.temperature_margin_c, gpu.memory_unrepairable, gpu.repair_pending) == (None, None, None)
    assert (gpu.serial, gpu.inforom_valid, gpu.trouble, gpu.lost) == ("1651923012345", True, (), None)


# ---- an NVML that talks nonsense


@pytest.mark.parametrize("count", ["4294967295", "-1", "1025"])
def test_a_count_that_cannot_be_is_no_count(count: str, library: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", f"count = {count}"))
    assert time.monotonic() - began < 10
    assert (snapshot.gpus, snapshot.links) == (None, None)
    assert snapshot.gaps["gpus"].kind == "crashed" and "NVML reports" in snapshot.gaps["gpus"].reason
    assert snapshot.driver is not None and snapshot.driver.version == "580.65.06"


GARBAGE = (
    "1.name = " + "x" * 3000,
    "1.uuid = " + "GPU-" * 500,
    "1.serial = \udcff\udcfe",
    "1.vbios = \udcff",
    "1.gsp_firmware = " + "9." * 60,
    "1.pci = not:an:address",
    "1.temperature = 4294967295",
    "1.power = 4294967295",
    "1.utilization = 4294967295 4294967295",
    "1.memory = 18446744073709551615",
    "1.ecc_errors.uncorrected.* = 18446744073709551615",
    "1.rows_remapped = 4294967295 4294967295 4294967295 4294967295",
    "1.rows_spare = 0 0 0 0 4294967295",
    "1.clock_event_reasons = 18446744073709551615",
    "1.performance_state = 32",
    "1.minor = 4294967295",
    "1.mig = 1 1\n1.mig.max = 4294967295",
    "1.compute_processes = 4000000000",
    "1.compute_processes = 4294967295:18446744073709551615 0:1",
    "1.nvlinks = 4000",
    "1.nvlink.*.remote = 77",
    "1.nvlink.*.speed = 18446744073709551615",
    "1.field.82 = 4294967295",
    "1.fabric = 4294967295 4294967295",
    "1.fabric_cluster = nonsense",
    "1.cpus = 0-99999999",
    "1.compute_capability = 99999.99999",
    "1.bar1 = 0\n1.bar1_used = 5",
    "1.temperature_margin = -2000000000",
    "driver.version = " + "5" * 79,
    "driver.version = \udcff",
    "driver.cuda_version = -7",
)


@pytest.mark.parametrize("line", GARBAGE, ids=[line.partition(" =")[0] + str(n) for n, line in enumerate(GARBAGE)])
def test_nonsense_of_one_gpu_costs_no_other(line: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", line))
    assert [gpu.name for gpu in gpus(snapshot) if gpu.index != 1] == ["NVIDIA A100-SXM4-80GB"] * 3
    assert [gpu.serial is None for gpu in gpus(snapshot) if gpu.index != 1] == [False] * 3
    assert snapshot.driver is not None and snapshot.links is not None
    judge(snapshot)  # and no check crashes over it


def test_a_number_that_means_not_available_is_not_a_number(library: Path, tmp_path: Path) -> None:
    lines = ("0.temperature = 4294967295", "0.ecc_errors.uncorrected.0 = 18446744073709551615", "0.power = 0xFFFFFFFF")
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", *lines))
    gpu = gpus(snapshot)[0]
    assert (gpu.temperature_c, gpu.ecc_uncorrected_volatile, gpu.power_w) == (None, None, None)
    assert snapshot.gaps["gpus[0].temperature_c"] == Gap("not_supported", "NVML: not available")


# ---- the files in /dev


@pytest.fixture
def dev() -> Iterator[Path]:
    """A /dev with the files of two GPUs, in a folder that any user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "null"):
            (Path(folder) / name).touch()
            (Path(folder) / name).chmod(0o666)
        (Path(folder) / "nvidia-caps").mkdir()
        yield Path(folder)


def as_somebody(function: Callable[[], Any]) -> Any:
    """What the function answers to a user who is not root."""
    if os.getuid() != 0:
        return function()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(writing, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def test_device_files_that_may_be_opened(dev: Path) -> None:
    found = as_somebody(lambda: nvml._device_nodes(str(dev), try_them=True))
    assert found["device_nodes"] == [
        "/dev/nvidia-caps", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0",
        "/dev/nvidia1", "/dev/nvidiactl",
    ]  # fmt: skip
    assert (found["nodes_denied"], found["nodes_group"]) == ([], None)
    assert (found["imex_channels"], found["imex_usable"]) == (0, None)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o000])
def test_device_files_of_others(mode: int, dev: Path) -> None:
    if os.getuid() != 0 and mode != 0:
        pytest.skip("needs root to make files of somebody else")
    for name in ("nvidiactl", "nvidia1", "nvidia-modeset"):
        (dev / name).chmod(mode)
    for try_them in (False, True):
        found = as_somebody(lambda tried=try_them: nvml._device_nodes(str(dev), try_them=tried))  # type: ignore[misc]
        assert found["nodes_denied"] == ["/dev/nvidia1", "/dev/nvidiactl"]  # CUDA does not open nvidia-modeset
        assert found["nodes_group"] is None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give files to a group")
def test_the_group_to_join_is_named(dev: Path) -> None:
    video = next(group for group in grp.getgrall() if group.gr_name not in ("root", "nogroup") and group.gr_gid < 65534)
    os.chown(dev / "nvidiactl", 0, video.gr_gid)
    (dev / "nvidiactl").chmod(0o660)
    found = as_somebody(lambda: nvml._device_nodes(str(dev)))
    assert (found["nodes_denied"], found["nodes_group"]) == (["/dev/nvidiactl"], video.gr_name)
    (dev / "nvidiactl").chmod(0o640)  # joining it would not be enough
    assert as_somebody(lambda: nvml._device_nodes(str(dev)))["nodes_group"] is None


def test_a_cgroup_that_forbids_a_device_shows_when_it_is_opened(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def forbid(path: str, *rest: Any) -> int:
        if path.endswith("nvidia1"):
            raise PermissionError(1, "Operation not permitted")
        if path.endswith("nvidia0"):
            raise OSError(5, "Input/output error")  # a GPU in trouble is no question of permission
        return real(path, *rest)

    monkeypatch.setattr(os, "open", forbid)
    assert nvml._device_nodes(str(dev))["nodes_denied"] == []
    assert nvml._device_nodes(str(dev), try_them=True)["nodes_denied"] == ["/dev/nvidia1"]


def test_imex_channels(dev: Path) -> None:
    channels = dev / "nvidia-caps-imex-channels"
    channels.mkdir()
    assert nvml._imex(str(channels)) == {"imex_channels": 0, "imex_usable": None}
    for number in range(3):
        (channels / f"channel{number}").touch()
        (channels / f"channel{number}").chmod(0o600)
    if os.getuid() == 0:
        assert as_somebody(lambda: nvml._imex(str(channels))) == {"imex_channels": 3, "imex_usable": False}
    (channels / "channel2").chmod(0o666)
    assert as_somebody(lambda: nvml._imex(str(channels))) == {"imex_channels": 3, "imex_usable": True}
    if os.getuid() == 0:
        channels.chmod(0o700)
        assert as_somebody(lambda: nvml._imex(str(channels))) == {"imex_channels": None, "imex_usable": None}


def test_a_dev_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    assert nvml._device_nodes(str(tmp_path / "nowhere")) == {"device_nodes": [], "nodes_denied": None}


def test_the_helper_that_loads_modules_runs_as_root_or_is_no_help(tmp_path: Path) -> None:
    helper = tmp_path / "nvidia-modprobe"
    assert not nvml._is_setuid(str(helper))
    helper.touch()
    assert not nvml._is_setuid(str(helper))
    helper.chmod(0o4755)
    assert nvml._is_setuid(str(helper))


def test_how_long_the_driver_takes_is_measured(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "t4_x1", "init = ~300"))
    assert snapshot.driver is not None and snapshot.driver.init_s is not None
    assert 0.3 <= snapshot.driver.init_s < 3
    refused = read(library, machine(tmp_path, "t4_x1", "init = !9"))
    assert refused.driver is not None and refused.driver.init_s is None


def test_the_machine_the_tests_run_on() -> None:
    """Whatever it is: facts or reasons, and no nonsense."""
    snapshot = gather([NVML])
    assert snapshot.driver is not None or snapshot.gaps["driver"]
    assert snapshot.gpus is not None or snapshot.gaps["gpus"]
    assert not any("nonsense" in gap.reason for gap in snapshot.gaps.values())


# ---- planted, and named: every fault through the real pynvml, the real probe and every check of GPUs


AREAS = ("driver", "gpu", "ecc", "clocks", "memory", "mig", "processes")
_CONTAINER = {"container": DOCKER}


def judge(snapshot: Snapshot, **changes: Any) -> dict[str, tuple[str, str]]:
    """What fires on this machine, with everything but its GPUs as it should be: id -> (status, title)."""
    assert snapshot.driver is not None
    devices = ("/dev/nvidia-uvm", "/dev/nvidiactl", *(f"/dev/nvidia{gpu.index}" for gpu in snapshot.gpus or ()))
    driver = replace(
        snapshot.driver,
        device_nodes=devices,
        nodes_denied=(),
        uvm_loaded=True,
        modprobe=True,
        pci_gpus=len(snapshot.gpus or ()),
    )
    changes = {"driver": driver, "gpus": snapshot.gpus, "links": snapshot.links, "pci": Pci((), False)} | changes
    seen = resolve_visible(None, changes["gpus"] or ())
    whole = Snapshot(**facts(**{"visible": seen if changes["gpus"] is not None else None} | changes))
    outcomes = engine.run([check for check in CHECKS.values() if check.area in AREAS], whole)
    assert not [outcome for outcome in outcomes if outcome.status == "crash"]
    return {o.check.id: (o.status, o.problem.title) for o in outcomes if o.problem}


NAMED: dict[str, tuple[str, str, str]] = {
    "driver_not_loaded": ("driver_not_loaded", "fail", "driver not loaded"),
    "library_mismatch": ("driver_library_mismatch", "fail", "does not match the installed driver"),
    "gpu_lost": ("gpu_lost", "fail", "GPU 3 fell off the bus (GPU_IS_LOST)"),
    "gpu_lost_at_handle": ("gpu_lost", "fail", "GPU 3 fell off the bus (GPU_IS_LOST)"),
    "gpu_lost_half_way": ("gpu_lost", "fail", "GPU 3 fell off the bus (GPU_IS_LOST)"),
    "gpu_lost_in_details": ("gpu_lost", "fail", "GPU 3 fell off the bus (GPU_IS_LOST)"),
    "gpu_forbidden": ("gpu_not_permitted", "info", "GPU 2 of 8"),
    "ecc": ("gpu_ecc_uncorrected", "fail", "7 uncorrected ECC errors on GPU 2"),
    "remap_pending": ("gpu_row_remap_pending", "warn", "GPU 1: row remapping pending"),
    "remap_failed": ("gpu_row_remap_failed", "fail", "row remapping failed on GPU 1"),
    "ecc_before": ("gpu_memory_errors_before", "info", "GPU 2: 3 uncorrected memory errors in the past"),
    "ecc_off": ("gpu_ecc_off", "warn", "ECC is off on GPU 2"),
    "sram_exceeded": ("gpu_sram_errors_exceeded", "fail", "GPU 2: uncorrected SRAM errors above the threshold"),
    "memory_unrepairable": ("gpu_memory_unrepairable", "fail", "GPU 2: unrepairable memory"),
    "spare_rows_used_up": ("gpu_spare_rows_used_up", "warn", "GPU 1: 2 memory banks without spare rows"),
    "repair_pending": ("gpu_repair_pending", "info", "GPU 1: repair pending"),
    "inforom_corrupt": ("gpu_inforom_corrupt", "warn", "GPU 0: the InfoROM is corrupted"),
    "memory_hot": ("gpu_memory_too_hot", "warn", "GPU 1: memory at 101 C (limit 95 C)"),
    "thermal": ("gpu_too_hot", "warn", "GPU 1 throttled by temperature (93 C)"),
    "hot_without_reason": ("gpu_too_hot", "warn", "GPU 1 at the limit of its temperature (90 C)"),
    "power_brake": ("gpu_power_braked", "warn", "GPU 1: hardware power brake"),
    "hardware_slowdown": ("gpu_slowed_by_hardware", "warn", "GPU 1 slowed down by its hardware"),
    "power_limit_low": ("gpu_power_limits_differ", "warn", "GPU 3 capped at 500 W of 700 W, the others are not"),
    "application_clocks": ("gpu_application_clocks_lowered", "warn", "GPU 3: application clock 1200 MHz"),
    "busy": ("gpu_busy", "warn", "GPU 0 in use"),
    "busy_unseen": ("gpu_busy_without_process", "warn", "GPU 2: 88 % busy, but no process is listed"),
    "bar1_full": ("gpu_bar1_exhausted", "warn", "GPU 2: BAR1 is full (127 GiB of 128 GiB)"),
    "vbios_differs": ("gpu_vbios_differs", "info", "96.00.30.00.01 on GPU 3"),
    "memory_smaller": ("gpu_memory_sizes_differ", "warn", "GPU 3: 74 GiB of memory, the others have 80 GiB"),
    "compute_prohibited": ("gpu_compute_prohibited", "fail", "GPU 0: compute mode prohibited"),
    "exclusive_taken": ("gpu_exclusive_taken", "fail", "GPU 1: allows one process at a time"),
    "stuck_in_low_power": ("gpu_stuck_in_low_power", "warn", "GPU 0: 99 % busy in idle state P8"),
    "mig_on": ("gpu_split_by_mig", "warn", "GPU 0 split by MIG"),
    "mig_empty": ("mig_without_instance", "warn", "GPU 0: MIG is enabled, but there is no instance"),
    "mig_pending": ("gpu_mode_change_pending", "info", "GPU 0: mode change pending"),
    "ecc_pending": ("gpu_mode_change_pending", "info", "GPU 2: mode change pending"),
    "recovery_reset": ("gpu_wants_recovery", "fail", 'GPU 2: the driver requests "reset the GPU"'),
}
# What else is true of such a machine.
ALSO: dict[str, set[str]] = {
    "busy": {"gpu_free_memory_uneven"},
    "stuck_in_low_power": {"gpu_busy", "gpu_free_memory_uneven"},
    "memory_smaller": {"gpu_free_memory_uneven"},
    "mig_empty": {"gpu_split_by_mig"},
    "exclusive_taken": {"gpu_compute_exclusive"},
}
# No fault of a GPU, or one of its links, which checks/links and checks/pcie.py judge; the first two are healthy.
UNNAMED = {
    *("ecc_corrected", "pcie_replays", "fabric_not_started", "fabric_degraded", "nvlink_down", "nvlink_slow"),
    *("nvlink_errors", "pcie_width_reduced", "nvml_hangs", "nvml_hangs_later", "nvml_aborts", "nvml_aborts_later"),
}


def test_every_planted_fault_has_a_name() -> None:
    assert set(NAMED) | UNNAMED == set(FAULTS)


@pytest.mark.parametrize("fault", NAMED)
def test_a_planted_fault_is_named_and_nothing_else(fault: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS[fault]))
    check, status, title = NAMED[fault]
    found = judge(snapshot)
    assert set(found) == {check} | ALSO.get(fault, set())
    assert found[check][0] == status and title in found[check][1]


@pytest.mark.parametrize("fault", sorted(UNNAMED - {name for name in FAULTS if name.startswith("nvml_")}))
def test_what_is_no_fault_of_a_gpu_is_not_called_one(fault: str, library: Path, tmp_path: Path) -> None:
    assert judge(read(library, machine(tmp_path, "h100_sxm_x8", FAULTS[fault]))) == {}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("where", [{}, _CONTAINER], ids=["bare", "docker"])
def test_a_healthy_machine_has_no_fault(name: str, where: dict[str, Any], library: Path, tmp_path: Path) -> None:
    assert judge(read(library, machine(tmp_path, name)), **where) == {}


_REFUSED = ("serial", "vbios", "gsp_firmware", "power", "power_limit", "power_limit_default", "temperature.*", "fields")
_WSL_TOO = ("compute_processes", "graphics_processes", "persistence_mode", "minor", "utilization")
# Hardware that is well, of which NVML tells less: machine, lines, facts of the place.
REDUCED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "wsl": (
        "rtx4090_x2",
        "\n".join(f"*.{key} = !3" for key in (*_REFUSED, *_WSL_TOO))
        + "\n0.memory_used = 4000MiB\n1.memory_used = 4000MiB",  # Windows' desktop
        {"container": WSL},
    ),
    "vgpu": (
        "a100_sxm_x4",
        "\n".join(f"*.{key} = !3" for key in (*_REFUSED, "rows_remapped", "rows_spare", "inforom", "nvlinks"))
        + "\n*.name = NVIDIA A100-40C\n*.virtualization = 2\n*.ecc = 0 0\n*.utilization = !3",
        {},
    ),
    "gb10": ("t4_x1", "0.name = NVIDIA GB10\n0.memory = !3\n0.ecc = !3\n0.power_limit = !3\n0.bar1 = !3", {}),
    "gb200": (
        "a100_sxm_x4",
        "*.name = NVIDIA GB200\n*.fabric = 3 0\n*.fabric_cluster = 5f6ab0e80f1d4c2b9c0e6d1a2b3c4d5e\n"
        "*.fabric_clique = 32766\n*.c2c = 1",
        {},
    ),
    "mig": (
        "a100_sxm_x4",
        FAULTS["mig_on"].replace("0.mig", "*.mig") + "\n*.utilization = !3\n*.ecc_errors.uncorrected.0 = !3",
        {},
    ),
    "laptop": (
        "t4_x1",
        "0.name = NVIDIA GeForce RTX 4070 Laptop GPU\n0.ecc = !3\n0.power_limit = !3\n0.temperature = 80",
        {},
    ),
    "no_persistence": ("h100_sxm_x8", "*.persistence_mode = 0\n*.utilization = 3 0", {}),
    "capped": ("a100_sxm_x4", "*.power_limit = 300000", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCED)
def test_what_nvml_leaves_out_is_no_fault(name: str, library: Path, tmp_path: Path) -> None:
    base, lines, where = REDUCED[name]
    found = judge(read(library, machine(tmp_path, base, lines)), **where)
    told = {"mig": {"gpus_all_split_by_mig": "info"}, "capped": {"gpu_power_capped": "info"}}
    assert {check: status for check, (status, _) in found.items()} == told.get(name, {})


def test_a_serial_number_is_not_shared(library: Path, tmp_path: Path) -> None:
    shared = redact(read(library, machine(tmp_path, "a100_sxm_x4")))
    serials = [gpu.serial for gpu in gpus(shared)]
    assert len(set(serials)) == 4 and all(serial and serial.startswith("serial-") for serial in serials)
    assert gpus(shared)[0].vbios == "92.00.45.00.06"


# ---- failures people really had


def test_an_old_driver_under_a_new_torch(library: Path, tmp_path: Path) -> None:
    lines = ("driver.version = 470.199.02", "driver.cuda_version = 11040")
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", *lines))
    whole = Snapshot(**facts(driver=snapshot.driver, pytorch=pytorch(cuda="13.0")))
    (outcome,) = engine.run_check(CHECKS["driver_too_old_for_torch"], whole)
    assert outcome.problem is not None and "470.199.02" in outcome.problem.title


def test_a_fabric_that_nobody_started(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", FAULTS["fabric_not_started"]))
    (outcome,) = engine.run_check(CHECKS["nvlink_fabric_not_ready"], Snapshot(**facts(gpus=snapshot.gpus)))
    assert outcome.problem is not None and "not started" in outcome.problem.title
    assert "802" in outcome.problem.cause


def test_a_container_that_was_started_without_its_gpus(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_text("")  # whatever driver the machine of this test has, it is not found
    bus = sysfs(tmp_path / "sys", {"0000:1b:00.0": 0})
    snapshot = read(tmp_path, machine(tmp_path, "h100_sxm_x8"), system=bus)
    inside = {"driver": snapshot.driver, "gpus": None, "links": None, "visible": None, "container": DOCKER}
    (outcome,) = engine.run_check(CHECKS["nvml_library_missing"], Snapshot(**facts(**inside)))
    assert outcome.problem is not None
    assert outcome.problem.title == "1 NVIDIA GPU on the PCI bus, but no driver library"
    assert "docker run --gpus all" in outcome.problem.fixes[0].commands[0]


def test_seven_of_eight(library: Path, tmp_path: Path) -> None:
    buses = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
    system = sysfs(tmp_path / "sys", {f"0000:{bus}:00.0": 0 for bus in buses}, module="580.65.06")
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", "count = 7"), system=system)
    assert snapshot.driver is not None
    on_bus = {"driver": replace(snapshot.driver, device_nodes=()), "plan": Plan(expect_gpus=8)}
    found = judge(snapshot, **on_bus)
    assert found["gpus_on_bus_not_in_driver"][1] == "8 NVIDIA GPUs on the PCI bus, 7 in the driver"
    assert found["gpu_count_unexpected"] == ("fail", "7 usable GPUs, 8 expected")


def test_a_gpu_that_is_full_already(library: Path, tmp_path: Path) -> None:
    mine = f"1.compute_processes = {os.getpid()}:70GiB\n1.memory_used = 72242MiB"
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", mine))
    found = judge(snapshot, plan=Plan(expect_free_bytes=60 << 30))
    assert set(found) == {"gpu_busy", "gpu_free_memory_uneven", "gpu_memory_below_plan"}
    assert found["gpu_memory_below_plan"] == ("fail", "GPU 1: 9.1 GiB free, 60 GiB expected")


def test_processes_that_a_container_does_not_show(library: Path, tmp_path: Path) -> None:
    hidden = "2.memory_used = 40000MiB\n2.utilization = 100 60"
    found = judge(read(library, machine(tmp_path, "h100_sxm_x8", hidden)), container=DOCKER)
    assert {"gpu_memory_used_from_outside", "gpu_busy_without_process"} <= set(found)
    assert found["gpu_memory_used_from_outside"][1] == "GPU 2: 39 GiB in use, but no process is listed"


def test_nodes_of_one_nvlink_rack_without_a_channel(library: Path, tmp_path: Path) -> None:
    rack = "*.fabric_cluster = 5f6ab0e80f1d4c2b9c0e6d1a2b3c4d5e\n*.fabric_clique = 32766"
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", rack))
    assert snapshot.driver is not None
    closed = replace(snapshot.driver, imex_channels=1, imex_usable=False)
    assert set(judge(snapshot, driver=closed, plan=Plan(nodes=2))) >= {"imex_channel_unusable"}
    assert "imex_channel_unusable" not in judge(snapshot, driver=closed)


def test_files_in_dev_that_are_not_for_this_user(library: Path, dev: Path, tmp_path: Path) -> None:
    (dev / "nvidiactl").chmod(0)
    denied: dict[str, Any] = as_somebody(lambda: nvml._device_nodes(str(dev), try_them=True))
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", "init = !4"))
    assert snapshot.driver is not None
    tuples: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in denied.items()}
    driver: Driver = replace(snapshot.driver, pci_gpus=4, **tuples)
    found = judge(snapshot, driver=driver, gpus=None, links=None)
    assert found["device_nodes_denied"] == ("fail", "no permission to open /dev/nvidiactl")
    assert found["driver_does_not_answer"] == ("fail", "NVML: NO_PERMISSION")


@pytest.mark.parametrize(("error", "name"), [("!999", "UNKNOWN"), ("!4", "NO_PERMISSION")])
def test_a_container_whose_devices_were_taken_away(error: str, name: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "h100_sxm_x8", f"init = {error}"))
    assert snapshot.driver is not None
    nodes = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
    inside = {"container": DOCKER, "gpus": None, "links": None, "visible": None}
    whole = Snapshot(**facts(**inside, driver=replace(snapshot.driver, device_nodes=nodes)))
    (outcome,) = engine.run_check(CHECKS["container_lost_gpus"], whole)
    assert outcome.problem is not None and name in outcome.problem.title


def test_ranks_on_the_instances_of_a_split_gpu(library: Path, tmp_path: Path) -> None:
    old = ("driver.version = 550.127.05", FAULTS["mig_on"].replace("0.mig", "*.mig"))
    snapshot = read(library, machine(tmp_path, "a100_sxm_x4", *old))
    found = judge(snapshot, config=config())
    assert found["mig_with_several_ranks"][1] == "4 ranks, but CUDA shows each of them the same MIG instance"
    assert found["gpus_all_split_by_mig"][0] == "info"
    assert "gpu_split_by_mig" not in found
