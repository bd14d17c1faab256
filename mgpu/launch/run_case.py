"""`mgpu launch --report [RUN]`: one page and one archive with everything that is known of a run, to read or to send."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import durations, errors, files, probes
from mgpu.config import facts
from mgpu.errors import MgpuError
from mgpu.hangs import hang_files
from mgpu.launch import pace_report, registry, run_facts_file, run_lines, run_parts
from mgpu.launch import report as launch_report
from mgpu.launch.registry import Entry, State
from mgpu.launch.request import Request
from mgpu.process import run_log
from mgpu.report import case_archive, document, output
from mgpu.report.case import case_document
from mgpu.report.case.case_json import CaseDocument
from mgpu.report.screen import Line, Screen, Style, headed
from mgpu.smoke import show_last
from mgpu.snapshot import FACTS, OF_A_RUN, Config, Run, Snapshot, Timeline

_TAIL = 40  # lines
Progress = Callable[[str], None]
_STYLES: dict[str, Style] = {"ok": "ok", "warn": "warn", "fail": "fail", "unknown": "crash"}


def run(request: Request, name: str | None, runs: Sequence[Entry]) -> int:
    """Write the page and the archive of a run into the current folder; return 0. Raises MgpuError."""
    entry, state = registry.refresh(registry.find(name, runs))
    if later := registry.successor(entry):
        raise MgpuError(f"{entry.id}: its folder now has the files of a later run, {later.id}", errors.USAGE)
    with output.progress() as show:
        known = gather(entry, state, show)
    write(request, entry.id, known, entry)
    return errors.READY


def write(request: Request, name: str, facts: Snapshot, entry: Entry | None = None) -> None:
    """Write the page and the archive of a run with this ID into the current folder, and show its verdict.

    `entry`: shown as the script, and as the folder if that is not the current one.
    """
    from mgpu.report.page import html_page
    from mgpu.snapshot.redaction import redact

    known = redact(facts)
    case = case_document.of_facts(known)
    if request.json_result:
        _write_json(request.json_result, case)
    page, archive = Path(f"mgpu-report-{name}.html"), Path(f"mgpu-report-{name}{case_archive.ENDING}")
    files.write_named(page, html_page.text(case), mode=0o600)
    files.write_named(archive, case_archive.packed(known), mode=0o600)
    if request.json_result != "-":
        screen = Screen.of()
        of_run = run_lines.lines(entry, screen) if entry else []
        screen.show([*_verdict(case, screen), *of_run, *_files(page, archive, screen)])


def _write_json(path: str, case: CaseDocument) -> None:
    text = document.text(case)
    if path == "-":
        print(text, end="")
    else:
        files.write_named(Path(path), text)


def _verdict(case: CaseDocument, screen: Screen) -> list[Line]:
    headline = case["headline"]
    text = headline["text"] if screen.glyphs else headline["text"].replace(" · ", ", ")
    return headed(headline["word"], _STYLES[headline["light"]], text, screen)


def _files(page: Path, archive: Path, screen: Screen) -> list[Line]:
    """Return each file on a line of its own, so that its name can be copied, and what it is for."""
    size = f"{(page.stat().st_size + 1023) >> 10} KiB"
    uses = {
        page: f"the report as a page ({size}); opens offline in any browser",
        archive: "the same with all facts: mgpu doctor --from FILE judges them again",
    }
    found: list[Line] = [[]]
    for path, text in uses.items():
        found += [[(str(path), "bold")], *screen.paragraph(text, "  ", "  ")]
    return [
        *found,
        *screen.paragraph(
            "Names, addresses and secrets are replaced. The lines of your program's output are in it: read them first."
        ),
    ]


def gather(entry: Entry, state: State, show: Progress | None = None) -> Snapshot:
    """Return everything that is known of a run: its machine, config, end, ranks, log, and its smoke test."""
    folder = Path(entry.folder)
    kept = run_parts.joined(run_facts_file.load(folder) or Snapshot(), folder)
    parts = run_log.parts(folder)
    ended = kept.run or _run(entry, state)
    failed = state != "ended" or bool(entry.exit_code)
    log = launch_report.read_logs(parts)[0] if failed else None
    timeline = kept.timeline or Timeline(entry.id, entry.started, _seconds(entry), entry.command)
    timeline = replace(timeline, id=entry.id, started=entry.started, tail=run_facts_file.last_lines(parts, _TAIL))
    config = kept.config or _config(entry)
    machine = _machine(entry, kept, show)
    return replace(
        machine,
        run=ended,
        log=log if log is None or log.size_bytes else None,
        hang=kept.hang or hang_files.of_run(folder),
        timeline=timeline,
        config=config,
        script=kept.script,
        ranks=show_last.last_ranks(Path(entry.cwd, config.path), folder.parent) if config else None,
    )


def _machine(entry: Entry, kept: Snapshot, show: Progress | None) -> Snapshot:
    """Return the machine as it is now, if the run was here; else as the launch saw it."""
    if entry.host == socket.gethostname():
        return probes.gather(probes.DEFAULT, plan=kept.plan, progress=show)
    seen = {fact: getattr(kept, fact) for fact in FACTS if fact not in OF_A_RUN}
    return Snapshot(**seen, gaps=kept.gaps, taken=kept.taken, mgpu=kept.mgpu)


def _config(entry: Entry) -> Config | None:
    path = Path(entry.cwd, entry.config)
    try:
        return facts(path, ask_loader=False) if entry.config != "none" and path.is_file() else None
    except MgpuError:
        return None


def _run(entry: Entry, state: State) -> Run | None:
    """Return what the list of runs knows, of a run that has not stored its facts; None if its end is not known."""
    if state == "running":
        seconds = durations.seconds_between(entry.started, durations.now()) or 0.0
        pace = pace_report.read(Path(entry.folder))
        return Run(0, 0, max(0.0, seconds), expected=entry.ranks, going=True, pace=pace)
    if entry.ended is None or entry.exit_code is None:
        return None
    return Run(
        entry.exit_code,
        entry.exit_code,
        _seconds(entry) or 0.0,
        signalled=entry.signalled,
        timed_out=entry.timed_out,
        expected=entry.ranks,
    )


def _seconds(entry: Entry) -> float | None:
    return durations.seconds_between(entry.started, entry.ended) if entry.ended else None
