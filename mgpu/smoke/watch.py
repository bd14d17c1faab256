"""Where is each rank, is it alive, and who is holding up the others?

Reads the ranks' journals (`smoke/ranks/journal.py` writes them) and their processes; judges nothing but the clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mgpu import file_reading
from mgpu.engine import Status
from mgpu.process import processes
from mgpu.process.leftover_files import error_folder
from mgpu.smoke.ranks import RUNGS
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Rank, decode, hints_of
from mgpu.structured_text import json_of

_MOST_AT_ONCE = 4 << 20  # bytes of a journal; a rank writes some 10 KiB in all
_LARGEST_REPORT = 8 << 20  # bytes; a rank among 1,000 writes some 100 KiB
# How long the launcher may take to notice that a rank is gone and to end by itself: torchrun looks every 0.1 s, ends
# the other ranks and prints which failed (0.3-1 s measured with torch 2.13; 3 s on a machine with too much to do).
_NOTICE_S = 5.0
# … and to end when every rank is through: 0.5 s measured, 3 s with too much to do; several hosts wait for each other.
_END_S = 15.0

# Of each rank: its process state and the age of its heartbeat in seconds.
States: TypeAlias = "Mapping[int, tuple[str | None, float | None]]"


@dataclass
class _Journal:
    """What one rank has written so far."""

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
    """A run folder while the ranks of this node write into it."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.folder = orders, Path(orders.folder)
        here = orders.world // orders.nodes
        self.journals = {number: _Journal() for number in range(orders.node * here, (orders.node + 1) * here)}
        self.progress = time.monotonic()
        self.interrupted = False  # somebody ended the run
        self.started: dict[int, processes.Rank] = {}  # processes.ranks_under the launcher
        self._since: dict[tuple[int, str], float] = {}  # when a rank was first seen gone, or stopped without heartbeat

    def read(self) -> None:
        """Take in what was written since the last time."""
        for number, journal in self.journals.items():
            try:
                path = self.folder / f"rank{number}.jsonl"
                data = file_reading.read_part(path, most=_MOST_AT_ONCE, start=journal.offset)
            except OSError:
                continue
            end = data.rfind(b"\n") + 1
            whole = data[:end] if end or len(data) < _MOST_AT_ONCE else data  # the journal has no such line
            journal.offset += len(whole)
            for line in whole.splitlines():
                try:
                    self._take(journal, json_of(line))
                except (ValueError, KeyError, TypeError):
                    continue  # cut off by a full disk, or written by something else
            if whole:
                self.progress = time.monotonic()

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
        """Seconds since the rank's last heartbeat; None before the first."""
        try:
            return max(0.0, time.time() - (self.folder / f"rank{number}.beat").stat().st_mtime)
        except OSError:
            return None

    def stalled(self) -> bool:
        """Nobody moves: no rank wrote anything for its limit, or one that is not through has no heartbeat.

        A rank that is gone is the launcher's to notice: `lost`.
        """
        if any(map(self._gone, self.journals)):
            return False
        quiet = time.monotonic() - self.progress
        begun = [journal for journal in self.journals.values() if journal.order]
        limits = [journal.limit_s or self.orders.stall_s for journal in begun if not self._through(journal)]
        limit = max(limits, default=max(self.orders.stall_s, _END_S))
        if len(begun) < len(self.journals):
            limit = max(limit, self.orders.start_limit_s)  # the launcher itself imports torch before it starts a rank
        if quiet > limit:
            return True
        return any(self._frozen(number) for number in self.journals)

    def _frozen(self, number: int) -> bool:
        """A rank whose heartbeat is missing. A step that may take long (an import from a cold file system holds the
        interpreter's lock) may silence it as long, unless its process is known to be stopped."""
        journal, silent = self.journals[number], self.silence(number)
        if self._through(journal):
            return False
        stopped = self.state(number) in ("stopped", "traced")
        if silent is None:  # it has not begun
            silent = self._lasts(number, "stopped", stopped)
        if silent <= self.orders.stall_s:
            return False
        return stopped or silent > (journal.limit_s or self.orders.stall_s)

    def lost(self) -> bool:
        """Whether a rank is gone before it was through, and the launcher has had time to notice."""
        gone = [self._lasts(number, "gone", self._gone(number)) for number in self.journals]
        return max(gone, default=0.0) > _NOTICE_S

    def _gone(self, number: int) -> bool:
        there = not self.pid(number) or self.state(number) not in (None, "ended")
        return not there and not self._through(self.journals[number])

    def _lasts(self, number: int, what: str, now: bool) -> float:
        """For how long something has been seen of a rank."""
        if not now:
            self._since.pop((number, what), None)
            return 0.0
        return time.monotonic() - self._since.setdefault((number, what), time.monotonic())

    def _through(self, journal: _Journal) -> bool:
        return self.orders.rungs[-1] in journal.done

    def unheard(self) -> bool:
        """Whether there are ranks of which nothing is known yet."""
        return any(self.pid(number) is None for number in self.journals)

    def pid(self, number: int) -> int | None:
        """The rank's process: as it introduced itself, else as it was found."""
        found = self.started.get(number)
        pid: int | None = self.journals[number].report.get("pid", found.pid if found else None)
        return pid

    def state(self, number: int) -> str | None:
        """Its state now; None when it is not there."""
        pid = self.pid(number)
        return processes.state_of(pid) if pid else None

    def listeners(self) -> dict[int, int]:
        """The ranks that answer when asked, with their processes: the ones that introduced themselves."""
        return {n: journal.report["pid"] for n, journal in self.journals.items() if "pid" in journal.report}

    def pids(self) -> set[int]:
        """The ranks' processes, as far as they are known."""
        return {pid for pid in map(self.pid, self.journals) if pid}

    def wrote(self) -> set[str]:
        """What is to be removed after the ranks: what they said, and where torchrun wants their errors."""
        said = {path for journal in self.journals.values() for path in journal.report.get("wrote", ())}
        return said | {error_folder(rank.error_file) for rank in self.started.values() if rank.error_file}

    def states(self) -> States:
        """Each rank's process state and the age of its heartbeat, now."""
        return {
            number: ((self.state(number) or "gone") if self.pid(number) else None, self.silence(number))
            for number in self.journals
        }

    def rung(self, rung: str) -> tuple[Status | None, str, float | None]:
        """A rung over all ranks: ok when all passed it, fail when one failed, None while it is open."""
        done = [journal.done[rung] for journal in self.journals.values() if rung in journal.done]
        failed = [step for step in done if not step["ok"]]
        if failed:
            return "fail", failed[0]["detail"], None
        if len(done) == len(self.journals):
            detail = done[0]["detail"] if rung != RUNGS[0] else f"{len(done)} of {len(done)} up"
            return "ok", detail, max(step["seconds"] for step in done)
        return None, "", None

    def reached(self) -> str:
        """The lowest rung that not every rank has passed."""
        return next((rung for rung in self.orders.rungs if self.rung(rung)[0] != "ok"), self.orders.rungs[-1])

    def where_they_are(self) -> str:
        """Each rank's last word, for the line of a rung that was not finished."""
        some = list(self.journals.items())[:8]
        words = [f"rank {number}: {journal.word or 'not heard of'}" for number, journal in some]
        return "; ".join(words)

    def rank(self, number: int, states: States, exits: Mapping[int, int]) -> Rank:
        """One rank as a fact. What its report holds under the name of a field of Rank is that field."""
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
        told = {key: value for key, value in report.items() if key in hints_of(Rank)}
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
        }
        return decode(Rank, told | seen, f"rank{number}.json")
