"""Do the tasks see the GPUs and CPUs that were allocated to the job?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobCommand, JobScript

from ._amounts import gres_gpus, is_heterogeneous, tasks_per_node
from ._findings import GRES, finding, needs_whole_script, shorten
from ._launches import has_hidden_options, per_node_launches, srun_option, srun_step

# Variables that Slurm sets only if the option was given (man sbatch, "OUTPUT ENVIRONMENT VARIABLES").
_ONLY_IF = {
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS_PER_TASK": ("gpus-per-task",),
    "SLURM_GPUS": ("gpus",),
    "SLURM_CPUS_PER_TASK": ("cpus-per-task",),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
    "SLURM_CPUS_PER_GPU": ("cpus-per-gpu",),
}
# fmt: off
_BETTER = {
    "SLURM_GPUS_PER_NODE": "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_TASK": "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS": "SLURM_GPUS_ON_NODE", "SLURM_CPUS_PER_GPU": "SLURM_CPUS_ON_NODE",
}
# fmt: on
_SHARED = Fix("Or let the tasks share them (Slurm 23.11 or newer).", ("#SBATCH --gres-flags=allow-task-sharing",))
_SAFE = re.compile(r"\$\{(\w+)(?:\[[^\]]*\])?:?[-=+]")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1948")
@needs_whole_script
def job_gpus_bound_to_tasks(job_script: JobScript) -> Answer:
    """Each task on a node sees only its own GPU.

    Why: A script that uses cuda:LOCAL_RANK stops with "invalid device ordinal", and NCCL uses a slower path.
    More: With --gpus-per-task (and --gpu-bind), each rank sees only one GPU, numbered 0, and NCCL cannot copy directly
    between the GPUs of two tasks.

    Fix: Request the GPUs per node.
    More: Do not bind them to tasks.
    """
    flags = job_script.directive("gres-flags")
    if flags is not None and "allow-task-sharing" in (flags.value or ""):
        return Ok("the GPUs are not bound to tasks")
    directive = job_script.directive("gpus-per-task", "gpu-bind")
    amount = job_script.directive("ntasks-per-node", "ntasks")
    several = directive is not None and amount is not None and amount.value not in ("1", None)
    many = several or (tasks_per_node(job_script) or 0) > 1
    for command in job_script.commands:
        if command.launcher != "python" or command.step is None or "first GPU" in (command.uses or ()):
            continue
        step = srun_step(job_script, command)
        binding = srun_option(step, "gpu-bind")
        given = srun_option(step, "gpus-per-task") or binding
        text = given or (directive.value if directive else None)
        if text is None or text.startswith("none") or binding == "none":
            continue
        in_step = srun_option(step, "ntasks-per-node") or srun_option(step, "ntasks")
        if (in_step is None and not many) or in_step == "1":
            continue
        line, written = command.line, f"srun {_binding_option(step)}={shorten(text, 20)}"
        if directive and not given:
            line, written = directive.line, directive.written
        return finding(
            job_script,
            line,
            f"{shorten(written, 40)}: every task sees one GPU, numbered 0",
            (_without_binding(job_script, in_srun=bool(given)), _SHARED),
        )
    return Ok("the GPUs are not bound to tasks")


def _binding_option(step: JobCommand | None) -> str:
    return "--gpus-per-task" if srun_option(step, "gpus-per-task") else "--gpu-bind"


def _without_binding(job: JobScript, *, in_srun: bool) -> Fix:
    """Return the fix where the GPUs are bound: in srun's options, or in the directive."""
    per_node = job.directive("gpus-per-node", "gres") is not None
    if in_srun and per_node:
        return Fix("Remove --gpus-per-task and --gpu-bind from srun: the job already requests its GPUs per node.")
    each = shell("#SBATCH --gpus-per-node={}", _gpus_per_node_value(job))
    if in_srun:
        return Fix("Remove --gpus-per-task and --gpu-bind from srun, and request the GPUs per node.", (each,))
    if per_node:
        return Fix("Remove this line: the job already requests its GPUs per node.")
    return commands(each)


def _gpus_per_node_value(job: JobScript) -> str:
    directive = job.directive("ntasks-per-node")
    return directive.value if directive and directive.value else "N"


@check(Severity.INFO, source="https://github.com/reframe-hpc/reframe/issues/2655")
@needs_whole_script
def job_cpus_not_passed_on(job_script: JobScript) -> Answer:
    """The srun command does not repeat --cpus-per-task.

    Why: In Slurm 22.05 to 23.02, each task then has only one core.
    More: In those versions, srun does not inherit --cpus-per-task from sbatch: all ranks and DataLoader workers of a
    node share one core. Other versions inherit it, so the script is fast on some clusters only.

    Fix: Repeat it, which works in all versions.
    """
    directive = job_script.directive("cpus-per-task")
    if is_heterogeneous(job_script):
        return Skip("the job is heterogeneous: each component has its own options")
    if directive is None:
        return Ok("--cpus-per-task is not set")
    if any(one.name in ("SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK") and one.exported for one in job_script.sets):
        return Ok("SRUN_CPUS_PER_TASK is exported")
    for command in job_script.launches:
        step = srun_step(job_script, command)
        if step is None or srun_option(step, "cpus-per-task") is not None or "SRUN_CPUS_PER_TASK" in step.env:
            continue
        if has_hidden_options(step):
            continue
        return finding(
            job_script,
            step.line,
            f"srun does not repeat --cpus-per-task={shorten(directive.value or '', 20)}",
            commands("srun --cpus-per-task=$SLURM_CPUS_PER_TASK ..."),
            [directive.line],
        )
    return Ok("srun repeats it, or starts no launcher")


