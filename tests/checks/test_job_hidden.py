"""checks/job: what a job script hides: exit codes, files that are missing, numbers that do not fit, logins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import JobCommand, JobFolder, JobMissing, JobOption, JobScript, JobUnread
from tests.bad_jobs import read
from tests.checks.facts import Case, config, fails, informs, job_script, problem, skips, table, warns, well
from tests.checks.test_job import job

ALONE = "torchrun --standalone --nproc_per_node=2 train.py"
HALF = "num_machines: 1\nnum_processes: 4\n"
WITH_CONFIG = "accelerate launch --config_file acc.yaml train.py"
TRAP = "cleanup() { rm -rf tmp; exit 0; }"


def refusing(*options: JobOption) -> JobCommand:
    """A launch with options that its script refuses."""
    words = ("torchrun", "t.py", "--do_Eval", "--x")
    return JobCommand(6, words, launcher="torchrun", script=1, lines=(6, 6, 7, 8), here="src/t.py", refused=options)


def shell(*lines: str) -> JobScript:
    """A script without #SBATCH lines."""
    return read("\n".join(("#!/bin/bash", *lines)) + "\n")


def one_node(*lines: str) -> JobScript:
    """A job that requests eight GPUs per node, but no number of nodes."""
    return read("\n".join(("#!/bin/bash", "#SBATCH --gres=gpu:8", *lines)) + "\n")


