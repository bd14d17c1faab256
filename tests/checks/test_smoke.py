"""checks/smoke.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Rank, Step
from tests.checks.facts import Case, fails, problem, rank, ranks, skips, table, uuid, waiting, warns, well

ALONE = {"world_size": 1, "accelerate_world_size": 1}
NEVER = rank(1, pid=None, device=None, steps=(), last_word=None, last_word_order=0, finished=False, world_size=None)
KILLED = waiting(1, process_state="gone", silent_s=3.0)
FAILED = rank(
    1,
    steps=(Step("start", True), Step("collective", False, "RuntimeError: NCCL error")),
    last_word="all_reduce",
    last_word_order=12,
    error="RuntimeError: NCCL error\nlong story",
    failed_at=100.0,
    finished=True,
)
STACK = 'Thread 0x7f (most recent call first):\n  File "train.py", line 7 in step\n'
CASES = (
    # ranks_not_of_one_world
    fails("ranks_not_of_one_world", "2 ranks wanted; rank 0 (cuda:0, pid 5000) sees a world of 1", "mgpu doctor",
        ranks=ranks(rank(0, **ALONE), rank(1, **ALONE))),
    fails("ranks_not_of_one_world", "rank 1 (cuda:1, pid 5001) sees a world of 1", "mgpu doctor",
        ranks=ranks(rank(0), rank(1, accelerate_world_size=1))),
    fails("ranks_not_of_one_world", "4 ranks wanted; rank 0 (cuda:0, pid 5000) sees a world of 2", "mgpu doctor",
        ranks=ranks(expected=4)),
    fails("ranks_not_of_one_world", "sees a world of 1", "mgpu doctor",
        ranks=ranks(rank(0, world_size=1), rank(1))),
    well("ranks_not_of_one_world", "2 of 2 ranks see a world of 2"),
    well("ranks_not_of_one_world", "1 of 2 ranks", ranks=ranks(rank(0, accelerate_world_size=None), NEVER)),
    skips("ranks_not_of_one_world", "no rank came as far", ranks=ranks(NEVER)),
    # rank_frozen: silent for longer than 1 s when the run was ended, or stopped
    fails("rank_frozen", "rank 1 (cuda:1, pid 5001) is stopped", "ps -o pid,stat",
        ranks=ranks(waiting(0), waiting(1, process_state="stopped", silent_s=9.8), ended="stalled")),
    fails("rank_frozen", "is traced", "debugger",
        ranks=ranks(rank(0), waiting(1, process_state="traced"), ended="died")),
    fails("rank_frozen", "rank 1 (cuda:1, pid 5001) does not run (no heartbeat for", "ps -o",
        ranks=ranks(waiting(0), waiting(1, silent_s=1.01), ended="stalled")),
    fails("rank_frozen", "does not run", "ps -o",
        ranks=ranks(waiting(0), waiting(1, silent_s=9.0, process_state=None), ended="timed_out")),
    fails("rank_frozen", "rank 1 (cuda:1, pid 5001) is stopped", "cmd -p 5001",
        ranks=ranks(waiting(0), waiting(1, process_state="stopped"), ended="stalled")),
    well("rank_frozen", "2 ranks ran all the time"),
    well("rank_frozen", "ran all the time",
        ranks=ranks(waiting(0, silent_s=1.0), waiting(1, silent_s=None), ended="stalled")),
    well("rank_frozen", "ran all the time", ranks=ranks(rank(0), waiting(1, silent_s=9.0), ended="died")),
    well("rank_frozen", "ran all the time", ranks=ranks(rank(0), rank(1, process_state="stopped"))),
    # rank_killed
    fails("rank_killed", "rank 1 (cuda:1, pid 5001) was killed by SIGKILL", "killed process",
        ranks=ranks(rank(0), waiting(1, exit_code=-9), ended="died")),
    fails("rank_killed", "was killed by SIGSEGV", "launcher.log",
        ranks=ranks(rank(0), waiting(1, exit_code=-11), ended="died")),
    fails("rank_killed", "was killed by signal 31", "launcher.log",
        ranks=ranks(rank(0), waiting(1, exit_code=-31), ended="died")),
    well("rank_killed", "no rank was ended by a signal"),
    well("rank_killed", "no rank", ranks=ranks(waiting(0, exit_code=None), waiting(1, exit_code=0), ended="died")),
    well("rank_killed", "no rank", ranks=ranks(waiting(0, exit_code=-15), waiting(1, exit_code=1), ended="died")),
    well("rank_killed", "no rank", ranks=ranks(rank(0), rank(1, exit_code=-9))),
    # rank_failed: the earliest is the cause
    fails("rank_failed", 'rank 1 (cuda:1, pid 5001) failed at "collective": RuntimeError: NCCL error',
        "cat runs/smoke-7/rank1.json", ranks=ranks(rank(0), FAILED, folder="runs/smoke-7")),
    fails("rank_failed", 'rank 1 (cuda:1, pid 5001) failed at "collective"', "rank1.json",
        ranks=ranks(rank(0, steps=(Step("train", False, "peer is gone"),), failed_at=100.5), FAILED)),
    fails("rank_failed", 'rank 1 (cuda:1, pid 5001) failed at "collective"', "rank1.json",
        ranks=ranks(rank(0, steps=(Step("train", False, "peer is gone"),)), FAILED)),
    well("rank_failed", "no rank met an error"),
    well("rank_failed", "no rank met an error", ranks=ranks(waiting(0), waiting(1), ended="stalled")),
    # ranks_hang
    fails("ranks_hang", 'all ranks wait at "step 7 of 20" (10 s without progress)', "rank*.stack",
        ranks=ranks(waiting(0), waiting(1), ended="stalled")),
    fails("ranks_hang", 'rank 1 (cuda:1, pid 5001) is behind at "step 6 of 20" (10 s without', "rank*.stack",
        ranks=ranks(waiting(0), waiting(1, last_word="step 6 of 20", last_word_order=26), ended="stalled")),
    fails("ranks_hang", "the time limit ran out", "rank*.stack",
        ranks=ranks(waiting(0), waiting(1), ended="timed_out")),
    fails("ranks_hang", 'rank 1 is behind at "not heard of"', "rank*.stack",
        ranks=ranks(waiting(0), NEVER, ended="stalled")),
    fails("ranks_hang", "all ranks finished, but the launcher did not end", "launcher.log",
        ranks=ranks(ended="stalled")),
    well("ranks_hang", "never stood still"),
    well("ranks_hang", "never stood still", ranks=ranks(waiting(0), KILLED, ended="died")),
    # rank_ended_early
    fails("rank_ended_early", 'rank 1 (cuda:1, pid 5001) ended at "step 7 of 20" (train)', "killed process",
        ranks=ranks(rank(0), KILLED, ended="died", launcher_exit=1)),
    fails("rank_ended_early", "rank 1 never started (launcher exit 1)", "launcher.log",
        ranks=ranks(rank(0), NEVER, ended="died", launcher_exit=1)),
    well("rank_ended_early", "2 reports complete"),
    well("rank_ended_early", "2 reports complete", ranks=ranks(ended="stalled")),
    *(
        skips("rank_ended_early", "ended by mgpu",
            ranks=ranks(rank(0), KILLED, ended=ended))
        for ended in ("stalled", "timed_out", "interrupted")
    ),
    # ranks_share_a_gpu
    fails("ranks_share_a_gpu", f"ranks 0, 1 all use {uuid(0)}", "num_processes",
        ranks=ranks(rank(0), rank(1, gpu_uuid=uuid(0)))),
    well("ranks_share_a_gpu", "2 GPUs, one rank each"),
    skips("ranks_share_a_gpu", "no rank is on a GPU", ranks=ranks(rank(0, gpu_uuid=None), rank(1, gpu_uuid=None))),
    # parameters_differ_between_ranks, ranks_compute_differently
    fails("parameters_differ_between_ranks",
        "rank 2 holds other parameters than the rest", "CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test",
        ranks=ranks(rank(0), rank(1), rank(2, parameters="bad"))),
    well("parameters_differ_between_ranks", "equal bit for bit on 2 ranks"),
    skips("parameters_differ_between_ranks", "fewer than two", ranks=ranks(rank(0), rank(1, parameters=None))),
    fails("parameters_differ_between_ranks", "ranks 0 and 1 hold different parameters", "CUDA_VISIBLE_DEVICES=0,1",
        ranks=ranks(rank(0), rank(1, parameters="bad"))),
    fails("parameters_differ_between_ranks", "ranks 2 and 3 hold other parameters than the rest", "pairs",
        ranks=ranks(rank(0), rank(1), rank(2, parameters="bad"), rank(3, parameters="worse"))),
    warns("ranks_compute_differently", "ranks 0 and 1 compute different bits", "nvidia-smi -L",
        ranks=ranks(rank(0, computed="bad"), rank(1))),
    warns("ranks_compute_differently", "rank 0 computes other bits than the rest", "nvidia-smi -L",
        ranks=ranks(rank(0, computed="bad"), rank(1), rank(2))),
    well("ranks_compute_differently", "the same bits on 2 ranks"),
    skips("ranks_compute_differently", "fewer than two", ranks=ranks(rank(0))),
    fails("launcher_failed", "exit code 3", "cat 'my runs'/launcher.log",
        ranks=ranks(launcher_exit=3, folder="my runs")),
    fails("rank_frozen", "rank 1 is stopped", "Find out who",
        ranks=ranks(rank(0), waiting(1, pid=None, process_state="stopped"))),
    # ranks_left_running
    fails("ranks_left_running", "1 process could not be ended: 5001", "kill -9 5001",
        ranks=ranks(left_running=(5001,))),
    fails("ranks_left_running", "2 processes could not be ended: 5000 5001", "sudo reboot",
        ranks=ranks(left_running=(5000, 5001))),
    well("ranks_left_running", "no process was left behind"),
    # launcher_failed
    fails("launcher_failed", "the launcher ended with exit code 1", "launcher.log",
        ranks=ranks(launcher_exit=1, ended="died", launcher_output="a\nChildFailedError\n")),
    fails("launcher_failed", "exit code 3", "launcher.log", ranks=ranks(launcher_exit=3)),
    fails("launcher_failed", "exit code 3", "launcher.log",
        ranks=ranks(launcher_exit=3, launcher_output=" \n")),
    well("launcher_failed", "exit code 0"),
    *(
        skips("launcher_failed", "ended by mgpu",
            ranks=ranks(launcher_exit=-9, ended=ended))
        for ended in ("stalled", "timed_out", "interrupted")
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_stack_of_the_rank_behind_is_read() -> None:
    behind = waiting(1, last_word="step 6 of 20", last_word_order=26, stack=STACK)
    found = problem("ranks_hang", ranks=ranks(waiting(0), behind, ended="stalled"))
    assert 'Python is at File "train.py", line 7 in step.' in found.cause
    assert found.subjects == ("rank 1",)
    assert found.evidence["rung"] == "train"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (KILLED, "exitcode: -9 (pid: 5001)"),
        (NEVER, "The launcher said: traceback: exitcode: -9 (pid: 5001)"),
    ],
)
def test_the_launchers_last_word_is_in_the_cause(member: Rank, words: str) -> None:
    output = "start\ntraceback: exitcode: -9 (pid: 5001)"
    found = problem("rank_ended_early", ranks=ranks(rank(0), member, ended="died", launcher_output=output))
    assert words in found.cause


@pytest.mark.parametrize("field", ["parameters", "computed"])
def test_of_two_ranks_none_is_odd_by_chance(field: str) -> None:
    check = {"parameters": "parameters_differ_between_ranks", "computed": "ranks_compute_differently"}[field]
    pairs = [(rank(0, **{field: f"a{number}"}), rank(1, **{field: f"b{number}"})) for number in range(24)]
    assert len({problem(check, ranks=ranks(*pair)).title for pair in pairs}) == 1
