"""Does the script contain secrets or leftover debug settings?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from mgpu.check import WHY, Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobScript, JobSet

from ._findings import NCCL, finding, needs_whole_script, shorten
from ._launches import starts_single_ranks

# Debug settings that disable a fast path.
_SLOW = {
    "NCCL_P2P_DISABLE": "the GPUs of a node do not copy directly to each other",
    "NCCL_IB_DISABLE": "nodes communicate over Ethernet even if there is InfiniBand",
    "NCCL_SHM_DISABLE": "ranks of a node communicate over the network",
    "CUDA_LAUNCH_BLOCKING": "the CPU waits for every kernel",
    "NCCL_NET_GDR_DISABLE": "data between nodes goes through CPU memory",
}
# Not TORCH_CPP_LOG_LEVEL=INFO: about five lines per rank (measured torch 2.13).
_LOUD = {"NCCL_DEBUG": ("INFO", "TRACE"), "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",)}
_SEEN_BY_READERS = "Everyone who can read this file, or a repository that it is committed to, can use the secret."
_ON = ("1", "true", "yes", "on")


# A comment that gives a reason for a setting.
_REASON = re.compile(
    r"\b(?:must|need\w*|requires?|required|otherwise|because|since|without|avoid\w*|prevent\w*|work-?\s?around|hang\w*|hung|keep"
    r"|dead-?lock\w*|crash\w*|fail\w*|bug\w*|broken|unstable|errors?|issues?|fix\w*|(?:not|n't) (?:\w+ )*support\w*"
    r"|unsupported|no (?:infiniband|ib|nvlink|p2p|rdma)|do not|don't|necessary|due to|only works?|important|else)\b",
    re.IGNORECASE,
)


class _Setting(NamedTuple):
    """A variable that reaches the ranks."""

    name: str
    value: str
    line: int
    of_command: bool  # set for one command only: NAME=value COMMAND

    def removal(self) -> Fix:
        """Return the fix that removes it; unset has no effect on a variable of one command."""
        if self.of_command:
            return Fix(f"Remove {self.name}={shorten(self.value, 20)} from the command.")
        return commands(shell("unset {:name}", self.name))


def _rank_variables(job: JobScript, *, with_reason: bool = True) -> list[_Setting]:
    """Return the variables that reach the ranks; perhaps without those explained by a comment."""
    found = [
        _Setting(one.name, one.value, one.line, of_command=False)
        for one in job.sets
        if (one.exported or one.on_node)
        and (with_reason or not _REASON.search(one.comment))
        and not _is_replaced(job, one)
    ]
    for command in job.commands:
        found += [_Setting(name, value, command.line, of_command=True) for name, value in command.env.items()]
    return found


def _is_replaced(job: JobScript, one: JobSet) -> bool:
    """Whether the script certainly sets the variable again before the next program that it starts on the nodes."""
    starts = [c.statement for c in job.commands if c.step is not None or c.launcher is not None]
    following = min((start for start in starts if start >= one.statement), default=None)
    return following is not None and any(
        other.name == one.name
        and other.on_node == one.on_node
        and not other.unsure
        and one.statement < other.statement <= following
        for other in job.sets
    )


def _other_network(job: JobScript) -> bool:
    """Whether NCCL uses a network other than InfiniBand: AWS EFA or Slingshot, through libfabric."""
    return any(
        one.name.startswith("FI_")
        or one.name in ("NCCL_NET", "NCCL_NET_PLUGIN")
        or (one.name == "NCCL_SOCKET_IFNAME" and one.value.startswith("hsn"))
        for one in job.sets
    )


@check(Severity.WARNING, source="https://slurm.schedmd.com/sbatch.html")
@needs_whole_script
def job_secret_in_script(job_script: JobScript) -> Answer:
    """The script contains a password or token.

    Why: Slurm keeps a copy of the script, and shows it to others (sacct --batch-script, scontrol write batch_script).
    More: Scripts are also often committed to a repository, where everyone who can read it can use the secret.

    Fix: Read it from a file that only you can read. Replace the secret, because it is no longer safe.
    """
    found = [one for one in job_script.texts if one.kind == "secret"]
    if not found:
        return Ok("no secrets found")
    given = found[0].text
    name = given if given.isidentifier() else given.lstrip("-").replace("-", "_")
    file = name.lower() if name.isidentifier() else "token"
    if given.startswith("-"):
        read = shell('{:option} "$(cat ~/.{:name})"', given, file)
    else:
        read = shell("export {:name}=$(cat ~/.{:name})", given if given.isidentifier() else "TOKEN", file)
    return finding(
        job_script,
        found[0].line,
        f"{shorten(given, 40)} is here in plain text",
        commands(read, shell("chmod 600 ~/.{:name}", file)),
        [one.line for one in found],
        why=WHY if job_script.directives else _SEEN_BY_READERS,
    )


@check(Severity.WARNING, source=NCCL)
@needs_whole_script
def job_slow_setting_left(job_script: JobScript) -> Answer:
    """A debug setting makes the run slower.

    Why: It is meant for debugging, and slows down every run until it is removed.
    More: Each of these settings disables a fast path between GPUs or nodes, and can make a run ten times slower. NCCL's
    documentation recommends removing them.

    Fix: Remove it, and measure the difference with the smoke test.
    """
    found = [
        one
        for one in _rank_variables(job_script, with_reason=False)
        if one.name in _SLOW
        and one.value.lower() in _ON
        and not (one.name == "NCCL_IB_DISABLE" and _other_network(job_script))
    ]
    if not found:
        return Ok("no fast path is disabled, or a comment says why")
    if starts_single_ranks(job_script):
        found = [one for one in found if not one.name.startswith("NCCL_")]
        if not found:
            return Ok("every launch starts one rank, which uses no path between GPUs")
    first = found[0]
    removal = first.removal()
    text = f"{removal.text.removesuffix('.')}, and measure the difference with the smoke test." if removal.text else ""
    return finding(
        job_script,
        first.line,
        f"{first.name}={shorten(first.value, 20)}: {_SLOW[first.name]}",
        replace(removal, text=text, commands=(*removal.commands, "mgpu smoke-test")),
        [one.line for one in found],
    )


@check(Severity.INFO, source=NCCL)
@needs_whole_script
def job_debug_output_left(job_script: JobScript) -> Answer:
    """NCCL or PyTorch writes debug output.

    Why: It is meant for debugging.
    More: With hundreds of lines per rank, the log of a large job is large and hard to read.

    Fix: Use the default level, which also reports errors.
    """
    found = [one for one in _rank_variables(job_script) if one.value.upper() in _LOUD.get(one.name, ())]
    if not found:
        return Ok("no debug output is enabled")
    first = found[0]
    exported = first.name == "NCCL_DEBUG" and not first.of_command
    return finding(
        job_script,
        first.line,
        f"{first.name}={shorten(first.value, 20)} writes hundreds of lines per rank",
        commands("export NCCL_DEBUG=WARN") if exported else first.removal(),
        [one.line for one in found],
    )
