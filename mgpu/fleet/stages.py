"""Test whether the nodes train: each alone, then in pairs, then all of them together.

Each stage runs `mgpu smoke-test` at the quick level with a config derived from the job's, on nodes that passed the
previous stage. Its time limits come from the nodes themselves: if one node alone takes T, a hang is at least 1.5 T.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import engine
from mgpu.engine import selections
from mgpu.fleet import derived_config, groups
from mgpu.fleet.groups import Group
from mgpu.fleet.workers import Workers
from mgpu.snapshot import Config
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus

# Below the ports that Linux uses for outgoing connections (from 32768), as in the job script.
_FIRST_PORT, _PORTS = 12000, 20000
PORTS_TRIED = 64
_LEAST_S = 15.0  # to start, and without progress
_SLOWER = 1.5  # factor over a node's test alone: a rendezvous is added, and a pair is slower than its slower node
_MORE_S = 60.0  # after the start, for the stages of the quick level (10 s if nothing is wrong)
_ANSWER_S = 20.0  # beyond a test's own limit, for its cleanup and its answer
_ALONE_PATIENCE_S = 30.0
_TURNS = 3  # attempts with all nodes, each without the node that the previous one blamed


@dataclass(frozen=True)
class Stage:
    """The result of one step of the pre-flight."""

    name: str
    status: StageStatus
    seconds: float | None
    detail: str


@dataclass(frozen=True)
class Bad:
    """A node that should not run ranks, and why."""

    node: str
    stage: str
    id: str  # of the check that failed; "" if none did
    reason: str
    fix: str = ""


@dataclass
class Tested:
    """The result of the stages."""

    good: list[str]
    bad: list[Bad] = field(default_factory=list)
    trouble: str = ""  # why the good nodes still cannot train together


def first_port(job: str) -> int:
    """Return the rendezvous port of a job; other jobs on the same node mostly have another one."""
    number = int("".join(filter(str.isdigit, job)) or 0)
    return _FIRST_PORT + number % _PORTS


def some_ports(first: int) -> range:
    """Return the ports for the groups, starting at `first`."""
    return range(first, first + PORTS_TRIED)


@dataclass
class Testing:
    """The stages of one pre-flight."""

    workers: Workers
    config: Config
    ranks_on: Callable[[str], int]  # node -> its ranks
    need: int
    rehearsal: bool  # --cpu: the ranks do not use the GPUs
    ports: Iterator[int]
    busy: Mapping[str, Sequence[int]]  # node -> ports in use on it
    addresses: Mapping[str, str]  # node -> where the others reach it; nodes without one: by their name
    interfaces: Mapping[str, str]  # node -> the interface for its ranks, unless it has one set
    options: Sequence[str]  # for every smoke test
    start_s: float
    stall_s: float
    folder: Path
    left_s: Callable[[], float]  # time left for the pre-flight; raises if there is none
    began: Callable[[str, Sequence[Group]], None]
    ended: Callable[[str, StageStatus, str], None]
    show: Callable[[int, int, Sequence[str]], None]
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the last attempt
    tried: list[Group] = field(default_factory=list)  # groups that passed
    slowest_s: float = 0.0  # the longest test of a node alone

    def run(self, nodes: Sequence[str]) -> Tested:
        """Run all stages, as long as enough nodes are left."""
        found = self._test_alone(nodes)
        if len(found.good) < self.need:
            self._skip("too few nodes left", "pairs", "together")
            return found
        if self.need < 2:
            self._skip("only one node will train", "pairs", "together")
            return found
        self._pairs(found)
        if len(found.good) < self.need:
            self._skip("too few nodes left", "together")
            return found
        self._together(found)
        return found

    # ---- the stages

    def _test_alone(self, nodes: Sequence[str]) -> Tested:
        single: list[Group] = [(node,) for node in nodes]
        self.began("alone", single)
        failures = self._try("alone", single)
        found = Tested([node for node in nodes if failures[node,] is None])
        found.bad = [self._bad_node(node, "alone", why) for (node,), why in failures.items() if why is not None]
        self.slowest_s = max((self.answers[node]["seconds"] for node in found.good), default=0.0)
        self.ended("alone", "fail" if found.bad else "ok", _format_passed(len(found.good), len(nodes), "node"))
        return found

    def _pairs(self, found: Tested) -> None:
        self.began("pairs", groups.pairs(found.good))
        answers: dict[str, dict[str, Any]] = {}

        def attempt(wanted: Sequence[Group]) -> Mapping[Group, str | None]:
            failures = self._try("pairs", wanted)
            answers.update({n: self.answers.get(n, {}) for g in wanted if failures[g] is not None for n in g})
            return failures

        sorted_out = groups.sort_out(found.good, attempt)
        self.tried = [group for group in sorted_out.tried if group not in sorted_out.failed]
        self.answers = answers
        found.bad += [self._bad_node(node, "pairs", why) for node, why in sorted_out.bad.items()]
        found.good = sorted_out.good
        passed = len(sorted_out.tried) - len(sorted_out.failed)
        unit = "group" if any(len(g) > 2 for g in sorted_out.tried) else "pair"
        detail = _format_passed(passed, len(sorted_out.tried), unit)
        self.ended("pairs", "fail" if sorted_out.bad else "ok", detail)

    def _together(self, found: Tested) -> None:
        """Test the nodes that will train, together; again without a node that is blamed, if there is a replacement."""
        why: str | None = None
        for _ in range(_TURNS):
            chosen = tuple(found.good[: self.need])
            if chosen in self.tried:
                self._skip(f"these {len(chosen)} nodes already passed together", "together")
                return
            self.began("together", [chosen])
            why = self._try("together", [chosen])[chosen]
            if why is None:
                self.ended("together", "ok", f"{len(chosen)} nodes, {sum(map(self.ranks_on, chosen))} ranks")
                return
            named = self._blamed_node(chosen)
            if named is None:
                found.trouble = why
                break
            found.bad.append(self._bad_node(named, "together", why))
            found.good.remove(named)
            if len(found.good) < self.need:
                break
        else:  # the remaining nodes were never tested together
            found.trouble = f"{_TURNS} attempts with all nodes failed, each because of another node; the last: {why}"
        self.ended("together", "fail", why or "")

    def _blamed_node(self, chosen: Sequence[str]) -> str | None:
        """Return a node that did not answer, or the one node that all blame; else None."""
        if silent := [node for node in chosen if node in self.workers.lost]:
            return silent[0]
        hosts = {
            str(culprit["host"]).partition(".")[0]
            for node in chosen
            if (culprit := self.answers.get(node, {}).get("culprit")) and culprit.get("host")
        }
        of_host = {str(self.workers.greetings[node]["host"]).partition(".")[0]: node for node in chosen}
        named = {of_host[host] for host in hosts if host in of_host} if len(of_host) == len(chosen) else set()
        return named.pop() if len(named) == 1 else None

    def _skip(self, why: str, *names: str) -> None:
        for name in names:
            self.ended(name, "skip", why)

    # ---- one attempt

    def _try(self, stage: str, wanted: Sequence[Group]) -> dict[Group, str | None]:
        """Run the smoke test of all groups at the same time; return why each failed, or None if it passed."""
        able = [group for group in wanted if not any(node in self.workers.lost for node in group)]
        alone = stage == "alone"
        start_s = self.start_s if alone else max(_LEAST_S, _SLOWER * self.slowest_s)
        limit_s = start_s + _MORE_S
        nodes = [node for group in able for node in group]
        (self.folder / stage).mkdir(exist_ok=True)
        self.answers = {}
        if nodes:
            self.answers = self.workers.ask(
                self._test_command(stage, able, start_s, limit_s),
                min(self.left_s(), limit_s + _ANSWER_S),
                of=nodes,
                show=self.show,
                patience_s=_ALONE_PATIENCE_S if alone else None,
            )
        self.left_s()
        return {group: self._failure_reason(group) for group in wanted}

    def _test_command(self, stage: str, able: Sequence[Group], start_s: float, limit_s: float) -> dict[str, Any]:
        """Return the command for the workers: the smoke test of each group on its nodes."""
        limits = {"--start-timeout": start_s, "--stall-timeout": self.stall_s, "--timeout": limit_s}
        options = ["--json", "--level", "quick", "--no-bisect", "--no-stamp", "--no-scaling"]
        for option, seconds in limits.items():
            options += [option, f"{seconds:g}"]
        return {
            "do": "test",
            "environment": {"ACCELERATE_USE_CPU": "true"} if self.rehearsal else {},
            "interfaces": dict(self.interfaces),
            "options": [*options, *self.options],
            "limit_s": limit_s,
            "groups": [self._group_command(group, self.folder / stage) for group in able],
        }

    def _group_command(self, group: Group, folder: Path) -> dict[str, Any]:
        text, own = derived_config.of_nodes(
            self.config, self.ranks_on, group, self._port(group[0]), self.addresses.get(group[0], "")
        )
        return {"nodes": list(group), "config": text, "own_configs": own, "folder": str(folder)}

    def _port(self, node: str) -> int:
        """Return the next free port on the node of a group's rendezvous."""
        taken = self.busy.get(node, ())
        free = (port for port in itertools.islice(self.ports, PORTS_TRIED) if port not in taken)
        return next(free, None) or next(self.ports)

    def _failure_reason(self, group: Group) -> str | None:
        """Return why a group failed, from the node with the most specific reason; None if it passed."""
        reasons = []
        for node in group:
            if lost := self.workers.lost.get(node):
                reasons.append((0, f"{node}: {lost}" if len(group) > 1 else lost))
                continue
            answer = self.answers.get(node, {})
            if answer.get("verdict") == "passed":
                continue
            problem = next(iter(answer.get("problems") or ()), None)
            if problem is None:
                reasons.append((2, str(answer.get("error") or "the smoke test was inconclusive")))
            else:
                echo = "echo" in engine.tags(problem["id"], selections.SMOKE)  # the other node's reason is better
                reasons.append((3 if echo else 1, f"{problem['id']}: {problem['title']}"))
        return min(reasons)[1] if reasons else None

    def _bad_node(self, node: str, stage: str, why: str) -> Bad:
        problems = self.answers.get(node, {}).get("problems") or [{}]
        fix = next((fix["text"] for fix in problems[0].get("fix", ()) if fix.get("text")), "")
        return Bad(node, stage, str(problems[0].get("id", "")), why, fix)


def _format_passed(good: int, total: int, unit: str) -> str:
    return f"{good} of {counted(total, unit)} passed"
