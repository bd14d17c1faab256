"""Does a job load conda from a folder that does not exist?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Circumstance, Log

_LINE = re.compile(
    r"^(?P<script>[^\s:]+?)(?::\s?(?:line )?|:\w*:)(?P<number>\d+):.*?(?P<path>/[^\s:'\"]*)/etc/profile\.d/conda\.sh"
)
_PATH = re.compile(r"(?P<path>[^\s:'\"]*)/etc/profile\.d/conda\.sh")
_SPOOLED = re.compile(r"/spool/|/slurm_script$|\.SC$")
_NOT_ACTIVE = "log_environment_not_active"
# What a script meets that goes on with another Python.
_WITHOUT = frozenset({_NOT_ACTIVE, "log_module_missing", "log_command_not_found"})


def _failed_after(log: Log, missing: Circumstance, signatures: frozenset[str]) -> bool:
    """Whether the job failed after this line because it lacked what conda has."""
    return any(
        one.signature in signatures and not one.survived and one.file == missing.file and one.line > missing.line
        for one in log.seen
    )


def _first_missing(log: Log) -> Circumstance | None:
    """Return the line that fails to load conda: of the job script, or of a file that its shell reads first."""
    shown = {one.name: one for one in log.shows}
    in_job, at_login = shown.get("conda_missing_in_job"), shown.get("conda_missing_at_login")
    if in_job and _failed_after(log, in_job, _WITHOUT):
        return in_job
    return at_login if at_login and _failed_after(log, at_login, frozenset({_NOT_ACTIVE})) else None


@check(
    Severity.ERROR,
    source="https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html",
    role="root",
    kind="launcher",
    tags=("precise", "before_ranks"),
    same_as=(_NOT_ACTIVE, "log_shell_file_missing"),
)
def log_conda_folder_missing(log: Log) -> Answer:
    """The job script loads conda from a folder in which there is none.

    Why: The folder was moved or removed, is on a file system that this node does not mount, or belongs to another user
    or cluster. The script goes on with another Python, and packages are missing.

    Fix: Correct the path in that line of the script.
    """
    missing = _first_missing(log)
    found = _PATH.search(missing.text) if missing else None
    if missing is None or found is None:
        return Ok("no conda that is missing")
    line = _LINE.match(missing.text)
    path, number = found["path"], line["number"] if line else None
    script = line["script"] if line else ""
    name = "the job script" if not script or _SPOOLED.search(script) else script.rpartition("/")[2]
    file = "JOB.sh" if name == "the job script" else name
    return Problem(
        f"there is no conda at {path}, from which {f'line {number} of ' if number else ''}{name} loads it",
        "The folder was moved or removed, is on a file system that this node does not mount, or belongs to another "
        "user or cluster. After this line `conda activate` cannot work. Without `set -e` the script goes on with "
        "another Python, in which packages are missing.",
        (
            Fix(
                "See on the job's node where conda is, and correct the path in that line.",
                (
                    shell("ls -d {:path}", path),
                    "ls -d ~/*conda3 ~/*forge3 ~/*mamba*",
                    shell("sed -n {:number}p {:path}", number, file) if number else "grep -n conda.sh JOB.sh",
                ),
            ),
            Fix("Let the script stop at the first command that fails.", ("set -e",)),
        ),
        {"line": missing.text},
        place=Place(missing.file, missing.line),
    )
