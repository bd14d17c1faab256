"""checks/job: each fault in a script of tests/bad_jobs, nothing in its repaired twin, and what lies between."""

from __future__ import annotations

import pytest

from mgpu import engine
from mgpu.readers.job_script import directives
from mgpu.snapshot import Config, JobFolder, JobScript, Snapshot
from tests.bad_jobs import bad, good, pairs, read
from tests.checks.facts import Case, config, fails, informs, job_script, skips, table, warns, well
from tests.conftest import CHECKS

# Two nodes, and a config that the launcher is given.
CONFIGURED = """\
#!/bin/bash
#SBATCH --nodes=2 --nodelist=node[1-2]
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
srun --kill-on-bad-exit=1 bash -c 'accelerate launch --config_file ds.yaml --num_machines 2 \\
    --machine_rank $SLURM_NODEID --main_process_ip node1 train.py'
"""
TWO = "num_machines: 2\nnum_processes: 8\n"
STATIC = CONFIGURED.replace("--machine_rank $SLURM_NODEID ", "")
HEADLESS = CONFIGURED.replace("--main_process_ip node1 ", "")
DEEPSPEED = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n" + TWO
STANDARD = DEEPSPEED.replace("zero_stage: 3", "deepspeed_multinode_launcher: standard")


def job(*lines: str) -> JobScript:
    """A job of two nodes with four GPUs each, and these lines."""
    asks = ("#!/bin/bash", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=4")
    return read("\n".join((*asks, *lines)) + "\n")


IGNORED = job_script(folders=(JobFolder(3, "logs", False, "git ignores it"),))
CASES = (
    fails(
        "job_lines_end_as_on_windows",
        "line 1: Windows line endings (CRLF)",
        "sed -i",
        job_script=read("#!/bin/bash\r\n#SBATCH --nodes=1\r\nsrun hostname\r\n"),
    ),
    well("job_lines_end_as_on_windows", "Unix line endings"),
    skips("job_shebang_missing", "so a shell may run it", job_script=read("srun hostname\n")),
    fails(
        "job_shebang_missing",
        "line 1: the file does not start with #!",
        "#!/bin/bash",
        job_script=bad("text-no-shebang"),
    ),
    well("job_shebang_missing", "it starts with #!/bin/bash", job_script=good("text-no-shebang")),
    fails(
        "job_syntax_broken",
        "line 9: unexpected EOF while looking for matching `''",
        "bash -n job.sbatch",
        job_script=bad("text-quote-not-closed"),
    ),
    well("job_syntax_broken", "12 lines, accepted by bash -n", job_script=good("text-quote-not-closed")),
    fails(
        "job_continued_line_broken",
        "line 12: a space follows the backslash: the command ends here",
        "sed -n '12p' job.sbatch | cat -A",
        job_script=bad("text-blank-after-the-backslash"),
    ),
    well("job_continued_line_broken", "no continued line is broken", job_script=good("text-blank-after-the-backslash")),
    fails(
        "job_continued_line_broken",
        "line 14: a comment line is inside the command: the command ends here",
        "sed -n '14p' job.sbatch | cat -A",
        job_script=bad("text-comment-in-the-middle"),
    ),
    fails(
        "job_continued_line_broken",
        "line 14: --epochs is run as a command",
        "End the previous line with a backslash, with nothing",
        job_script=bad("text-backslash-missing"),
    ),
    fails(
        "job_dash_typographic",
        "line 13: –epochs has a typographic dash",
        "grep -nP '[^\\x00-\\x7F]' job.sbatch",
        job_script=bad("text-long-dash"),
    ),
    well("job_dash_typographic", "no typographic dashes or quotes", job_script=good("text-long-dash")),
    fails(
        "job_dash_typographic",
        "line 13: “a” has a typographic quote",
        "grep -nP '[^\\x00-\\x7F]' job.sbatch",
        job_script=bad("text-curly-quote"),
    ),
    fails(
        "job_directive_below_a_command",
        "line 7: #SBATCH --gpus-per-node=4 comes after a command, so Slurm",
        "#SBATCH --gpus-per-node=4",
        job_script=bad("directives-below-a-command"),
    ),
    well(
        "job_directive_below_a_command",
        "5 options, all above the first command",
        job_script=good("directives-below-a-command"),
    ),
    fails(
        "job_directive_has_a_variable",
        "line 2: #SBATCH --nodes=$NUM_NODES: variables are not expanded",
        "Write the value. In file names, Slurm expands",
        job_script=bad("directives-variable"),
    ),
    well("job_directive_has_a_variable", "no directive contains a variable", job_script=good("directives-variable")),
    fails(
        "job_directive_has_a_variable",
        "line 7: #SBATCH --output=$HOME/%j.out: variables are not expanded",
        "Write the value. In file names, Slurm expands",
        job_script=bad("directives-variable-in-the-output"),
    ),
    warns(
        "job_directive_is_a_comment",
        "line 4: # SBATCH --gpus-per-node=4 is a comment: space between",
        "#SBATCH --gpus-per-node=4",
        job_script=bad("directives-blank-before"),
    ),
    well(
        "job_directive_is_a_comment",
        "all lines that look like directives are directives",
        job_script=good("directives-blank-before"),
    ),
    warns(
        "job_directive_is_a_comment",
        "line 6: #SBATCH --time=12:00:00 is a comment: space before it",
        "#SBATCH --time=12:00:00",
        job_script=bad("directives-indented"),
    ),
    fails(
        "job_directive_unknown",
        "line 3: sbatch has no option --ntask-per-node",
        "#SBATCH --ntasks-per-node=1",
        job_script=bad("directives-misspelt"),
    ),
    well("job_directive_unknown", "no misspelled options", job_script=good("directives-misspelt")),
    fails(
        "job_directive_value_invalid",
        "line 6: #SBATCH --time=12h: not a valid value",
        "sbatch --test-only job.sbatch",
        job_script=bad("directives-no-time"),
    ),
    well("job_directive_value_invalid", "all values are valid", job_script=good("directives-no-time")),
    fails(
        "job_directive_value_invalid",
        "line 7: #SBATCH --mail-type=FINISH: not a valid value",
        "sbatch --test-only job.sbatch",
        job_script=bad("directives-no-node-count"),
    ),
    fails(
        "job_directive_value_invalid",
        "line 4: #SBATCH --gres=gpu=4: not a valid value",
        "sbatch --test-only job.sbatch",
        job_script=bad("directives-gres-without-a-colon"),
    ),
    warns(
        "job_gpus_asked_for_twice",
        "line 4: --gres=gpu:4 and --gpus-per-node=4 both request GPUs",
        "#SBATCH --gpus-per-node=4",
        job_script=bad("directives-twice"),
    ),
    well("job_gpus_asked_for_twice", "GPUs are requested with one option", job_script=good("directives-twice")),
    warns(
        "job_output_folder_missing",
        "line 7: the folder no-such-folder for the job's output does not exist here",
        "mkdir -p no-such-folder",
        job_script=bad("directives-folder-missing"),
    ),
    well(
        "job_output_folder_missing",
        "the output goes to the job's working directory",
        job_script=good("directives-folder-missing"),
    ),
    fails(
        "job_launcher_outside_srun",
        "line 10: torchrun runs only on the first node, but the job has 2 nodes",
        "srun --ntasks-per-node=1 --kill-on-bad-exit=1 torc",
        job_script=bad("starting-launcher-without-srun"),
    ),
    well("job_launcher_outside_srun", "srun starts the launcher", job_script=good("starting-launcher-without-srun")),
    fails(
        "job_launchers_several_per_node",
        "line 3: 4 tasks per node, each running torchrun",
        "#SBATCH --ntasks-per-node=1",
        job_script=bad("starting-four-launchers-a-node"),
    ),
    well("job_launchers_several_per_node", "one launcher per node", job_script=good("starting-four-launchers-a-node")),
    fails(
        "job_launchers_several_per_node",
        "line 10: 4 tasks per node, each running torchrun",
        "#SBATCH --ntasks-per-node=1",
        job_script=bad("starting-eight-tasks-in-the-srun-line"),
    ),
    fails(
        "job_deepspeed_without_hosts",
        "line 10: deepspeed does not know the 2 nodes",
        "srun --ntasks-per-node=1 --kill-on-bad-exit=1 torc",
        job_script=bad("starting-deepspeed-alone"),
    ),
    well("job_deepspeed_without_hosts", "no deepspeed launcher", job_script=good("starting-deepspeed-alone")),
    warns(
        "job_installs_packages_on_every_node",
        "line 8: pip install -r runs on every task at once",
        "srun --nodes=1 --ntasks=1 pip install -r ...",
        job_script=bad("starting-pip-under-srun"),
    ),
    well(
        "job_installs_packages_on_every_node",
        "srun installs nothing",
        job_script=good("starting-pip-under-srun"),
    ),
    fails(
        "job_rank_expanded_in_batch_shell",
        "line 11: $SLURM_NODEID is expanded here, in the batch shell, to",
        "srun bash -c '... --node_rank $SLURM_NODEID ...'",
        job_script=bad("ranks-node-rank-in-the-batch-shell"),
    ),
    well(
        "job_rank_expanded_in_batch_shell",
        "the batch shell expands no rank",
        job_script=good("ranks-node-rank-in-the-batch-shell"),
    ),
    fails(
        "job_rank_expanded_in_batch_shell",
        "line 11: $SLURM_NODEID is expanded here, in the batch shell, to",
        "srun bash -c '... --machine_rank $SLURM_NODEID ...'",
        job_script=bad("ranks-double-quotes"),
    ),
    fails(
        "job_rank_expanded_in_batch_shell",
        "line 9: $SLURM_PROCID is expanded here, in the batch shell, to",
        "srun bash -c '... --machine_rank $SLURM_NODEID ...'",
        job_script=bad("ranks-rank-through-a-variable"),
    ),
    fails(
        "job_rank_expanded_in_batch_shell",
        "line 8: RANK is $SLURM_PROCID of the batch shell, which is 0",
        "srun bash -c 'export RANK=$SLURM_PROCID; python tr",
        job_script=bad("ranks-rank-of-the-environment"),
    ),
    informs(
        "job_rank_ignored",
        "line 11: $SLURM_NODEID is 0 for every node here, but c10d ignores",
        "--machine_rank \\$SLURM_NODEID",
        job_script=bad("ranks-c10d-and-a-rank-of-0"),
    ),
    well("job_rank_ignored", "no rank is passed without effect", job_script=good("ranks-c10d-and-a-rank-of-0")),
    fails(
        "job_machine_rank_missing",
        "line 10: several nodes, but no --machine_rank",
        "srun bash -c '... --machine_rank $SLURM_NODEID ...'",
        job_script=bad("ranks-no-machine-rank"),
    ),
    well(
        "job_machine_rank_missing",
        "the launchers get their rank, or c10d assigns it",
        job_script=good("ranks-no-machine-rank"),
    ),
    fails(
        "job_machine_rank_missing",
        "line 10: several nodes, but no --node_rank",
        "srun bash -c '... --node_rank $SLURM_NODEID ...'",
        job_script=bad("ranks-no-node-rank"),
    ),
    fails(
        "job_variable_not_on_node",
        "line 11: $HEAD is empty here: line 7 sets it, but does not export it",
        "export HEAD",
        job_script=bad("ranks-variable-that-is-not-exported"),
    ),
    well(
        "job_variable_not_on_node",
        "all variables expanded on the nodes are exported",
        job_script=good("ranks-variable-that-is-not-exported"),
    ),
    fails(
        "job_head_address_is_loopback",
        "line 8: the rendezvous host is localhost, which is a different machine",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-localhost"),
    ),
    well("job_head_address_is_loopback", "no rendezvous host is localhost", job_script=good("meeting-localhost")),
    warns(
        "job_head_address_by_hostname",
        "line 8: the rendezvous address comes from $(hostname -I | awk '{print",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-address-by-hostname"),
    ),
    well(
        "job_head_address_by_hostname",
        "no address comes from hostname",
        job_script=good("meeting-address-by-hostname"),
    ),
    warns(
        "job_head_address_by_hostname",
        "line 9: the rendezvous address comes from $(srun --nodes=1 --ntasks=1",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-address-by-srun-hostname"),
    ),
    fails(
        "job_head_differs_between_nodes",
        "line 11: $(hostname) is a different name on every node",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-every-node-the-head"),
    ),
    well("job_head_differs_between_nodes", "no node names itself", job_script=good("meeting-every-node-the-head")),
    informs(
        "job_head_address_of_srun",
        "line 8: $SLURM_LAUNCH_NODE_IPADDR is where srun was started",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-launch-node"),
    ),
    well(
        "job_head_address_of_srun",
        "the rendezvous address does not depend on where srun was started",
        job_script=good("meeting-launch-node"),
    ),
    fails(
        "job_head_cut_from_short_list",
        "line 8: $(echo $SLURM_JOB_NODELIST | sed 's/[],].*//; s/\\[//'): th",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-list-cut-by-sed"),
    ),
    well(
        "job_head_cut_from_short_list",
        "no name is cut out of the node list",
        job_script=good("meeting-list-cut-by-sed"),
    ),
    fails(
        "job_head_cut_from_short_list",
        "line 8: ${SLURM_NODELIST%%,*}: the list is compressed, as in nid[001-004]",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-list-cut-at-a-comma"),
    ),
    fails(
        "job_head_address_missing",
        "line 10: torchrun has no rendezvous address",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-no-address-for-torchrun"),
    ),
    well(
        "job_head_address_missing",
        "the launchers have a rendezvous address",
        job_script=good("meeting-no-address-for-torchrun"),
    ),
    fails(
        "job_head_address_missing",
        "line 10: accelerate launch has no rendezvous address",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLU',
        job_script=bad("meeting-no-address-for-accelerate"),
    ),
    informs(
        "job_port_fixed",
        "line 9: port 29500 for every job",
        "export MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000))",
        job_script=bad("meeting-fixed-port"),
    ),
    well("job_port_fixed", "the port is specific to this job", job_script=good("meeting-fixed-port")),
    fails(
        "job_port_drawn_on_each_node",
        "line 11: $((20000 + $RANDOM % 9999)) is a different port on every node",
        "export MASTER_PORT=$((12000 + SLURM_JOB_ID % 20000))",
        job_script=bad("meeting-port-drawn-on-each-node"),
    ),
    well(
        "job_port_drawn_on_each_node",
        "no node picks its own",
        job_script=good("meeting-port-drawn-on-each-node"),
    ),
    fails(
        "job_rendezvous_id_drawn_on_each_node",
        "line 12: --rdzv_id $RANDOM is a different id on every node",
        "--rdzv-id=$SLURM_JOB_ID",
        job_script=bad("meeting-id-drawn-on-each-node"),
    ),
    well(
        "job_rendezvous_id_drawn_on_each_node",
        "the id is the same on all nodes",
        job_script=good("meeting-id-drawn-on-each-node"),
    ),
    warns(
        "job_backend_hidden_in_rdzv_conf",
        "line 12: --rdzv_conf rdzv_backend=c10d does not set the backend",
        "--rdzv_backend c10d",
        job_script=bad("meeting-backend-in-the-settings-of-the-backend"),
    ),
    well(
        "job_backend_hidden_in_rdzv_conf",
        "the backend is set with its own option, or not at all",
        job_script=good("meeting-backend-in-the-settings-of-the-backend"),
    ),
    fails(
        "job_same_network_with_c10d",
        "line 12: --same_network leaves c10d without an address",
        "accelerate launch --rdzv_backend c10d --main_proce",
        job_script=bad("meeting-same-network"),
    ),
    well("job_same_network_with_c10d", "c10d has its address", job_script=good("meeting-same-network")),
    warns(
        "job_endpoint_with_static_backend",
        "line 13: --rdzv_endpoint without --rdzv_backend or --node_rank",
        "--rdzv_backend c10d --rdzv_id $SLURM_JOB_ID",
        job_script=bad("meeting-endpoint-without-backend"),
    ),
    well(
        "job_endpoint_with_static_backend",
        "a backend or a rank is set",
        job_script=good("meeting-endpoint-without-backend"),
    ),
    fails(
        "job_nodes_not_told_to_launcher",
        "line 10: no --nnodes: each of the 2 nodes trains alone",
        "--nnodes $SLURM_JOB_NUM_NODES",
        job_script=bad("world-no-nnodes"),
    ),
    well("job_nodes_not_told_to_launcher", "the launchers get the number of nodes", job_script=good("world-no-nnodes")),
    fails(
        "job_nodes_not_told_to_launcher",
        "line 12: --standalone: each of the 2 nodes trains alone",
        "--nnodes $SLURM_JOB_NUM_NODES",
        job_script=bad("world-standalone-on-two-nodes"),
    ),
    fails(
        "job_processes_do_not_divide",
        "line 10: 7 processes on 2 nodes: accelerate starts 3 on each",
        "--num_processes $((SLURM_JOB_NUM_NODES * SLURM_GPU",
        job_script=bad("world-seven-on-two-nodes"),
    ),
    well(
        "job_processes_do_not_divide",
        "num_processes is a multiple of the nodes",
        job_script=good("world-seven-on-two-nodes"),
    ),
    fails(
        "job_processes_outnumber_gpus",
        "line 11: 8 ranks per node, but the job requests 4 GPUs per node",
        "#SBATCH --gpus-per-node=8",
        job_script=bad("world-more-ranks-than-gpus"),
    ),
    well(
        "job_processes_outnumber_gpus",
        "4 GPUs per node, and no more ranks",
        job_script=good("world-more-ranks-than-gpus"),
    ),
    warns(
        "job_gpus_left_idle",
        "line 10: 2 ranks per node, but the job requests 4 GPUs per node",
        "--num_processes $((SLURM_JOB_NUM_NODES * SLURM_GPU",
        job_script=bad("world-processes-of-one-node"),
    ),
    well(
        "job_gpus_left_idle",
        "no GPU is left idle by the number of ranks",
        job_script=good("world-processes-of-one-node"),
    ),
    warns(
        "job_gpus_left_idle",
        "line 8: 2 ranks per node, but the job requests 4 GPUs per node",
        "--num_processes $((SLURM_JOB_NUM_NODES * SLURM_GPU",
        job_script=bad("world-processes-by-arithmetic"),
    ),
    warns(
        "job_gpus_bound_to_tasks",
        "line 4: --gpus-per-task=1: every task sees one GPU, numbered 0",
        "#SBATCH --gpus-per-node=4",
        job_script=bad("gpus-gpus-per-task"),
    ),
    well("job_gpus_bound_to_tasks", "the GPUs are not bound to tasks", job_script=good("gpus-gpus-per-task")),
    informs(
        "job_cpus_not_passed_on",
        "line 10: srun does not repeat --cpus-per-task=32",
        "srun --cpus-per-task=$SLURM_CPUS_PER_TASK ...",
        job_script=bad("gpus-cpus-not-passed-on"),
    ),
    well(
        "job_cpus_not_passed_on", "srun repeats it, or starts no launcher", job_script=good("gpus-cpus-not-passed-on")
    ),
    fails(
        "job_slurm_variable_empty",
        "line 11: $SLURM_GPUS_PER_NODE is empty: the job does not use --gpus-per-node",
        "$SLURM_GPUS_ON_NODE",
        job_script=bad("gpus-variable-of-another-option"),
    ),
    well(
        "job_slurm_variable_empty",
        "all Slurm variables it uses are set",
        job_script=good("gpus-variable-of-another-option"),
    ),
    fails(
        "job_gpu_type_in_a_number",
        "line 11: $SLURM_GPUS_PER_NODE is a100:4, not a number",
        "$SLURM_GPUS_ON_NODE",
        job_script=bad("gpus-type-in-the-number"),
    ),
    well(
        "job_gpu_type_in_a_number",
        "no GPU type is used as a number",
        job_script=good("gpus-type-in-the-number"),
    ),
    warns(
        "job_goes_on_without_a_rank",
        "line 10: a rank that fails on one node leaves the others waiting",
        "srun --kill-on-bad-exit=1 ...",
        job_script=bad("ending-others-go-on"),
    ),
    well(
        "job_goes_on_without_a_rank",
        "a failed task ends the step, or there is one node",
        job_script=good("ending-others-go-on"),
    ),
    warns(
        "job_trap_never_runs",
        "line 9: the trap for USR1 (line 8) runs only after this command ends",
        "srun --kill-on-bad-exit=1 ... &",
        job_script=bad("ending-trap-and-srun-in-front"),
    ),
    well("job_trap_never_runs", "training runs in the background", job_script=good("ending-trap-and-srun-in-front")),
    warns(
        "job_signal_misses_the_trap",
        "line 5: --signal=USR1@300 goes to the ranks, but the trap is here",
        "#SBATCH --signal=B:USR1@300",
        job_script=bad("ending-signal-to-the-steps"),
    ),
    well(
        "job_signal_misses_the_trap",
        "the signal goes to a process that catches it",
        job_script=good("ending-signal-to-the-steps"),
    ),
    warns(
        "job_signal_misses_the_trap",
        "line 5: --signal=B:USR2@300 goes to this shell, which has no trap ",
        "trap 'scontrol requeue \"$SLURM_JOB_ID\"' USR2",
        job_script=bad("ending-signal-to-a-shell-without-trap"),
    ),
    informs(
        "job_requeue_empties_the_log",
        "line 6: the second start overwrites the log of the first",
        "#SBATCH --open-mode=append",
        job_script=bad("ending-log-emptied"),
    ),
    well("job_requeue_empties_the_log", "--open-mode=append", job_script=good("ending-log-emptied")),
    warns(
        "job_secret_in_script",
        "line 8: WANDB_API_KEY is here in plain text",
        "export WANDB_API_KEY=$(cat ~/.wandb_api_key)",
        job_script=bad("settings-token"),
    ),
    well("job_secret_in_script", "no secrets found", job_script=good("settings-token")),
    warns(
        "job_slow_setting_left",
        "line 8: NCCL_IB_DISABLE=1: nodes communicate over Ethernet even if there is",
        "unset NCCL_IB_DISABLE",
        job_script=bad("settings-infiniband-off"),
    ),
    well("job_slow_setting_left", "no fast path is disabled", job_script=good("settings-infiniband-off")),
    informs(
        "job_debug_output_left",
        "line 8: NCCL_DEBUG=INFO writes hundreds of lines per rank",
        "export NCCL_DEBUG=WARN",
        job_script=bad("settings-debugging-output"),
    ),
    well("job_debug_output_left", "no debug output is enabled", job_script=good("settings-debugging-output")),
    # --- with a config
    fails(
        "job_machine_rank_of_config",
        "every node reads machine_rank 0",
        "$SLURM_NODEID",
        job_script=read(STATIC),
        config=config(TWO + "machine_rank: 0\n"),
    ),
    well("job_machine_rank_of_config", "do not read their rank", job_script=read(CONFIGURED), config=config(TWO)),
    well(
        "job_machine_rank_of_config",
        "do not read their rank",
        config=config(TWO),
        job_script=read(STATIC.replace("ds.yaml", "ds.yaml --rdzv_backend c10d")),
    ),
    fails(
        "job_config_has_no_head_address",
        "neither the command line nor the config",
        "--main_process_ip",
        job_script=read(HEADLESS),
        config=config(TWO),
    ),
    well(
        "job_config_has_no_head_address",
        "a rendezvous address",
        job_script=read(HEADLESS),
        config=config(TWO + "main_process_ip: node1\n"),
    ),
    warns(
        "job_config_is_for_another_world",
        "num_machines is 4, but the job has 2 nodes",
        "$SLURM_JOB_NUM_NODES",
        job_script=read(CONFIGURED.replace("--num_machines 2 ", "")),
        config=config("num_machines: 4\n"),
    ),
    warns(
        "job_config_is_for_another_world",
        "is 4, but the job has 2 x 4 GPUs",
        "--num_processes",
        job_script=read(CONFIGURED),
        config=config("num_machines: 2\nnum_processes: 4\n"),
    ),
    well("job_config_is_for_another_world", "fits", job_script=read(CONFIGURED), config=config(TWO)),
    fails(
        "job_deepspeed_starts_by_pdsh",
        "is pdsh (default)",
        "--deepspeed_multinode_launcher standard",
        job_script=read(CONFIGURED),
        config=config(DEEPSPEED),
    ),
    well(
        "job_deepspeed_starts_by_pdsh", "does not start the nodes", job_script=read(CONFIGURED), config=config(STANDARD)
    ),
    # --- what is not known is not judged
    skips("job_launcher_outside_srun", "may start it", job_script=read("#!/bin/bash\ntorchrun train.py\n")),
    well(
        "job_launcher_outside_srun",
        "runs on one node",
        job_script=read("#!/bin/bash\n#SBATCH --nodes=1\ntorchrun train.py\n"),
    ),
    skips("job_processes_outnumber_gpus", "all GPUs", job_script=job("#SBATCH --exclusive", "torchrun train.py")),
    skips("job_cpus_not_passed_on", "heterogeneous:", job_script=job("#SBATCH hetjob", "srun torchrun train.py")),
    skips("job_slurm_variable_empty", "heterogeneous:", job_script=job("#SBATCH hetjob", "srun torchrun train.py")),
    skips("job_syntax_broken", "cannot check zsh", job_script=read("#!/bin/zsh\nfor x (1 2) { echo $x }\n")),
    skips("job_syntax_broken", "did not end", job_script=job_script(syntax_unread="bash -n did not end")),
    fails(
        "job_syntax_broken",
        "unexpected",
        "bash -n 'my job.sh'",
        job_script=job_script(path="my job.sh", syntax="unexpected end of file"),
    ),
    *(
        skips(check, "is not known", job_script=read("#!/bin/bash\nsrun torchrun train.py\n"))
        for check in ("job_nodes_not_told_to_launcher", "job_goes_on_without_a_rank", "job_head_address_missing")
    ),
    skips(
        "job_machine_rank_missing", "not known", job_script=read("#!/bin/bash\nsrun torchrun --nnodes=$N train.py\n")
    ),
    skips("job_syntax_broken", "not read to its end", job_script=read("#!/usr/bin/perl\n#SBATCH -N 2\nprint 1;\n")),
    skips("job_rank_ignored", "not read to its end", job_script=read("#!/usr/bin/perl\n#SBATCH -N 2\nprint 1;\n")),
    skips(
        "job_machine_rank_of_config",
        "not read to its end",
        job_script=read("#!/usr/bin/perl\n#SBATCH -N 2\nprint 1;\n"),
        config=config(TWO),
    ),
    well(
        "job_launcher_outside_srun",
        "srun starts",
        job_script=job(
            "if [ $SLURM_NNODES -gt 1 ]; then srun torchrun --nnodes=2 train.py; else torchrun train.py; fi"
        ),
    ),
    well("job_launcher_outside_srun", "srun starts", job_script=job("mpirun -np 2 torchrun --nnodes=2 train.py")),
    well("job_launchers_several_per_node", "one launcher", job_script=job("srun $ARGS torchrun train.py")),
    fails(
        "job_launchers_several_per_node",
        "8 tasks per node",
        "ntasks-per-node=1",
        job_script=read(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"
            "srun -N $SLURM_NNODES torchrun --nnodes=2 train.py\n"
        ),
    ),
    warns(
        "job_goes_on_without_a_rank",
        "leaves the others waiting",
        "kill-on-bad-exit=1",
        job_script=job("srun -N $SLURM_NNODES torchrun --nnodes=2 train.py"),
    ),
    skips("job_goes_on_without_a_rank", "in a variable", job_script=job("srun $OPTS torchrun --nnodes=2 train.py")),
    skips(
        "job_dash_typographic",
        "not read to its end",
        job_script=read("#!/bin/tcsh\n#SBATCH --nodes=2\nsrun torchrun \u2014nnodes 2 train.py\n"),
    ),
    skips("job_deepspeed_without_hosts", "not known", job_script=read("#!/bin/bash\ndeepspeed train.py\n")),
    well(
        "job_deepspeed_without_hosts", "the nodes are configured", job_script=job("deepspeed --hostfile hosts train.py")
    ),
    well(
        "job_installs_packages_on_every_node",
        "srun installs nothing",
        job_script=job("srun --nodes=1 --ntasks=1 pip install x"),
    ),
    well(
        "job_head_address_is_loopback",
        "no rendezvous host",
        job_script=read(
            "#!/bin/bash\n#SBATCH --nodes=1\nexport MASTER_ADDR=localhost\nsrun torchrun --nnodes=1 train.py\n"
        ),
    ),
    well(
        "job_head_cut_from_short_list",
        "no name is cut",
        job_script=job(
            "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | sed -n 1p)", "srun python train.py"
        ),
    ),
    well(
        "job_head_differs_between_nodes",
        "no node names itself",
        job_script=job(
            "export MASTER_ADDR=$(hostname)", "srun bash -c 'torchrun --nnodes=2 --master_addr $MASTER_ADDR train.py'"
        ),
    ),
    well(
        "job_port_fixed",
        "the job has exclusive nodes",
        job_script=job("#SBATCH --exclusive", "srun torchrun --nnodes=2 --rdzv_endpoint $H:29500 train.py"),
    ),
    well("job_nodes_not_told_to_launcher", "get the number of nodes", job_script=job("srun torchrun $ARGS train.py")),
    well(
        "job_processes_outnumber_gpus",
        "no more ranks",
        job_script=job("srun torchrun --nnodes=2 --nproc_per_node=$GPUS train.py"),
    ),
    skips("job_processes_outnumber_gpus", "not known", job_script=read("#!/bin/bash\ntorchrun train.py\n")),
    skips("job_gpus_left_idle", "not known", job_script=read("#!/bin/bash\ntorchrun train.py\n")),
    well(
        "job_gpus_left_idle",
        "no GPU",
        job_script=job("srun vllm serve x &", "srun torchrun --nnodes=2 --nproc_per_node=3 train.py"),
    ),
    skips(
        "job_gpus_left_idle",
        "share",
        job_script=job("srun torchrun --nproc_per_node=2 a.py &", "srun torchrun --nproc_per_node=2 b.py &", "wait"),
    ),
    skips(
        "job_slurm_variable_empty",
        "does not request resources",
        job_script=read("#!/bin/bash\necho $SLURM_GPUS_PER_NODE\n"),
    ),
    well(
        "job_slurm_variable_empty",
        "are set",
        job_script=read(
            "#!/bin/bash\n#SBATCH --gres=gpu:4\nsrun torchrun --nproc_per_node=${SLURM_GPUS_PER_NODE:-4} train.py\n"
        ),
    ),
    well(
        "job_variable_not_on_node",
        "exported",
        job_script=job("set -a", "HEAD=node1", "srun bash -c 'torchrun --master_addr $HEAD train.py'"),
    ),
    well(
        "job_goes_on_without_a_rank",
        "SLURM_KILL_BAD_EXIT",
        job_script=job("export SLURM_KILL_BAD_EXIT=1", "srun torchrun --nnodes=2 train.py"),
    ),
    skips("job_trap_never_runs", "by hand", job_script=job("trap 'rm -f x' TERM", "srun python train.py")),
    well("job_trap_never_runs", "no trap", job_script=job("trap 'rm -f x' EXIT", "srun python train.py")),
    skips("job_signal_misses_the_trap", "not valid", job_script=job("#SBATCH --signal=:@x", "true")),
    well("job_signal_misses_the_trap", "no signal", job_script=job("true")),
    well(
        "job_signal_misses_the_trap",
        "exec replaces the shell",
        job_script=job("#SBATCH --signal=B:USR1@60", "exec srun python train.py"),
    ),
    well(
        "job_signal_misses_the_trap",
        "a process that catches it",
        job_script=job("#SBATCH --signal=B:10@60", "trap 'touch late' sigusr1", "srun python train.py &", "wait"),
    ),
    warns(
        "job_signal_misses_the_trap",
        "no trap for USR1",
        'requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"',
        job_script=job("#SBATCH --array=1-3", "#SBATCH --signal=B:USR1@60", "srun python train.py"),
    ),
    skips(
        "job_output_folder_missing",
        "only be checked on the cluster",
        job_script=job_script(folders=(JobFolder(3, "%u", None),)),
    ),
    skips("job_output_folder_missing", "logs may exist where the job is submitted: git ignores it", job_script=IGNORED),
    informs(
        "job_output_folder_not_in_repository",
        "line 3: the folder logs for the job's output is not here (git ignores it)",
        "mkdir -p logs",
        job_script=IGNORED,
    ),
    well(
        "job_output_folder_not_in_repository",
        "no folder outside",
        job_script=job_script(folders=(JobFolder(3, "logs", False),)),
    ),
    well("job_output_folder_missing", "folder exists", job_script=job_script(folders=(JobFolder(3, "logs", True),))),
    well("job_secret_in_script", "no secret", job_script=job("export HF_TOKEN=<your token>", "export HF_TOKEN=$TOKEN")),
    well(
        "job_secret_in_script",
        "no secret",
        job_script=job(
            "apptainer exec --nv --pwd /workspace/net img.sif python a.py", "python a.py --token ~/.hf/token"
        ),
    ),
    well(
        "job_secret_in_script",
        "no secret",
        job_script=job(
            'put() { local key="$1"; echo "$key=$2"; }', 'put "HF_DATASETS_CACHE" /data', "key=learning_rate"
        ),
    ),
    warns(
        "job_secret_in_script",
        "line 5: --pwd is",
        '--pwd "$(cat ~/.pwd)"',
        job_script=job("python a.py --pwd Sommer2024/x+"),
    ),
    well(
        "job_output_folder_not_in_repository",
        "no folder outside",
        job_script=job_script(folders=(JobFolder(3, "logs", False, "jobs.py makes it", by_submitter=True),)),
    ),
    well("job_debug_output_left", "no debug", job_script=job("export TORCH_CPP_LOG_LEVEL=INFO", "srun python t.py")),
    informs(
        "job_debug_output_left",
        "line 5: NCCL_DEBUG=INFO writes",
        "WARN",
        job_script=job("export TORCH_CPP_LOG_LEVEL=INFO NCCL_DEBUG=INFO", "srun python t.py"),
    ),
    warns("job_secret_in_script", "line 5: key is", "chmod", job_script=job("key=9f8e7d6c5b4a39281706f5e4")),
    well("job_slow_setting_left", "no fast path", job_script=job("export NCCL_IB_DISABLE=0")),
)


@pytest.mark.parametrize("case", table(CASES))
def test_case(case: Case) -> None:
    case.verify()


def found(script: JobScript, given: Config | None = None) -> set[tuple[str, int | None]]:
    """What all checks on a job script find in one: check and line."""
    wanted = {"job_script", "config"} if given else {"job_script"}
    asked = [check for check in CHECKS.values() if "job_script" in check.facts and wanted >= set(check.facts)]
    outcomes = [one for check in asked for one in engine.run_check(check, Snapshot(job_script=script, config=given))]
    assert [one.answer for one in outcomes if one.status == "crash"] == []
    return {(o.check.id, o.problem.place.line if o.problem.place else None) for o in outcomes if o.problem}


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.name)
def test_the_fault_and_nothing_else(pair: object) -> None:
    assert isinstance(pair, type(pairs()[0]))
    assert pair.expected, "no line of the bad script bears a mark"
    assert found(bad(pair.name)) == pair.expected
    assert found(good(pair.name)) == set()


