"""Find the nodes of this Slurm job that are fit for training, and what is wrong with the others.

Every node is checked (doctor, clock, folders, connections), all are compared, and the remaining ones run the smoke
test: each alone, in pairs, all together. The checks in checks/fleet and of the smoke test judge; the result is written
to a folder, from which the job script sources it (artifacts.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mgpu import engine, errors, exit_status, files, hostlist
from mgpu.check import Skip
from mgpu.config import reading
from mgpu.engine import selections
from mgpu.engine import verdict as verdicts
from mgpu.errors import MgpuError, reason
from mgpu.fleet import allocation as jobs
from mgpu.fleet import artifacts, bad_nodes, stages
from mgpu.fleet import screen as screens
from mgpu.fleet.allocation import Allocation
from mgpu.fleet.stages import Bad, Stage
from mgpu.fleet.workers import Workers
from mgpu.launchers import run_folder
from mgpu.process import scratch, signals
from mgpu.report import document, findings
from mgpu.report import output as report_output
from mgpu.report.screen import Screen
from mgpu.smoke import config_under_test as subjects
from mgpu.smoke.request import Request
from mgpu.snapshot import Fleet, NodeFault, Plan, Snapshot
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus

_WHOLE_S = 900.0  # default of --timeout; four nodes take under a minute if nothing hangs
_STALL_S = 15.0  # at most: no step of the quick level is silent for this long
_CLOCKS = 3  # queries; the one with the fastest answer is the most accurate
_CLOCK_S = 15.0
_MESH_S = 20.0  # the connection test itself ends within 11 s


def run(request: Request) -> int:
    """Run `mgpu smoke-test --slurm`; return 0 for enough good nodes, 1 for too few, 3 if unknown."""
    request.check()
    began = time.monotonic()
    job = jobs.allocation(os.environ)
    try:
        with signals.stop_once():  # the cleanup has its own time limits (Workers.close)
            return _Preflight(request, job, began).run()
    except (KeyboardInterrupt, signals.Stopped):
        code, text = signals.exit_code(), "interrupted"
    except MgpuError as error:
        if error.exit_code == errors.USAGE or request.format == "human":
            raise
        code, text = error.exit_code, error.message
    except OSError as error:  # the folder was removed, or the disk is full
        if request.format == "human":
            raise
        code, text = errors.UNKNOWN, reason(error)
    if request.format == "json":
        head = bad_nodes.envelope("unknown", code, time.monotonic() - began, ())
        whole = {**head, **bad_nodes.no_nodes(job), "error": text}
        _report(request.output, lambda stream: _put(stream, document.text(whole)))
    screens.to_stderr(text)
    return code


class _Preflight:
    """One pre-flight, from the start to the files."""

    def __init__(self, request: Request, job: Allocation, began: float) -> None:
        self.request, self.job, self.began = request, job, began
        self.deadline = began + (request.timeout_s or _WHOLE_S)
        self.progress = screens.Progress()
        self.stages: list[Stage] = []
        self._stage_began = began
        self.untried: list[str] = []  # folders that are not writable, so no token could be created
        self.trouble = ""  # a problem of all nodes
        self.port = stages.first_port(job.job)

    def run(self) -> int:
        """Run the pre-flight in its claimed folder; return the exit code."""
        with scratch.folder() as place:
            self.wanted = jobs.read_wanted(self.request, self.job, os.environ, place)
            with run_folder.claim_folder(
                _folder(self.request, self.job), run_folder.PRE_FLIGHT, named=True
            ) as self.folder:
                return self._run()

    def _run(self) -> int:
        """Run the stages in the claimed folder."""
        count = len(self.job.nodes)
        self.progress.say(
            f"pre-flight of job {self.job.job}: {counted(count, 'node')} ({hostlist.fold(self.job.nodes)}), "
            f"{self.wanted.need} needed"
        )
        with Workers(self.job) as workers:
            outcomes, bad = self._examine(workers)
            good = [node for node in self.job.nodes if node not in {one.node for one in bad}]
            tested = self._test(workers, good)
        return self._conclude(outcomes, bad, tested)

    # ---- the clock

    def _left(self) -> float:
        """Return the seconds left for the pre-flight. Raises MgpuError (124) if there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            limit = self.request.timeout_s or _WHOLE_S
            raise MgpuError(f"stopped: the pre-flight took longer than {limit:g} s (--timeout)", errors.TIMED_OUT)
        return left

    def _stage(self, name: str, status: StageStatus, detail: str) -> None:
        now = time.monotonic()
        seconds = None if status == "skip" else round(now - self._stage_began, 3)
        self._stage_began = now
        self.stages.append(Stage(name, status, seconds, detail))
        self.progress.ended(name, status, detail, seconds)

    # ---- checking and comparing

    def _examine(self, workers: Workers) -> tuple[tuple[engine.Outcome, ...], list[Bad]]:
        wanted, job = self.wanted, self.job
        self.progress.say(f"check nodes: the doctor on {counted(len(job.nodes), 'node')}")
        config = stages.derive_config(wanted.config, wanted.ranks_per_node, job.nodes[: wanted.need], self.port)
        with _tokens(_folders(self.request)) as tokens:
            self.untried = [folder for folder in _folders(self.request) if folder not in tokens]
            found = workers.ask(
                {
                    "do": "examine",
                    "name": Path(wanted.config.path).name or reading.DEFAULT_CONFIG,
                    "config": config,
                    "cpu": wanted.cpu,
                    "tokens": tokens,
                    "files": self._files(),
                    "ports": list(stages.some_ports(self.port)),
                },
                min(self._left(), self.request.start_s),
                show=self.progress.asked,
            )
        self._left()
        broken = {node: answer["error"] for node, answer in found.items() if answer.get("error")}
        for node, text in broken.items():
            workers.lost[node] = f"mgpu doctor failed: {text}"
        found = {node: answer for node, answer in found.items() if node not in broken}
        self.busy = {node: answer["busy"] for node, answer in found.items()}
        clocks = self._clocks(workers)
        answered, count = len(found.keys() - workers.lost.keys()), len(job.nodes)
        detail = f"{answered} of {counted(count, 'node')} answered"
        self._stage("examine", "fail" if workers.lost else "ok", detail)
        cards, paths = self._network(workers)
        return self._compare(workers, found, clocks, cards, paths)

    def _files(self) -> dict[str, str]:
        """Return the files that every node reads itself."""
        path = Path(subjects.config_path(self.request)).absolute()
        return {"config": str(path)} if path.exists() else {}

    def _clocks(self, workers: Workers) -> dict[str, float]:
        """Return each node's clock offset from the median in seconds, assuming half the round trip for each way."""
        best: dict[str, tuple[float, float]] = {}
        for _ in range(_CLOCKS):
            asked = time.time()
            answers = workers.ask({"do": "clock"}, min(self._left(), _CLOCK_S))
            for node, answer in answers.items():
                way = answer["heard"] - asked
                if node not in best or way < best[node][0]:
                    best[node] = (way, answer["time"] - asked - way / 2)
        middle = statistics.median([offset for _, offset in best.values()]) if best else 0.0
        return {node: round(offset - middle, 3) for node, (_, offset) in best.items()}

    def _network(self, workers: Workers) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Test whether every node reaches the others, with the rendezvous on the first node that is left."""
        if len(workers.nodes) < 2:
            self._stage("network", "skip", "one node" if workers.nodes else "no node answered")
            return [], None
        from mgpu.fleet import connectivity

        head = workers.nodes[0]
        self.progress.say(f"connect: {len(workers.nodes)} nodes, rendezvous on {head}")
        ports = [port for port in stages.some_ports(self.port) if port not in self.busy.get(head, ())] or [self.port]
        command = {"do": "listen", "head": head, "ports": ports, "cpu": self.wanted.cpu}
        listening = workers.ask(command, min(self._left(), _MESH_S), show=self.progress.asked)
        cards = [listening[node]["card"] for node in self.job.nodes if "card" in listening.get(node, {})]
        walked = workers.ask(
            {"do": "walk", "endpoints": [connectivity.endpoint_of(card) for card in cards], "head": head},
            min(self._left(), _MESH_S),
            show=self.progress.asked,
        )
        paths = [path for answer in walked.values() for path in answer.get("paths", ())]
        broken = [node for node in workers.nodes if "paths" not in walked.get(node, {})]
        for node in broken:
            text = listening.get(node, {}).get("error") or walked.get(node, {}).get("error") or "no answer"
            workers.lost.setdefault(node, f"could not test its network: {text}")
        lost = sum(path["connected"] is False or path["bulk"] is False for path in paths)
        detail = f"{len(paths) - lost} of {len(paths)} connections work" if paths else "no connection could be tested"
        self._stage("network", "fail" if lost or broken or not paths else "ok", detail)
        return cards, paths

    def _compare(
        self,
        workers: Workers,
        found: Mapping[str, Any],
        clocks: Mapping[str, float],
        cards: Sequence[Mapping[str, Any]],
        paths: Sequence[Mapping[str, Any]] | None,
    ) -> tuple[tuple[engine.Outcome, ...], list[Bad]]:
        self.progress.say(f"compare: {counted(len(found), 'node')}")
        there = [node for node in self.job.nodes if node in found and node not in workers.lost]
        fleet = self._fleet({node: found[node] for node in there}, workers, clocks, cards, paths)
        snapshot = Snapshot(fleet=fleet, config=self.wanted.config, plan=Plan(nodes=self.wanted.need))
        outcomes = engine.judge(snapshot, selections.FLEET)
        bad = bad_nodes.bad_nodes(outcomes, fleet, workers.lost, self.job.nodes)
        self.trouble = next(
            (o.problem.title for o in findings.in_order(outcomes) if bad_nodes.is_job_wide(o) and o.problem), ""
        )
        crashed = [o.check.id for o in outcomes if o.status == "crash"]
        if crashed:
            raise MgpuError(f"{crashed[0]} crashed (a bug in mgpu), so the nodes were not checked", errors.UNKNOWN)
        warned = sum(o.status == "warn" for o in outcomes)
        fit = len(there) - len([b for b in bad if b.node in there])
        detail = f"{fit} of {len(there)} nodes are fit for one job" if len(there) != 1 else f"{fit} of 1 node is fit"
        detail += f", {counted(warned, 'warning')}" if warned else ""
        if there:
            self._stage("compare", "fail" if self.trouble or any(b.node in there for b in bad) else "ok", detail)
        else:
            self._stage("compare", "skip", "no node answered")
        return outcomes, bad

    def _fleet(
        self,
        found: Mapping[str, Any],
        workers: Workers,
        clocks: Mapping[str, float],
        cards: Sequence[Mapping[str, Any]],
        paths: Sequence[Mapping[str, Any]] | None,
    ) -> Fleet:
        """Save what each node reported in the run's folder, and compare the nodes: the fact `fleet`."""
        from mgpu.fleet import connectivity
        from mgpu.fleet.compare import Machine, fleet_of
        from mgpu.snapshot import NodePath, decode, from_json

        run_folder.make_below(self.folder / artifacts.MACHINES, artifacts.machines(list(found)))
        for node, answer in found.items():
            artifacts.keep_machine(self.folder, node, from_json(answer["facts"]))
        unshared: dict[str, tuple[str, ...]] = {}
        for folder in _folders(self.request):
            if blind := tuple(node for node, answer in found.items() if folder in answer["unseen"]):
                unshared[folder] = blind
        return fleet_of(
            [Machine(node, one["facts"], extra=bad_nodes.file_facts(one["files"])) for node, one in found.items()],
            dict(workers.lost),
            faults=[NodeFault(node, fault["id"], fault["text"]) for node in found for fault in found[node]["faults"]],
            clock_offsets_s={node: clocks[node] for node in found if node in clocks},
            unshared=unshared or (None if self.untried else {}),
            paths=None if paths is None else [decode(NodePath, dict(path), "path") for path in paths],
            doors=tuple(connectivity.door_of(card) for card in cards),
            together=True,
        )

    # ---- testing

    def _test(self, workers: Workers, good: Sequence[str]) -> stages.Tested:
        if self.trouble or len(good) < self.wanted.need:
            for name in artifacts.TESTS:
                self._stage(name, "skip", "the problem affects all nodes" if self.trouble else "too few nodes left")
            return stages.Tested(list(good), trouble=self.trouble)
        request = self.request
        options = ["--allow-busy"] if request.allow_busy else []
        if request.checkpoint_folder:
            options += ["--checkpoint-dir", request.checkpoint_folder]
        return stages.Testing(
            workers=workers,
            config=self.wanted.config,
            ranks_per_node=self.wanted.ranks_per_node,
            need=self.wanted.need,
            rehearsal=request.cpu is not None,
            ports=itertools.cycle(stages.some_ports(self.port)),
            busy=self.busy,
            options=options,
            start_s=request.start_s,
            stall_s=min(request.stall_s, _STALL_S),
            folder=self.folder.absolute(),
            left_s=self._left,
            began=self.progress.began,
            ended=self._stage,
            show=self.progress.asked,
        ).run(good)

    # ---- the end

    def _conclude(self, outcomes: tuple[engine.Outcome, ...], bad: Sequence[Bad], tested: stages.Tested) -> int:
        good = tuple(tested.good)
        verdict, code = verdicts.of_nodes(len(good), self.wanted.need, trouble=bool(tested.trouble))
        reasons = [o.answer.reason for o in outcomes if o.unknown and isinstance(o.answer, Skip)]
        result = screens.Result(
            job=self.job.job,
            of_job=self.job.nodes,
            need=self.wanted.need,
            what=self.wanted.what,
            stages=tuple(self.stages),
            outcomes=outcomes,
            good=good,
            bad=(*bad, *tested.bad),
            chosen=good[: self.wanted.need] if verdict == "passed" else (),
            trouble=tested.trouble,
            verdict=verdict,
            code=code,
            seconds=time.monotonic() - self.began,
            folder=_short_path(self.folder),
            unasked=(*self._untried(), *dict.fromkeys(reasons)),
        )
        whole = bad_nodes.make_document(result)
        artifacts.write(
            self.folder, whole, of_job=self.job.nodes, tasks_per_node=self.job.tasks_per_node, environ=os.environ
        )
        if self.request.format == "json":
            _report(self.request.output, lambda stream: _put(stream, document.text(whole)), self.folder)
        else:
            _report(self.request.output, lambda stream: _show(Screen.of(stream), result), self.folder)
        return code

    def _untried(self) -> list[str]:
        """Return a line for each folder for which it is unknown whether the nodes share it."""
        return [f"whether all nodes see the same {folder}: the folder is not writable" for folder in self.untried]


