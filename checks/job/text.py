"""Can Slurm and the shell read the script as it was meant?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobScript

from ._findings import MEASURED, finding, short, whole

_BASH = "https://www.gnu.org/software/bash/manual/bash.html"


@check(Severity.ERROR, source=MEASURED)
def job_lines_end_as_on_windows(job_script: JobScript) -> Answer:
    """The script has the line ends of Windows.

    Why: sbatch refuses the script: "Batch script contains DOS line breaks (\\r\\n)".
    More: A shell takes the carriage return for a part of the last word.

    Fix: Convert it.
    """
    if job_script.crlf_line is None:
        return Ok("the lines end as on Linux")
    return finding(
        job_script,
        job_script.crlf_line,
        "the lines end as on Windows (CR LF)",
        commands(shell("sed -i 's/\\r$//' {:path}", job_script.path)),
    )


@check(Severity.ERROR, source=MEASURED)
def job_shebang_missing(job_script: JobScript) -> Answer:
    """The first line does not name a shell.

    Why: sbatch refuses it: "This does not look like a batch script".
    More: It takes no other file: "The first line must start with #!".

    Fix: Make this the first line.
    More: No blank line may stand before it.
    """
    if job_script.shebang is not None:
        return Ok(f"it begins with {short(job_script.shebang)}")
    if not job_script.directives:
        return Skip("it has no #SBATCH line, and may be there for a shell")
    return finding(job_script, 1, "the file does not begin with #!", commands("#!/bin/bash"))


@check(Severity.ERROR, source=_BASH, because_of=("job_lines_end_as_on_windows",))
@whole
def job_syntax_broken(job_script: JobScript) -> Answer:
    """The shell cannot read the script.

    Why: The shell stops there, after the job has waited in the queue. The fault may stand further up: at the quote,
    bracket or `if` that is not closed.

    Fix: Mend it; this shows the same.
    More: It is bash -n.
    """
    if job_script.syntax is None:
        if job_script.syntax_unread:
            return Skip(job_script.syntax_unread)
        return Ok(f"{job_script.lines:,} lines, which bash -n reads")
    where = f"line {job_script.syntax_line}: " if job_script.syntax_line else ""
    return Problem(
        f"{where}{short(job_script.syntax, 120)}",
        fix=commands(shell("bash -n {:path}", job_script.path)),
        place=Place(job_script.path, job_script.syntax_line),
    )


@check(Severity.ERROR, source="https://www.gnu.org/software/bash/manual/bash.html")
@whole
def job_continued_line_broken(job_script: JobScript) -> Answer:
    """A command that is continued with backslashes ends too early.

    Why: The lines that follow become a command of their own, and the launcher goes without their options.
    More: A backslash continues the line only where it is the very last character, and a comment line ends the command:
    "--nnodes: command not found".

    Fix: Take it away; comments go above the command.
    """
    odd = [one for one in job_script.texts if one.kind in ("blank", "remark", "ended")]
    dashed = [c for c in job_script.commands if c.words[0].startswith("--") and not c.inner and not c.through]
    if odd:
        words = {
            "blank": "a blank follows the backslash",
            "remark": "a comment follows the backslash",
            "ended": "a comment line stands amid the command",
        }[odd[0].kind]
        return finding(
            job_script,
            odd[0].line,
            f"{words}: the command ends here",
            commands(shell("sed -n '{:number}p' {:path} | cat -A", odd[0].line, job_script.path)),
            [one.line for one in odd[1:]],
        )
    if dashed:
        return finding(
            job_script,
            dashed[0].line,
            f"{short(dashed[0].words[0], 40)} is run as a command",
            Fix("End the line before with a backslash, and nothing after it."),
            [one.line for one in dashed[1:]],
            why="The line before it does not end in a backslash, so these options are no part of it.",
        )
    return Ok("no continued line is broken")


@check(Severity.ERROR, source=MEASURED)
@whole
def job_dash_typographic(job_script: JobScript) -> Answer:
    """A dash or quote of a word processor stands in a command.

    Why: For the shell and for Slurm it is a letter like any other.
    More: Copied from a web page or a document, -- has become one long dash and " a curly quote: the option is not one,
    and the launcher takes it for the training script.

    Fix: Type it again.
    """
    found = [one for one in job_script.texts if one.kind in ("dash", "quote")]
    if not found:
        return Ok("dashes and quotes are plain ones")
    what = "dash" if found[0].kind == "dash" else "quote"
    return finding(
        job_script,
        found[0].line,
        f"{short(found[0].text, 40)} has a typographic {what}",
        Fix(f"Type the {what} again, as plain ASCII.", (shell("grep -nP '[^\\x00-\\x7F]' {:path}", job_script.path),)),
        [one.line for one in found[1:]],
    )
