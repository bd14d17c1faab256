"""Why does a running run make no progress? `--why [RUN|PID|LOG-DIR]`: its ranks are asked now what they do, twice.

Exit code 0 if the run makes progress or has finished, 1 if a rank keeps the others waiting, 3 if it is not known. No
process is stopped, attached to, or signaled without a handler of mgpu's recorder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mgpu import durations, errors, files, quantities
from mgpu.hangs import hang_evidence, hang_files
from mgpu.hangs.hang_evidence import Inquiry
from mgpu.launch import hang_report, list_runs, py_spy, registry, run_lines, why_subject
from mgpu.launch.registry import Entry
from mgpu.launch.request import Request
from mgpu.launch.run_json import WhyDocument
from mgpu.launch.why_subject import Part, Subject, is_ours
from mgpu.process import processes, run_log
from mgpu.readers.sources import left_loops
from mgpu.report import document as documents
from mgpu.report.screen import Line, Screen
from mgpu.snapshot import Hang, HangRank, StackFrame
from mgpu.text import counted
from mgpu.version import __version__

SCHEMA = "mgpu.why/1.0"
_BETWEEN_S = 1.5  # the two looks
_TIMES = 2.0  # the longest step so far, for which a run may be without progress
# What is a fault of a rank however long ago the last step was.
_CERTAIN = ("stopped", "gone", "left", "kernel")


@dataclass
class Answer:
    """What was found. `progress` is None if it is not known."""

    subject: Subject
    hang: Hang
    progress: bool | None = None
    gaps: list[str] = field(default_factory=list)
    measured: bool = False  # whether the time of the last progress is known

    @property
    def code(self) -> int:
        """Return the exit code."""
        if self.subject.finished:
            return errors.READY
        return errors.UNKNOWN if self.progress is None else errors.READY if self.progress else errors.NOT_READY


def run(request: Request, name: str | None, runs: Sequence[Entry]) -> int:
    """Ask the ranks and show the answer. Raises MgpuError (3) if there is no such run."""
    subject = why_subject.find_subject(name, runs)
    answer = ask(subject)
    if subject.entry is not None and subject.parts and not any(_is_running(rank) for rank in answer.hang.ranks):
        answer = ask(why_subject.after_ranks(subject))
    return show(request, answer)


def _is_running(rank: HangRank) -> bool:
    return rank.state not in (None, "ended")


def show(request: Request, answer: Answer) -> int:
    """Show an answer on the screen or as JSON; return the exit code."""
    if request.json_result:
        text = documents.text(_document(answer))
        if request.json_result == "-":
            print(text, end="")
        else:
            files.write_named(Path(request.json_result), text)
    if request.json_result != "-":
        screen = Screen.of()
        screen.show(lines(answer, screen))
    return answer.code


# The answer


def ask(subject: Subject) -> Answer:
    """Ask the ranks twice, and judge what they do."""
    if subject.finished:
        return Answer(subject, Hang(0.0, 0.0), gaps=list(subject.gaps))
    inquiries = [Inquiry(part.folder, part.ranks) for part in subject.parts]
    seen = [_spied(part) for part in subject.parts]
    began = time.monotonic()
    for look in range(2 if inquiries else 0):
        for inquiry in inquiries:
            inquiry.ask()
        while sum(one.is_waiting() for one in inquiries):  # each of them may signal ranks
            time.sleep(0.02)
        if not look:
            for inquiry in inquiries:
                inquiry.settle()
            time.sleep(_BETWEEN_S)
    passed = time.monotonic() - began
    quiet = [_quiet(part) for part in subject.parts]
    facts = [_fact(*each, passed) for each in zip(subject.parts, inquiries, seen, quiet, strict=True)]
    nodes = [*facts, *subject.others]
    hang = hang_files.merged(nodes) if len(nodes) > 1 else nodes[0]
    answer = Answer(subject, hang, gaps=[*subject.gaps, *_silence(hang)])
    answer.measured = bool(subject.others) or any(ages for ages, _ in quiet)
    answer.progress = _progress(answer, passed)
    return answer


def _spied(part: Part) -> dict[int, tuple[StackFrame, ...]]:
    """Return the stacks of ranks without a recorder, as far as py-spy may read them."""
    found = {}
    for rank, process in part.ranks.items():
        if (part.folder / hang_evidence.RECORDED / f"{rank}.{process.pid}.stacks").exists():
            continue
        # Not a program beside the interpreter of another user, whom root may ask about.
        if spy := py_spy.program(_python(process.pid) if is_ours(f"/proc/{process.pid}") else ""):
            found[rank] = py_spy.stack(spy, process.pid)[0]
    return found


def _python(pid: int) -> str:
    """Return the interpreter of a process, in its virtual environment if it has one."""
    if there := processes.environment(pid).get(b"VIRTUAL_ENV"):
        return os.path.join(os.fsdecode(there), "bin", "python")
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _fact(
    part: Part,
    inquiry: Inquiry,
    before: dict[int, tuple[StackFrame, ...]],
    quiet: tuple[list[float], float],
    passed: float,
) -> Hang:
    ranks, about = inquiry.result()
    after = _spied(part)
    ranks = tuple(_with_spied(rank, before.get(rank.rank, ()), after.get(rank.rank, ())) for rank in ranks)
    world = _world(part)
    if world == part.expected and part.ranks:  # all ranks are here, so one without a process has ended
        gone = set(range(world)) - {rank.rank for rank in ranks}
        ended = (HangRank(number, silent="its process has ended") for number in gone)
        ranks = tuple(sorted((*ranks, *ended), key=lambda rank: rank.rank))
    ages, longest = quiet
    about["left_loop"] = left_loops.find(ranks)
    return Hang(
        round(min(ages, default=passed), 1), round(longest, 1), ranks, part.expected or len(ranks), world, **about
    )


def _quiet(part: Part) -> tuple[list[float], float]:
    """Return how long ago each rank has made progress, and the output; and the longest time between two steps."""
    beats = [
        beat
        for rank, process in part.ranks.items()
        if (beat := hang_evidence.beat_of(part.folder, rank, process.pid)) is not None
    ]
    now = time.monotonic()
    ages = [now - at for beat in beats for at in (beat.step_at, beat.batch_at) if at]
    return [*ages, *_age_of_output(part.folder)], max((beat.longest_s for beat in beats), default=0.0)


def _with_spied(rank: HangRank, before: tuple[StackFrame, ...], after: tuple[StackFrame, ...]) -> HangRank:
    return replace(rank, frames=after, moved=before != after, silent=None) if after and not rank.frames else rank


def _world(part: Part) -> int:
    """Return the number of ranks of the whole run."""
    for process in part.ranks.values():
        given = processes.environment(process.pid).get(b"WORLD_SIZE", b"")
        if given.isdigit() and 0 < int(given) < 1 << 24:
            return int(given)
    return part.expected


def _age_of_output(folder: Path) -> list[float]:
    try:
        return [max(0.0, time.time() - path.stat().st_mtime) for path in run_log.parts(folder)[-1:]]
    except OSError:
        return []


def _progress(answer: Answer, passed: float) -> bool | None:
    """Return whether the run makes progress; None if it is not known."""
    hang = answer.hang
    found = hang_report.first_finding(hang)
    if found is not None and found.problem is not None and found.problem.evidence.get("kind") in _CERTAIN:
        return False
    counted_steps = any(rank.steps is not None for rank in hang.ranks)
    if answer.measured and hang.quiet_s < max(passed, _TIMES * hang.longest_s):
        return True
    if found is not None and counted_steps:
        return False
    if found is not None:  # without counters, only what does not change for two seconds is a hang
        return None if found.status != "fail" or any(rank.moved or rank.busy for rank in hang.ranks) else False
    works = [bool(rank.busy or rank.moved) for rank in hang.ranks]
    return True if works and all(works) else None


def _silence(hang: Hang) -> list[str]:
    """Return which stacks are not known, and why."""
    why: dict[str, list[int]] = {}
    for rank in hang.ranks:
        if rank.silent and rank.state not in (None, "stopped", "traced"):
            why.setdefault(rank.silent, []).append(rank.rank)
    said = [f"stack of {_named(numbers)} not known: {reason}" for reason, numbers in why.items()]
    if "it has no recorder" in why:
        said.append("next time start the run with mgpu launch, which adds a recorder; or install py-spy and ask again")
    return said


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {hang_report.spans(ranks)}"


# The screen


def lines(answer: Answer, screen: Screen) -> list[Line]:
    """Return the answer for a person."""
    hang, entry = answer.hang, answer.subject.entry
    of_run = run_lines.lines(entry, screen) if entry else []
    if answer.subject.finished and entry is not None:
        ending = list_runs.ending(registry.refresh(entry)[0])
        return [[(f"mgpu: {answer.subject.name} has finished", "bold"), (f"{ending}: no rank waits.", "")], *of_run]
    whole = f" of {hang.world}" if hang.world > len(hang.ranks) else ""
    head = f"mgpu: {answer.subject.name}, {counted(len(hang.ranks), 'rank')}{whole}"
    if answer.measured:
        head += f", last progress {quantities.duration_text(hang.quiet_s)} ago"
    shown: list[Line] = [[(head, "bold")], *of_run, *hang_report.table(hang, screen), []]
    found = hang_report.first_finding(hang)
    if answer.progress:
        shown.append([("All ranks make progress.", "ok")])
    elif found is not None:
        shown += hang_report.finding_lines(found, screen)
        if answer.progress is None:
            shown += screen.paragraph(
                "Without a recorder, this may be a moment of a run that makes progress: ask again."
            )
    else:
        shown.append([("Could not determine which rank keeps the others waiting.", "warn")])
    return [*shown, *(line for gap in answer.gaps for line in screen.paragraph(f"Note: {gap}."))]


def _document(answer: Answer) -> WhyDocument:
    return {
        "schema": SCHEMA,
        "mgpu": __version__,
        "time": durations.now(),
        "run": answer.subject.run,
        "exit_code": answer.code,
        "progress": answer.progress,
        "hang": hang_report.entry(answer.hang),
        "gaps": answer.gaps,
    }
