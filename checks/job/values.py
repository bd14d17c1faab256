"""Do the launchers get values that exist in the job: variables, hosts, the container's environment?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.hostlist import expand
from mgpu.snapshot import JobCommand, JobScript, JobVariable

from ._findings import HEAD, MEASURED, SBATCH, finding, needs_whole_script, shorten
from ._launches import option_of, per_node_launches
from ._rendezvous_hosts import LOOPBACK, rendezvous_hosts

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\d{1,3}(?:\.\d{1,3}){3}")
_PLACEHOLDER = re.compile(r"your|xxx|example|placeholder|change|replace|todo|host_?name|none|null", re.IGNORECASE)
_OWN_NAMES = ("$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE}", "${BASH_SOURCE[0]}")
# Set in every shell, and by many sites.
_OF_SHELL = frozenset({"HOSTNAME", "RANDOM", "USER", "UID", "HOME", "PWD", "PATH", "TMPDIR", "SHELL", "LOGNAME"})
_OF_SITE = frozenset({"SCRATCH", "WORK", "PROJECT", "CONDA_PREFIX", "CUDA_HOME", "LD_LIBRARY_PATH", "PYTHONPATH"})
_MANY = 3  # a script with more unset variables expects them from the shell that submits it
# Launcher options that need a value.
_NUMBERS = ("nnodes", "nproc_per_node", "node_rank", "num_machines", "num_processes", "machine_rank")
_NEEDED = (
    *_NUMBERS,
    "master_addr",
    "master_port",
    "rdzv_endpoint",
    "rdzv_id",
    "main_process_ip",
    "main_process_port",
)
_PLAIN_VARIABLE = re.compile(r"\$(?:[A-Z_]+|\{[A-Z_]+\})")
_HAS_DEFAULT = re.compile(r"""\$\{\w+:?-["']?\d+["']?\}""")
# Programs that start a command without a shell that would expand its words.
_EXPAND_NOTHING = frozenset(
    {
        "srun",
        "env",
        "time",
        "timeout",
        "nohup",
        "nice",
        "numactl",
        "taskset",
        "stdbuf",
        "apptainer",
        "singularity",
    }
)
# What sbatch and srun set in a job (man sbatch, man srun: "OUTPUT ENVIRONMENT VARIABLES", Slurm 20.11 to 26.05).
# fmt: off
_OF_SLURM = frozenset({
    "ARRAY_JOB_ID", "ARRAY_TASK_COUNT", "ARRAY_TASK_ID", "ARRAY_TASK_MAX", "ARRAY_TASK_MIN", "ARRAY_TASK_STEP",
    "CLUSTER_NAME", "CONF", "CONTAINER", "CONTAINER_ID", "CPUS_ON_NODE", "CPUS_PER_GPU", "CPUS_PER_TASK",
    "DIST_PLANESIZE", "DISTRIBUTION", "EXPORT_ENV", "GPU_BIND", "GPU_FREQ", "GPUS", "GPUS_ON_NODE", "GPUS_PER_NODE",
    "GPUS_PER_SOCKET", "GPUS_PER_TASK", "GTIDS", "HET_SIZE", "HINT", "JOBID", "LAUNCH_NODE_IPADDR", "LOCALID",
    "MEM_PER_CPU", "MEM_PER_GPU", "MEM_PER_NODE", "MPI_TYPE", "NNODES", "NODE_ALIASES", "NODEID", "NODELIST",
    "NPROCS", "NTASKS", "NTASKS_PER_CORE", "NTASKS_PER_GPU", "NTASKS_PER_NODE", "NTASKS_PER_SOCKET", "OVERCOMMIT",
    "PRIO_PROCESS", "PROCID", "PROFILE", "PTY_PORT", "RESTART_COUNT", "SCRIPT_CONTEXT", "SHARDS_ON_NODE",
    "SRUN_COMM_HOST", "SRUN_COMM_PORT", "SUBMIT_DIR", "SUBMIT_HOST", "TASK_PID", "TASKS_PER_NODE",
    "THREADS_PER_CORE", "TMPDIR", "TOPOLOGY_ADDR", "TOPOLOGY_ADDR_PATTERN", "TRES_PER_TASK", "UMASK",
    "WORKING_CLUSTER", "JOB_ACCOUNT", "JOB_COMMENT", "JOB_CPUS_PER_NODE", "JOB_DEPENDENCY", "JOB_END_TIME",
    "JOB_GID", "JOB_GPUS", "JOB_ID", "JOB_LICENSES", "JOB_NAME", "JOB_NODELIST", "JOB_NUM_NODES", "JOB_PARTITION",
    "JOB_QOS", "JOB_RESERVATION", "JOB_START_TIME", "JOB_UID", "JOB_USER", "STEP_GPUS", "STEP_ID", "STEP_NODELIST",
    "STEP_NUM_NODES", "STEP_NUM_TASKS", "STEP_TASKS_PER_NODE", "STEPID",
})
# fmt: on
# Names that Slurm does not set, and the one that is meant, where the spelling alone does not show it.
_MEANT = {
    "NUM_NODES": "NNODES",
    "NUM_TASKS": "NTASKS",
    "WORLD_SIZE": "NTASKS",
    "RANK": "PROCID",
    "NODE_RANK": "NODEID",
    "LOCAL_RANK": "LOCALID",
    "NUM_GPUS": "GPUS_ON_NODE",
    "NGPUS": "GPUS_ON_NODE",
}


@check(Severity.WARNING, source="https://docs.pytorch.org/docs/stable/elastic/run.html")
@needs_whole_script
def job_head_host_fixed(job_script: JobScript) -> Answer:
    """The rendezvous host is a fixed node, which may not be one of the job's.

    Why: Slurm chooses the nodes. If the fixed one is not among them, no launcher listens there, and all of them wait
    until the rendezvous times out.

    Fix: Use the first node of the job.
    """
    nodelist = job_script.directive("nodelist")
    try:
        chosen = expand(nodelist.value or "") if nodelist else ()
    except ValueError:
        return Skip("the value of --nodelist is not a list of nodes")
    for _, text, line, _ in rendezvous_hosts(job_script):
        if not _HOST.fullmatch(text) or LOOPBACK.fullmatch(text) or _PLACEHOLDER.search(text):
            continue
        if chosen and (text.split(".")[0] in {one.split(".")[0] for one in chosen} or text[0].isdigit()):
            continue
        return finding(
            job_script, line, f"the rendezvous host is always {shorten(text, 40)}, in any job", commands(HEAD)
        )
    return Ok("no rendezvous host is a fixed node outside of --nodelist")


@check(Severity.WARNING, source="https://github.com/NVIDIA/pyxis/wiki/Usage")
@needs_whole_script
def job_container_env_has_value(job_script: JobScript) -> Answer:
    """The option --container-env sets a value, which it cannot.

    Why: pyxis accepts names only: "names of environment variables to override with the host environment". NAME=VALUE
    names no variable, so nothing is set in the container.

    Fix: Export the variable before srun, and pass its name if the image sets it too.
    """
    for step in job_script.commands:
        if step.words[0].rsplit("/", 1)[-1] != "srun":
            continue
        given = option_of(step.words, 1, len(step.words), ("container_env",))
        if given and "=" in given[0]:
            return _value_in_container(job_script, step.line_of(given[1]), given[0])
    directive = job_script.directive("container-env")
    if directive is not None and "=" in (directive.value or ""):
        return _value_in_container(job_script, directive.line, directive.value or "")
    return Ok("--container-env has names only, or is not used")


def _value_in_container(job: JobScript, line: int, text: str) -> Answer:
    name, _, value = text.partition("=")
    name = name.rpartition(",")[2]
    return finding(
        job,
        line,
        f"--container-env={shorten(text, 40)} sets nothing",
        commands(shell("export {:name}={}", name, value), shell("srun --container-env={:name} ...", name)),
    )


@check(Severity.WARNING, source=SBATCH)
@needs_whole_script
def job_variable_never_set(job_script: JobScript) -> Answer:
    """A launcher option uses a variable that neither Slurm nor the script sets.

    Why: It is empty, unless the shell that submits the job exports it. The launcher then uses the next word as the
    option's value, or stops.

    Fix: Set it in the script.
    """
    if not job_script.directives:
        return Skip("it has no #SBATCH line, so another script may set its variables")
    if any(not one.loads_software for one in job_script.unread) or _evaluates_output(job_script):
        return Skip("a part of it that was not read may set variables")
    known = {one.name for one in job_script.sets} | _set_by_default(job_script)
    known |= {name for one in job_script.commands for name in one.env}
    known |= set(
        re.findall(r"\w+", " ".join(one.value or "" for one in job_script.directives if one.option == "export"))
    )
    if len(_unset(job_script, known)) > _MANY:
        return Skip("many of its variables come from the shell that submits it")
    for command in per_node_launches(job_script):
        for name in _NEEDED:
            given = option_of(command.words, 1, command.script or len(command.words), (name,))
            if given is None:
                continue
            empty = [one for one in command.variables if one.word == given[1] and _is_empty(one, given[0], known)]
            if empty:
                return _never_set(job_script, command, empty[0])
    return Ok("the launchers' options use variables that Slurm or the script sets")


@check(Severity.INFO, source="https://docs.pytorch.org/docs/stable/elastic/run.html")
@needs_whole_script
def job_variable_without_default(job_script: JobScript) -> Answer:
    """Some options of a launcher have defaults for a run without the variables of a cluster, but one has none.

    Why: If the variable is not set, the launcher gets an empty string instead of a number, and stops: "invalid int
    value: ''".

    Fix: Give it a default too.
    """
    known = {one.name for one in job_script.sets} | _set_by_default(job_script)
    if job_script.directives:
        return Skip("it has #SBATCH lines: see job_variable_never_set")
    if job_script.unread or _evaluates_output(job_script):
        return Skip("a part of it that was not read may set variables")
    for command in per_node_launches(job_script):
        end = command.script or len(command.words)
        given = [(name, *at) for name in _NUMBERS if (at := option_of(command.words, 1, end, (name,)))]
        if not any(_HAS_DEFAULT.fullmatch(value) for _, value, _ in given):
            continue
        for name, value, word in given:
            variable = value.strip("${}")
            if not _PLAIN_VARIABLE.fullmatch(value) or variable in known or variable.startswith("SLURM_"):
                continue
            return finding(
                job_script,
                command.line_of(word),
                f"--{name} has no default: without ${shorten(variable, 30)}, the launcher stops",
                commands(shell("${{{:name}:-{:number}}}", variable, 0 if "rank" in name else 1)),
            )
    return Ok("no option lacks a default that others have")


@check(Severity.ERROR, source="https://www.gnu.org/software/bash/manual/html_node/Quoting.html")
@needs_whole_script
def job_variable_stays_text(job_script: JobScript) -> Answer:
    """A launcher gets the name of a variable instead of its value: it is quoted, and no shell expands it later.

    Why: srun starts the launcher without a shell, so a dollar sign in single quotes or behind a backslash stays. The
    launcher stops with "invalid int value", or looks for a host of that name.

    Fix: Start a shell on each node, which expands it.
    """
    for command in per_node_launches(job_script):
        if not _EXPAND_NOTHING.issuperset(command.through) or "eval" in command.words:
            continue
        for name in _NEEDED:
            given = option_of(command.words, 1, command.script or len(command.words), (name,))
            if given is None or name == "rdzv_id" or any(one.word == given[1] for one in command.variables):
                continue
            if found := re.search(r"\$(?:(\w+)|\{(\w+)\})", given[0]):
                variable = found[1] or found[2]
                return finding(
                    job_script,
                    command.line_of(given[1]),
                    f"--{name} gets the text {given[0]}: no shell expands it",
                    Fix(
                        "Start a shell on each node, which expands it.",
                        (shell("srun --kill-on-bad-exit=1 bash -c '... --{:name} ${:id} ...'", name, variable),),
                    ),
                )
    return Ok("no launcher gets a variable's name as a value")


def _unset(job: JobScript, known: set[str]) -> set[str]:
    """Return the variables, other than Slurm's, that the script uses in commands without setting them."""
    return {
        variable.name
        for one in job.commands
        for variable in one.variables
        if not variable.name.startswith("SLURM_") and _is_empty(variable, one.words[variable.word], known)
    } - _OF_SITE


def _is_empty(variable: JobVariable, text: str, known: set[str]) -> bool:
    """Whether nothing sets a variable in a text. One without a name is a substitution or an argument."""
    name = variable.name
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in known or variable.unset:
        return False
    if name.startswith("SLURM_"):
        kind = name.removeprefix("SLURM_")
        return kind not in _OF_SLURM and "HET_GROUP" not in kind and not re.search(rf"\{{{name}:?[-=+]", text)
    return name not in _OF_SHELL and re.search(rf"\$(?:{name}\b|\{{{name}\}})", text) is not None


def _set_by_default(job: JobScript) -> set[str]:
    """Return the variables that an expansion sets: ${NAME:=value}."""
    return {name for one in job.commands for word in one.words for name in re.findall(r"\$\{(\w+):?=", word)}


def _evaluates_output(job: JobScript) -> bool:
    """Whether the shell runs the output of a program, which may set variables: eval "$(...)"."""
    return any(one.words[0].startswith("$(") for one in job.commands)


def _never_set(job: JobScript, command: JobCommand, variable: JobVariable) -> Answer:
    kind = variable.name.removeprefix("SLURM_")
    line = variable.line or command.line_of(variable.word)
    if kind == variable.name:
        fix = commands(shell("export {:name}=...", variable.name))
        return finding(job, line, f"nothing in the script sets ${shorten(variable.name, 40)}", fix)
    near = _MEANT.get(kind) or next((one for one in sorted(_OF_SLURM) if _spelled(one) == _spelled(kind)), None)
    meant = (Fix(f"${'SLURM_' + near} exists.", (shell("${:name}", f"SLURM_{near}"),)),) if near else ()
    return finding(
        job, line, f"Slurm does not set ${shorten(variable.name, 40)}", meant or Fix("Set it in the script.")
    )


def _spelled(kind: str) -> str:
    """Return a name without what is often mistaken: underscores, JOB_ and the plural."""
    return re.sub(r"^JOB_|_|S(?=_|$)", "", kind)


@check(Severity.WARNING, source=MEASURED)
@needs_whole_script
def job_own_folder_is_spool(job_script: JobScript) -> Answer:
    """The job script looks for files beside itself, but Slurm runs a copy of it from another folder.

    Why: $0 and BASH_SOURCE name the copy in the spool folder of the node (.../job123/slurm_script), with nothing beside
    it.
    More: The job starts in the folder in which it was submitted. A script that srun or bash starts has its own name.

    Fix: Use the folder in which the job is submitted.
    """
    if not job_script.directives:
        return Skip("it has no #SBATCH line, so it may be started with bash")
    own = [one for one in job_script.commands if _uses_own_name(one)]
    here = [one for one in own if job_script.place(one.line)[0] == job_script.path]
    if not here:
        return Ok("no path depends on the script's own name")
    if any(one.words[0] == "scontrol" and "job" in one.words for one in job_script.commands):
        return Skip("it queries scontrol, which reports the path of the script")
    used = [one for one in here if not one.unsure and _is_used(job_script, one.line)]
    if not used:
        return Ok("what depends on the script's own name is not used to start anything")
    return finding(
        job_script,
        used[0].line,
        "the script's own folder is Slurm's spool folder in the job",
        commands('cd "$SLURM_SUBMIT_DIR"'),
        [one.line for one in used],
    )


def _uses_own_name(command: JobCommand) -> bool:
    """Whether it is `dirname $0`, also with BASH_SOURCE, in a substitution."""
    return command.inner and command.words[0] in ("dirname", "realpath", "readlink") and command.words[-1] in _OWN_NAMES


def _is_used(job: JobScript, line: int) -> bool:
    """Whether a launcher is started with it, or the line is not an assignment (cd, source, a command)."""
    sets = [one for one in job.sets if one.line == line]
    if not sets:
        return True
    return any(variable.line == line for one in job.launches for variable in one.variables)
