"""Find the nodes of this Slurm job that are fit for training, and what is wrong with the others.

Every node is checked (doctor, clock, folders, connections), all are compared, and the remaining ones run the smoke
test: each alone, in pairs, all together. The checks in checks/fleet and of the smoke test judge; the result is written
to a folder, from which the job script sources it (artifacts.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mgpu import engine, errors, exit_status, hostlist
from mgpu.check import Skip
from mgpu.config import reading
from mgpu.engine import selections
from mgpu.engine import verdict as verdicts
from mgpu.errors import MgpuError, reason
from mgpu.fleet import allocation as jobs
from mgpu.fleet import artifacts, bad_nodes, derived_config, examination, hosts_doctor, route, stages, verified_hosts
from mgpu.fleet import screen as screens
from mgpu.fleet.allocation import Allocation
from mgpu.fleet.examination import Examination
from mgpu.fleet.route import Route
from mgpu.fleet.srun_workers import SrunWorkers
from mgpu.fleet.ssh_workers import SshWorkers
from mgpu.fleet.stages import Bad, Stage
from mgpu.fleet.workers import Workers
from mgpu.hosts.named_hosts import read_hosts
from mgpu.launchers import run_folder
from mgpu.process import scratch, signals
from mgpu.report import document, findings
from mgpu.report import output as report_output
from mgpu.report.screen import Screen
from mgpu.smoke import config_under_test as subjects
from mgpu.smoke.request import Request
from mgpu.snapshot import Plan, Snapshot
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus

_WHOLE_S = 900.0  # default of --timeout; four nodes take under a minute if nothing hangs
_STALL_S = 15.0  # at most: no step of the quick level is silent for this long


def run(request: Request) -> int:
    """Run `mgpu smoke-test --slurm` or `--hosts`; return 0 for enough good nodes, 1 for too few, 3 if unknown."""
    request.check()
    began = time.monotonic()
    job = jobs.of_hosts(read_hosts(request.hosts, request.python)) if request.hosts else jobs.allocation(os.environ)
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
        self.trouble = ""  # a problem of all nodes
        self.port = stages.first_port(job.job) if job.job else hosts_doctor.FIRST_PORT
        self.routes: dict[str, Route] = {}  # the way into each host of --hosts

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
            f"pre-flight of {self.job.label}: {counted(count, 'node')} ({hostlist.fold(self.job.nodes)}), "
            f"{self.wanted.need} needed"
        )
        with self._workers() as workers:
            outcomes, bad = self._examine(workers)
            good = [node for node in self.job.nodes if node not in {one.node for one in bad}]
            tested = self._test(workers, good)
        return self._conclude(outcomes, bad, tested)

    def _workers(self) -> Workers:
        """Return the workers, not started yet."""
        if self.job.hosts:
            return SshWorkers(self.job.hosts, folder=os.getcwd())
        return SrunWorkers(self.job)

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
        nodes = job.nodes[: wanted.need]
        text, own = derived_config.of_nodes(wanted.config, wanted.ranks_on, nodes, self.port)
        wish = examination.Wish(
            config=text,
            own_configs=own,
            config_name=Path(wanted.config.path).name or reading.DEFAULT_CONFIG,
            cpu=wanted.cpu,
            folders=() if job.hosts else tuple(_folders(self.request)),  # each host has its own copy
            files={} if job.hosts else self._files(),  # the hosts get the config from here
            ports=tuple(stages.some_ports(self.port)),
            nodes=wanted.need,
            project=bool(job.hosts),
            by_name=not job.hosts,
        )
        self.examined = Examination(workers, wish, self._left, self.request.start_s, self._stage, self.progress)
        self.examined.run()
        return self._compare(workers)

    def _files(self) -> dict[str, str]:
        """Return the files that every node reads itself."""
        path = Path(subjects.config_path(self.request)).absolute()
        return {"config": str(path)} if path.exists() else {}

    def _compare(self, workers: Workers) -> tuple[tuple[engine.Outcome, ...], list[Bad]]:
        self.progress.say(f"compare: {counted(len(self.examined.found), 'node')}")
        there = self.examined.there
        fleet = self.examined.fleet(self.folder, workers.access if isinstance(workers, SshWorkers) else None)
        self.routes = route.of_all(fleet, there) if self.job.hosts else {}
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
            ranks_on=self.wanted.ranks_on,
            need=self.wanted.need,
            rehearsal=request.cpu is not None,
            ports=itertools.cycle(stages.some_ports(self.port)),
            busy=self.examined.busy,
            addresses={node: way.address for node, way in self.routes.items()},
            interfaces={node: way.interface for node, way in self.routes.items()},
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
            label=self.job.label,
            hosts=self.request.hosts,
            python_option=("--python", self.request.python) if self.request.python else (),
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
            self.folder,
            whole,
            of_job=self.job.nodes,
            tasks_per_node=self.job.tasks_per_node,
            environ=os.environ,
            sourced=not self.job.hosts,
        )
        if self.job.hosts and verdict == "passed" and self.request.stamp:
            self._record(good)
        if self.request.format == "json":
            _report(self.request.output, lambda stream: _put(stream, document.text(whole)), self.folder)
        else:
            _report(self.request.output, lambda stream: _show(Screen.of(stream), result), self.folder)
        return code

    def _record(self, good: Sequence[str]) -> None:
        """Store that this config was tested on these hosts, unless its ranks ran on the CPU instead."""
        config = self.wanted.config
        if config.sha256 is None or self.request.cpu is not None:
            return
        hosts = tuple(host.identity for host in self.job.hosts if host.name in good[: self.wanted.need])
        with contextlib.suppress(MgpuError, OSError):  # the result counts more than the record of it
            verified_hosts.record(Path(config.path), verified_hosts.Tested(config.sha256, hosts, sys.executable))

    def _untried(self) -> list[str]:
        """Return a line for each folder for which it is unknown whether the nodes share it."""
        return [
            f"whether all nodes see the same {folder}: the folder is not writable" for folder in self.examined.untried
        ]


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
    """Return --log-dir, or .mgpu/runs/preflight-JOB in the current folder. Raises MgpuError."""
    name = f"preflight-{job.job}" if job.job else f"preflight-hosts-{time.strftime('%Y%m%d-%H%M%S')}"
    return Path(request.log_dir) if request.log_dir else run_folder.base_folder() / name


def _short_path(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_absolute() and folder.is_relative_to(here) else folder)


def _folders(request: Request) -> list[str]:
    """Return the folders that every node must see: the job's working directory and the config's folder.

    The log folder is not among them, because it may be local to this node.
    """
    config = Path(subjects.config_path(request)).absolute().parent if request.config else Path.cwd()
    return list(dict.fromkeys(map(str, (Path.cwd(), config))))
