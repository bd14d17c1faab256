"""Is a config file valid: its format, its values on this machine, and in accelerate's own loader?

`mgpu configure --validate` reads each file, applies the safe repairs with `--fix`, runs every check that reads a
config, and reports the findings with their place in the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mgpu import engine, file_reading, probes, project_settings
from mgpu.check import Edit
from mgpu.config import ask_all, deepspeed_json
from mgpu.config.reading import LARGEST_BYTES, contents, digest, parse_config, seal
from mgpu.engine import selections, waiving
from mgpu.engine import verdict as verdicts
from mgpu.errors import USAGE, MgpuError, reason
from mgpu.planning.gpu_models import mark_if_away
from mgpu.probes import prefetch
from mgpu.process import scratch
from mgpu.snapshot import Config, DeepSpeedJson, LocalRules, Plan, Snapshot
from mgpu.validate.request import STDIN, Fixed, Judged, Request, repair

FORMATS = ("human", "json", "github", "sarif")
_ROUNDS = 25  # limit: a repair may expose another fault, and each round drops one duplicate key


def run(request: Request) -> int:
    """Run `--validate FILE...` or `--show-origin` and return the exit code."""
    started = time.monotonic()
    if request.format not in FORMATS:
        raise MgpuError(f"--format {request.format}: choose human, json, github or sarif", USAGE)
    if request.files.count(STDIN) > 1:
        raise MgpuError("standard input (-) can be read only once", USAGE)
    contained = {name: _bytes(name) for name in dict.fromkeys(request.files)}
    if request.show_origin:
        from mgpu.validate.origins import show

        return show(request, contained)
    machine = request.machine or _this_machine(request.python)
    fixed = {name: _fix_file(name, raw, machine, request) for name, raw in contained.items()} if request.fix else {}
    now = contained if request.dry_run else contained | {name: found.raw for name, found in fixed.items()}
    own = {name: file for name, raw in now.items() if (file := deepspeed_json.recognized(raw, name))}
    configs = [parse_config(raw, name) for name, raw in now.items() if name not in own]
    if request.loader:
        configs, own = _load(configs, own, now, request.python)
    rules = waiving.rules_of(project_settings.find())
    judged = {one.path: _judge_file(one, machine, fixed.get(one.path), request, rules) for one in configs}
    judged |= {name: _judge_deepspeed(file, machine, fixed.get(name), request, rules) for name, file in own.items()}
    found = [judged[name] for name in now]
    from mgpu.validate import report

    report.write(found, request.format, time.monotonic() - started)
    return verdicts.worst(one.code for one in found)


def with_config(snapshot: Snapshot, config: Config) -> Snapshot:
    """Return the facts that the checks of a config read: a machine and the file."""
    return replace(
        snapshot, config=mark_if_away(config, snapshot), plan=Plan(nodes=config.num_machines), ranks=None, stamp=None
    )


def judge(config: Config, snapshot: Snapshot) -> tuple[engine.Outcome, ...]:
    """Run every check of a config on this file and machine."""
    return engine.judge(with_config(snapshot, config), selections.CONFIG)


def _judge_file(
    config: Config, machine: Snapshot, fixed: Fixed | None, request: Request, rules: LocalRules | None
) -> Judged:
    outcomes = waiving.waive(judge(config, machine), rules)
    if rules is not None:
        outcomes += engine.judge(Snapshot(local_rules=rules), selections.LOCAL_RULES)
    verdict, code = verdicts.of_config(config, outcomes, loaded=request.loader, strict=request.strict)
    return Judged(
        config, outcomes, verdict, code, with_config(machine, config), fixed, request.loader, None, request.verbose
    )


def _judge_deepspeed(
    file: DeepSpeedJson, machine: Snapshot, fixed: Fixed | None, request: Request, rules: LocalRules | None
) -> Judged:
    """Judge a DeepSpeed file; without an installed DeepSpeed, only by the checks of its text."""
    snapshot = replace(machine, config=None, deepspeed_json=(file,))
    outcomes = waiving.waive(engine.judge(snapshot, selections.DEEPSPEED_FILE), rules)
    if rules is not None:
        outcomes += engine.judge(Snapshot(local_rules=rules), selections.LOCAL_RULES)
    config = Config(file.path, digest(file.values) if file.values else None, file.values, file.marks)
    installed = file.loader is not None or "deepspeed" in (machine.packages or {})
    asked = request.loader and installed and file.fault is None
    verdict, code = verdicts.of_config(config, outcomes, loaded=asked and file.loader is None, strict=request.strict)
    return Judged(config, outcomes, verdict, code, snapshot, fixed, asked, file, request.verbose)


def _this_machine(python: str | None) -> Snapshot:
    return probes.gather(probes.OF_CONFIGS, python=python, started=prefetch.take())


def _bytes(name: str) -> bytes:
    if name != STDIN:
        return contents(Path(name))
    try:
        return file_reading.standard_input(most=LARGEST_BYTES)
    except OSError as error:
        raise MgpuError(f"cannot read standard input: {error.strerror or reason(error)}", USAGE) from None


def _load(
    configs: list[Config], own: dict[str, DeepSpeedJson], now: dict[str, bytes], python: str | None
) -> tuple[list[Config], dict[str, DeepSpeedJson]]:
    """Add the results of accelerate's and DeepSpeed's loaders. Standard input is loaded from a temporary file."""
    from mgpu.report import output

    with scratch.folder() as folder, output.progress() as show:
        if show:
            show("accelerate's own loader" if configs else "DeepSpeed's own loader")
        path = folder / "stdin.yaml"
        if STDIN in now:
            path.write_bytes(now[STDIN])
        named = [replace(config, path=str(path) if config.path == STDIN else config.path) for config in configs]
        asked, files = ask_all(named, list(own.values()), python=python)
    found = [replace(one, path=mine.path) for one, mine in zip(asked, configs, strict=True)]
    return found, dict(zip(own, files, strict=True))


# ---- --fix


def fix_config(raw: bytes, name: str, snapshot: Snapshot) -> Fixed:
    """Apply every safe repair, and check again after each round, until there is nothing left to fix."""
    from mgpu.config import fixes

    done: list[Edit] = []
    left: dict[str, None] = {}
    config, old = parse_config(raw, name), raw
    sealed = config.written_by_mgpu
    for _ in range(_ROUNDS):
        if any(fault.fatal for fault in config.faults):
            break
        changed, left = _round(raw, name, snapshot, done)
        if changed == raw:
            break
        raw, config = changed, parse_config(changed, name)
    if sealed and raw != old:  # still a file that only mgpu has changed: seal it again
        before = parse_config(old, name)
        text = raw.decode().replace(
            seal(before.values, before.launch_flags), seal(config.values, config.launch_flags), 1
        )
        raw = text.encode()
    diff = fixes.diff(old.decode(), raw.decode(), name) if raw != old else []
    return Fixed(raw, tuple(done), tuple(left), tuple(diff))


def _round(raw: bytes, name: str, snapshot: Snapshot, done: list[Edit]) -> tuple[bytes, dict[str, None]]:
    """Apply the repairs of all findings, each once; if two change the same key, only the first.

    Lines are dropped first, and only one per round, because that moves all lines below it.
    """
    from mgpu.config import fixes

    left: dict[str, None] = {}
    touched: set[str] = set()
    moved = False
    offered = [(o, edits) for o in judge(parse_config(raw, name), snapshot) if (edits := repair(o))]
    for outcome, edits in sorted(offered, key=lambda one: not _drops(one[1])):
        keys = {key for edit in edits for key in (edit.key, edit.to) if key}
        if keys & touched or (_drops(edits) and moved) or any(e.kind != "drop_line" and e in done for e in edits):
            continue
        try:
            changed = fixes.apply(raw.decode(), edits, json_only=name.endswith(".json")).encode()
        except fixes.CannotFix as error:
            left[f"{outcome.check.id}: {error}"] = None
            continue
        if not _drops(edits) and _still(outcome, parse_config(changed, name), snapshot):
            left[f"{outcome.check.id}: its repair would not fix it"] = None
            continue
        raw, moved = changed, True
        touched |= keys
        done += edits
    return raw, left


def _drops(edits: Sequence[Edit]) -> bool:
    return any(edit.kind == "drop_line" for edit in edits)


def _still(before: engine.Outcome, config: Config, snapshot: Snapshot) -> bool:
    """Whether a check reports the same problem again."""
    key = before.problem.place.key if before.problem and before.problem.place else None
    again = engine.judge(with_config(snapshot, config), selections.CONFIG, [before.check])
    after = [o.problem for o in again if o.problem]
    return any(problem.place is not None and problem.place.key == key for problem in after)


def _fix_file(name: str, raw: bytes, machine: Snapshot, request: Request) -> Fixed:
    """Fix a file, and write it unless this is a dry run."""
    if deepspeed_json.recognized(raw, name):
        return Fixed(raw)  # what is wrong in a DeepSpeed file has no safe repair
    found = fix_config(raw, name, machine)
    if found.raw == raw or request.dry_run:
        return found
    path = Path(name)
    if name == STDIN or not path.is_file():
        raise MgpuError(f"--fix cannot write to {name}: --fix --dry-run shows what would change", USAGE)
    if not os.access(path, os.W_OK):
        raise MgpuError(f"{path} is read-only: not fixed (--fix --dry-run shows what would change)")
    if contents(path) != raw:
        raise MgpuError(f"{path} has changed in the meantime: not fixed")
    from mgpu import files

    backup = files.back_up(path)
    try:
        files.write(path, found.raw.decode())
    except MgpuError:
        backup.unlink(missing_ok=True)
        raise
    return replace(found, backup=backup)
