"""mgpu/probes/pci.py: described trees of /sys, what checks make of them, and this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Ok, Problem, Skip
from mgpu.probes import runner
from mgpu.snapshot import LeftProcess, Pci, Plan, Snapshot, bus_address, decode, nearest_nics, path_between
from tests import sysfs
from tests.checks.facts import (
    DOCKER,
    NO_INFINIBAND,
    driver,
    facts,
    gpus,
    host,
    kernel,
    leftovers,
    links,
    problem,
)
from tests.conftest import CHECKS, ROOT, need

PCIE: dict[str, Any] = {"nvlinks": 0, "through_switch": False}
VM = host(virtual="KVM")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> sysfs.Machine:
    return sysfs.dgx_h100(tmp_path_factory.mktemp("dgx"))


@pytest.fixture
def dgx(built: sysfs.Machine) -> Iterator[sysfs.Machine]:
    """The machine that most tests look at; what they `put` is taken back."""
    yield built
    built.restore()


def machine_facts(pci: Pci, name: str = "NVIDIA A100-PCIE-40GB", **changes: Any) -> dict[str, Any]:
    """The GPUs of the tree as NVML would number them, with peer access over PCIe as far as the bus goes."""
    found = pci.of("gpu")
    cards = tuple(
        replace(gpu, pci=f"0000{device.address.upper()}", numa_node=device.numa_node)
        for gpu, device in zip(
            gpus(len(found), name=name, nvlinks=(), fabric_state=0, fabric_status=None), found, strict=True
        )
    )
    paths = tuple(
        replace(link, topology=path_between(found[link.a], found[link.b])) for link in links(len(found), **PCIE)
    )
    return facts(pci=pci, gpus=cards, links=paths, infiniband=NO_INFINIBAND, **changes)


def answer(check: str, known: dict[str, Any]) -> Any:
    (outcome,) = engine.run_check(CHECKS[check], Snapshot(**known))
    return outcome.answer


# --- what is found -------------------------------------------------------------------------------------------------


def test_a_dgx(dgx: sysfs.Machine) -> None:
    pci = dgx.pci()
    cards, nics = pci.of("gpu"), pci.of("nic")
    assert [gpu.address for gpu in cards[:2]] == ["0000:18:00.0", "0000:3d:00.0"]
    assert len(cards) == 8 and len(nics) == 10
    assert pci.readable and pci.nvswitches == 4 and pci.cpu_vendor == "intel"
    first = cards[0]
    assert (first.vendor, first.device, first.driver, first.pci_class) == ("10de", "2330", "nvidia", "030200")
    assert first.answers and first.width is None, "NVML tells more of a GPU's link"
    assert first.path == ("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0")
    assert (first.numa_node, first.cpus_near) == (0, "0-3")
    assert first.acs_redirect is False and first.aer_fatal == 0
    assert nics[-1].names == ("mlx5_7", "ibp219s0")
    assert (nics[0].width, nics[0].width_max, nics[0].speed_gt_per_s, nics[0].speed_max_gt_per_s) == (
        16,
        16,
        32.0,
        32.0,
    )
    for n, gpu in enumerate(cards):
        assert [nic.names[0] for nic in nearest_nics(pci, f"0000{gpu.address.upper()}")] == [f"mlx5_{n}"]
    assert [path_between(cards[0], gpu) for gpu in cards[1:]] == ["NODE"] * 3 + ["SYS"] * 4


def test_cards_below_one_switch(tmp_path: Path) -> None:
    pci = sysfs.plx_box(tmp_path).pci()
    assert {path_between(a, b) for a in pci.devices for b in pci.devices if a != b} == {"PIX"}
    assert {(d.uplink_width, d.uplink_width_max) for d in pci.devices} == {(16, 16)}
    assert pci.of("nic") == () and nearest_nics(pci, pci.devices[0].address) == ()


def test_a_flat_virtual_machine(tmp_path: Path) -> None:
    pci = sysfs.flat_vm(tmp_path).pci()
    assert [device.path for device in pci.devices] == [("pci0000:00",)] * 4
    assert {device.numa_node for device in pci.devices} == {None}, "-1 says that it is not known"
    assert {path_between(a, b) for a in pci.devices for b in pci.devices} == {"PHB"}
    assert {device.acs_redirect for device in pci.devices} == {False}


def test_efa_and_ena(tmp_path: Path) -> None:
    """EFA devices are network cards for clusters; the ENA ones beside them are not."""
    pci = sysfs.efa_instance(tmp_path).pci()
    assert {nic.device for nic in pci.of("nic")} == {"efa1"}
    assert len(pci.of("gpu")) == 8


def test_a_masked_bus(tmp_path: Path) -> None:
    pci = sysfs.masked(sysfs.dgx_h100(tmp_path)).pci()
    assert pci == replace(pci, devices=(), readable=False, nvswitches=None)


def test_no_bus_at_all(tmp_path: Path) -> None:
    assert decode(Pci, sysfs.run("pci", sys_root=str(tmp_path), proc=str(tmp_path))["pci"], "") == Pci((), False)


def test_the_table_of_the_kernel_is_not_needed(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path)
    with_it = machine.pci()
    shutil.rmtree(machine.proc / "bus")
    machine.listed = False
    assert machine.pci() == with_it


def test_a_second_pci_domain(tmp_path: Path) -> None:
    """The kernel's table leaves domains out: a device of the same number elsewhere is not taken for a GPU."""
    machine = sysfs.Machine(tmp_path)
    machine.device("0000:01:00.0", ["pci0000:00", "0000:00:01.0"], kind="010802", vendor="144d", device="a80a")
    machine.device("0001:01:00.0", ["pci0001:00", "0001:00:01.0"], kind="030200", vendor="10de", device="2941")
    assert [device.address for device in machine.pci().devices] == ["0001:01:00.0"]


