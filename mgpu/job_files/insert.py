"""Insert the pre-flight into a user's job script.

It goes before the first command that launches something or reads the job's nodes, so that all later commands use only
the nodes that the pre-flight chose.
"""

from __future__ import annotations

import re

from mgpu.snapshot import JobCommand, JobScript

_SHELLS = re.compile(r"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:bash|sh|dash|ksh|zsh|ash|mksh)(?:\s|$)")
_STARTERS = frozenset({"srun", "mpirun", "mpiexec", "mpiexec.hydra", "horovodrun", "prun"})
_ONLY_TELL = frozenset({"echo", "printf"})
_OF_NODES = re.compile(
    r"SLURM_(?:JOB_)?(?:NODELIST|NUM_NODES)\b|SLURM_(?:NNODES|NTASKS|NPROCS|TASKS_PER_NODE)\b|\bshow\s+hostnames?\b"
)


def place(job: JobScript) -> int | None:
    """Return the line, counted from 1, before which the block goes.

    None if the script has no recognizable launch command or is not for a POSIX shell.
    """
    if job.shebang is not None and not _SHELLS.match(job.shebang):
        return None
    commands = [command for command in job.commands if "trap" not in command.through]  # a trap runs later
    starts = [command.statement for command in commands if _starts(command)]
    if not starts:
        return None
    reads = [command.statement for command in commands if _reads(command)]
    sets = [
        one.statement for one in job.sets if _OF_NODES.search(" ".join([one.raw, *(v.name for v in one.variables)]))
    ]
    return min(starts + reads + sets)


def with_block(text: str, block: str, line: int) -> str:
    """Return a job script with a block inserted before a line, otherwise unchanged."""
    lines = text.split("\n")
    block = block if block.endswith("\n") else f"{block}\n"
    return "\n".join([*lines[: line - 1], block + lines[line - 1], *lines[line:]])


def _starts(command: JobCommand) -> bool:
    names = {word.rpartition("/")[2] for word in (*command.words[:1], *command.through)}
    return command.launcher not in (None, "mgpu") or bool(names & _STARTERS)


def _reads(command: JobCommand) -> bool:
    if command.words[:1] and command.words[0] in _ONLY_TELL:
        return False
    return bool(_OF_NODES.search(" ".join([*command.words, *(variable.name for variable in command.variables)])))
