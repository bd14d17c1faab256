"""Does the Slurm allocation match the launcher and the config?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Config, Driver, Gpu, Host, Slurm, System, Visible
from mgpu.text import counted

from ._gpus import usable_count
from ._wording import gpu_list, parse_digits

_GRES = "https://slurm.schedmd.com/gres.html"
_SRUN = "https://slurm.schedmd.com/srun.html"
# Enough for a smoke test with a cold start of torch on a network file system, and some training after it.
_MINUTES = 10


@check(Severity.ERROR, source="https://slurm.schedmd.com/salloc.html")
def slurm_shell_outside_allocation(slurm: Slurm, host: Host) -> Answer:
    """This shell belongs to a Slurm job but does not run on one of its nodes.

    Why: salloc's shell runs on the machine where salloc was started. All findings here are about that machine.
    More: A launcher would also start its ranks on that machine, not on the nodes with the granted GPUs.

    Fix: run it on the node.
    """
    if slurm.job_id is None:
        return Skip("not in a Slurm allocation")
    if slurm.on_allocated_node is None:
        return Skip("could not determine whether this node belongs to the job")
    if slurm.on_allocated_node:
        return Ok(f"{host.name} belongs to job {slurm.job_id}")
    return Problem(
        f"{host.name} is not a node of job {slurm.job_id}",
        fix=Fix(commands=("srun --ntasks=1 mgpu doctor", "srun --ntasks=1 --pty bash")),
        evidence={"host": host.name, "job": slurm.job_id},
    )


@check(Severity.WARNING, source="https://huggingface.co/docs/accelerate/basic_tutorials/launch")
def slurm_starts_several_launchers(slurm: Slurm) -> Answer:
    """The allocation has several tasks per node, but the launcher needs one.

    Why: accelerate and torchrun start one rank per GPU themselves. With --ntasks-per-node above 1 every task starts its
    own launcher, and they compete for the GPUs and the port.

    Fix: use one task per node. The launcher starts the ranks.
    """
    if slurm.job_id is None:
        return Skip("not in a Slurm allocation")
    tasks = _most_tasks(slurm)
    if tasks == 1:
        return Ok("one task per node")
    return Problem(
        f"{tasks} tasks per node in job {slurm.job_id}",
        f"srun would start {tasks} launchers per node, and each starts one rank per GPU.",
        Fix(commands=("#SBATCH --ntasks-per-node=1",)),
        {"tasks_per_node": slurm.tasks_per_node, "job": slurm.job_id},
    )


def _most_tasks(slurm: Slurm) -> int:
    """Return the highest number of tasks on a node; "1,4(x3)" has one number per group of nodes."""
    return max(parse_digits(part.partition("(")[0]) or 1 for part in (slurm.tasks_per_node or "1").split(","))


@check(
    Severity.WARNING, source=_GRES, because_of=("gpu_lost", "visible_devices_cut_short", "slurm_task_sees_part_of_gpus")
)
def slurm_granted_other_gpus(slurm: Slurm, visible: Visible, gpus: tuple[Gpu, ...]) -> Answer:
    """The visible GPUs are not the ones that Slurm granted.

    Why: the run uses fewer GPUs than were granted, or another job's GPUs.
    More: CUDA_VISIBLE_DEVICES was changed inside the job, or the allocation has no GPU on this node.

    Fix: do not change CUDA_VISIBLE_DEVICES inside the job.
    """
    if slurm.job_id is None or slurm.gpus_on_node is None:
        return Skip("not in a Slurm allocation with GPUs")
    if slurm.on_allocated_node is False:
        return Skip("not on a node of the allocation")
    seen = usable_count(visible)
    keep = Fix(commands=("echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS",))
    if seen != slurm.gpus_on_node:
        return Problem(
            f"Slurm granted {counted(slurm.gpus_on_node, 'GPU')}, {seen} visible",
            fix=keep,
            evidence={"granted": slurm.gpus_on_node, "visible": seen},
        )
    chosen, granted = _parse_indices(visible.value), _parse_indices(slurm.job_gpus)
    # If Slurm restricts access to the other GPUs, CUDA numbers the remaining ones from 0.
    open_to_all = sum(gpu.permitted for gpu in gpus) > slurm.gpus_on_node
    if open_to_all and chosen is not None and granted is not None and chosen != granted:
        return Problem(
            f"Slurm granted {gpu_list(sorted(granted))}, CUDA_VISIBLE_DEVICES={visible.value}",
            "The run would use GPUs that may belong to another job.",
            keep,
            {"granted": slurm.job_gpus, "visible": visible.value},
        )
    return Ok(f"{counted(seen, 'GPU')} granted and visible")


def _parse_indices(listing: str | None) -> set[int] | None:
    """Return the numbers in a list such as "0,2", or None if it contains anything else."""
    numbers = [parse_digits(part) for part in (listing or "").split(",")]
    return {number for number in numbers if number is not None} if None not in numbers else None


@check(
    Severity.WARNING,
    source="https://github.com/Lightning-AI/pytorch-lightning/issues/13605",
    because_of=("slurm_starts_several_launchers",),
)
def slurm_task_sees_part_of_gpus(slurm: Slurm, visible: Visible) -> Answer:
    """Each task of this step sees only some of the GPUs granted on the node.

    Why: Slurm binds each task to its own GPUs, and ranks of different tasks cannot open each other's.
    More: --gpus-per-task and --gpu-bind hide the other GPUs from a task. A launcher in it starts too few ranks, code
    that uses cuda:LOCAL_RANK fails with "invalid device ordinal", and NCCL cannot access the other tasks' GPUs
    directly.

    Fix: request GPUs per node, with one task and no binding. The launcher starts the ranks.
    """
    if slurm.job_id is None or slurm.step_id is None or slurm.gpus_on_node is None:
        return Skip("not in a Slurm step with GPUs")
    seen = usable_count(visible)
    bound = slurm.gpus_per_task or slurm.gpu_bind
    if not bound or (slurm.gpu_bind or "").endswith("none") or _most_tasks(slurm) == 1:
        return Ok("GPUs are not bound to tasks")
    if seen >= slurm.gpus_on_node or not seen:
        return Ok(f"the task sees {seen} of {counted(slurm.gpus_on_node, 'GPU')}")
    return Problem(
        f"this task sees {seen} of the step's {slurm.gpus_on_node} GPUs",
        fix=Fix(
            commands=(
                "#SBATCH --ntasks-per-node=1",
                shell("#SBATCH --gpus-per-node={:number}", slurm.gpus_on_node),
                "srun --gpu-bind=none ...",
            )
        ),
        evidence={
            "visible": seen,
            "on_node": slurm.gpus_on_node,
            "per_task": slurm.gpus_per_task,
            "bind": slurm.gpu_bind,
        },
    )


@check(Severity.ERROR, source=_GRES)
def slurm_granted_no_gpus(slurm: Slurm, visible: Visible, gpus: tuple[Gpu, ...], driver: Driver) -> Answer:
    """The job requested no GPUs, so it may not use the ones on this node.

    Why: without a request for GPUs, Slurm denies the job access to them.
    More: Without --gpus or --gres a job gets only CPUs and memory, even in a GPU partition. PyTorch sees no GPU and
    trains on the CPU.

    Fix: request them.
    """
    if slurm.job_id is None or slurm.on_allocated_node is False:
        return Skip("not on a node of a Slurm allocation")
    if slurm.gpus_on_node is not None or slurm.job_gpus is not None:
        return Ok(f"{counted(slurm.gpus_on_node or 0, 'GPU')} granted on this node")
    if not driver.any_gpu or not gpus:
        return Skip("no GPU on this node")
    shut_away = not any(gpu.permitted for gpu in gpus) or visible.value == "NoDevFiles"
    if not shut_away or usable_count(visible):
        return Skip("no GPUs granted to the job (this cluster may not manage GPUs)")
    return Problem(
        f"job {slurm.job_id} was granted none of the {counted(len(gpus), 'GPU')} on this node",
        fix=Fix(
            commands=(
                shell("#SBATCH --gpus-per-node={:number}", len(gpus)),
                shell("srun --gpus-per-node={:number} ...", len(gpus)),
            )
        ),
        evidence={"job": slurm.job_id, "gpus": len(gpus)},
    )


@check(
    Severity.WARNING,
    source="https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/performance.md (srun)",
)
def slurm_cpus_not_passed_on(slurm: Slurm, system: System) -> Answer:
    """The step lacks the job's --cpus-per-task because srun did not apply it.

    Why: this srun does not inherit the option from sbatch.
    More: From Slurm 22.05 to 23.02 srun ignores sbatch's value unless it is repeated. SLURM_CPUS_PER_TASK still has the
    requested number, but the task is pinned to one or two cores. All ranks and loader workers share them, and the GPUs
    wait.

    Fix: repeat it for srun.
    """
    if slurm.job_id is None or slurm.step_id is None or not slurm.cpus_per_task:
        return Skip("not in a Slurm step with --cpus-per-task")
    if system.cpus_allowed >= slurm.cpus_per_task:
        return Ok(f"{system.cpus_allowed} of {counted(slurm.cpus_per_task, 'CPU')} per task")
    return Problem(
        f"{counted(system.cpus_allowed, 'CPU')} in this step, the job requested {slurm.cpus_per_task} per task",
        fix=Fix(
            commands=("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK", "srun --cpus-per-task=$SLURM_CPUS_PER_TASK ...")
        ),
        evidence={"allowed": system.cpus_allowed, "cpus_per_task": slurm.cpus_per_task},
    )


@check(Severity.ERROR, source=_SRUN)
def slurm_has_fewer_nodes_than_config(slurm: Slurm, config: Config) -> Answer:
    """The config uses more nodes than the Slurm job has.

    Why: the rendezvous waits for nodes that are not in the job.

    Fix: request as many nodes as the config uses.
    """
    if slurm.job_id is None or slurm.nodes is None:
        return Skip("not in a Slurm allocation")
    if config.num_machines <= slurm.nodes:
        return Ok(f"{counted(slurm.nodes, 'node')} in the job, num_machines: {config.num_machines}")
    return Problem(
        f"num_machines is {config.num_machines}, job {slurm.job_id} has {counted(slurm.nodes, 'node')}",
        fix=Fix(commands=(shell("#SBATCH --nodes={:number}", config.num_machines),)),
        evidence={"num_machines": config.num_machines, "nodes": slurm.nodes},
    )


@check(Severity.WARNING, source=_SRUN)
def slurm_nodes_left_idle(slurm: Slurm, config: Config) -> Answer:
    """The Slurm job has more nodes than the config uses.

    Why: the extra nodes stay idle, or each trains its own model.
    More: The launcher starts ranks on num_machines nodes.

    Fix: request as many nodes as the config uses.
    """
    if slurm.job_id is None or slurm.nodes is None:
        return Skip("not in a Slurm allocation")
    if config.num_machines >= slurm.nodes:
        return Ok(f"num_machines: {config.num_machines}, {counted(slurm.nodes, 'node')} in the job")
    return Problem(
        f"job {slurm.job_id} has {slurm.nodes} nodes, num_machines is {config.num_machines}",
        fix=(
            Fix(commands=(shell("#SBATCH --nodes={:number}", config.num_machines),)),
            Fix(f"Or set num_machines: {slurm.nodes} in the config, and num_processes for all nodes."),
        ),
        evidence={"num_machines": config.num_machines, "nodes": slurm.nodes},
    )


@check(Severity.INFO, source="https://slurm.schedmd.com/sbatch.html")
def slurm_time_almost_up(slurm: Slurm) -> Answer:
    """The Slurm job is about to reach its time limit.

    Why: Slurm kills all processes of the job at its time limit.
    More: A smoke test or launch started now is cut off, and the remaining ranks report a lost connection.

    Fix: request more time.
    """
    if slurm.job_id is None or slurm.seconds_left is None:
        return Skip("not in a Slurm allocation, or its end time is unknown")
    minutes = max(0, int(slurm.seconds_left // 60))
    if slurm.seconds_left >= _MINUTES * 60:
        return Ok(f"{minutes} minutes left")
    return Problem(
        f"{counted(minutes, 'minute')} left in job {slurm.job_id}",
        fix=Fix(commands=("squeue --job $SLURM_JOB_ID --Format=TimeLeft,EndTime", "#SBATCH --time=12:00:00")),
        evidence={"seconds_left": int(slurm.seconds_left), "job": slurm.job_id},
    )
