"""Which programs hang, and what has to be said about each: the rank, its line, and how it keeps the others waiting."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HANGS = Path(__file__).parent
PROGRESS = "progress of the table"  # of a program, where tests/hangs/table.py asks for it
_EXTRA = {"libraries.start_trainer": "transformers", "libraries.start_lightning": "lightning"}
# Check -> kind of the verdict.
KINDS = {
    "hang_rank_sleeps": "sleep", "hang_rank_in_loader": "loader", "hang_rank_in_lock": "lock",
    "hang_rank_reads": "read", "hang_rank_asks_for_input": "input", "hang_rank_waits_for_process": "child",
    "hang_rank_in_kernel": "kernel", "hang_rank_stopped": "stopped", "hang_rank_left": "left",
    "hang_collectives_differ": "differ", "hang_rank_behind": "behind", "hang_collective_stuck": "everybody",
    "hang_host_unreachable": "unreachable", "hang_rank_works": "busy", "hang_rank_in_debugger": "debugger",
    "hang_rank_elsewhere": "idle", "hang_rank_gone": "gone",
}  # fmt: skip

_SENT = re.compile(r"of (\d+) (float|long)\b")  # as the flight recorder has it


def _words(found: re.Match[str]) -> str:
    kind = {"float": "float32", "long": "int64"}[found[2]]
    return f"of {found[1]} {kind} value{'' if found[1] == '1' else 's'}"


@dataclass(frozen=True)
class Planted:
    """A program that hangs. `{here}` is its line that ends in `# HERE`, `{there}` in `# THERE`: another rank's.

    `{step}` is the line of the training loop of all programs.
    """

    program: str  # FILE.NAME
    check: str
    says: str  # in the first message: the rank, its line, and how; "..." where it varies
    rank: int | None = 1  # that keeps the others waiting; None: two ranks differ, and neither is the odd one
    ranks: int = 2
    at: bool = True  # whether {here} is the suspect's own line, as JSON has it
    cause: str = ""  # the probable cause after the run, if it is another one
    always: bool = False  # not only with MGPU_HANGS=all
    others: Mapping[int, str] = field(default_factory=dict)  # rank that follows -> its line, "LINE or LINE"

    @property
    def id(self) -> str:
        """Name in the tests and in the table."""
        return f"{self.program}-{self.ranks}"

    @property
    def line(self) -> str:
        """ "programs.py:31"."""
        return line_of(self.program)

    @property
    def message(self) -> str:
        """What is said, with the line."""
        return self.filled(self.says)

    def filled(self, text: str) -> str:
        """Return a text with the lines."""
        there = line_of(self.program, "THERE") if "{there}" in text else ""
        return _SENT.sub(_words, text).format(here=self.line, there=there, step=_STEP)

    @property
    def missing(self) -> str:
        """The package that it needs and that is not installed, or ""."""
        package = _EXTRA.get(self.program, "")
        return package if package and importlib.util.find_spec(package) is None else ""


def line_of(program: str, mark: str = "HERE") -> str:
    """Return "programs.py:31": the program's line that ends in `# HERE`, also in a function just before it."""
    file, _, name = program.partition(".")
    lines = (HANGS / f"{file}.py").read_text("utf-8").splitlines()
    start = lines.index(f"def {name}(rank: int) -> None:")
    end = next((n for n, line in enumerate(lines[start:], start) if line.startswith("@program")), len(lines))
    inside = [n for n, line in enumerate(lines[start:end], start + 1) if f"# {mark}" in line]
    before = [n for n, line in enumerate(lines[:start], 1) if f"# {mark}" in line]
    return f"{file}.py:{inside[0] if inside else before[-1]}"


def _line_of_step() -> str:
    lines = (HANGS / "training.py").read_text("utf-8").splitlines()
    return f"training.py:{next(n for n, line in enumerate(lines, 1) if line.endswith('# STEP'))}"


