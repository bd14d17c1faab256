"""What stands where in a job script, and how is a finding about it told?"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Sequence

from mgpu.check import DOCUMENTED, WHY, Answer, Evidence, Fix, Ok, Place, Problem, Skip
from mgpu.snapshot import JobCommand, JobScript, JobVariable

SBATCH = "https://slurm.schedmd.com/sbatch.html"
SRUN = "https://slurm.schedmd.com/srun.html"
GRES = "https://slurm.schedmd.com/gres.html"
TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
MEASURED = "measured Slurm 22.05 2026-11"
HEAD = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
PORT = "export MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000))"
# fmt: off
# What starts a command on the nodes of the job, or is told where.
SPREADS = frozenset({
    "srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun", "ibrun", "jsrun", "aprun", "lrun",
    "ssh", "pdsh", "clush", "horovodrun", "flux", "parallel", "dsh", "xargs",
})
# A launcher that is one per node and starts the node's ranks; each stands for shape "one task per node".
PER_NODE = frozenset({"torchrun", "accelerate"})
_SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "K": "kill-on-bad-exit", "W": "wait",
    "w": "nodelist", "l": "label", "o": "output", "e": "error", "x": "exclude", "F": "nodefile", "r": "relative",
}
# fmt: on
_SRUN_SWITCHES = "EHIkKlOQsuvX"  # short options that take no value, and may stand before another: -lN2
_OPERATORS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: a // b, "%": lambda a, b: a % b},
)
_DEEPEST, _LONGEST_NUMBER = 20, 12  # brackets in brackets; digits
_ARITHMETIC = re.compile(r"\s*(\d+|[-+*/%()])")
PARTS = ("hetjob", "packjob")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_LONGEST_SUM = 300  # characters


def finding(
    job: JobScript,
    line: int,
    title: str,
    fix: Fix | tuple[Fix, ...] = DOCUMENTED,
    others: Sequence[int] = (),
    *,
    why: str = WHY,
    **evidence: str | int | None,
) -> Problem:
    """A problem at a line; `others` are further lines of the same."""
    known: Evidence = {name: value for name, value in evidence.items() if value is not None}
    more = sorted({one for one in others if one != line})
    if more:
        listed = ", ".join(map(str, more[:5])) + (f" and {len(more) - 5} more" if len(more) > 5 else "")
        known = {**known, "also in line": listed}
        why = f"{why} Also in line {listed}."
    return Problem(f"line {line}: {title}", why, fix, known, place=Place(job.path, line))


def whole(judge: Callable[[JobScript], Answer]) -> Callable[[JobScript], Answer]:
    """A check that is well only where all of the script was read."""

    @functools.wraps(judge)
    def asked(job_script: JobScript) -> Answer:
        answer = judge(job_script)
        return well(job_script, answer.evidence) if isinstance(answer, Ok) else answer

    return asked


def well(job: JobScript, text: str) -> Answer:
    """Nothing found; unless some of the script was not read."""
    return Skip("the script is not read to its end") if job.cut else Ok(text)


def where_known(job: JobScript, launches: Sequence[JobCommand], text: str) -> Answer:
    """Nothing found; unless nobody knows whether a launch is for several nodes."""
    unknown = any(spans(job, command) is None for command in launches)
    return Skip("on how many nodes it trains is not known") if unknown else Ok(text)


def pasted(job: JobScript) -> str:
    """The script's name in a command."""
    return shlex.quote(job.path)


def short(text: str, longest: int = 60) -> str:
    """A text that fits a title."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def option(command: JobCommand, *names: str) -> tuple[str, int] | None:
    """The value of a launcher's option and the place of the word it stands in; "" for one without a value."""
    return _option(command.words, 1, len(command.words) if command.script is None else command.script, names)


def _option(words: Sequence[str], start: int, end: int, names: Sequence[str]) -> tuple[str, int] | None:
    wanted = {name.replace("-", "_") for name in names}
    found: tuple[str, int] | None = None
    for place in range(start, end):
        name, equals, value = words[place].partition("=")
        if not name.startswith("-") or name.lstrip("-").replace("-", "_") not in wanted:
            continue
        following = words[place + 1] if place + 1 < end else ""
        if equals:
            found = value, place
        else:
            found = ("", place) if following.startswith("--") or place + 1 >= end else (following, place + 1)
    return found


def step_of(job: JobScript, command: JobCommand) -> JobCommand | None:
    """The srun that starts a command."""
    return job.commands[command.step] if command.step is not None and command.step < len(job.commands) else None


def of_step(step: JobCommand | None, name: str) -> str | None:
    """The value of an option of srun; "" for one without a value, None where it is not given."""
    if step is None:
        return None
    found = None
    letter = next((one for one, long in _SHORT.items() if long == name), None)
    words = step.words
    for place, word in enumerate(words[1:], 1):
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            if given == name or (name == "ntasks-per-node" and given == "tasks-per-node"):
                following = words[place + 1] if place + 1 < len(words) else ""
                found = value if equals else "" if following.startswith("-") else following
        elif letter and (bundled := re.match(rf"-[{_SRUN_SWITCHES}]*{letter}(.*)", word)):
            following = words[place + 1] if place + 1 < len(words) else ""
            found = bundled[1] or ("" if following.startswith("-") or letter == "K" else following)
    return found


