"""mgpu/probes/infiniband.py: described trees of /sys, what checks make of them, and this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import engine
from mgpu.check import Ok, Problem, Skip
from mgpu.probes import runner
from mgpu.snapshot import InfiniBand, Library, Plan, Snapshot, decode
from tests import sysfs
from tests.checks.facts import DOCKER, NO_INFINIBAND, facts, gpus, host, kernel, libraries, problem
from tests.conftest import CHECKS
from tests.test_probe_pci import machine_facts

TWO = Plan(nodes=2)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> sysfs.Machine:
    return sysfs.dgx_h100(tmp_path_factory.mktemp("dgx"))


@pytest.fixture
def dgx(built: sysfs.Machine) -> Iterator[sysfs.Machine]:
    """The machine that most tests look at; what they `put` is taken back."""
    yield built
    built.restore()


@pytest.fixture(scope="module")
def built_roce(tmp_path_factory: pytest.TempPathFactory) -> sysfs.Machine:
    return sysfs.roce_box(tmp_path_factory.mktemp("roce"))


@pytest.fixture
def roce(built_roce: sysfs.Machine) -> Iterator[sysfs.Machine]:
    """Likewise."""
    yield built_roce
    built_roce.restore()


def known(machine: sysfs.Machine, **changes: Any) -> dict[str, Any]:
    """The machine's facts, for a run over two of its kind."""
    found = {"infiniband": machine.infiniband(), "plan": TWO}
    return machine_facts(machine.pci(), "NVIDIA A100-SXM4-80GB") | found | changes


def answer(check: str, facts: dict[str, Any]) -> Any:
    (outcome,) = engine.run_check(CHECKS[check], Snapshot(**facts))
    return outcome.answer


@pytest.fixture(autouse=True)
def no_library_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr("sys.prefix", "/nowhere")


# --- what is found -------------------------------------------------------------------------------------------------


def test_a_dgx(dgx: sysfs.Machine) -> None:
    found = dgx.infiniband()
    ports = {port.name: port for port in found.ports}
    assert len(ports) == 10
    first = ports["mlx5_0:1"]
    assert (first.link_layer, first.state, first.rate_gbit_per_s, first.lanes) == ("InfiniBand", "ACTIVE", 400.0, 4)
    assert (first.board, first.firmware, first.pci) == ("MT_0000000838", "28.39.1002", "0000:19:00.0")
    assert first.interfaces == ("ibp25s0",) and first.link_downed == 0 and first.numa_node == 0
    assert first.lid is None, "asked only where it tells something: each reading asks the card's firmware"
    storage = ports["mlx5_8:1"]
    assert (storage.state, storage.phys_state, storage.sm_lid) == ("DOWN", "Polling", 0)
    assert len(found.verbs_nodes) == 10 and found.verbs_unusable == () and found.verbs_library
    assert found.uptime_s == 864000.0


def test_a_roce_box(roce: sysfs.Machine) -> None:
    for port in roce.infiniband().ports:
        assert port.link_layer == "Ethernet"
        assert port.gid_types == ("IB/RoCE v1", "RoCE v2") and port.gid_ipv4


def test_an_efa_instance(tmp_path: Path) -> None:
    for port in sysfs.efa_instance(tmp_path).infiniband().ports:
        assert (port.link_layer, port.active, port.link_downed) == ("EFA", True, None)
        assert port.card == port.pci[: -len(".0")] if port.pci else False


def test_no_adapter(tmp_path: Path) -> None:
    assert sysfs.plx_box(tmp_path).infiniband() == NO_INFINIBAND


def test_two_ports_of_one_card_share_it(tmp_path: Path) -> None:
    machine = sysfs.Machine(tmp_path)
    for function in (0, 1):
        address = f"0000:41:00.{function}"
        machine.device(address, ["pci0000:40", "0000:40:01.0"], kind="020700", vendor="15b3", device="101b",
            driver="mlx5_core")  # fmt: skip
        machine.hca(f"mlx5_{function}", address)
    assert len({port.card for port in machine.infiniband().ports}) == 1


