"""checks/log/stalled.py: where the ranks waited, and what the first exchange used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Circumstance, StalledCollective
from tests.checks.facts import Case, fails, log, table, well


def stalled(*at: int | None, operation: str = "ALLREDUCE") -> Any:
    """Watchdogs of these ranks' places; None: that rank's is silent."""
    return log(
        ranks=tuple(range(len(at))),
        stalled=tuple(
            StalledCollective(rank, one, operation, 600.0, one - 1) for rank, one in enumerate(at) if one is not None
        ),
    )


def shows(*names: str) -> tuple[Circumstance, ...]:
    return tuple(Circumstance(name, "x", "run.log", 1, 1) for name in names)


def at(*positions: tuple[int, int, str, int]) -> Any:
    """Watchdogs of these ranks: rank, sequence number, operation, elements."""
    return log(
        ranks=(), stalled=tuple(StalledCollective(rank, seq, op, elements=size) for rank, seq, op, size in positions)
    )


CASES = (
    fails("log_ranks_out_of_step", "rank 2 in collective 81 (ALLREDUCE), rank 0 in collective 80", "if rank == 0",
        log=stalled(80, 80, 81, 80)),
    well("log_ranks_out_of_step", "about the same collective", log=stalled(80, 80)),
    well("log_ranks_out_of_step", "no watchdog reports"),
    fails("log_rank_never_came", "rank 2 never joined collective 80 (ALLREDUCE)", "the end of that rank's log",
        log=stalled(80, 80, None, 80)),
    well("log_rank_never_came", "no rank is missing", log=stalled(80, 80)),
    fails("log_exchange_never_worked", "the first exchange never worked: all 2 ranks", "mgpu smoke-test",
        log=stalled(1, 1)),
    well("log_exchange_never_worked", "the first collectives completed", log=stalled(80, 80)),
    fails("log_exchange_stalled", "all 4 ranks waited in collective 80 (ALLREDUCE)", "xid",
        log=stalled(80, 80, 80, 80)),
    well("log_exchange_stalled", "not all ranks", log=stalled(80, 80, None, 80)),
    well("log_exchange_stalled", "not all ranks", log=stalled(1, 1)),
    fails("log_ranks_out_of_step", "rank 2 in collective 80 (BROADCAST), rank 0 in collective 80 (ALLREDUCE)",
        "if rank == 0", log=at((0, 80, "ALLREDUCE", 9), (1, 80, "ALLREDUCE", 9), (2, 80, "BROADCAST", 1))),
    fails("log_ranks_out_of_step", "rank 1 in collective 80 (ALLREDUCE, 4 elements)", "DETAIL",
        log=at((0, 80, "ALLREDUCE", 9), (1, 80, "ALLREDUCE", 4))),
    well("log_ranks_out_of_step", "same collective", log=at((0, 80, "ALLTOALL", 9), (1, 80, "ALLTOALL", 4))),
    fails("log_rank_never_came", "rank 0 never joined collective 80",  # the log shows nothing of rank 0
        "the end of that rank's log", log=at((1, 80, "ALLREDUCE", 9), (2, 80, "ALLREDUCE", 9))),
    well("log_rank_never_came", "no rank is missing", log=at((1, 1, "ALLREDUCE", 9), (2, 1, "ALLREDUCE", 9))),
    well("log_exchange_stalled", "not all ranks", log=at((1, 80, "ALLREDUCE", 9), (2, 80, "ALLREDUCE", 9))),
    fails("log_exchange_stalled", "all 4 ranks waited", "if rank == 0",
        log=at(*((rank, 80, "ALLREDUCE", 1) for rank in range(4)))),
    fails("log_exchange_never_worked", "direct access between the GPUs (P2P) transfers no data", "NCCL_P2P_DISABLE=1",
        log=replace(stalled(1, 1), shows=shows("peer_channels"))),
    fails("log_exchange_never_worked", "connections between the nodes transfer no data", "security group",
        log=replace(stalled(1, 1), shows=shows("peer_channels", "network_channels"))),
    fails("log_exchange_never_worked", "GPUs of one node exchange over the network cards", "env -u NCCL_P2P_LEVEL",
        log=replace(stalled(1, 1), shows=shows("network_channels", "network_within_node"))),
    fails("log_exchange_never_worked", "NCCL uses a bridge of Docker", "NCCL_SOCKET_IFNAME",
        log=replace(stalled(1, 1), shows=shows("bridge_interface"))),
    fails("log_exchange_never_worked", "all 2 ranks waited", "acsctl", log=stalled(1, 1)),
    fails("log_exchange_never_worked", "all 2 ranks waited", "NCCL_SOCKET_IFNAME",
        log=replace(stalled(1, 1), shows=shows("several_nodes"))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
