"""checks/job: what a job starts outside of srun, in files, in pipes and in the background, and with which values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import JobScript, JobUnread
from tests.bad_jobs import bad, good, read
from tests.checks.facts import Case, fails, informs, skips, table, warns, well
from tests.checks.test_job import job

HEAD = "$(scontrol show hostnames $SLURM_JOB_NODELIST | sed -n 1p)"
TORCHRUN = "srun -K1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_id=1"


def python(uses: tuple[str, ...] | None, *lines: str) -> JobScript:
    """A job of two nodes that runs a Python script outside of srun, which uses this."""
    script = job(*lines or ("python main.py",))
    return replace(script, commands=tuple(replace(one, uses=uses) for one in script.commands))


def lightning(*lines: str) -> JobScript:
    """A job on one node with four GPUs, and these lines, whose Python script uses Lightning."""
    script = read("\n".join(("#!/bin/bash", "#SBATCH --nodes=1", "#SBATCH --gpus-per-node=4", *lines)) + "\n")
    return replace(script, commands=tuple(replace(one, uses=("Lightning",)) for one in script.commands))


ONE_TASK = "#SBATCH --ntasks=1"
CASES = (
    warns(
        "job_lightning_outside_srun",
        "line 5: train.py uses Lightning without srun: one process on a node with 4 GPUs",
        "#SBATCH --ntasks-per-node=4",
        job_script=lightning(ONE_TASK, "python src/train.py"),
    ),
    warns("job_lightning_outside_srun", "4 GPUs", "srun", job_script=lightning("#SBATCH -n 4", "python a.py")),
    well("job_lightning_outside_srun", "without srun", job_script=lightning(ONE_TASK, "srun python train.py")),
    well("job_lightning_outside_srun", "no --ntasks", job_script=lightning("python train.py")),
    well("job_lightning_outside_srun", "itself", job_script=lightning(ONE_TASK, "unset SLURM_NTASKS", "python a.py")),
    well("job_lightning_outside_srun", "itself", job_script=lightning(ONE_TASK, "env -u SLURM_NTASKS python a.py")),
    well("job_lightning_outside_srun", "itself", job_script=lightning(ONE_TASK, "SLURM_JOB_NAME=bash python a.py")),
    well("job_lightning_outside_srun", "itself", job_script=lightning(ONE_TASK, "#SBATCH -J bash", "python a.py")),
    well("job_lightning_outside_srun", "no Lightning", job_script=lightning(ONE_TASK, "torchrun train.py")),
    warns(
        "job_python_outside_srun",
        "line 10: train.py runs only on the first of 2 nodes",
        "srun --kill-on-bad-exit=1",
        job_script=bad("starting-python-without-srun"),
    ),
    well("job_python_outside_srun", "on several nodes", job_script=good("starting-launcher-without-srun")),
    well("job_python_outside_srun", "starts the other nodes", job_script=python(("srun",))),
    well("job_python_outside_srun", "starts the other", job_script=job("python run.py hydra/launcher=submitit_slurm")),
    skips("job_python_outside_srun", "b.sh, which it starts", job_script=job("python a.py", "srun ./b.sh")),
    skips("job_python_outside_srun", "run.sh, which it starts", job_script=job("python a.py", "$HERE/run.sh")),
    warns("job_file_not_examined", "run.sh was", "doctor", job_script=job("python a.py", "$HERE/run.sh")),
    well("job_file_not_examined", "was read", job_script=job("bash data.sh", "python a.py")),
    well("job_python_outside_srun", "it trains", job_script=python(("process group",))),
    fails(
        "job_launcher_outside_srun",
        "line 5: python runs only on the first node, but the job has 2 nodes",
        "srun --ntasks-per-node=1",
        job_script=python(("process group",)),
    ),
    well("job_launcher_outside_srun", "on one node", job_script=python(None)),
    well("job_launcher_outside_srun", "on one", job_script=python(("process group", "srun"))),
    warns(
        "job_file_not_examined",
        "line 7: scripts/train.sh was not examined: no such file here",
        "mgpu doctor --script job.sbatch",
        job_script=bad("starting-an-unread-file-under-srun"),
    ),
    well("job_file_not_examined", "was read", job_script=good("starting-an-unread-file-under-srun")),
    well("job_file_not_examined", "was read", job_script=job("bash data.sh", f"{TORCHRUN} t.py")),
    well("job_file_not_examined", "was read", job_script=job(". venv/bin/activate", "source env.sh", "srun ./a.out")),
    well("job_file_not_examined", "was read", job_script=job("source ~/.run_env", "source run_config.sh", "srun ./a")),
    warns("job_file_not_examined", "line 5: run_all.sh was", "doctor", job_script=job("source run_all.sh")),
    warns("job_file_not_examined", "line 5: ./go was", "doctor", job_script=job("bash ./go")),
    warns("job_file_not_examined", "known only in the job", "doctor", job_script=job("srun bash $SCRIPT")),
    skips("job_rank_ignored", "scripts/train.sh, which it starts", job_script=job("srun bash scripts/train.sh")),
    warns(
        "job_exit_code_lost",
        "line 7: a failed run counts as completed",
        "set -o pipefail",
        job_script=bad("ending-tee-without-pipefail"),
    ),
    well("job_exit_code_lost", "no launch is in a pipe", job_script=good("ending-tee-without-pipefail")),
    well("job_exit_code_lost", "PIPESTATUS", job_script=job(f"{TORCHRUN} t.py | tee a", "exit ${PIPESTATUS[0]}")),
    well("job_exit_code_lost", "no launch", job_script=job("N=$(python count.py | tail -n 1)", "ls | tee a")),
    warns("job_exit_code_lost", "line 5", "pipefail", job_script=job("srun bash -c 'torchrun t.py | tee a'")),
    warns(
        "job_waits_for_server",
        "line 6: wait also waits for vllm serve",
        "kill $server",
        job_script=bad("ending-wait-for-a-server"),
    ),
    well("job_waits_for_server", "nothing waits", job_script=good("ending-wait-for-a-server")),
    well("job_waits_for_server", "nothing waits", job_script=job("vllm serve x &", "wait")),
    well("job_waits_for_server", "no server", job_script=job("torchrun a.py &", "torchrun b.py &", "wait")),
    well(
        "job_waits_for_server",
        "is stopped",
        job_script=job("vllm serve x &", "torchrun a.py", "kill %1", "wait"),
    ),
    warns(
        "job_goes_on_without_a_rank",
        "line 11: a rank that fails on one node leaves the others waiting, unless line 9 runs",
        "kill-on-bad-exit",
        job_script=bad("ending-kill-on-bad-exit-in-a-branch"),
    ),
    well("job_goes_on_without_a_rank", "ends the step", job_script=good("ending-kill-on-bad-exit-in-a-branch")),
    warns(
        "job_head_host_fixed",
        "line 5: the rendezvous host is always gpu017",
        "scontrol show hostnames",
        job_script=bad("values-a-host-that-may-not-be-in-the-job"),
    ),
    well("job_head_host_fixed", "no rendezvous", job_script=good("values-a-host-that-may-not-be-in-the-job")),
    well(
        "job_head_host_fixed",
        "outside of --nodelist",
        job_script=job("#SBATCH -w gpu[01-02]", f"{TORCHRUN} --rdzv_endpoint=gpu01.site:29500 t.py"),
    ),
    skips("job_head_host_fixed", "not a list", job_script=job("#SBATCH -w gpu[", f"{TORCHRUN} t.py")),
    well("job_head_address_is_loopback", "no", job_script=job(
        "if [ -z $SLURM_NODELIST ]; then export MASTER_ADDR=localhost; else", f"export MASTER_ADDR={HEAD}; fi",
        f"{TORCHRUN} --rdzv_endpoint=$MASTER_ADDR:$P t.py",
    )),
    well("job_head_address_is_loopback", "no", job_script=job(
        "export MASTER_ADDR=localhost", f"export MASTER_ADDR={HEAD}", "srun python t.py",
    )),
    warns(
        "job_container_env_has_value",
        "line 7: --container-env=NCCL_DEBUG=WARN sets nothing",
        "export NCCL_DEBUG=WARN",
        job_script=bad("values-a-value-for-container-env"),
    ),
    fails("job_variable_stays_text", "line 7: --node_rank gets the text $SLURM_NODEID: no shell expands it",
        "bash -c '... --node_rank $SLURM_NODEID ...'", job_script=bad("values-a-variable-that-no-shell-expands")),
    fails("job_variable_stays_text", "--machine_rank gets the text $SLURM_NODEID", "bash -c",
        job_script=bad("values-a-quoted-variable-that-no-shell-expands")),
    well("job_variable_stays_text", "no launcher", job_script=good("values-a-variable-that-no-shell-expands")),
    well("job_variable_stays_text", "no launcher", job_script=job(f"{TORCHRUN} --rdzv_endpoint=$HEAD:29500 t.py")),
    well("job_variable_stays_text", "no launcher", job_script=job("ssh b 'torchrun --node_rank $R --nnodes 2 t.py'")),
    well("job_container_env_has_value", "names only", job_script=good("values-a-value-for-container-env")),
    warns(
        "job_container_env_has_value",
        "line 5",
        "export A=1",
        job_script=job("#SBATCH --container-env=B,A=1", "srun python t.py"),
    ),
    warns(
        "job_variable_never_set",
        "line 8: nothing in the script sets $GPUS",
        "export GPUS=",
        job_script=bad("values-a-variable-that-nothing-sets"),
    ),
    warns(
        "job_variable_never_set",
        "line 8: Slurm does not set $SLURM_NUM_NODES",
        "$SLURM_NNODES",
        job_script=bad("values-a-variable-that-slurm-does-not-set"),
    ),
    warns("job_variable_never_set", "SLURM_GPU_ON_NODE", "$SLURM_GPUS_ON_NODE", job_script=job(
        "srun torchrun --nnodes=2 --nproc_per_node=$SLURM_GPU_ON_NODE t.py",
    )),
    well("job_variable_never_set", "that Slurm", job_script=good("values-a-variable-that-nothing-sets")),
    warns(
        "job_own_folder_is_spool",
        "line 5: the script's own folder is Slurm's spool folder in the job",
        'cd "$SLURM_SUBMIT_DIR"',
        job_script=bad("values-a-folder-beside-the-script"),
    ),
    well("job_own_folder_is_spool", "no path", job_script=good("values-a-folder-beside-the-script")),
    well("job_own_folder_is_spool", "not used", job_script=job("HERE=$(dirname $0)", "echo $HERE", f"{TORCHRUN} t.py")),
    skips("job_own_folder_is_spool", "scontrol", job_script=job(
        "A=$(scontrol show job $SLURM_JOB_ID)", "cd $(dirname $0)", f"{TORCHRUN} t.py",
    )),
    well("job_variable_never_set", "Slurm", job_script=job("read N < n.txt", "srun torchrun --nnodes $N t.py")),
    well("job_variable_never_set", "Slurm", job_script=job("for N in 1 2; do srun torchrun --nnodes $N t.py; done")),
    well("job_variable_never_set", "Slurm", job_script=job(": ${N:=2}", "srun torchrun --nnodes $N t.py")),
    well("job_variable_never_set", "Slurm", job_script=job("srun torchrun --nnodes ${N:-2} t.py")),
    well("job_variable_never_set", "that", job_script=job("#SBATCH --export=N=2", "srun torchrun --nnodes $N t.py")),
    skips("job_variable_never_set", "may set", job_script=job(". settings", "srun torchrun --nnodes $N t.py")),
    skips("job_variable_never_set", "many", job_script=job("srun torchrun --nnodes $N t.py $BATCH $LR $DATA $OUT")),
    skips("job_variable_never_set", "no #SBATCH", job_script=read("#!/bin/bash\nsrun torchrun --nnodes $N t.py\n")),
    warns(
        "job_gpus_bound_to_tasks",
        "line 6: srun --gpus-per-task=1: every task sees one GPU",
        "Remove --gpus-per-task and --gpu-bind from srun: the job already requests",
        job_script=job("#SBATCH --ntasks-per-node=4", "srun -K1 --gpus-per-task=1 python train.py"),
    ),
    warns("job_gpus_left_idle", "line 6: 4 ranks per node", "num_processes", job_script=job(
        "#SBATCH --gpus-per-node=8", "srun -K1 accelerate launch --num_machines 2 --machine_rank 0 "
        "--num_processes ${SLURM_GPUS_ON_NODE:-8} t.py",
    )),
    well("job_gpus_left_idle", "no GPU", job_script=job(
        "NUM_GPUS_FOR_TRAINING=3", "srun -K1 torchrun --nnodes=2 --nproc_per_node=$NUM_GPUS_FOR_TRAINING t.py",
    )),
    well("job_gpus_left_idle", "no GPU", job_script=job("srun torchrun --nnodes=2 --nproc_per_node=1 t.py --gpus 4")),
    well("job_slow_setting_left", "says why", job_script=job(
        "# without this the job hangs on this cluster", "export NCCL_DEBUG=WARN", "export CUDA_LAUNCH_BLOCKING=1",
    )),
    well("job_slow_setting_left", "says why", job_script=job("export NCCL_P2P_DISABLE=1  # P2P is not supported here")),
    well("job_slow_setting_left", "no fast", job_script=job("export FI_PROVIDER=efa", "export NCCL_IB_DISABLE=1")),
    well("job_slow_setting_left", "no", job_script=job("export NCCL_SOCKET_IFNAME=hsn0", "export NCCL_IB_DISABLE=1")),
    warns("job_slow_setting_left", "IB", "unset", job_script=job("export NCCL_IB_DISABLE=1")),
    *(well("job_slow_setting_left", "one rank", job_script=job("export NCCL_P2P_DISABLE=1", *lines)) for lines in (
        ("accelerate launch --num_processes 1 t.py",), ("torchrun t.py",), ("N=1", "torchrun --nproc_per_node=$N t.py"),
        ("deepspeed --num_gpus 1 t.py",),
    )),
    *(warns("job_slow_setting_left", "line 5: NCCL_P2P", "unset", job_script=job("export NCCL_P2P_DISABLE=1", *lines))
        for lines in (
            ("accelerate launch --num_processes 1 t.py", "accelerate launch --num_processes 4 t.py"),
            ("accelerate launch --num_processes $N t.py",), ("accelerate launch t.py",), ("python t.py",),
            ("torchrun --nnodes 2 t.py",), ("torchrun --nproc_per_node gpu t.py",), ("torchrun $ARGS t.py",),
            ("torchrun t.py", "python other.py"), ("deepspeed --num_gpus 1 --hostfile h t.py",),
        )),
    warns("job_slow_setting_left", "line 5: CUDA_LAUNCH_BLOCKING", "unset", job_script=job(
        "export CUDA_LAUNCH_BLOCKING=1 NCCL_P2P_DISABLE=1", "torchrun t.py",
    )),
    warns("job_slow_setting_left", "CUDA_LAUNCH_BLOCKING=1", "Remove CUDA_LAUNCH_BLOCKING=1 from the command",
        job_script=job(f"CUDA_LAUNCH_BLOCKING=1 {TORCHRUN} t.py")),
    informs("job_debug_output_left", "NCCL_DEBUG=INFO", "Remove NCCL_DEBUG=INFO from the command",
        job_script=job(f"NCCL_DEBUG=INFO {TORCHRUN} t.py")),
    warns(
        "job_rank_per_cpu_core",
        "line 5: --nproc-per-node=auto starts one rank per CPU core: CUDA_VISIBLE_DEVICES hides all GPUs",
        "--nproc-per-node=1",
        job_script=bad("world-auto-on-a-node-without-gpus"),
    ),
    well("job_rank_per_cpu_core", "no launcher", job_script=good("world-auto-on-a-node-without-gpus")),
    warns("job_rank_per_cpu_core", "requests no GPU", "=1", job_script=read(
        "#!/bin/bash\n#SBATCH -p cpu-long -N 1\ntorchrun --standalone --nproc_per_node auto t.py\n"
    )),
    well("job_rank_per_cpu_core", "no", job_script=job("#SBATCH -p cpu", "torchrun --nproc_per_node auto t.py")),
    well("job_port_fixed", "specific", job_script=job(
        "if [ -z $SLURM_JOB_ID ]; then export MASTER_PORT=29500; else", "export MASTER_PORT=$((12000 + SLURM_JOB_ID))",
        "fi", f"{TORCHRUN} --rdzv_endpoint={HEAD}:$MASTER_PORT t.py",
    )),
    well("job_gpus_bound_to_tasks", "not bound", job_script=python(
        ("first GPU",), "#SBATCH --gpus-per-task=1 --ntasks-per-node=4", "srun python t.py",
    )),
    warns("job_slow_setting_left", "line 6", "unset", job_script=job("# debugging", "export CUDA_LAUNCH_BLOCKING=1")),
    well("job_debug_output_left", "no debug", job_script=job(
        "export NCCL_DEBUG=INFO", "export NCCL_DEBUG=WARN", f"{TORCHRUN} t.py",
    )),
    informs("job_debug_output_left", "line 5: NCCL_DEBUG=INFO", "WARN", job_script=job(
        "export NCCL_DEBUG=INFO", f"{TORCHRUN} t.py", "export NCCL_DEBUG=WARN", f"{TORCHRUN} u.py",
    )),
    informs("job_debug_output_left", "line 5: NCCL_DEBUG=INFO", "WARN", job_script=job(
        "export NCCL_DEBUG=INFO", "if [ $QUIET ]; then export NCCL_DEBUG=WARN; fi", f"{TORCHRUN} t.py",
    )),
    skips("job_directive_value_invalid", "template", job_script=read("#!/bin/bash\n#SBATCH --nodes={nodes}\ntrue\n")),
    well("job_installs_packages_on_every_node", "installs nothing", job_script=job(
        "srun --container-image=x.sqsh bash -c 'pip install x; torchrun t.py'",
    )),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()


def test_a_started_file_that_trains_elsewhere_counts_only_if_srun_starts_it() -> None:
    read_in_full = job(f"{TORCHRUN} --rdzv_endpoint={HEAD}:1 t.py")
    for one, counts in ((JobUnread("a.sh", 5, "x", on_node=True), True), (JobUnread("a.sh", 5, "x"), False)):
        script = replace(read_in_full, unread=(one,))
        case = warns if counts else well
        expected = ("a.sh was", "doctor") if counts else ("was read",)
        case("job_file_not_examined", *expected, job_script=script).verify()