def opaque(step: JobCommand | None) -> bool:
    """Whether options of an srun stand in a variable that is not known."""
    return step is not None and any(
        word.startswith("$") and not step.words[place].startswith("-") and "=" not in word.partition("$")[0]
        for place, word in enumerate(step.words[1:], 1)
        if not step.words[place - 1].startswith("-") or step.words[place - 1] in ("-l", "-u", "--label")
    )


def number(job: JobScript, text: str | None) -> int | None:
    """The number that a text comes to, with what the directives say of Slurm's variables; None: not known."""
    if text is None or len(text) > _LONGEST_SUM:
        return None
    known = {
        "SLURM_NNODES": _plain_nodes(job),
        "SLURM_JOB_NUM_NODES": _plain_nodes(job),
        "SLURM_GPUS_PER_NODE": _count(_value(job, "gpus-per-node")),
        "SLURM_GPUS_ON_NODE": gpus_per_node(job),
        "SLURM_NTASKS_PER_NODE": _whole(_value(job, "ntasks-per-node")),
        "SLURM_NTASKS": tasks(job),
        "SLURM_NPROCS": tasks(job),
        "SLURM_CPUS_PER_TASK": _whole(_value(job, "cpus-per-task")),
    }
    missing = False

    def put(found: re.Match[str]) -> str:
        nonlocal missing
        value = known.get(found[1])
        missing |= value is None
        return "0" if value is None else str(value)

    text = text.strip()
    if re.fullmatch(r"\$\(\(.*\)\)", text, re.DOTALL):
        text = text[3:-2]
    elif found := re.fullmatch(r"\$\(\s*expr\s+([^()|;&`]*)\)", text):
        text = found[1].replace("\\", "")
    elif not re.fullmatch(r"\d+|\$\{?\w+\}?", text):
        return None
    text = _NAME.sub(put, text)
    return None if missing else _sum(text)


def _sum(text: str) -> int | None:
    """The value of a sum of whole numbers."""
    tokens, place, text = [], 0, text.strip()
    while place < len(text):
        found = _ARITHMETIC.match(text, place)
        if not found:
            return None
        tokens.append(found[1])
        place = found.end()
    tokens = [*reversed(tokens)]  # the next one is the last of the list
    try:
        value = _level(tokens, 0, 0)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None if tokens else value


def _level(tokens: list[str], level: int, depth: int) -> int:
    """The value of what stands before the next operator of a lower level."""
    if level == len(_OPERATORS):
        return _atom(tokens, depth)
    value = _level(tokens, level + 1, depth)
    while tokens and tokens[-1] in _OPERATORS[level]:
        operator = _OPERATORS[level][tokens.pop()]
        value = operator(value, _level(tokens, level + 1, depth))
    return value


def _atom(tokens: list[str], depth: int) -> int:
    token = tokens.pop()
    if token == "(" and depth < _DEEPEST:
        value = _level(tokens, 0, depth + 1)
        if tokens.pop() != ")":
            raise ValueError(token)
        return value
    if len(token) > _LONGEST_NUMBER:
        raise ValueError(token)
    return int(token)


def _value(job: JobScript, *options: str) -> str | None:
    directive = None if of_parts(job) else job.directive(*options)
    return directive.value if directive else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 9 else None


def _count(text: str | None) -> int | None:
    """The number of GPUs in "8", "a100:8", "a100:4(S:0-1)"."""
    if not text:
        return None
    total = 0
    for part in text.split(","):
        amount = part.partition("(")[0].rpartition(":")[2]
        if _whole(amount) is None:
            return None
        total += int(amount)
    return total


def of_parts(job: JobScript) -> bool:
    """Whether the job has several parts, each with directives of its own ("hetjob", once "packjob")."""
    return any(one.obeyed and one.written in PARTS for one in job.directives)


def _plain_nodes(job: JobScript) -> int | None:
    return _whole(_value(job, "nodes"))


def nodes(job: JobScript) -> int | None:
    """How many nodes the directives ask for; None where they do not say, or leave it open."""
    given = _value(job, "nodes")
    if given is not None:
        return _whole(given)
    together, each = _whole(_value(job, "ntasks")), _whole(_value(job, "ntasks-per-node"))
    if together and each and together % each == 0:
        return together // each
    return None


def tasks_per_node(job: JobScript) -> int | None:
    """How many tasks a node has for the directives; None where that is open."""
    each = _value(job, "ntasks-per-node")
    if each is not None:
        return _whole(each)
    if _value(job, "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task") is not None:
        return None
    together, number_of_nodes = _value(job, "ntasks"), nodes(job)
    if together is None:
        return None if of_parts(job) else 1
    amount = _whole(together)
    return amount // number_of_nodes if amount and number_of_nodes and amount % number_of_nodes == 0 else None


