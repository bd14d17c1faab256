"""Does the engine's own package take the file that mgpu wrote for it? Asked where it is installed, in a child.

A refusal is told, not raised: the file is written for one version of the engine, and another one may be installed here.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Final, NamedTuple

from mgpu.config.reading import ENGINES
from mgpu.job_files.kubeflow import NO_IMAGE
from mgpu.process import child_process, interpreter

_DEADLINE_S: Final = 60.0  # importing skypilot 0.14.1 took 16 s on two busy cores, kubeflow-trainer-api 2.3.0 8 s
_LONGEST: Final = 200  # of what a refusal says


class _Package(NamedTuple):
    name: str
    module: str
    program: str


# What the models do not know they drop without a word: a text that comes back otherwise has a field of another version.
_KUBEFLOW: Final = """
import json, sys
from importlib.metadata import version
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

def without_none(value):
    if isinstance(value, dict):
        return {name: without_none(part) for name, part in value.items() if part is not None}
    return [without_none(part) for part in value] if isinstance(value, list) else value

def lost(before, after, where):
    if isinstance(before, dict) and isinstance(after, dict):
        return [name for key in before for name in lost(before[key], after.get(key), f"{where}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [name for one, other in zip(before, after) for name in lost(one, other, where)]
    return [] if before == after else [where[1:]]

task = json.load(sys.stdin)
try:
    gone = lost(task, without_none(TrainerV1alpha1TrainJob.from_dict(task).to_dict()), "")
    why = f"it does not know {', '.join(gone)}" if gone else ""
except ValueError as error:
    why = str(error)
print(json.dumps([version("kubeflow-trainer-api"), why]))
"""
_SKYPILOT: Final = """
import json, sys
from importlib.metadata import version
import jsonschema
from sky.utils import schemas

task = json.load(sys.stdin)
try:
    jsonschema.Draft202012Validator(schemas.get_task_schema()).validate(task)
    jsonschema.Draft202012Validator(schemas.get_resources_schema()).validate(task.get("resources", {}))
    why = ""
except jsonschema.ValidationError as error:
    why = f"{error.json_path}: {error.message}"
print(json.dumps([version("skypilot"), why]))
"""
_PACKAGES: Final = {
    "kubeflow": _Package("kubeflow-trainer-api", "kubeflow_trainer_api", _KUBEFLOW),
    "skypilot": _Package("skypilot", "sky", _SKYPILOT),
}


def told(engine: str, text: str, python: str = "") -> list[str]:
    """What to say of a file for another engine than Slurm: who took it, or refused it, and that nobody ran it.
    `python`: the interpreter whose packages are asked; mgpu's own."""
    untried = f"Nobody has run this file on a live cluster of {ENGINES[engine]}: start small."
    if NO_IMAGE in text:
        untried += " Put the name of your image into it first, or say --container IMAGE."
    if engine not in _PACKAGES:
        return ["Nobody has run this script on several machines: start small."]
    package = _PACKAGES[engine]
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
