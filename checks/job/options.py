"""Does the training script accept the options that a launch passes to it?"""

from __future__ import annotations

from mgpu.check import DOCUMENTED, Answer, Fix, Ok, Severity, check
from mgpu.snapshot import JobScript
from mgpu.text import listed, shell_path

from ._findings import finding, needs_whole_script

_ARGPARSE = "https://docs.python.org/3/library/argparse.html#argument-abbreviations-prefix-matching"


@check(Severity.ERROR, source=_ARGPARSE)
@needs_whole_script
def job_option_unknown_to_script(job_script: JobScript) -> Answer:
    """A launch passes an option that its training script does not accept.

    Why: argparse stops every rank at the start: "error: unrecognized arguments".
    More: argparse also accepts the beginning of an option, but no other spelling: --learning-rate is not
    --learning_rate. This is reported only if the script itself shows all of its options: each one is a literal, and no
    library adds any.

    Fix: Correct the option, or add it to the script.
    """
    found = [(one, option) for one in job_script.launches if not one.inner for option in one.refused]
    if not found:
        return Ok("no option that a training script certainly does not accept")
    command, first = found[0]
    names = listed(list(dict.fromkeys(option.name for one, option in found if one.here == command.here)))
    script = shell_path(command.here or command.words[command.script or 0], 60)
    return finding(
        job_script,
        command.line_of(first.word),
        f"{script} does not accept {names}",
        Fix(f"Did you mean {first.similar}?") if first.similar else DOCUMENTED,
        [one.line_of(option.word) for one, option in found],
    )
