"""Does the job stop when a rank fails, and handle the signals before its time limit?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobScript

from ._findings import MEASURED, SRUN, finding, needs_whole_script, shorten
from ._launches import has_hidden_options, is_multi_node, nodes_of, ok_if_nodes_known, srun_option, srun_step

_SHELL_EVENTS = {"EXIT", "ERR", "DEBUG", "RETURN", "0"}  # trap names that are not signals
# For a template of `shell`, in which braces are doubled.
_JOB, _TASK_OF_ARRAY = "$SLURM_JOB_ID", "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"


@check(Severity.WARNING, source=SRUN)
@needs_whole_script
def job_goes_on_without_a_rank(job_script: JobScript) -> Answer:
    """A task that fails does not stop the other tasks.

    Why: By default, srun ends the step only after all its tasks have exited.
    More: The others wait for the missing rank until NCCL's timeout or the job's time limit (KillOnBadExit is 0 by
    default; measured: 30 s instead of 0 s, the run time of the other node).

    Fix: Make the first failure end the step.
    """
    if any(one.name == "SLURM_KILL_BAD_EXIT" and one.value == "1" and one.exported for one in job_script.sets):
        return Ok("SLURM_KILL_BAD_EXIT=1 is exported")
    hidden = False
    for command in job_script.launches:
        step = srun_step(job_script, command)
        if step is None or not is_multi_node(job_script, command) or nodes_of(job_script, command) == 1:
            continue
        kill = srun_option(step, "kill-on-bad-exit")
        wait = srun_option(step, "wait")
        if (kill is not None and kill != "0") or (wait is not None and wait != "0"):
            continue
        if has_hidden_options(step):
            hidden = True
            continue
        return finding(
            job_script,
            step.line,
            "a rank that fails on one node leaves the others waiting",
            commands("srun --kill-on-bad-exit=1 ..."),
        )
    if hidden:
        return Skip("srun has options in a variable whose value is not known")
    stepped = [one for one in job_script.launches if one.step is not None]
    return ok_if_nodes_known(job_script, stepped, "a failed task ends the step, or there is one node")


@check(Severity.WARNING, source=MEASURED)
@needs_whole_script
def job_trap_never_runs(job_script: JobScript) -> Answer:
    """The script's trap does not run until training has ended.

    Why: bash runs a trap only after the foreground command has ended, which here is when Slurm has killed it.
    More: The trap never runs (measured), so nothing is saved or requeued.

    Fix: Start training in the background, and wait for it.
    """
    traps = [one for one in job_script.traps if set(one.signals) - _SHELL_EVENTS and one.action.strip()]
    if not traps:
        return Ok("no trap waits for a signal")
    launches = [one for one in job_script.launches if not one.inner and "trap" not in one.through]
    steps = [srun_step(job_script, one) or one for one in launches]
    waiting = [one for one in steps if not one.background]
    if not waiting or any(one.background for one in steps):
        return Ok("training runs in the background")
    signals = sorted(set(traps[0].signals) - _SHELL_EVENTS)
    if set(signals) <= {"INT", "TERM", "HUP", "2", "15", "1"} and job_script.directive("signal") is None:
        return Skip("the trap is for stopping the job by hand")
    return finding(
        job_script,
        waiting[0].line,
        f"the trap for {', '.join(signals[:3])} (line {traps[0].line}) runs only after this command ends",
        commands("srun --kill-on-bad-exit=1 ... &", "wait $!"),
        [traps[0].line],
    )


@check(Severity.WARNING, source=MEASURED)
@needs_whole_script
def job_signal_misses_the_trap(job_script: JobScript) -> Answer:
    """The signal that Slurm sends before the time limit does not reach the trap.

    Why: A shell that does not catch the signal is killed by it, and Slurm ends the job.
    More: Without B:, --signal goes to the steps, not to the script's shell (measured). The trap never runs, and the
    signal kills every rank that does not catch it. With B:, it goes only to the shell.

    Fix: Send it to the shell.
    More: Use B: with a trap in the script. Without B:, the training script must catch it.
    """
    directive = job_script.directive("signal")
    if directive is None:
        return Ok("no signal is requested")
    found = re.fullmatch(r"(?:([RB]+):)?(?:SIG)?(\w+)(?:@\d+)?", directive.value or "", re.IGNORECASE)
    if not found:
        return Skip("the value of --signal is not valid")
    to_shell, name = "B" in (found[1] or "").upper(), _signal_name(found[2])
    caught = [one for one in job_script.traps if name in map(_signal_name, one.signals)]
    if to_shell and not caught:
        if any(command.words[0] == "exec" or "exec" in command.through for command in job_script.launches):
            return Ok("exec replaces the shell with the training process")
        alone = job_script.directive("array") is None
        trap = shell(f"trap 'scontrol requeue \"{_JOB if alone else _TASK_OF_ARRAY}\"' {{:name}}", name)
        to_ranks = shell("#SBATCH --signal={:id}", (directive.value or "").split(":")[-1])
        return finding(
            job_script,
            directive.line,
            f"{shorten(directive.written, 30)} goes to this shell, which has no trap for {name}, so it ends the job",
            (Fix("Catch it.", (trap,)), Fix("Or send it to the ranks, which then must catch it.", (to_ranks,))),
        )
    if not to_shell and caught:
        return finding(
            job_script,
            directive.line,
            f"{shorten(directive.written, 30)} goes to the ranks, but the trap is here",
            commands(shell("#SBATCH --signal=B:{:id}", directive.value)),
            [caught[0].line],
            why="Without B:, the script's shell does not get the signal.",
        )
    return Ok("the signal goes to a process that catches it")


def _signal_name(signal: str) -> str:
    """Return a signal's name; a trap and --signal also accept numbers and lower case."""
    name = signal.upper().removeprefix("SIG")
    return {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}.get(name, name)


@check(Severity.INFO, source=MEASURED)
@needs_whole_script
def job_requeue_empties_the_log(job_script: JobScript) -> Answer:
    """A requeued job overwrites its log.

    Why: Slurm truncates the output file at every start.
    More: The log of the first run, including why it ended, is lost (measured).

    Fix: Append to the log instead.
    """
    requeue = job_script.directive("requeue")
    by_hand = [one for one in job_script.commands if one.words[:2] == ("scontrol", "requeue")]
    if requeue is None and not by_hand:
        return Ok("the job is not requeued")
    mode = job_script.directive("open-mode")
    if mode is not None:
        return Ok(f"--open-mode={mode.value}")
    line = requeue.line if requeue else by_hand[0].line
    return finding(
        job_script, line, "the second start overwrites the log of the first", commands("#SBATCH --open-mode=append")
    )
