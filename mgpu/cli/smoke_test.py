"""`mgpu smoke-test`: do the ranks of this config train together?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu.cli.option import Command, Option, Values

if TYPE_CHECKING:
    from mgpu.probes.runner import Probe

# fmt: off
OPTIONS = (
    Option("--config -c", str, "Default: ./accelerate.yaml.", "FILE"),
    Option("--gpus", str, "2 = two GPUs; ids have a comma: 0,2.", "N|LIST"),
    Option("--cpu", int, "Rehearse with N CPU ranks (gloo).", "N", least=1),
    Option("--level", str, "quick (about 10 s), standard (30 s) or long (5 min).", "LEVEL", default="standard"),
    Option("--timeout", float, "The whole test: 120 (long: 900).", "SEC", field="timeout_s", least=1),
    Option("--stall-timeout", float, "Without progress.", "SEC", field="stall_s", default=30.0, least=1),
    Option("--start-timeout", float, "Imports, and all ranks to come.", "SEC", field="start_s", default=90.0, least=1),
    Option("--bisect/--no-bisect", bool, "Search for the cause of a failure.", default=True),
    Option("--scaling/--no-scaling", bool, "Measure 1 against N ranks.", default=True),
    Option(
        "--fill", int, "Hold this share of GPU memory meanwhile.", "PCT",
        field="fill_percent", default=0, least=0, most=95,
    ),
    Option("--baseline", str, "Compare with an earlier result.", "FILE"),
    Option("--checkpoint-dir", str, "Where the training will save: tried as well.", "DIR", field="checkpoint_folder"),
    Option("--node-rank", int, "Which of several machines this is.", "K", field="node", least=0),
    Option("--slurm", bool, "Examine and test all nodes of this Slurm job: the pre-flight."),
    Option("--need", int, "With --slurm: so many good nodes are enough.", "N", least=1),
    Option("--allow-busy", bool, "Also on a GPU somebody else works on."),
    Option("--stamp/--no-stamp", bool, "Record success beside the config.", default=True),
    Option("--show", bool, "Print the last result, run nothing."),
    Option("--log-dir", str, "Default: runs/smoke-TIME.", "DIR"),
    Option("--format", str, "human, json, junit, github or markdown.", "FMT", default="human"),
    Option("--json", bool, "Same as --format json."),
    Option("--json-schema", bool, "The JSON Schema of --json."),
    Option("--output -o", str, 'Write there ("-" = stdout).', "FILE", default="-"),
)
# fmt: on


def run(values: Values) -> int:
    """Prove with real collectives and training steps that all ranks train together."""
    if values.pop("json_schema"):
        from mgpu.cli import json_schema

        return json_schema.show(json_schema.preflight() if values["slurm"] else json_schema.smoke())
    from mgpu.smoke.request import Request

    if values.pop("json"):
        values["format"] = "json"
    request = Request(**values)
    if request.slurm:
        from mgpu.fleet import preflight

        return preflight.run(request)
    from mgpu.smoke import run

    return run.run(request)


def _early(values: Values) -> Sequence[Probe]:
    if values["show"] or values["slurm"] or values["json_schema"]:
        return ()
    from mgpu.probes import runner

    return runner.QUICK


COMMAND = Command("smoke-test", "Do all ranks train together?", run, OPTIONS, early=_early)
