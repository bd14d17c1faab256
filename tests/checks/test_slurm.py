"""checks/slurm.py"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.facts import (
    Case,
    config,
    fails,
    gpu,
    gpus,
    informs,
    no_driver,
    seen,
    skips,
    slurm,
    system,
    table,
    warns,
    well,
)

OUTSIDE = slurm(
    job_id=None, nodes=None, node_rank=None, tasks_per_node=None, gpus_on_node=None, on_allocated_node=None,
    step_id=None, job_gpus=None, cpus_per_task=None, cpus_on_node=None, local_id=None, seconds_left=None,
)  # fmt: skip
LOGIN = slurm(on_allocated_node=False, step_id=None)
UNGRANTED: dict[str, Any] = {"gpus_on_node": None, "job_gpus": None}
TWO = config("""\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 2
num_processes: 8
""")
CASES = (
    # slurm_starts_several_launchers
    warns("slurm_starts_several_launchers", "4 tasks per node in job 4242", "#SBATCH --ntasks-per-node=1",
        slurm=slurm(tasks_per_node="4")),
    warns("slurm_starts_several_launchers", "8 tasks per node", "--ntasks-per-node=1",
        slurm=slurm(tasks_per_node="8(x2)")),
    warns("slurm_starts_several_launchers", "2 tasks per node", "--ntasks-per-node=1",
        slurm=slurm(tasks_per_node="2,1")),
    warns("slurm_starts_several_launchers", "4 tasks per node", "--ntasks-per-node=1",
        slurm=slurm(tasks_per_node="1,4(x3)")),
    well("slurm_starts_several_launchers", "one task per node"),
    well("slurm_starts_several_launchers", "one task per node", slurm=slurm(tasks_per_node="1(x4)")),
    well("slurm_starts_several_launchers", "one task per node", slurm=slurm(tasks_per_node="9" * 5000)),
    well("slurm_starts_several_launchers", "one task per node", slurm=slurm(tasks_per_node=None)),
    well("slurm_starts_several_launchers", "one task per node",
        slurm=slurm(tasks_per_node="²")),
    skips("slurm_starts_several_launchers", "not in a Slurm allocation", slurm=OUTSIDE),
    # slurm_shell_outside_allocation
    fails("slurm_shell_outside_allocation", "node7 is not a node of job 4242", "srun --ntasks=1 mgpu doctor",
        slurm=LOGIN),
    well("slurm_shell_outside_allocation", "node7 belongs to job 4242"),
    skips("slurm_shell_outside_allocation", "not in a Slurm allocation", slurm=OUTSIDE),
    skips("slurm_shell_outside_allocation", "could not determine whether this node belongs to the job",
        slurm=slurm(on_allocated_node=None)),
    # slurm_granted_other_gpus
    warns("slurm_granted_other_gpus", "Slurm granted 4 GPUs, 2 visible", "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS",
        visible=seen(0, 1, value="0,1")),
    warns("slurm_granted_other_gpus", "Slurm granted 1 GPU, 4 visible", "echo", slurm=slurm(gpus_on_node=1)),
    warns("slurm_granted_other_gpus", "Slurm granted GPUs 2 and 3, CUDA_VISIBLE_DEVICES=0,1", "echo",
        slurm=slurm(gpus_on_node=2, job_gpus="2,3"), visible=seen(0, 1, value="0,1")),
    well("slurm_granted_other_gpus", "4 GPUs granted and visible"),
    well("slurm_granted_other_gpus", "2 GPUs granted and visible",
        slurm=slurm(gpus_on_node=2, job_gpus="2,3"), visible=seen(3, 2, value="3, 2")),
    well("slurm_granted_other_gpus", "2 GPUs granted and visible",  # Slurm shuts the others away
        slurm=slurm(gpus_on_node=2, job_gpus="2,3"), visible=seen(2, 3, value="0,1"),
        gpus=gpus(4, gpu(0, permitted=False), gpu(1, permitted=False))),
    well("slurm_granted_other_gpus", "2 GPUs granted and visible",
        slurm=slurm(gpus_on_node=2, job_gpus="2,3"), visible=seen(0, 1, value="GPU-0,GPU-1")),
    well("slurm_granted_other_gpus", "2 GPUs granted and visible",
        slurm=slurm(gpus_on_node=2, job_gpus=None), visible=seen(0, 1, value="0,1")),
    well("slurm_granted_other_gpus", "1 GPU granted",
        slurm=slurm(gpus_on_node=1), visible=seen(value="MIG-1", mig="MIG-1")),
    skips("slurm_granted_other_gpus", "not in a Slurm allocation", slurm=OUTSIDE),
    skips("slurm_granted_other_gpus", "not in a Slurm allocation with GPUs", slurm=slurm(gpus_on_node=None)),
    skips("slurm_granted_other_gpus", "not on a node", slurm=LOGIN, visible=seen(value="")),
    # slurm_task_sees_part_of_gpus
    warns("slurm_task_sees_part_of_gpus", "this task sees 1 of the step's 4 GPUs", "srun --gpu-bind=none",
        slurm=slurm(tasks_per_node="4", gpus_per_task="1"), visible=seen(2, value="2")),
    warns("slurm_task_sees_part_of_gpus", "this task sees 2 of the step's 4 GPUs", "#SBATCH --gpus-per-node=4",
        slurm=slurm(tasks_per_node="2(x2)", gpu_bind="closest"), visible=seen(0, 1, value="0,1")),
    well("slurm_task_sees_part_of_gpus", "GPUs are not bound", slurm=slurm(tasks_per_node="4")),
    well("slurm_task_sees_part_of_gpus", "GPUs are not bound",
        slurm=slurm(tasks_per_node="4", gpu_bind="gres:gpu:none"), visible=seen(0, value="0")),
    well("slurm_task_sees_part_of_gpus", "GPUs are not bound", slurm=slurm(gpus_per_task="4")),
    well("slurm_task_sees_part_of_gpus", "the task sees 4 of 4 GPUs",
        slurm=slurm(tasks_per_node="2", gpu_bind="closest")),
    skips("slurm_task_sees_part_of_gpus", "not in a Slurm step", slurm=OUTSIDE),
    skips("slurm_task_sees_part_of_gpus", "not in a Slurm step",
        slurm=slurm(step_id=None, tasks_per_node="4", gpu_bind="closest"), visible=seen(0, value="0")),
    # slurm_granted_no_gpus
    fails("slurm_granted_no_gpus", "job 4242 was granted none of the 4 GPUs on this node",
        "#SBATCH --gpus-per-node=4", slurm=slurm(**UNGRANTED), gpus=gpus(permitted=False), visible=seen()),
    fails("slurm_granted_no_gpus", "granted none of the 4 GPUs", "srun --gpus-per-node=4",
        slurm=slurm(**UNGRANTED), visible=seen(value="NoDevFiles")),
    well("slurm_granted_no_gpus", "4 GPUs granted on this node"),
    skips("slurm_granted_no_gpus", "no GPUs granted to the job (this cluster may not manage GPUs)",
        slurm=slurm(**UNGRANTED)),
    skips("slurm_granted_no_gpus", "no GPUs granted to the job (this cluster may not manage GPUs)",
        slurm=slurm(**UNGRANTED), visible=seen(value="")),
    skips("slurm_granted_no_gpus", "no GPU on this node", slurm=slurm(**UNGRANTED), gpus=(), driver=no_driver()),
    skips("slurm_granted_no_gpus", "not on a node of a Slurm allocation", slurm=OUTSIDE),
    skips("slurm_granted_no_gpus", "not on a node of a Slurm allocation", slurm=LOGIN),
    # slurm_cpus_not_passed_on
    warns("slurm_cpus_not_passed_on", "1 CPU in this step, the job requested 16 per task",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        slurm=slurm(cpus_per_task=16), system=system(cpus_allowed=1)),
    warns("slurm_cpus_not_passed_on", "15 CPUs in this step", "srun --cpus-per-task=$SLURM_CPUS_PER_TASK",
        slurm=slurm(cpus_per_task=16), system=system(cpus_allowed=15)),
    well("slurm_cpus_not_passed_on", "16 of 16 CPUs per task",
        slurm=slurm(cpus_per_task=16), system=system(cpus_allowed=16)),
    skips("slurm_cpus_not_passed_on", "not in a Slurm step", slurm=OUTSIDE, system=system(cpus_allowed=1)),
    skips("slurm_cpus_not_passed_on", "not in a Slurm step", slurm=slurm(step_id=None), system=system(cpus_allowed=1)),
    skips("slurm_cpus_not_passed_on", "not in a Slurm step", slurm=slurm(cpus_per_task=None)),
    # slurm_has_fewer_nodes_than_config
    fails("slurm_has_fewer_nodes_than_config", "num_machines is 2, job 4242 has 1 node", "#SBATCH --nodes=2",
        config=TWO),
    well("slurm_has_fewer_nodes_than_config", "2 nodes in the job, num_machines: 2", config=TWO, slurm=slurm(nodes=2)),
    well("slurm_has_fewer_nodes_than_config", "2 nodes in the job, num_machines: 1", slurm=slurm(nodes=2)),
    skips("slurm_has_fewer_nodes_than_config", "not in a Slurm allocation", config=TWO, slurm=OUTSIDE),
    # slurm_nodes_left_idle
    warns("slurm_nodes_left_idle", "job 4242 has 4 nodes, num_machines is 2", "num_machines: 4",
        config=TWO, slurm=slurm(nodes=4)),
    warns("slurm_nodes_left_idle", "job 4242 has 2 nodes, num_machines is 1", "#SBATCH --nodes=1",
        slurm=slurm(nodes=2)),
    well("slurm_nodes_left_idle", "num_machines: 2, 2 nodes in the job", config=TWO, slurm=slurm(nodes=2)),
    well("slurm_nodes_left_idle", "num_machines: 2, 1 node in the job", config=TWO),
    skips("slurm_nodes_left_idle", "not in a Slurm allocation", slurm=OUTSIDE),
    # slurm_time_almost_up: 10 minutes
    informs("slurm_time_almost_up", "9 minutes left in job 4242", "squeue --job", slurm=slurm(seconds_left=599.9)),
    informs("slurm_time_almost_up", "0 minutes left", "#SBATCH --time", slurm=slurm(seconds_left=-5.0)),
    well("slurm_time_almost_up", "10 minutes left", slurm=slurm(seconds_left=600.0)),
    skips("slurm_time_almost_up", "not in a Slurm allocation, or its end time is unknown",
        slurm=slurm(seconds_left=None)),
    skips("slurm_time_almost_up", "not in a Slurm allocation", slurm=OUTSIDE),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
