"""Did a job or its shell fail before a rank started?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import from_several_ranks, line_of, shown
from ._slurm_cases import REASONS, SPOOLED_FIXES, SPOOLED_WHY
from .commands import IN_SHELL

_ERRNO = "https://github.com/SchedMD/slurm/blob/master/src/common/slurm_errno.c"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_TROUBLE = "https://slurm.schedmd.com/troubleshoot.html"
# What rows of scheduler.py explain.
_EXPLAINED = (
    r"(?!.*(?:Invalid generic resource|Invalid GRES|Requested node configuration|Insufficient GRES|More processors "
    r"requested|count is not available|Memory specification|Invalid qos|Invalid account|Invalid partition|violates "
    r"accounting|Requested time limit|slurm controller|Socket timed out|Invalid job id|Requested nodes are busy|"
    r"already completing|[Aa]uthentication))"
)
_NOT_THERE = (
    r"^(?=.*(?i:\bmissing|not found|no such file|not exist|n't open|not a directory|cannot (?:open|find|access|stat)))"
)
# fmt: off
_FOLDER_OF_CONTAINER = Case(
    from_several_ranks("log_slurm_working_folder_missing"),
    "the job's working folder {folder} does not exist on several nodes, so Slurm starts the tasks in /tmp",
    "It is probably a folder inside of the container, which Slurm looks for on the host (then the message is "
    "harmless), or its disk is not mounted on these nodes. Relative paths then fail.",
    (Fix("If it is a folder of the container, name it to the container.",
         ("srun --container-workdir={folder:path} --chdir=/tmp ...",)),
     Fix("Otherwise use a folder on a shared disk.", ("srun ls -ld {folder:path}", "sbatch --chdir=FOLDER ..."))),
    "0: slurmstepd: error: couldn't chdir to `/workspace': No such file or directory: going to /tmp instead\n"
    "4: slurmstepd: error: couldn't chdir to `/workspace': No such file or directory: going to /tmp instead\n"
    "8: slurmstepd: error: couldn't chdir to `/workspace': No such file or directory: going to /tmp instead\n"
    "0: the program begins\n",
    "https://github.com/NVIDIA/pyxis/wiki/Usage")
_BASHRC_READ = Case(
    shown("bashrc_was_read"),
    "the job's script could not activate the Python environment",
    "The shell read .bashrc, but the part that `conda init` writes there is missing or failed, or the environment does "
    "not exist on this node. Without `set -e` the script goes on with another Python, and packages are missing.",
    Fix("Load conda in the script, or call the environment's Python by its path.",
        ('eval "$(conda shell.bash hook)"; conda activate NAME', "conda env list", "grep -n conda ~/.bashrc",
         "/path/to/env/bin/python -m torch.distributed.run ...")),
    "/home/ada/.bashrc: line 7: rbenv: command not found\nCondaError: Run 'conda init' before 'conda activate'\n",
    "https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html")
_NO_FOLDER = Case(
    line_of("log_environment_not_active", r"^(?!.*(?:conda|miniforge|mambaforge)).* /\S*/bin/activate: No such file"),
    "the environment that the job's script activates does not exist on this node",
    "Its folder was moved or removed, is on a disk that is not mounted here, or was never made: a step before that "
    "should make it on each node's own disk (/tmp) did not run or failed. Without `set -e` the script goes on with "
    "another Python, and packages are missing.",
    (Fix("Look for the folder, on a cluster on the nodes of the job.",
         ("ls -l FOLDER/bin/activate", "srun --ntasks-per-node=1 ls -l FOLDER/bin/activate")),
     Fix("If the script should make it, do that in each node's own step, and stop if it fails.",
         ("set -eo pipefail", "srun --ntasks-per-node=1 bash -c 'python -m venv /tmp/ENV && /tmp/ENV/bin/pip install "
                              "-r requirements.txt'"))),
    "job.sh: line 5: /home/u/venv/bin/activate: No such file or directory\n",
    "https://docs.python.org/3/library/venv.html")
ROWS = (
    Row("log_job_reports_exit", "wrapper", "launcher",
        r"^\W{0,4}(?:(?:ERROR|Error|FAILED|FAIL)\W{1,3})?(?:(?:[\w.-]{1,20} ){0,3}?(?i:training|job|script|run|phase|"
        r"stage|program|python|torchrun|deepspeed|accelerate|experiment|evaluation|benchmark|sweep|srun|pipeline)\b"
        r"[\w /.-]{0,40}\b(?:failed|exited|crashed|died|finished|ended|completed)\b[\w ]{0,15}?\bwith (?:exit )?"
        r"(?:code|status)|(?:(?i:job|training|script|run|process|program|python|final) )?(?:EXIT[ _]?CODE|[Ee]xit_code)"
        r"|(?i:job|training|script|run|process|program|python|final) exit (?:code|status))"
        r"[ :=]{1,3}(?P<code>[1-9]\d{0,2})\b\W*$",
        ("ERROR: Training failed with exit code 2", "Phase 1 exited with status 1", "EXIT_CODE=1",
         "Final exit code: 1"),
        "the job script reports that its program failed with exit code {code}; no known error of the program is in "
        "this log",
        "The script prints its own lines to this file. The program's errors (stderr) are in another one: Slurm's "
        "--error=FILE, a file that 2> names, or each rank's own log.",
        Fix("Read the other file.",
            ("scontrol show job JOBID | grep -E 'StdErr|StdOut'", "ls -t *.err logs/*.err | head",
             "mgpu doctor --log FILE.err")), _SBATCH,
        tags=("exit_only", "last_lines"), summary="The job script reports that its program failed."),
    Row("log_path_in_slurm_spool", "root", "launcher",
        _NOT_THERE + r".*?(?P<path>/[\w./-]{0,80}slurm[\w./-]{0,40}/job\d+/(?!slurm_script\b)[\w.][^\s:'\"]*)",
        ("Missing job script: /var/spool/slurmd/job26948773/slurm/train.slurm",
         "ERROR: config not found: /var/spool/slurm/d/job17/../configs/a.yaml"),
        "the job looks for a file next to Slurm's copy of the job script: {path}",
        SPOOLED_WHY, SPOOLED_FIXES, _SBATCH,
        summary="The job looks for a file next to Slurm's copy of the job script."),
    Row("log_slurm_refused", "root", "scheduler",
        r"(?:sbatch|srun|salloc): error: (?:Batch job submission failed|Unable to allocate resources|"
        r"Unable to create step for job \d+|Job submit/allocate failed): " + _EXPLAINED + r"(?P<reason>.+)",
        ("sbatch: error: Batch job submission failed: Node count specification invalid",
         "salloc: error: Job submit/allocate failed: Unspecified error",
         "srun: error: Unable to create step for job 12: Invalid Trackable RESource (TRES) specification"),
        "Slurm rejected the job or the step: {reason}",
        "No rank was started. The request contradicts itself, the cluster's limits, or the job that the step is in.",
        Fix("Compare the request with the partition, and with the job.",
            ("sinfo -o '%P %l %D %G'", "scontrol show job $SLURM_JOB_ID", "sbatch --test-only SCRIPT")), _ERRNO,
        summary="Slurm rejected the job or the step.", cases=REASONS),
    Row("log_slurm_program_missing", "root", "scheduler",
        r"error: execve\(\): (?!\S*/\S+\.(?:sh|bash|slurm|sbatch): No such).+: (?:No such file or directory|Permission "
        r"denied|Exec format error)|"
        r"srun: fatal: Can not execute ",
        ("slurmstepd: error: execve(): torchrun: No such file or directory",
         "slurmstepd: error: execve(): /home/u/run.sh: Permission denied",
         "srun: fatal: Can not execute /opt/conda/bin/python"),
        "Slurm could not start a program on a node: it does not exist there, or cannot be executed",
        "The environment is not active in the job, the path is on a disk that the node does not mount, or the file "
        "has no execute permission. With pyxis, srun looks for a full path on the host too.",
        (Fix("Start it by the interpreter's full path, after activating the environment in the job's script.",
             ("srun bash -c 'which python torchrun; hostname'", "srun python -m torch.distributed.run ...")),
         Fix("For a script of your own, make it executable.", ("chmod +x run.sh; head -n 1 run.sh",))), _SBATCH,
        because_of=("log_slurm_working_folder_missing", "log_conda_folder_missing", "log_environment_not_active",
                    "log_module_not_loaded")),
    Row("log_slurm_step_script_missing", "root", "scheduler",
        r"error: execve\(\): (?P<script>\S*/\S+\.(?:sh|bash|slurm|sbatch)): No such file or directory",
        ("slurmstepd: error: execve(): /scratch/ada/prepare.sh: No such file or directory",),
        "a script that the job starts with srun does not exist on its nodes: {script}",
        "It was moved or renamed, or its disk is not mounted there. A script whose first line (#!) names a missing "
        "interpreter gives the same message. A job script without `set -e` goes on, and what this script should have "
        "made (an environment, a server, files) is then missing too.",
        (Fix("Look for it on the nodes of the job, and correct its path in the job script.",
             ("srun --ntasks-per-node=1 ls -l {script:path}", "head -n 1 {script:path}", "grep -n srun JOB.sh")),
         Fix("Let the job script stop at the first failed command.", ("set -euo pipefail",))), _SBATCH,
        because_of=("log_slurm_working_folder_missing",),
        summary="A script that the job starts with srun does not exist on its nodes."),
    Row("log_slurm_working_folder_missing", "secondary", "scheduler", r"couldn't chdir to [`'](?P<folder>[^']+)'",
        ("slurmstepd: error: couldn't chdir to `/home/u/proj': No such file or directory: going to /tmp instead",),
        "the job's working folder {folder} does not exist on a node, so it runs in /tmp",
        "The file system is not mounted there, or you have no permission. Relative paths then fail.",
        Fix("Check the folder on that node, and exclude the node.",
            ("srun -w NODE ls -ld {folder:path}", "sbatch --chdir=FOLDER --exclude=NODE ...")), _SBATCH,
        summary="The job's working folder does not exist on a node.", tags=("before_ranks",),
        cases=(_FOLDER_OF_CONTAINER,)),
    Row("log_slurm_credentials", "root", "scheduler",
        r"Munge (?:decode|encode) failed|Unable to contact munge|Protocol authentication error|"
        r"Zero Bytes were transmitted or received|auth_g_(?:verify|pack)\w*: .*[Ii]nvalid|"
        r"If munged is up, restart with",
        ("srun: error: Munge decode failed: Expired credential",
         "slurmstepd: error: Unable to contact munge daemon", "srun: error: slurm_receive_msgs: Zero Bytes were "
                                                              "transmitted or received",
         "sbatch: error: Batch job submission failed: Protocol authentication error"),
        "Slurm's nodes do not accept each other's credentials (munge)",
        "The clocks differ by more than some minutes, munge does not run, or a container lacks its socket.",
        (Fix("Compare the clocks, and check munge on the node.",
             ("timedatectl", "munge -n | unmunge", "systemctl status munge"), who="admin"),
         Fix("Inside a container, mount the socket.", ("docker run -v /run/munge:/run/munge ...",))), _TROUBLE),
    Row("log_slurm_prolog_failed", "root", "scheduler",
        r"launch[_ ]failed[_ ]requeued[_ ]held|Prolog (?:hung|failed)|TaskProlog failed|"
        r"error: .*[Pp]rolog (?:failed|exited|error)|Job launch failed due to .*prolog",
        ("JobState=PENDING Reason=launch_failed_requeued_held", "srun: error: Prolog hung on node gpu2",
         "slurmstepd: error: TaskProlog failed status=1"),
        "a node failed its checks before the job (Slurm's prolog), so the job was not started or was held",
        "Clusters test GPUs, disks and mounts there. The node is usually drained afterwards.",
        (Fix("Release the job, without that node.",
             ("scontrol update JobId=JOBID ExcNodeList=NODE", "scontrol release JOBID")),
         Fix("Read why the node is drained.", ("sinfo -R",), who="admin")), _TROUBLE),
    Row("log_slurm_unkillable", "secondary", "scheduler",
        r"STEPD TERMINATED ON \S+ AT \S+ DUE TO JOB NOT ENDING WITH SIGNALS|\bKill task failed\b",
        ("slurmstepd: error: *** STEP 12.0 STEPD TERMINATED ON n1 AT 2025-01-01T10:00:00 DUE TO JOB NOT ENDING WITH "
         "SIGNALS ***", "Reason=Kill task failed"),
        "processes of the job did not end although Slurm killed them",
        "They wait in the kernel for a GPU, its driver or a file server. Slurm drains the node.",
        Fix("Find out what they wait for, and reboot the node.",
            ("ps -eo pid,stat,wchan:30,cmd | grep ' D'", "sudo dmesg -T | grep -iE 'xid|nfs|blocked'"), who="admin"),
        _TROUBLE),
    Row("log_slurm_script_missing", "root", "scheduler",
        r"(?:sbatch|srun|salloc): error: (?:Unable to open file |This does not look like a batch script)",
        ("sbatch: error: Unable to open file train.sbatch",
         "sbatch: error: This does not look like a batch script.  The first"),
        "sbatch cannot read the batch script: it does not exist here, or its first line is not #!",
        "sbatch expects a shell script. A command needs --wrap.",
        Fix("Start the file with an interpreter, or wrap the command.",
            ("head -n 1 SCRIPT  # must be #!/bin/bash", "sbatch --wrap 'python train.py'")), _SBATCH),
    Row("log_slurm_option_unknown", "root", "scheduler",
        r"(?:srun|sbatch|salloc): (?:unrecognized option '(?!--(?:no-)?container-)[^']+'|"
        r"invalid option -- ')",
        ("sbatch: unrecognized option '--gpu=8'", "srun: invalid option -- 'G'"),
        "Slurm does not know an option of the command or of a #SBATCH line",
        "It is misspelled, or this cluster's Slurm is older than the option.",
        Fix("Check the options and the version.", ("sbatch --help | grep -i gpu", "sbatch --version")), _SBATCH),
    Row("log_environment_not_active", "root", "launcher",
        r"Your shell has not been properly configured to use 'conda|Could not find conda environment: |"
        r"EnvironmentLocationNotFound|(?:/bin/|line \d+: )activate: No such file or directory|"
        r"conda: (?:command )?not found|Run 'conda init' before 'conda activate'",
        ("CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
         "EnvironmentNameNotFound: Could not find conda environment: train",
         "job.sh: line 5: /home/u/venv/bin/activate: No such file or directory",
         "CondaError: Run 'conda init' before 'conda activate'",
         "/var/spool/slurm/d/job61253/slurm_script: line 37: activate: No such file or directory"),
        "the job's script could not activate the Python environment",
        "A batch shell does not read .bashrc, or the environment does not exist on this node. Without `set -e` the "
        "script goes on with another Python, and packages are missing.",
        Fix("Load conda in the script, or call the environment's Python by its path.",
            ('eval "$(conda shell.bash hook)"; conda activate NAME', "conda env list",
             "/path/to/env/bin/python -m torch.distributed.run ...")),
        "https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html", tags=("before_ranks",),
        because_of=("log_slurm_step_script_missing",), cases=(_BASHRC_READ, _NO_FOLDER)),
    Row("log_folder_not_entered", "secondary", "launcher",
        rf"{IN_SHELL}cd: (?=can't cd to |.*: (?:No such file or directory|Not a directory|Permission denied)$)"
        r"(?:can't cd to )?(?P<folder>[^:]+)(?:: .*)?$",
        ("/var/spool/slurmd/job123/slurm_script: line 22: cd: ../tools/: No such file or directory",
         "train.sh: 3: cd: can't cd to /data/code", "bash: line 1: cd: run: Not a directory"),
        "the job's script could not change to the folder {folder}, and went on in another one",
        "The folder does not exist on this node, or an earlier cd had led somewhere else. Without `set -e` a script "
        "goes on, and every relative path after it is wrong.",
        (Fix("Use the full path, and let the script stop if it fails.",
             ("set -e", 'cd "$SLURM_SUBMIT_DIR"', "ls -ld {folder:path}")),), "https://www.gnu.org/software/bash/manual/bash.html#The-Set-Builtin",
        summary="The job's script could not change to a folder.", tags=("before_ranks",)),
    Row("log_accelerate_config_missing", "root", "launcher",
        r"The passed configuration file `?(?P<path>[^`\s]+)`? does not exist\. Please pass an existing file to",
        ("FileNotFoundError: The passed configuration file `conf/fsdp.yaml` does not exist. Please pass an existing "
         "file to `accelerate launch`, or use the default one created through `accelerate config`",),
        "the config file for accelerate launch does not exist: {path}",
        "--config_file names it. A relative path starts at the folder in which the launcher runs: the folder of the "
        "job script, or where its last cd led.",
        (Fix("Check the path from that folder, on this node.", ("pwd; ls -l {path:path}",)),
         Fix("Or create a config.", ("mgpu configure", "accelerate config --config_file {path:path}"))),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/config/config_args.py",
        because_of=("log_folder_not_entered", "log_slurm_working_folder_missing"),
        summary="The config file that accelerate launch was given does not exist."),
    Row("log_pdsh_arguments_missing", "root", "launcher", r"KeyError: 'PDSH_SSH_ARGS_APPEND'",
        ("KeyError: 'PDSH_SSH_ARGS_APPEND'",),
        "DeepSpeed's launcher (before 0.14.1) fails with --ssh_port: PDSH_SSH_ARGS_APPEND is not set",
        "It adds the port to a variable that does not exist.",
        Fix("Set the variable, or upgrade DeepSpeed.",
            ("export PDSH_SSH_ARGS_APPEND=''", "pip install --upgrade deepspeed")),
        "https://github.com/deepspeedai/DeepSpeed/pull/5318"),
    Row("log_module_not_loaded", "root", "launcher",
        r"module: command not found|[Tt]he following module\(s\) are unknown|"
        r"Unable to locate a modulefile for '|"
        r"These module\(s\)(?: or extension\(s\))? exist but cannot be loaded as requested",
        ("bash: module: command not found",
         'Lmod has detected the following error:  The following module(s) are unknown: "cuda/12.9"',
         "ERROR: Unable to locate a modulefile for 'cuda/12.9'"),
        "an environment module (CUDA, Python, NCCL) was not loaded",
        "It does not exist under this name on this node, or the shell was not set up for modules. The script goes on "
        "without it.",
        Fix("Check its name on a compute node.", ("srun bash -lc 'module avail cuda'", "#!/bin/bash -l")),
        "https://lmod.readthedocs.io/en/latest/", tags=("before_ranks",)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