STARTS = "srun -K1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_id=1"
STARTS += (
    ' --rdzv_endpoint="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p):$((12000 + SLURM_JOB_ID % 20000))"'
)
ON_NODE = (
    "bash -c 'torchrun --nnodes 2 --nproc_per_node 4 --node_rank $SLURM_NODEID --master_addr $A --master_port $B t.py'"
)
MADE = 'A=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)\nB=$((12000 + SLURM_JOB_ID % 20000))'
RIGHT = {
    "shift": f'go() {{ name=$1; shift; srun -K1 torchrun "$@"; }}\ngo first {STARTS[18:]} t.py',
    "export of srun": f"{MADE}\nsrun -K1 --export=ALL,A=$A,B=$B {ON_NODE}",
    "env": f"{MADE}\nsrun -K1 env A=$A B=$B {ON_NODE}",
    "env of a container": f"{MADE}\nsrun -K1 apptainer exec --env A=$A,B=$B x.sif {ON_NODE}",
    "env of docker": f"{MADE}\nsrun -K1 docker run -e A=$A -e B=$B image {ON_NODE}",
    "allexport": f"set -o allexport\n{MADE}\nset +o allexport\nsrun -K1 {ON_NODE}",
    "perhaps exported": f"A=${{A:-n1}}\nB=${{B:-12345}}\nsrun -K1 {ON_NODE}",
    "in the environment": "SLURM_X=1; PATH=/x\nsrun -K1 -N1 bash -c 'torchrun --standalone t.py $PATH$SLURM_X'",
    "first node prepares": f"torchrun --standalone prepare.py\n{STARTS} t.py\naccelerate launch --num_processes 4 t.py",
    "a task for each node": "srun -K1 bash -c 'torchrun --standalone --nproc_per_node 4 t.py --seed $SLURM_PROCID'",
    "bundle": STARTS.replace("-K1", "-lK") + " t.py",
    "threads": f"export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n{STARTS} t.py",
    "set by the step": "srun -K1 -c 8 bash -c 'torchrun --standalone t.py $SLURM_PROCID -j $SLURM_CPUS_PER_TASK'",
    "sentences": 'logger "\u201chello\u201d there" "\u2013 so"\nsed -e \'s/\\ #.*//\' a.txt\n' + f"{STARTS} t.py",
    "comment": f"#SBATCH --comment=\u201cx\u201d\n{STARTS} t.py",
    "parts": f"#SBATCH hetjob\n#SBATCH --gres=gpu:1 --ntasks=8\nsrun python a.py : {STARTS.removeprefix('srun')} t.py",
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_what_is_right(name: str) -> None:
    assert found(job(RIGHT[name])) == set()


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        ("set -a\nA=1\nset +a\nB=2\nsrun -K1 " + ON_NODE, "job_variable_not_on_node"),
        ("go() { r=$1; shift; " + STARTS.replace("_backend=c10d", "_conf=x") + " --node_rank $r $@; }\n"
         "go $SLURM_NODEID t.py", "job_rank_expanded_in_batch_shell"),
        ("srun python serve.py : torchrun --standalone t.py", "job_nodes_not_told_to_launcher"),
        ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n" + STARTS + " t.py", "job_slurm_variable_empty"),
    ],
)  # fmt: skip
def test_what_stands_beside_the_right_is_still_found(lines: str, check: str) -> None:
    assert check in {name for name, _ in found(job(lines))}


