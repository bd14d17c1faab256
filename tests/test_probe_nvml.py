"""The NVML probe, through the real pynvml, on machines that a fake libnvidia-ml.so.1 describes."""

import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.probes import NVML, gather, run
from mgpu.snapshot import Gap, Gpu, NvLink, Snapshot
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
    return {fact: gap for fact, gap in snapshot.gaps.items() if fact not in ("torch_runtime", "visible")}


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
    assert [link.link for link in nvlinks(gpu)] == list(range(18))
    assert all(link.active and link.remote == "switch" for link in nvlinks(gpu))
    assert nvlinks(gpu)[13].remote_pci == "0000:09:00.0"
    assert gpus(snapshot)[0].cpus_near == cpus((0, 55), (112, 167))
    assert gpus(snapshot)[7].cpus_near == cpus((56, 111), (168, 223))

    assert link_names(snapshot) == dict.fromkeys(combinations(range(8), 2), "NV18")
    assert snapshot.links is not None
    topology = {(link.a, link.b): link.topology for link in snapshot.links}
    assert (topology[0, 1], topology[1, 2], topology[4, 7], topology[3, 4]) == ("PXB", "NODE", "NODE", "SYS")
    assert all(link.through_switch and link.p2p_read == link.p2p_write == 0 for link in snapshot.links)


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
    assert {gap.kind for gap in gaps(snapshot).values()} == {"not_supported"}
    assert "gpus[1].ecc_enabled" in snapshot.gaps


def test_t4_x1(library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, "t4_x1"))
    (gpu,) = gpus(snapshot)
    assert (gpu.name, gpu.compute_capability) == ("Tesla T4", (7, 5))
    assert (gpu.pci, gpu.memory_total_bytes) == ("0000:00:04.0", 15360 * MIB)
    assert (gpu.retired_pages_pending, gpu.rows_remap_pending) == (False, None)
    assert (gpu.pcie_width, gpu.pcie_generation_max) == (16, 3)
    assert snapshot.links == ()


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine_lacks_only_what_its_board_does_not_have(name: str, library: Path, tmp_path: Path) -> None:
    snapshot = read(library, machine(tmp_path, name))
    assert {gap.kind for gap in gaps(snapshot).values()} <= {"not_supported"}
    assert {gpu.lost for gpu in gpus(snapshot)} == {None}


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
    assert (faulty.driver, faulty.links, gaps(faulty)) == (healthy.driver, healthy.links, gaps(healthy))


def test_every_fault_is_tested() -> None:
    elsewhere = {
        *("driver_not_loaded", "library_mismatch", "nvml_hangs", "nvml_hangs_later", "nvml_aborts"),
        *("nvml_aborts_later", "gpu_lost", "gpu_lost_at_handle", "gpu_forbidden", "busy", "nvlink_down"),
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
    assert {gap.kind for fact, gap in gaps(snapshot).items() if "3" not in fact} == {"not_supported"}
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
        assert snapshot.gaps[fact] == Gap("no_driver", f"NVML does not answer: {name}")


@pytest.mark.parametrize(("fault", "asked"), [("nvml_hangs", "nvmlInit"), ("nvml_hangs_later", "GPU 2")])
def test_an_nvml_that_hangs_costs_its_deadline_and_leaves_no_process(
    fault: str, asked: str, library: Path, tmp_path: Path
) -> None:
    described = machine(tmp_path, "h100_sxm_x8", FAULTS[fault])
    began = time.monotonic()
    snapshot = read(library, described, deadline_s=HUNG_S)
    assert HUNG_S <= time.monotonic() - began < HUNG_S + 3
    hung = Gap("timed_out", f"NVML did not answer in 1.5 s (asked for {asked})")
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
    killed = Gap("crashed", f"the nvml probe was killed by SIGABRT (asked for {asked})")
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
    return st.integers(0, largest)


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
