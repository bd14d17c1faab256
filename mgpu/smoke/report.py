"""What does a smoke test report at its end, on the screen and as JSON?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import engine
from mgpu.check import Skip
from mgpu.command_line import from_words, shell
from mgpu.config.reading import DEFAULT_CONFIG
from mgpu.engine.verdict import SmokeVerdict
from mgpu.planning import bandwidth
from mgpu.report import findings
from mgpu.report.document import envelope
from mgpu.report.screen import Line, Screen, Style, headed, labelled
from mgpu.smoke import culprit as culprits
from mgpu.smoke import script_section, watch
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.request import Request
from mgpu.snapshot import PairRun, Rank, Ranks, Snapshot
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus
    from mgpu.smoke.smoke_json import ConfigEntry, PairEntry, RankEntry, SmokeDocument


@dataclass(frozen=True)
class Result:
    """A finished smoke test with its verdict."""

    snapshot: Snapshot
    outcomes: Sequence[engine.Outcome]
    verdict: SmokeVerdict
    code: int
    seconds: float
    stamped: str | None = None

    @property
    def ranks(self) -> Ranks:
        """Return the facts about the ranks."""
        assert self.snapshot.ranks is not None
        return self.snapshot.ranks

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the stages or the script."""
        rehearsal = self.snapshot.rehearsal
        return self.ranks.ended == "interrupted" or (rehearsal is not None and rehearsal.ended == "interrupted")


@dataclass(frozen=True)
class Stage:
    """The result of one stage over all ranks of this node."""

    name: str
    status: StageStatus
    seconds: float | None
    detail: str | None


# ---- on the screen


def head(result: Result) -> tuple[str, Style, str]:
    """Return the verdict in one word, its style, and one sentence that explains it."""
    ranks = result.ranks
    if result.interrupted:
        return (
            "INTERRUPTED",
            "fail",
            _leftover_text(ranks) or f"Stopped after {result.seconds:.0f} s. No ranks are left.",
        )
    if result.verdict == "failed":
        cause = culprits.find_cause(result.outcomes)
        return "FAILED", "fail", cause.problem.title if cause and cause.problem else "a check failed"
    if result.verdict == "unknown":
        unproved = next((o.problem.title for o in result.outcomes if o.problem and "not_examined" in o.check.tags), "")
        if unproved:
            return "UNKNOWN", "crash", f"{unproved}."
        crashed = next((o.check.id for o in result.outcomes if o.status == "crash"), None)
        errors = (o for o in result.outcomes if o.check.severity.value == "error")
        blind = next((o for o in errors if o.unsettling), None)
        if crashed is None and blind is not None and isinstance(blind.answer, Skip):
            return "UNKNOWN", "crash", f"{blind.check.id} could not be checked: {blind.answer.reason}."
        return "UNKNOWN", "crash", f"{crashed or 'a check'} crashed. This is a bug in mgpu."
    what = counted(ranks.expected, "CPU rank" if ranks.cpu else "GPU")
    together = "trained together correctly" if ranks.expected > 1 else "trained correctly"
    rehearsal = result.snapshot.rehearsal
    also = f", also with {script_section.name(rehearsal)}," if rehearsal else ""
    return "PASSED", "ok", f"{what} {together}{also} in {result.seconds:.1f} s."


def interruption(seconds: float, code: int) -> str:
    """Return the only line that an interrupted test prints."""
    return f"Interrupted after {seconds:.0f} s (exit {code})."


