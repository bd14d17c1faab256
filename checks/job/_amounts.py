"""How many nodes, tasks and GPUs does a job request?"""

from __future__ import annotations

import re
from collections.abc import Callable

from mgpu.snapshot import JobScript

_OPERATORS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: a // b, "%": lambda a, b: a % b},
)
_DEEPEST, _LONGEST_NUMBER = 20, 12  # nested parentheses; digits
_ARITHMETIC = re.compile(r"\s*(\d+|[-+*/%()])")
PARTS = ("hetjob", "packjob")
# Options that can give a job several nodes, and signs of a script that is for several.
_SPREAD = ("nodes", "ntasks-per-node", "gpus", "gpus-per-task", "nodelist", "nodefile")
_SEVERAL_NODES = re.compile(r"SLURM_(?:JOB_NUM_NODES|NNODES|(?:JOB_|STEP_)?NODELIST|NODEID|NTASKS|PROCID)|^srun$")
_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_WITH_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*)(:?[-=])([^${}]*)\}")  # its default contains no further ${ }
# Commands whose output is a number that the directives set.
_COUNTS_NODES = re.compile(r"\$\(\s*scontrol\s+show\s+hostnames?\b[^|()]*\|\s*wc\s+-l\s*\)")
_COUNTS_GPUS = re.compile(
    r"\$\(\s*(?:nvidia-smi\s+(?:-L|--list-gpus|--query-gpu=\w+ --format=csv,noheader)\s*\|\s*wc\s+-l"
    r"|(?:echo|printf)\s+\S*\$\{?CUDA_VISIBLE_DEVICES\b[^|()]*\|\s*tr\s[^|()]*\|\s*wc\s+-[lw])\s*\)"
)
_LONGEST_SUM, _MOST_DEFAULTS = 300, 10  # characters; ${ } inside each other


def evaluate(job: JobScript, text: str | None) -> int | None:
    """Evaluate a text that contains Slurm's variables, as the directives set them; None if the value is not known.

    A variable that neither Slurm nor the script sets has its default, as in a job submitted without further options.
    """
    if text is None or len(text) > _LONGEST_SUM:
        return None
    known = _slurm_values(job)
    missing = False

    def put(found: re.Match[str]) -> str:
        nonlocal missing
        value = known.get(found[1] or found[2])
        missing |= value is None
        return "0" if value is None else str(value)

    def put_default(found: re.Match[str]) -> str:
        return str(value) if (value := known.get(found[1])) is not None else _default(found[1], found[3])

    text = _COUNTS_NODES.sub("$SLURM_NNODES", _COUNTS_GPUS.sub("$SLURM_GPUS_ON_NODE", text.strip()))
    for _ in range(_MOST_DEFAULTS):
        text, changed = _WITH_DEFAULT.subn(put_default, text)
        if not changed:
            break
    if found := re.fullmatch(r"\$\(\s*expr\s+([^()|;&`]*)\)", text):
        text = found[1].replace("\\", "")
    elif not re.fullmatch(r"\$\(\(.*\)\)|\d+|\$\{?\w+\}?", text, re.DOTALL):
        return None
    text = _NAME.sub(put, text.replace("$((", "(("))
    return None if missing else _evaluate_expression(text)


def _slurm_values(job: JobScript) -> dict[str, int | None]:
    """Return the variables that Slurm sets in the job, with the values that follow from the directives."""
    return {
        "SLURM_NNODES": nodes(job),
        "SLURM_JOB_NUM_NODES": nodes(job),
        "SLURM_GPUS_PER_NODE": _gpu_count(_value(job, "gpus-per-node")),
        "SLURM_GPUS_ON_NODE": gpus_per_node(job),
        "SLURM_NTASKS_PER_NODE": _parse_integer(_value(job, "ntasks-per-node")),
        "SLURM_NTASKS": tasks(job),
        "SLURM_NPROCS": tasks(job),
        "SLURM_CPUS_PER_TASK": _parse_integer(_value(job, "cpus-per-task")),
    }


def _default(name: str, text: str) -> str:
    """Return the default of a variable; one that Slurm sets has another value in the job, which is not known."""
    return f"${name}" if name.startswith("SLURM_") else f"({text})" if re.search(r"\W", text) else text


def _evaluate_expression(text: str) -> int | None:
    """Evaluate an expression of whole numbers; None if it is not valid."""
    tokens, place, text = [], 0, text.strip()
    while place < len(text):
        found = _ARITHMETIC.match(text, place)
        if not found:
            return None
        tokens.append(found[1])
        place = found.end()
    tokens = [*reversed(tokens)]  # so that pop() returns the next token
    try:
        value = _evaluate_level(tokens, 0, 0)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None if tokens else value


