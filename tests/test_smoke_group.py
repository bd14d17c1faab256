"""Does the rung "group" name who did not come, and why, before the process group hangs?

Real ranks over gloo, forked from one interpreter; and the small parts by themselves, on sockets of this machine.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.config import facts
from mgpu.errors import MgpuError
from mgpu.smoke import machines
from mgpu.smoke.ranks import addresses
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Config, Ranks, Snapshot
from tests.conftest import Run, ask_all
from tests.rungs import Case, climb
from tests.scripts import TWO_RANKS, write_config
from tests.verdicts import judged

RUNGS = ("start", "device", "group", "shutdown")
PATCHES = "tests.scripts.spoils_group"
SHORT = {"stall_s": 1.0, "start_limit_s": 4.0}


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    def case(name: str, **orders: Any) -> Case:
        return Case(name, 2, RUNGS, patch=f"{PATCHES}:{name}", limit_s=30, orders={**SHORT, **orders})

    cases = [
        *(Case(f"{world} ranks", world, RUNGS) for world in (1, 2, 4)),
        *map(case, ("never_comes", "skips_the_barrier", "port_taken", "silent", "unknown_name", "no_interface")),
        Case("other layout", 2, RUNGS, orders={"nodes": 2}),
    ]
    return climb(tmp_path_factory.mktemp("group"), cases)


def failed(ranks: Ranks) -> dict[str, str]:
    """The smoke test's checks that fail, with their titles."""
    outcomes = judged(Snapshot(ranks=ranks))
    return {o.check.id: o.problem.title for o in outcomes if o.status == "fail" and o.problem and not o.because_of}


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_that_all_come(climbed: dict[str, Ranks], world: int) -> None:
    ranks = climbed[f"{world} ranks"]
    assert not failed(ranks)
    for rank in ranks.ranks:
        assert [peer.rank for peer in rank.peers] == (list(range(world)) if world > 1 else [])
        assert {peer.host for peer in rank.peers} <= {rank.host} and all(peer.address for peer in rank.peers)


@pytest.mark.parametrize(
    ("case", "kind", "check", "words"),
    [
        ("never_comes", "ranks_missing", "ranks_never_came", 'rank 1 on {host} did not reach stage "group"'),
        ("skips_the_barrier", "ranks_missing", "ranks_never_came", 'rank 1 on {host} did not reach stage "group"'),
        ("port_taken", "port_taken", "meeting_port_taken", "cannot listen"),
        ("silent", "master_unreachable", "meeting_point_unreachable", ": connection refused"),
        ("unknown_name", "master_unreachable", "meeting_point_unreachable", "its name cannot be resolved"),
        ("no_interface", "interface_missing", "rank_interface_missing", "GLOO_SOCKET_IFNAME=nope0"),
        ("other layout", "wrong_layout", "ranks_laid_out_otherwise", "ranks on this machine is 2"),
    ],
)
def test_ranks_that_do_not_meet(climbed: dict[str, Ranks], case: str, kind: str, check: str, words: str) -> None:
    ranks = climbed[case]
    kinds = {rank.kind for rank in ranks.ranks if rank.kind}
    assert kind in kinds
    (outcome,) = ask_all(check, ranks=ranks)
    assert outcome.problem is not None
    assert words.format(host=ranks.ranks[0].host) in outcome.problem.title


# The parts


@pytest.mark.parametrize(
    ("name", "wanted", "takes"),
    [
        ("eth0", "eth", True), ("eth0", "=eth", False), ("eth0", "=eth0", True), ("eth0", "^docker,lo", True),
        ("lo", "^docker,lo", False), ("eth10", "^=eth1", True), ("ib0", "eth,ib", True), ("wlan0", "eth,ib", False),
    ],
)  # fmt: skip
def test_the_interfaces_that_nccl_takes(name: str, wanted: str, takes: bool) -> None:
    assert addresses._nccl_takes(name, wanted) is takes


def test_variables_that_name_no_interface() -> None:
    assert addresses.missing_interface({"GLOO_SOCKET_IFNAME": "lo"}, on_gpu=False) is None
    assert addresses.missing_interface({"GLOO_SOCKET_IFNAME": "lo,nope0"}, on_gpu=False) == (
        "GLOO_SOCKET_IFNAME",
        "nope0",
    )
    nccl = {"NCCL_SOCKET_IFNAME": "nope"}
    assert addresses.missing_interface(nccl, on_gpu=False) is None  # nobody reads it there
    assert addresses.missing_interface(nccl, on_gpu=True) == ("NCCL_SOCKET_IFNAME", "nope")
    assert addresses.missing_interface({"NCCL_SOCKET_IFNAME": "^nope"}, on_gpu=True) is None


