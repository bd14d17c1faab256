"""Does every node know which one it is?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config, JobCommand, JobScript, JobVariable

from ._findings import MEASURED, finding, short, well, whole
from ._launches import backend, hides_options, line_of, option, per_node_launches, spans, variables, where_known

_RANK_IGNORED = "https://github.com/huggingface/accelerate/issues/3206"
_RANKS = re.compile(r"\bSLURM_(?:PROCID|NODEID|LOCALID)\b")
_RANK_NAMES = {"RANK", "NODE_RANK", "LOCAL_RANK", "GROUP_RANK", "MACHINE_RANK", "SLURM_RANK"}
_OPTIONS = ("node_rank", "machine_rank")
_ELASTIC = ("c10d", "etcd", "etcd-v2")
_QUOTED = "srun bash -c '... --{:name} $SLURM_NODEID ...'"


def _early(command: JobCommand, word: int) -> JobVariable | None:
    """The rank that the batch shell puts into a word, where it is 0."""
    return next((one for one in variables(command, word) if not one.on_node and _RANKS.search(one.name)), None)


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/issues/2816")
@whole
def job_rank_expanded_in_batch_shell(job_script: JobScript) -> Answer:
    """The rank of a node is put in by the batch shell, where it is 0.

    Why: SLURM_PROCID and SLURM_NODEID stand in the environment of the script itself as well, as 0. Between double
    quotes, or bare in an srun line, that 0 is handed to every node: each takes itself for the first, and the rendezvous
    waits for the others (or finds its port in use).

    Fix: Let a shell on the node expand it: single quotes.
    """
    for command in job_script.launches:
        if command.step is None or command.launcher == "mgpu":
            continue
        given = option(command, *_OPTIONS)
        if given is not None:
            early = _early(command, given[1])
            if early is not None and backend(command) not in _ELASTIC and spans(job_script, command) is not False:
                return _finding(job_script, command, given[1], early)
        elif command.launcher == "python" and (found := _handed(job_script, command)):
            return found
    return Ok("no rank is put in by the batch shell")


def _finding(job: JobScript, command: JobCommand, word: int, early: JobVariable) -> Problem:
    name = _RANKS.search(early.name)
    assert name is not None
    flag = "node_rank" if command.launcher == "torchrun" else "machine_rank"
    step = job.commands[command.step] if command.step is not None else command
    return finding(
        job,
        early.line or line_of(command, word),
        f"${name.group()} is expanded here, in the batch shell, where it is 0",
        (
            Fix("Let the node's own shell expand it: between single quotes.", (shell(_QUOTED, flag),)),
            Fix("Between double quotes, a backslash before the dollar does the same.", (f"--{flag} \\$SLURM_NODEID",)),
            Fix("Or let the launchers find their ranks themselves.", (_c10d(command),)),
        ),
        [step.line],
        why="Every node is handed rank 0.",
    )


def _c10d(command: JobCommand) -> str:
    if command.launcher == "torchrun":
        return "torchrun --rdzv_backend c10d --rdzv_id $SLURM_JOB_ID --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT ..."
    return "accelerate launch --rdzv_backend c10d --machine_rank $SLURM_NODEID ..."


def _handed(job: JobScript, command: JobCommand) -> Problem | None:
    """A rank that a script without a launcher is handed by the environment or its command line."""
    for one in job.sets:
        if one.name in _RANK_NAMES and one.exported and not one.on_node and one.line <= command.line:
            early = next((v for v in one.variables if not v.on_node and _RANKS.search(v.name)), None)
            if early is not None and not _given_again(job, one.name):
                return _plain(job, one.line, one.name, early)
    return None


def _given_again(job: JobScript, name: str) -> bool:
    return any(one.name == name and one.on_node for one in job.sets)


def _plain(job: JobScript, line: int, name: str, early: JobVariable) -> Problem:
    found = _RANKS.search(early.name)
    assert found is not None
    return finding(
        job,
        line,
        f"{name} is ${found.group()} of the batch shell, where it is 0",
        Fix(
            "Set it in a shell on the node.",
            (shell("srun bash -c 'export {:name}=${:name}; python train.py'", name, found.group()),),
        ),
        why="Every task gets 0 as its rank.",
    )


@check(Severity.INFO, source=MEASURED)
@whole
def job_rank_ignored(job_script: JobScript) -> Answer:
    """The rank of a node is 0 everywhere, which c10d does not look at.

    Why: The batch shell expands it. The launchers agree on ranks by themselves, so that this works.
    More: The rank is 0 on every node. With --rdzv_backend c10d it works; whoever takes the backend away, or copies the
    line, gets a run that hangs.

    Fix: Let the node's own shell expand it, so that it is true.
    """
    for command in job_script.launches:
        given = option(command, *_OPTIONS)
        if command.step is None or given is None or backend(command) not in _ELASTIC:
            continue
        early = _early(command, given[1])
        if early is not None:
            name = _RANKS.search(early.name)
            assert name is not None
            return finding(
                job_script,
                early.line or line_of(command, given[1]),
                f"${name.group()} is 0 for every node here; {backend(command)} does not look at it",
                commands("--machine_rank \\$SLURM_NODEID"),
            )
    return Ok("no rank is handed in vain")


@check(Severity.ERROR, source=_RANK_IGNORED, because_of=("job_continued_line_broken", "job_dash_typographic"))
@whole
def job_machine_rank_missing(job_script: JobScript) -> Answer:
    """The launchers of several nodes are not told which node they are.

    Why: torchrun with --master_addr takes every node for the first. accelerate without --machine_rank and without a
    config stops with "int() argument must be ... not 'NoneType'".

    Fix: Say it on the node, or let c10d find the ranks.
    """
    found = _without_rank(job_script, per_node_launches(job_script))
    if found is None:
        untold = [
            one
            for one in per_node_launches(job_script)
            if one.step is not None and option(one, *_OPTIONS) is None and backend(one) not in _ELASTIC
        ]
        return where_known(job_script, untold, "the launchers are told their rank, or find it")
    command, why = found
    flag = "node_rank" if command.launcher == "torchrun" else "machine_rank"
    return finding(
        job_script,
        command.line,
        f"several nodes, and no --{flag}",
        (
            Fix("Say it in a shell on the node: between single quotes.", (shell(_QUOTED, flag),)),
            Fix("And let the launchers meet by c10d, which needs no static ranks.", (_c10d(command),)),
        ),
        why=why,
    )


def _without_rank(job: JobScript, launches: Sequence[JobCommand]) -> tuple[JobCommand, str] | None:
    for command in launches:
        if command.step is None or spans(job, command) is not True or hides_options(command):
            continue
        if option(command, *_OPTIONS) is not None or any(one.name == "PET_NODE_RANK" for one in job.sets):
            continue
        if command.launcher == "torchrun":
            static = option(command, "rdzv_endpoint") is None and backend(command) == "static"
            if static and option(command, "master_addr") is not None:
                return command, "Without it every node is node 0, and all wait for the others."
        elif option(command, "config_file") is None and option(command, "num_machines") is not None:
            return command, "accelerate stops: \"int() argument must be a string ..., not 'NoneType'\"."
    return None


@check(Severity.ERROR, source=MEASURED)
def job_machine_rank_of_config(job_script: JobScript, config: Config) -> Answer:
    """All nodes read the same machine_rank from the config.

    Why: Each takes itself for the same node, and waits for the others.
    More: The file lies on a disk that the nodes share.

    Fix: Say it in a shell on the node: between single quotes.
    """
    for command in per_node_launches(job_script):
        if command.launcher != "accelerate" or option(command, "config_file") is None or command.step is None:
            continue
        if option(command, "machine_rank") is not None or backend(command) in _ELASTIC:
            continue
        many = option(command, "num_machines") is not None or config.num_machines > 1
        if many and spans(job_script, command) is not False:
            rank = config.values.get("machine_rank")
            return finding(
                job_script,
                command.line,
                f"every node takes machine_rank {short(str(rank if rank is not None else 0), 20)} from "
                f"{short(config.path, 60)}",
                commands("srun bash -c 'accelerate launch ... --machine_rank $SLURM_NODEID ...'"),
            )
    return well(job_script, "the launchers do not take their rank from the config")


@check(Severity.ERROR, source="https://slurm.schedmd.com/srun.html")
@whole
def job_variable_not_on_node(job_script: JobScript) -> Answer:
    """A shell on the node expands a variable that the script sets and does not export.

    Why: Between single quotes a shell on the node expands it, which knows what is exported, and nothing else.
    More: The option stays without a value, and the launcher takes the next word for it.

    Fix: Export it.
    """
    for command in job_script.commands:
        if command.launcher is None:
            continue
        lost = [one for one in command.variables if one.unset]
        if lost:
            setting = next((one.line for one in job_script.sets if one.name == lost[0].name and not one.on_node), 0)
            return finding(
                job_script,
                lost[0].line or command.line,
                f"${short(lost[0].name, 40)} is empty here: line {setting} sets it and does not export it"
                if setting
                else f"${short(lost[0].name, 40)} is empty here: it is not exported",
                commands(shell("export {:name}", lost[0].name)),
                [setting] if setting else [],
            )
    return Ok("what the nodes' shells expand is exported")
