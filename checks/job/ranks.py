"""Does every node get its own rank?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config, JobCommand, JobScript, JobVariable
from mgpu.text import shell_path

from ._amounts import evaluate
from ._findings import MEASURED, finding, line_name, needs_whole_script, ok_unless_cut, shorten
from ._launches import (
    hides_options,
    is_multi_node,
    launcher_option,
    ok_if_nodes_known,
    per_node_launches,
    rendezvous_backend,
    word_variables,
)
from .starting import step_tasks

_RANK_IGNORED = "https://github.com/huggingface/accelerate/issues/3206"
_RANKS = re.compile(r"\bSLURM_(?:PROCID|NODEID|LOCALID)\b")
_RANK_NAMES = {"RANK", "NODE_RANK", "LOCAL_RANK", "GROUP_RANK", "MACHINE_RANK", "SLURM_RANK"}
_OPTIONS = ("node_rank", "machine_rank")
_ELASTIC = ("c10d", "etcd", "etcd-v2")
_QUOTED = "srun bash -c '... --{:name} $SLURM_NODEID ...'"


def _batch_shell_rank(command: JobCommand, word: int) -> JobVariable | None:
    """Return the rank variable that the batch shell expands in a word, to 0; None if there is none."""
    return next((one for one in word_variables(command, word) if not one.on_node and _RANKS.search(one.name)), None)


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/issues/2816")
@needs_whole_script
def job_rank_expanded_in_batch_shell(job_script: JobScript) -> Answer:
    """The batch shell expands the rank of a node to 0.

    Why: SLURM_PROCID and SLURM_NODEID are also set in the batch script itself, to 0. In double quotes, or unquoted in
    an srun line, every node gets that 0 as its rank. Each acts as the first node, and the rendezvous waits for the
    others (or finds its port in use).

    Fix: Use single quotes, so that a shell on the node expands it.
    """
    for command in job_script.launches:
        if command.step is None or command.launcher == "mgpu":
            continue
        given = launcher_option(command, *_OPTIONS)
        if given is not None:
            early = _batch_shell_rank(command, given[1])
            if (
                early is not None
                and rendezvous_backend(command) not in _ELASTIC
                and is_multi_node(job_script, command) is not False
            ):
                return _finding(job_script, command, given[1], early)
        elif command.launcher == "python" and (found := _exported_rank(job_script, command)):
            return found
    return Ok("the batch shell expands no rank")


def _finding(job: JobScript, command: JobCommand, word: int, early: JobVariable) -> Problem:
    name = _RANKS.search(early.name)
    assert name is not None
    flag = "node_rank" if command.launcher == "torchrun" else "machine_rank"
    step = job.commands[command.step] if command.step is not None else command
    return finding(
        job,
        early.line or command.line_of(word),
        f"${name.group()} is expanded here, in the batch shell, to 0",
        (
            Fix("Put it in single quotes, so that the node's own shell expands it.", (shell(_QUOTED, flag),)),
            Fix("Or, in double quotes, put a backslash before the dollar sign.", (f"--{flag} \\$SLURM_NODEID",)),
            Fix("Or let the launchers assign the ranks.", (_c10d(command),)),
        ),
        [step.line],
        why="Every node gets rank 0.",
    )


def _c10d(command: JobCommand) -> str:
    if command.launcher == "torchrun":
        return "torchrun --rdzv_backend c10d --rdzv_id $SLURM_JOB_ID --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT ..."
    return "accelerate launch --rdzv_backend c10d --machine_rank $SLURM_NODEID ..."


def _exported_rank(job: JobScript, command: JobCommand) -> Problem | None:
    """Return the problem of a rank that the batch shell exports to a script without a launcher, or None."""
    for one in job.sets:
        if one.name in _RANK_NAMES and one.exported and not one.on_node and one.statement <= command.statement:
            early = next((v for v in one.variables if not v.on_node and _RANKS.search(v.name)), None)
            if early is not None and not _is_set_on_node(job, one.name):
                return _python_rank_problem(job, one.line, one.name, early)
    return None


def _is_set_on_node(job: JobScript, name: str) -> bool:
    return any(one.name == name and one.on_node for one in job.sets)


def _python_rank_problem(job: JobScript, line: int, name: str, early: JobVariable) -> Problem:
    found = _RANKS.search(early.name)
    assert found is not None
    return finding(
        job,
        line,
        f"{name} is ${found.group()} of the batch shell, which is 0",
        Fix(
            "Set it in a shell on the node.",
            (shell("srun bash -c 'export {:name}=${:name}; python train.py'", name, found.group()),),
        ),
        why="Every task gets 0 as its rank.",
    )


@check(Severity.WARNING, source="https://docs.pytorch.org/docs/stable/distributed.html#launch-utility")
@needs_whole_script
def job_local_rank_not_accepted(job_script: JobScript) -> Answer:
    """torch.distributed.launch passes an option that the training script does not accept.

    Why: Since PyTorch 2.0 it is --local-rank, with a dash. argparse stops at it: "unrecognized arguments:
    --local-rank=0", on every rank.
    More: Older releases pass --local_rank. It is not reported if the repository names PyTorch 1, or if --use-env is
    given, with which nothing is passed.

    Fix: Accept both spellings.
    """
    found = [one for one in job_script.launches if one.refuses_local_rank and not one.inner]
    if not found:
        return Ok("no training script refuses --local-rank")
    first = found[0]
    script = shell_path(first.here or first.words[first.script or 0], 60)
    return finding(
        job_script,
        first.line,
        f"PyTorch 2 passes --local-rank, but {script} accepts only --local_rank",
        commands("parser.add_argument('--local-rank', '--local_rank', type=int, default=0)"),
        [one.line for one in found],
    )


@check(Severity.INFO, source=MEASURED)
@needs_whole_script
def job_rank_ignored(job_script: JobScript) -> Answer:
    """Every node gets rank 0, but c10d ignores it.

    Why: The batch shell expands the rank. It works only because c10d assigns the ranks itself.
    More: The rank is 0 on every node. Without --rdzv_backend c10d, the same line makes the run hang.

    Fix: Let the node's own shell expand it, so that it is correct.
    """
    for command in job_script.launches:
        given = launcher_option(command, *_OPTIONS)
        if command.step is None or given is None or rendezvous_backend(command) not in _ELASTIC:
            continue
        early = _batch_shell_rank(command, given[1])
        if early is not None:
            name = _RANKS.search(early.name)
            assert name is not None
            return finding(
                job_script,
                early.line or command.line_of(given[1]),
                f"${name.group()} is 0 for every node here, but {rendezvous_backend(command)} ignores it",
                commands("--machine_rank \\$SLURM_NODEID"),
            )
    return Ok("no rank is passed without effect")


@check(Severity.ERROR, source=_RANK_IGNORED, because_of=("job_continued_line_broken", "job_dash_typographic"))
@needs_whole_script
def job_machine_rank_missing(job_script: JobScript) -> Answer:
    """The launchers of several nodes get no node rank.

    Why: With --master_addr, torchrun treats every node as the first. accelerate without --machine_rank and without a
    config stops with "int() argument must be ... not 'NoneType'".

    Fix: Set it on the node, or let c10d assign the ranks.
    """
    found = _launch_without_rank(job_script, per_node_launches(job_script))
    if found is None:
        unranked = [
            one
            for one in per_node_launches(job_script)
            if one.step is not None
            and launcher_option(one, *_OPTIONS) is None
            and rendezvous_backend(one) not in _ELASTIC
        ]
        return ok_if_nodes_known(job_script, unranked, "the launchers get their rank, or c10d assigns it")
    command, why = found
    flag = "node_rank" if command.launcher == "torchrun" else "machine_rank"
    return finding(
        job_script,
        command.line,
        f"several nodes, but no --{flag}",
        (
            Fix("Set it in a shell on the node, in single quotes.", (shell(_QUOTED, flag),)),
            Fix("Or use c10d, which needs no static ranks.", (_c10d(command),)),
        ),
        why=why,
    )


def _launch_without_rank(job: JobScript, launches: Sequence[JobCommand]) -> tuple[JobCommand, str] | None:
    for command in launches:
        if command.step is None or is_multi_node(job, command) is not True or hides_options(command):
            continue
        if launcher_option(command, *_OPTIONS) is not None or any(one.name == "PET_NODE_RANK" for one in job.sets):
            continue
        if command.launcher == "torchrun":
            static = launcher_option(command, "rdzv_endpoint") is None and rendezvous_backend(command) == "static"
            if static and launcher_option(command, "master_addr") is not None:
                return command, "Without it, every node is node 0 and waits for the others."
        elif launcher_option(command, "config_file") is None and launcher_option(command, "num_machines") is not None:
            return command, "accelerate stops with \"int() argument must be a string ..., not 'NoneType'\"."
    return None


@check(Severity.ERROR, source=MEASURED)
def job_machine_rank_of_config(job_script: JobScript, config: Config) -> Answer:
    """All nodes read the same machine_rank from the config.

    Why: All nodes have the same rank, and wait for the missing ones.
    More: The file is on a file system that the nodes share.

    Fix: Set it in a shell on the node, in single quotes.
    """
    for command in per_node_launches(job_script):
        if command.launcher != "accelerate" or launcher_option(command, "config_file") is None or command.step is None:
            continue
        if launcher_option(command, "machine_rank") is not None or rendezvous_backend(command) in _ELASTIC:
            continue
        many = launcher_option(command, "num_machines") is not None or config.num_machines > 1
        if many and is_multi_node(job_script, command) is not False:
            rank = config.values.get("machine_rank")
            return finding(
                job_script,
                command.line,
                f"every node reads machine_rank {shorten(str(rank if rank is not None else 0), 20)} from "
                f"{shorten(config.path, 60)}",
                commands("srun bash -c 'accelerate launch ... --machine_rank $SLURM_NODEID ...'"),
            )
    return ok_unless_cut(job_script, "the launchers do not read their rank from the config")


@check(Severity.ERROR, source="https://slurm.schedmd.com/srun.html")
@needs_whole_script
def job_variable_not_on_node(job_script: JobScript) -> Answer:
    """A shell on the node expands a variable that the script sets but does not export.

    Why: In single quotes, a shell on the node expands it, and only has exported variables.
    More: The option has no value, so the launcher uses the next word as its value.

    Fix: Export it.
    """
    for command in job_script.commands:
        if command.launcher is None:
            continue
        lost = [one for one in command.variables if one.unset]
        if lost:
            name = shorten(lost[0].name, 40)
            setting = next((one.line for one in job_script.sets if one.name == lost[0].name and not one.on_node), 0)
            return finding(
                job_script,
                lost[0].line or command.line,
                f"${name} is empty here: {line_name(job_script, setting)} sets it, but does not export it"
                if setting
                else f"${name} is empty here: it is not exported",
                commands(shell("export {:name}", lost[0].name)),
                [setting] if setting else [],
            )
    return Ok("all variables expanded on the nodes are exported")


@check(
    Severity.ERROR, source="https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization"
)
@needs_whole_script
def job_world_size_wrong(job_script: JobScript) -> Answer:
    """WORLD_SIZE is not the number of tasks that srun starts.

    Why: The Python script takes the number of ranks from WORLD_SIZE, and its own rank from SLURM_PROCID.
    More: If it is too small, the ranks above it stop, or the others train without them. If it is too large, all ranks
    wait for some that never start.

    Fix: Use the number of tasks that Slurm started.
    """
    for command in job_script.launches:
        if command.launcher != "python" or "WORLD_SIZE" not in (command.uses or ()) or command.step is None:
            continue
        given = _world_size(job_script, command)
        started = step_tasks(job_script, command)
        size = evaluate(job_script, given[0]) if given else None
        if given is None or size is None or started is None or size == started:
            continue
        return finding(
            job_script,
            given[1],
            f"WORLD_SIZE is {size}, but srun starts {started} tasks",
            commands("export WORLD_SIZE=$SLURM_NTASKS"),
            [command.line],
            world_size=size,
            tasks=started,
        )
    return Ok("no script without a launcher gets another WORLD_SIZE")


def _world_size(job: JobScript, command: JobCommand) -> tuple[str, int] | None:
    """Return the WORLD_SIZE that a command gets, and the line that sets it; None if several places may set it."""
    if any("WORLD_SIZE" in one.env for one in job.commands):
        return None
    made = [one for one in job.sets if one.name == "WORLD_SIZE"]
    known = len(made) == 1 and made[0].exported and not made[0].unsure and made[0].statement <= command.statement
    return (made[0].value, made[0].line) if known else None
