"""`mgpu launch`: start the training with the verified config."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.cli.option import Command, Option, Values, panel
from mgpu.known_launchers import STARTED
from mgpu.launch import start_errors
from mgpu.launch.request import Request
from mgpu.text import listed

if TYPE_CHECKING:
    from mgpu.probes.runner import Probe

# fmt: off
OPTIONS = (
    *panel(
        "What runs",
        Option("--config -c", str, "Default: ./accelerate.yaml.", "FILE"),
        Option("--module -m", bool, "What follows is a module, as for python -m."),
        Option(
            "--launcher", str, f"auto (by what the script calls), {listed(STARTED, 'or')}.", "WHICH",
            default="auto", show_default=False,
        ),
        Option("--gpus", str, "Only so many, or these: 2 or 0,2. 1: one process.", "N|LIST"),
        Option("--port", str, "Where the ranks meet. Default: as the config says, else a free one (auto).", "N|auto"),
        Option("--node-rank", int, "Which of several machines this is.", "K", field="node", least=0),
    ),
    *panel(
        "Before it starts",
        Option("--yes -y", bool, "No question; not verified is refused."),
        Option("--dry-run -n", bool, "Show everything, start nothing."),
        Option("--print-command", bool, "Only the command, with its environment, as it pastes."),
        Option(
            "--unverified", str,
            "ask, allow or refuse what no smoke test has passed. Default: ask; refuse where nobody can be asked.",
            "WHAT",
        ),
        Option(
            "--smoke", str, "The smoke test: auto (offered when needed), always or never.", "WHEN",
            default="auto", show_default=False,
        ),
    ),
    *panel(
        "While it runs, and after",
        Option("--exec", bool, "Replace this process: nothing is watched or explained.", field="exec_"),
        Option("--triage/--no-triage", bool, "Explain a failure at the end.", default=True, show_default=False),
        Option(
            "--timeout", float, "End the training then, with exit code 124.", "SEC",
            field="timeout_s", default=0.0, least=0, show_default=False,
        ),
        Option("--log-dir", str, "Default: runs/TIME.", "DIR"),
        Option("--json-result", str, "Write there how it ended.", "FILE"),
        Option("--detach", bool, "Leave it running without this terminal."),
        Option("--watch", bool, "The GPUs at work, live. With a script: start it detached and watch; else [RUN]."),
    ),
    *panel(
        "Runs that were started before",
        Option("--attach", bool, "Follow a run to its end: [RUN], else the latest."),
        Option("--status", bool, "List the runs, or show one: [RUN]. --json-result - for JSON."),
        Option("--stop", bool, "End a run: [RUN], else the only one."),
    ),
    *panel(
        "On Slurm",
        Option(
            "--slurm", bool,
            "SCRIPT is a job script, or a Python script for which one is written: submit it and follow it. "
            "--attach, --status and --stop take the job's number.",
        ),
        Option("--nodes", int, "Nodes that train.", "N", least=1),
        Option("--gpus-per-node", int, "0: ranks on the CPU.", "N", least=0),
        Option("--partition", str, "Default: Slurm's.", "NAME"),
        Option("--account", str, "Default: Slurm's.", "NAME"),
        Option("--qos", str, "Default: Slurm's.", "NAME"),
        Option("--time", str, "As Slurm reads it: 12:00:00.", "LIMIT"),
        Option(
            "--spare", int, "Ask for K nodes more, which stand in for bad ones.", "K",
            default=0, least=0, show_default=False,
        ),
        Option(
            "--preflight/--no-preflight", bool, "Examine, compare and test the nodes before the training starts.",
            default=True, show_default=False,
        ),
    ),
)
# fmt: on


def run(values: Values) -> int:
    """Start SCRIPT [ARGS...] with the verified config, watch it, and end with its exit code.

    Options of mgpu come before the script; everything after it is the script's, untouched.
    """
    return launch(Request(**values))


def launch(request: Request) -> int:
    """A run, or what is asked of one that was started before. Raises MgpuError."""
    if request.slurm:
        from mgpu.slurm import run as job

        return job.run(request)
    if request.of_a_run:
        from mgpu.launch import follow

        return follow.run(request)
    gc.disable()  # until the hand-off: nothing of what is made by then is garbage, and looking for it takes 20 ms
    with start_errors.attempt(request):
        from mgpu.launch import run

        return run.run(request)


def _early(values: Values) -> Sequence[Probe]:
    request = Request(**values)
    if not request.target or request.of_a_run:
        return ()
    from mgpu.launch import output_folders
    from mgpu.probes import runner

    return runner.of_launch(output_folders.folders(request.target[1:]))


COMMAND = Command(
    "launch",
    "Start your script with the verified config.",
    run,
    OPTIONS,
    words="target",
    usage="[OPTIONS] SCRIPT [ARGS...]",
    starts=True,
    early=_early,
)
