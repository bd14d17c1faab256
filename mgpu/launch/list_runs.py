"""What is known of one run: the state and the end in words, the live ranks, the last line, all of it as lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import durations, file_reading, messages, quantities
from mgpu.command_line import shell
from mgpu.hangs import hang_files
from mgpu.launch import gpu_readings_file, hang_report, node_answers, node_ranks, pace_report, registry, run_lines
from mgpu.launch.registry import Entry, State
from mgpu.launchers.argv import by_accelerate
from mgpu.process import processes, run_log
from mgpu.report import screen as report_screen
from mgpu.text import counted

if TYPE_CHECKING:
    from mgpu.launch.run_json import LiveRank

_LAST_BYTES = 8192


# Texts


def state_word(entry: Entry, state: State) -> tuple[str, report_screen.Style]:
    """Return one word for a run's state or how it ended."""
    if state == "running":
        return ("suspended", "warn") if processes.state_of(entry.pid) == "stopped" else ("running", "")
    if state == "lost":
        return "lost", "fail"
    if state == "elsewhere":
        return "elsewhere", "warn"
    if entry.timed_out:
        return "timed out", "fail"
    if entry.exit_code == 0:
        return "finished", "ok"
    return ("stopped", "warn") if entry.signalled else ("FAILED", "fail")


def ending(entry: Entry) -> str:
    """Return the text after the word: how long the run took, and its exit code."""
    if entry.ended is None:
        return ": its supervisor was killed or the machine was restarted, so how the training ended is unknown"
    seconds = durations.seconds_between(entry.started, entry.ended)
    after = "" if seconds is None else f" after {quantities.duration_text(seconds)}"
    code = "exit code unknown" if entry.exit_code is None else f"exit {entry.exit_code}"
    by = f" by {entry.signalled}" if entry.signalled and entry.exit_code != 0 and not entry.timed_out else ""
    return f"{by}{after}, {code}"


def lines(entry: Entry, state: State, screen: report_screen.Screen) -> list[report_screen.Line]:
    """Return everything that is known of a run."""
    shown, style = state_word(entry, state)
    found: list[report_screen.Line] = [[(f"{entry.id}  ", "bold"), (shown, style), (_details(entry, state), "")]]
    folder = Path(entry.folder)
    later = registry.successor(entry)
    host = "" if state == "running" else f" on {entry.host}"
    rows = [
        ("Script", run_lines.script_text(entry)),
        ("Config", entry.config),
        ("Started", f"{durations.precise_age_text(entry.started)}, {entry.started[:19]} UTC, in {entry.cwd}"),
        ("Command", "" if hosts_of(entry) else shlex.join(entry.command)),  # else a program of mgpu, which starts them
        ("Logs", f"{folder}/{_later_note(later) if folder.is_dir() else ' (removed)'}"),
        ("mgpu", f"pid {entry.pid}{host}{', detached' if entry.detached else ''}"),
    ]
    if state == "running":
        live = ranks(entry)
        rows += [(f"Rank {row['rank']}", f"pid {row['pid']}, {row['state']}") for row in live]
        if hosts := hosts_of(entry):
            rows.append(("Hosts", _ranks_on_hosts(hosts)))
        if len(live) < (entry.ranks or 0):
            rows.append(("Ranks", f"{len(live)} of {entry.ranks} running"))
    if left := leftover_text(entry, state):
        rows.append(("Left", left))
    if state == "running" and (text := hang_report.one_line(hang_files.read(folder))):
        rows.append(("Hang", text))
    if state == "running" and (gpus := gpu_readings_file.line(gpu_readings_file.load_readings(folder))):
        rows.append(("GPUs", gpus))
    pace = pace_report.read(folder) if state == "running" else None
    if later is None and (last := last_line(folder)):
        rows.append(("Last line", last))
    for label, text in filter(lambda row: row[1], rows):
        first, *rest = report_screen.wrapped(text, screen.width - 11) or [""]
        found += [[(f"{label:<11}", "bold"), (first, "")], *report_screen.unstyled(" " * 11 + more for more in rest)]
    if pace is not None and pace_report.is_uneven(pace):
        found += pace_report.table(pace_report.entry(pace), screen)
    return found


def _later_note(later: Entry | None) -> str:
    return f" (now has the log of a later run, {later.id})" if later else ""


def _details(entry: Entry, state: State) -> str:
    if state == "running" and (hosts := hosts_of(entry)):
        return f" on {counted(len(hosts), 'host')}"
    if state == "running":
        return f", {len(ranks(entry))} of {entry.ranks or '?'} ranks"
    if state == "elsewhere":
        return f": it is {registry.whereabouts(entry)} and cannot be queried from here"
    return ending(entry)


def leftover_text(entry: Entry, state: State) -> str:
    """Return a line on the processes of a run without a supervisor that are still running; empty if there are none."""
    left = processes.processes_of_run(entry.run_id) if state == "lost" else []
    pids = " ".join(str(process.pid) for process in left)
    return f"its processes are still running ({pids}): {shell('mgpu launch --stop {:id}', entry.id)}" if left else ""


# Live state


def rank_processes(entry: Entry) -> dict[int, processes.Rank]:
    """Return the processes of a run's ranks on this machine."""
    if entry.launcher is None or hosts_of(entry):
        return {}
    found = processes.ranks_under(entry.launcher)
    if not found and (entry.ranks or 1) == 1:
        found = processes.lone_rank_under(entry.launcher, starts_it=by_accelerate(entry.command))
    return found


def hosts_of(entry: Entry) -> list[Path]:
    """Return the folders with what the hosts of a run over ssh have stored; none for other runs."""
    return hang_files.node_folders(Path(entry.folder) / node_answers.HOSTS)


def _ranks_on_hosts(hosts: Sequence[Path]) -> str:
    """Return "n1: rank 0; n2: rank 1", as far as the hosts have stored it."""
    known = {place: found for place in hosts if (found := node_ranks.read(place)) is not None and not found.ended}
    texts = []
    for place in hosts:
        numbers = [rank.rank for rank in known[place].ranks] if place in known else []
        said = f"rank{'s' if len(numbers) > 1 else ''} {hang_report.spans(numbers)}" if numbers else "no rank known"
        texts.append(f"{hang_files.node_name(place)}: {said}")
    return "; ".join(texts)


def ranks(entry: Entry) -> list[LiveRank]:
    """Return the live ranks of a run on this machine."""
    found = rank_processes(entry)
    states = {rank: (process.pid, processes.state_of(process.pid)) for rank, process in sorted(found.items())}
    return [
        {"rank": rank, "pid": pid, "state": state}
        for rank, (pid, state) in states.items()
        if state not in (None, "ended")
    ]


def last_line(folder: Path) -> str:
    """Return the last line that the program printed, as a terminal would show it."""
    parts = run_log.parts(folder)
    if not parts:
        return ""
    try:
        printed = file_reading.read_part(parts[-1], most=_LAST_BYTES)
    except OSError:
        return ""
    text = messages.clean(printed.decode("utf-8", "replace").replace("\r", "\n"))
    lines = [line.strip() for line in re.split(r"\n+", text) if line.strip()]
    return lines[-1][:300] if lines else ""
