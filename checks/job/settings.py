"""Does the script hold what does not belong there: secrets, settings of a debugging day?"""

from __future__ import annotations

from mgpu.check import Answer, Ok, Severity, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobScript

from ._findings import NCCL, finding, short, whole

# Settings that find a fault by taking away what makes a run fast.
_SLOW = {
    "NCCL_P2P_DISABLE": "the GPUs of a node no longer copy to each other directly",
    "NCCL_IB_DISABLE": "nodes talk over Ethernet, where there is InfiniBand as well",
    "NCCL_SHM_DISABLE": "ranks of a node talk over the network",
    "CUDA_LAUNCH_BLOCKING": "every kernel is waited for",
    "NCCL_NET_GDR_DISABLE": "data between nodes goes through the CPU's memory",
}
_LOUD = {"NCCL_DEBUG": ("INFO", "TRACE"), "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",), "TORCH_CPP_LOG_LEVEL": ("INFO",)}
_OFF = ("", "0")


def _set(job: JobScript) -> list[tuple[str, str, int]]:
    """Variables that reach the ranks: name, value, line."""
    found = [(one.name, one.value, one.line) for one in job.sets if one.exported or one.on_node]
    for command in job.commands:
        found += [(name, value, command.line) for name, value in command.env.items()]
    return found


@check(Severity.WARNING, source="https://slurm.schedmd.com/sbatch.html")
@whole
def job_secret_in_script(job_script: JobScript) -> Answer:
    """A password or token stands in the script.

    Why: Slurm keeps a copy of the script, and shows it to others (sacct --batch-script, scontrol write batch_script).
    More: And the file ends in a repository.

    Fix: Read it from a file that only you can read; and make a new one, as this one has been seen.
    """
    found = [one for one in job_script.texts if one.kind == "secret"]
    if not found:
        return Ok("no secret is seen")
    name = found[0].text if found[0].text.isidentifier() else "TOKEN"
    return finding(
        job_script,
        found[0].line,
        f"{short(found[0].text, 40)} stands here in plain text",
        commands(
            shell("export {:name}=$(cat ~/.{:name})", name, name.lower()), shell("chmod 600 ~/.{:name}", name.lower())
        ),
        [one.line for one in found],
    )


@check(Severity.WARNING, source=NCCL)
@whole
def job_slow_setting_left(job_script: JobScript) -> Answer:
    """A setting for finding faults takes away what makes the run fast.

    Why: It is there to find a fault, and costs speed for as long as it stays.
    More: Each of these switches off a fast way between GPUs or nodes: a run is up to ten times slower. NCCL's own
    documentation says to remove them.

    Fix: Take it out, and let the smoke test measure the difference.
    """
    found = [(name, value, line) for name, value, line in _set(job_script) if name in _SLOW and value not in _OFF]
    found = [one for one in found if one[1] == "1" or one[1].lower() in ("true", "yes", "on")]
    if not found:
        return Ok("no fast way is switched off")
    name, value, line = found[0]
    return finding(
        job_script,
        line,
        f"{name}={short(value, 20)}: {_SLOW[name]}",
        commands(shell("unset {:name}", name), "mgpu smoke-test"),
        [one[2] for one in found],
    )


@check(Severity.INFO, source=NCCL)
@whole
def job_debug_output_left(job_script: JobScript) -> Answer:
    """NCCL or PyTorch writes its debugging output.

    Why: It is there to find a fault.
    More: Hundreds of lines a rank: the log of a large job is hard to read, and large.

    Fix: Faults are told at this level as well.
    """
    found = [(name, value, line) for name, value, line in _set(job_script) if value.upper() in _LOUD.get(name, ())]
    if not found:
        return Ok("no debugging output is asked for")
    name, value, line = found[0]
    return finding(
        job_script,
        line,
        f"{name}={short(value, 20)} writes hundreds of lines a rank",
        commands(*(("export NCCL_DEBUG=WARN",) if name == "NCCL_DEBUG" else (shell("unset {:name}", name),))),
        [one[2] for one in found],
    )
