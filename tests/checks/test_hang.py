"""checks/hang/"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mgpu import engine
from mgpu.engine import selections
from mgpu.snapshot import NOT_LOADED, Collective, Hang, HangRank, Snapshot, StackFrame, Worker
from tests.checks.facts import IN_TORCH, Case, fails, frame, hang, hang_rank, informs, table, waits, well

REDUCE = Collective("all_reduce", "0", 14, "420 float", True, caller=frame(line=35))
LIBRARY = "/v/site-packages/"


def done(*collectives: Collective) -> tuple[Collective, ...]:
    """Collectives 1 to 13 of all ranks, completed, and these."""
    before = (Collective("all_reduce", "0", n, "420 float", caller=frame(line=35)) for n in range(1, 14))
    return (*before, *collectives)


def here(text: str = "") -> StackFrame:
    """The suspect's own line."""
    return frame(text, line=31)


def of(file: str, function: str = "wait") -> StackFrame:
    """A frame of a library, or of Python itself."""
    return replace(frame(function=function, file=file), library=True)


WAITS = waits(0, REDUCE)
HAS_TORCH = of(LIBRARY + "torch/distributed/distributed_c10d.py", "barrier")
IN_LOADER = hang_rank(
    1, of(LIBRARY + "torch/utils/data/dataloader.py", "_get_data"), here("for batch in loader:"), batch_wait_s=44.0,
    workers=(Worker(5000, "sleeping", False, frames=(frame("LOCK.acquire()", file="/home/me/data.py", line=9),),
                    loader=True),),
)  # fmt: skip
SILENT = replace(hang_rank(0), frames=(), silent=NOT_LOADED)
ASLEEP = hang_rank(1, here("time.sleep(1000)"))


def called(name: str, line: int, shape: str = "", number: int = 14) -> Collective:
    """A collective that is open."""
    return Collective(name, "0", number, shape, True, caller=frame(line=line))


def of_four(*odd: HangRank) -> dict[str, Any]:
    """Four ranks, of which the others wait."""
    others = [waits(rank, *done(REDUCE)) for rank in range(4) if rank not in {one.rank for one in odd}]
    return {"hang": hang(*sorted((*odd, *others), key=lambda one: one.rank))}


SHIFTED = tuple(
    [Collective("all_reduce", "0", n, "420 float", caller=frame(line=35)) for n in range(1, 6)]
    + [Collective("all_reduce", "0", 6, "420 float", caller=frame(line=53))]
    + [Collective("all_reduce", "0", n, "420 float", n == 10, caller=frame(line=35)) for n in range(7, 11)]
)
UNSHIFTED = tuple(
    [Collective("all_reduce", "0", n, "420 float", caller=frame(line=35)) for n in range(1, 10)]
    + [called("barrier", 60, number=10)]
)

