"""`mgpu doctor`: is this machine ready?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.cli.option import Command, Option, Values

if TYPE_CHECKING:
    from mgpu.probes.runner import Child, Probe


def _ids(incomplete: str) -> list[str]:
    """Ids and areas for the shell's completion; after a comma the next one."""
    from mgpu import engine

    done, comma, begun = incomplete.rpartition(",")
    names = dict.fromkeys(name for check in engine.load() for name in (check.area, check.id))
    return [f"{done}{comma}{name}" for name in names if name.startswith(begun)]


# fmt: off
OPTIONS = (
    Option("--quick", bool, "Under a second: torch is not imported."),
    Option("--deep", bool, "Also run a kernel on every GPU, each in a process of its own."),
    Option("--only", list, "Only these checks or areas.", "ID[,ID]", complete=_ids),
    Option("--skip", list, "Not these checks or areas.", "ID[,ID]", complete=_ids),
    Option("--list-checks", bool, "Every check: id, area, what it proves."),
    Option("--explain", str, "The whole text of one check.", "ID", complete=_ids),
    Option("--json-schema", bool, "The JSON Schema of --json."),
    Option("--expect-gpus", int, "Fail unless exactly N GPUs are usable.", "N", least=0),
    Option("--expect-free", float, "Fail unless every GPU has this free.", "GIB", field="expect_free_gib", least=0),
    Option("--nodes", int, "Machines the run will span (else: config, Slurm job, 1).", "N", least=1),
    Option("--path", list, "A folder the run reads or writes; repeatable.", "DIR"),
    Option("--script", str, "Read this training or job script; nothing of it is run.", "FILE"),
    Option("--log", list, "Explain this log of a failed run; repeatable, one a rank.", "FILE"),
    Option(
        "--compare-nodes", list,
        "What differs between nodes: a folder of --save files, one a node, or a pre-flight's.", "DIR|FILE",
    ),
    Option("--strict", bool, "Warnings fail as well."),
    Option("--format", str, "human, json, junit, github or markdown.", "FMT", default="human"),
    Option("--json", bool, "Same as --format json."),
    Option("--output -o", str, 'Write there ("-" = stdout).', "FILE", default="-"),
    Option("--save", str, "Write the machine (a Snapshot, redacted).", "FILE"),
    Option("--from", str, "Judge a saved machine, read nothing here.", "FILE", field="from_"),
    Option("--compare", str, "What changed since that --save. Does not alter the exit code.", "FILE"),
    Option("--redact/--no-redact", bool, "Hide host, user, addresses, pids (on for markdown).", default=None),
    Option("--fix", bool, "Offer repairs that are yours to make; the exit code is of a judgment after them."),
    Option("--dry-run", bool, "With --fix: show the repairs, do none."),
    Option("--yes -y", bool, "With --fix: do them all, ask nothing."),
    Option("--config -c", str, "Judge this accelerate config with it.", "FILE"),
    Option("--python", str, "Examine this interpreter instead of mgpu's own.", "PATH"),
    Option("--exit-style", str, "default, nagios, or prolog (Slurm).", "STYLE", default="default"),
    Option("--timeout", float, "The whole command.", "SEC", field="timeout_s", default=0.0, least=0),
    Option("--verbose -v", bool, "Every check, evidence, topology."),
)
# fmt: on
# With one of these the doctor asks this machine nothing.
_ELSEWHERE = ("from_", "list_checks", "explain", "script", "log", "compare_nodes")


def run(values: Values) -> int:
    """Examine this machine: driver, GPUs, links, PyTorch, NCCL, limits. Changes nothing, unless --fix is agreed to."""
    import time

    began = time.monotonic()
    if values["json_schema"]:
        from mgpu.cli import json_schema

        return json_schema.show()
    more = values["more"]
    if more and not (values["log"] or values["compare_nodes"]):
        from mgpu.errors import USAGE, MgpuError

        raise MgpuError(f"doctor takes no argument {more[0]!r} (a log: --log {more[0]}): mgpu doctor --help", USAGE)
    if values["python"]:
        from mgpu.doctor.request import interpreter

        values["python"] = interpreter(values["python"])
    hurried = values["exit_style"] == "prolog"  # a prolog holds up every job
    if hurried:
        import os

        values["quick"] = True
        # Slurm sets it to the GPUs of the job; a node is drained as a whole, for a fault of any.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    # The machine is asked while mgpu loads its checks.
    here = not any(values[name] for name in _ELSEWHERE)
    started = _start(values["quick"], values["path"] or [], values["python"], hurried=hurried) if here else None
    try:
        return _with_probes(values, started, began)
    finally:
        if started:
            from mgpu.probes import runner

            runner.end(started)


def _with_probes(values: Values, started: list[Child] | None, began: float) -> int:
    from mgpu.doctor import request as doctor_request
    from mgpu.doctor import run

    own = {name: values.pop(name) for name in ("json", "json_schema", "list_checks", "explain", "path", "more")}
    log, nodes = values["log"], values["compare_nodes"]
    values |= {
        "only": _split(values["only"]),
        "skip": _split(values["skip"]),
        "format": "json" if own["json"] else values["format"],
        "log": (*log, *own["more"]) if log else (),
        "compare_nodes": (*nodes, *(() if log else own["more"])) if nodes else (),
        "python": values["python"] or None,
    }
    request = doctor_request.Request(**values, started=started, began=began)
    if own["list_checks"]:
        return run.list_checks(request)
    if own["explain"]:
        return run.explain(own["explain"])
    return run.run(request)


_PROLOG_S = 5.0  # a child may take in a prolog: Slurm waits MessageTimeout for all of it, 10 s by default


def _start(quick: bool, paths: Sequence[str], python: str, *, hurried: bool) -> list[Child]:
    """The probes' children, on their way; `hurried`: a job waits for them."""
    from mgpu.probes import runner

    wanted: tuple[Probe, ...] = runner.QUICK if quick else runner.DEFAULT
    if hurried:
        from dataclasses import replace

        wanted = tuple(replace(probe, deadline_s=min(probe.deadline_s, _PROLOG_S)) for probe in wanted)
    if paths:
        import os
        from dataclasses import replace

        named = {"named": [os.path.abspath(path) for path in paths]}
        wanted = tuple(replace(p, arguments=named) if p.name == "storage" else p for p in wanted)
    return runner.start(wanted, python=python or None)


def _split(names: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(part for name in names or () for part in name.split(",") if part)


COMMAND = Command(
    "doctor",
    "Is this machine ready? Changes nothing.",
    run,
    OPTIONS,
    words="more",  # of --log rank*.log
    metavar="[FILE]...",
)
