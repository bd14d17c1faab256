"""What is said at the end of a smoke test, to a person and to a script?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpu import engine
from mgpu.check import Skip
from mgpu.command_line import shell
from mgpu.config.reading import DEFAULT_CONFIG
from mgpu.engine.verdict import SmokeVerdict
from mgpu.planning import bandwidth
from mgpu.report import findings
from mgpu.report.document import envelope
from mgpu.report.screen import Line, Screen, Style, headed, labelled
from mgpu.smoke import culprit as culprits
from mgpu.smoke.ranks import RUNGS
from mgpu.smoke.request import Request
from mgpu.snapshot import PairRun, Rank, Ranks, Snapshot
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.report.json_types import StageStatus
    from mgpu.smoke.smoke_json import ConfigEntry, PairEntry, RankEntry, SmokeDocument

_MOST_WORDS = 8  # ranks of which it is said where they were


@dataclass(frozen=True)
class Result:
    """A smoke test, judged."""

    snapshot: Snapshot
    outcomes: Sequence[engine.Outcome]
    verdict: SmokeVerdict
    code: int
    seconds: float
    stamped: str | None = None

    @property
    def ranks(self) -> Ranks:
        """What the ranks did."""
        assert self.snapshot.ranks is not None
        return self.snapshot.ranks


@dataclass(frozen=True)
class Stage:
    """One rung over all ranks of this machine."""

    name: str
    status: StageStatus
    seconds: float | None
    detail: str | None


# ---- to a person


def head(result: Result) -> tuple[str, Style, str]:
    """The verdict's word, its style, and what it means in one sentence."""
    ranks = result.ranks
    if ranks.ended == "interrupted":
        return "INTERRUPTED", "fail", _left(ranks) or "All ranks were ended."
    if result.verdict == "failed":
        cause = culprits.cause(result.outcomes)
        return "FAILED", "fail", cause.problem.title if cause and cause.problem else "a check failed"
    if result.verdict == "unknown":
        crashed = next((o.check.id for o in result.outcomes if o.status == "crash"), None)
        errors = (o for o in result.outcomes if o.check.severity.value == "error")
        blind = next((o for o in errors if o.unsettling), None)
        if crashed is None and blind is not None and isinstance(blind.answer, Skip):
            return "COULD NOT TELL", "crash", f"{blind.check.id} could not be asked: {blind.answer.reason}."
        return "COULD NOT TELL", "crash", f"{crashed or 'a check'} crashed: a bug in mgpu."
    what = counted(ranks.expected, "CPU rank" if ranks.cpu else "GPU")
    together = "trained together correctly" if ranks.expected > 1 else "trained correctly"
    return "PASSED", "ok", f"{what} {together} in {result.seconds:.1f} s."


def lines(result: Result, request: Request, screen: Screen) -> list[Line]:
    """The end of the screen: problems, verdict, where the logs are, what comes next."""
    ranks = result.ranks
    word, style, text = head(result)
    logs = _logs(ranks, screen)
    if ranks.ended == "interrupted":
        return [[], *headed(word, style, text, screen), *logs]
    cause = culprits.cause(result.outcomes)
    others = [o for o in result.outcomes if cause is None or (o is not cause and cause.check.id not in o.because_of)]
    said = findings.problems(others, screen, command="mgpu smoke-test", show_all=True)
    said += [[], *headed(word, style, text, screen)]
    if result.verdict == "passed":
        return [*said, *_measured(ranks, screen), *_not_tried(ranks, screen), *_next(result, request, screen)]
    if cause is not None and cause.problem is not None:
        said.append([(f"{' ' * (len(word) + 2)}{cause.check.id}", "")])
        said += findings.details(cause.problem, screen)
        said += findings.also(cause, result.outcomes, screen)
        explain = f"mgpu doctor --explain {cause.check.id}"
        said += labelled("Explain", explain, screen, whole=True)
    return [*said, *logs]


def _left(ranks: Ranks) -> str | None:
    if not ranks.left_running:
        return None
    return f"{len(ranks.left_running)} processes could not be ended: {' '.join(map(str, ranks.left_running))}"


