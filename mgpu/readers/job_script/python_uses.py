"""What does a Python script that a job starts without a launcher use?"""

from __future__ import annotations

import re
from pathlib import Path

from mgpu.readers.job_script.first_gpu import uses_only_first_gpu
from mgpu.readers.job_script.python_files import content

_MOST_MODULES = 30  # of the repository, read for the Trainer that a script calls through them
# What a Python script does: it joins a process group, starts ranks itself, or always uses the first GPU it sees.
_USES = (
    ("process group", re.compile(r"\binit_process_group\(|\bAccelerator\(|\binit_distributed\(|\bhvd\.init\(")),
    ("first GPU", re.compile(r"""["']cuda:0["']|device\(["']cuda["'],\s*0\)|device_ids=\[0\]|set_device\(0\)""")),
    ("srun", re.compile(r"""["'\s(]srun\b|\bsubmitit\b|["'\s]sbatch\b|["'\s]mpirun\b""")),
)
# It takes the number of ranks from WORLD_SIZE alone, and its rank from Slurm.
_WORLD_SIZE = re.compile(r"""environ(?:\.get\(|\[)\s*["']WORLD_SIZE["']|getenv\(\s*["']WORLD_SIZE["']""")
_RANK_OF_SLURM = re.compile(r"""["']SLURM_PROCID["']""")
_OTHER_WORLD = re.compile(
    r"""SLURM_(?:STEP_NUM_)?N?TASKS\b|SLURM_NPROCS|environ\[\s*["']WORLD_SIZE["']\s*\]\s*=|spawn\(|\bhostlist\b"""
)
# A script whose Lightning Trainer may use several GPUs, and does not choose itself how its ranks are started.
_LIGHTNING = re.compile(
    r"^[ \t]*(?:import[ \t]+(?:[\w.]+,[ \t]*)*|from[ \t]+)(?:pytorch_lightning|lightning)\b", re.MULTILINE
)
_TRAINER = re.compile(r"\b(?:Trainer|LightningCLI)\(")
_OTHERWISE = re.compile(
    r"\b(?:devices|gpus)\s*=\s*(?:1\b|\[\s*\d+\s*\]|[\"'](?:1|\d,)[\"'])|SLURM_NTASKS|SLURM_JOB_NAME"
    r"|\b(?:SLURM|Lightning|TorchElastic)Environment\b|\baccelerator\s*=\s*[\"'](?:cpu|tpu)[\"']"
)
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+([\w, ]+)|import[ \t]+([\w.]+))", re.MULTILINE)


def python_uses(path: Path) -> tuple[str, ...] | None:
    """Return what a Python script uses: "process group", "srun", "Lightning" ...; None if it cannot be read."""
    if not (text := _code(path)):
        return None
    names = [name for name, pattern in _USES if pattern.search(text)]
    if "first GPU" not in names and uses_only_first_gpu(text):
        names.append("first GPU")
    world = _WORLD_SIZE.search(text) and _RANK_OF_SLURM.search(text) and not _OTHER_WORLD.search(text)
    if "process group" in names and world:
        names.append("WORLD_SIZE")
    return (*names, "Lightning") if _calls_lightning(path, text) else tuple(names)


def _code(path: Path) -> str:
    """Return a file without its comment lines; "" if it cannot be read."""
    return _COMMENT.sub("", content(path))


def _calls_lightning(path: Path, text: str) -> bool:
    """Whether a script, or a module of the repository that a script named after Lightning imports, has its Trainer."""
    if _trains_with_lightning(text):
        return True
    if "lightning" not in path.name.lower() or _OTHERWISE.search(text):
        return False
    known, waiting = {path}, _imported(path.parent, text)
    while waiting and len(known) < _MOST_MODULES:
        module = waiting.pop(0)
        if module not in known and (inner := _code(module)):
            if _trains_with_lightning(inner):
                return True
            waiting += _imported(path.parent, inner) + _imported(module.parent, inner)
        known.add(module)
    return False


def _trains_with_lightning(text: str) -> bool:
    return all(one.search(text) for one in (_LIGHTNING, _TRAINER)) and not _OTHERWISE.search(text)


def _imported(folder: Path, text: str) -> list[Path]:
    """Return the modules in a folder that a text imports."""
    found: list[Path] = []
    for package, names, whole in _IMPORT.findall(text):
        base = folder.joinpath(*(package or whole).strip(".").split("."))
        parts = [name.split()[0] for name in names.split(",") if name.strip()]
        found += [base.with_suffix(".py"), *((base / part).with_suffix(".py") for part in parts)]
    return found