def lines(result: Result, request: Request, screen: Screen) -> list[Line]:
    """Return the end of the screen: problems, verdict, log folder, next command."""
    ranks = result.ranks
    if result.interrupted:
        left = screen.paragraph(text, style="fail") if (text := _leftover_text(ranks)) else []
        shown = script_section.put_back_lines(result.snapshot.rehearsal, result.outcomes, screen)
        return [*shown, [(interruption(result.seconds, result.code), "")], *left]
    word, style, text = head(result)
    cause = culprits.find_cause(result.outcomes)
    others = [o for o in result.outcomes if cause is None or (o is not cause and cause.check.id not in o.because_of)]
    shown = script_section.lines(result.snapshot.rehearsal, result.outcomes, screen)
    shown += findings.problems(others, screen, command="mgpu smoke-test", show_all=True)
    shown += [[], *headed(word, style, text, screen)]
    if result.verdict == "passed":
        return [
            *shown,
            *_measured_lines(ranks, screen),
            *_not_tried(ranks, screen),
            *_closing_lines(result, request, screen),
        ]
    if cause is not None and cause.problem is not None:
        shown.append([(f"{' ' * (len(word) + 2)}{cause.check.id}", "")])
        shown += findings.details(cause.problem, screen)
        shown += findings.also(cause, result.outcomes, screen)
        explain = f"mgpu doctor --explain {cause.check.id}"
        shown += labelled("Explain", explain, screen, whole=True)
    return [*shown, *_logs(result, screen)]


def _leftover_text(ranks: Ranks) -> str | None:
    if not ranks.left_running:
        return None
    pids = " ".join(map(str, ranks.left_running))
    return f"{counted(len(ranks.left_running), 'process', 'processes')} could not be killed: {pids}"


def _logs(result: Result, screen: Screen) -> list[Line]:
    script = ", script.log" if result.snapshot.rehearsal else ""
    return labelled("Logs", f"{result.ranks.folder}/  (launcher.log, rank*.stack{script}, smoke.json)", screen)


def _measured_lines(ranks: Ranks, screen: Screen) -> list[Line]:
    """Return bandwidth and scaling, if they were measured."""
    texts = []
    rows = bandwidth.merge_ranks(ranks.ranks)
    if (best := bandwidth.largest([row for row in rows if row.ranks == ranks.expected])) is not None:
        spread = _spread([pair.gb_per_s for rank in ranks.ranks for pair in rank.pairs if pair.gb_per_s], ranks)
        size, rate = bandwidth.size_text(best.size_bytes), bandwidth.rate_text(best.busbw_gb_per_s)
        texts.append(f"all-reduce {size}: {rate} bus bandwidth ({best.backend}){spread}")
    gains = {n: times for n, times in bandwidth.speed_up(bandwidth.merge_scaling(ranks.ranks)).items() if n > 1}
    if gains and ranks.cpu:
        texts.append("Scaling not measured: CPU ranks share cores")
    elif gains:
        shown = ", ".join(f"{times:.2f}x on {n}" for n, times in gains.items())
        texts.append(f"samples/s vs 1 GPU: {shown} GPUs (small test model)")
        texts.append("(more GPUs process more samples per step; the step does not get faster)")
    return [line for text in texts for line in screen.paragraph(text, "  ", "    ")]


def _spread(rates: Sequence[float], ranks: Ranks) -> str:
    if len(rates) < 2 or ranks.cpu:  # between CPU ranks it is the noise of a shared machine
        return ""
    return f", pairs within {100 * (max(rates) - min(rates)) / max(rates):.0f} %"


def _not_tried(ranks: Ranks, screen: Screen) -> list[Line]:
    """Return what a pass does not cover: skipped tests, and stages that the level omits."""
    texts = [f"Not tested: {text}" for text in skips(ranks)]
    if omitted := [stage for stage in STAGES if stage not in ranks.rungs]:
        texts.append(f"Not part of --level {ranks.level}: {', '.join(omitted)}")
    return [line for text in texts for line in screen.paragraph(text, "  ", "    ")]


def skips(ranks: Ranks) -> list[str]:
    """Return what could not be tested here, without duplicates."""
    return list(dict.fromkeys(text for rank in ranks.ranks for text in rank.skipped))


