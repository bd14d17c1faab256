"""checks/run/"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu.snapshot import EndedRank, Exchange, NotFinite, Pace, RankPace, SignatureMatch, UncaughtException
from tests.checks.facts import GIB, Case, fails, folder, informs, log, run, skips, storage, table, warns, well


def ended(*codes: int | None, first: int | None = None, **changes: Any) -> tuple[EndedRank, ...]:
    """Ranks with these exit codes; `first` failed first, `changes` are of it."""
    ranks = tuple(
        EndedRank(rank, code, rank == first, rank, "node7", 4000 + rank, rank) for rank, code in enumerate(codes)
    )
    return tuple(replace(rank, **changes) if rank.first else rank for rank in ranks)


def failed(*codes: int | None, first: int | None = None, of: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A run that these ranks ended."""
    ranks = ended(*codes, first=first, **(of or {}))
    code = next((rank.exit_code for rank in ranks if rank.first), 1) or 1
    return run(**{"exit_code": 128 - code if code < 0 else code, "launcher_code": 1, "ranks": ranks} | changes)


KILLED = failed(-15, -15, -9, -15, first=2, oom_kills=1, memory_lowest_bytes=GIB)
STOPPED: dict[str, Any] = {"exit_code": 130, "launcher_code": 1, "signalled": "SIGINT"}


def held(*states: str, idle: tuple[int, ...] = ()) -> Any:
    """A run stopped by hand while its ranks were in these states."""
    ranks = [EndedRank(rank, -2, state=state, idle=rank in idle, pid=4000 + rank) for rank, state in enumerate(states)]
    return run(**STOPPED, ranks=tuple(ranks))


def paced(last: float, wait_s: float, loader_s: float = 0.0) -> Any:
    """A run of two ranks in which rank 1 comes last in this share of its steps of 100 ms."""
    ranks = (RankPace(0, 0.0, wait_s, 1 - last), RankPace(1, loader_s, 0.0, last))
    return run(pace=Pace(200, 0.1, wait_s / 0.1, ranks))


def paced_hosts(wait_s: float, *last: float, loader_s: float = 0.0) -> Any:
    """Two hosts with as many ranks each; the last of them come last in these shares of the steps of 100 ms."""
    count = len(last)
    others = [RankPace(rank, 0.0, wait_s, (1 - sum(last)) / count, host="n1") for rank in range(count)]
    ranks = [RankPace(count + place, loader_s, 0.0, share, host="n2") for place, share in enumerate(last)]
    return run(pace=Pace(200, 0.1, wait_s / 0.1, (*others, *ranks)), expected=2 * count)


def no_space(file: str = "") -> Any:
    """A log in which a rank could not write."""
    text = f"OSError: [Errno 28] No space left on device{f': {file!r}' if file else ''}"
    return log(seen=(SignatureMatch("log_disk_full", text, "run.log", 9),))


FULL = folder("output", "/data/out", mount="/data", total_bytes=500 * GIB, free_bytes=4096)

