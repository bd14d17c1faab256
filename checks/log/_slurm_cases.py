"""What does Slurm's reason for a rejected or cancelled job mean, and a path in its spool folder? Cases of rows."""

from __future__ import annotations

from dataclasses import replace

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import every, line_of

_ERRNO = "https://github.com/SchedMD/slurm/blob/master/src/common/slurm_errno.c"
_SRUN = "https://slurm.schedmd.com/srun.html"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_ID = "log_slurm_refused"
_BETWEEN = 2  # lines of Slurm itself


def _step_waited(log: Log, raised: UncaughtException | None) -> bool:
    """Whether srun still waited to start a step when Slurm ended the job: nothing was printed in between."""
    waits = [one for one in log.seen if one.signature == "log_slurm_step_waits"]
    ends = [one for one in log.seen if one.signature in ("log_slurm_cancelled", "log_slurm_time_up")]
    started = any(one.name == "slurm_step_created" for one in log.shows)
    if started or log.last_step is not None or log.raised or len(waits) != 1 or not ends:
        return False
    still = [one.last for one in log.shows if one.name == "slurm_step_still_waits"]
    between = min(one.line for one in ends) - max(waits[0].line, *still, 0) - 1
    return waits[0].file == ends[0].file and 0 <= between <= _BETWEEN


_FOR_OTHER_REASON = line_of("log_slurm_step_waits", r"retrying \((?!Requested nodes are busy)")

# fmt: off
SPOOLED_WHY = (
    "sbatch copies the job script to a folder of its own (/var/spool/slurmd/jobN/slurm_script) and runs the copy. $0, "
    "BASH_SOURCE and dirname name that folder, which has none of the files next to the original.")
SPOOLED_FIXES = (
    Fix("Start from the folder in which sbatch ran, or use absolute paths.",
        ("cd \"$SLURM_SUBMIT_DIR\"", "grep -nE 'dirname|BASH_SOURCE' JOB.sh")),
    Fix("If the script must find itself, ask Slurm for its path.",
        ("scontrol show job $SLURM_JOB_ID | grep Command=",)),
)
SPOOLED = Case(
    line_of("log_shell_file_missing", r"/slurm_script: line \d+: (?:\w+: )?/[\w./-]{0,80}spool/"),
    "the job looks for a file next to Slurm's copy of the job script: {path}", SPOOLED_WHY, SPOOLED_FIXES,
    "/var/spool/slurmd/job17/slurm_script: line 6: /var/spool/ops/env.sh: No such file or directory\n", _SBATCH)
REASONS = (
    Case(line_of(_ID, r"not permitted to use|Access/permission denied|[Rr]eservation is invalid"),
         "Slurm does not let this user or account use the partition or reservation: {reason}",
         "Partitions and reservations list the accounts, groups and QOS that may use them.",
         Fix("Choose one that is open to you, or name the right account.",
             ("sacctmgr show assoc user=$USER format=account,partition,qos", "scontrol show partition",
              "scontrol show reservation", "sbatch --account=ACCOUNT --partition=PARTITION SCRIPT")),
         "sbatch: error: Batch job submission failed: User's group not permitted to use this partition\n", _ERRNO),
    Case(line_of(_ID, r"partition configuration not available|node not available \(down|partition (?:is )?(?:not "
                      r"available|down)"),
         "the partition, or the nodes that the request names, are down, drained or reserved: {reason}",
         "Slurm rejects the request at once if it cannot run now and the partition does not queue it.",
         Fix("Check the state and the reasons of the nodes, and request others.",
             ("sinfo -R", "sinfo -N -l -p PARTITION")),
         "sbatch: error: Batch job submission failed: Requested partition configuration not available now\n", _ERRNO),
    Case(line_of(_ID, r"Memory required by task is not available"),
         "the step asks for more memory than the job has left",
         "A step gets its own part of the job's memory. Another step that still runs holds it, or srun's --mem, "
         "--mem-per-cpu or --mem-per-gpu exceeds the job's.",
         Fix("Let the step use the job's memory, or share it with the other step.",
             ("srun --mem=0 ...", "srun --overlap --mem=0 ...", "scontrol show job $SLURM_JOB_ID | grep -i mem")),
         "srun: error: Unable to create step for job 4711: Memory required by task is not available\n", _SRUN),
    Case(line_of(_ID, r"cpu bind request"),
         "Slurm cannot bind the tasks to the CPUs that the step asks for",
         "--cpu-bind, or SLURM_CPU_BIND that an outer srun or an interactive shell left, names CPUs that the step does "
         "not have.",
         Fix("Remove the binding.", ("unset SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE",
                                     "srun --cpu-bind=none ...")),
         "srun: error: Unable to create step for job 4711: Unable to satisfy cpu bind request\n", _SRUN),
    Case(line_of(_ID, r"Invalid feature"),
         "no node has the feature of --constraint: {reason}",
         "Features are names that each cluster chooses, such as h100 or ib.",
         Fix("List the features.", ("sinfo -o '%20N %10G %f'",)),
         "sbatch: error: Batch job submission failed: Invalid feature specification\n", _SBATCH),
    Case(line_of(_ID, r"CPU count per node"),
         "no node has as many CPUs as the request needs per node",
         "--ntasks-per-node times --cpus-per-task must not exceed the CPUs of a node (hyper-threads count only if the "
         "cluster counts them).",
         Fix("Lower --cpus-per-task.", ("sinfo -o '%P %c %m %G'", "sbatch --ntasks-per-node=8 --cpus-per-task=8 "
                                                                  "SCRIPT")),
         "sbatch: error: Batch job submission failed: CPU count per node can not be satisfied\n", _ERRNO),
    Case(line_of(_ID, r"Zero Bytes|Unspecified error|temporar|Transport endpoint|Resource temporarily"),
         "Slurm's controller broke off the request: {reason}",
         "It was overloaded, restarting, or of another version than the command. The request itself can be right.",
         Fix("Submit it again, and check the controller.", ("scontrol ping", "sinfo --version")),
         "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n", _ERRNO),
    Case(line_of(_ID, r"dependency problem"),
         "the job that --dependency names does not exist, or can no longer satisfy the dependency",
         "Slurm drops finished jobs after a while, and a failed job never satisfies afterok.",
         Fix("Check the job, or use afterany.", ("sacct -j JOB -o jobid,state,exitcode",
                                                "sbatch --dependency=afterany:JOB SCRIPT")),
         "sbatch: error: Batch job submission failed: Job dependency problem\n", _SBATCH),
)
CANCELLED_IN_QUEUE = Case(
    line_of("log_slurm_job_over", r"Unable to allocate resources"),
    "the request was cancelled while it waited in the queue: the program was not started",
    "srun or salloc asked for resources and waited. A user or an administrator cancelled the request (scancel, Ctrl-C "
    "twice, the end of the shell) before it had any.",
    (Fix("Find out who cancelled it, then submit it again.",
         ("sacct -j JOBID --format=JobID,State%30,Submit,Start,End",)),
     Fix("A job script waits without an open shell.", ("sbatch --gpus-per-node=1 SCRIPT", "squeue --me --start"))),
    "srun: job 4711 queued and waiting for resources\nsrun: Job has been cancelled\n"
    "srun: error: Unable to allocate resources: Job/step already completing or completed\n", _SRUN)