def test_virtual_functions(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path)
    (machine.folder("0000:24:00.0") / "physfn").symlink_to("../0000:04:00.0")
    assert [port.virtual_function for port in machine.infiniband().ports] == [False, True, False, False]


@pytest.mark.parametrize(
    ("rate", "gbit", "lanes"),
    [
        ("400 Gb/sec (4X NDR)", 400.0, 4),
        ("2.5 Gb/sec (1X SDR)", 2.5, 1),
        ("25 Gb/sec", 25.0, None),
        ("", None, None),
        ("fast", None, None),
        ("9" * 400 + " Gb/sec", None, None),
    ],
)
def test_rates(roce: sysfs.Machine, rate: str, gbit: float | None, lanes: int | None) -> None:
    roce.put("0000:04:00.0", "infiniband/mlx5_0/ports/1/rate", f"{rate}\n")
    port = roce.infiniband().ports[0]
    assert (port.rate_gbit_per_s, port.lanes) == (gbit, lanes)


@pytest.mark.parametrize("state", ["", "ACTIVE", "x: ACTIVE", "4:", "\x00", "4: "])
def test_a_state_that_is_none(roce: sysfs.Machine, state: str) -> None:
    roce.put("0000:04:00.0", "infiniband/mlx5_0/ports/1/state", state)
    port = roce.infiniband().ports[0]
    assert port.state is None and not port.active


