"""Does the job end when it should, and go on when it should?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobScript

from ._findings import MEASURED, SRUN, finding, short, whole
from ._launches import nodes_of, of_step, opaque, spans, step_of, where_known

_OF_THE_SHELL = {"EXIT", "ERR", "DEBUG", "RETURN", "0"}
# In a template of `shell`, in which braces are doubled.
_JOB, _TASK_OF_ARRAY = "$SLURM_JOB_ID", "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"


@check(Severity.WARNING, source=SRUN)
@whole
def job_goes_on_without_a_rank(job_script: JobScript) -> Answer:
    """A task that fails does not end the others.

    Why: srun ends the step only when all its tasks have ended.
    More: The others wait for the rank that is gone, up to the timeout of NCCL or the end of the job's time
    (KillOnBadExit is 0 by default; measured: 30 s instead of 0 s, which was all that the other node had to do).

    Fix: Let the first failure end it.
    """
    if any(one.name == "SLURM_KILL_BAD_EXIT" and one.value == "1" and one.exported for one in job_script.sets):
        return Ok("SLURM_KILL_BAD_EXIT=1 is exported")
    hidden = False
    for command in job_script.launches:
        step = step_of(job_script, command)
        if step is None or not spans(job_script, command) or nodes_of(job_script, command) == 1:
            continue
        told = of_step(step, "kill-on-bad-exit")
        wait = of_step(step, "wait")
        if (told is not None and told != "0") or (wait is not None and wait != "0"):
            continue
        if opaque(step):
            hidden = True
            continue
        return finding(
            job_script,
            step.line,
            "a rank that fails on one node leaves the others waiting",
            commands("srun --kill-on-bad-exit=1 ..."),
        )
    if hidden:
        return Skip("options of srun stand in a variable that is not known")
    stepped = [one for one in job_script.launches if one.step is not None]
    return where_known(job_script, stepped, "a task that fails ends the step, or there is one node")


@check(Severity.WARNING, source=MEASURED)
@whole
def job_trap_never_runs(job_script: JobScript) -> Answer:
    """The script's trap waits for the training to end.

    Why: bash runs a trap when the command in the foreground has ended: here, when Slurm has killed it.
    More: The trap never runs (measured), nothing is saved and nothing is requeued.

    Fix: Start it in the background, and wait for it.
    """
    traps = [one for one in job_script.traps if set(one.signals) - _OF_THE_SHELL and one.action.strip()]
    if not traps:
        return Ok("no trap waits for a signal")
    launches = [one for one in job_script.launches if not one.inner and "trap" not in one.through]
    steps = [step_of(job_script, one) or one for one in launches]
    waiting = [one for one in steps if not one.background]
    if not waiting or any(one.background for one in steps):
        return Ok("the training runs in the background")
    signals = sorted(set(traps[0].signals) - _OF_THE_SHELL)
    if set(signals) <= {"INT", "TERM", "HUP", "2", "15", "1"} and job_script.directive("signal") is None:
        return Skip("the trap is for an end by hand")
    return finding(
        job_script,
        waiting[0].line,
        f"the trap for {', '.join(signals[:3])} (line {traps[0].line}) runs only when this has ended",
        commands("srun --kill-on-bad-exit=1 ... &", "wait $!"),
        [traps[0].line],
    )


@check(Severity.WARNING, source=MEASURED)
@whole
def job_signal_misses_the_trap(job_script: JobScript) -> Answer:
    """Slurm's warning before the time limit does not go where the trap is.

    Why: A shell that does not catch the signal dies of it, and Slurm ends the job.
    More: --signal without B: goes to the steps and not to the script's own shell (measured): the trap never runs, and a
    rank that does not catch the signal dies of it. With B: it goes to the shell alone.

    Fix: Send it to the shell.
    More: That is B: with a trap in the script; without B: the training catches it.
    """
    directive = job_script.directive("signal")
    if directive is None:
        return Ok("no warning is asked for")
    found = re.fullmatch(r"(?:([RB]+):)?(?:SIG)?(\w+)(?:@\d+)?", directive.value or "", re.IGNORECASE)
    if not found:
        return Skip("the value of --signal is not one that Slurm reads")
    to_shell, name = "B" in (found[1] or "").upper(), _name(found[2])
    caught = [one for one in job_script.traps if name in map(_name, one.signals)]
    if to_shell and not caught:
        if any(command.words[0] == "exec" or "exec" in command.through for command in job_script.launches):
            return Ok("the training takes the place of the shell")
        alone = job_script.directive("array") is None
        trap = shell(f"trap 'scontrol requeue \"{_JOB if alone else _TASK_OF_ARRAY}\"' {{:name}}", name)
        to_ranks = shell("#SBATCH --signal={:id}", (directive.value or "").split(":")[-1])
        return finding(
            job_script,
            directive.line,
            f"{short(directive.written, 30)} goes to this shell, which has no trap for {name}: it ends the job",
            (Fix("Catch it.", (trap,)), Fix("Or let it go to the ranks, which must catch it then.", (to_ranks,))),
        )
    if not to_shell and caught:
        return finding(
            job_script,
            directive.line,
            f"{short(directive.written, 30)} goes to the ranks, and the trap is here",
            commands(shell("#SBATCH --signal=B:{:id}", directive.value)),
            [caught[0].line],
            why="Without B: the shell of the script is not told.",
        )
    return Ok("the warning goes where it is caught")


def _name(signal: str) -> str:
    """A signal's name, which a trap and --signal may give as a number or in small letters."""
    name = signal.upper().removeprefix("SIG")
    return {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}.get(name, name)


def _this_job(job: JobScript) -> str:
    """The job as scontrol takes it: the number of an array's last task alone is the whole array (measured 22.05)."""
    return "$SLURM_JOB_ID" if job.directive("array") is None else "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"


@check(Severity.INFO, source=MEASURED)
@whole
def job_requeue_empties_the_log(job_script: JobScript) -> Answer:
    """A job that is requeued writes its log anew.

    Why: Slurm truncates the output file at every start.
    More: What the first run said, and why it ended, is gone (measured).

    Fix: Let it append.
    """
    requeue = job_script.directive("requeue")
    by_hand = [one for one in job_script.commands if one.words[:2] == ("scontrol", "requeue")]
    if requeue is None and not by_hand:
        return Ok("it is not requeued")
    mode = job_script.directive("open-mode")
    if mode is not None:
        return Ok(f"--open-mode={mode.value}")
    line = requeue.line if requeue else by_hand[0].line
    return finding(
        job_script, line, "the second start empties the log of the first", commands("#SBATCH --open-mode=append")
    )
