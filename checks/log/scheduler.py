"""Did Slurm, Docker or Kubernetes reject the job, or stop it?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import shown
from ._slurm_cases import CANCELLED_IN_QUEUE, CANCELLED_STEPS, LATE_STEPS, SHARE_THE_JOB, STEP_WAITS
from .host_memory import host_cases

_STEPD = "https://github.com/SchedMD/slurm/blob/master/src/slurmd/slurmstepd/req.c"
_ERRNO = "https://github.com/SchedMD/slurm/blob/master/src/common/slurm_errno.c"
_SRUN = "https://slurm.schedmd.com/srun.html"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_LIGHTNING = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/plugins/environments/slurm.py"
)


# What LSF's reasons mean (bjobs -l, bhist -l), and who can say why.
_BY_ADMINISTRATOR = frozenset({"TERM_ADMIN", "TERM_FORCE_ADMIN"})


def _who_cancelled(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return the meaning of LSF's reason for an administrator; None for the others, which the row describes."""
    if groups.get("reason") not in _BY_ADMINISTRATOR:
        return None
    return Meaning(
        f"root or an administrator of the cluster killed the job (LSF: {groups['reason']})",
        "The program had not failed. What it prints after the signal (KeyboardInterrupt, a traceback) only shows where "
        "it was then. Usual reasons are a rule of the queue that the job broke, its memory or idle GPUs, or "
        "maintenance of the node.",
        (
            Fix(
                "Ask the administrators why, with the job's number. The job's history has the time, its summary the "
                "memory that it used and requested.",
                ("bhist -l JOBID", "bjobs -l JOBID"),
            ),
            Fix("Resume from the last checkpoint when the reason is known."),
        ),
    )