CASES = (
    fails("run_out_of_memory", "out of CPU memory: the kernel killed rank 2 (GPU 2)", "fewer DataLoader workers",
        run=KILLED),
    fails("run_out_of_memory", "the kernel killed a process of the run", "--mem=0",
        run=failed(1, -15, first=0, oom_kills=1)),
    fails("run_out_of_memory", "killed rank 0", "workers",
        run=failed(-9, first=0, oom_kills=None, killed=("python (pid 4000)",))),
    fails("run_out_of_memory", "killed rank 0", "workers", run=failed(-9, first=0, slurm="OUT_OF_MEMORY")),
    well("run_out_of_memory", "killed no process of this run for memory (exit 0, 4 ranks)"),
    well("run_out_of_memory", "killed no process", run=failed(1, 1, first=0, killed=("browser (pid 9)",))),
    fails("run_rank_killed", "rank 1 (GPU 1) was killed from outside (SIGKILL), without a traceback", "dmesg",
        run=failed(-15, -9, first=1)),
    fails("run_rank_killed", "was killed (SIGKILL) when memory was low", "sacct",
        run=failed(-15, -9, first=1, memory_lowest_bytes=GIB)),
    fails("run_rank_killed", "killed from outside", "dmesg",
        run=failed(-15, -9, first=1, oom_kills=None, killed=None, memory_lowest_bytes=None)),
    skips("run_rank_killed", "it ran out of memory", run=KILLED),
    well("run_rank_killed", "no rank was killed by SIGKILL"),
    well("run_rank_killed", "no rank", run=failed(1, -9, first=0, of={"gone_s": 10.0}, seconds=50.0)),
    fails("run_rank_crashed", "rank 3 (GPU 3) crashed in compiled code (SIGSEGV)", "PYTHONFAULTHANDLER",
        run=failed(-15, -15, -15, -11, first=3)),
    well("run_rank_crashed", "no rank was killed by SIGSEGV"),
    fails("run_rank_aborted", "rank 0 (GPU 0) aborted (SIGABRT)", "PYTHONFAULTHANDLER", run=failed(-6, -15, first=0)),
    well("run_rank_aborted", "no rank was killed by SIGABRT", run=failed(1, -15, first=0)),
    fails("run_rank_bus_error", "rank 0 (GPU 0) crashed with a bus error (SIGBUS)", "--shm-size",
        run=failed(-7, first=0)),
    well("run_rank_bus_error", "no rank was killed by SIGBUS"),
    fails("run_rank_illegal_instruction", "that the CPU could not execute (SIGILL)", "lscpu", run=failed(-4, first=0)),
    fails("run_rank_illegal_instruction", "that the CPU could not execute (SIGFPE)", "lscpu", run=failed(-8, first=0)),
    well("run_rank_illegal_instruction", "no rank was killed by SIGILL or SIGFPE"),
    fails("run_ended_by_slurm", "it reached its time limit (TIMEOUT)", "--signal=USR1@90",
        run=failed(-15, -15, first=0, slurm="TIMEOUT")),
    well("run_ended_by_slurm", "Slurm stopped no job"),
    well("run_ended_by_slurm", "Slurm reports RUNNING", run=failed(1, first=0, slurm="RUNNING")),
    fails("run_rank_terminated", "was stopped by SIGTERM, which mgpu did not send", "sacct",
        run=failed(-15, -15, first=0)),
    well("run_rank_terminated", "no rank was stopped from outside", run=failed(1, -15, first=0)),
    well("run_rank_terminated", "no rank was stopped", run=run(**STOPPED, ranks=ended(-15, -15))),
    fails("run_disk_full", "the disk is full: /data (ext4), 4 KiB of 500 GiB free", "df -h /data/out",
        run=failed(1, first=0), log=no_space("/data/out/model.pt"), storage=storage(FULL)),
    fails("run_disk_full", "/work/run (ext4), 0 MiB of 1.0 GiB free", "df -h /work/run",
        run=failed(1, first=0), log=no_space("model.pt"),
        storage=storage(folder(mount="/work/run", total_bytes=GIB, free_bytes=0))),
    fails("run_disk_full", "the disk is full: / (ext4), no free inodes, 500 GiB of 1000 GiB free", "df -i /work/run",
        run=failed(1, first=0, log_full=True), log=log(), storage=storage(folder(free_inodes=0))),
    fails("run_disk_full", "the disk is full: /data (ext4), 4 KiB of 500 GiB free", "df -h /data/out",
        run=failed(1, first=0), storage=storage(FULL),
        log=log(seen=(SignatureMatch("log_checkpoint_write_failed", "iostream error", "run.log", 3),))),
    well("run_disk_full", "the output reports no full disk", storage=storage(FULL)),
    well("run_disk_full", "the output reports no full disk", run=failed(1, first=0), storage=storage(FULL)),
    skips("run_disk_full", "its disk has free space again",
        run=failed(1, first=0), log=no_space("/scratch/x.pt"), storage=storage(FULL)),
    skips("run_disk_full", "the disks of the run have free space again",
        run=failed(1, first=0), log=no_space(), storage=storage(replace(FULL, writable=False))),
    fails("run_arguments_wrong", "arguments were rejected (exit code 2)", "--help", run=failed(2, -15, first=0)),
    fails("run_arguments_wrong", "exit code 2", "--help", run=failed(exit_code=2)),
    well("run_arguments_wrong", "arguments were not rejected", run=failed(1, 2, first=0)),
    fails("run_launcher_killed", "the launcher itself was killed (SIGKILL), not a rank", "sacct",
        run=failed(None, None, exit_code=137, launcher_code=-9)),
    well("run_launcher_killed", "not killed before its ranks", run=failed(-9, first=0)),
    well("run_launcher_killed", "not killed before its ranks", run=failed(-9, first=0, launcher_code=-9)),
    skips("run_launcher_killed", "run_out_of_memory",
        run=failed(None, exit_code=137, launcher_code=-9, oom_kills=1)),
    fails("run_launcher_failed", "the launcher exited with code 1 before it started a rank", "--validate",
        run=failed()),
    well("run_launcher_failed", "the launcher started its ranks", run=failed(1, first=0)),
    skips("run_launcher_failed", "the run was not observed", run=replace(failed(), watched=False)),
    fails("run_rank_failed", "rank 1 (GPU 1) exited with code 3", "Read its last lines",
        run=failed(-15, 3, first=1)),
    fails("run_rank_failed", "code 1: ValueError: NaN", "Read its last lines",
        run=failed(1, 1, first=0, of={"error": "ValueError: NaN"})),
    fails("run_rank_failed", "rank 1 (GPU 1) was killed by SIGXCPU: it exceeded its CPU time limit (ulimit -t)",
        "Read its last lines",
        run=failed(-15, -24, first=1)),
    fails("run_rank_failed", "was killed by SIGSYS: it made a system call", "Read its last lines",
        run=failed(-31, first=0)),
    fails("run_rank_failed", "was killed by signal 40: another process", "Read its last lines",
        run=failed(-40, first=0)),
    well("run_rank_failed", "no rank exited with an error", run=failed(-2, -15, first=0)),
    well("run_rank_failed", "no rank exited with an error", run=failed(-11, -15, first=0)),
    fails("run_gpu_fell_out", "a GPU failed: Xid 79 on 0000:1b:00.0", "restart the machine",
        run=failed(1, first=0, xids=("79 on 0000:1b:00.0: fallen off the bus",))),
    well("run_gpu_fell_out", "(1 of other kinds)", run=failed(1, first=0, xids=("13 on 0000:1b:00.0: exception",))),
    skips("run_gpu_fell_out", "this user cannot read the kernel log, so Xids are unknown",
        run=failed(1, first=0, xids=None)),
    fails("run_rank_silent", "rank 1 is stopped (SIGSTOP)", "py-spy dump --pid 4001", run=held("sleeping", "stopped")),
    fails("run_rank_silent", "rank 0 is in uninterruptible sleep", "py-spy",
        run=held("in uninterruptible sleep", "running")),
    fails("run_rank_silent", "rank 2 uses no CPU while the others wait for it", "py-spy",
        run=held("running", "running", "sleeping", idle=(2,))),
    well("run_rank_silent", "no single rank was idle", run=held("sleeping", "sleeping", "sleeping", idle=(0, 1, 2))),
    well("run_rank_silent", "was not stopped manually"),
    skips("run_rank_silent", "states were not read", run=run(**STOPPED)),
    fails("run_timed_out", "--timeout stopped the run after 3,661 s", "mgpu smoke-test",
        run=run(exit_code=124, timed_out=True)),
    well("run_timed_out", "ended by itself"),
    informs("run_stopped", "stopped by SIGINT: Ctrl-C", "Nothing, if you stopped it.", run=run(**STOPPED)),
    informs("run_stopped", "its terminal was closed", "--detach", run=run(**STOPPED | {"signalled": "SIGHUP"})),
    well("run_stopped", "no signal stopped the run"),
    warns("run_rank_left_early", "rank 1 had finished without an error when rank 0 failed", "why one rank exits early",
        run=run(exit_code=1, ranks=(EndedRank(0, 1, True, gone_s=8.0), EndedRank(1, None, gone_s=7.5)))),
    well("run_rank_left_early", "no rank finished",
        run=run(exit_code=1, seconds=9.0,
            ranks=(EndedRank(0, 1, True, gone_s=8.0), EndedRank(1, None, gone_s=8.5)))),
    warns("run_rank_left_early", "rank 1 finished 3,361 s before the others", "drop_last",
        run=run(ranks=(EndedRank(0, 0), EndedRank(1, 0, gone_s=300.0)))),
    well("run_rank_left_early", "no rank finished", run=run(ranks=(EndedRank(0, 0), EndedRank(1, 0, gone_s=3600.0)))),
    warns("run_left_processes", "2 processes left over from the run", "the processes it starts", run=run(left_over=2)),
    well("run_left_processes", "no process was left over"),
    fails("run_rank_aborted_at_exit", "rank 1 (GPU 1) aborted, probably at its exit", "destroy_process_group()",
        run=failed(-15, -6, first=1), log=log(last="terminate called without an active exception")),
    well("run_rank_aborted_at_exit", "no rank aborted at its exit", run=failed(-15, -6, first=1), log=log(last="x")),
    well("run_rank_aborted_at_exit", "no rank aborted at its exit", run=failed(-15, -6, first=1),
        log=log(last="terminate called without an active exception",
            raised=(UncaughtException("ValueError", "x", "run.log", 3),))),
    fails("run_rank_aborted_at_exit", "rank 1 (GPU 1) aborted, probably at its exit", "destroy_process_group()",
        run=failed(-15, -6, first=1), log=log(last="terminate called without an active exception",
            raised=(UncaughtException("RuntimeError", "x", "run.log", 3, 0, signatures=("log_peer_gone",)),
                UncaughtException("ChildFailedError", "", "run.log", 9, signatures=("log_child_failed",))))),
    warns("run_ranks_exchanged_nothing", "the 4 ranks exchanged no data: their gradients were not averaged",
        "accelerator.prepare", run=run(exchange=Exchange(12.0))),
    warns("run_ranks_exchanged_nothing", "the 4 ranks exchanged no data", "DistributedDataParallel",
        run=run(exchange=Exchange(12.0, 6, 6 * 17))),  # a group without DDP
    warns("run_ranks_exchanged_nothing", "have exchanged no data after 301 s", "accelerator.prepare",
        run=run(exchange=Exchange(300.0), going=True, seconds=301.0)),
    warns("run_ranks_exchanged_nothing", "exchanged only 900 bytes: less than", "accelerator.prepare",
        run=run(exchange=Exchange(3.0, 1, 900), expected=2)),  # barriers
    warns("run_ranks_exchanged_nothing", "exchanged only 6,000 bytes", "accelerator.prepare",
        run=run(exchange=Exchange(60.0, 1, 6000), expected=2)),
    well("run_ranks_exchanged_nothing", "exchanged data: 2,221 bytes",
        run=run(exchange=Exchange(3.0, 1, 2221), expected=2)),
    well("run_ranks_exchanged_nothing", "9,089 bytes or more",  # six steps of a model of 18 parameters, with DDP
        run=run(exchange=Exchange(14.0, 1, 9089), expected=2)),
    well("run_ranks_exchanged_nothing", "exchanged data: 6,000 bytes",  # NCCL's data takes another way
        run=run(exchange=Exchange(60.0, 1, 6000, on_gpus=True), expected=2)),
    warns("run_ranks_exchanged_nothing", "only 31,209 bytes, and each trains parameters of 3,145,740 bytes",
        "accelerator.prepare", run=run(exchange=Exchange(9.0, 1, 31209, trained_bytes=3145740), expected=2)),
    well("run_ranks_exchanged_nothing", "or more",  # gradients that a hook compresses
        run=run(exchange=Exchange(9.0, 1, 31209, trained_bytes=80000), expected=2)),
    well("run_ranks_exchanged_nothing", "or more",
        run=run(exchange=Exchange(9.0, 1, 31209, on_gpus=True, trained_bytes=3145740), expected=2)),
    well("run_ranks_exchanged_nothing", "the kernel does not count bytes", run=run(exchange=Exchange(60.0, 1, None))),
    skips("run_ranks_exchanged_nothing", "fewer than two ranks on this machine"),
    skips("run_ranks_exchanged_nothing", "several nodes", run=run(exchange=Exchange(gap="several nodes"))),
    skips("run_ranks_exchanged_nothing", "observed for 0.5 s only", run=run(exchange=Exchange(0.5))),
    skips("run_ranks_exchanged_nothing", "the run failed", run=run(exit_code=1, exchange=Exchange(12.0))),
    warns("run_rank_slows_others",
        "rank 1 comes last in 96% of the steps, and the others wait 38 ms of 100 ms: it waits for its data loader",
        "more workers", run=paced(0.96, 0.038, 0.03)),
    warns("run_rank_slows_others", "wait 38 ms of 100 ms: probably its own computing takes longer",
        "its GPU's clock",
        run=paced(0.96, 0.038, 0.003)),
    well("run_rank_slows_others", "the ranks wait 38% of the time for each other (200 steps)", run=paced(0.6, 0.038)),
    well("run_rank_slows_others", "the ranks wait 4% of the time", run=paced(0.96, 0.004)),
    skips("run_rank_slows_others", "were not compared"),
    warns("run_rank_slows_others", "rank 3 (host n2) comes last in 90% of the steps", "its GPU's clock",
        run=paced_hosts(0.038, 0.05, 0.9)),
    well("run_rank_slows_others", "a host is slower", run=paced_hosts(0.038, 0.96)),
    warns("run_host_slows_others",
        "host n2 is slower: its ranks come last in 96% of the steps, and the other host waits 38 ms of 100 ms: its "
        "computing takes longer", "Compare its GPUs", run=paced_hosts(0.038, 0.5, 0.46)),
    warns("run_host_slows_others", "the other host waits 60 ms of 100 ms: waiting for data loaders",
        "Leave this host out", run=paced_hosts(0.06, 0.96, loader_s=0.05)),
    warns("run_host_slows_others", "waiting for data loaders", "a faster disk",
        run=paced_hosts(0.03, 0.96, loader_s=0.025)),
    well("run_host_slows_others", "the ranks wait 38% of the time", run=paced_hosts(0.038, 0.05, 0.9)),
    well("run_host_slows_others", "the ranks wait 38% of the time", run=paced_hosts(0.038, 0.55)),
    well("run_host_slows_others", "the ranks wait 4% of the time", run=paced_hosts(0.004, 0.96)),
    skips("run_host_slows_others", "were not compared", run=paced(0.96, 0.038)),
    warns("run_not_finite", "the loss of rank 1 is nan in step 15", "Look at the batch of rank 1 in step 15",
        run=run(not_finite=(NotFinite(1, "loss", "nan", 15, 1.0), NotFinite(0, "loss", "nan", 16, 2.0)), expected=2)),
    warns("run_not_finite", "the loss of rank 1 (host n2) is nan in step 15", "Look at the batch of rank 1 in step 15",
        run=run(not_finite=(NotFinite(1, "loss", "nan", 15, 1.0),), expected=2,
            ranks=(EndedRank(0, host="n1"), EndedRank(1, host="n2")))),
    warns("run_not_finite", "the gradient norm of rank 0 is inf in step 3", "set_detect_anomaly",
        run=run(not_finite=(NotFinite(0, "gradient norm", "inf", 3, 1.0),), expected=2)),
    warns("run_not_finite", "in step 3: its inputs have NaN already, x (t.py:14), 1 of 32", "where the data is read",
        run=run(not_finite=(NotFinite(0, "loss", "nan", 3, 1.0, inputs=("x (t.py:14), 1 of 32",)),), expected=2)),
    well("run_not_finite", "no rank reported a loss or gradient norm", run=run(not_finite=())),
    skips("run_not_finite", "the ranks have no recorder"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_what_the_kernel_did_is_told_as_evidence() -> None:
    problem = CASES[0].answer().problem
    assert problem is not None
    assert "oom_kill count rose by 1; at minimum 1.0 GiB of 512 GiB free" in problem.cause


def test_a_rank_that_its_launcher_killed_later_is_not_the_one_that_was_killed() -> None:
    """torchrun gives the others 30 s, and kills what does not end: SIGKILL is then a consequence."""
    late = failed(1, -9, first=0, of={"gone_s": 10.0}, seconds=45.0)
    at_once = failed(1, -9, first=0, of={"gone_s": 44.0}, seconds=45.0)
    assert Case("run_rank_killed", "ok", "", changes={"run": late}).answer().problem is None
    assert Case("run_rank_killed", "fail", "", changes={"run": at_once}).answer().problem is not None