def test_virtual_functions_of_a_gpu_are_not_gpus(tmp_path: Path) -> None:
    machine = sysfs.plx_box(tmp_path)
    (machine.folder("0000:3e:00.0") / "physfn").symlink_to("../0000:3d:00.0")
    assert len(machine.pci().devices) == 3


def test_a_sleeping_gpu_is_not_woken(tmp_path: Path) -> None:
    """Reading registers resumes the device: on a laptop that takes its time and its battery."""
    machine = sysfs.workstation(tmp_path)
    machine.put("0000:01:00.0", "power/runtime_status", "suspended\n")
    machine.put("0000:01:00.0", "config", b"\xff" * 64)
    asleep, awake = machine.pci().devices
    assert asleep.answers is None
    assert awake.answers is True


@pytest.mark.parametrize("lanes", ["0", "63", "255", "", "x16", "-1"])
def test_a_width_that_is_none(dgx: sysfs.Machine, lanes: str) -> None:
    dgx.put("0000:19:00.0", "current_link_width", f"{lanes}\n")
    assert dgx.pci().of("nic")[0].width is None


@pytest.mark.parametrize("speed", ["Unknown", "", "GT/s", "fast GT/s", "9" * 99 + " GT/s"])
def test_a_speed_that_is_none(dgx: sysfs.Machine, speed: str) -> None:
    dgx.put("0000:19:00.0", "current_link_speed", f"{speed}\n")
    assert dgx.pci().of("nic")[0].speed_gt_per_s is None


def test_an_ordinary_user_reads_no_acs(tmp_path: Path) -> None:
    """Without CAP_SYS_ADMIN the kernel gives the first 64 bytes only."""
    machine = sysfs.plx_box(tmp_path)
    for bridge in (tmp_path / "sys/bus/pci/devices").iterdir():
        config = bridge / "config"
        config.write_bytes(config.read_bytes()[:64])
    assert {device.acs_redirect for device in machine.pci().devices} == {None}
    assert {device.answers for device in machine.pci().devices} == {True}