def _logs(ranks: Ranks, screen: Screen) -> list[Line]:
    """The folder, in which the files say by their names what they are."""
    text = f"{ranks.folder}/  (rank*.jsonl: every step, rank*.stack: where Python was, launcher.log, smoke.json)"
    return labelled("Logs", text, screen)


def _measured(ranks: Ranks, screen: Screen) -> list[Line]:
    """Bandwidth and scaling, where they were measured."""
    texts = []
    rows = bandwidth.merged(ranks.ranks)
    if (best := bandwidth.largest([row for row in rows if row.ranks == ranks.expected])) is not None:
        spread = _spread([pair.gb_per_s for rank in ranks.ranks for pair in rank.pairs if pair.gb_per_s], ranks)
        size, rate = bandwidth.size_text(best.size_bytes), bandwidth.rate_text(best.busbw_gb_per_s)
        texts.append(f"all-reduce {size}: {rate} bus bandwidth ({best.backend}){spread}")
    gains = {n: times for n, times in bandwidth.speed_up(bandwidth.scaled(ranks.ranks)).items() if n > 1}
    if gains and ranks.cpu:
        texts.append("Speed-up with more ranks: not told, CPU ranks share the cores")
    elif gains:
        shown = "   ".join(f"{n} GPUs vs 1: {times:.2f} x" for n, times in gains.items())
        texts.append(f"{shown} the samples per second of the test's own small model")
        texts.append("(a step is not faster with more GPUs; each step covers more samples)")
    return [line for text in texts for line in screen.paragraph(text, "  ", "    ")]


def _spread(rates: Sequence[float], ranks: Ranks) -> str:
    if len(rates) < 2 or ranks.cpu:  # between CPU ranks it is the noise of a shared machine
        return ""
    return f", pairs within {100 * (max(rates) - min(rates)) / max(rates):.0f} % of each other"


def _not_tried(ranks: Ranks, screen: Screen) -> list[Line]:
    """What a pass does not say: skipped on all ranks or some, or left out by the level."""
    found = skips(ranks)
    skipped = [f"Not tried: {'; '.join(found)}"] if found else []
    if left := [rung for rung in RUNGS if rung not in ranks.rungs]:
        skipped.append(f"Left out by --level {ranks.level}: {', '.join(left)}")
    return [line for text in skipped for line in screen.paragraph(text, "  ", "    ")]


def skips(ranks: Ranks) -> list[str]:
    """What could not be tried here, once each."""
    return list(dict.fromkeys(text for rank in ranks.ranks for text in rank.skipped))


def _next(result: Result, request: Request, screen: Screen) -> list[Line]:
    """Whether the pass was recorded, and what to do with it."""
    ranks, snapshot = result.ranks, result.snapshot
    texts = []
    if ranks.cpu and request.cpu is None and snapshot.driver is not None and snapshot.driver.any_gpu:
        texts.append("The config says use_cpu: this machine's GPUs were not used.")
    if result.stamped:
        texts.append("Stamped: this config is verified on this machine.")
    elif request.cpu is not None:
        texts.append("A rehearsal: nothing was stamped. On the GPU machine:  mgpu smoke-test")
    elif not proven(ranks):
        texts.append("DeepSpeed needs GPUs here; DDP was tried in its place: nothing was stamped.")
    elif request.gpus:
        texts.append("Some of the GPUs only: nothing was stamped.")
    elif not request.stamp:
        texts.append("Nothing was stamped (--no-stamp).")
    said = [line for text in texts for line in screen.paragraph(text)]
    if result.stamped and (line := _launch(snapshot, request)):
        said.append([(f"Next:  {line}", "bold")])
    return said


def proven(ranks: Ranks) -> bool:
    """Whether the ranks trained with the strategy of the config: accelerate has DeepSpeed on GPUs only."""
    return not (ranks.cpu and ranks.strategy == "deepspeed")


def _launch(snapshot: Snapshot, request: Request) -> str:
    name = snapshot.config.path if snapshot.config else ""
    if name == DEFAULT_CONFIG and not request.config:
        return "mgpu launch train.py [your arguments]"
    return shell("mgpu launch -c {:path} train.py [your arguments]", request.config or name)


# ---- to a script


