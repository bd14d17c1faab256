"""Are the files and folders that a launch needs where the job looks for them?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import JobScript
from mgpu.text import shell_path

from ._findings import finding, folder_missing, needs_whole_script

_REDIRECTIONS = "https://www.gnu.org/software/bash/manual/html_node/Redirections.html"
_STOPS = {
    "training script": 'Python stops with "can\'t open file".',
    "config": "accelerate stops before it starts a rank.",
    "DeepSpeed file": "Every rank stops when it reads its arguments.",
}


@check(Severity.WARNING, source="mgpu: it reads the files that are here")
@needs_whole_script
def job_named_file_missing(job_script: JobScript) -> Answer:
    """A launch names a file that does not exist.

    Why: The launch stops at once, after the job has waited in the queue.
    More: mgpu reports a training script only if a file with a similar name is in the same folder, and a config only if
    the training script of the same command is here. A file that git ignores, or that the job may create, is not
    reported.

    Fix: Correct the path, or create the file.
    """
    missing = job_script.missing
    if not missing:
        return Ok("no launch names a file that is missing")
    first = missing[0]
    name = shell_path(first.path, 60)
    here = f"the {first.kind} {name} does not exist"
    title = f"{here}, and it is the default" if first.default else here
    similar = Fix(f"Did you mean {shell_path(first.similar, 60)}?", (shell("ls {:path}", first.similar),))
    default = Fix("Correct the default, or pass a file that exists when you start the script.")
    ways = (similar,) if first.similar else (default,) if first.default else (Fix(),)
    others = [one.line for one in missing if one.path == first.path]
    return finding(job_script, first.line, title, ways, others, why=_STOPS[first.kind])


@check(Severity.WARNING, source=_REDIRECTIONS)
@needs_whole_script
def job_redirect_folder_missing(job_script: JobScript) -> Answer:
    """The output of a launch is redirected to a file in a folder that does not exist.

    Why: The shell opens the file before it starts the command. Without the folder it prints "No such file or
    directory", and training does not start.

    Fix: Create the folder in the script, before the command.
    """
    missing = [one for one in job_script.redirects if one.exists is False and not one.made]
    if not missing:
        return Ok("the folders for redirected output exist, or something may make them")
    return folder_missing(job_script, missing, "does not exist: the shell does not start the command")