CASES = (
    # absent
    fails("hang_rank_stopped", "rank 1 is stopped (SIGSTOP)", "kill -CONT 4001",
        hang=hang(WAITS, hang_rank(1, ASLEEP.frames[0], state="stopped", silent="it is stopped"))),
    fails("hang_rank_stopped", "rank 1 (host n2) is stopped (SIGSTOP)", "ssh n2 kill -CONT 4001",
        hang=hang(WAITS, hang_rank(1, ASLEEP.frames[0], state="stopped", silent="it is stopped", host="n2"))),
    well("hang_rank_stopped", "not seen in 2 ranks"),
    informs("hang_rank_in_debugger", "rank 1 is held by a debugger", "Let it continue",
        hang=hang(WAITS, hang_rank(1, here(), state="traced"))),
    informs("hang_rank_in_debugger", "rank 1 is held by a debugger at train.py:31", "Let it continue",
        hang=hang(WAITS, hang_rank(1, of("/usr/lib/python3.11/pdb.py", "interaction"), here("breakpoint()")))),
    well("hang_rank_in_debugger", "not seen in 2 ranks"),
    fails("hang_rank_in_kernel", "rank 1 is in uninterruptible sleep in the kernel's rpc_wait_bit_killable", "mount |",
        hang=hang(WAITS, replace(ASLEEP, state="in uninterruptible sleep", kernel_wait="rpc_wait_bit_killable"))),
    well("hang_rank_in_kernel", "not seen",  # it writes: a slow disk
        hang=hang(WAITS, replace(ASLEEP, state="in uninterruptible sleep", io=True))),
    fails("hang_rank_gone", "rank 1 has ended", "dmesg", hang=hang(WAITS, hang_rank(1, state=None, busy=None))),
    well("hang_rank_gone", "not seen", hang=hang(hang_rank(0, state=None, busy=None), hang_rank(1))),  # none waits
    fails("hang_rank_left", "rank 1 has left the training at train.py:12: ValueError: no data", "Correct this error",
        hang=hang(WAITS, replace(ASLEEP, raised="ValueError: no data", raised_at=frame(line=12)))),
    fails("hang_rank_left", "rank 1 has left the training: its script has returned", "the same number of steps",
        hang=hang(WAITS, replace(ASLEEP, frames=()))),
    fails("hang_rank_left", "rank 1 has left the training and waits in destroy_process_group", "same number of steps",
        hang=hang(WAITS, hang_rank(1, of(LIBRARY + "torch/distributed/distributed_c10d.py", "destroy_process_group")))),
    fails("hang_rank_left", "rank 1 has left the training and waits in destroy_process_group at train.py:31", "steps",
        hang=hang(WAITS, hang_rank(1, here("dist.destroy_process_group()")))),
    fails("hang_rank_left", "rank 1 has left the training: its script has returned, and runs an exit function at "
        "train.py:31", "steps", hang=hang(WAITS, replace(ASLEEP, at_exit=True))),
    well("hang_rank_left", "not seen", hang=hang(WAITS, waits(1, REDUCE, at_exit=True))),  # a barrier in atexit
    well("hang_rank_left", "not seen", hang=hang(WAITS, replace(ASLEEP, frames=(), silent="it did not answer"))),
    # elsewhere
    fails("hang_rank_sleeps", "rank 1 sleeps at train.py:31", "Remove the sleep", hang=hang(WAITS, ASLEEP)),
    fails("hang_rank_sleeps", "ranks 1 and 2 sleep at train.py:31", "Remove the sleep",
        **of_four(ASLEEP, replace(ASLEEP, rank=2))),
    fails("hang_rank_sleeps", "rank 1 (host n2) sleeps at train.py:31", "Remove the sleep",
        hang=hang(replace(WAITS, host="n1"), replace(ASLEEP, host="n2"))),
    well("hang_rank_sleeps", "not seen", hang=hang(WAITS, replace(ASLEEP, busy=True))),
    well("hang_rank_sleeps", "not seen", hang=hang(WAITS, ASLEEP, hang_rank(2))),  # rank 2 works: it may wait for that
    fails("hang_rank_in_lock", "rank 1 waits for a lock at train.py:31", "Release it",
        hang=hang(WAITS, hang_rank(1, here("LOCK.acquire()")))),
    fails("hang_rank_in_lock", "rank 1 waits for a lock on a file (/data/x.lock)", "Release it",
        hang=hang(WAITS, hang_rank(1, here("held.lock()"), waits_for="flock of /data/x.lock"))),
    fails("hang_rank_in_lock", "rank 1 waits for a lock", "Release it",
        hang=hang(WAITS, hang_rank(1, of("/usr/lib/python3.11/threading.py"), here("done.wait()")))),
    well("hang_rank_in_lock", "not seen", hang=hang(WAITS, hang_rank(1, here("work.wait()"), collectives=(REDUCE,)))),
    fails("hang_rank_asks_for_input", "rank 1 waits for input at train.py:31", "Remove the prompt",
        hang=hang(WAITS, hang_rank(1, here("name = input('run name? ')")))),
    well("hang_rank_asks_for_input", "not seen in 2 ranks"),
    fails("hang_rank_in_loader", "rank 1 waits for a batch for 44 s at train.py:31", "num_workers=0",
        hang=hang(WAITS, IN_LOADER)),
    well("hang_rank_in_loader", "not seen",
        hang=hang(WAITS, replace(IN_LOADER, workers=(replace(IN_LOADER.workers[0], busy=True),)))),
    fails("hang_rank_reads", "rank 1 waits for a file, pipe or socket (recvfrom of socket:[77])", "a time limit",
        hang=hang(WAITS, hang_rank(1, here("answer = sock.recv(1)"), waits_for="recvfrom of socket:[77]"))),
    fails("hang_rank_reads", "(in the kernel's wait_for_partner)", "a time limit",
        hang=hang(WAITS, hang_rank(1, here("open(pipe)"), kernel_wait="wait_for_partner"))),
    well("hang_rank_reads", "not seen",
        hang=hang(WAITS, hang_rank(1, here("open(big)"), waits_for="read of /data/big", io=True))),
    fails("hang_rank_waits_for_process", "rank 1 waits for a process that it has started", "--ppid 4001",
        hang=hang(WAITS, hang_rank(1, of("/usr/lib/python3.11/subprocess.py"), here("subprocess.run(['x'])")))),
    fails("hang_rank_waits_for_process", "rank 1 (host n2) waits for a process", "ssh n2 ps -o",
        hang=hang(WAITS, hang_rank(1, of("/usr/lib/python3.11/subprocess.py"), here("subprocess.run(['x'])"),
            host="n2"))),
    well("hang_rank_waits_for_process", "not seen in 2 ranks"),
    fails("hang_rank_elsewhere", "rank 1 does nothing at train.py:31", "py-spy dump --native --pid 4001",
        hang=hang(WAITS, hang_rank(1, here("native.call()")))),
    fails("hang_rank_elsewhere", "rank 1 (host n2) does nothing", "ssh n2 py-spy dump",
        hang=hang(WAITS, hang_rank(1, here("native.call()"), host="n2"))),
    well("hang_rank_elsewhere", "not seen in 2 ranks"),
    informs("hang_rank_works", "rank 1 works for 45 s at train.py:31", "ddp_timeout", hang=hang(WAITS, hang_rank(1))),
    well("hang_rank_works", "not seen"),  # all ranks do
    informs("hang_stacks_unknown", "the stacks of ranks 0 and 1 are not known: Python has not loaded the recorder",
        "without these options", hang=hang(SILENT, replace(SILENT, rank=1))),
    well("hang_stacks_unknown", "not seen", hang=hang(SILENT, ASLEEP)),  # the other one is to blame
    # collectives
    fails("hang_collectives_differ",
        "rank 0 called barrier #14 at train.py:74, but rank 1 called all_reduce #14 of 420 float32 values "
        "at train.py:35",
        "the same collectives in the same order",
        hang=hang(waits(0, *done(called("barrier", 74))), waits(1, *done(REDUCE)))),
    fails("hang_collectives_differ", "rank 2 called all_reduce #14 of 3 float32 values "
        "at train.py:35, but ranks 0, 1 and 3",
        "with the same shapes", **of_four(waits(2, *done(called("all_reduce", 35, "3 float"))))),
    fails("hang_collectives_differ",  # it skipped one, and all later ones look alike
        "rank 0 called all_reduce #6 of 420 float32 values at train.py:53, but rank 1 called all_reduce #6 of "
        "420 float32 values at "
        "train.py:35", "in the same order", hang=hang(waits(0, *SHIFTED), waits(1, *UNSHIFTED))),
    fails("hang_collectives_differ", "the ranks wait in different collectives: rank 2 at train.py:90", "the same order",
        hang=hang(waits(0), waits(1), hang_rank(2, HAS_TORCH, frame(line=90)))),  # without a flight recorder
    fails("hang_collectives_differ",  # it waits for one that it had started before
        "rank 0 called all_reduce #14 of 420 float32 values "
        "at train.py:35, but rank 1 called barrier #14 at train.py:74",
        "in the same order",
        hang=hang(hang_rank(0, here("bucket.work_of.wait()"), collectives=done(REDUCE)),
                  waits(1, *done(called("barrier", 74))))),
    well("hang_collectives_differ", "not seen in 2",  # of a lock, nothing is recorded
        hang=hang(hang_rank(0, here("condition.wait()"), kernel_wait="futex_wait_queue"), waits(1, *done(REDUCE)))),
    well("hang_collectives_differ", "not seen", hang=hang(waits(0, *done(REDUCE)), waits(1, *done(REDUCE)))),
    fails("hang_rank_behind",
        "rank 1 did not start all_reduce #14 of 420 float32 values, and waits in all_reduce at train.py:35",
        "the same collectives", hang=hang(waits(0, *done(REDUCE)), waits(1, *done()))),
    well("hang_rank_behind", "not seen in 2 ranks"),
    fails("hang_host_unreachable", "rank 1 gets no answer from 10.0.0.2:29500 (the store) and 10.0.0.3: it waits in "
        "all_reduce #14 of 420 float32 values at train.py:35", "ping -c 3 10.0.0.2",
        hang=hang(WAITS, waits(1, REDUCE, unanswered=(
            "10.0.0.2:29500 (the store)", "10.0.0.2:41001", "10.0.0.3:41002")))),
    fails("hang_host_unreachable", "rank 0 gets no answer from fd00::2; rank 1 gets no answer from fd00::1: they wait "
        "in", "ping", hang=hang(waits(0, REDUCE, unanswered=("[fd00::2]:41001",)),
                                waits(1, REDUCE, unanswered=("[fd00::1]:41001",)))),
    well("hang_host_unreachable", "not seen", hang=hang(WAITS, waits(1, REDUCE))),
    well("hang_host_unreachable", "not seen",  # the sleep comes first: a store that no one needs may be gone
        hang=hang(waits(0, REDUCE, unanswered=("10.0.0.2:41001",)), ASLEEP)),
    fails("hang_collective_stuck", "all 2 ranks wait in all_reduce #14 of 420 float32 values "
        "at train.py:35, which does not",
        "mgpu smoke-test", hang=hang(waits(0, *done(REDUCE)), waits(1, *done(REDUCE)))),
    informs("hang_others_unknown",  # each node asks its own ranks: those that keep these waiting may be elsewhere
        "ranks 0 and 1 wait in all_reduce #14 of 420 float32 values "
        "at train.py:35; what the other 2 ranks", "mgpu launch --why",
        hang=hang(waits(0, *done(REDUCE)), waits(1, *done(REDUCE)), world=4, expected=2)),
    informs("hang_others_unknown", "rank 1 sleeps at train.py:31; what the other 3 ranks of this run do is not known",
        "--log-dir", hang=hang(ASLEEP, world=4, expected=1)),
    well("hang_others_unknown", "not seen", hang=hang(WAITS, ASLEEP, world=4, expected=2)),  # one that is here
    well("hang_others_unknown", "not seen", hang=hang(hang_rank(1, busy=True), world=4, expected=1)),
    well("hang_collective_stuck", "not seen", hang=hang(WAITS, ASLEEP)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_an_import_of_torch_is_no_wait() -> None:
    """While torch is imported, its files are on the stack."""
    importing = hang_rank(0, IN_TORCH, of("<frozen importlib._bootstrap>", "_load"), here("import torch"), busy=True)
    case = well("hang_rank_works", "not seen", hang=hang(importing, replace(importing, rank=1)))
    case.verify()


def test_ranks_that_import_do_not_wait() -> None:
    """Nor do nothing: the disk may be slow."""
    inner = replace(of(LIBRARY + "torch/distributed/tensor/ops.py", "<module>"))
    importing = hang_rank(0, inner, of("<frozen importlib._bootstrap>", "_load"), here("import torch"))
    for check in ("hang_collective_stuck", "hang_rank_elsewhere", "hang_rank_works"):
        well(check, "not seen", hang=hang(importing, replace(importing, rank=1))).verify()
    informs("hang_rank_works", "rank 0 works", "ddp_timeout", hang=hang(importing, WAITS)).verify()


def test_ranks_that_have_all_ended_are_no_hang() -> None:
    """On a crowded machine their launcher notices it seconds later."""
    ended = [replace(ASLEEP, rank=rank, state=None) for rank in (0, 1)]
    assert _failing(hang(*ended)) == []
    assert _failing(hang(WAITS, ended[1])) == ["hang_rank_gone"]


def test_a_sleep_of_all_ranks_is_no_hang() -> None:
    well("hang_rank_sleeps", "not seen", hang=hang(replace(ASLEEP, rank=0), ASLEEP)).verify()


@pytest.mark.parametrize("idle", [here("jobs.get()"), here("server.accept()")])
def test_ranks_that_have_not_trained_may_wait_for_requests(idle: StackFrame) -> None:
    kind = of("/usr/lib/python3.11/queue.py" if "get" in idle.text else "/usr/lib/python3.11/socket.py", "get")
    ranks = [hang_rank(rank, kind, idle, steps=None, waits_for="read of socket:[7]") for rank in (0, 1)]
    assert _failing(hang(*ranks)) == []
    assert _failing(hang(*(replace(rank, steps=20) for rank in ranks))) != []
    assert _failing(hang(WAITS, ranks[1])) != []  # a rank that does not wait for requests waits for it
    locked = [replace(rank, waits_for="flock of /home/me/.cache/data.lock") for rank in ranks]
    assert _failing(hang(*locked)) == ["hang_rank_in_lock"]


def _failing(found: Hang) -> list[str]:
    return [one.check.id for one in engine.judge(Snapshot(hang=found), selections.HANG) if one.problem]
