"""`mgpu launch`: start a training script with the verified config."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mgpu.cli.kept_hosts import kept_hosts
from mgpu.cli.known_values import configs, runs
from mgpu.cli.option import Command, Option, Values, among, panel
from mgpu.known_launchers import STARTED
from mgpu.launch import start_errors
from mgpu.launch.request import ON_HANG, POLICIES, SMOKE, Request
from mgpu.text import listed

if TYPE_CHECKING:
    from mgpu.probes.runner import Probe

# fmt: off
OPTIONS = (
    *panel(
        "What runs",
        Option("--config -c", str, "Default: ./accelerate.yaml.", "FILE", complete=configs),
        Option("--module -m", bool, "SCRIPT is a module, as with python -m."),
        Option(
            "--launcher", str, f"auto (detected from the script), {listed(STARTED, 'or')}.", "WHICH",
            default="auto", show_default=False, complete=among("auto", *STARTED),
        ),
        Option("--gpus", str, "Number or list of GPUs: 2 or 0,2. 1: one process.", "N|LIST"),
        Option(
            "--wait", float, "Wait up to SEC seconds until no other process uses the GPUs.", "SEC",
            field="wait_s", default=0.0, least=0, show_default=False,
        ),
        Option("--python", str, "Python interpreter of the training run; with --hosts also HOST=PATH,...", "PATH"),
        Option("--port", str, "Rendezvous port. Default: the config's, else a free one (auto).", "N|auto"),
        Option("--hosts", str, "Train on these hosts over ssh: a,b or n[1-8] or a file.", "HOSTS"),
        Option("--pass-env", list, "Variable that the ranks on --hosts get too; repeatable.", "NAME"),
        Option("--node-rank", int, "Rank of this node in a multi-node run.", "K", field="node", least=0),
    ),
    *panel(
        "Before it starts",
        Option("--yes -y", bool, "Never prompt; an unverified config is refused."),
        Option("--dry-run -n", bool, "Show the plan without starting anything."),
        Option("--print-command", bool, "Print only the command and its environment, ready to paste."),
        Option(
            "--unverified", str,
            "Unverified config: ask, allow or refuse. Default: ask on a terminal, else refuse.",
            "WHAT", complete=among(*POLICIES),
        ),
        Option(
            "--smoke", str, "Run the smoke test: auto (offered if needed), always or never.", "WHEN",
            default="auto", show_default=False, complete=among(*SMOKE),
        ),
    ),
    *panel(
        "While it runs, and after",
        Option("--exec", bool, "Replace this process with the launcher: no watching, no diagnosis.", field="exec_"),
        Option("--triage/--no-triage", bool, "Explain a failure at the end.", default=True, show_default=False),
        Option(
            "--timeout", float, "Stop the run after SEC seconds, with exit code 124.", "SEC",
            field="timeout_s", default=0.0, least=0, show_default=False,
        ),
        Option(
            "--hang-after", float, "Find out why after SEC seconds without progress (default: 30).", "SEC",
            field="hang_after_s", default=30.0, least=1, show_default=False,
        ),
        Option(
            "--on-hang", str, "If a rank keeps the others waiting: report it, or stop (exit code 124).", "WHAT",
            default="report", show_default=False, complete=among(*ON_HANG),
        ),
        Option(
            "--recorder/--no-recorder", bool, "Add a recorder to the ranks: stacks and collectives, for hangs.",
            default=True, show_default=False,
        ),
        Option(
            "--nan-check", int, "Also read losses and gradient norms on GPUs, every N steps; waits for the GPU.", "N",
            default=0, least=0, show_default=False,
        ),
        Option("--log-dir", str, "Default: .mgpu/runs/TIME.", "DIR"),
        Option("--json-result", str, "Write the result as JSON to FILE.", "FILE"),
        Option("--json-schema", bool, "Print the JSON Schema of --json-result; with --why, --report ... of theirs."),
        Option("--detach", bool, "Keep running without this terminal."),
        Option("--watch", bool, "Show the GPUs live. With SCRIPT, start it detached and watch it; else watch [RUN]."),
    ),
    *panel(
        "Earlier runs",
        Option("--attach", bool, "Follow [RUN] to its end (default: the latest of this folder)."),
        Option("--status", bool, "List the runs, or show [RUN]; as JSON with --json-result -."),
        Option("--report", bool, "Write a page and an archive about [RUN] (default: the latest of this folder)."),
        Option("--why", bool, "Why does [RUN] make no progress? Also a PID or job ID; as JSON with --json-result -."),
        Option("--stop", bool, "Stop [RUN] (default: the only one of this folder)."),
    ),
    *panel(
        "On Slurm",
        Option(
            "--slurm", bool,
            "Submit SCRIPT (a job script, or a Python script that mgpu writes one for) and follow the job. "
            "--attach, --status, --stop and --why accept its job ID.",
        ),
        Option("--nodes", int, "Number of nodes to train on.", "N", least=1),
        Option("--gpus-per-node", int, "GPUs per node; 0 = CPU ranks.", "N", least=0),
        Option("--partition", str, "Partition (default: Slurm's).", "NAME"),
        Option("--account", str, "Account to charge (default: Slurm's).", "NAME"),
        Option("--qos", str, "Quality of service (default: Slurm's).", "NAME"),
        Option("--time", str, "Time limit of the job: 12:00:00.", "LIMIT"),
        Option(
            "--spare", int, "Extra nodes to request as replacements.", "K",
            default=0, least=0, show_default=False,
        ),
        Option(
            "--preflight/--no-preflight", bool, "Check, compare and test the nodes before training starts.",
            default=True, show_default=False,
        ),
    ),
)
# fmt: on


def run(values: Values) -> int:
    """Start SCRIPT [ARGS...] with the verified config, watch it, and exit with its exit code.

    Options of mgpu come before SCRIPT; everything after it is passed to the script unchanged. With -- COMMAND...
    (torchrun, accelerate launch, deepspeed, any other) your own launch line runs unchanged, watched in the same way.
    """
    values = _with_options_after_run(values)
    if values.pop("json_schema"):
        from mgpu.cli import json_schema

        modes = {"why": json_schema.why, "report": json_schema.case, "status": json_schema.status}
        return json_schema.show(next((made for name, made in modes.items() if values[name]), json_schema.run)())
    values["pass_env"] = tuple(values["pass_env"] or ())
    return launch(Request(**values))


def _with_options_after_run(values: Values) -> Values:
    """Return the values with the options that come after the name of a run, as in `--status RUN --json-result -`.

    After a script they are the script's, but a run started earlier has no arguments.
    """
    target = values["target"]
    given = {name: value for name, value in values.items() if name not in ("json_schema", "pass_env")}
    if len(target) < 2 or values["dashes"] or not Request(**given).of_a_run:
        return values
    from mgpu.cli import option_parser

    after = option_parser.parse(target[1:], COMMAND, COMMAND.quick_options, values)
    if after is None:  # not an option of mgpu launch
        return values
    return {name: after[name] for name in values} | {"target": (target[0], *after["target"])}


def launch(request: Request) -> int:
    """Start a run, or act on an earlier one. Raises MgpuError."""
    if request.slurm or _names_job(request):
        from mgpu.slurm import run as job

        return job.run(request)
    if request.of_a_run:
        from mgpu.launch import follow

        return follow.run(request)
    if not (request.foreign or request.node is not None):
        hosts, python = kept_hosts(request.config, request.hosts, request.python)
        request = replace(request, hosts=hosts, python=python)
    if request.hosts:
        from mgpu.fleet import hosts_launch

        return hosts_launch.run(request)
    gc.disable()  # until the hand-off: nothing allocated before is garbage, and a collection takes 20 ms
    with start_errors.attempt(request):
        if request.foreign:
            from mgpu.launch import foreign

            return foreign.run(request)
        from mgpu.launch import run

        return run.run(request)


def _names_job(request: Request) -> bool:
    """Whether --why is about a Slurm job: a number that is neither a process nor a run here."""
    name = request.target[0] if request.why and len(request.target) == 1 else ""
    if not name.isdecimal() or os.path.isdir(f"/proc/{name}"):
        return False
    from mgpu.launch import registry
    from mgpu.scheduler import client

    return client.is_there("scontrol") and not registry.named(name, registry.entries()[0])


def _early(values: Values) -> Sequence[Probe]:
    request = Request(**{name: value for name, value in values.items() if name != "json_schema"})
    if not request.target or request.of_a_run or request.foreign:  # a line's files name its folders and its Python
        return ()
    from mgpu.launch import output_folders
    from mgpu.probes import runner

    return runner.launch_probes(output_folders.folders(request.target[1:]))


COMMAND = Command(
    "launch",
    "Start your script with the verified config.",
    run,
    OPTIONS,
    words="target",
    line="dashes",
    complete_words=lambda values, begun: (
        runs(begun) if any(values[name] for name in ("attach", "status", "stop", "why", "watch")) else []
    ),
    usage="[OPTIONS] SCRIPT [ARGS...] | [OPTIONS] -- COMMAND...",
    starts=True,
    early=_early,
    stays=lambda values: any(values[name] for name in ("json_schema", "attach", "status", "stop")),
)