SHARE_THE_JOB = Fix("Let steps share resources, or give each a part.",
                    ("srun --overlap ...", "srun --exact --gpus=4 ..."))
STEP_NEVER_STARTED = Case(
    _step_waited,
    "srun never started the program: it probably waited for resources that another step of the same job uses, until "
    "the job ended at {at}",
    "The job has its nodes, and probably an earlier step holds their CPUs, GPUs or memory: srun inside srun or srun "
    "--pty, two steps at once, or a step whose processes did not end. More time for the job does not help then. Nodes "
    "that still boot are reported as busy, too.",
    (SHARE_THE_JOB,
     Fix("Look which steps the job has while it waits, and start the program without srun where one runs already.",
         ("squeue --steps --jobs=JOBID", "scontrol show step JOBID"))),
    "srun: Job 4711 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2025-10-01T10:00:00 ***\n", _SRUN)
STEP_NOT_CREATED = Case(
    every(_step_waited, _FOR_OTHER_REASON),
    "srun never started the program: Slurm did not create the step until the job ended at {at}",
    "srun's line before it has Slurm's reason in brackets. The job had its nodes. Usual reasons: a prolog, the "
    "interconnect, or ports for MPI were not ready, or the controller refused new steps for a time.",
    (Fix("Look up the reason while a job waits.", ("scontrol show job JOBID", "scontrol ping", "sinfo -R")),
     Fix("If it comes back, ask the administrators what the controller's log says of this job.", who="admin")),
    "srun: Job 4711 step creation temporarily disabled, retrying (Requested operation is presently disabled)\n"
    "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2025-10-01T10:00:00 ***\n", _SRUN)
STEP_WAITS = Case(
    _FOR_OTHER_REASON,
    "srun waits: Slurm has not created the step yet, for the reason in brackets",
    "The reason is Slurm's own. The job has its nodes. Usual reasons: a prolog, the interconnect, or "
    "ports for MPI are not ready, or the controller refuses new steps for a time. srun tries again.",
    Fix("Look up the reason while the job waits.", ("scontrol show job JOBID", "scontrol ping", "sinfo -R")),
    "srun: Job 4711 step creation temporarily disabled, retrying (Requested operation is presently disabled)\n", _SRUN)
CANCELLED_STEPS = (STEP_NOT_CREATED, STEP_NEVER_STARTED)
LATE_STEPS = tuple(
    replace(one, sample=one.sample.replace("***\n", "DUE TO TIME LIMIT ***\n")) for one in CANCELLED_STEPS)
# fmt: on