def _closing_lines(result: Result, request: Request, screen: Screen) -> list[Line]:
    """Return whether the pass was recorded, and the next command."""
    ranks, snapshot = result.ranks, result.snapshot
    texts = []
    if ranks.cpu and request.cpu is None and snapshot.driver is not None and snapshot.driver.any_gpu:
        texts.append("The config sets use_cpu: this machine's GPUs were not used.")
    if result.stamped:
        texts.append("Verified: this config works on this machine (recorded for mgpu launch).")
    elif request.cpu is not None:
        again = from_words(["mgpu", "smoke-test", *_target(request)]) or "mgpu smoke-test"
        texts.append(f"CPU rehearsal, not recorded. On the GPU machine:  {again}")
    elif not strategy_tested(ranks):
        texts.append("Not recorded: DeepSpeed needs GPUs, so DDP was tested instead.")
    elif request.gpus:
        texts.append("Not recorded: only some of the GPUs were tested.")
    elif not request.stamp:
        texts.append("Not recorded (--no-stamp).")
    shown = [line for text in texts for line in screen.paragraph(text)]
    if result.stamped and (line := _launch(snapshot, request)):
        shown.append([(f"Next:  {line}", "bold")])
    return shown


def strategy_tested(ranks: Ranks) -> bool:
    """Whether the ranks trained with the config's strategy: accelerate supports DeepSpeed on GPUs only."""
    return not (ranks.cpu and ranks.strategy == "deepspeed")


def _target(request: Request) -> list[str]:
    return [*(["-m"] if request.module else []), *request.target]


def _launch(snapshot: Snapshot, request: Request) -> str:
    name = snapshot.config.path if snapshot.config else ""
    default = name == DEFAULT_CONFIG and not request.config
    if request.target:
        config = [] if default else ["-c", request.config or name]
        return from_words(["mgpu", "launch", *config, *_target(request)])
    if default:
        return "mgpu launch train.py [your arguments]"
    return shell("mgpu launch -c {:path} train.py [your arguments]", request.config or name)


# ---- as JSON


def document(result: Result) -> SmokeDocument:
    """Return the JSON document of a finished test."""
    ranks = result.ranks
    content: SmokeDocument
    content = envelope("smoke", result.outcomes, result.verdict, result.code, result.seconds, result.snapshot)
    for entry in content["checks"]:
        entry["verify"] = "mgpu smoke-test"
    content.update(
        {
            "config": _config(result.snapshot),
            "level": ranks.level,
            "strategy": ranks.strategy,
            "precision": ranks.precision,
            "accumulate": ranks.accumulate,
            "cpu": ranks.cpu,
            "world": ranks.expected,
            "nodes": ranks.nodes,
            "node": ranks.node,
            "ended": ranks.ended,
            "stages": [_json(stage) for stage in stages(ranks)],
            "ranks": [_rank(rank) for rank in ranks.ranks],
            "pairs": _pairs(ranks),
            "bandwidth": [_json(row) for row in bandwidth.merge_ranks(ranks.ranks)],
            "scaling": [_json(row) for row in bandwidth.merge_scaling(ranks.ranks)],
            "skipped": skips(ranks),
            "culprit": culprits.find_culprit(result.outcomes, ranks) if result.verdict == "failed" else None,
            "diagnosis": [_json(trial) for trial in ranks.trials],
            "left": {
                "processes": list(ranks.left_running),
                "files": list(ranks.left_files),
                "gpu_memory": dict(ranks.memory_kept or {}),
                "port": ranks.port if ranks.left_port else None,
            },
            "stamp": result.stamped,
            "logs": ranks.folder,
            "next": ["mgpu launch SCRIPT"] if result.verdict == "passed" else ["mgpu doctor"],
        }
    )
    script_section.add_entry(content, result.snapshot.rehearsal, result.outcomes)
    return content