def _nothing_failed(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the log has no failed task, and Slurm gives none as the reason."""
    reasons = (one.text for one in log.seen if one.signature == "log_slurm_stopped_siblings")
    other = log.fallen or any(not one.caught and not one.of_launcher for one in log.raised)
    return not other and not any("TASK FAILURE" in text or "Terminated" in text for text in reasons)


# fmt: off
_STEP_CANCELLED = Case(
    _nothing_failed,
    "the job step was cancelled, and the log shows neither who did it nor a task that failed before",
    "You or an administrator cancelled it (scancel), the job ended, or another task exited with an error in another "
    "log (srun --kill-on-bad-exit). What the tasks print afterwards is a consequence.",
    Fix("Find out who cancelled it, and how the job ended.",
        ("sacct -j JOBID --format=JobID,State%30,ExitCode,Start,End",)),
    "step 41 loss 0.3\nslurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2025-10-01T10:00:00 ***",
    "https://slurm.schedmd.com/scancel.html")
_SAVED = Case(
    shown("stopped_with_checkpoint"),
    "the run is not finished: Slurm preempted it at {at}; it saved a checkpoint and stopped by itself",
    "No rank failed. The run handled Slurm's signal as it should.",
    Fix("Submit it again. It goes on from the checkpoint.", ("sbatch --requeue --open-mode=append ...",)),
    "slurmstepd: error: *** STEP 220110.0 ON b200-01 CANCELLED AT 2026-07-13T08:41:58 DUE TO PREEMPTION ***\n"
    "Preemption signal seen on at least one rank, saving checkpoint and stopping\n"
    "Checkpoint saved in 32.1 s\n",
    "https://slurm.schedmd.com/preempt.html")
ROWS = (
    Row("log_slurm_time_up", "root", "scheduler", r"CANCELLED AT (?P<at>\S+) DUE TO TIME LIMIT",
        ("slurmstepd: error: *** JOB 123 ON node7 CANCELLED AT 2025-10-01T10:00:00 DUE TO TIME LIMIT ***",
         "slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2025-10-01T10:00:00 DUE TO TIME LIMIT ***"),
        "Slurm stopped the job at {at}: it reached its time limit",
        "Every rank is terminated. What the ranks print then (NCCL errors, SIGTERM) is a consequence.",
        (Fix("Request more time, and check how much the partition allows.",
             ("sbatch --time=24:00:00 ...", "sinfo -o '%P %l'")),
         Fix("Save a checkpoint when Slurm sends its warning, and resume from it.",
             ("sbatch --signal=B:USR1@300 --requeue ...",))),
        _STEPD, summary="Slurm stopped the job because it reached its time limit.", tags=("job_limit",),
        cases=LATE_STEPS),
    Row("log_slurm_preempted", "root", "scheduler", r"CANCELLED AT (?P<at>\S+) DUE TO (?:PREEMPTION|JOB REQUEUE)",
        ("slurmstepd: error: *** JOB 123 ON node7 CANCELLED AT 2025-10-01T10:00:00 DUE TO PREEMPTION ***",
         "slurmstepd: error: *** JOB 99 ON n1 CANCELLED AT 2025-10-01T10:00:00 DUE TO JOB REQUEUE ***"),
        "Slurm removed the job from its nodes at {at}: preempted by a higher-priority job, or requeued",
        "The partition or QOS lets other jobs preempt this one. Every rank is terminated.",
        (Fix("Requeue it, and resume from the last checkpoint.",
             ("sbatch --requeue --open-mode=append ...",)),
         Fix("Or request a QOS that is not preempted.",
             ("sacctmgr show qos format=name,priority,preempt",), who="admin")),
        _STEPD, summary="Slurm removed the job from its nodes for another job, or to requeue it.",
        cases=(_SAVED,)),
    Row("log_slurm_node_failed", "root", "scheduler",
        r"CANCELLED AT \S+ DUE TO NODE FAILURE|(?:srun|salloc): error: Node failure on ",
        ("slurmstepd: error: *** JOB 123 ON node7 CANCELLED AT 2025-10-01T10:00:00 DUE TO NODE FAILURE ***",
         "salloc: error: Node failure on worker-1", "srun: error: Node failure on node7"),
        "a node of the job failed",
        "Slurm lost contact with the node's daemon: it crashed, rebooted or lost its network. The other ranks report "
        "closed connections.",
        Fix("Check why the node is down, and exclude it.",
            ("sinfo -R", "sbatch --exclude=NODE ..."), who="admin"),
        "https://github.com/nebius/soperator/issues/854"),
    Row("log_slurm_stopped_siblings", "secondary", "scheduler",
        r"CANCELLED AT \S+ DUE TO TASK FAILURE|"
        r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ (?:DUE [Tt][Oo] SIGNAL [\w ]+)?\*\*\*|"
        r"srun: error: [^:]*: tasks? [^:]*: Terminated",
        ("error: *** STEP 52222788.0 ON nid002888 CANCELLED AT 2026-04-29T23:36:37 DUE TO TASK FAILURE ***",
         "slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2025-10-01T10:00:00 ***",
         "error: *** STEP 42.0 ON n1 CANCELLED AT 2026-10-01T10:00:00 DUE to SIGNAL Killed ***",
         "srun: error: nid002888: tasks 0-57,59-63: Terminated"),
        "Slurm stopped the other tasks of the step, because one failed or the job was cancelled",
        "srun --kill-on-bad-exit or scancel did it. The task that failed first has the cause.",
        Fix("Find the first failure in the logs of the other tasks.",
            ("sacct -j JOBID --format=JobID,State,ExitCode,NodeList",)),
        "https://github.com/desihub/desispec/issues/2744", effect_of="task_exit", cases=(_STEP_CANCELLED,)),
    Row("log_slurm_cancelled", "root", "scheduler",
        r"\*\*\* JOB (?P<job>\S+) ON \S+ CANCELLED AT (?P<at>\S+) (?:DUE [Tt][Oo] SIGNAL [\w ]+)?\*\*\*",
        ("slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2025-10-01T10:00:00 ***",
         "error: *** JOB 42 ON n1 CANCELLED AT 2026-10-01T10:00:00 DUE to SIGNAL Terminated ***"),
        "job {job} was cancelled with scancel at {at}",
        "You or an administrator cancelled the job, because it hung or for another reason.",
        Fix("Find out who cancelled it.", ("sacct -j {job:id} --format=JobID,State%30,ExitCode",)),
        "https://slurm.schedmd.com/scancel.html", summary="The Slurm job was cancelled.",
        effect_of="job_cancel", cases=CANCELLED_STEPS),
    Row("log_batch_job_cancelled", "root", "scheduler",
        r"(?P<reason>\bTERM_(?:OWNER|FORCE_OWNER|ADMIN|FORCE_ADMIN|REMOVE_HUNG_JOB)\b|"
        r"[Jj]ob (?:was )?(?:deleted|killed) by (?:its |the )?(?:owner|user|operator|administrator)\b)",
        ("TERM_OWNER: job killed by owner.", "TERM_ADMIN: job killed by root or LSF administrator.",
         "Job was killed by the administrator"),
        "the batch system cancelled the job on request (bkill, qdel)",
        "You or an administrator cancelled it, because it hung or for another reason. What the program prints then is "
        "a consequence.",
        Fix("Find out who cancelled it, and when.", ("bhist -l JOBID", "qstat -fx JOBID")),
        "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=bjobs-options", effect_of="job_cancel",
        explain=_who_cancelled),
    Row("log_slurm_out_of_memory", "root", "scheduler",
        r"Detected \d+ oom[_-]kill events? in|\btasks? [\d,-]+: Out Of Memory|"
        r"(?:Exceeded (?:job|step)|(?:Job|StepId=)\S* ?\d* exceeded) memory limit\b|Some of (?:the step tasks|your "
        r"processes) (?:have|may have) been",
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
         "slurmstepd: error: Detected 3 oom-kill event(s) in step 5.batch cgroup. Some of your processes may have been "
         "killed by the cgroup out-of-memory handler.",
         "srun: error: node7: task 0: Out Of Memory", "slurmstepd: error: Exceeded job memory limit at some point."),
        "the job used more host memory than Slurm allocated, and a rank was killed",
        "The job's control group reached its limit. The rank exits with signal 9 (exit code 137) and no traceback.",
        (Fix("Request more memory. --mem=0 requests all memory of the node.", ("sbatch --mem=0 ...",)),
         Fix("Use less: fewer loader workers, and weights loaded on one rank only (fsdp_cpu_ram_efficient_loading).",
             ("mgpu doctor --only memory_small_for_ranks",))),
        "https://github.com/SchedMD/slurm/blob/master/src/plugins/task/cgroup/task_cgroup_memory.c",
        cases=host_cases("the job used more host memory than Slurm allocated",
                         "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.")),
    Row("log_slurm_gres_unknown", "root", "scheduler",
        r"Invalid generic resource \(gres\) specification|Invalid GRES specification",
        ("sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification",
         "sbatch: error: Invalid GRES specification (with and without type identification)"),
        "Slurm has no GPUs of the requested name or type",
        "The GRES has a different name on this cluster, or the partition has none.",
        Fix("Check its name here.", ("sinfo -o '%P %G %N'",)), _ERRNO),
    Row("log_slurm_request_too_large", "root", "scheduler",
        r"Requested node configuration is not available|Insufficient GRES available in allocation|"
        r"More processors requested than permitted|Requested nodes? count is not available|"
        r"Memory specification can not be satisfied",
        ("srun: error: Unable to create step for job 42: Insufficient GRES available in allocation",
         "sbatch: error: Batch job submission failed: Requested node configuration is not available",
         "srun: error: Unable to create step for job 7: More processors requested than permitted",
         "srun: error: Unable to create step for job 7: Memory specification can not be satisfied"),
        "the request exceeds what a node or this allocation has",
        "The request for GPUs, CPUs or memory is larger than a node. For a step, it is larger than the job.",
        Fix("Compare the request with the nodes, and a step with its job.",
            ("sinfo -o '%N %c %m %G'", "scontrol show job $SLURM_JOB_ID")), _ERRNO),
    Row("log_slurm_account_refused", "root", "scheduler",
        r"Invalid qos specification|Invalid account or account/partition combination|Invalid partition name specified|"
        r"violates accounting/QOS policy|Requested time limit is invalid|No partition specified or system default",
        ("sbatch: error: Batch job submission failed: Invalid qos specification",
         "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "sbatch: error: invalid partition specified: gpux, Invalid partition name specified",
         "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
         "size and/or time limits)", "srun: error: Requested time limit is invalid (missing or exceeds some limit)"),
        "Slurm rejects the account, QOS, partition or time limit of the request",
        "Your account is not associated with it, or exceeds one of its limits. No rank was started.",
        Fix("Check what you can use.",
            ("sacctmgr show assoc user=$USER format=account,partition,qos", "sinfo -o '%P %l'")), _ERRNO),
    Row("log_slurm_variables_clash", "root", "scheduler",
        r"(?P<what>cpus-per-task|gpus-per-task) set by two different environment variables",
        ("srun: fatal: cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK=16 != "
         "SLURM_TRES_PER_TASK=cpu=8",),
        "variables of another Slurm job contradict this one's: {what}",
        "The job was submitted from inside another allocation and inherited its SLURM_* variables.",
        Fix("Submit without these variables.",
            ("unset SLURM_TRES_PER_TASK SLURM_CPUS_PER_TASK", "sbatch --export=NONE ...")),
        _SRUN, summary="Variables of another Slurm job contradict those of this one."),
    Row("log_slurm_task_not_started", "root", "scheduler",
        r"Task launch for (?:StepId=)?[\d.]+ failed on node (?P<node>\S+): (?P<reason>.+)",
        ("srun: error: Task launch for StepId=125452.4 failed on node n1: Unable to layout tasks on given cpus",
         "srun: error: Task launch for 42.0 failed on node node7: Invalid job credential"),
        "Slurm could not start the task on {node}: {reason}",
        "The node's daemon rejected the step before any program ran.",
        (Fix("Unable to layout tasks: set the number of CPUs per task, and do not bind.",
             ("srun --cpus-per-task=$SLURM_CPUS_PER_TASK --cpu-bind=none ...",)),
         Fix("Invalid job credential: clocks or keys of the nodes differ.", ("timedatectl", "munge -n | unmunge"),
             who="admin")),
        "https://github.com/snakemake/snakemake-executor-plugin-slurm/issues/225",
        summary="Slurm could not start the task on a node."),
    Row("log_slurm_step_waits", "secondary", "scheduler",
        r"Job (?:\d+ )?step creation temporarily disabled, retrying|"
        r"Unable to create step for job \d+: Requested nodes are busy",
        ("srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)",
         "srun: Job 4711 step creation temporarily disabled, retrying (Requested nodes are busy)",
         "srun: error: Unable to create step for job 42: Requested nodes are busy"),
        "the step waits: another step of the same job uses its CPUs, GPUs or memory",
        "srun inside srun, or two parallel steps, each request the whole job. The second one never starts.",
        SHARE_THE_JOB, _SRUN, tags=("before_ranks", "until_step_created"), cases=(STEP_WAITS,)),
    Row("log_slurm_unreachable", "root", "scheduler",
        r"Unable to contact slurm controller|slurm_receive_msg: Socket timed out|"
        r"^(?!.*(?:launch.* failed|slurm_receive_msgs: \[\[)).*Socket timed out on send/recv operation|"
        r"Unable to confirm allocation for job",
        ("srun: error: Unable to confirm allocation for job 42: Unable to contact slurm controller (connect failure)",
         "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
         "srun: error: Unable to confirm allocation for job 4711: Invalid job id specified"),
        "Slurm's controller did not respond, or has no record of the job",
        "It is overloaded or down, or SLURM_JOB_ID is left over from a finished job. No rank was started.",
        Fix("Check whether it answers, and unset the variables of an old job.",
            ("scontrol ping", "unset SLURM_JOB_ID")),
        _ERRNO),
    Row("log_slurm_script_unreadable", "root", "scheduler", r"Batch script contains DOS line breaks",
        (r"sbatch: error: Batch script contains DOS line breaks (\r\n)",),
        "the batch script has Windows line endings",
        "sbatch rejects it before anything runs.",
        Fix("Convert the line endings.", ("sed -i 's/\\r$//' SCRIPT.sbatch",)), _SBATCH),
    Row("log_slurm_job_over", "secondary", "scheduler",
        r"Job/step already completing or completed|Job allocation \d+ has been revoked",
        ("srun: error: Unable to create step for job 42: Job/step already completing or completed",
         "srun: Force Terminated job 42; Job allocation 42 has been revoked"),
        "the allocation ended before the step started",
        "The job reached its time limit or was cancelled, and a step came too late.",
        Fix("Check how the job ended.", ("sacct -j JOBID --format=JobID,State,ExitCode,Timelimit,Elapsed",)), _ERRNO,
        cases=(CANCELLED_IN_QUEUE,)),
    Row("log_slurm_task_failed", "wrapper", "scheduler",
        r"srun: error: \S+: tasks? [\d,-]+: (?:Exited with exit code|Killed|Aborted)",
        ("srun: error: node7: task 0: Exited with exit code 1",
         "srun: error: node7: tasks 0-3: Exited with exit code 1", "srun: error: node8: task 1: Killed"),
        "a task of the Slurm step failed; the cause is in its own output",
        "srun reports how a task ended, not why.",
        Fix("Read the task's own log, starting at its first error.",
            ("srun --label --output=%x-%j-%t.log ...",)), _SRUN, effect_of="task_exit", tags=("exit_only",)),
    Row("log_lightning_tasks_mismatch", "root", "scheduler",
        r"but the number of (?:tasks per node|nodes) configured in SLURM|"
        r"in your SLURM bash script, but this variable is not supported",
        ("ValueError: You set `devices=4` in Lightning, but the number of tasks per node configured in SLURM "
         "`--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
         "RuntimeError: You set `--ntasks=8` in your SLURM bash script, but this variable is not supported. HINT: Use "
         "`--ntasks-per-node=8` instead."),
        "Lightning needs one Slurm task per GPU, but the job has a different number",
        "Under Slurm, Lightning does not start ranks. srun must start one for each device.",
        Fix("Request as many tasks per node as devices, and start the script with srun.",
            ("sbatch --nodes=N --ntasks-per-node=GPUS --gpus-per-node=GPUS ...", "srun python train.py")),
        _LIGHTNING),
    Row("log_lightning_more_tasks_than_devices", "root", "scheduler",
        r"^\s*return self\.parallel_devices\[self\.local_rank\]",
        ("            return self.parallel_devices[self.local_rank]",),
        "a node has more tasks than Lightning has devices there: this rank's local rank has no device",
        "Lightning reads the local rank from Slurm (or torchrun). The job starts more tasks per node than devices=N in "
        "the Trainer, or a task sees fewer GPUs than the node has.",
        Fix("Set devices to the number of tasks per node, and let every task see all of the job's GPUs there.",
            ("Trainer(devices=4, num_nodes=2)", "sbatch --ntasks-per-node=4 --gpus-per-node=4 ...",
             "srun --gpu-bind=none nvidia-smi -L")), _LIGHTNING),
    Row("log_lightning_without_srun", "secondary", "scheduler",
        r"`srun` command is available on your system but is not used",
        ("PossibleUserWarning: The `srun` command is available on your system but is not used.",),
        "Lightning runs in a Slurm job without srun: it waits for ranks that were never started",
        "It detects Slurm's variables and expects one task per GPU. Without srun there is only one.",
        Fix("Start it with srun, or unset the variables for an interactive run.",
            ("srun python train.py", "SLURM_JOB_NAME=bash python train.py")), _LIGHTNING, tags=("last_lines",)),
    Row("log_container_killed_for_memory", "root", "scheduler",
        r"\bOOMKilled\b(?!\"?: ?false)|[Tt]he node was low on resource: memory",
        ("    Reason:       OOMKilled",
         "Status: Failed  Reason: Evicted  Message: The node was low on resource: memory. Threshold quantity: 100Mi"),
        "the container was killed or evicted: it used more memory than Kubernetes allows",
        "The container reached its limit. The ranks exit with code 137 and no traceback.",
        (Fix("Raise its limit.", ("kubectl describe pod POD | grep -A3 Limits",)),
         Fix("A memory volume at /dev/shm also counts toward the limit.",
             ("kubectl exec POD -- df -h /dev/shm",))),
        "https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/"),
    Row("log_docker_without_gpus", "root", "scheduler",
        r"could not select device driver .* with capabilities: \[\[gpu\]\]|(?:unknown or invalid runtime name:|"
        r"Unknown runtime specified) nvidia|"
        r"nvidia-container-cli: initialization error(?!.*(?:[Dd]river/library version mismatch|WSL environment))",
        ('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
         "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
         "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown"),
        "Docker cannot pass GPUs to a container here",
        "The NVIDIA container toolkit is not installed or not configured in Docker, or the host's driver is not "
        "loaded. The container never starts.",
        Fix("Install the toolkit and configure Docker to use it.",
            ("sudo apt-get install -y nvidia-container-toolkit",
             "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
             "docker run --rm --gpus all ubuntu nvidia-smi"), who="admin"),
        "https://github.com/NVIDIA/nvidia-docker/issues/1034", because_of=("log_driver_mismatch",)),
    Row("log_image_not_pulled", "root", "scheduler",
        r"\bURL \S+ returned error code: 4(?:01|03|04|29)\b|Could not process JSON input|"
        r"pull access denied for|manifest unknown|manifest for \S+ not found|unauthorized: (?:authentication|access)|"
        r"toomanyrequests:|FATAL: .*(?:conveyor failed to get|unable to retrieve auth token)",
        ("slurmstepd: error: pyxis:     [ERROR] URL https://registry.example.org/v2/team/train/manifests/1.0 returned "
         "error code: 401 Unauthorized",
         "slurmstepd: error: pyxis:     [ERROR] Could not process JSON input",
         "docker: Error response from daemon: pull access denied for team/train, repository does not exist or may "
         "require 'docker login'",
         "docker: Error response from daemon: manifest unknown"),
        "the container's image could not be pulled from its registry",
        "The image's name or tag is wrong, or the registry wants other credentials (401, 403; a private image often "
        "looks like 404), or it limits anonymous downloads (429). The container never started.",
        (Fix("Check name and tag, and store the registry's credentials.",
             ("enroot import docker://IMAGE  # private: docker://USER@REGISTRY#IMAGE",
              "ls -l ${{ENROOT_CONFIG_PATH:-~/.config/enroot}}/.credentials", "docker login REGISTRY")),
         Fix("Import it once to a shared folder, and start that file.",
             ("enroot import -o /shared/image.sqsh docker://IMAGE", "srun --container-image=/shared/image.sqsh ..."))),
        "https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md"),
    Row("log_container_not_started", "root", "scheduler",
        r"pyxis: (?:container start failed|couldn't start container)|nvidia-container-cli: "
        r"(?!initialization error|device error|requirement error|mount error: (?:failed to add device|file creation))"
        r"[\w ]*error|"
        r"/etc/enroot/hooks\.d/\S+ exited with return code|"
        r"FATAL: +(?!.*(?:to mount list|doesn't exist|could not open image|squashfuse))"
        r".*(?:container|image) .*(?:fail|unable|not found)",
        ("slurmstepd: error: pyxis: container start failed with error code: 1",
         "slurmstepd: error: pyxis:     nvidia-container-cli: container error: file lookup failed: /proc/4711/root/x: "
         "permission denied",
         "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1"),
        "the container did not start on this node",
        "Its image, a mount, or the NVIDIA hook of the node failed: an image that was not fetched, permissions, an "
        "old container toolkit, no space. The lines before it say which. The job's program never ran.",
        (Fix("Start the container alone on that node.",
             ("srun -w NODE --container-image=IMAGE nvidia-smi", "enroot start --root CONTAINER nvidia-smi")),
         Fix("Upgrade libnvidia-container, and check the permissions of enroot's folders.",
             ("nvidia-container-cli --version", "mgpu doctor --only container"), who="admin")),
        "https://github.com/NVIDIA/enroot/issues/234",
        because_of=("log_image_not_pulled", "log_image_import_failed", "log_container_mount_missing",
                    "log_enroot_folder_not_writable", "log_container_program_missing", "log_image_wants_newer_driver",
                    "log_container_device_rules", "log_container_gpu_unknown", "log_image_contains_driver",
                    "log_wsl_without_gpus", "log_driver_mismatch", "log_disk_full")),
    Row("log_lsf_job_exited", "wrapper", "scheduler", r"^Exited with exit code (?P<code>[1-9]\d{0,2})\.$",
        ("Exited with exit code 1.",),
        "LSF reports that the job's program failed with exit code {code}; no known error of the program is in this log",
        "LSF writes this summary below the job's output. If the job has a file of its own for errors (bsub -e), the "
        "last line of the summary names it: Read file <FILE> for stderr output of this job.",
        Fix("Read that file.", ("grep 'for stderr output of this job' LOG | tail -n 1",
                                "mgpu doctor --log FILE.err")),
        "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=reference-bsub",
        tags=("exit_only",), summary="LSF reports that the job's program failed."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