def tasks(job: JobScript) -> int | None:
    """How many tasks the directives ask for in all."""
    together = _value(job, "ntasks")
    if together is not None:
        return _whole(together)
    each, number_of_nodes = tasks_per_node(job), nodes(job)
    return each * number_of_nodes if each and number_of_nodes else None


def gres_gpus(job: JobScript) -> int | None:
    """The GPUs of a node that --gres asks for; None where it asks for none."""
    found = None
    for part in (_value(job, "gres") or "").split(","):
        pieces = part.partition("(")[0].split(":")
        if pieces[0] == "gpu" or pieces[:2] == ["gres", "gpu"]:
            amount = pieces[-1] if len(pieces) > 1 and pieces[-1] != "gpu" else "1"
            found = (found or 0) + int(amount) if _whole(amount) is not None else 1 if len(pieces) == 2 else None
    return found


def gpus_per_node(job: JobScript) -> int | None:
    """How many GPUs a node has for the directives; None where they do not say."""
    if (each := _count(_value(job, "gpus-per-node"))) is not None:
        return each
    if (by_gres := gres_gpus(job)) is not None:
        return by_gres
    together, number_of_nodes = _count(_value(job, "gpus")), nodes(job)
    if together and number_of_nodes and together % number_of_nodes == 0:
        return together // number_of_nodes
    of_task, each_node = _count(_value(job, "gpus-per-task")), _whole(_value(job, "ntasks-per-node"))
    return of_task * each_node if of_task and each_node else None


def nodes_of(job: JobScript, command: JobCommand) -> int | None:
    """How many nodes a command runs on; None where that is not known."""
    step = step_of(job, command)
    given = of_step(step, "nodes")
    if given is not None:
        return number(job, given)
    if opaque(step) or of_step(step, "nodelist") is not None or of_step(step, "exclude") is not None:
        return None
    return nodes(job)


def spans(job: JobScript, command: JobCommand) -> bool | None:
    """Whether a launch is meant for several nodes; None where that is not known."""
    amount = nodes_of(job, command)
    if amount is not None:
        return amount > 1
    asked = option(command, "nnodes", "num_machines")
    if asked is None:
        return None
    wanted = number(job, asked[0].partition(":")[0])
    return True if wanted is not None and wanted > 1 else None if wanted is None else False


def meant_for_several(job: JobScript, command: JobCommand) -> bool:
    """As `spans`, and where the number is a variable of the job, the script was written for several."""
    known = spans(job, command)
    if known is not None:
        return known
    asked = option(command, "nnodes", "num_machines")
    return asked is not None and "$" in asked[0]


def per_node_launches(job: JobScript) -> list[JobCommand]:
    """The launches of torchrun and accelerate."""
    return [command for command in job.launches if command.launcher in PER_NODE and not command.inner]


def spread(command: JobCommand) -> bool:
    """Whether something starts a command on the nodes."""
    return bool(SPREADS & set(command.through))


def variables(command: JobCommand, word: int) -> list[JobVariable]:
    """The variables in one word of a command."""
    return [one for one in command.variables if one.word == word]


def backend(command: JobCommand) -> str:
    """How the launchers of a run meet: "static" or "c10d" ..., as the command line says."""
    given = option(command, "rdzv_backend")
    if given is not None:
        return given[0]
    if command.launcher == "torchrun" and option(command, "standalone") is not None:
        return "c10d"
    return "static"


def head(command: JobCommand) -> tuple[str, int] | None:
    """Where the launchers of a run meet, without the port, and the place of the word that says so."""
    if command.launcher == "accelerate":
        return option(command, "main_process_ip")
    if command.launcher in ("torchrun", "deepspeed"):
        endpoint = option(command, "rdzv_endpoint") if command.launcher == "torchrun" else None
        if endpoint is not None:
            address = re.sub(r":[^:)}]*$|:\$\(\(.*\)\)$", "", endpoint[0])
            return address, endpoint[1]
        return option(command, "master_addr")
    return None


def port(command: JobCommand) -> tuple[str, int] | None:
    """The port at which the launchers of a run meet, and the place of the word that says so."""
    if command.launcher == "accelerate":
        return option(command, "main_process_port")
    endpoint = option(command, "rdzv_endpoint")
    if endpoint is not None and ":" in endpoint[0]:
        found = re.search(r":([^:]*|\$\(\(.*\)\)|\$\{.*\})$", endpoint[0])
        return (found[1], endpoint[1]) if found else None
    return option(command, "master_port")


def line_of(command: JobCommand, word: int) -> int:
    """The line a word of a command stands in."""
    return command.lines[word] if word < len(command.lines) else command.line


def hides_options(command: JobCommand) -> bool:
    """Whether some of a launcher's options stand in a variable that is not known."""
    given = command.arguments
    return any(
        word.startswith("$") and (place == 0 or not given[place - 1].startswith("-") or "=" in given[place - 1])
        for place, word in enumerate(given)
    )
