"""Why did Slurm not start a step's tasks, or not as the request says?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_LAUNCH = "https://github.com/SchedMD/slurm/blob/master/src/srun/launch.c"
_STEPD = "https://github.com/SchedMD/slurm/blob/master/src/slurmd/slurmstepd/io.c"
_SRUN = "https://slurm.schedmd.com/srun.html"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_TROUBLE = "https://slurm.schedmd.com/troubleshoot.html"

# fmt: off
ROWS = (
    Row("log_slurm_output_not_opened", "root", "scheduler",
        r"Could not open (?P<stream>std(?:out|err|in)) file (?P<file>\S+): (?P<reason>.+)",
        ("slurmstepd: error: Could not open stdout file /scratch/u/logs/train-4711.out: No such file or directory",),
        "Slurm could not open the job's {stream} file {file}: {reason}",
        "Slurm opens the file before the script starts, and does not create folders in its path. The job fails at once "
        "and without output. The path must exist and be writable on the node, not only where sbatch ran.",
        Fix("Create the folder before the submission, on a disk that the nodes share.",
            ("mkdir -p logs && sbatch --output=logs/%x-%j.out SCRIPT",)), _STEPD,
        summary="Slurm could not open the job's output file."),
    Row("log_slurm_step_not_launched", "root", "scheduler",
        r"srun: error: (?:Application launch failed|task \d+ launch failed): (?P<reason>.+)",
        ("srun: error: Application launch failed: Invalid job credential",
         "srun: error: task 0 launch failed: Unspecified error"),
        "Slurm could not start the step: {reason}",
        "A node's daemon refused the step, or the node could not prepare it (prolog, plugin, network). No rank of this "
        "step ran the script.",
        (Fix("Run one task on each node: the faulty node fails alone.",
             ("srun --ntasks-per-node=1 --kill-on-bad-exit=0 hostname", "sinfo -R")),
         Fix("Exclude that node, and report it.", ("sbatch --exclude=NODE SCRIPT",), who="admin")), _LAUNCH,
        because_of=("log_slurm_task_not_started", "log_slurm_prolog_failed", "log_slurm_program_missing",
                    "log_slurm_credentials", "log_container_not_started", "log_image_import_failed"),
        summary="Slurm could not start the step."),
    Row("log_slurm_node_name_unknown", "root", "scheduler",
        r"(?:can't find address for host |srun: error: Unable to resolve \")(?P<host>[\w.-]+)",
        ("srun: error: fwd_tree_thread: can't find address for host n17, check slurm.conf",
         'srun: error: Unable to resolve "n17": Unknown host'),
        "Slurm cannot resolve the name of a node: {host}",
        "The machine that runs srun or slurmd has no address for it: DNS fails there, or its slurm.conf is older than "
        "the controller's (nodes were added).",
        Fix("Compare the names on this machine with the controller's.",
            ("getent hosts NODE", "scontrol show node NODE | grep NodeAddr", "scontrol reconfigure"), who="admin"),
        _TROUBLE, summary="Slurm cannot resolve the name of a node."),
    Row("log_slurm_cpus_outside_step", "root", "scheduler",
        r"CPU binding outside of job step allocation, allocated CPUs are: (?P<cpus>\S+?)\.?$",
        ("srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x00FF.",),
        "the CPU binding names CPUs that the step does not have (it has {cpus})",
        "--cpu-bind, or SLURM_CPU_BIND that an outer srun or an interactive shell left in the environment, is for "
        "another allocation.",
        Fix("Remove the binding.", ("unset SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE",
                                    "srun --cpu-bind=none ...")), _SRUN,
        summary="Slurm's CPU binding names CPUs that the step does not have."),
    Row("log_slurm_fewer_nodes", "root", "scheduler",
        r"Only allocated (?P<have>\d+) nodes asked for (?P<wanted>\d+)",
        ("srun: error: Only allocated 1 nodes asked for 2",),
        "the step asks for {wanted} nodes, but the job has {have}",
        "srun runs inside an allocation. Its --nodes, or SLURM_NNODES of another job, is larger.",
        Fix("Request the nodes for the job, or omit --nodes from srun.",
            ("sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 SCRIPT", "echo $SLURM_JOB_NUM_NODES")), _SRUN,
        summary="A step asks for more nodes than its job has."),
    Row("log_slurm_job_id_stale", "root", "scheduler",
        r"Expired or invalid job \d+|Unable to create step for job \d+: Invalid job id",
        ("srun: error: Check SLURM_JOB_ID environment variable. Expired or invalid job 4711",
         "srun: error: Unable to create step for job 4711: Invalid job id specified"),
        "SLURM_JOB_ID names a job that no longer exists",
        "The shell is from an allocation that ended (tmux, screen, an editor's terminal, a container), or the variable "
        "was set by hand. srun then tries to join that job.",
        Fix("Leave the old allocation, or drop its variables.",
            ("exit", "unset $(env | grep -o '^SLURM_[A-Z_]*')", "squeue --me")), _SRUN),
    Row("log_slurm_memory_options_clash", "root", "scheduler",
        r"SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU,? and SLURM_MEM_PER_NODE are mutually exclusive|"
        r"--mem(?:-per-[cg]pu)?, --mem-per-[cg]pu,? and --mem(?:-per-[cg]pu)? are mutually exclusive",
        ("srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
         "sbatch: error: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
        "two options or variables set the memory of the job",
        "The job was submitted with one of --mem, --mem-per-cpu and --mem-per-gpu, and srun gets another one, often "
        "from the SLURM_MEM_ variables of an allocation that the command runs in.",
        Fix("Keep one.", ("unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE", "srun --mem=0 ...")), _SRUN),
    Row("log_slurm_options_clash", "root", "scheduler",
        r"(?:srun|sbatch|salloc): (?:fatal|error): (?P<what>(?!--mem).{0,80}--[\w-]{2,40} .{0,60}(?:mutually "
        r"exclusive|not "
        r"compatible with|incompatible with|(?:can(?:not|'t)|may not) be (?:used|set) (?:with|together)).{0,80})",
        ("srun: fatal: --ntasks-per-node is not compatible with --ntasks-per-gpu",
         "srun: fatal: --gpus-per-task is mutually exclusive with --gpus-per-socket"),
        "two options of Slurm contradict each other: {what}",
        "One can come from a #SBATCH line or from a SLURM_ or SBATCH_ variable, not from the command.",
        Fix("Leave one out.", ("env | grep -E '^(SLURM|SBATCH|SALLOC)_'", "grep '^#SBATCH' SCRIPT")), _SBATCH,
        summary="Two options of Slurm contradict each other."),
    Row("log_slurm_value_invalid", "root", "scheduler",
        r"(?:srun|sbatch|salloc): (?:fatal|error): (?P<what>Invalid (?![Gg][Rr][Ee][Ss]|generic)(?:numeric value|"
        r"--[\w-]+ specification|"
        r"[\w-]+ specification|argument|time limit|node count|task count|core count|directive)\b.*)",
        ('srun: error: Invalid numeric value "auto" for --gpus.', "sbatch: error: Invalid --time specification",
         'sbatch: error: Invalid directive found in batch script: --gpus'),
        "Slurm does not understand a value of the request: {what}",
        "The value is empty (a variable that is not set: #SBATCH lines do not expand variables), or has another form "
        "than the option needs.",
        Fix("Correct the option, or pass it on the command line, where variables are expanded.",
            ("grep -n '^#SBATCH' SCRIPT", "sbatch --gpus-per-node=8 --time=24:00:00 SCRIPT")), _SBATCH,
        summary="Slurm does not understand a value of the request."),
    Row("log_slurm_config_missing", "root", "scheduler",
        r"fetch_config: DNS SRV lookup failed|Could not establish a configuration source|"
        r"resolve_ctls_from_dns_srv: res_nsearch error",
        ("srun: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host",
         "srun: fatal: Could not establish a configuration source"),
        "a Slurm command has no configuration here: srun, squeue and the others cannot find the controller",
        "The command runs inside a container, on a machine outside the cluster, or with another installation of Slurm "
        "that does not read this cluster's slurm.conf.",
        (Fix("Call srun on the host, with the container as its argument, not inside the container.",
             ("srun --container-image=IMAGE python train.py", "srun apptainer exec --nv IMAGE python train.py")),
         Fix("Inside a container, start the ranks with torchrun.", ("torchrun --nproc-per-node=8 train.py",)),
         Fix("Or mount the configuration and munge's socket.",
             ("--container-mounts=/etc/slurm,/run/munge,/usr/lib64/slurm",))),
        "https://github.com/SchedMD/slurm/blob/master/src/common/fetch_config.c"),
    Row("log_slurm_site_rule", "root", "scheduler",
        r"(?:sbatch|srun|salloc): error: (?P<what>(?:lua: |cli_filter plugin terminated|job_submit/\w+: |QOS(?:Max|"
        r"Grp|Min)\w+|"
        r"Assoc(?:Max|Grp)\w+).*)",
        ("sbatch: error: lua: you must specify an account", "sbatch: error: QOSMaxGRESPerUser"),
        "a rule of this cluster rejects the request: {what}",
        "Administrators add their own tests and limits: required options, allowed partitions, and the number of GPUs "
        "or "
        "jobs per user.",
        Fix("Follow the message, and look up your limits.",
            ("sacctmgr show qos format=name,maxtrespu,maxwall", "sacctmgr show assoc user=$USER", "squeue --me")),
        "https://slurm.schedmd.com/resource_limits.html", summary="A rule of the cluster rejects the request."),
    Row("log_slurm_pmix_waits", "secondary", "launcher",
        r"mpi/pmix\w*: .*(?:collective timeout|collect timeout|Error handler invoked: status = -\d+)",
        ("slurmstepd: error: mpi/pmix_v4: pmixp_coll_ring_reset_if_to: n1 [0]: 0x7f: collective timeout seq=0",),
        "PMIx lost a task of the step, or one did not reach its exchange in time",
        "A task died, or never started, so that the others waited for it in MPI_Init or had to stop.",
        Fix("Read what the missing task printed.", ("srun --label ...",)), "https://slurm.schedmd.com/mpi_guide.html"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