def _report(output: str, show: Callable[[IO[str]], None], folder: Path | None = None) -> None:
    """Write the report. A full disk or a closed pipe does not change the result or the exit code."""
    try:
        report_output.write_out(output, show)
    except (OSError, MgpuError) as error:
        if output in ("", "-"):
            exit_status.drop(1)
        text = error.message if isinstance(error, MgpuError) else reason(error)
        there = f". It is also in {folder / artifacts.DOCUMENT}" if folder else ""
        screens.to_stderr(f"cannot write the report: {text}{there}")


def _put(stream: Any, text: str) -> None:
    stream.write(text)
    stream.flush()


def _show(screen: Screen, result: screens.Result) -> None:
    screen.show(screens.lines(result, screen))


def _folder(request: Request, job: Allocation) -> Path:
    """Return --log-dir, or runs/preflight-JOB in the current folder. Raises MgpuError."""
    return Path(request.log_dir) if request.log_dir else run_folder.base_folder() / f"preflight-{job.job}"


def _short_path(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_absolute() and folder.is_relative_to(here) else folder)


def _folders(request: Request) -> list[str]:
    """Return the folders that every node must see: the job's working directory and the config's folder.

    The log folder is not among them, because it may be local to this node.
    """
    config = Path(subjects.config_path(request)).absolute().parent if request.config else Path.cwd()
    return list(dict.fromkeys(map(str, (Path.cwd(), config))))


@contextlib.contextmanager
def _tokens(folders: Sequence[str]) -> Iterator[dict[str, str]]:
    """Create a file in each writable folder: a node that sees it sees this folder, not another one of the same name."""
    made: dict[str, str] = {}
    try:
        for folder in folders:
            name = f".mgpu-seen-{secrets.token_hex(6)}"
            with contextlib.suppress(OSError, MgpuError):
                files.write(Path(folder) / name, "")
                made[folder] = name
        yield made
    finally:
        for folder, name in made.items():
            with contextlib.suppress(OSError):
                (Path(folder) / name).unlink()
