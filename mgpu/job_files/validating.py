"""Validate a job file with the engine's own package in a child process, if it is installed.

A rejection is reported, not raised: the file is written for one version of the engine, and another may be installed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Final

from mgpu.job_files.engines import package_of
from mgpu.job_files.parts import NO_IMAGE
from mgpu.job_formats import TITLES
from mgpu.process import child_process, interpreter

_DEADLINE_S: Final = 60.0  # importing skypilot 0.14.1 took 16 s on two busy cores, kubeflow-trainer-api 2.3.0 8 s
_LONGEST: Final = 200  # characters of a rejection


def validate_file(engine: str, text: str, python: str = "") -> list[str]:
    """Return notes on a file for an engine other than Slurm: whether it is valid, and that it is untested.

    `python`: the interpreter with the engine's package; by default mgpu's own.
    """
    untried = f"This file was not tested on a live {TITLES[engine]} cluster: start small."
    if NO_IMAGE in text:
        untried += " First set the name of your image in it, or add --container IMAGE."
    package = package_of(engine)
    if package is None:
        return ["This script was not tested on several machines: start small."]
    if not python and importlib.util.find_spec(package.module) is None:
        return [f"Not validated: package {package.name} is not installed.", untried]
    print(f"Validating with {package.name} (up to {_DEADLINE_S:g} s) ...", file=sys.stderr)
    try:
        command = interpreter.text(python or sys.executable, package.program)
        done = child_process.run(command, _DEADLINE_S, input=_json(text).encode())
        done.check_returncode()
        version, why = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return [f"Not validated: package {package.name} could not be run.", untried]
    if not why:
        return [f"Its fields are valid for {package.name} {version}.", untried]
    short = " ".join(why.split())
    return [f"{package.name} {version} rejects it: {short[:_LONGEST]}{'...' if len(short) > _LONGEST else ''}", untried]


def _json(text: str) -> str:
    import yaml

    return json.dumps(yaml.safe_load(text))
