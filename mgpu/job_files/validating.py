"""Does the engine's own package take the file that mgpu wrote for it? Asked where it is installed, in a child.

A refusal is told, not raised: the file is written for one version of the engine, and another one may be installed here.
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
_LONGEST: Final = 200  # of what a refusal says


def told(engine: str, text: str, python: str = "") -> list[str]:
    """What to say of a file for another engine than Slurm: who took it, or refused it, and that nobody ran it.
    `python`: the interpreter whose packages are asked; mgpu's own."""
    untried = f"Nobody has run this file on a live cluster of {TITLES[engine]}: start small."
    if NO_IMAGE in text:
        untried += " Put the name of your image into it first, or say --container IMAGE."
    package = package_of(engine)
    if package is None:
        return ["Nobody has run this script on several machines: start small."]
    if not python and importlib.util.find_spec(package.module) is None:
        return [f"Not validated: the package {package.name} is not installed here.", untried]
    print(f"Asking {package.name} (up to {_DEADLINE_S:g} s) ...", file=sys.stderr)
    try:
        command = interpreter.text(python or sys.executable, package.program)
        asked = child_process.run(command, _DEADLINE_S, input=_json(text).encode())
        asked.check_returncode()
        version, why = json.loads(asked.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return [f"Not validated: the package {package.name} could not be asked.", untried]
    if not why:
        return [f"Its fields are those of {package.name} {version}.", untried]
    short = " ".join(why.split())
    return [f"{package.name} {version} refuses it: {short[:_LONGEST]}{'...' if len(short) > _LONGEST else ''}", untried]


def _json(text: str) -> str:
    import yaml

    return json.dumps(yaml.safe_load(text))
