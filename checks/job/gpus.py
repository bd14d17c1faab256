"""Do the tasks see the GPUs and CPUs that the job was given?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobScript

from ._amounts import gres_gpus, of_parts, tasks_per_node
from ._findings import GRES, finding, short, whole
from ._launches import of_step, opaque, per_node_launches, step_of

# Variables that Slurm sets only where the option was given (man sbatch, "OUTPUT ENVIRONMENT VARIABLES").
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
_SHARED = Fix("From Slurm 23.11 on the tasks may share them.", ("#SBATCH --gres-flags=allow-task-sharing",))
_SAFE = re.compile(r"\$\{(\w+)(?:\[[^\]]*\])?:?[-=+]")


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl/issues/1948")
@whole
def job_gpus_bound_to_tasks(job_script: JobScript) -> Answer:
    """Each task of a node sees a GPU of its own only.

    Why: A script that takes cuda:LOCAL_RANK stops with "invalid device ordinal"; NCCL goes a longer way.
    More: --gpus-per-task (and --gpu-bind) shuts the other GPUs away: each rank has one, as number 0, and NCCL cannot
    copy directly between the GPUs of two tasks.

    Fix: Ask for the GPUs of the node.
    More: And bind none.
    """
    flags = job_script.directive("gres-flags")
    if flags is not None and "allow-task-sharing" in (flags.value or ""):
        return Ok("the GPUs are not bound to tasks")
    directive = job_script.directive("gpus-per-task", "gpu-bind")
    amount = job_script.directive("ntasks-per-node", "ntasks")
    asked = directive is not None and amount is not None and amount.value not in ("1", None)
    many = asked or (tasks_per_node(job_script) or 0) > 1
    for command in job_script.commands:
        if command.launcher != "python" or command.step is None:
            continue
        step = step_of(job_script, command)
        binding = of_step(step, "gpu-bind")
        given = of_step(step, "gpus-per-task") or binding
        text = given or (directive.value if directive else None)
        if text is None or text.startswith("none") or binding == "none":
            continue
        in_step = of_step(step, "ntasks-per-node") or of_step(step, "ntasks")
        if (in_step is None and not many) or in_step == "1":
            continue
        line, written = command.line, f"srun with {short(text, 30)}"
        if directive and not given:
            line, written = directive.line, directive.written
        return finding(
            job_script,
            line,
            f"{short(written, 40)}: every task sees one GPU, as number 0",
            (commands(shell("#SBATCH --gpus-per-node={}", _of_node(job_script))), _SHARED),
        )
    return Ok("the GPUs are not bound to tasks")


def _of_node(job: JobScript) -> str:
    directive = job.directive("ntasks-per-node")
    return directive.value if directive and directive.value else "N"


@check(Severity.INFO, source="https://github.com/reframe-hpc/reframe/issues/2655")
@whole
def job_cpus_not_passed_on(job_script: JobScript) -> Answer:
    """srun is not told --cpus-per-task again.

    Why: From Slurm 22.05 to 23.02 each task then has one core.
    More: srun takes no --cpus-per-task from sbatch there: all ranks and loader workers of a node share the core. Other
    versions take it, so that the script is fast on one cluster only.

    Fix: Repeat it; that is right in all versions.
    """
    asked = job_script.directive("cpus-per-task")
    if of_parts(job_script):
        return Skip("the job has several parts, each with options of its own")
    if asked is None:
        return Ok("no --cpus-per-task is asked for")
    if any(one.name in ("SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK") and one.exported for one in job_script.sets):
        return Ok("SRUN_CPUS_PER_TASK is exported")
    for command in job_script.launches:
        step = step_of(job_script, command)
        if step is None or of_step(step, "cpus-per-task") is not None or "SRUN_CPUS_PER_TASK" in step.env:
            continue
        if opaque(step):
            continue
        return finding(
            job_script,
            step.line,
            f"srun is not told --cpus-per-task={short(asked.value or '', 20)} again",
            commands("srun --cpus-per-task=$SLURM_CPUS_PER_TASK ..."),
            [asked.line],
        )
    return Ok("srun is told, or starts no launcher")


@check(Severity.ERROR, source="https://github.com/awslabs/awsome-distributed-ai/issues/71")
@whole
def job_slurm_variable_empty(job_script: JobScript) -> Answer:
    """The script uses a variable that Slurm sets only for an option which is not given.

    Why: Slurm sets it only where that option is given.
    More: SLURM_GPUS_PER_NODE exists with --gpus-per-node alone, and is empty with --gres; the others likewise. The
    launcher gets an option without a value, or the sum comes to 0.

    Fix: Use one that is always there, or give the option.
    """
    if not any(job_script.directive(name) for name in ("nodes", "ntasks", "gres", "gpus-per-node", "ntasks-per-node")):
        return Skip("what the job asks for is not said in the script")
    if of_parts(job_script):
        return Skip("the job has several parts, each with options of its own")
    given_elsewhere = {one.name for one in job_script.sets if not one.value.startswith("$")}
    for name, options in _ONLY_IF.items():
        if name in given_elsewhere or any(job_script.directive(option) for option in options):
            continue
        asked = gres_gpus(job_script) is not None or job_script.directive("gpus", "gpus-per-node", "gpus-per-task")
        if "GPUS" in name and not asked:
            continue  # a site may give whole nodes without being asked for GPUs
        line = _used(job_script, name, options)
        if line:
            better = _BETTER.get(name)
            ways = (Fix(f"${better} is always there.", (shell("${:name}", better),)),) if better else ()
            return finding(
                job_script,
                line,
                f"${name} is empty: the job does not ask for --{options[0]}",
                (
                    *ways,
                    Fix(
                        "Give the option." if not better else "Or give the option.",
                        (shell("#SBATCH --{:id}={:id}", options[0], _example(job_script, options[0])),),
                    ),
                ),
            )
    return Ok("the variables of Slurm that it uses are set")


def _example(job: JobScript, option: str) -> str:
    gpus = gres_gpus(job)
    return str(gpus) if option == "gpus-per-node" and gpus else "1" if option == "ntasks-per-node" else "N"


def _used(job: JobScript, name: str, options: tuple[str, ...]) -> int:
    """The line of the first use of a variable that does not provide for its absence; where it sets a number of threads
    only, an empty one does no harm."""
    used = re.compile(rf"\$\{{?{name}\b")

    def bare(text: str, names: list[str]) -> bool:
        return bool(used.search(text)) and name not in _SAFE.findall(text) and any(name in known for known in names)

    for one in job.commands:
        if one.words[0].rsplit("/", 1)[-1] in ("echo", "printf", "[", "test"):
            continue
        if any(of_step(step_of(job, one), option) for option in options):
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
@whole
def job_gpu_type_in_a_number(job_script: JobScript) -> Answer:
    """SLURM_GPUS_PER_NODE is used as a number, and holds a type.

    Why: The type stands in it, as the directive has it.
    More: With --gpus-per-node=a100:4 the variable reads "a100:4": a sum with it stops the script, and a launcher
    refuses it.

    Fix: Take the one that is always a number.
    More: SLURM_GPUS_ON_NODE is.
    """
    for name, option in (("SLURM_GPUS_PER_NODE", "gpus-per-node"), ("SLURM_GPUS", "gpus")):
        asked = job_script.directive(option)
        if asked is None or ":" not in (asked.value or ""):
            continue
        for one in per_node_launches(job_script):
            for place, word in enumerate(one.words):
                used = re.search(rf"\$\{{?{name}\b\}}?", word)
                if used and not re.search(rf"\$\{{{name}[#%:/]", word) and "awk" not in word and "sed" not in word:
                    return finding(
                        job_script,
                        one.lines[place] if place < len(one.lines) else one.line,
                        f"${name} is {short(asked.value or '', 20)}, not a number",
                        commands("$SLURM_GPUS_ON_NODE"),
                        [asked.line],
                    )
    return Ok("no type of GPU stands where a number belongs")
