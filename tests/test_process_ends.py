"""Is the end of a process known to the moment, and are no descriptors left?"""

from __future__ import annotations

import os
import select
import subprocess

from mgpu.launch.run_outcome import Aftermath
from mgpu.process import processes
from mgpu.process.process_ends import ProcessEnds
from mgpu.process.supervisor import Ended


def test_who_ended_first() -> None:
    """However close they end: the kernel says when, before anybody has reaped them."""
    ends = ProcessEnds()
    before = os.listdir("/proc/self/fd")
    first, second = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    for process in (first, second, first):
        ends.watch(process.pid)
    assert len(ends.descriptors) == 2
    for process in (first, second):
        process.kill()
        ready = select.select(list(ends.descriptors), [], [], 10)[0]
        ends.note(ready)
    assert ends.at[first.pid] < ends.at[second.pid]
    assert not ends.descriptors and os.listdir("/proc/self/fd") == before
    first.wait()
    second.wait()
    ends.watch(first.pid)  # there is no such process
    assert not ends.descriptors


def test_ends_take_the_place_of_samples_until_the_stop() -> None:
    after = Aftermath()
    pids = (1 << 28, (1 << 28) + 1)  # no such processes
    after.tick({rank: processes.Rank(pid) for rank, pid in enumerate(pids)})
    started = after._started
    ended = Ended(1, b"", b"", None, False, (), (), ends={pids[0]: started + 7.0, pids[1]: started + 6.9})
    run = after.run(ended, code=1, seconds=8.0)
    assert [rank.gone_s for rank in run.ranks] == [7.0, 6.9]


def test_no_end_after_the_stop_counts() -> None:
    """All ranks end then."""
    after = Aftermath()
    after.before_signal({0: processes.Rank(1 << 28)})
    ended = Ended(1, b"", b"", None, False, (), (), ends={1 << 28: after._started + 3600.0})
    assert [rank.gone_s for rank in after.run(ended, code=1, seconds=8.0).ranks] == [None]