@pytest.mark.parametrize(
    ("control", "redirects"),
    [(0x0000, False), (0x0001, False), (0x0004, True), (0x0008, True), (0x0010, False), (0x001D, True), (0x005D, True)],
)
def test_the_acs_register(tmp_path: Path, control: int, redirects: bool) -> None:
    """Source validation alone, or upstream forwarding, turn no traffic round."""
    assert {d.acs_redirect for d in sysfs.plx_box(tmp_path, acs=control).pci().devices} == {redirects}


def test_a_chain_of_capabilities_that_never_ends(tmp_path: Path) -> None:
    machine = sysfs.plx_box(tmp_path)
    loop = bytearray(4096)
    loop[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    machine.put("0000:3b:00.0", "config", bytes(loop))
    assert {device.acs_redirect for device in machine.pci().devices} == {False}


def test_which_cpus_near_it_may_be_used(dgx: sysfs.Machine) -> None:
    pci = dgx.pci(cpus=[0, 1, 4])
    assert [gpu.cpus_near_usable for gpu in pci.of("gpu")] == [2] * 4 + [1] * 4


@pytest.mark.parametrize("text", ["", "abc", "3-", "-", "9-1", "0-99999999999", "1-2-3", "0,,x"])
def test_a_list_of_cpus_that_is_none(tmp_path: Path, text: str) -> None:
    machine = sysfs.workstation(tmp_path)
    machine.put("0000:01:00.0", "local_cpulist", text)
    assert machine.pci(cpus=[2]).devices[0].cpus_near_usable in (None, 0)


def test_half_written_and_unreadable_files(dgx: sysfs.Machine) -> None:
    """Whatever is missing, broken or a folder costs that answer only."""
    whole = dgx.pci()
    folder = dgx.folder("0000:18:00.0")
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        kept = file.read_bytes()
        for broken in (b"", kept[: len(kept) // 2], b"\xff\xfe\x00garbage\n" * 50):
            file.write_bytes(broken)
            pci = dgx.pci()
            assert len(pci.devices) >= len(whole.devices) - 1
        file.unlink()
        dgx.pci()
        file.mkdir()
        dgx.pci()
        file.rmdir()
        file.write_bytes(kept)
    assert dgx.pci() == whole


# --- the topology file ---------------------------------------------------------------------------------------------

TOPOLOGY = """<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:00:05.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0000:00:06.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
    </pci>
  </cpu>
</system>
"""


def test_the_topology_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = sysfs.flat_vm(tmp_path, gpus=2)
    assert machine.pci().topology_file is None
    file = tmp_path / "topo.xml"
    file.write_text(TOPOLOGY)
    monkeypatch.setenv("NCCL_TOPO_FILE", str(file))
    pci = machine.pci()
    assert (pci.topology_file, pci.topology_gpus) == (str(file), ("0000:00:05.0", "0000:00:06.0"))
    known = machine_facts(pci, host=VM, env={"NCCL_TOPO_FILE": str(file)})
    assert isinstance(answer("topology_file_misfit", known), Ok)
    assert isinstance(answer("vm_topology_flat", known), Ok)


def test_the_topology_file_of_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = sysfs.flat_vm(tmp_path, gpus=4)
    (tmp_path / "topo.xml").write_text(TOPOLOGY)
    monkeypatch.setenv("NCCL_TOPO_FILE", str(tmp_path / "topo.xml"))
    found = problem("topology_file_misfit", **machine_facts(machine.pci(), env={"NCCL_TOPO_FILE": "x"}))
    assert "lacks 2 of this machine's 4 GPUs" in found.title
    assert found.fixes[0].commands == ("unset NCCL_TOPO_FILE",)


@pytest.mark.parametrize("text", ["", "<pci", "<pci busid='1'", '<pci class="0x030200" busid="">', "\x00\xff" * 99])
def test_a_topology_file_that_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "topo.xml"
    file.write_text(text, encoding="latin-1")
    assert sysfs.flat_vm(tmp_path).pci(topology_file=str(file)).topology_gpus == ()


def test_a_topology_file_that_is_not_there(tmp_path: Path) -> None:
    machine = sysfs.flat_vm(tmp_path)
    pci = machine.pci(topology_file=str(tmp_path / "none.xml"))
    assert pci.topology_error == "No such file or directory"
    assert "cannot be read" in problem("topology_file_misfit", **machine_facts(pci)).title
    assert machine.pci(topology_file=str(tmp_path)).topology_error == "Is a directory"


def test_the_topology_file_that_a_cloud_brings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_TOPO_FILE", raising=False)
    machine = sysfs.flat_vm(tmp_path, gpus=2)
    machine.write(tmp_path / "var/run/nvidia-topologyd/virtualTopology.xml", TOPOLOGY)
    assert machine.pci().topology_gpus == ("0000:00:05.0", "0000:00:06.0")


# --- the fabric manager --------------------------------------------------------------------------------------------


def fabric_manager(machine: sysfs.Machine, script: str) -> None:
    binary = machine.root / "usr/bin/nv-fabricmanager"
    machine.write(binary, f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)


def test_the_fabric_manager_tells_its_version(dgx: sysfs.Machine) -> None:
    assert dgx.pci().fabric_manager is None
    fabric_manager(dgx, 'test "$1" = --version && echo "Fabric Manager version is : 570.86.15"')
    pci = dgx.pci()
    assert pci.fabric_manager == "570.86.15"
    known = {"pci": pci, "gpus": gpus(8, fabric_state=1), "driver": driver()}
    assert "570.86.15 is installed, the driver is 580.65.06" in problem("fabric_manager_version_differs", **known).title
    found = problem("fabric_manager_missing", **known, leftovers=leftovers())
    assert "4 NVSwitches, but nv-fabricmanager is not running" in found.title
    assert "error 802" in found.cause
    shutil.rmtree(dgx.root / "usr/bin")


@pytest.mark.parametrize("script", ["exit 1", "echo nothing", "exec sleep 60", "kill -9 $$", "head -c 99999 /dev/zero"])
def test_a_fabric_manager_that_does_not_tell(dgx: sysfs.Machine, script: str) -> None:
    fabric_manager(dgx, script)
    began = time.monotonic()
    pci = dgx.pci()
    shutil.rmtree(dgx.root / "usr/bin")
    assert pci.fabric_manager is None and len(pci.devices) == 18
    assert time.monotonic() - began < 20


def test_without_nvswitches_nobody_is_asked(tmp_path: Path) -> None:
    machine = sysfs.plx_box(tmp_path)
    fabric_manager(machine, f"touch {tmp_path}/asked; echo 570.86.15")
    assert machine.pci().fabric_manager is None
    assert not (tmp_path / "asked").exists()


# --- faults planted in a tree, found through probe and check -------------------------------------------------------


def test_a_gpu_that_fell_off_the_bus(dgx: sysfs.Machine) -> None:
    dgx.put("0000:3d:00.0", "config", b"\xff" * 256)
    found = problem("gpu_off_the_bus", **machine_facts(dgx.pci()))
    assert "0000:3d:00.0" in found.title and "fell off the bus" in found.cause
    dgx.restore()
    assert isinstance(answer("gpu_off_the_bus", machine_facts(dgx.pci())), Ok)


def test_p2p_through_a_translating_iommu(tmp_path: Path) -> None:
    """Two cards of an AMD workstation, as in NVIDIA/nccl#2079; the standard cause of hangs of two GPUs."""
    known = machine_facts(sysfs.workstation(tmp_path).pci(), "NVIDIA RTX 5880 Ada Generation")
    found = problem("iommu_translates_peer_traffic", **known | {"kernel": kernel(iommu="translating")})
    assert "NCCL uses this path" in found.cause, "on AMD with two GPUs it does"
    assert any("iommu=pt" in command for command in found.fixes[0].commands)
    assert found.fixes[1].commands == ("export NCCL_P2P_DISABLE=1",)
    assert isinstance(answer("iommu_translates_peer_traffic", known | {"kernel": kernel(iommu="passthrough")}), Ok)


def test_acs_on_a_plx_switch(tmp_path: Path) -> None:
    known = machine_facts(sysfs.plx_box(tmp_path / "a", acs=sysfs.ACS_REDIRECTS).pci())
    found = problem("pcie_acs_redirects", **known)
    assert "6 device pairs" in found.title
    assert "0000:3b:00.0 0000:3c:00.0 0000:3c:04.0 0000:3c:08.0 0000:3c:0c.0" in found.fixes[0].commands[0]
    assert isinstance(answer("pcie_acs_redirects", machine_facts(sysfs.plx_box(tmp_path / "b").pci())), Ok)
    unread = machine_facts(sysfs.without_root(sysfs.plx_box(tmp_path / "c").pci()))
    skipped = answer("pcie_acs_redirects", unread)
    assert isinstance(skipped, Skip) and "sudo lspci -vvv" in skipped.reason


def test_acs_between_gpus_and_network_cards(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path)
    machine.put("0000:02:01.0", "config", sysfs.config_space(0x1000, 0xC030, acs=sysfs.ACS_REDIRECTS))
    known = machine_facts(machine.pci())
    assert "1 device pair" in problem("pcie_acs_redirects", **known | {"plan": Plan(nodes=2)}).title
    assert isinstance(answer("pcie_acs_redirects", known), Skip), "one machine does not use the card"


def test_a_narrow_link_above_a_switch(dgx: sysfs.Machine) -> None:
    dgx.put("0000:3b:00.0", "current_link_width", "4\n")
    found = problem("pcie_switch_uplink_narrow", **machine_facts(dgx.pci()))
    assert "PCIe switch 0000:3b:00.0: x4 to the host, other switches x16" in found.title


def test_fatal_errors(dgx: sysfs.Machine) -> None:
    dgx.put("0000:18:00.0", "aer_dev_fatal", "Undefined 0\nDLP 1\nSDES 2\nTOTAL_ERR_FATAL 3\n")
    assert "3 fatal PCIe errors since boot (0000:18:00.0)" in problem(
        "pcie_fatal_errors", **machine_facts(dgx.pci())
    ).title  # fmt: skip


def test_a_process_bound_to_the_other_socket(dgx: sysfs.Machine) -> None:
    known = machine_facts(dgx.pci(cpus=range(4)))
    found = problem("cpus_far_from_gpus", **known)
    assert "no usable CPU near GPUs 4, 5, 6 and 7" in found.title


def test_a_container_whose_sys_is_masked(tmp_path: Path) -> None:
    machine = sysfs.plx_box(tmp_path)
    known = machine_facts(machine.pci())
    hidden = sysfs.masked(machine).pci()
    found = problem("pci_tree_hidden", **known | {"pci": hidden, "container": DOCKER})
    assert "/sys shows 0 of 4 visible GPUs" in found.title
    assert isinstance(answer("pci_tree_hidden", known), Ok)


def test_a_virtual_machine_without_peer_access(tmp_path: Path) -> None:
    known = machine_facts(sysfs.flat_vm(tmp_path).pci(), host=VM)
    found = problem("vm_topology_flat", **known)
    assert "KVM: 4 GPUs directly on the root bus" in found.title
    assert "NCCL_P2P_DISABLE=1" in found.fixes[1].commands[0]
    assert isinstance(answer("iommu_translates_peer_traffic", known | {"kernel": kernel(iommu="translating")}), Skip)
    assert isinstance(answer("pcie_acs_redirects", known), Skip)


@pytest.mark.parametrize(
    "build", [sysfs.dgx_h100, sysfs.plx_box, sysfs.workstation, sysfs.efa_instance, sysfs.roce_box]
)
def test_a_sound_tree_has_no_problem(tmp_path: Path, build: Any) -> None:
    machine = build(tmp_path)
    manager = LeftProcess(800, "nv-fabricmanager", "fabric_manager", mine=False)
    known = machine_facts(machine.pci(), leftovers=leftovers(processes=(manager,)))
    known["infiniband"] = machine.infiniband()
    for check in CHECKS.values():
        for nodes in (1, 2):
            if check.area in ("links", "pcie"):
                found = answer(check.id, known | {"plan": Plan(nodes=nodes)})
                assert not isinstance(found, Problem) or check.id == "gpus_span_numa_nodes", (check.id, found)


# --- distances -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (("pci0000:15", "0000:15:01.0"), ("pci0000:15", "0000:15:01.0"), "PIX"),  # two functions of one card
        (("pci0000:15", "r", "up", "d1"), ("pci0000:15", "r", "up", "d2"), "PIX"),
        (("pci0000:15", "r", "up", "d1", "up2", "d3"), ("pci0000:15", "r", "up", "d2"), "PXB"),
        (("pci0000:15", "r1"), ("pci0000:15", "r2"), "PHB"),
        (("pci0000:15",), ("pci0000:15",), "PHB"),
        (("pci0000:15", "r1"), ("pci0000:37", "r2"), "NODE"),
        ((), ("pci0000:15",), None),
    ],
)
def test_distances(tmp_path: Path, a: tuple[str, ...], b: tuple[str, ...], distance: str | None) -> None:
    one = sysfs.plx_box(tmp_path).pci().devices[0]
    assert path_between(replace(one, path=a), replace(one, path=b)) == distance
    assert path_between(replace(one, path=b), replace(one, path=a)) == distance


def test_devices_of_two_sockets(tmp_path: Path) -> None:
    one = replace(sysfs.plx_box(tmp_path).pci().devices[0], path=("pci0000:15",), numa_node=0)
    assert path_between(one, replace(one, path=("pci0000:97",), numa_node=1)) == "SYS"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:1a:00.0", "0000:1a:00.0"),
        ("1A:00.0", "0000:1a:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert bus_address(text) == address


# --- this machine --------------------------------------------------------------------------------------------------


def test_this_machine() -> None:
    pci = decode(Pci, sysfs.run("pci")["pci"], "pci")
    for device in pci.devices:
        assert os.path.exists(f"/sys/bus/pci/devices/{device.address}")
    assert (pci.readable == os.path.exists("/sys/bus/pci/devices") and not pci.of("gpu")) or pci.devices


def test_in_its_own_child() -> None:
    (child,) = runner.run([replace(runner.PCI, bare=True)])
    assert child.gaps == {}
    assert decode(Pci, child.found["pci"], "pci") == decode(Pci, sysfs.run("pci")["pci"], "pci")


def test_a_bus_that_really_is_masked(tmp_path: Path) -> None:
    """In a mount namespace, an empty file system over /sys/bus: as containers do it."""
    unshare = need("unshare")
    script = f"mount -t tmpfs tmpfs /sys/bus && exec {sys.executable} -I -S -c '{CHILD}' {ROOT}"
    done = subprocess.run(
        [unshare, "-m", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if (done.returncode and "mount" in done.stderr) or "unshare" in done.stderr:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    pci = decode(Pci, json.loads(done.stdout), "pci")
    assert not pci.readable and pci.devices == ()


CHILD = """
import json, sys
space = {}
path = sys.argv[1] + "/mgpu/probes/pci.py"
exec(compile(open(path).read(), path, "exec"), space)
found = {}
for part in space["probe"](): found.update(part)
print(json.dumps(found["pci"]))
"""