_STEP = _line_of_step()
DIFFER, LEFT, LOCK = "hang_collectives_differ", "hang_rank_left", "hang_rank_in_lock"
SLEEPS, BEHIND, CHILD = "hang_rank_sleeps", "hang_rank_behind", "hang_rank_waits_for_process"
LOADER, READS = "hang_rank_in_loader", "hang_rank_reads"
# fmt: off
MATRIX = (
    # somewhere else; the first also in test_control_c_asks_the_ranks_first
    Planted("programs.sleeps", SLEEPS, "rank 1 sleeps at {here}"),
    Planted("programs.sleeps", SLEEPS, "rank 1 sleeps at {here}", ranks=4),
    Planted("others.polls_file", SLEEPS, "rank 1 sleeps at {here}"),
    Planted("others.disk_full", SLEEPS, "rank 0 sleeps at {here}", rank=0),
    Planted("others.start_late", SLEEPS, "rank 1 sleeps at {here}. Rank 0 waits in init_process_group"),
    Planted("libraries.fsdp2", SLEEPS, "rank 1 sleeps at {here}. Rank 0 waits in all_gather"),
    Planted("libraries.fsdp2", SLEEPS, "rank 1 sleeps at {here}. Ranks 0, 2 and 3 wait in all_gather", ranks=4),
    Planted("libraries.start_lightning", SLEEPS, "rank 1 sleeps at {here}"),
    Planted("programs.loader_worker_in_lock", LOADER, "at {there}. Rank 0 waits in all_reduce #... of 420 float "
            "({step}). Its worker does nothing at {here}", at=False, always=True),
    Planted("programs.loader_in_rank", LOADER, "at {here}"),
    Planted("programs.lock", LOCK, "rank 1 waits for a lock at {here}"),
    Planted("programs.joins_thread", LOCK, "rank 1 waits for a lock at {here}"),
    Planted("programs.file_lock", LOCK, "rank 1 waits for a lock on a file ("),
    Planted("others.empty_queue", LOCK, "rank 1 waits for a lock at {here}"),
    Planted("others.waits_for_event", LOCK, "rank 1 waits for a lock at {here}"),
    Planted("others.pool_of_dead", LOCK, "rank 1 waits for a lock at {here}"),
    Planted("ends.finalizer", LOCK, "rank 1 waits for a lock at {here}"),
    Planted("programs.reads_fifo", READS, "at {here}", always=True),
    Planted("programs.reads_socket", READS, "rank 1 waits for a file, pipe or socket"),
    Planted("others.holds_gil", READS, "(read of pipe:"),
    Planted("programs.asks", "hang_rank_asks_for_input", "rank 1 waits for input at {here}"),
    Planted("programs.waits_for_child", CHILD, "rank 1 waits for a process that it has started at {here}"),
    Planted("others.silent_child", CHILD, "rank 1 waits for a process that it has started at {here}"),
    Planted("others.never_answers", "hang_rank_in_kernel", "rank 1 is in uninterruptible sleep"),
    Planted("ends.spawns_into_fifo", "hang_rank_in_kernel", "rank 1 is in uninterruptible sleep"),
    # absent
    Planted("programs.stopped", "hang_rank_stopped", "rank 1 is stopped (SIGSTOP). Rank 0 waits in all_reduce #14 of "
            "420 float ({step})", at=False, always=True),
    Planted("programs.raises_and_destroys", LEFT, "rank 1 has left the training at {here}: ValueError",
            cause="log_exception", always=True),
    Planted("others.raises_with_thread", LEFT, "rank 1 has left the training at {here}: KeyError",
            cause="log_exception"),
    Planted("programs.returns_early", LEFT, "rank 1 has left the training: its script has returned. Rank 0 waits in "
            "all_reduce #14 of 420 float ({step}). Its last collective was all_reduce #13 of 420 float at {step}",
            at=False),
    Planted("ends.start_barrier_at_exit", LEFT, "rank 1 has left the training: its script has returned, and runs an "
            "exit function at {there}. Rank 0 waits in barrier #12 ({here}). Its last collective was all_reduce #11 of "
            "420 float at {step}", at=False),
    Planted("ends.destroys_early", SLEEPS, "rank 1 sleeps at {here}"),
    Planted("ends.destroys_alone", LEFT, "rank 0 has left the training", rank=0),
    Planted("ends.exits_quietly", "hang_rank_gone", "rank 1 has ended: there is no such process any more. Rank 0 "
            "waits in all_reduce #14 of 420 float ({step})", at=False),
    # all wait
    Planted("programs.skipped_collective", DIFFER, "rank 0 called all_reduce #14 of 420 float at {here}, but rank 1 "
            "called all_reduce #14 of 420 float at {step}.", rank=None, at=False),
    Planted("programs.skipped_collective", DIFFER, "rank 1 called all_reduce #14 of 420 float at {step}, but ranks 0, "
            "2 and 3 called all_reduce #14 of 420 float at {here}.", at=False, ranks=4, always=True),
    Planted("programs.other_order", DIFFER, "rank 0 called all_reduce #10 of 3 float at {there}, but rank 1 called "
            "broadcast #10 of 3 float at {here}.", rank=None, at=False),
    Planted("programs.lone_barrier", DIFFER, "rank 0 called barrier #14 at {here}, but rank 1 called all_reduce #14 of "
            "420 float at {step}.", rank=None, at=False),
    Planted("programs.lone_backward", DIFFER, "rank 0 called all_reduce #11 of 420 float at {there}, but rank 1 called "
            "barrier #11 at {here}.", rank=None, at=False),
    Planted("programs.lone_object", DIFFER, "rank 0 called all_gather #14 of 1 long at {here}, but rank 1 called "
            "all_reduce #14 of 420 float at {step}.", rank=None, at=False),
    Planted("programs.fewer_batches", DIFFER, "rank 0 called all_reduce #14 of 420 float at {step}, but rank 1 called "
            "barrier #14 at {here}.", rank=None, at=False, always=True),
    Planted("programs.fewer_batches", DIFFER, "rank 0 called all_reduce #14 of 420 float at {step}, but ranks 1, 2 and "
            "3 called barrier #14 at {here}.", rank=0, at=False, ranks=4),
    Planted("others.lone_object_list", DIFFER, "rank 0 called all_reduce #12 of 420 float at {step}, but rank 1 called "
            "broadcast #12 of 1 long at {here}.", rank=None, at=False),
    Planted("others.loss_branch", DIFFER, "rank 0 called all_reduce #13 of 420 float at {there}, but rank 1 called "
            "barrier #13 at {here}.", rank=None, at=False),
    Planted("others.no_sync_on_one", DIFFER, "rank 0 called all_reduce #13 of 420 float at {there}, but rank 1 called "
            "barrier #13 at {here}.", rank=None, at=False),
    Planted("libraries.start_accelerate_gather", DIFFER, "rank 0 called all_gather #11 of 1 float at {here}, but rank "
            "1 called all_reduce #11 of 420 float at {there}.", rank=None, at=False),
    Planted("libraries.start_accelerate_wait", DIFFER, "rank 0 called barrier #11 at {here}, but rank 1 called "
            "all_reduce #11 of 420 float at {there}.", rank=None, at=False),
    Planted("libraries.start_accelerate_save", DIFFER, "rank 0 called barrier #11 at {here}, but rank 1 called "
            "all_reduce #11 of 420 float at {there}.", rank=None, at=False),
    Planted("libraries.start_trainer", DIFFER, "rank 0 called barrier #14 at {here}, but rank 1 called all_reduce #14 "
            "of 21 float at {there}.", rank=None, at=False),
    Planted("programs.lone_new_group", BEHIND, "waits in new_group at {here}", rank=0),
    Planted("others.subset", BEHIND, "rank 0 did not start all_reduce #12 of 420 float, and waits in "
            "all_reduce #1 of 7 float at {here}", rank=0, ranks=4),
    Planted("others.receives", BEHIND, "rank 1 did not start all_reduce #12 of 420 float, and waits in "
            "recv at {here}"),
    Planted("others.start_wrong_number", "hang_collective_stuck", "all 2 ranks wait in init_process_group at {here}",
            rank=None, at=False),
)
# Those that may go on: reported as what they are, and not stopped.
REPORTED = (
    Planted("others.endless", "hang_rank_works", "rank 1 works for "),
    # before the line that follows; with Python 3.13 and later at the call
    Planted("others.debugs", "hang_rank_in_debugger", "rank 1 is held by a debugger at others.py:", at=False),
)
# Those that torch or the launcher ends at once: what is the cause, and which rank failed.
ENDED = (
    Planted("ends.killed", "run_rank_killed", "rank 1", at=False, others={0: "{step}"}),
    Planted("ends.exits", "run_rank_left_early", "{step} in steps", at=False),
    Planted("ends.raises", "log_exception", "{here}", at=False),
    Planted("ends.other_shape", "log_collectives_differ", "", rank=None, at=False, others={1: "{here} or {step}"}),
    Planted("ends.other_dtype", "log_collectives_differ", "", rank=None, at=False, others={1: "{here}"}),
)
# fmt: on
