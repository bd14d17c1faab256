"""Are NCCL's own logs read as they stand?

tests/nccl_logs holds logs that people published; the first line of each says where. What is broken or unknown in a log
is passed over.
"""

from __future__ import annotations

import random
import string
from pathlib import Path
from typing import Any

import pytest

from mgpu.smoke import nccl_log
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import NcclLog

LOGS = sorted((Path(__file__).parent / "nccl_logs").glob("*.txt"))


def logged(name: str) -> NcclLog:
    """The facts of a recorded log."""
    found = nccl_log.parse((Path(__file__).parent / "nccl_logs" / f"{name}.txt").read_text("utf-8"))
    assert found is not None
    return found


def ways(found: NcclLog) -> dict[tuple[int, int], str]:
    """The transport of every connection."""
    return {(line.sender, line.receiver): line.transport for line in found.connections}


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("nvlink_direct", {"plugin": "NCCL RDMA Plugin (v5)", "interfaces": ("eth0:10.0.0.2",), "cumem": False}),
        ("nvswitch_b200", {"channels": 32, "nvls": True, "connections": ()}),
        ("nvls_tree_rdma_plugin", {"channels": 16, "nvls": True, "cumem": True}),
        ("pcie_shm", {"trees": True, "cumem": None, "nvls": None}),
        ("ib_gdrdma", {"channels": 8, "nvls": False, "cumem": True}),
        (
            "socket_ib_disabled",
            {
                "version": "2.18.1+cuda12.1",
                "network": "Socket",
                "interfaces": ("ibs85f0:10.0.1.14", "ib0:10.0.1.15"),
                "nvls": False,
                "trees": True,
                "plugin": None,
            },
        ),
        ("roce_gin", {"network": "IB", "interfaces": ("ens16f1:10.0.0.11", "ens16f1:10.0.0.13"), "version": None}),
        ("version_2_27", {"version": "2.27.5+cuda12.9", "interfaces": ("eth0:10.0.0.159",), "warnings": ()}),
        (
            "warn_ib_completion",
            {"version": "2.21.5+cuda12.4", "network": "IBext_v8", "plugin": "IBext_v8"}
            | {"interfaces": ("ib0.0065:10.0.32.3",)},
        ),
    ],
)  # fmt: skip
def test_what_a_published_log_says(name: str, facts: dict[str, Any]) -> None:
    found = logged(name)
    assert {field: getattr(found, field) for field in facts} == facts


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nvlink_direct", {(1, 3): "P2P/direct pointer", (5, 7): "P2P/direct pointer"}),
        ("nvlink_v100_ipc", {(0, 1): "P2P/IPC/read", (1, 2): "P2P/IPC/read", (2, 0): "P2P/IPC/read"}),
        (
            "nvls_tree_rdma_plugin",
            {(33, 41): "NET/IBext_v8/4", (34, 35): "P2P/CUMEM", (36, 37): "P2P/CUMEM", (51, 35): "NET/IBext_v8/5"},
        ),
        (
            "pcie_shm",
            dict.fromkeys(((0, 1), (1, 2), (2, 3), (7, 0)), "SHM/direct/direct"),
        ),
        (
            "ib_gdrdma",
            {
                (0, 2): "NET/IB/3/GDRDMA",
                (1, 0): "P2P/CUMEM",
                (1, 3): "NET/IB/2/GDRDMA",
                (3, 1): "NET/IB/2/GDRDMA",
                (3, 2): "P2P/CUMEM",
            },
        ),
        (
            "socket_between_machines",
            {(8, 15): "P2P/IPC/read", (10, 9): "P2P/IPC/read", (15, 6): "NET/Socket/3", (15, 14): "P2P/IPC/read"},
        ),
    ],
)
def test_transport_of_every_pair(name: str, told: dict[tuple[int, int], str]) -> None:
    assert ways(logged(name)) == told


def test_warnings_with_their_place_each_once() -> None:
    assert [line.split()[0] for line in logged("warn_shm_full").warnings] == [
        "misc/shmutils.cc:88",
        "misc/shmutils.cc:132",
        "proxy.cc:1326",
    ]
    (only,) = logged("warn_ib_completion").warnings
    assert "Got completion from peer" in only


def test_the_launchers_prefix_does_not_matter() -> None:
    found = logged("nvswitch_h100_prefixed")
    assert found.nvls is None and found.connections == ()  # available, and not yet known to be used
    text = (Path(__file__).parent / "nccl_logs" / "ib_gdrdma.txt").read_text("utf-8")
    prefixed = "\n".join(f"[1,0]<stdout>:{line}" for line in text.splitlines())
    assert ways(nccl_log.parse(prefixed) or NcclLog()) == ways(logged("ib_gdrdma"))


