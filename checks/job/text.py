"""Can Slurm and the shell read the script as intended?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobCommand, JobScript
from mgpu.text import shell_path

from ._findings import MEASURED, finding, needs_whole_script, shorten, submitted_work, unread_work

_BASH = "https://www.gnu.org/software/bash/manual/bash.html"


@check(Severity.ERROR, source=MEASURED)
def job_lines_end_as_on_windows(job_script: JobScript) -> Answer:
    r"""The script has Windows line endings.

    Why: sbatch rejects the script with "Batch script contains DOS line breaks (\r\n)".
    More: A shell treats the carriage return as part of the last argument.

    Fix: Convert the line endings.
    """
    if job_script.crlf_line is None:
        return Ok("Unix line endings")
    return finding(
        job_script,
        job_script.crlf_line,
        "Windows line endings (CRLF)",
        commands(shell("sed -i 's/\\r$//' {:path}", job_script.path)),
    )


@check(Severity.ERROR, source=MEASURED)
def job_shebang_missing(job_script: JobScript) -> Answer:
    """The first line does not name a shell.

    Why: sbatch rejects it with "This does not look like a batch script".
    More: "The first line must start with #!".

    Fix: Make this the first line.
    More: No blank line is allowed above it.
    """
    if job_script.shebang is not None:
        return Ok(f"it starts with {shorten(job_script.shebang)}")
    if not job_script.directives:
        return Skip("it has no #SBATCH line, so a shell may run it")
    return finding(job_script, 1, "the file does not start with #!", commands("#!/bin/bash"))


@check(Severity.ERROR, source=_BASH, because_of=("job_lines_end_as_on_windows",))
@needs_whole_script
def job_syntax_broken(job_script: JobScript) -> Answer:
    """The script has a shell syntax error.

    Why: The shell stops there, after the job has waited in the queue. The cause may be further up: a quote, bracket or
    `if` that is not closed.

    Fix: Correct the line, and check with bash -n.
    """
    if job_script.syntax is None:
        if job_script.syntax_unread:
            return Skip(job_script.syntax_unread)
        return Ok(f"{job_script.lines:,} lines, accepted by bash -n")
    fix = commands(shell("bash -n {:path}", job_script.place(job_script.syntax_line or 1)[0]))
    message = shorten(job_script.syntax, 120)
    if job_script.syntax_line:
        return finding(job_script, job_script.syntax_line, message, fix)
    return Problem(message, fix=fix, place=Place(job_script.path))


@check(Severity.ERROR, source="https://www.gnu.org/software/bash/manual/bash.html")
@needs_whole_script
def job_continued_line_broken(job_script: JobScript) -> Answer:
    """A command that continues over several lines ends too early.

    Why: The following lines become a separate command, and the launcher does not get their options.
    More: A backslash continues the line only if it is the last character, and a comment line ends the command:
    "--nnodes: command not found".

    Fix: Remove it, and move comments above the command.
    """
    odd = [one for one in job_script.texts if one.kind in ("blank", "remark", "ended")]
    dashed = [c for c in job_script.commands if c.words[0].startswith("--") and not c.inner and not c.through]
    dashed = [c for c in dashed if not _may_be_appended(job_script, c)]
    if odd:
        file, number = job_script.place(odd[0].line)
        reason = {
            "blank": "a space follows the backslash",
            "remark": "a comment follows the backslash",
            "ended": "a comment line is inside the command",
        }[odd[0].kind]
        return finding(
            job_script,
            odd[0].line,
            f"{reason}: the command ends here",
            commands(shell("sed -n '{:number}p' {:path} | cat -A", number, file)),
            [one.line for one in odd[1:]],
        )
    if dashed:
        return finding(
            job_script,
            dashed[0].line,
            f"{shorten(dashed[0].words[0], 40)} is run as a command",
            Fix("End the previous line with a backslash, with nothing after it."),
            [one.line for one in dashed[1:]],
            why="The previous line does not end with a backslash, so these options are not part of it.",
        )
    return Ok("no continued line is broken")


def _may_be_appended(job: JobScript, command: JobCommand) -> bool:
    """Whether these options are appended to an array, whose first words may be in a file that was not read."""
    appended = any(one.line == command.line and one.raw.startswith(f"{one.name}+=(") for one in job.sets)
    return appended and any(one.sourced for one in job.unread)


@check(Severity.ERROR, source=MEASURED)
@needs_whole_script
def job_dash_typographic(job_script: JobScript) -> Answer:
    """A command contains a typographic dash or quote.

    Why: The shell and Slurm treat it as an ordinary character.
    More: In text copied from a web page or a document, -- can become one long dash and " a curly quote. The launcher
    does not recognize the option, and treats it as the training script.

    Fix: Type it again.
    """
    found = [one for one in job_script.texts if one.kind in ("dash", "quote")]
    if not found:
        return Ok("no typographic dashes or quotes")
    file = job_script.place(found[0].line)[0]
    what = "dash" if found[0].kind == "dash" else "quote"
    return finding(
        job_script,
        found[0].line,
        f"{shorten(found[0].text, 40)} has a typographic {what}",
        Fix(
            f"Type the {what} again, as plain ASCII.",
            (shell("grep -nP '[^\\x00-\\x7F]' {:path}", file),),
        ),
        [one.line for one in found[1:]],
    )


@check(Severity.WARNING, source="mgpu: it reads the files that are here", tags=("not_examined",))
def job_file_not_examined(job_script: JobScript) -> Answer:
    """The script starts a file that was not read, or only submits other jobs.

    Why: What the job does is in that file, so the other checks examined only a part of it. The verdict is unknown.
    More: mgpu looks for it where the job would: in the folder of a literal `cd`, the current folder and the script's
    folder. It reads three levels of files. A name with a variable is known only in the job. A script that is passed to
    sbatch is a job of its own, and is examined when you name it.

    Fix: Check it where the file is.
    More: Run mgpu on the cluster, in the folder from which you submit the job.
    """
    missing = unread_work(job_script)
    if not missing and (submitting := submitted_work(job_script)):
        return _of_submitted(job_script, submitting)
    if not missing:
        return Ok("every file that does the job's work was read")
    first = missing[0]
    return finding(
        job_script,
        first.line,
        f"{shell_path(first.path)} was not examined: {first.why}",
        commands(shell("mgpu doctor --script {:path}", job_script.path)),
        [one.line for one in missing],
    )


def _of_submitted(job: JobScript, submitting: list[JobCommand]) -> Problem:
    """Return the problem of a script that starts nothing itself: its work is in the jobs that it submits."""
    name = shell_path(job.submits[0]) if job.submits else "what it passes to sbatch"
    here = tuple(shell("mgpu doctor --script {:path}", one) for one in job.submits_here[:3])
    return finding(
        job,
        submitting[0].line,
        f"{name} was not examined: it runs as a job of its own",
        Fix("Examine the jobs that it submits.", here) if here else Fix("Examine the jobs that it submits, as files."),
        [one.line for one in submitting],
        why="This script only submits jobs. What they do is not in it, so its verdict is unknown.",
    )
