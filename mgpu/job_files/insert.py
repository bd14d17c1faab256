"""Where in somebody's job script does the pre-flight go? In front of the first command that launches something, or that
reads which nodes the job has: what the pre-flight leaves out is then left out by all that follows.
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
    """The line, counted from 1, that is to come after the block; None where the script launches nothing that can be
    seen, or is none of a POSIX shell."""
    if job.shebang is not None and not _SHELLS.match(job.shebang):
        return None
    commands = [command for command in job.commands if "trap" not in command.through]  # for later
    starts = [command.statement for command in commands if _starts(command)]
    if not starts:
        return None
    reads = [command.statement for command in commands if _reads(command)]
    sets = [
        one.statement for one in job.sets if _OF_NODES.search(" ".join([one.raw, *(v.name for v in one.variables)]))
    ]
    return min(starts + reads + sets)


def with_block(text: str, block: str, line: int) -> str:
    """A job script with a block in front of a line of it; everything else byte for byte."""
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