def test_the_address_that_is_advertised() -> None:
    named = addresses.advertised_address({"GLOO_SOCKET_IFNAME": "lo"}, on_gpu=False)
    assert (named.address, named.origin) == ("127.0.0.1", "GLOO_SOCKET_IFNAME")
    assert addresses.advertised_address({"NCCL_SOCKET_IFNAME": "=lo"}, on_gpu=True).address == "127.0.0.1"
    assert addresses.advertised_address({}, on_gpu=False).origin in ("hostname", "unresolvable")


@pytest.mark.parametrize(
    ("mine", "theirs", "connects"),
    [("10.0.0.2", "10.0.0.1", True), ("10.0.0.1", "10.0.0.2", False), ("127.0.1.1", "127.0.1.1", True),
     ("9.0.0.1", "10.0.0.1", False), ("::2", "::1", True), ("::1", "10.0.0.1", True)],
)  # fmt: skip
def test_the_higher_address_connects(mine: str, theirs: str, connects: bool) -> None:
    assert addresses.connects(mine, theirs) is connects


def test_reaching_a_listener_a_closed_port_and_a_stranger() -> None:
    listener = addresses.Listener("127.0.0.1", "it is me\n")
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        quiet, gone = silent.getsockname()[1], closed.getsockname()[1]
        closed.close()
        told = addresses.reach(
            {
                "well": ("127.0.0.1", listener.port, "it is me\n"),
                "other": ("127.0.0.1", listener.port, "somebody\n"),
                "closed": ("127.0.0.1", gone, "it is me\n"),
                "silent": ("127.0.0.1", quiet, "it is me\n"),
            },
            0.3,
        )
    listener.close()
    assert told == {
        "well": None, "other": "answered by another program", "closed": "connection refused", "silent": "timed out",
    }  # fmt: skip
    assert addresses.wait_for_listener("127.0.0.1", listener.port, 0.05) == "connection refused"


# Which machine is this?


def several(folder: Path, machines: int = 2) -> Config:
    text = TWO_RANKS.replace("num_machines: 1", f"num_machines: {machines}\nmain_process_ip: 10.0.0.1")
    return facts(write_config(folder, text), ask_loader=False)


def test_the_number_of_this_machine(tmp_path: Path) -> None:
    two, one = several(tmp_path), facts(write_config(tmp_path, name="one.yaml"), ask_loader=False)
    assert (
        machines.node_number(1, two, ""),
        machines.node_number(0, one, ""),
        machines.node_number(None, one, ""),
    ) == (1, 0, 0)
    for node, config in ((None, two), (2, two), (1, one)):
        with pytest.raises(MgpuError) as raised:
            machines.node_number(node, config, "")
        assert raised.value.exit_code == errors.USAGE
    assert "mgpu smoke-test -c a.yaml --node-rank 1   # on node 1" in machines.commands(two, "a.yaml")
    assert len(machines.commands(several(tmp_path, 32), "")) == 4


def test_a_step_of_slurm_says_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the batch script itself SLURM_NODEID is there, and 0, whatever starts there."""
    monkeypatch.setenv("SLURM_NODEID", "1")
    with pytest.raises(MgpuError):
        machines.node_number(None, several(tmp_path), "")
    monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
    assert machines.node_number(None, several(tmp_path), "") == 1
    assert machines.node_number(0, several(tmp_path), "") == 0
    with pytest.raises(MgpuError):
        machines.node_number(None, several(tmp_path, 3), "")


def test_without_a_number_every_machine_s_command_is_printed(mgpu: Run, tmp_path: Path) -> None:
    several(tmp_path)
    done = mgpu("smoke-test")
    assert done.returncode == errors.USAGE
    assert "uses 2 nodes" in done.stderr and "--node-rank 1   # on node 1" in done.stderr


def test_the_launcher_gives_up_before_the_ranks_do(tmp_path: Path) -> None:
    assert machines.launcher_limit_s(Orders(str(tmp_path), 2)) is None
    assert machines.launcher_limit_s(Orders(str(tmp_path), 2, nodes=2, start_limit_s=90)) == 85
    assert machines.launcher_limit_s(Orders(str(tmp_path), 2, nodes=2, start_limit_s=2)) == 3
