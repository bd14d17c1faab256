"""Does the job stop when a rank fails, and handle the signals before its time limit?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobCommand, JobScript, JobSet

from ._findings import MEASURED, SRUN, finding, line_name, needs_whole_script, shorten
from ._launches import has_hidden_options, is_multi_node, nodes_of, ok_if_nodes_known, srun_option, srun_step

_BASH_PIPES = "https://www.gnu.org/software/bash/manual/html_node/Pipelines.html"
_KILLS = re.compile(r"--kill-on-bad-exit(?!=0)|(?:^|\s)-K(?!0)|--wait[= ][1-9]")
_SERVES = re.compile(
    r"\bvllm(?: |-)serve\b|\bvllm\.entrypoints\.\S*api_server\b|\bsglang\.launch_server\b|\btext-generation-launcher\b"
    r"|\btensorboard\b|\bjupyter(?:-|\s)(?:lab|notebook)\b|\bmlflow server\b|\bredis-server\b|\bhttp\.server\b"
    r"|\bray start\b.*--block|\btritonserver\b|\bollama serve\b|\bnvidia-smi (?:dmon|pmon|.*-l\b|.*--loop)"
    r"|\bdcgmi dmon\b|\bnvitop\b|\btail -[fF]\b|^watch\b"
)
_BASH_EXIT = "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html"
_PRINTS = ("echo", "printf", "date")
_HARMLESS = (*_PRINTS, "hostname", "sleep", "nvidia-smi", "squeue", "sacct", "df", "du", "free", "deactivate")
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
        options = _values_of_options(job_script, step)
        with_kill = [one for one in options if _KILLS.search(one.value)]
        if has_hidden_options(step) and (not options or len(with_kill) == len(options)):
            hidden |= not options
            continue
        return finding(
            job_script,
            step.line,
            "a rank that fails on one node leaves the others waiting"
            + (f", unless {line_name(job_script, with_kill[0].line)} runs" if with_kill else ""),
            commands("srun --kill-on-bad-exit=1 ..."),
            [with_kill[0].line] if with_kill else (),
        )
    if hidden:
        return Skip("srun has options in a variable whose value is not known")
    stepped = [one for one in job_script.launches if one.step is not None]
    return ok_if_nodes_known(job_script, stepped, "a failed task ends the step, or there is one node")


def _values_of_options(job: JobScript, step: JobCommand) -> list[JobSet]:
    """Return the assignments, in branches, of the variables in which an srun has options."""
    names = {one.name for one in step.variables if re.fullmatch(r"\$\{?\w+(?:\[[@*]\])?\}?", step.words[one.word])}
    found = [one for one in job.sets if one.name in names and not one.value.startswith("$")]
    return found if names <= {one.name for one in found} else []


@check(Severity.WARNING, source=_BASH_PIPES)
@needs_whole_script
def job_exit_code_lost(job_script: JobScript) -> Answer:
    """A pipe, or a trap for EXIT, hides the exit code of training.

    Why: The exit code of a pipe is that of its last program, so a failed run counts as completed.
    More: Slurm then reports COMPLETED, a job with --dependency=afterok starts, and nothing is requeued. With
    `set -o pipefail`, the pipe fails if any of its programs fails. A trap for EXIT that ends with exit 0 replaces the
    exit code of the script.

    Fix: Set it at the top of the script.
    More: Or let Slurm write the log: #SBATCH --output.
    """
    if problem := _replaced_by_trap(job_script):
        return problem
    if any("PIPESTATUS" in text for text in _texts(job_script)):
        return Ok("it reads PIPESTATUS")
    lost = [one for one in job_script.launches if one.code_lost and not one.inner and one.step is not None]
    lost = lost or [one for one in job_script.launches if one.code_lost and not one.inner and one.starts_ranks]
    if not lost:
        return Ok("no launch is in a pipe without pipefail")
    lines = [step.line if (step := srun_step(job_script, one)) and step.code_lost else one.line for one in lost]
    return finding(
        job_script,
        lines[0],
        "a failed run counts as completed: its exit code is lost in the pipe",
        commands("set -o pipefail"),
        lines,
    )


def _replaced_by_trap(job: JobScript) -> Problem | None:
    """Return the problem of a trap for EXIT that always ends the script with 0, or None."""
    trap = next((one for one in job.traps if {"EXIT", "0"} & set(one.signals) and one.exit_code == "0"), None)
    if trap is None or not any(not one.inner and "trap" not in one.through for one in job.launches):
        return None
    return finding(
        job,
        trap.line,
        "a failed run counts as completed: this trap always exits with 0",
        Fix("Exit with the code that the script had.", ("trap 'code=$?; cleanup; exit $code' EXIT",)),
        why="The exit of a trap for EXIT replaces the exit code of the script.",
    )


@check(Severity.INFO, source=_BASH_EXIT)
@needs_whole_script
def job_exit_code_of_last_command(job_script: JobScript) -> Answer:
    """The exit code of the job is that of an echo after training, or always 0.

    Why: Without `set -e`, the exit code of a script is that of its last command, so a failed run counts as completed.
    More: Slurm then reports COMPLETED, and a job with --dependency=afterok starts.

    Fix: Set it at the top of the script, or keep the exit code.
    """
    last = _hiding_command(job_script)
    if last is None:
        return Ok("no echo after training replaces its exit code")
    return finding(
        job_script,
        last.line,
        f"a failed run counts as completed: the exit code is {_code_of(last)}",
        (commands("set -e"), Fix("Or end with the exit code of training.", ("code=$?", "exit $code"))),
    )


def _code_of(last: JobCommand) -> str:
    return "always 0" if last.words[0] == "exit" else f"that of {shorten(last.words[0], 20)}"


def _hiding_command(job: JobScript) -> JobCommand | None:
    """Return the last command of the script, if it comes after training and prints something or is `exit 0`."""
    if not job.directives or job.stops_at_errors or job.traps or not job.commands:
        return None
    own = [one for one in job.commands if not one.inner]
    launches = [one for one in own if one.launcher]
    last = own[-1] if own else None
    if not launches or last is None or last.unsure or last.through:
        return None
    if last.words[0] not in _PRINTS and last.words != ("exit", "0"):
        return None
    training = launches[-1]
    step = srun_step(job, training) or training
    after = job.commands[job.commands.index(training) + 1 :]
    parts = (step, training, last)
    if "exec" in training.through or any(one.unsure or one.background for one in parts):
        return None
    if any(job.place(one.line)[0] != job.path for one in parts):
        return None
    # A later assignment may keep the exit code; `wait`, `exit` and others may use it.
    kept = any(one.line >= step.line for one in job.sets) or any("$?" in word for one in after for word in one.words)
    return None if kept or any(one.words[0] not in _HARMLESS for one in after if one is not last) else last


def _texts(job: JobScript) -> list[str]:
    """Return the texts of all commands and assignments."""
    return [" ".join(one.words) for one in job.commands] + [one.raw for one in job.sets]


@check(Severity.WARNING, source=_BASH_PIPES)
@needs_whole_script
def job_waits_for_server(job_script: JobScript) -> Answer:
    """The script waits for a server in the background, which never ends.

    Why: `wait` without a process waits for all of them, also the server. The job runs, and is charged, until its time
    limit.

    Fix: Wait for training only, and stop the server.
    """
    commands_of = [one for one in job_script.commands if not one.inner]
    servers = [one for one in commands_of if one.background and _is_server(one)]
    if not servers:
        return Ok("no server runs in the background")
    place = commands_of.index(servers[0])
    later = commands_of[place + 1 :]
    waits = [one for one in later if one.words == ("wait",) and one.through == servers[0].through[: len(one.through)]]
    work = [one for one in commands_of if one.launcher and not _is_server(one)]
    if not waits or not work or work[0].statement > waits[-1].statement:
        return Ok("nothing waits for the server")
    until = later[: later.index(waits[-1])]
    if any(one.words[0] in ("kill", "pkill", "killall", "scancel") for one in until):
        return Ok("the server is stopped")
    return finding(
        job_script,
        waits[-1].line,
        f"wait also waits for {shorten(' '.join(servers[0].words[:2]), 40)}, which never ends",
        commands("server=$!", "wait $training", "kill $server"),
        [servers[0].line],
    )


def _is_server(command: JobCommand) -> bool:
    """Whether a command is a server or a monitor, which runs until it is stopped."""
    return bool(_SERVES.search(" ".join(command.words[:6])))


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
    signals, where = sorted(set(traps[0].signals) - _SHELL_EVENTS), line_name(job_script, traps[0].line)
    if set(signals) <= {"INT", "TERM", "HUP", "2", "15", "1"} and job_script.directive("signal") is None:
        return Skip("the trap is for stopping the job by hand")
    return finding(
        job_script,
        waiting[0].line,
        f"the trap for {', '.join(signals[:3])} ({where}) runs only after this command ends",
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