def document(result: Result) -> SmokeDocument:
    """The JSON document."""
    ranks = result.ranks
    told: SmokeDocument
    told = envelope("smoke", result.outcomes, result.verdict, result.code, result.seconds, result.snapshot)
    for entry in told["checks"]:
        entry["verify"] = "mgpu smoke-test"
    told.update(
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
            "bandwidth": [_json(row) for row in bandwidth.merged(ranks.ranks)],
            "scaling": [_json(row) for row in bandwidth.scaled(ranks.ranks)],
            "skipped": skips(ranks),
            "culprit": culprits.of(result.outcomes, ranks) if result.verdict == "failed" else None,
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
    return told


def nothing(
    snapshot: Snapshot, outcomes: Sequence[engine.Outcome], verdict: SmokeVerdict, code: int, seconds: float, why: str
) -> SmokeDocument:
    """The document of a test that was not started."""
    told: SmokeDocument = envelope("smoke", outcomes, verdict, code, seconds, snapshot)
    told.update(
        {
            "ranks": [],
            "pairs": [],
            "bandwidth": [],
            "scaling": [],
            "skipped": [],
            "diagnosis": [],
            "stages": [_json(Stage(rung, "skip", None, "not started")) for rung in RUNGS],
            "config": _config(snapshot),
            "culprit": None,
            "stamp": None,
            "logs": None,
            "error": why,
            "next": ["mgpu doctor"],
        }
    )
    return told


def _config(snapshot: Snapshot) -> ConfigEntry | None:
    config = snapshot.config
    return {"path": config.path, "sha256": config.sha256} if config else None


def stages(ranks: Ranks) -> list[Stage]:
    """Every rung, also those that were left out or not reached."""
    return [_stage(ranks, rung) for rung in RUNGS]


def _stage(ranks: Ranks, rung: str) -> Stage:
    if rung not in ranks.rungs:
        return Stage(rung, "skip", None, f"left out by level {ranks.level}")
    steps = [(rank, step) for rank in ranks.ranks for step in rank.steps if step.rung == rung]
    if not steps:
        return Stage(rung, "skip", None, "not reached")
    seconds = max((step.seconds for _, step in steps if step.seconds is not None), default=None)
    failed = next((step for _, step in steps if step.ok is False), None)
    if failed is not None:
        return Stage(rung, "fail", seconds, failed.detail)
    if len(steps) < len(ranks.ranks) or any(step.ok is None for _, step in steps):
        if ranks.ended == "interrupted":
            return Stage(rung, "skip", seconds, "interrupted")
        words = [f"rank {rank.rank}: {rank.last_word or 'not heard of'}" for rank in ranks.ranks[:_MOST_WORDS]]
        return Stage(rung, "fail", seconds, "; ".join(words))
    if rung == RUNGS[0]:
        return Stage(rung, "ok", seconds, f"{len(steps)} of {len(steps)} up")
    return Stage(rung, "ok", seconds, steps[0][1].detail)


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
    """Each pair once, as the worse of its two ends saw it."""
    found: dict[tuple[int, int], list[PairRun]] = {}
    for rank in ranks.ranks:
        for pair in rank.pairs:
            found.setdefault((min(rank.rank, pair.other), max(rank.rank, pair.other)), []).append(pair)
    return [
        {
            "ranks": list(ends),
            "ok": _worst(pair.ok for pair in runs),
            "detail": next((pair.detail for pair in runs if pair.ok is not True and pair.detail), None),
            "gb_per_s": min((pair.gb_per_s for pair in runs if pair.gb_per_s is not None), default=None),
            "latency_s": max((pair.latency_s for pair in runs if pair.latency_s is not None), default=None),
        }
        for ends, runs in sorted(found.items())
    ]


def _worst(answers: Iterable[bool | None]) -> bool | None:
    given = list(answers)
    return False if False in given else None if None in given else True


def _json(fact: Any) -> Any:
    """A fact as JSON has it: lists for tuples."""
    return {
        key: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, dict) else value
        for key, value in dataclasses.asdict(fact).items()
    }


def kept(folder: str) -> tuple[Path, Path]:
    """Where a run's document and its facts are kept."""
    return Path(folder) / "smoke.json", Path(folder) / "facts.json"
