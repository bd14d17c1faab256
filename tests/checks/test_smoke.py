"""checks/smoke: processes, aftermath"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import Rank, Step
from tests.checks.facts import Case, fails, gpus, problem, rank, ranks, skips, table, uuid, waiting, warns, well

ALONE = {"world_size": 1, "accelerate_world_size": 1}
NEVER = rank(1, pid=None, device=None, steps=(), last_word=None, last_word_order=0, finished=False, world_size=None)
KILLED = waiting(1, process_state="gone", silent_s=3.0, terminated=True)
FAILED = rank(
    1,
    steps=(Step("start", True), Step("collectives", False, "RuntimeError: NCCL error")),
    last_word="all_reduce",
    last_word_order=12,
    error="RuntimeError: NCCL error\nlong story",
    failed_at=100.0,
    finished=True,
)
STACK = 'Thread 0x7f (most recent call first):\n  File "train.py", line 7 in step\n'
NO_MEMORY = replace(
    FAILED, kind="out_of_memory", evidence={"where": "gpu", "asked": "2.00 GiB", "free_mib": 17},
    error="OutOfMemoryError: CUDA out of memory.",
)  # fmt: skip
CASES = (
    # ranks_not_of_one_world
    fails("ranks_not_of_one_world", "expected 2 ranks, but rank 0 (cuda:0, pid 5000) has world size 1", "mgpu doctor",
        ranks=ranks(rank(0, **ALONE), rank(1, **ALONE))),
    fails("ranks_not_of_one_world", "rank 1 (cuda:1, pid 5001) has world size 1", "mgpu doctor",
        ranks=ranks(rank(0), rank(1, accelerate_world_size=1))),
    fails("ranks_not_of_one_world", "expected 4 ranks, but rank 0 (cuda:0, pid 5000) has world size 2", "mgpu doctor",
        ranks=ranks(expected=4)),
    fails("ranks_not_of_one_world", "has world size 1", "mgpu doctor",
        ranks=ranks(rank(0, world_size=1), rank(1))),
    well("ranks_not_of_one_world", "2 of 2 ranks have world size 2"),
    well("ranks_not_of_one_world", "1 of 2 ranks", ranks=ranks(rank(0, accelerate_world_size=None), NEVER)),
    skips("ranks_not_of_one_world", "no rank reached", ranks=ranks(NEVER)),
    # rank_frozen: silent for longer than 1 s when the run was ended, or stopped
    fails("rank_frozen", "rank 1 (cuda:1, pid 5001) is stopped", "ps -eo pid,stat",
        ranks=ranks(waiting(0), waiting(1, process_state="stopped", silent_s=9.8), ended="stalled")),
    fails("rank_frozen", "is traced", "debugger",
        ranks=ranks(rank(0), waiting(1, process_state="traced"), ended="died")),
    fails("rank_frozen", "rank 1 (cuda:1, pid 5001) is not running (no heartbeat for", "ps -eo",
        ranks=ranks(waiting(0), waiting(1, silent_s=1.01), ended="stalled")),
    fails("rank_frozen", "is not running", "ps -eo",
        ranks=ranks(waiting(0), waiting(1, silent_s=9.0, process_state=None), ended="timed_out")),
    fails("rank_frozen", "rank 1 (cuda:1, pid 5001) is stopped", "wchan:32,cmd",
        ranks=ranks(waiting(0), waiting(1, process_state="stopped"), ended="stalled")),
    well("rank_frozen", "2 ranks kept running"),
    skips("rank_frozen", "no rank was started", ranks=ranks(replace(NEVER, rank=0), NEVER, ended="died")),
    well("rank_frozen", "2 ranks kept running",
        ranks=ranks(waiting(0, silent_s=1.0), waiting(1, silent_s=None), ended="stalled")),
    well("rank_frozen", "2 ranks kept running", ranks=ranks(rank(0), waiting(1, silent_s=9.0), ended="died")),
    well("rank_frozen", "2 ranks kept running", ranks=ranks(rank(0), rank(1, process_state="stopped"))),
    fails("rank_frozen", 'is stopped in stage "train"', "ps -eo",
        ranks=ranks(waiting(0), waiting(1, process_state="stopped", silent_s=9.8), ended="stalled")),
    # it was silent, but it answered when it was asked: something holds Python's lock
    well("rank_frozen", "2 ranks kept running",
        ranks=ranks(waiting(0), waiting(1, silent_s=9.0, stack=STACK, stack_from="asked"), ended="stalled")),
    fails("rank_frozen", "is stopped", "ps -eo",
        ranks=ranks(waiting(0), waiting(1, process_state="stopped", stack=STACK, stack_from="woken"), ended="stalled")),
    # rank_out_of_memory
    fails("rank_out_of_memory",
        'rank 1 (cuda:1, pid 5001) ran out of GPU memory in stage "collectives" (requested 2.00 GiB)',
        "nvidia-smi", ranks=ranks(rank(0), NO_MEMORY, ended="died")),
    fails("rank_out_of_memory", 'ran out of host memory in stage "collectives"', "ulimit -v",
        ranks=ranks(rank(0), replace(NO_MEMORY, evidence={"where": "host"}), ended="died")),
    fails("rank_out_of_memory",
        'rank 1 (cuda:1, pid 5001) was killed by the OOM killer (out of memory) in stage "train"',
        "memory.max",
        ranks=ranks(rank(0), waiting(1, exit_code=-9), ended="died", killed_for_memory=1)),
    well("rank_out_of_memory", "no rank ran out of memory"),
    well("rank_out_of_memory", "no rank",
        ranks=ranks(rank(0), waiting(1, exit_code=-9), ended="died", killed_for_memory=0)),
    well("rank_out_of_memory", "no rank",  # the kernel killed something else
        ranks=ranks(rank(0), waiting(1, exit_code=-11), ended="died", killed_for_memory=1)),
    well("rank_out_of_memory", "no rank",  # it is a consequence
        ranks=ranks(replace(FAILED, rank=0, failed_at=99.0), NO_MEMORY, ended="died")),
    # meeting_port_taken
    *(
        fails("meeting_port_taken", 'no rank was started in stage "start": port 29500 is in use', "ss -ltnp",
            ranks=ranks(NEVER, ended="died", launcher_exit=1, launcher_output=f"a\n{said}\n", port=29500))
        for said in (
            "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is "
            "utilizing it. Please specify a different port",  # accelerate 1.15, two machines
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",  # torch 2.13
        )
    ),
    fails("meeting_port_taken", 'rank 1 (cuda:1, pid 5001) cannot listen in stage "collectives": port 29500 is in use',
        "main_process_port", ranks=ranks(rank(0), replace(FAILED, kind="port_taken", evidence={"port": 29500}))),
    well("meeting_port_taken", "reported no", ranks=ranks(NEVER, ended="died", launcher_exit=1)),
    well("meeting_port_taken", "the ranks were started", ranks=ranks(launcher_output="address already in use")),
    # rank_killed
    fails("rank_killed", "rank 1 (cuda:1, pid 5001) was killed by SIGKILL", "killed process",
        ranks=ranks(rank(0), waiting(1, exit_code=-9), ended="died")),
    fails("rank_killed", "was killed by SIGSEGV", "launcher.log",
        ranks=ranks(rank(0), waiting(1, exit_code=-11), ended="died")),
    fails("rank_killed", "was killed by SIGSYS", "launcher.log",
        ranks=ranks(rank(0), waiting(1, exit_code=-31), ended="died")),
    well("rank_killed", "no rank was killed by a signal"),
    well("rank_killed", "no rank", ranks=ranks(waiting(0, exit_code=None), waiting(1, exit_code=0), ended="died")),
    well("rank_killed", "no rank", ranks=ranks(waiting(0, exit_code=-15), waiting(1, exit_code=1), ended="died")),
    well("rank_killed", "no rank", ranks=ranks(rank(0), rank(1, exit_code=-9))),
    # rank_failed: the earliest is the cause
    fails("rank_failed", 'rank 1 (cuda:1, pid 5001) failed in stage "collectives": RuntimeError: NCCL error',
        "cat .mgpu/runs/smoke-7/rank1.json", ranks=ranks(rank(0), FAILED, folder=".mgpu/runs/smoke-7")),
    fails("rank_failed", 'rank 1 (cuda:1, pid 5001) failed in stage "collectives"', "rank1.json",
        ranks=ranks(rank(0, steps=(Step("train", False, "peer is gone"),), failed_at=100.5), FAILED)),
    fails("rank_failed", 'rank 1 (cuda:1, pid 5001) failed in stage "collectives"', "rank1.json",
        ranks=ranks(rank(0, steps=(Step("train", False, "peer is gone"),)), FAILED)),
    well("rank_failed", "no rank failed with an error"),
    skips("rank_failed", "reported by rank_out_of_memory", ranks=ranks(rank(0), NO_MEMORY)),
    well("rank_failed", "no rank failed with an error", ranks=ranks(waiting(0), waiting(1), ended="stalled")),
    # ranks_hang
    fails("ranks_hang", 'all ranks wait at "step 7 of 20" in stage "train" (10 s without progress)', "rank*.stack",
        ranks=ranks(waiting(0), waiting(1), ended="stalled")),
    fails("ranks_hang", 'rank 1 (cuda:1, pid 5001) is behind at "step 6 of 20" in stage "train" (10 s', "rank*.stack",
        ranks=ranks(waiting(0), waiting(1, last_word="step 6 of 20", last_word_order=26), ended="stalled")),
    fails("ranks_hang", "(time limit reached)", "rank*.stack",
        ranks=ranks(waiting(0), waiting(1), ended="timed_out")),
    fails("ranks_hang", 'rank 1 is behind at "no progress reported"', "rank*.stack",
        ranks=ranks(waiting(0), NEVER, ended="stalled")),
    fails("ranks_hang", "all ranks finished, but the launcher did not exit", "launcher.log",
        ranks=ranks(ended="stalled")),
    # the recorder of every rank tells more than their words: rank 0 has said more, and is a collective behind
    fails("ranks_hang", 'rank 0 (cuda:0, pid 5000) is behind at "step 7 of 20" in stage "train"', "rank*.stack",
        ranks=ranks(waiting(0, collective_seq=6, last_word_order=30),
                    waiting(1, collective_seq=7, collective="nccl all_reduce of 8 x Float"), ended="stalled")),
    fails("ranks_hang", 'rank 1 (cuda:1, pid 5001) is behind', "rank*.stack",
        ranks=ranks(waiting(0, collective_seq=6, collective="gloo recv"), waiting(1, collective_seq=6),
                    ended="stalled")),
    fails("ranks_hang", 'rank 1 (cuda:1, pid 5001) is behind', "rank*.stack",
        ranks=ranks(waiting(0, collective_seq=6, last_word_order=28), waiting(1), ended="stalled")),
    well("ranks_hang", "the ranks did not stall"),
    well("ranks_hang", "the ranks did not stall", ranks=ranks(waiting(0), KILLED, ended="died")),
    # rank_ended_early
    fails("rank_ended_early", 'rank 1 (cuda:1, pid 5001) was stopped by SIGTERM at "step 7 of 20" in stage "train"',
        "killed process", ranks=ranks(rank(0), KILLED, ended="died", launcher_exit=1)),
    fails("rank_ended_early", 'rank 1 (cuda:1, pid 5001) disappeared at "step 7 of 20"', "killed process",
        ranks=ranks(rank(0), replace(KILLED, terminated=False, exit_code=-15), ended="died", launcher_exit=1)),
    fails("rank_ended_early", 'rank 1 did not reach stage "start" (launcher exit 1)', "launcher.log",
        ranks=ranks(rank(0), NEVER, ended="died", launcher_exit=1)),
    well("rank_ended_early", "2 reports complete"),
    # a report that is complete, from a rank that never was on a rung of this run
    fails("rank_ended_early", 'rank 1 (cuda:1, pid 5001) exited without an error before passing stage "train"',
        "rank1.jsonl", ranks=ranks(rank(0), rank(1, steps=(Step("start", True), Step("collectives", True))))),
    well("rank_ended_early", "2 reports complete", ranks=ranks(ended="stalled")),
    *(
        skips("rank_ended_early", "stopped by mgpu",
            ranks=ranks(rank(0), KILLED, ended=ended))
        for ended in ("stalled", "timed_out", "interrupted")
    ),
    # ranks_share_a_gpu
    fails("ranks_share_a_gpu", f"ranks 0, 1 all use {uuid(0)}", "num_processes",
        ranks=ranks(rank(0), rank(1, gpu_uuid=uuid(0)))),
    well("ranks_share_a_gpu", "2 GPUs, one rank each"),
    skips("ranks_share_a_gpu", "no rank is on a GPU", ranks=ranks(rank(0, gpu_uuid=None), rank(1, gpu_uuid=None))),
    # parameters_differ_between_ranks
    fails("parameters_differ_between_ranks",
        "train: rank 2 has different parameters than the rest", "CUDA_VISIBLE_DEVICES=0,1 mgpu smoke-test",
        ranks=ranks(rank(0), rank(1), rank(2, parameters="bad"))),
    well("parameters_differ_between_ranks", "bitwise equal on 2 ranks"),
    skips("parameters_differ_between_ranks", "fewer than two", ranks=ranks(rank(0), rank(1, parameters=None))),
    fails("parameters_differ_between_ranks", "train: ranks 0 and 1 have different parameters",
        "CUDA_VISIBLE_DEVICES=0,1",
        ranks=ranks(rank(0), rank(1, parameters="bad"))),
    fails("parameters_differ_between_ranks", "train: ranks 2 and 3 have different parameters than the rest", "pairs",
        ranks=ranks(rank(0), rank(1), rank(2, parameters="bad"), rank(3, parameters="worse"))),
    fails("launcher_failed", "exit code 3", "cat 'my runs'/launcher.log",
        ranks=ranks(launcher_exit=3, folder="my runs")),
    fails("rank_frozen", "rank 1 is stopped", "Find out what",
        ranks=ranks(rank(0), waiting(1, pid=None, process_state="stopped"))),
    # ranks_left_running
    fails("ranks_left_running", "1 process could not be killed: 5001 (rank 1)", "kill -9 5001",
        ranks=ranks(left_running=(5001,))),
    fails("ranks_left_running", "2 processes could not be killed: 5000 5001 (rank 0)", "sudo reboot",
        ranks=ranks(left_running=(5000, 5001))),
    well("ranks_left_running", "no process was left behind"),
    # what else a run may leave
    warns("processes_outlive_ranks", "2 processes had to be stopped after the launcher exited: 5002 5003", "ps -ef",
        ranks=ranks(outlived=(5002, 5003))),
    well("processes_outlive_ranks", "every process exited with its rank"),
    skips("processes_outlive_ranks", "did not exit by itself", ranks=ranks(ended="died", outlived=(5002,))),
    warns("run_leaves_files", "2 files of the run are left: /dev/shm/nccl-ab …", "rm -rf /dev/shm/nccl-ab '/tmp/a b'",
        ranks=ranks(left_files=("/dev/shm/nccl-ab", "/tmp/a b"))),
    warns("run_leaves_files", "1 file of the run is left", "rm -rf", ranks=ranks(left_files=("/dev/shm/nccl-ab",))),
    well("run_leaves_files", "no file was left behind"),
    warns("run_leaves_port_taken", "port 29500 is still in use", "sport = :29500",
        ranks=ranks(port=29500, left_port=True)),
    well("run_leaves_port_taken", "the run did not leave port 29500 in use", ranks=ranks(port=29500)),
    skips("run_leaves_port_taken", "used no rendezvous port"),
    warns("run_keeps_gpu_memory", "GPU 1 has 512 MiB less free memory than before the run", "nvidia-smi",
        gpus=gpus(2), ranks=ranks(memory_kept={uuid(0): 4 << 20, uuid(1): 512 << 20})),
    well("run_keeps_gpu_memory", "memory freed on 2 GPUs",
        gpus=gpus(2), ranks=ranks(memory_kept={uuid(0): 4 << 20})),
    skips("run_keeps_gpu_memory", "is unknown", gpus=gpus(2), ranks=ranks()),
    skips("run_keeps_gpu_memory", "no GPU was used", gpus=gpus(2), ranks=ranks(cpu=True)),
    # launcher_killed
    fails("launcher_killed", 'the launcher was killed by SIGKILL in stage "train"', "killed process",
        ranks=ranks(waiting(0, process_state="gone"), KILLED, launcher_exit=-9, ended="died")),
    fails("launcher_killed", "killed by signal 99", "launcher.log", ranks=ranks(launcher_exit=-99, ended="died")),
    well("launcher_killed", "a rank had failed", ranks=ranks(rank(0), FAILED, launcher_exit=-11, ended="died")),
    well("launcher_killed", "the launcher was not killed"),
    well("launcher_killed", "the launcher was not killed", ranks=ranks(rank(0), KILLED, launcher_exit=1, ended="died")),
    skips("launcher_killed", "stopped by mgpu",
        ranks=ranks(waiting(0), waiting(1), launcher_exit=None, ended="stalled")),
    # launcher_failed
    fails("launcher_failed", "the launcher failed with exit code 1", "launcher.log",
        ranks=ranks(launcher_exit=1, ended="died", launcher_output="a\nChildFailedError\n")),
    fails("launcher_failed", "exit code 3", "launcher.log", ranks=ranks(launcher_exit=3)),
    fails("launcher_failed", "exit code 3", "launcher.log",
        ranks=ranks(launcher_exit=3, launcher_output=" \n")),
    well("launcher_failed", "exit code 0"),
    skips("launcher_failed", "stopped by mgpu", ranks=ranks(rank(0), KILLED, launcher_exit=None, ended="died")),
    *(
        skips("launcher_failed", "stopped by mgpu",
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
    assert "Python's lock" not in found.cause


def test_a_rank_that_answers_but_has_no_heartbeat() -> None:
    """A thread of its Python cannot run; the process does."""
    stuck = waiting(1, last_word_order=26, silent_s=9.0, stack=STACK, stack_from="asked")
    found = problem("ranks_hang", ranks=ranks(waiting(0), stuck, ended="stalled"))
    assert "heartbeat was missing for 9 s: a library holds the GIL" in found.cause


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (KILLED, "exitcode: -9 (pid: 5001)"),
        (NEVER, "Launcher output: traceback: exitcode: -9 (pid: 5001)"),
    ],
)
def test_the_launchers_last_word_is_in_the_cause(member: Rank, words: str) -> None:
    output = "start\ntraceback: exitcode: -9 (pid: 5001)"
    found = problem("rank_ended_early", ranks=ranks(rank(0), member, ended="died", launcher_output=output))
    assert words in found.cause


def test_of_two_ranks_none_is_odd_by_chance() -> None:
    pairs = [(rank(0, parameters=f"a{number}"), rank(1, parameters=f"b{number}")) for number in range(24)]
    assert len({problem("parameters_differ_between_ranks", ranks=ranks(*pair)).title for pair in pairs}) == 1


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (waiting(1, process_state="stopped", stack=STACK, stack_from="woken"),
         'Python stack (after SIGCONT): File "train.py", line 7 in step.'),
        (waiting(1, process_state="stopped"), "It did not respond, so no stack is available."),
        (waiting(1, process_state="in uninterruptible sleep", silent_s=9.0, kernel_wait="nfs_wait_bit_killable"),
         "It is waiting in the kernel in nfs_wait_bit_killable."),
    ],
)  # fmt: skip
def test_what_a_rank_that_does_not_run_tells(member: Rank, words: str) -> None:
    others = waiting(0, collective="gloo all_reduce of 8 x Float")
    found = problem("rank_frozen", ranks=ranks(others, member, ended="stalled"))
    assert words in found.cause and "wait for it in gloo all_reduce of 8 x Float." in found.cause
    assert found.evidence["rank"] == 1 and found.evidence["rung"] == "train"


def test_the_launchers_own_error_is_its_last_word() -> None:
    """Not the table of what the ranks said, which comes after it."""
    output = "Traceback\nValueError: unknown flag\ntorch.distributed.elastic.ChildFailedError: \n=====\nrank : 1\n====="
    assert "ValueError: unknown flag" in problem("launcher_failed", ranks=ranks(
        launcher_exit=1, ended="died", launcher_output=output)).cause  # fmt: skip