def unstarted_document(
    snapshot: Snapshot, outcomes: Sequence[engine.Outcome], verdict: SmokeVerdict, code: int, seconds: float, why: str
) -> SmokeDocument:
    """Return the JSON document of a test that was not started."""
    content: SmokeDocument = envelope("smoke", outcomes, verdict, code, seconds, snapshot)
    content.update(
        {
            "ranks": [],
            "pairs": [],
            "bandwidth": [],
            "scaling": [],
            "skipped": [],
            "diagnosis": [],
            "stages": [_json(Stage(name, "skip", None, "not started")) for name in STAGES],
            "config": _config(snapshot),
            "culprit": None,
            "stamp": None,
            "logs": None,
            "error": why,
            "next": ["mgpu doctor"],
        }
    )
    return content


def _config(snapshot: Snapshot) -> ConfigEntry | None:
    config = snapshot.config
    return {"path": config.path, "sha256": config.sha256} if config else None


def stages(ranks: Ranks) -> list[Stage]:
    """Return every stage, including those omitted by the level or not reached."""
    return [_stage(ranks, name) for name in STAGES]


def _stage(ranks: Ranks, name: str) -> Stage:
    if name not in ranks.rungs:
        return Stage(name, "skip", None, f"not part of level {ranks.level}")
    steps = [(rank, step) for rank in ranks.ranks for step in rank.steps if step.rung == name]
    if not steps:
        return Stage(name, "skip", None, "not reached")
    seconds = max((step.seconds for _, step in steps if step.seconds is not None), default=None)
    failed = next((step for _, step in steps if step.ok is False), None)
    if failed is not None:
        return Stage(name, "fail", seconds, failed.detail)
    if len(steps) < len(ranks.ranks) or any(step.ok is None for _, step in steps):
        if ranks.ended == "interrupted":
            return Stage(name, "skip", seconds, "interrupted")
        positions = watch.describe_positions((rank.rank, rank.last_word) for rank in ranks.ranks)
        return Stage(name, "fail", seconds, positions)
    if name == STAGES[0]:
        return Stage(name, "ok", seconds, f"{len(steps)} of {len(steps)} running")
    return Stage(name, "ok", seconds, steps[0][1].detail)


def _rank(rank: Rank) -> RankEntry:
    return {
        "rank": rank.rank,
        "local_rank": rank.local_rank,
        "host": rank.host,
        "pid": rank.pid,
        "device": rank.device,
        "gpu": rank.gpu_uuid,
        "gpu_name": rank.gpu_name,
        "pci": rank.gpu_pci,
        "numa": rank.numa_node,
        "world_size": rank.world_size,
        "accelerate_world_size": rank.accelerate_world_size,
        "last_word": rank.last_word,
        "state": rank.process_state,
        "exit": rank.exit_code,
        "kind": rank.kind,
        "error": rank.error,
        "measured": dict(rank.measured),
    }


def _pairs(ranks: Ranks) -> list[PairEntry]:
    """Return each pair once, with the worse of the results of its two ranks."""
    found: dict[tuple[int, int], list[PairRun]] = {}
    for rank in ranks.ranks:
        for pair in rank.pairs:
            found.setdefault((min(rank.rank, pair.other), max(rank.rank, pair.other)), []).append(pair)
    return [
        {
            "ranks": list(ends),
            "ok": _worst_answer(pair.ok for pair in runs),
            "detail": next((pair.detail for pair in runs if pair.ok is not True and pair.detail), None),
            "gb_per_s": min((pair.gb_per_s for pair in runs if pair.gb_per_s is not None), default=None),
            "latency_s": max((pair.latency_s for pair in runs if pair.latency_s is not None), default=None),
        }
        for ends, runs in sorted(found.items())
    ]


def _worst_answer(answers: Iterable[bool | None]) -> bool | None:
    given = list(answers)
    return False if False in given else None if None in given else True


def _json(fact: Any) -> Any:
    """Return a fact as JSON values: lists for tuples."""
    return {
        key: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, dict) else value
        for key, value in dataclasses.asdict(fact).items()
    }


def result_paths(folder: str) -> tuple[Path, Path]:
    """Return the paths of a run's JSON document and of its facts."""
    return Path(folder) / "smoke.json", Path(folder) / "facts.json"
