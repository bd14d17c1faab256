"""checks/slurm.py"""

from __future__ import annotations

import pytest

from tests.checks.facts import Case, seen, skips, slurm, table, warns, well

OUTSIDE = slurm(job_id=None, nodes=None, node_rank=None, tasks_per_node=None, gpus_on_node=None)
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
    # slurm_granted_other_gpus
    warns("slurm_granted_other_gpus", "Slurm granted 4 GPUs, 2 visible", "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS",
        visible=seen(0, 1, value="0,1")),
    warns("slurm_granted_other_gpus", "Slurm granted 1 GPU, 4 visible", "echo", slurm=slurm(gpus_on_node=1)),
    well("slurm_granted_other_gpus", "4 GPUs granted and visible"),
    well("slurm_granted_other_gpus", "1 GPU granted",
        slurm=slurm(gpus_on_node=1), visible=seen(value="MIG-1", mig="MIG-1")),
    skips("slurm_granted_other_gpus", "not in a Slurm allocation", slurm=OUTSIDE),
    skips("slurm_granted_other_gpus", "not in a Slurm allocation with GPUs", slurm=slurm(gpus_on_node=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
