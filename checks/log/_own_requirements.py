"""What does the script itself require of a tensor's type, or of the number of GPUs?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.snapshot import UncaughtException
from mgpu.text import counted

from ._own_objects import Meaning

_DTYPE = re.compile(
    r"\(?(?P<name>[A-Za-z_][\w.\[\]'\"]*)\.dtype (?:==|is) (?P<library>torch|np|numpy)\.(?P<type>\w+)\)?"
)
_WANTED_FIRST = re.compile(
    r"(?i)\b(?:requires?d?|needs?|requested|asked for|expects?|expected|want(?:s|ed)?) (?:at least )?(?P<wanted>\d+) "
    r"(?:CUDA |visible )?(?:gpu|device)s?\b.{0,40}\bonly (?:found |have |has |see )?(?P<there>\d+)\b"
)
_THERE_FIRST = re.compile(
    r"(?i)\bonly (?:found |have |has )?(?P<there>\d+) (?:CUDA |visible )?(?:gpu|device)s?\b.{0,40}"
    r"\b(?:requires?d?|need(?:s|ed)?|requested|expected|wanted) ?:?(?: at least)? (?P<wanted>\d+)\b"
)
_IN_CLUSTER = re.compile(r"(?i)\b(?:in|of|by) (?:the|this|your) cluster\b|\bcluster (?:only )?has\b")
_OF_RAY = re.compile(r"\b[Rr]ay\b|\bRay[A-Z]|placement_group")
_OF_NODE = 8  # GPUs that a node has at most, but for a few machines


def other_dtype(one: UncaughtException, condition: str) -> Meaning | None:
    """Explain an assertion that is only about the types of arrays or tensors; None for any other."""
    found = [_DTYPE.fullmatch(part.strip()) for part in condition.split(" and ")]
    parts = [part for part in found if part]
    if not parts or len(parts) < len(found):
        return None
    names = [f"{part['name']} ({part['type']})" for part in parts]
    title = (
        f"{parts[0]['name']} does not have the type {parts[0]['type']}"
        if len(parts) == 1
        else f"one of these does not have the type that the code requires: {', '.join(names)}"
    )
    return Meaning(
        f"{title} ({one.place})",
        f'The script requires "{condition}". What creates the tensor, mostly the dataset or its collate function, '
        "gives it another type: a mask of numbers instead of bool, float64 of NumPy, or the type of another release "
        "of a package. Data that was prepared by another version has its types.",
        (
            Fix(
                "Print the types just before that line.",
                tuple(python("print({:dotted}.dtype)", part["name"]) for part in parts),
            ),
            Fix(
                "Convert it where the batch is made, or before that line.",
                tuple(
                    python("{name:dotted} = {name:dotted}.to(torch.{type:name})", name=part["name"], type=part["type"])
                    if part["library"] == "torch"
                    else python(
                        "{name:dotted} = {name:dotted}.astype('{type:name}')",
                        name=part["name"],
                        type=part["type"].rstrip("_"),
                    )
                    for part in parts
                ),
            ),
        ),
    )


def too_few_gpus(one: UncaughtException) -> Meaning | None:
    """Explain that a script's own check found fewer GPUs than its settings request."""
    found = _WANTED_FIRST.search(one.message) or _THERE_FIRST.search(one.message)
    if not found or int(found["wanted"]) <= int(found["there"]):
        return None
    wanted, there = int(found["wanted"]), int(found["there"])
    in_ray = bool(_OF_RAY.search(" ".join((one.message, *one.frames, *(call.code or "" for call in one.calls)))))
    if in_ray or _IN_CLUSTER.search(one.message):
        return _cluster_too_small(one, wanted, there, "Ray cluster" if in_ray else "cluster")
    return Meaning(
        f"the script's settings request {counted(wanted, 'GPU')}, and this process sees {there} ({one.place})",
        "The number comes from an option or the config. What the process sees is limited by the machine, by the Slurm "
        "job or the container, and by CUDA_VISIBLE_DEVICES.",
        (
            Fix(
                "Request as many GPUs for the job, or check what limits it.",
                (*_job_of(wanted), "nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES"),
            ),
            Fix(f"Set the number of GPUs in the config or on the command line to {there}."),
        ),
    )


def _job_of(wanted: int) -> tuple[str, ...]:
    """Return how to request that many GPUs from Slurm: --gres counts those of each node, rarely more than 8."""
    if wanted <= _OF_NODE:
        return (shell("sbatch --gres=gpu:{:number} ...", wanted),)
    nodes, rest = divmod(wanted, _OF_NODE)
    return () if rest else (shell("sbatch --nodes={:number} --gpus-per-node={:number} ...", nodes, _OF_NODE),)


def _cluster_too_small(one: UncaughtException, wanted: int, there: int, cluster: str) -> Meaning:
    return Meaning(
        f"the settings request {counted(wanted, 'GPU')}, and the {cluster} has {there} ({one.place})",
        f"The {cluster} has the GPUs of the nodes that joined it: nvidia-smi and CUDA_VISIBLE_DEVICES on this machine "
        "do not show them. A node did not join (yet), joined another head, or joined with fewer GPUs, or the settings "
        "are for a larger cluster.",
        (
            Fix("See which nodes and how many GPUs it has. Wait until all of them have joined.", ("ray status",)),
            Fix(
                "Join the missing nodes: on each of them, with the head node's own address.",
                ("ray start --head --port=6379  # on the first node", "ray start --address=HEAD:6379  # on the others"),
            ),
            Fix(
                "If the job itself is too small, request its nodes in Slurm: --gres counts the GPUs of each node."
                if _job_of(wanted)
                else "If the job itself is too small, request more nodes.",
                _job_of(wanted),
            ),
            Fix(f"Or request {there} in the config: the number of nodes and of GPUs per node."),
        ),
    )
