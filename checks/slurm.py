"""Does the Slurm allocation fit the launcher?"""

from __future__ import annotations

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Slurm, Visible

from ._knowledge import counted, usable_count, whole


@check(Severity.WARNING, source="https://huggingface.co/docs/accelerate/basic_tutorials/launch")
def slurm_starts_several_launchers(slurm: Slurm) -> Answer:
    """The allocation runs several tasks on a node, and the launcher wants one.

    Why: accelerate and torchrun start one rank per GPU themselves. With --ntasks-per-node above 1 every task starts its
    own launcher, and they fight for the GPUs and the port.

    Fix: one task per node, with all its CPUs.
    """
    if slurm.job_id is None:
        return Skip("not in a Slurm allocation")
    # One number for each group of nodes: "1,4(x3)".
    tasks = max(whole(part.partition("(")[0]) or 1 for part in (slurm.tasks_per_node or "1").split(","))
    if tasks == 1:
        return Ok("one task per node")
    return Problem(
        f"{tasks} tasks per node in job {slurm.job_id}",
        f"srun would start {tasks} launchers on a node, each of which starts a rank per GPU.",
        Fix("One task per node; the launcher starts the ranks.", ("#SBATCH --ntasks-per-node=1",)),
        {"tasks_per_node": slurm.tasks_per_node, "job": slurm.job_id},
    )


@check(
    Severity.WARNING, source="https://slurm.schedmd.com/gres.html", because_of=("gpu_lost", "visible_devices_cut_short")
)
def slurm_granted_other_gpus(slurm: Slurm, visible: Visible) -> Answer:
    """Slurm granted another number of GPUs than are visible here.

    Why: CUDA_VISIBLE_DEVICES was changed inside the job, or the allocation has no GPU on this node: the run uses fewer
    GPUs than it pays for, or somebody else's.

    Fix: leave CUDA_VISIBLE_DEVICES as Slurm set it.
    """
    if slurm.job_id is None or slurm.gpus_on_node is None:
        return Skip("not in a Slurm allocation with GPUs")
    seen = usable_count(visible)
    if seen == slurm.gpus_on_node:
        return Ok(f"{counted(seen, 'GPU')} granted and visible")
    return Problem(
        f"Slurm granted {counted(slurm.gpus_on_node, 'GPU')}, {seen} visible",
        "The job sees other GPUs than it was given.",
        Fix("Leave CUDA_VISIBLE_DEVICES as Slurm sets it.", ("echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS",)),
        {"granted": slurm.gpus_on_node, "visible": seen},
    )
