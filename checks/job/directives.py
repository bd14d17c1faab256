"""Do the #SBATCH lines request what was intended?"""

from __future__ import annotations

import difflib
import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Directive, JobScript

from ._amounts import PARTS, gres_gpus, is_heterogeneous
from ._findings import MEASURED, finding, folder_missing, shorten

# fmt: off
# sbatch's options from 20.11 to 26.05; a site's plugins may add others.
_KNOWN = (
    "account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "burst-buffer", "chdir", "cluster",
    "cluster-constraint", "clusters", "comment", "consolidate-segments", "constraint", "container", "container-id",
    "contiguous", "core-spec", "cores-per-socket", "cpu-bind", "cpu-freq", "cpus-per-gpu", "cpus-per-gres",
    "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution", "error", "exclude", "exclusive",
    "export", "export-file", "external", "extra", "extra-node-info", "get-user-env", "gid", "gpu-bind", "gpu-freq",
    "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "help", "hint", "hold",
    "ignore-pbs", "immediate", "input", "job-name", "kill-on-invalid-dep", "licenses", "mail-type", "mail-user",
    "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice", "no-allocate",
    "no-kill", "no-requeue", "nodefile", "nodelist", "nodes", "nodes-per-switch", "ntasks", "ntasks-per-core",
    "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "oom-kill-step", "open-mode",
    "output", "overcommit", "oversubscribe", "parsable", "partition", "power", "prefer", "priority", "profile",
    "propagate", "qos", "quiet", "reboot", "requeue", "reservation", "resv-ports", "segment", "signal",
    "sockets-per-node", "spread-job", "stepmgr", "switches", "task-spread", "test-only", "thread-spec",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-job", "tres-per-node", "tres-per-socket",
    "tres-per-task", "uid", "usage", "use-min-nodes", "verbose", "version", "wait", "wait-all-nodes", "wckey",
    "wrap", "x11",
)
# Options of pyxis (--container-image, --container-mounts ...): sbatch has them too where sbatch_support is on.
# https://github.com/NVIDIA/pyxis (README, config.c)
_OF_PYXIS = ("container-", "no-container-")
# Options that change what the job gets.
_MATTER = frozenset({
    "nodes", "ntasks", "ntasks-per-node", "gres", "gpus", "gpus-per-node", "gpus-per-task", "cpus-per-task", "mem",
    "mem-per-cpu", "mem-per-gpu", "partition", "account", "qos", "time", "exclusive", "constraint", "signal", "requeue",
    "ntasks-per-gpu", "cpus-per-gpu", "reservation", "nodelist", "exclude",
})
_NUMBERS = frozenset({"ntasks", "ntasks-per-node", "cpus-per-task", "ntasks-per-gpu", "cpus-per-gpu"})
# 8, a100:8, a100:4,h100:4; a type alone means one GPU (measured: an unknown type is rejected as a type)
_GPUS = re.compile(r"(?:(?:[A-Za-z][\w.-]*|[\w.-]+:\d+|\d+)(?:,|$))+(?<!,)")
# {nodes}, {{ nodes }}: filled by str.format or Jinja. Slurm has no braces in the values it accepts.
_TEMPLATE = re.compile(r"\{\{?\s*\w+\s*\}?\}")
# man sbatch, --time: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, ...
_TIME = re.compile(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-(?:\d+(?::\d+){0,2})?|infinite|unlimited", re.IGNORECASE)
_NODES = re.compile(r"\d+[km]?(?:-\d+[km]?)?(?:,\d+(?:-\d+(?::\d+)?)?)*|\d+-\d+:\d+", re.IGNORECASE)  # 23.11: 1,4,8
_MAIL = frozenset({
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT", "TIME_LIMIT_90",
    "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS",
})
# fmt: on
_SIGNAL = re.compile(r"(?:[RB]{1,2}:)?(?:SIG)?(?:\w+)(?:@\d+)?", re.IGNORECASE)
_NEAR = 0.8  # difflib ratio: "ntask-per-node" is above it, "container-image" is close to no option


@check(Severity.ERROR, source=MEASURED)
def job_directive_below_a_command(job_script: JobScript) -> Answer:
    """An #SBATCH line comes after the first command.

    Why: Slurm reads #SBATCH lines up to the first command, and silently ignores the rest.
    More: The job runs without what the line requests (measured: one node, no GPU).

    Fix: Move it above the first command.
    """
    late = [one for one in job_script.directives if not one.obeyed]
    if not late:
        return Ok(f"{len(job_script.directives)} options, all above the first command")
    first = next((one for one in late if one.option in _MATTER), late[0])
    return finding(
        job_script,
        first.line,
        f"#SBATCH {shorten(first.written, 40)} comes after a command, so Slurm ignores it",
        commands(*tuple(shell("#SBATCH {:directive}", one.written) for one in late[:5])),
        [one.line for one in late],
    )


@check(Severity.ERROR, source=MEASURED)
def job_directive_has_a_variable(job_script: JobScript) -> Answer:
    """An #SBATCH line contains a shell variable.

    Why: The line is a comment for the shell, and Slurm reads it literally.
    More: A number or name with a variable is rejected ("not a valid node count"), and a file is literally named
    $HOME/log.

    Fix: Write the value. In file names, Slurm expands %j (job), %x (name), %u (user) and %N (node).
    More: Or pass the option to sbatch on the command line.
    """
    options = _MATTER | {"output", "error", "chdir", "array", "dependency"}
    found = [
        one
        for one in job_script.directives
        if one.obeyed and one.option in options and re.search(r"\$\{?\w|\$\(|`", one.value or "")
    ]
    if not found:
        return Ok("no directive contains a variable")
    first = found[0]
    return finding(
        job_script,
        first.line,
        f"#SBATCH {shorten(first.written, 50)}: variables are not expanded",
        (
            Fix(),
            Fix("Or pass it when you submit.", (shell("sbatch --{:id}=... {:path}", first.option, job_script.path),)),
        ),
        [one.line for one in found],
    )


@check(Severity.WARNING, source=MEASURED)
def job_directive_is_a_comment(job_script: JobScript) -> Answer:
    """A line that looks like an #SBATCH line is a comment or a command.

    Why: Slurm reads only lines that begin with #SBATCH.
    More: #SBATCH must start in the first column, without a space after the #. The job runs without what this line
    requests. Without the #, the shell runs it: "SBATCH: command not found", and Slurm ignores the #SBATCH lines below.

    Fix: Remove the space. To disable a line, write ##SBATCH.
    """
    given = {one.option for one in job_script.directives if one.obeyed}
    if (bare := next((one for one in job_script.texts if one.kind == "bare"), None)) is not None:
        return finding(
            job_script,
            bare.line,
            f"{shorten(bare.text, 50)} is run as a command: it has no #",
            Fix("Put the # before it.", (shell("#SBATCH {:directive}", re.sub(r"^SBATCH\s*", "", bare.text)),)),
            why='Slurm ignores the option, and the shell says "SBATCH: command not found".',
        )
    found = []
    for text in job_script.texts:
        if text.kind not in ("spaced", "loose"):
            continue
        name = re.search(r"-{1,2}([\w-]+)", text.text)
        option = name[1] if name else ""
        if option in _MATTER and option not in given:
            found.append(text)
    if not found:
        return Ok("all lines that look like directives are directives")
    reason = "space between # and SBATCH" if found[0].kind == "spaced" else "space before it"
    return finding(
        job_script,
        found[0].line,
        f"{shorten(found[0].text, 50)} is a comment: {reason}",
        (
            Fix("Remove the space.", (shell("#SBATCH {:directive}", re.sub(r"^\s*#\s*SBATCH\s*", "", found[0].text)),)),
            Fix("If it is meant to be disabled, write ##.", ("##SBATCH ...",)),
        ),
        [one.line for one in found],
    )


@check(Severity.ERROR, source=MEASURED)
def job_directive_unknown(job_script: JobScript) -> Answer:
    """An #SBATCH line has an option that sbatch does not recognize.

    Why: sbatch rejects the script with "unrecognized option".

    Fix: Correct the name.
    """
    found: list[tuple[Directive, str]] = []
    for one in job_script.directives:
        if not one.obeyed or not one.written.startswith("--") or one.option in _KNOWN:
            continue
        if one.option.startswith(_OF_PYXIS):
            continue
        near = difflib.get_close_matches(one.option, _KNOWN, n=1, cutoff=_NEAR)
        if near:
            found.append((one, near[0]))
    if not found:
        return Ok("no misspelled options")
    first, meant = found[0]
    line = shell("#SBATCH --{:id}", meant)
    if first.value is not None:
        line = shell("#SBATCH --{:id}={}", meant, first.value)
    return finding(
        job_script,
        first.line,
        f"sbatch has no option --{shorten(first.option, 40)}",
        Fix(f"Did you mean --{meant}?", (line,)),
        [one.line for one, _ in found],
    )


@check(Severity.ERROR, source=MEASURED)
def job_directive_value_invalid(job_script: JobScript) -> Answer:
    """An #SBATCH line has a value that is not valid.

    Why: sbatch rejects the script with "Invalid directive found in batch script".
    More: Or it reads a different value than was meant.

    Fix: Write a valid value.
    """
    filled = _filled_lines(job_script)
    stray = next((one for one in job_script.directives if _is_stray(one) and one.line not in filled), None)
    if stray is not None and not any(one.kind == "dash" and one.line == stray.line for one in job_script.texts):
        return finding(
            job_script,
            stray.line,
            f"#SBATCH {shorten(stray.written, 40)}: not an option",
            Fix("Start options with a dash, quote values that contain spaces, and put # before comments."),
        )
    found: list[tuple[Directive, str]] = []
    for one in job_script.directives:
        if one.obeyed and one.line not in filled and not re.search(r"[$`]", one.value or ""):
            hint = _accepted_values(one)
            if hint:
                found.append((one, hint))
    if not found and filled:
        return Skip("a program fills in some values: it is a template")
    if not found:
        return Ok("all values are valid")
    first, hint = found[0]
    return finding(
        job_script,
        first.line,
        f"#SBATCH {shorten(first.written, 50)}: not a valid value",
        Fix(f"Write {hint}.", (shell("sbatch --test-only {:path}", job_script.path),)),
        [one.line for one, _ in found],
        why=f"--{first.option} accepts {hint}.",
    )


def _filled_lines(job: JobScript) -> set[int]:
    """Return the lines with values that a program fills in before the job is submitted."""
    written: dict[int, str] = {}
    for one in job.directives:
        written[one.line] = f"{written.get(one.line, '')} {one.written}"
    return {line for line, text in written.items() if _TEMPLATE.search(text)}


def _is_stray(one: Directive) -> bool:
    return one.obeyed and not one.written.startswith("-") and one.written not in PARTS


def _accepted_values(one: Directive) -> str | None:
    """Return what an option accepts, if its value is not valid."""
    value = one.value or ""
    if one.option in _NUMBERS:
        return None if re.fullmatch(r"[1-9]\d*", value) else "a whole number above 0"
    if one.option == "nodes":
        return None if _NODES.fullmatch(value) and value != "0" else "a number, or a range such as 2-4"
    if one.option in ("time", "time-min"):
        return None if _TIME.fullmatch(value) else "minutes, HH:MM:SS or D-HH:MM:SS"
    if one.option in ("gpus", "gpus-per-node", "gpus-per-task"):
        return None if _GPUS.fullmatch(value) else "a number, or TYPE:NUMBER such as a100:4"
    if one.option == "gres":
        wrong = re.fullmatch(r"\d+|gpus?=\d+|gpu[\w:]*=\d+|gpus:.*", value)
        return "NAME:NUMBER or NAME:TYPE:NUMBER, such as gpu:4" if wrong else None
    if one.option == "mail-type":
        known = all(kind.strip().upper() in _MAIL for kind in value.split(","))
        return None if known and value else "BEGIN, END, FAIL, REQUEUE, TIME_LIMIT, ALL or NONE"
    if one.option in ("mem", "mem-per-cpu", "mem-per-gpu"):
        return None if re.fullmatch(r"\d+[KMGTkmgt]?[Bb]?", value) else "a number with K, M, G or T"
    if one.option == "signal":
        return None if _SIGNAL.fullmatch(value) else "[B:]SIGNAL[@SECONDS], such as B:USR1@120"
    return None


@check(Severity.WARNING, source="https://github.com/SchedMD/slurm/blob/master/CHANGELOG/slurm-26.05.md")
def job_gpus_asked_for_twice(job_script: JobScript) -> Answer:
    """The job requests GPUs with both --gres and --gpus-per-node.

    Why: Since Slurm 26.05 the two options exclude each other, and sbatch rejects the script.
    More: Earlier versions accept both if they agree.

    Fix: Keep one of them.
    More: With --gpus-per-node, Slurm sets SLURM_GPUS_PER_NODE.
    """
    by_gres, by_node = job_script.directive("gres"), job_script.directive("gpus-per-node")
    if by_gres is None or by_node is None or gres_gpus(job_script) is None or is_heterogeneous(job_script):
        return Ok("GPUs are requested with one option")
    return finding(
        job_script,
        by_gres.line,
        f"{shorten(by_gres.written, 30)} and {shorten(by_node.written, 30)} both request GPUs",
        commands(shell("#SBATCH --gpus-per-node={}", by_node.value)),
        [by_node.line],
    )


@check(Severity.WARNING, source=MEASURED)
def job_output_folder_missing(job_script: JobScript) -> Answer:
    """The folder for the job's output does not exist.

    Why: Slurm does not create the folder. If it is missing on the cluster, the job fails as soon as it starts, and
    leaves no output. A mkdir in the script itself comes too late.
    More: The exit code is 0:53. A folder that git ignores, or that a setup script of the repository makes, is only a
    hint: job_output_folder_not_in_repository. One made by the script that submits the job is not reported.

    Fix: Create it before you submit, in the folder you submit from.
    """
    missing = [one for one in job_script.folders if one.exists is False and not one.made]
    if not missing:
        if made := next((one for one in job_script.folders if one.made), None):
            return Skip(f"{shorten(made.path, 60)} may exist where the job is submitted: {made.made}")
        known = [one for one in job_script.folders if one.exists]
        unknown = len(job_script.folders) - len(known)
        if unknown:
            return Skip("whether the output folder exists can only be checked on the cluster")
        return Ok("the output folder exists" if known else "the output goes to the job's working directory")
    return folder_missing(job_script, missing, "for the job's output does not exist here")


@check(Severity.INFO, source=MEASURED)
def job_output_folder_not_in_repository(job_script: JobScript) -> Answer:
    """The folder for the job's output is not part of the repository.

    Why: Slurm does not create the folder. In a fresh clone it is missing, and the job fails as soon as it starts.
    More: The exit code is 0:53, and there is no output.

    Fix: Create it once in each clone, in the folder you submit from.
    """
    made = [one for one in job_script.folders if one.made and not one.by_submitter]
    if not made:
        return Ok("the output needs no folder outside the repository")
    return folder_missing(job_script, made, f"for the job's output is not here ({made[0].made})")
