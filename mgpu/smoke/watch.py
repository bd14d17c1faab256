"""How far is each rank, is it alive, and which rank is holding up the others?

Reads the ranks' journals (written by `smoke/ranks/journal.py`) and their processes. Applies only time limits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mgpu import file_reading
from mgpu.engine import Status
from mgpu.process import processes
from mgpu.process.leftover_files import error_folder
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.identity import spans
from mgpu.smoke.ranks.journal import TERMINATED
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Rank, decode, hints_of
from mgpu.structured_text import json_of
from mgpu.text import counted, plural

_MOST_AT_ONCE = 4 << 20  # bytes of a journal; a rank writes some 10 KiB in all
_LARGEST_REPORT = 8 << 20  # bytes; a rank among 1,000 writes some 100 KiB
# How long the launcher may take to notice that a rank exited, and to stop: torchrun polls every 0.1 s, stops the other
# ranks and prints which failed (0.3-1 s measured with torch 2.13, 3 s on an overloaded machine).
_NOTICE_S = 5.0
# … and to exit after all ranks finished: 0.5 s measured, 3 s on an overloaded machine; nodes wait for each other.
_END_S = 15.0
_LEAST_OBSERVED = 20  # observations of a rank, 0.05 s apart
_MOST_GROUPS = 4  # groups of ranks that are listed with their progress

# For each rank: its process state and the age of its heartbeat in seconds.
States: TypeAlias = "Mapping[int, tuple[str | None, float | None]]"


@dataclass
class _Journal:
    """The content of one rank's journal so far."""

    offset: int = 0
    records: int = 0
    order: int = 0
    rung: str | None = None
    word: str | None = None
    limit_s: float | None = None
    failed_at: float | None = None
    report: dict[str, Any] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)


