"""checks/log/stood_still.py, still_working.py: late timeouts, long steps and bars as old as a timeout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import LastStep, Pause, SignatureMatch, StalledCollective
from tests.checks.facts import Case, fails, log, table, well

WAIT = SignatureMatch("log_collective_timed_out", "[Rank 1] Watchdog caught ...", "run.log", 50, 1, ranks=(1,))
LOST = SignatureMatch("log_peer_gone", "Connection reset by peer", "run.log", 50)
DIED = SignatureMatch("log_ray_worker_died", "A worker died", "run.log", 49)
STUCK = SignatureMatch("log_watchdog_stuck", "watchdog got stuck for 480 seconds", "run.log", 40, ranks=(5, 7))
STOP = SignatureMatch("log_interrupted", "KeyboardInterrupt", "run.log", 50)
LIMIT = SignatureMatch("log_slurm_time_up", "CANCELLED DUE TO TIME LIMIT", "job.log", 9)
PAUSE = Pause("step 5", 40, 7300.0, 123.0)


def stalls(*waited: float, sequence: int = 80) -> tuple[StalledCollective, ...]:
    return tuple(
        StalledCollective(rank, sequence, "ALLREDUCE", 600.0, waited_s=seconds) for rank, seconds in enumerate(waited)
    )


def bar(text: str, at: float, *seen: SignatureMatch, sequence: int = 80) -> Any:
    step = LastStep(f"87%|###  | {at:.0f}/500 [{text}]", "run.log", 40, at, 500)
    return log(seen=seen, stalled=stalls(600.1, sequence=sequence), last_step=step)


def bar_before_stop(text: str, at: float, of: float, *seen: SignatureMatch) -> Any:
    return log(seen=seen, stopped_at=LastStep(text, "run.log", 40, at, of))


MAP = "Map:  12%|#    | 1200/10000 [05:00<36:40, 4.00 examples/s]"
CASES = (
    fails("log_interrupted_early", "1,200 of 10,000 examples after 05:00", "save_to_disk",
        log=bar_before_stop(MAP, 1200, 10000, STOP)),
    fails("log_interrupted_early", "it waited for its first step (0 of 90)", "py-spy",
        log=bar_before_stop("  0%|    | 0/90 [00:00<?, ?it/s]", 0, 90, STOP)),
    well("log_interrupted_early", "no stop", log=bar_before_stop(MAP, 1200, 10000)),
    well("log_interrupted_early", "no stop", log=bar_before_stop(MAP, 1200, 10000, replace(STOP, survived=True))),
    well("log_interrupted_early", "no stop", log=log(seen=(STOP,))),
    fails("log_processes_stood_still", "for about 1 h", "dmesg", log=log(seen=(WAIT,), stalled=stalls(4200, 4210))),
    well("log_processes_stood_still", "reported late", log=log(seen=(WAIT,), stalled=stalls(4200))),
    well("log_processes_stood_still", "reported late", log=log(seen=(WAIT,), stalled=stalls(4200, 9000))),
    well("log_processes_stood_still", "reported late", log=log(seen=(WAIT,), stalled=stalls(600.1, 601))),
    fails("log_step_took_long", "a step of 2 h 1 min, where 2 min 3 s were usual", "dmesg",
        log=log(seen=(LOST,), pause=PAUSE)),
    well("log_step_took_long", "no unusually long step", log=log(seen=(LOST,))),
    well("log_step_took_long", "no unusually long step", log=log(seen=(replace(LOST, survived=True),), pause=PAUSE)),
    fails("log_silent_until_limit", "nothing for 2 h 1 min", "mgpu launch", log=log(seen=(LIMIT,), silence=PAUSE)),
    fails("log_silent_until_limit", "or its output was still in a buffer", "PYTHONUNBUFFERED=1",
        log=log(seen=(LIMIT,), silence=replace(PAUSE, usual_s=0.2))),
    well("log_silent_until_limit", "no silence", log=log(seen=(LIMIT,))),
    well("log_silent_until_limit", "no silence", log=log(silence=PAUSE)),
    fails("log_rank_still_working", "at 300 of 500", "ddp_timeout", log=bar("10:02<04:26, 2.00s/it", 300, WAIT)),
    fails("log_rank_still_working", "at 300 of 500", "ddp_timeout", log=bar("10:02<04:26, 1.90s/it", 300, WAIT)),
    well("log_rank_still_working", "no bar", log=bar("03:02<04:26, 2.00s/it", 300, WAIT)),
    well("log_rank_still_working", "no bar", log=bar("10:02<00:00, 1.20s/it", 500, WAIT)),
    well("log_rank_still_working", "did not advance", log=bar("10:02<04:26, 2.00s/it", 30, WAIT)),
    fails("log_rank_still_working", "at 300 of 500", "cache", log=bar("10:02<04:26, 0.50it/s", 300, WAIT)),
    fails("log_worker_ended_by_timeout", "(ALLREDUCE, number 1) never completed", "smoke-test",
        log=bar("10:02<?, ?it/s", 0, WAIT, DIED, sequence=1)),
    well("log_worker_ended_by_timeout", "no Ray worker", log=bar("04:02<?, ?it/s", 0, WAIT, DIED)),
    well("log_worker_ended_by_timeout", "no Ray worker", log=bar("10:02<?, ?it/s", 0, WAIT)),
    fails("log_timeout_before_silence", "other watchdogs got stuck after that", "xid",
        log=log(seen=(STUCK, WAIT), stalled=stalls(600.1), silent_after_s=5.5)),
    well("log_timeout_before_silence", "no watchdogs", log=log(seen=(STUCK, WAIT), silent_after_s=-30.0)),
    well("log_timeout_before_silence", "no watchdogs", log=log(seen=(STUCK, WAIT))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