def test_a_trap_does_not_wait_for_itself() -> None:
    script = job("#SBATCH --signal=B:USR1@60", "trap 'srun -n1 python save.py' USR1", f"{STARTS} t.py")
    assert ("job_trap_never_runs", 7) in found(script)


def test_all_options_of_sbatch_are_known() -> None:
    lines = "".join(f"#SBATCH --{name}=1\n" for name in sorted(directives.OPTIONS))
    assert "job_directive_unknown" not in {check for check, _ in found(read(f"#!/bin/bash\n{lines}"))}
    assert "job_directive_unknown" in {check for check, _ in found(read(f"#!/bin/bash\n{lines}#SBATCH --nodez=1\n"))}


def test_options_of_pyxis_are_not_misspelled_ones() -> None:
    lines = "".join(f"#SBATCH --{name}=1\n" for name in ("container-image", "container-env", "no-container-mount-home"))
    assert "job_directive_unknown" not in {check for check, _ in found(read(f"#!/bin/bash\n{lines}"))}


def test_every_check_that_needs_the_script_alone_has_a_pair() -> None:
    asked = {check.id for check in CHECKS.values() if check.facts == ("job_script",)}
    of_files = {"job_lines_end_as_on_windows", "job_output_folder_not_in_repository"}  # not of a text alone
    of_files |= {"job_lightning_outside_srun", "job_world_size_wrong"}
    of_files |= {"job_named_file_missing", "job_redirect_folder_missing", "job_local_rank_not_accepted"}
    of_files |= {"job_option_unknown_to_script"}
    assert {name for pair in pairs() for name, _ in pair.expected} == asked - of_files
    assert len({pair.name for pair in pairs()}) == len(pairs()) >= 60


def test_a_config_that_fits_is_found_well() -> None:
    assert found(read(CONFIGURED), config(STANDARD)) == set()