class View:
    """The run folder of this node while its ranks write to it."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.folder = orders, Path(orders.folder)
        self.journals = {number: _Journal() for number in orders.ranks_of(orders.node)}
        self.progress = time.monotonic()
        self.interrupted = False  # by Ctrl-C or a signal
        self.started: dict[int, processes.Rank] = {}  # processes.ranks_under the launcher
        self._seen: dict[int, list[int]] = {}  # how often each rank was observed, and how often it was stopped
        self._since: dict[
            tuple[int, str], float
        ] = {}  # when a rank was first seen exited, or stopped without heartbeat

    def read(self) -> None:
        """Read what was written since the last call."""
        for number, journal in self.journals.items():
            try:
                path = self.folder / f"rank{number}.jsonl"
                data = file_reading.read_part(path, most=_MOST_AT_ONCE, start=journal.offset)
            except OSError:
                continue
            end = data.rfind(b"\n") + 1
            whole = data[:end] if end or len(data) < _MOST_AT_ONCE else data  # no valid line is this long
            journal.offset += len(whole)
            for line in whole.splitlines():
                try:
                    self._take(journal, json_of(line))
                except (ValueError, KeyError, TypeError):
                    continue  # truncated by a full disk, or written by another program
            if whole:
                self.progress = time.monotonic()
            self._observe(number)

    def _observe(self, number: int) -> None:
        """Note whether the rank is stopped now."""
        if self._is_finished(self.journals[number]) or (state := self.state(number)) is None:
            return
        seen = self._seen.setdefault(number, [0, 0])
        seen[0] += 1
        seen[1] += state in ("stopped", "traced")

    def stopped_share(self, number: int) -> float | None:
        """Return the share of the observations in which the rank was stopped; None with too few of them."""
        observed, stopped = self._seen.get(number, (0, 0))
        return stopped / observed if observed >= _LEAST_OBSERVED else None

    @staticmethod
    def _take(journal: _Journal, record: dict[str, Any]) -> None:
        journal.order, journal.rung = record["order"], record["rung"]
        if "word" in record:
            journal.word, journal.limit_s = record["word"], record["limit_s"]
        journal.report |= record.get("identity") or {}
        if done := record.get("done"):
            journal.done[done["rung"]] = done
            if done["ok"]:
                journal.word, journal.limit_s = "done", None
            else:
                journal.failed_at = record["time"]
            journal.report |= record.get("report") or {}

    def silence(self, number: int) -> float | None:
        """Return the seconds since the rank's last heartbeat; None before the first."""
        try:
            return max(0.0, time.time() - (self.folder / f"rank{number}.beat").stat().st_mtime)
        except OSError:
            return None

    def stalled(self) -> bool:
        """Whether no rank wrote anything within its limit, or an unfinished rank has no heartbeat.

        A rank that exited early is reported by `lost`, after the launcher had time to notice.
        """
        if any(map(self._is_gone, self.journals)):
            return False
        quiet = time.monotonic() - self.progress
        begun = [journal for journal in self.journals.values() if journal.order]
        limits = [journal.limit_s or self.orders.stall_s for journal in begun if not self._is_finished(journal)]
        limit = max(limits, default=max(self.orders.stall_s, _END_S))
        if len(begun) < len(self.journals):
            limit = max(limit, self.orders.start_limit_s)  # the launcher itself imports torch before it starts a rank
        if quiet > limit:
            return True
        return any(self._is_frozen(number) for number in self.journals)

    def _is_frozen(self, number: int) -> bool:
        """Whether a rank's heartbeat is missing.

        A step with a longer limit may block the heartbeat for that long (an import from a cold file system holds the
        interpreter lock), unless the process is known to be stopped.
        """
        journal, silent = self.journals[number], self.silence(number)
        if self._is_finished(journal):
            return False
        stopped = self.state(number) in ("stopped", "traced")
        if silent is None:  # no heartbeat yet
            silent = self._seconds_since(number, "stopped", stopped)
        if silent <= self.orders.stall_s:
            return False
        return stopped or silent > (journal.limit_s or self.orders.stall_s)

    def lost(self) -> bool:
        """Whether a rank exited before it finished, and the launcher has had time to notice."""
        gone = [self._seconds_since(number, "gone", self._is_gone(number)) for number in self.journals]
        return max(gone, default=0.0) > _NOTICE_S

    def _is_gone(self, number: int) -> bool:
        there = not self.pid(number) or self.state(number) not in (None, "ended")
        return not there and not self._is_finished(self.journals[number])

    def _seconds_since(self, number: int, what: str, now: bool) -> float:
        """Return how long a condition has held for a rank, in seconds."""
        if not now:
            self._since.pop((number, what), None)
            return 0.0
        return time.monotonic() - self._since.setdefault((number, what), time.monotonic())

    def _is_finished(self, journal: _Journal) -> bool:
        return self.orders.rungs[-1] in journal.done

    def has_unknown_ranks(self) -> bool:
        """Whether the process of any rank is still unknown."""
        return any(self.pid(number) is None for number in self.journals)

    def pid(self, number: int) -> int | None:
        """Return the rank's process: from its journal, else as found below the launcher."""
        found = self.started.get(number)
        pid: int | None = self.journals[number].report.get("pid", found.pid if found else None)
        return pid

    def state(self, number: int) -> str | None:
        """Return the current state of the rank's process; None if it does not exist."""
        pid = self.pid(number)
        return processes.state_of(pid) if pid else None

    def listeners(self) -> dict[int, int]:
        """Return the ranks that can report their stacks, with their pids: those that wrote to their journal."""
        return {n: journal.report["pid"] for n, journal in self.journals.items() if "pid" in journal.report}

    def pids(self) -> set[int]:
        """Return the known pids of the ranks."""
        return {pid for pid in map(self.pid, self.journals) if pid}

    def workers(self) -> dict[int, int]:
        """Return the processes that the ranks reported as their DataLoader workers, and the rank of each."""
        return {pid: number for number, journal in self.journals.items() for pid in journal.report.get("workers", ())}

    def wrote(self) -> set[str]:
        """Return the paths to remove after the run: those the ranks listed, and torchrun's folders for errors."""
        listed = {path for journal in self.journals.values() for path in journal.report.get("wrote", ())}
        return listed | {error_folder(rank.error_file) for rank in self.started.values() if rank.error_file}

    def states(self) -> States:
        """Return each rank's current process state and the age of its heartbeat."""
        return {
            number: ((self.state(number) or "gone") if self.pid(number) else None, self.silence(number))
            for number in self.journals
        }

    def _is_terminated(self, number: int) -> bool:
        """Whether the rank received SIGTERM while it ran."""
        try:
            return (self.folder / f"rank{number}.{TERMINATED}").stat().st_size > 0
        except OSError:
            return False

    def stage(self, name: str) -> tuple[Status | None, str, float | None]:
        """Return status, detail and seconds of a stage: ok if all ranks passed, fail if one failed, None while open."""
        done = [journal.done[name] for journal in self.journals.values() if name in journal.done]
        failed = [step for step in done if not step["ok"]]
        if failed:
            return "fail", failed[0]["detail"], None
        if len(done) == len(self.journals):
            detail = done[0]["detail"] if name != STAGES[0] else f"{len(done)} of {len(done)} running"
            return "ok", detail, max(step["seconds"] for step in done)
        return None, "", None

    def reached(self) -> str:
        """Return the first stage that not every rank has passed."""
        return next((name for name in self.orders.rungs if self.stage(name)[0] != "ok"), self.orders.rungs[-1])

    def positions(self) -> str:
        """Return the last progress of the ranks, for the row of an unfinished stage."""
        return describe_positions((number, journal.word) for number, journal in self.journals.items())

    def rank(self, number: int, states: States, exits: Mapping[int, int]) -> Rank:
        """Return one rank as a fact: keys of its report that are fields of Rank, and what was seen from outside."""
        journal = self.journals[number]
        try:
            report = json_of(file_reading.read_whole(self.folder / f"rank{number}.json", most=_LARGEST_REPORT))
            finished = True
        except (OSError, ValueError):
            report, finished = journal.report, False
        state, silent = states[number]
        steps = list(journal.done.values())
        if journal.rung and journal.rung not in journal.done:
            steps.append({"rung": journal.rung, "ok": None})
        reported = {key: value for key, value in report.items() if key in hints_of(Rank)}
        seen = {
            "rank": number,
            "pid": self.pid(number),
            "steps": steps,
            "last_word": journal.word,
            "last_word_order": journal.order,
            "process_state": state,
            "silent_s": silent,
            "finished": finished,
            "failed_at": journal.failed_at,
            "exit_code": exits.get(number),
            "terminated": self._is_terminated(number),
            "stopped_share": self.stopped_share(number),
        }
        return decode(Rank, reported | seen, f"rank{number}.json")


def describe_positions(words: Iterable[tuple[int, str | None]]) -> str:
    """Group ranks by their last progress: "ranks 0-1,3: step 13 of 20; rank 2: step 12 of 20"."""
    groups: dict[str, list[int]] = {}
    for number, word in words:
        groups.setdefault(word or "no progress reported", []).append(number)
    texts = [f"{plural(len(group), 'rank')} {spans(group)}: {word}" for word, group in groups.items()]
    if len(texts) > _MOST_GROUPS:
        rest = sum(len(group) for group in list(groups.values())[_MOST_GROUPS:])
        texts[_MOST_GROUPS:] = [counted(rest, "more rank")]
    return "; ".join(texts)