def ranked(*lines: str, uses: tuple[str, ...] = ("process group", "WORLD_SIZE")) -> JobScript:
    """A job of two nodes with four tasks each, and these lines, whose Python script uses this."""
    asks = ("#!/bin/bash", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", *lines)
    script = read("\n".join(asks) + "\n")
    return replace(
        script,
        commands=tuple(replace(one, uses=uses) if one.launcher == "python" else one for one in script.commands),
    )


def lacks(**changes: object) -> JobScript:
    known = {"line": 4, "path": "conf/a.yaml", "kind": "config", **changes}
    return job_script(missing=(JobMissing(**known),))  # type: ignore[arg-type]


def redirects(exists: bool, made: str = "") -> JobScript:
    return job_script(redirects=(JobFolder(7, "out/logs", exists, made),))


UNREAD = JobUnread("env.sh", 2, "no such file here", sourced=True)
SWIFT = ("export NNODES=2", "export MASTER_ADDR=127.0.0.1", "swift sft --model a")
CASES = (
    # files and folders
    warns("job_named_file_missing", "line 4: the config conf/a.yaml does not exist", "Correct", job_script=lacks()),
    warns("job_named_file_missing", "and it is the default", "Correct the default", job_script=lacks(default=True)),
    warns("job_named_file_missing", "the training script src/train_v2.py does", "Did you mean src/train.py?",
        job_script=lacks(path="src/train_v2.py", kind="training script", similar="src/train.py")),
    warns("job_named_file_missing", "the DeepSpeed file ds.json does", "create", job_script=lacks(
        path="ds.json", kind="DeepSpeed file")),
    well("job_named_file_missing", "no launch names a file", job_script=job_script()),
    warns("job_redirect_folder_missing", "line 7: the folder out/logs does not exist", "mkdir -p out/logs",
        job_script=redirects(False)),
    well("job_redirect_folder_missing", "exist, or", job_script=redirects(True)),
    well("job_redirect_folder_missing", "exist, or", job_script=redirects(False, "git ignores it")),
    # the number of ranks
    fails("job_world_size_wrong", "line 4: WORLD_SIZE is 4, but srun starts 8 tasks", "$SLURM_NTASKS",
        job_script=ranked("export WORLD_SIZE=4", "srun python train.py")),
    fails("job_world_size_wrong", "WORLD_SIZE is 2, but srun starts 8", "$SLURM_NTASKS",
        job_script=ranked("export WORLD_SIZE=$SLURM_NNODES", "srun python train.py")),
    well("job_world_size_wrong", "another WORLD_SIZE", job_script=ranked(
        "export WORLD_SIZE=$((SLURM_NNODES * 4))", "srun python train.py")),
    well("job_world_size_wrong", "another WORLD_SIZE", job_script=ranked("WORLD_SIZE=4", "srun python train.py")),
    well("job_world_size_wrong", "another WORLD_SIZE", job_script=ranked(
        "export WORLD_SIZE=4", "srun -n 4 python train.py")),
    well("job_world_size_wrong", "another WORLD_SIZE", job_script=ranked(
        "export WORLD_SIZE=4", "if [ $A ]; then export WORLD_SIZE=8; fi", "srun python train.py")),
    well("job_world_size_wrong", "another WORLD_SIZE", job_script=ranked(
        "export WORLD_SIZE=4", "srun python train.py", uses=("process group",))),
    well("job_world_size_wrong", "another WORLD_SIZE", job_script=ranked("export WORLD_SIZE=4", "python train.py")),
    # GPUs that are left idle, without --nodes
    warns("job_gpus_left_idle", "line 3: CUDA_VISIBLE_DEVICES=0 leaves 7 of the 8 GPUs idle", "#SBATCH --gres=gpu:1",
        job_script=one_node("CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=1 t.py")),
    warns("job_gpus_left_idle", "line 3: CUDA_VISIBLE_DEVICES=0,1 leaves 6 of", "#SBATCH --gres=gpu:2",
        job_script=one_node("export CUDA_VISIBLE_DEVICES=0,1", "python t.py", "python e.py")),
    well("job_gpus_left_idle", "no GPU", job_script=one_node(
        "CUDA_VISIBLE_DEVICES=0 python t.py &", "CUDA_VISIBLE_DEVICES=1 python t.py &", "wait")),
    well("job_gpus_left_idle", "no GPU", job_script=one_node(
        "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python t.py", "CUDA_VISIBLE_DEVICES=0 python e.py")),
    well("job_gpus_left_idle", "no GPU", job_script=one_node("CUDA_VISIBLE_DEVICES=0 python t.py", "python e.py")),
    well("job_gpus_left_idle", "no GPU", job_script=one_node("CUDA_VISIBLE_DEVICES=$FREE python t.py")),
    warns("job_gpus_left_idle", "line 4: CUDA_VISIBLE_DEVICES=0 leaves 1 of the 2 GPUs idle", "gres=gpu:a100:1",
        job_script=shell("#SBATCH --nodes=1", "#SBATCH --gres=gpu:a100:2", "CUDA_VISIBLE_DEVICES=0 python t.py")),
    well("job_gpus_left_idle", "no GPU", job_script=job("CUDA_VISIBLE_DEVICES=0 srun python t.py")),  # two nodes
    well("job_gpus_left_idle", "no GPU", job_script=one_node(
        'if [ -n "$X" ]; then export CUDA_VISIBLE_DEVICES=0; fi', "python t.py")),
    # torch.distributed.launch
    warns("job_local_rank_not_accepted", "line 6: PyTorch 2 passes --local-rank, but t.py accepts only --local_rank",
        "'--local-rank', '--local_rank'", job_script=job_script(commands=(
            JobCommand(6, ("python -m torch.distributed.launch", "t.py"), launcher="torchrun", script=1,
                refuses_local_rank=True),))),
    # options of the training script
    fails("job_option_unknown_to_script", "line 7: src/t.py does not accept --do_Eval and --x", "mean --do_eval?",
        job_script=job_script(commands=(refusing(JobOption(2, "--do_Eval", "--do_eval"), JobOption(3, "--x")),))),
    fails("job_option_unknown_to_script", "line 8: src/t.py does not accept --x", "add it to the script",
        job_script=job_script(commands=(refusing(JobOption(3, "--x")),))),
    well("job_option_unknown_to_script", "no option", job_script=job_script(commands=(refusing(),))),
    well("job_local_rank_not_accepted", "no training script", job_script=job("python -m torch.distributed.launch t")),
    warns("job_config_is_for_another_world", "num_processes in acc.yaml is 4, but the job has 1 x 8 GPUs",
        "--num_processes", job_script=one_node(WITH_CONFIG), config=config(HALF, path="acc.yaml")),
    well("job_config_is_for_another_world", "fits", job_script=one_node(WITH_CONFIG.replace("train.py",
        "train.py --nodes $SLURM_NNODES")), config=config(HALF)),
    well("job_config_is_for_another_world", "fits", job_script=one_node(f"srun {WITH_CONFIG}"), config=config(HALF)),
    well("job_config_is_for_another_world", "fits", job_script=one_node("#SBATCH --ntasks=16", WITH_CONFIG),
        config=config(HALF)),
    well("job_config_is_for_another_world", "fits", job_script=one_node("vllm serve m &", WITH_CONFIG),
        config=config(HALF)),
    well("job_config_is_for_another_world", "fits", job_script=one_node(f"CUDA_VISIBLE_DEVICES=0,1 {WITH_CONFIG}"),
        config=config(HALF)),
    # exit codes
    warns("job_exit_code_lost", "line 6: a failed run counts as completed: this trap always exits with 0",
        "exit $code", job_script=job(TRAP, "trap cleanup EXIT", ALONE)),
    warns("job_exit_code_lost", "line 5: a failed", "code=$?", job_script=job("trap 'echo end; exit 0' EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job(TRAP, "trap cleanup INT TERM", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("trap 'c=$?; rm -rf x; exit $c' EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("trap 'rm -rf x' EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("trap 'if [ -f ok ]; then exit 0; fi' EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("trap '[ -f ok ] || exit 1; exit 0' EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("end() ( exit 0 )", "trap end EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("trap 'exec rm -rf x; exit 0' EXIT", ALONE)),
    well("job_exit_code_lost", "no launch", job_script=job("end() { return; exit 0; }", "trap end EXIT", ALONE)),
    warns("job_exit_code_lost", "line 7: a failed run counts as completed: this trap always exits with 0", "exit $code",
        job_script=job("end() { rm -rf x; }", "stop() { end; end; exit 0; }", "trap stop EXIT", ALONE)),
    warns("job_exit_code_lost", "line 3: a failed", "pipefail", job_script=shell(
        "export NPROC_PER_NODE=8", "swift sft --model a --deepspeed ds.json | tee a.log")),
    informs("job_exit_code_of_last_command", "line 6: a failed run counts as completed: the exit code is that of echo",
        "set -e", job_script=job(ALONE, "echo done $(date)")),
    informs("job_exit_code_of_last_command", "line 7", "exit $code", job_script=job(ALONE, "sleep 5", "echo done")),
    informs("job_exit_code_of_last_command", "line 7: a failed run counts as completed: the exit code is always 0",
        "exit $code", job_script=job(ALONE, "echo done", "exit 0")),
    well("job_exit_code_of_last_command", "no echo", job_script=job("set -e", ALONE, "echo done", "exit 0")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "test -f a.pt || exit 1", "exit 0")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "exit $?")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "exit")),
    well("job_exit_code_of_last_command", "no echo", job_script=job("set -e", ALONE, "echo done")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE)),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "code=$?", "echo done", "exit $code")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "echo code $?")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "if [ -f a ]; then echo done; fi")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(f"{ALONE} || exit 1", "echo done")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(f"{ALONE} &", "wait", "echo done")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(f"exec {ALONE}", "echo not reached")),
    well("job_exit_code_of_last_command", "no echo", job_script=job(ALONE, "python check.py", "rm -rf tmp", "echo a")),
    well("job_exit_code_of_last_command", "no echo", job_script=shell(ALONE, "echo done")),
    # directives without the #
    warns("job_directive_is_a_comment", "line 3: SBATCH --nodelist=n7 is run as a command", "#SBATCH --nodelist=n7",
        job_script=one_node("SBATCH --nodelist=n7", "python t.py")),
    well("job_directive_is_a_comment", "are directives", job_script=one_node("##SBATCH --nodelist=n7", "python t.py")),
    well("job_directive_is_a_comment", "are directives", job_script=one_node("sbatch --nodelist=n7 a.sh")),
    well("job_directive_is_a_comment", "are directives", job_script=one_node("cat <<E > a", "SBATCH --nodes=2", "E")),
    # ranks on the command line, beside a config
    warns("job_gpus_left_idle", "line 4: 4 ranks per node, but the job requests 8", "num_processes",
        job_script=one_node("#SBATCH --nodes=1", "accelerate launch --config_file c.yaml --num_processes=4 t.py")),
    well("job_gpus_left_idle", "no GPU",
        job_script=one_node("#SBATCH --nodes=1", "accelerate launch --config_file c.yaml --num_processes=8 t.py")),
    well("job_gpus_left_idle", "no GPU",
        job_script=one_node("#SBATCH --nodes=2", "srun accelerate launch --config_file c.yaml --num_processes=4 t.py")),
    warns("job_config_is_for_another_world", "is 8, but the job has 2 x 8 GPUs", "num_processes",
        config=config("distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\n"),
        job_script=one_node("#SBATCH --nodes=2", "accelerate launch --config_file c.yaml t.py")),
    well("job_config_is_for_another_world", "fits",
        config=config("distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\n"),
        job_script=one_node("#SBATCH --nodes=2", "accelerate launch --config_file c.yaml t.py")),
    # continued lines
    fails("job_continued_line_broken", "line 3: a comment line is inside the command", "sed", job_script=shell(
        "torchrun t.py --a 1 \\", "  # --b \\ # not now", "  2>&1 > t.log &")),
    fails("job_continued_line_broken", "line 3: a comment line is inside the command", "sed", job_script=shell(
        "torchrun t.py --a 1 \\", "  # --b 2 \\", "  # --c 3 \\", "  --d 4")),
    fails("job_continued_line_broken", "line 3: a comment line is inside the command", "sed", job_script=shell(
        "python -m train a.b=1 \\", "  # a.c=2 \\", "  +a.d=3 \\", "  e.f=4")),
    well("job_continued_line_broken", "no continued", job_script=shell(
        "torchrun t.py --a 1 \\", "  # --b 2 \\", "cd out > /dev/null", "a=1")),
    well("job_continued_line_broken", "no continued", job_script=shell(
        "A=(a.b=1 \\", "  # a.c=2 \\", "  a.d=3)", "python -m train ${A[@]}")),
    well("job_continued_line_broken", "no continued", job_script=shell(  # appended to an array, in a branch before
        "P=(torchrun --nproc_per_node=4)", "for S in a b; do", '  A=("${P[@]}" "${S}.py" --data "$D")',
        "  if [ $S = a ]; then", '    A+=(--dir "$E")', "  fi", '  A+=(--max_steps "$x")', '  "${A[@]}"', "done")),
    well("job_continued_line_broken", "no continued", job_script=shell(
        'if [ -n "$Q" ]; then', "  A=(python t.py)", "else", "  A=(torchrun t.py)", "fi", "A+=(--a 1)", '"${A[@]}"')),
    well("job_continued_line_broken", "no continued", job_script=shell(
        "source elsewhere.sh", "A+=(--a 1)", '"${A[@]}"')),
    fails("job_continued_line_broken", "line 4: --a is run as a command", "backslash", job_script=shell(
        "A=(torchrun t.py)", "A+=(--b 2)\n--a 1", '"${A[@]}"')),
    fails("job_continued_line_broken", "line 4: --b is run as a command", "backslash", job_script=shell(
        "A=(torchrun t.py)", '"${A[@]}"', "--b 1")),
    # secrets
    warns("job_secret_in_script", "line 2: HTTPS_PROXY is here", "chmod", job_script=shell(
        "export HTTPS_PROXY=http://me:Tulip-Field-7@proxy.lan:3128", ALONE)),
    well("job_secret_in_script", "no secrets", job_script=shell(
        "export HTTPS_PROXY=http://me:$PROXY_WORD@proxy.lan:3128", "export HTTP_PROXY=http://user:password@host:1",
        "export http_proxy=http://proxy.lan:3128", "u=https://me@host.lan/a:b")),
    # what a framework starts
    fails("job_head_address_is_loopback", "line 3: MASTER_ADDR is this node itself", "NODE_RANK=0",
        job_script=shell(*SWIFT[:2], "export NODE_RANK=1", SWIFT[2])),
    well("job_head_address_is_loopback", "no rendezvous", job_script=shell(*SWIFT[:2], "export NODE_RANK=0", SWIFT[2])),
    well("job_head_address_is_loopback", "no rendezvous", job_script=shell(*SWIFT)),
    well("job_head_address_is_loopback", "no rendezvous", job_script=shell(
        "export NNODES=1", "export NODE_RANK=1", *SWIFT[1:])),
    # defaults
    informs("job_variable_without_default", "line 2: --node_rank has no default: without $RANK", "${RANK:-0}",
        job_script=shell('torchrun --nnodes="${WORLD_SIZE:-"1"}" --node_rank="${RANK}" t.py')),
    well("job_variable_without_default", "no option lacks", job_script=shell(
        "torchrun --nnodes=${WORLD_SIZE:-1} --node_rank=${RANK:-0} t.py", "torchrun --nnodes=$N --node_rank=$R t.py")),
    well("job_variable_without_default", "no option lacks", job_script=shell(
        "RANK=$1", "torchrun --nnodes=${WORLD_SIZE:-1} --node_rank=$RANK t.py")),
    well("job_variable_without_default", "no option lacks", job_script=shell(
        "torchrun --nnodes=${SLURM_NNODES:-1} --node_rank=$SLURM_NODEID t.py")),
    skips("job_variable_without_default", "see job_variable_never_set", job_script=job(
        "torchrun --nnodes=${WORLD_SIZE:-1} --node_rank=$RANK t.py")),
    skips("job_variable_without_default", "may set variables", job_script=replace(shell("true"), unread=(UNREAD,))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()


def test_the_reason_to_remove_a_secret_names_slurm_only_in_a_job_for_it() -> None:
    text = "export HTTPS_PROXY=http://me:Tulip-Field-7@proxy.lan:3128"
    here = problem("job_secret_in_script", job_script=shell(text, ALONE))
    assert "Slurm" not in here.cause and "Everyone who can read this file" in here.cause
    assert "Slurm keeps a copy" in problem("job_secret_in_script", job_script=one_node(text, ALONE)).cause
