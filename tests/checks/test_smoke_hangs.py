"""checks/smoke: hangs, and rank_exited of processes"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import Rank, Ranks, Step
from tests.checks.facts import Case, fails, problem, rank, ranks, skips, table, waiting, well

GONE = waiting(1, process_state="gone")
RESET = rank(
    0, steps=(Step("start", True), Step("train", False, "RuntimeError: Connection reset by peer")),
    error="RuntimeError: Connection reset by peer", failed_at=100.0,
)  # fmt: skip
TORCH = '  File "/v/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
STAGE = '  File "/v/mgpu/smoke/ranks/group.py", line 7 in _join\n'


def dumped(*frames: str) -> str:
    return "Thread 0x7f (most recent call first):\n" + "".join(frames)


INSIDE = dumped(TORCH, STAGE)
ELSEWHERE = dumped('  File "/v/plugin.py", line 3 in connect\n', TORCH, STAGE)
THROUGH_A_PLUGIN = dumped(TORCH, '  File "/v/plugin.py", line 3 in connect\n', STAGE)
ANOTHER_CALL = dumped('  File "/v/torch/distributed/distributed_c10d.py", line 99 in broadcast\n', STAGE)


def at_stacks(*stacks: str, **changes: Any) -> Ranks:
    """Ranks that wait at one word, each with its stack."""
    members = [waiting(number, stack=stack, stack_from="asked") for number, stack in enumerate(stacks)]
    return ranks(*members, **{"ended": "stalled", **changes})


SUM = "gloo all_reduce of 8 x Float"
IN_SUM: dict[str, Any] = {"collective": SUM, "collective_seq": 7, "collective_open": True}


def past_it(**changes: Any) -> Ranks:
    """Rank 0 waits in collective 7, rank 1 is further in the code."""
    ahead = waiting(1, last_word="step 9 of 20", last_word_order=40, **changes)
    return ranks(waiting(0, **IN_SUM), ahead, ended="stalled")


CASES = (
    # rank_exited: no code, a code from the launcher, or what the rank reported
    fails("rank_exited", 'rank 1 (cuda:1, pid 5001) exited by itself in stage "train" at "step 7 of 20"',
        "launcher.log", ranks=ranks(RESET, GONE, ended="died", launcher_exit=1)),
    fails("rank_exited", 'rank 1 (cuda:1, pid 5001) exited with code 3 in stage "train"', "rank1.jsonl",
        ranks=ranks(RESET, replace(GONE, exit_code=3), ended="died", launcher_exit=1)),
    fails("rank_exited", 'rank 1 (cuda:1, pid 5001) exited with code 0 in stage "train"', "launcher.log",
        ranks=ranks(RESET, rank(1, steps=(Step("start", True), Step("collectives", True), Step("train", False)),
            kind="exited", evidence={"code": 0}, error="sys.exit(0) was called", failed_at=99.0), ended="died")),
    well("rank_exited", "no rank exited"),
    # it was stopped by the launcher, killed, or failed after an error of another one that is known
    well("rank_exited", "no rank exited", ranks=ranks(RESET, replace(GONE, terminated=True), ended="died")),
    well("rank_exited", "no rank exited", ranks=ranks(RESET, replace(GONE, exit_code=-9), ended="died")),
    well("rank_exited", "no rank exited",
        ranks=ranks(replace(RESET, kind="own_gradients_wrong"), GONE, ended="died")),
    well("rank_exited", "no rank exited", ranks=ranks(waiting(0), GONE, ended="stalled")),
    well("rank_exited", "no rank exited", ranks=ranks(RESET, GONE, ended="died", launcher_exit=-9)),
    well("rank_exited", "no rank exited",
        ranks=ranks(RESET, waiting(1, process_state="gone", last_word=None), ended="died")),
    skips("rank_ended_early", "rank 1 exited by itself", ranks=ranks(rank(0), GONE, ended="died")),
    # ranks_hang: of ranks at one place, the one whose stack differs
    fails("ranks_hang",
        'rank 1 (cuda:1, pid 5001) is elsewhere than the others in "step 7 of 20" in stage "train" (10 s',
        "rank*.stack", ranks=at_stacks(INSIDE, ELSEWHERE)),
    fails("ranks_hang", "rank 1 (cuda:1, pid 5001) is elsewhere than the others", "rank*.stack",
        ranks=at_stacks(INSIDE, THROUGH_A_PLUGIN)),
    fails("ranks_hang", "rank 2 (cuda:2, pid 5002) is elsewhere than the others", "rank*.stack",
        ranks=at_stacks(INSIDE, INSIDE, ANOTHER_CALL, INSIDE)),
    fails("ranks_hang", "ranks 0 and 2 are elsewhere than the others", "rank*.stack",
        ranks=at_stacks(ELSEWHERE, INSIDE, ELSEWHERE)),
    # of two calls of torch nobody can say which is right; a rank without a stack is no reason; time may be too short
    fails("ranks_hang", 'all ranks wait at "step 7 of 20"', "rank*.stack", ranks=at_stacks(INSIDE, ANOTHER_CALL)),
    fails("ranks_hang", 'all ranks wait at "step 7 of 20"', "rank*.stack", ranks=at_stacks(INSIDE, INSIDE)),
    fails("ranks_hang", 'all ranks wait at "step 7 of 20"', "rank*.stack", ranks=at_stacks(ELSEWHERE, "")),
    fails("ranks_hang", "all ranks wait", "rank*.stack", ranks=at_stacks(INSIDE, ELSEWHERE, ended="timed_out")),
    # a slow machine: the time ran out between two steps, and no rank is at fault
    fails("ranks_hang", 'the time limit was reached at "step 7 of 20" in stage "train", while the ranks still made',
        "--timeout SEC", ranks=replace(past_it(collective_seq=6), ended="timed_out", quiet_s=0.4)),
    fails("ranks_hang", "rank 1 (cuda:1, pid 5001) did not take part", "rank*.stack",
        ranks=replace(past_it(collective_seq=6), ended="timed_out", quiet_s=9.0)),
    # a rank that is past a collective without having started it
    fails("ranks_hang", f'rank 1 (cuda:1, pid 5001) did not take part in {SUM} in stage "train"', "rank*.stack",
        ranks=past_it(collective_seq=6)),
    fails("ranks_hang", "rank 1 (cuda:1, pid 5001) did not take part", "rank*.stack",
        ranks=past_it(collective="gloo broadcast", collective_seq=7, collective_open=True)),
    fails("ranks_hang", "rank 0 (cuda:0, pid 5000) is behind", "rank*.stack",
        ranks=past_it(collective="gloo broadcast", collective_seq=8, collective_open=True)),
    fails("ranks_hang", "rank 0 (cuda:0, pid 5000) is behind", "rank*.stack", ranks=past_it()),
    # a pair: what the one waits for, the other did not send, or it was lost
    fails("ranks_hang", 'rank 0 waits at "pair 0-1: send 64 KiB" in stage "pairs" for data from a rank that is past it',
        "rank*.stack", ranks=ranks(
            waiting(0, steps=(Step("pairs", None),), last_word="pair 0-1: send 64 KiB", stack=INSIDE),
            waiting(1, steps=(Step("pairs", None),), last_word_order=30), ended="stalled", rungs=("pairs",))),
    # one that is through is ahead of all, whatever its recorder counts
    fails("ranks_hang", "rank 1 (cuda:1, pid 5001) is behind", "rank*.stack",
        ranks=ranks(rank(0), waiting(1, collective_seq=9), ended="stalled")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_rank_that_left_explains_the_others() -> None:
    """Their connections broke because of it: `rank_failed` is a consequence."""
    found = problem("rank_exited", ranks=ranks(RESET, GONE, ended="died"))
    assert found.evidence["rank"] == 1 and found.evidence["rung"] == "train"
    assert "errors of other ranks are consequences" in found.cause


def test_two_stacks_that_differ_are_both_named() -> None:
    found = problem("ranks_hang", ranks=at_stacks(INSIDE, ANOTHER_CALL))
    assert "in all_reduce; rank 1 at" in found.cause and "do not show which of them is the cause" in found.cause
    assert found.evidence["rank"] is None


def test_a_message_of_sys_exit_is_told() -> None:
    said = rank(1, steps=(Step("start", True), Step("collectives", False)), kind="exited", evidence={"code": 1},
                error="sys.exit was called: no data set", failed_at=9.0)  # fmt: skip
    found = problem("rank_exited", ranks=ranks(RESET, said, ended="died"))
    assert "sys.exit was called: no data set." in found.cause


def test_of_a_crash_the_output_comes_first() -> None:
    """The kernel's log explains SIGKILL only."""
    order = {
        code: problem("rank_killed", ranks=ranks(rank(0), waiting(1, exit_code=code), ended="died")).fixes[0].commands
        for code in (-9, -11)
    }
    assert "dmesg" in order[-9][0] and "launcher.log" in order[-11][0]


def _named(found: Ranks) -> int | None:
    number = problem("ranks_hang", ranks=found).evidence["rank"]
    return number if isinstance(number, int) else None


def test_the_innocent_is_not_named() -> None:
    member: Rank = waiting(0, **IN_SUM)
    assert _named(past_it(collective_seq=6)) == 1
    assert _named(ranks(member, replace(member, rank=1), ended="stalled")) is None