@check(Severity.ERROR, source="https://github.com/awslabs/awsome-distributed-ai/issues/71")
@needs_whole_script
def job_slurm_variable_empty(job_script: JobScript) -> Answer:
    """The script uses a variable that Slurm sets only with an option that is not given.

    Why: Slurm sets the variable only if that option is given.
    More: SLURM_GPUS_PER_NODE is set only with --gpus-per-node, and is empty with --gres. Similar variables behave the
    same. The launcher gets an option without a value, or the expression evaluates to 0.

    Fix: Use a variable that is always set, or give the option.
    """
    if not any(job_script.directive(name) for name in ("nodes", "ntasks", "gres", "gpus-per-node", "ntasks-per-node")):
        return Skip("the script does not request resources itself")
    if is_heterogeneous(job_script):
        return Skip("the job is heterogeneous: each component has its own options")
    given_elsewhere = {one.name for one in job_script.sets if not one.value.startswith("$")}
    for name, options in _ONLY_IF.items():
        if name in given_elsewhere or any(job_script.directive(option) for option in options):
            continue
        requested = gres_gpus(job_script) is not None or job_script.directive("gpus", "gpus-per-node", "gpus-per-task")
        if "GPUS" in name and not requested:
            continue  # some sites allocate whole nodes without a GPU request
        line = _first_use(job_script, name, options)
        if line:
            better = _BETTER.get(name)
            ways = (Fix(f"${better} is always set.", (shell("${:name}", better),)),) if better else ()
            return finding(
                job_script,
                line,
                f"${name} is empty: the job does not use --{options[0]}",
                (
                    *ways,
                    Fix(
                        "Give the option." if not better else "Or give the option.",
                        (shell("#SBATCH --{:id}={:id}", options[0], _example(job_script, options[0])),),
                    ),
                ),
            )
    return Ok("all Slurm variables it uses are set")


def _example(job: JobScript, option: str) -> str:
    gpus = gres_gpus(job)
    return str(gpus) if option == "gpus-per-node" and gpus else "1" if option == "ntasks-per-node" else "N"


def _first_use(job: JobScript, name: str, options: tuple[str, ...]) -> int:
    """Return the line of the first use of a variable without a default value; 0 if there is none.

    Setting a number of threads does not count: an empty value does no harm there.
    """
    used = re.compile(rf"\$\{{?{name}\b")

    def bare(text: str, names: list[str]) -> bool:
        return bool(used.search(text)) and name not in _SAFE.findall(text) and any(name in known for known in names)

    for one in job.commands:
        if one.words[0].rsplit("/", 1)[-1] in ("echo", "printf", "[", "test"):
            continue
        if any(srun_option(srun_step(job, one), option) for option in options):
            continue  # srun sets it for its step
        for place, word in enumerate(one.words):
            if bare(word, [variable.name for variable in one.variables if variable.word == place]):
                return one.lines[place] if place < len(one.lines) else one.line
    return next(
        (
            one.line
            for one in job.sets
            if not one.on_node
            and not one.name.endswith("_NUM_THREADS")
            and bare(one.value, [v.name for v in one.variables])
        ),
        0,
    )


@check(Severity.ERROR, source=GRES)
@needs_whole_script
def job_gpu_type_in_a_number(job_script: JobScript) -> Answer:
    """SLURM_GPUS_PER_NODE is used as a number, but contains a GPU type.

    Why: It has the value of the directive, including the type.
    More: With --gpus-per-node=a100:4 the variable is "a100:4". Arithmetic with it stops the script, and launchers
    reject it.

    Fix: Use a variable that is always a number.
    More: SLURM_GPUS_ON_NODE is.
    """
    for name, option in (("SLURM_GPUS_PER_NODE", "gpus-per-node"), ("SLURM_GPUS", "gpus")):
        directive = job_script.directive(option)
        if directive is None or ":" not in (directive.value or ""):
            continue
        for one in per_node_launches(job_script):
            for place, word in enumerate(one.words):
                used = re.search(rf"\$\{{?{name}\b\}}?", word)
                if used and not re.search(rf"\$\{{{name}[#%:/]", word) and "awk" not in word and "sed" not in word:
                    return finding(
                        job_script,
                        one.lines[place] if place < len(one.lines) else one.line,
                        f"${name} is {shorten(directive.value or '', 20)}, not a number",
                        commands("$SLURM_GPUS_ON_NODE"),
                        [directive.line],
                    )
    return Ok("no GPU type is used as a number")