INIT = "node1:{pid}:9 [{dev}] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks {n} cudaDev {dev} nvmlDev {dev} "
INIT += "busId 1a000 commId 0x2 - Init START\n"
WAY = "node1:{pid}:9 [{dev}] NCCL INFO Channel 00/0 : {a}[{da}] -> {b}[{db}] via SHM/direct/direct\n"


def test_ranks_of_a_smaller_communicator_are_those_of_the_whole_world() -> None:
    """The group of ranks 2 and 3 calls them 0 and 1; the devices tell who they are."""
    text = "".join(INIT.format(pid=10 + n, dev=n, rank=n, n=4) for n in range(4))
    text += "".join(INIT.format(pid=10 + n, dev=n, rank=n - 2, n=2) for n in (2, 3))
    text += WAY.format(pid=12, dev=2, a=0, da=2, b=1, db=3)
    assert ways(nccl_log.parse(text) or NcclLog()) == {(2, 3): "SHM/direct/direct"}


def test_a_way_between_machines_in_a_smaller_communicator_is_left_out() -> None:
    """Which machine the other end is on is not said."""
    text = "".join(INIT.format(pid=10 + n, dev=n, rank=n, n=4) for n in range(2))
    text += INIT.format(pid=11, dev=1, rank=0, n=2)
    text += "node1:11:9 [1] NCCL INFO Channel 00/0 : 0[1] -> 1[1] [send] via NET/Socket/0\n"
    assert (nccl_log.parse(text) or NcclLog()).connections == ()


def test_no_log() -> None:
    assert nccl_log.parse("") is None
    assert nccl_log.parse("INFO: training\nloss 0.3\n") is None


def test_all_files_of_a_folder_are_one_log(tmp_path: Path) -> None:
    assert nccl_log.read(tmp_path) is None
    (tmp_path / "nccl.node1.1.txt").write_bytes(LOGS[0].read_bytes())
    (tmp_path / "nccl.node1.2.txt").write_text("NCCL version 2.27.5+cuda12.9\n" + "\0\x1b[31m")
    (tmp_path / "launcher.log").write_text("NCCL version 1.0\n")
    found = nccl_log.read(tmp_path)
    assert found is not None and found.version == "2.27.5+cuda12.9"


@pytest.mark.parametrize("path", LOGS, ids=[path.stem for path in LOGS])
def test_the_source_of_a_log_stands_in_its_first_line(path: Path) -> None:
    assert path.read_text("utf-8").startswith("# https://github.com/")
    assert nccl_log.parse(path.read_text("utf-8")) is not None


def test_a_spoilt_log_is_read_as_far_as_it_goes() -> None:
    chance = random.Random(5)
    for _ in range(500):
        data = list(chance.choice(LOGS).read_text("utf-8"))
        for _ in range(chance.randrange(1, 40)):
            place = chance.randrange(len(data))
            spoil = chance.choice(("cut", "double", "put", "drop"))
            if spoil == "cut":
                del data[place : place + chance.randrange(200)]
                data.append("\n")
            elif spoil == "double":
                data[place:place] = data[place : place + 80]
            elif spoil == "put":
                data[place] = chance.choice(string.printable + "\0\x1b\u2028é")
            else:
                del data[place]
            if not data:
                data.append("\n")
        nccl_log.parse("".join(data))


def test_numbers_without_end_do_not_matter() -> None:
    nines = "9" * 5000
    for line in (
        f"node1:1:2 [0] NCCL INFO Channel 00/0 : {nines}[0] -> 1[1] via P2P/CUMEM",
        f"node1:1:2 [0] NCCL INFO {nines} coll channels, {nines} nvls channels",
        f"node1:1:2 [0] NCCL INFO comm 0x1 rank {nines} nranks {nines} cudaDev 0 nvmlDev 0 busId 1a000 - Init START",
    ):
        nccl_log.parse(line)


def orders(**changes: Any) -> Orders:
    return Orders(**{"folder": "/tmp/a run%", "world": 2, **changes})


def test_the_log_is_asked_for_where_nccl_takes_part() -> None:
    asked = nccl_log.environment(orders(), {})
    assert asked["NCCL_DEBUG"] == "INFO" and asked["NCCL_DEBUG_FILE"] == "/tmp/a run%%/nccl.%h.%p.txt"
    assert "INIT" in asked["NCCL_DEBUG_SUBSYS"].split(",")
    assert nccl_log.environment(orders(cpu=True), {}) == {}
    assert nccl_log.environment(orders(world=1), {}) == {}


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_FILE"])
def test_who_asks_for_a_log_himself_keeps_it(name: str) -> None:
    assert nccl_log.environment(orders(), {name: "x"}) == {}