def test_half_written_and_unreadable_files(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path)
    whole = machine.infiniband()
    folder = machine.folder("0000:04:00.0") / "infiniband/mlx5_0"
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and "device" not in path.parts):
        if "gids" in file.parts and int(file.name) > 4:
            continue
        kept = file.read_bytes()
        for broken in (b"", kept[: len(kept) // 2], b"\xff\xfe\x00garbage\n" * 50):
            file.write_bytes(broken)
            assert len(machine.infiniband().ports) == 4
        file.unlink()
        machine.infiniband()
        file.mkdir()
        machine.infiniband()
        file.rmdir()
        file.write_bytes(kept)
    assert machine.infiniband() == whole
    shutil.rmtree(folder / "ports")
    assert len(machine.infiniband().ports) == 3


def test_where_the_loader_looks_for_libibverbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = sysfs.roce_box(tmp_path)
    library = machine.root / "usr/lib/x86_64-linux-gnu/libibverbs.so.1"
    assert machine.infiniband().verbs_library is True
    library.unlink()
    assert machine.infiniband().verbs_library is False
    machine.write(tmp_path / "own/libibverbs.so.1", "")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{tmp_path}/own")
    assert machine.infiniband().verbs_library is True
    monkeypatch.delenv("LD_LIBRARY_PATH")
    machine.write(tmp_path / "etc/ld.so.cache", b"glibc-ld.so.cache1.1\0libibverbs.so.1\0/opt/rdma/libibverbs.so.1\0")
    assert machine.infiniband().verbs_library is True


# --- faults planted in a tree, found through probe and check -------------------------------------------------------


def change(machine: sysfs.Machine, n: int, file: str, text: str, address: str = "") -> None:
    """Change a file of the adapter mlx5_n."""
    address = address or machine.infiniband().ports[n].pci or ""
    machine.put(address, f"infiniband/mlx5_{n}/{file}", f"{text}\n")


def test_a_rail_without_its_cable(dgx: sysfs.Machine) -> None:
    change(dgx, 3, "ports/1/state", "1: DOWN")
    change(dgx, 3, "ports/1/phys_state", "2: Polling")
    facts = known(dgx)
    assert "mlx5_3:1: DOWN (Polling)" in problem("infiniband_port_down", **facts).title
    assert "no active adapter next to GPU 3" in problem("gpu_without_its_adapter", **facts).title
    assert isinstance(answer("infiniband_port_down", facts | {"plan": Plan()}), Skip)


def test_an_adapter_that_is_gone_from_the_bus(tmp_path: Path) -> None:
    machine = sysfs.dgx_h100(tmp_path)
    shutil.rmtree(machine.folder("0000:50:00.0"))
    (machine.sys / "class/infiniband/mlx5_2").unlink()
    (machine.sys / "bus/pci/devices/0000:50:00.0").unlink()
    assert "no active adapter next to GPU 2; the other 7 have one" in problem(
        "gpu_without_its_adapter", **known(machine)
    ).title  # fmt: skip


def test_no_subnet_manager(dgx: sysfs.Machine) -> None:
    for n in range(8):
        change(dgx, n, "ports/1/state", "2: INIT")
        change(dgx, n, "ports/1/sm_lid", "0x0")
    facts = known(dgx)
    found = problem("infiniband_without_subnet_manager", **facts)
    assert "INIT, link up but no subnet manager" in found.title
    assert found.evidence["mlx5_0:1"] == "INIT, subnet manager none"
    outcomes = engine.run([c for c in CHECKS.values() if c.area == "infiniband"], Snapshot(**facts))
    assert next(o for o in outcomes if o.check.id == "infiniband_none_active").because_of == (
        "infiniband_without_subnet_manager",
    )


def test_a_worn_cable(dgx: sysfs.Machine) -> None:
    change(dgx, 5, "ports/1/rate", "100 Gb/sec (1X NDR)")
    assert "mlx5_5:1: 100 Gb/s, 400 Gb/s on similar ports" in problem("infiniband_rate_low", **known(dgx)).title


def test_a_link_that_comes_and_goes(dgx: sysfs.Machine) -> None:
    change(dgx, 5, "ports/1/counters/link_downed", "120")
    assert "mlx5_5:1 lost its link 120 times in 10 days" in problem("infiniband_link_unstable", **known(dgx)).title


def test_one_adapter_left_out_of_an_update(dgx: sysfs.Machine) -> None:
    change(dgx, 5, "fw_ver", "28.36.1010")
    assert "28.36.1010 and 28.39.1002" in problem("infiniband_firmware_mixed", **known(dgx)).title


def test_a_narrow_slot(dgx: sysfs.Machine) -> None:
    dgx.put("0000:19:00.0", "current_link_speed", sysfs.GEN4)
    assert "mlx5_0: PCIe x16 at 16 GT/s carries 252 of" in problem("nic_pcie_narrow", **known(dgx)).title


def test_a_container_without_the_device_nodes(tmp_path: Path) -> None:
    """InfiniBand is there, and NCCL goes over TCP."""
    machine = sysfs.dgx_h100(tmp_path)
    shutil.rmtree(machine.dev / "infiniband")
    found = problem("verbs_node_unusable", **known(machine, container=DOCKER))
    assert "no device node usable for 8 of 8 active ports" in found.title
    assert "NCCL then silently falls back to TCP" in found.cause
    assert "--device=/dev/infiniband" in found.fixes[0].commands[0]


def test_a_device_node_that_may_not_be_opened(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path)
    node = machine.dev / "infiniband/uverbs2"
    node.unlink()
    node.symlink_to("/proc/self/mem/none")  # opening fails, whoever asks
    assert machine.infiniband().verbs_unusable == ("mlx5_2",)
    assert "1 of 4 active ports (mlx5_2:1)" in problem("verbs_node_unusable", **known(machine)).title


def test_an_image_without_libibverbs(tmp_path: Path) -> None:
    machine = sysfs.dgx_h100(tmp_path)
    (machine.root / "usr/lib/x86_64-linux-gnu/libibverbs.so.1").unlink()
    found = problem("verbs_library_missing", **known(machine, container=DOCKER))
    assert "no libibverbs.so.1" in found.title
    assert "libibverbs1 librdmacm1 ibverbs-providers" in found.fixes[0].commands[0]


def test_a_module_that_is_not_loaded(tmp_path: Path) -> None:
    machine = sysfs.dgx_h100(tmp_path)
    shutil.rmtree(machine.sys / "class/infiniband")
    found = problem("rdma_driver_missing", **known(machine))
    assert "10 network cards without an RDMA adapter" in found.title
    assert "sudo modprobe mlx5_ib" in found.fixes[0].commands


def test_no_gpudirect(dgx: sysfs.Machine) -> None:
    facts = known(dgx, kernel=kernel(modules=("mlx5_core",), driver_flavour="proprietary"))
    assert "neither nvidia_peermem nor DMA-BUF" in problem("gpudirect_rdma_unavailable", **facts).title


def test_roce_without_version_2(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path, without={1: (1, 3)})
    assert "mlx5_1:1: no RoCE v2 address (IB/RoCE v1)" in problem("roce_gid_missing", **known(machine)).title


def test_roce_in_a_network_namespace_of_its_own(tmp_path: Path) -> None:
    """The kernel shows no type of a GID that belongs to an interface elsewhere."""
    machine = sysfs.roce_box(tmp_path)
    types = machine.folder("0000:04:00.0") / "infiniband/mlx5_0/ports/1/gid_attrs/types"
    for file in types.iterdir():
        file.unlink()
        file.mkdir()  # reading it is an error
    found = problem("roce_gid_missing", **known(machine))
    assert "mlx5_0:1: no RoCE v2 address (no address at all)" in found.title
    assert any("--network=host" in command for command in found.fixes[0].commands)


def test_roce_without_an_ip_address(tmp_path: Path) -> None:
    machine = sysfs.roce_box(tmp_path, without={2: (2, 3)})
    found = problem("roce_address_missing", **known(machine))
    assert "mlx5_2:1: active, but without an IPv4 address" in found.title
    assert "dev enp68s0np0" in found.fixes[0].commands[0]
    assert isinstance(answer("roce_gid_missing", known(machine)), Ok)


def test_efa_without_its_plugin(tmp_path: Path) -> None:
    facts = known(sysfs.efa_instance(tmp_path), host=host(virtual="Amazon EC2"))
    found = problem("efa_plugin_missing", **facts)
    assert "4 EFA adapters, but no NCCL plugin" in found.title
    there = replace(libraries(), found=(Library("nccl-net", "/opt/amazon/ofi-nccl/lib/libnccl-net.so", "system"),))
    assert isinstance(answer("efa_plugin_missing", facts | {"libraries": there}), Ok)


def test_a_flat_virtual_machine_with_infiniband(tmp_path: Path) -> None:
    facts = known(sysfs.flat_vm(tmp_path, gpus=8, rdma=8), host=host(virtual="Hyper-V"))
    assert "8 active ports, no visible PCIe switch" in problem("vm_rdma_without_topology_file", **facts).title


def test_a_variable_of_another_cluster(dgx: sysfs.Machine) -> None:
    facts = known(dgx, env={"NCCL_IB_HCA": "rocep"})
    assert "selects none of 8 active ports" in problem("ib_hca_unmatched", **facts).title


@pytest.mark.parametrize("build", [sysfs.dgx_h100, sysfs.plx_box, sysfs.efa_instance, sysfs.roce_box])
def test_a_sound_tree_has_no_problem(tmp_path: Path, build: Any) -> None:
    there = replace(libraries(), found=(Library("nccl-net", "/opt/amazon/ofi-nccl/lib/libnccl-net.so", "system"),))
    found = known(build(tmp_path), libraries=there)
    for check in CHECKS.values():
        if check.area == "infiniband":
            assert not isinstance(answer(check.id, found), Problem), answer(check.id, found)


def test_on_one_machine_nothing_of_it_matters(dgx: sysfs.Machine) -> None:
    broken = replace(dgx.infiniband(), verbs_library=False, verbs_unusable=("mlx5_0",))
    down = replace(broken, ports=tuple(replace(port, state="DOWN") for port in broken.ports))
    for check in CHECKS.values():
        if check.area == "infiniband":
            assert isinstance(answer(check.id, facts(infiniband=down, gpus=gpus(8))), Skip), check.id


# --- this machine --------------------------------------------------------------------------------------------------


def test_this_machine() -> None:
    found = decode(InfiniBand, sysfs.run("infiniband")["infiniband"], "infiniband")
    here = os.listdir("/sys/class/infiniband") if os.path.isdir("/sys/class/infiniband") else []
    assert {port.device for port in found.ports} <= set(here)
    assert bool(here) or found == NO_INFINIBAND


def test_in_its_own_child() -> None:
    (child,) = runner.run([replace(runner.INFINIBAND, bare=True)])
    assert child.gaps == {}
    assert set(child.found) == {"infiniband"}
