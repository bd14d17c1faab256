"""Where is each rank, is it alive, and who is holding up the others?

Reads the ranks' journals (`smoke/ranks/journal.py` writes them) and their processes; judges nothing but the clock.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu.engine import Status
from mgpu.launch import processes
from mgpu.smoke.ranks import RUNGS
from mgpu.smoke.ranks.orders import Orders
from mgpu.snapshot import Rank, Ranks, decode, hints_of

# A heartbeat comes every 0.2 s; a rank on a loaded machine may miss some. Less than the shortest stall limit.
_ALIVE_S = 1.0


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

    def read(self) -> None:
        """Take in what was written since the last time."""
        for number, journal in self.journals.items():
            try:
                with (self.folder / f"rank{number}.jsonl").open("rb") as file:
                    file.seek(journal.offset)
                    data = file.read()
            except OSError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            journal.offset += len(whole)
            for line in whole.splitlines():
                self._take(journal, json.loads(line))
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
        """Nobody moves: no rank wrote anything for its limit, or one that is not through has no heartbeat."""
        quiet = time.monotonic() - self.progress
        begun = [journal for journal in self.journals.values() if journal.order]
        limits = [journal.limit_s or self.orders.stall_s for journal in begun if not self._through(journal)]
        limit = max(limits, default=self.orders.stall_s)
        if len(begun) < len(self.journals):
            limit = max(limit, self.orders.start_limit_s)  # the launcher itself imports torch before it starts a rank
        if quiet > limit:
            return True
        return any(self._frozen(number) for number in self.journals)

    def _frozen(self, number: int) -> bool:
        """A rank whose heartbeat is missing. A step that may take long (an import from a cold file system holds the
        interpreter's lock) may silence it as long, unless its process is known to be stopped."""
        journal, silent = self.journals[number], self.silence(number)
        if silent is None or silent <= self.orders.stall_s or self._through(journal):
            return False
        if silent > (journal.limit_s or self.orders.stall_s):
            return True
        return processes.state_of(journal.report.get("pid", 0)) in ("stopped", "traced")

    def _through(self, journal: _Journal) -> bool:
        return self.orders.rungs[-1] in journal.done

    def pids(self) -> list[int]:
        """The ranks' processes, as far as they introduced themselves."""
        return [journal.report["pid"] for journal in self.journals.values() if "pid" in journal.report]

    def states(self) -> dict[int, tuple[str | None, float | None]]:
        """Each rank's process state and the age of its heartbeat, now."""
        found: dict[int, tuple[str | None, float | None]] = {}
        for number, journal in self.journals.items():
            pid = journal.report.get("pid")
            state = (processes.state_of(pid) or "gone") if pid else None
            found[number] = (state, self.silence(number))
        return found

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

    def rank(
        self, number: int, states: Mapping[int, tuple[str | None, float | None]], exits: Mapping[int, int]
    ) -> Rank:  # fmt: skip
        """One rank as a fact. What its report holds under the name of a field of Rank is that field."""
        journal = self.journals[number]
        try:
            report = json.loads((self.folder / f"rank{number}.json").read_text("utf-8"))
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
            "steps": steps,
            "last_word": journal.word,
            "last_word_order": journal.order,
            "process_state": state,
            "silent_s": silent,
            "stack": self._stack(number),
            "finished": finished,
            "failed_at": journal.failed_at,
            "exit_code": exits.get(number),
        }
        return decode(Rank, told | seen, f"rank{number}.json")

    def _stack(self, number: int) -> str | None:
        try:
            return (self.folder / f"rank{number}.stack").read_text("utf-8", "replace").strip() or None
        except OSError:
            return None


def culprit(ranks: Ranks) -> Rank | None:
    """The rank that holds up the others: stopped or without heartbeat first, then one that was killed, then the one
    that failed first, then the one that came least far while others are further. None when nobody stands out."""
    open_ranks = [rank for rank in ranks.ranks if not rank.finished]
    for rank in open_ranks:
        if rank.process_state in ("stopped", "traced"):
            return rank
    silent = [rank for rank in open_ranks if rank.silent_s is not None and rank.silent_s > _ALIVE_S]
    if ranks.ended in ("stalled", "timed_out") and silent:
        return max(silent, key=lambda rank: rank.silent_s or 0.0)
    killed = [rank for rank in open_ranks if was_killed(rank)]
    if killed:
        return killed[0]
    failed = [rank for rank in ranks.ranks if rank.failed_at is not None]
    if failed:
        return min(failed, key=lambda rank: rank.failed_at or 0.0)
    missing = [rank for rank in open_ranks if rank.last_word_order == 0]
    if missing:
        return missing[0]
    if open_ranks:
        behind = min(open_ranks, key=lambda rank: rank.last_word_order)
        if any(rank.last_word_order > behind.last_word_order for rank in ranks.ranks):
            return behind
    return None


def was_killed(rank: Rank) -> bool:
    """Ended by a signal of its own: TERM is what the launcher sends to the siblings of a rank that failed."""
    return rank.exit_code is not None and rank.exit_code < 0 and rank.exit_code != -signal.SIGTERM


def rung_of(rank: Rank, rungs: Sequence[str]) -> str:
    """The rung a rank stands on: the first it has not passed."""
    passed = {step.rung for step in rank.steps if step.ok}
    return next((rung for rung in rungs if rung not in passed), rungs[-1])
