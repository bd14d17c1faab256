"""Is a config file right: its shape, its sense on a machine, and what accelerate's own loader says?

What `mgpu configure --validate` does: read each file, mend what is safe if `--fix` asks for it, judge it by every check
that reads a config, and tell it with the place in the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, file_reading, probes
from mgpu.check import Edit
from mgpu.config import ask
from mgpu.config.reading import LARGEST_BYTES, contents, seal, understand
from mgpu.engine import selections
from mgpu.engine import verdict as verdicts
from mgpu.errors import USAGE, MgpuError, reason
from mgpu.planning.gpu_models import placed
from mgpu.probes import prefetch
from mgpu.process import scratch
from mgpu.snapshot import Config, Plan, Snapshot
from mgpu.validate.request import STDIN, Judged, Mended, Request, repair

FORMATS = ("human", "json", "github")
_ROUNDS = 25  # a repair may bring another fault to light, and double keys are dropped one a round; never more often


def run(request: Request) -> int:
    """`--validate FILE…` and `--show-origin`; gives the exit code."""
    started = time.monotonic()
    if request.format not in FORMATS:
        raise MgpuError(f"--format {request.format}: choose human, json or github", USAGE)
    if request.files.count(STDIN) > 1:
        raise MgpuError("standard input (-) can be read only once", USAGE)
    contained = {name: _bytes(name) for name in dict.fromkeys(request.files)}
    if request.show_origin:
        from mgpu.validate.origins import show

        return show(request, contained)
    machine = request.machine or _this_machine(request.python)
    mended = {name: _mended(name, raw, machine, request) for name, raw in contained.items()} if request.fix else {}
    now = contained if request.dry_run else contained | {name: found.raw for name, found in mended.items()}
    configs = [understand(raw, name) for name, raw in now.items()]
    if request.loader:
        configs = _asked(configs, now, request.python)
    found = [_judged(config, machine, mended.get(config.path), request.loader) for config in configs]
    from mgpu.validate import report

    report.tell(found, request.format, time.monotonic() - started)
    return verdicts.worst(one.code for one in found)


def with_config(snapshot: Snapshot, config: Config) -> Snapshot:
    """The facts the checks of a config read: a machine, and the file."""
    return replace(
        snapshot, config=placed(config, snapshot), plan=Plan(nodes=config.num_machines), ranks=None, stamp=None
    )


def judge(config: Config, snapshot: Snapshot) -> tuple[engine.Outcome, ...]:
    """What every check of a config answers to this file on this machine."""
    return engine.judge(with_config(snapshot, config), selections.CONFIG)


def _judged(config: Config, machine: Snapshot, mended: Mended | None, asked: bool) -> Judged:
    outcomes = judge(config, machine)
    verdict, code = verdicts.of_config(config, outcomes)
    return Judged(config, outcomes, verdict, code, with_config(machine, config), mended, asked)


def _this_machine(python: str | None) -> Snapshot:
    return probes.gather(probes.OF_CONFIGS, python=python, started=prefetch.take())


def _bytes(name: str) -> bytes:
    if name != STDIN:
        return contents(Path(name))
    try:
        return file_reading.standard_input(most=LARGEST_BYTES)
    except OSError as error:
        raise MgpuError(f"cannot read standard input: {error.strerror or reason(error)}", USAGE) from None


def _asked(configs: list[Config], now: dict[str, bytes], python: str | None) -> list[Config]:
    """The configs with accelerate's verdict; what came from standard input is asked about as a file of its own."""
    from mgpu.report import output

    with scratch.folder() as folder, output.progress() as show:
        if show:
            show("accelerate's own loader")
        if STDIN not in now:
            return ask(configs, python=python)
        path = folder / "stdin.yaml"
        path.write_bytes(now[STDIN])
        named = [replace(config, path=str(path) if config.path == STDIN else config.path) for config in configs]
        return [replace(one, path=mine.path) for one, mine in zip(ask(named, python=python), configs, strict=True)]


# ---- --fix


def mend(raw: bytes, name: str, snapshot: Snapshot) -> Mended:
    """The bytes with every safe repair made, judged anew after each round, until nothing is left to do."""
    from mgpu.config import fixes

    done: list[Edit] = []
    left: dict[str, None] = {}
    config, old = understand(raw, name), raw
    sealed = config.written_by_mgpu
    for _ in range(_ROUNDS):
        if any(fault.fatal for fault in config.faults):
            break
        changed, left = _round(raw, name, snapshot, done)
        if changed == raw:
            break
        raw, config = changed, understand(changed, name)
    if sealed and raw != old:  # still mgpu's own file: what it says now is what mgpu made of it
        before = understand(old, name)
        text = raw.decode().replace(
            seal(before.values, before.launch_flags), seal(config.values, config.launch_flags), 1
        )
        raw = text.encode()
    diff = fixes.diff(old.decode(), raw.decode(), name) if raw != old else []
    return Mended(raw, tuple(done), tuple(left), tuple(diff))


def _round(raw: bytes, name: str, snapshot: Snapshot, done: list[Edit]) -> tuple[bytes, dict[str, None]]:
    """The repairs of all findings, each made once; of two that concern one key the first. Lines that go come first,
    and one a round: after it all others have moved."""
    from mgpu.config import fixes

    left: dict[str, None] = {}
    touched: set[str] = set()
    moved = False
    offered = [(o, edits) for o in judge(understand(raw, name), snapshot) if (edits := repair(o))]
    for outcome, edits in sorted(offered, key=lambda one: not _drops(one[1])):
        keys = {key for edit in edits for key in (edit.key, edit.to) if key}
        if keys & touched or (_drops(edits) and moved) or any(e.kind != "drop_line" and e in done for e in edits):
            continue
        try:
            changed = fixes.apply(raw.decode(), edits, json_only=name.endswith(".json")).encode()
        except fixes.CannotMend as error:
            left[f"{outcome.check.id}: {error}"] = None
            continue
        if not _drops(edits) and _still(outcome, understand(changed, name), snapshot):
            left[f"{outcome.check.id}: its own repair would not make it go away"] = None
            continue
        raw, moved = changed, True
        touched |= keys
        done += edits
    return raw, left


def _drops(edits: Sequence[Edit]) -> bool:
    return any(edit.kind == "drop_line" for edit in edits)


def _still(before: engine.Outcome, config: Config, snapshot: Snapshot) -> bool:
    """Whether a check finds the same again."""
    key = before.problem.place.key if before.problem and before.problem.place else None
    again = engine.judge(with_config(snapshot, config), selections.CONFIG, [before.check])
    after = [o.problem for o in again if o.problem]
    return any(problem.place is not None and problem.place.key == key for problem in after)


def _mended(name: str, raw: bytes, machine: Snapshot, request: Request) -> Mended:
    """What `--fix` makes of a file; written, unless only the diff is wanted."""
    found = mend(raw, name, machine)
    if found.raw == raw or request.dry_run:
        return found
    path = Path(name)
    if name == STDIN or not path.is_file():
        raise MgpuError(f"{name} is no file that could be mended; --fix --dry-run shows what would change", USAGE)
    if not os.access(path, os.W_OK):
        raise MgpuError(f"{path} is read-only; it stays as it is (--fix --dry-run shows what would change)")
    if contents(path) != raw:
        raise MgpuError(f"{path} has changed meanwhile; it stays as it is")
    from mgpu import files

    backup = files.back_up(path)
    try:
        files.write(path, found.raw.decode())
    except MgpuError:
        backup.unlink(missing_ok=True)
        raise
    return replace(found, backup=backup)