def _evaluate_level(tokens: list[str], level: int, depth: int) -> int:
    """Evaluate the tokens up to the next operator with lower precedence."""
    if level == len(_OPERATORS):
        return _evaluate_atom(tokens, depth)
    value = _evaluate_level(tokens, level + 1, depth)
    while tokens and tokens[-1] in _OPERATORS[level]:
        operator = _OPERATORS[level][tokens.pop()]
        value = operator(value, _evaluate_level(tokens, level + 1, depth))
    return value


def _evaluate_atom(tokens: list[str], depth: int) -> int:
    token = tokens.pop()
    if token == "(" and depth < _DEEPEST:
        value = _evaluate_level(tokens, 0, depth + 1)
        if tokens.pop() != ")":
            raise ValueError(token)
        return value
    if len(token) > _LONGEST_NUMBER:
        raise ValueError(token)
    return int(token)


def _value(job: JobScript, *options: str) -> str | None:
    directive = None if is_heterogeneous(job) else job.directive(*options)
    return directive.value if directive else None


def _parse_integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 9 else None


def _gpu_count(text: str | None) -> int | None:
    """Return the number of GPUs in "8", "a100:8" or "a100:4(S:0-1)"."""
    if not text:
        return None
    total = 0
    for part in text.split(","):
        amount = part.partition("(")[0].rpartition(":")[2]
        if _parse_integer(amount) is None:
            return None
        total += int(amount)
    return total


def is_heterogeneous(job: JobScript) -> bool:
    """Whether the job has several components with their own directives ("hetjob", formerly "packjob")."""
    return any(one.obeyed and one.written in PARTS for one in job.directives)


def nodes(job: JobScript) -> int | None:
    """Return the number of nodes that the directives request; None if they do not set one number."""
    given = _value(job, "nodes")
    if given is not None:
        return _parse_integer(given)
    together, each = _parse_integer(_value(job, "ntasks")), _parse_integer(_value(job, "ntasks-per-node"))
    if together and each and together % each == 0:
        return together // each
    return None


def has_one_node(job: JobScript) -> bool:
    """Whether the job has one node because it requests GPUs per node, but neither nodes nor several tasks.

    False if the script reads the number of nodes: then it is probably given to sbatch.
    """
    if is_heterogeneous(job) or job.directive("gres", "gpus-per-node") is None:
        return False
    if any(job.directive(option) for option in _SPREAD) or _value(job, "ntasks") not in (None, "1"):
        return False
    words = [word for one in job.commands for word in one.words] + [one.value for one in job.sets]
    return not any(_SEVERAL_NODES.search(word) for word in words)


def tasks_per_node(job: JobScript) -> int | None:
    """Return the number of tasks per node according to the directives; None if not known."""
    each = _value(job, "ntasks-per-node")
    if each is not None:
        return _parse_integer(each)
    if _value(job, "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task") is not None:
        return None
    together, number_of_nodes = _value(job, "ntasks"), nodes(job)
    if together is None:
        return None if is_heterogeneous(job) else 1
    amount = _parse_integer(together)
    return amount // number_of_nodes if amount and number_of_nodes and amount % number_of_nodes == 0 else None


def tasks(job: JobScript) -> int | None:
    """Return the total number of tasks that the directives request; None if not known."""
    together = _value(job, "ntasks")
    if together is not None:
        return _parse_integer(together)
    each, number_of_nodes = tasks_per_node(job), nodes(job)
    return each * number_of_nodes if each and number_of_nodes else None


def gres_gpus(job: JobScript) -> int | None:
    """Return the number of GPUs per node that --gres requests; None if it requests none."""
    found = None
    for part in (_value(job, "gres") or "").split(","):
        pieces = part.partition("(")[0].split(":")
        if pieces[0] == "gpu" or pieces[:2] == ["gres", "gpu"]:
            amount = pieces[-1] if len(pieces) > 1 and pieces[-1] != "gpu" else "1"
            found = (
                (found or 0) + int(amount) if _parse_integer(amount) is not None else 1 if len(pieces) == 2 else None
            )
    return found


def gpus_per_node(job: JobScript) -> int | None:
    """Return the number of GPUs per node according to the directives; None if they do not set it."""
    if (each := _gpu_count(_value(job, "gpus-per-node"))) is not None:
        return each
    if (by_gres := gres_gpus(job)) is not None:
        return by_gres
    together, number_of_nodes = _gpu_count(_value(job, "gpus")), nodes(job)
    if together and number_of_nodes and together % number_of_nodes == 0:
        return together // number_of_nodes
    of_task, each_node = _gpu_count(_value(job, "gpus-per-task")), _parse_integer(_value(job, "ntasks-per-node"))
    return of_task * each_node if of_task and each_node else None
