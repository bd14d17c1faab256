"""`mgpu doctor`: is this machine ready?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.cli.known_values import checks, configs, demos
from mgpu.cli.option import Command, Option, Values, among

if TYPE_CHECKING:
    from mgpu.errors import MgpuError
    from mgpu.probes.runner import Child, Probe


# fmt: off
OPTIONS = (
    Option("--quick", bool, "Skip slow probes such as importing torch (under 1 s)."),
    Option("--deep", bool, "Also run a kernel on every GPU, in one process per GPU."),
    Option("--only", list, "Run only these checks or areas.", "ID[,ID]", complete=checks),
    Option("--skip", list, "Skip these checks or areas.", "ID[,ID]", complete=checks),
    Option("--list-checks", bool, "List all checks, or those that match the words after it."),
    Option("--explain", str, "Print the documentation of one check.", "ID", complete=checks),
    Option("--json-schema", bool, "Print the JSON Schema of --json."),
    Option("--expect-gpus", int, "Fail unless exactly N GPUs are usable.", "N", least=0),
    Option("--expect-free", float, "Fail unless each GPU has this free.", "GIB", field="expect_free_gib", least=0),
    Option("--nodes", int, "Number of nodes of the run (default: config, Slurm job, 1).", "N", least=1),
    Option("--path", list, "Folder that the run reads or writes; repeatable.", "DIR"),
    Option("--script", str, "Analyze training or job scripts without running them.", "FILE"),
    Option("--log", list, "Explain the log of a failed run, or its folder; repeatable, one per rank.", "FILE|DIR"),
    Option(
        "--compare-nodes", list,
        "Compare nodes: a folder with one --save file per node, or a pre-flight's.", "DIR|FILE",
    ),
    Option("--hosts", str, "Examine and compare these hosts over ssh: a,b or n[1-8] or a file.", "HOSTS"),
    Option("--strict", bool, "Treat warnings as failures."),
    Option(
        "--format", str, "Output format: human, json, junit, github, markdown, sarif or html.", "FMT", default="human",
        complete=among("human", "json", "junit", "github", "markdown", "sarif", "html"),
    ),
    Option("--json", bool, "Same as --format json."),
    Option("--output -o", str, 'Write the report to FILE ("-" = stdout).', "FILE", default="-"),
    Option("--save", str, "Save the facts of this machine (redacted); FILE.mgpu.tar.gz has the page, too.", "FILE"),
    Option("--from", str, "Check a saved machine or case instead of this machine.", "FILE", field="from_"),
    Option("--demo", bool, "Show the doctor on a machine shipped with mgpu: --demo NAME, --demo list."),
    Option("--compare", str, "Report what changed since that --save; does not affect the exit code.", "FILE"),
    Option(
        "--redact/--no-redact", bool, "Hide host, user, addresses and PIDs (default for markdown and html).",
        default=None,
    ),
    Option(
        "--fix", bool,
        "Offer user-level fixes one at a time, or a port of --script to any number of ranks; "
        "the exit code reflects the state afterwards.",
    ),
    Option(
        "--with", str, "With --script --fix: port to accelerate (default) or ddp.", "LIBRARY", field="with_",
        complete=among("accelerate", "ddp"),
    ),
    Option("--dry-run", bool, "With --fix: show the fixes without applying them."),
    Option("--yes -y", bool, "With --fix: apply all fixes without prompting."),
    Option("--config -c", str, "Also check this accelerate config or DeepSpeed file.", "FILE", complete=configs),
    Option("--python", str, "Check this Python interpreter instead of mgpu's own.", "PATH"),
    Option(
        "--exit-style", str, "Exit codes: default, nagios, or prolog (Slurm).", "STYLE", default="default",
        complete=among("default", "nagios", "prolog"),
    ),
    Option("--timeout", float, "Stop after SEC seconds.", "SEC", field="timeout_s", default=0.0, least=0),
    Option("--verbose -v", bool, "Show topology, every check and its evidence."),
)
# fmt: on
# With one of these the doctor does not probe this machine.
_ELSEWHERE = ("from_", "demo", "list_checks", "explain", "script", "log", "compare_nodes", "hosts")


_SCRIPTS = (".py", ".ipynb", ".sh", ".sbatch", ".slurm")
_CONFIGS = (".yaml", ".yml")


def _unexpected(name: str) -> MgpuError:
    """Return the error for a word that is no option, with the option that reads such a file."""
    from mgpu.errors import USAGE, MgpuError

    what, flag = "log", "--log"
    if name.endswith(_SCRIPTS):
        what, flag = "script", "--script"
    elif name.endswith(_CONFIGS):
        what, flag = "config", "--config"
    return MgpuError(f"doctor accepts no argument {name!r} (a {what}: {flag} {name}): mgpu doctor --help", USAGE)


def run(values: Values) -> int:
    """Check this machine: driver, GPUs, links, PyTorch, NCCL, limits. Changes nothing unless you accept a --fix."""
    import time

    began = time.monotonic()
    if values["json_schema"]:
        from mgpu.cli import json_schema

        return json_schema.show()
    more = values["more"]
    if more and not (
        values["log"] or values["compare_nodes"] or values["list_checks"] or values["demo"] or values["script"]
    ):
        raise _unexpected(more[0])
    if values["python"] and not values["hosts"]:  # else it is a path on the hosts
        from mgpu.doctor.request import interpreter

        values["python"] = interpreter(values["python"])
    hurried = values["exit_style"] == "prolog"  # a prolog delays every job
    if hurried:
        import os

        values["quick"] = True
        # Slurm sets it to the GPUs of the job, but a fault of any GPU drains the whole node.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    # The probes run while mgpu loads its checks.
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
    from mgpu.report import demo

    own = {name: values.pop(name) for name in ("json", "json_schema", "list_checks", "explain", "path", "more")}
    values["data"] = tuple(own["path"] or ()) if values["hosts"] else ()
    log, nodes = values["log"], values["compare_nodes"]
    values |= {
        "only": _split(values["only"]),
        "skip": _split(values["skip"]),
        "format": "json" if own["json"] else values["format"],
        "log": (*log, *own["more"]) if log else (),
        "compare_nodes": (*nodes, *(() if log else own["more"])) if nodes else (),
        "python": values["python"] or None,
    }
    if values["demo"] and own["more"] == (demo.LIST,):
        return demo.show_list()
    values["demo"] = demo.chosen(own["more"]) if values["demo"] else ""
    request = doctor_request.Request(**values, started=started, began=began)
    if own["list_checks"]:
        return run.list_checks(request, own["more"])
    if own["explain"]:
        return run.explain(own["explain"])
    if values["script"] and own["more"]:
        return run.run_scripts(request, own["more"])
    return run.run(request)


_PROLOG_S = 5.0  # limit for a probe in a prolog: Slurm allows the whole prolog MessageTimeout, 10 s by default


def _start(quick: bool, paths: Sequence[str], python: str, *, hurried: bool) -> list[Child]:
    """Start the probes. `hurried`: a job waits for them, so they get less time."""
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


def _complete_words(values: Values, begun: str) -> list[str]:
    if values["demo"]:
        return demos(begun) + [word for word in ("list",) if word.startswith(begun)]
    return checks(begun) if values["list_checks"] else []


COMMAND = Command(
    "doctor",
    "Check whether this machine is ready. Changes nothing.",
    run,
    OPTIONS,
    complete_words=_complete_words,
    words="more",  # of --log rank*.log, --list-checks WORD
    metavar="FILE|WORD",
    stays=lambda values: any(values[name] for name in ("json_schema", *_ELSEWHERE) if name != "hosts"),
)
