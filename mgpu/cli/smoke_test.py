"""`mgpu smoke-test`: do the ranks of this config train together?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.cli.known_values import configs
from mgpu.cli.option import Command, Option, Values, among
from mgpu.errors import NOT_READY, MgpuError
from mgpu.process import training_python

if TYPE_CHECKING:
    from mgpu.probes.runner import Probe

# fmt: off
OPTIONS = (
    Option("--config -c", str, "Default: ./accelerate.yaml.", "FILE", complete=configs),
    Option("--gpus", str, "Number or list of GPUs: 2 or 0,2.", "N|LIST"),
    Option("--python", str, "Python interpreter of the training run; with --hosts also HOST=PATH,...", "PATH"),
    Option("--cpu", int, "Use N CPU ranks (gloo) instead of GPUs.", "N", least=1),
    Option("--steps", int, "Rehearse SCRIPT for N optimizer steps.", "N", default=8, least=2, most=1000),
    Option("--module -m", bool, "SCRIPT is a module, as with python -m."),
    Option(
        "--level", str, "quick (correctness only), standard, or long (minutes).", "LEVEL", default="standard",
        complete=among("quick", "standard", "long"),
    ),
    Option("--timeout", float, "Limit for the whole test: 120 (long: 900).", "SEC", field="timeout_s", least=1),
    Option(
        "--stall-timeout", float, "Fail a stage after SEC seconds without progress.", "SEC",
        field="stall_s", default=30.0, least=1,
    ),
    Option("--start-timeout", float, "Limit for start and rendezvous.", "SEC", field="start_s", default=90.0, least=1),
    Option("--bisect/--no-bisect", bool, "On failure, search for the cause.", default=True),
    Option(
        "--scaling/--no-scaling", bool, "Compare the speed of N ranks with 1 rank; --scaling: of SCRIPT too.",
        default=None,
    ),
    Option("--checkpoint-now", bool, "Write, read and remove a checkpoint of SCRIPT."),
    Option(
        "--fill", int, "Allocate this share of GPU memory during the test.", "PCT",
        field="fill_percent", default=0, least=0, most=95,
    ),
    Option("--baseline", str, "Compare with an earlier result.", "FILE"),
    Option("--checkpoint-dir", str, "Also test saving a checkpoint in this folder.", "DIR", field="checkpoint_folder"),
    Option("--node-rank", int, "Rank of this node in a multi-node run.", "K", field="node", least=0),
    Option("--slurm", bool, "Pre-flight: check and test all nodes of this Slurm job."),
    Option("--hosts", str, "Pre-flight: check and test these hosts over ssh: a,b or n[1-8] or a file.", "HOSTS"),
    Option("--need", int, "With --slurm or --hosts: minimum number of healthy nodes.", "N", least=1),
    Option("--allow-busy", bool, "Run even if other processes are using the GPUs."),
    Option("--stamp/--no-stamp", bool, "Mark the config as verified after a pass.", default=True),
    Option("--show", bool, "Print the last result without running anything."),
    Option("--log-dir", str, "Default: .mgpu/runs/smoke-TIME.", "DIR"),
    Option(
        "--format", str, "Output format: human, json, junit, github, markdown or html.", "FMT", default="human",
        complete=among("human", "json", "junit", "github", "markdown", "html"),
    ),
    Option("--json", bool, "Same as --format json."),
    Option("--json-schema", bool, "Print the JSON Schema of --json."),
    Option("--output -o", str, 'Write the report to FILE ("-" = stdout).', "FILE", default="-"),
)
# fmt: on


def run(values: Values) -> int:
    """Prove with real collectives and training steps that all ranks train together.

    With SCRIPT [ARGS...], your script then runs for a few optimizer steps on all ranks, and is then stopped cleanly.
    """
    if values.pop("json_schema"):
        from mgpu.cli import json_schema

        return json_schema.show(json_schema.preflight() if values["slurm"] or values["hosts"] else json_schema.smoke())
    if training_python.alone and not values["show"]:
        raise MgpuError(
            f"no torch in {sys.executable}, and no environment in sight\n"
            "  activate the environment you train in, or:  mgpu smoke-test --python PATH",
            NOT_READY,
        )
    from mgpu.smoke.request import Request

    if values.pop("json"):
        values["format"] = "json"
    request = Request(**values)
    own = (request.slurm, request.show, request.target, request.gpus)
    if not any(own) and request.node is None and request.cpu is None:
        from dataclasses import replace

        from mgpu.cli.kept_hosts import kept_hosts

        hosts, python = kept_hosts(request.config, request.hosts, request.python)
        request = replace(request, hosts=hosts, python=python)
    if request.slurm or request.hosts:
        from mgpu.fleet import preflight

        return preflight.run(request)
    from mgpu.smoke import run

    return run.run(request)


def _early(values: Values) -> Sequence[Probe]:
    if values["show"] or values["slurm"] or values["hosts"] or values["json_schema"]:
        return ()
    from mgpu.probes import runner

    return runner.QUICK


COMMAND = Command(
    "smoke-test",
    "Test that all ranks train together.",
    run,
    OPTIONS,
    words="target",
    metavar="[SCRIPT]",
    usage="[OPTIONS] [SCRIPT [ARGS...]]",
    starts=True,
    early=_early,
    stays=lambda values: values["show"] or values["json_schema"],
)
