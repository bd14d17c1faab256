"""Did MPI or its launcher not start the ranks, or not connect them?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import shown

_FAQ = "https://docs.open-mpi.org/en/main/launching-apps/index.html"
_SLURM = "https://slurm.schedmd.com/mpi_guide.html"
_NETWORK = "https://docs.open-mpi.org/en/main/tuning-apps/networking/tcp.html"
_HELP = "https://github.com/open-mpi/ompi/blob/main/ompi/runtime/help-mpi-runtime.txt"

# fmt: off
_NO_MANAGER = Case(
    shown("process_manager_silent"),
    "MPI did not start in a rank: it found the variables of an mpiexec (PMI) that does not answer",
    "The shell or service was started by mpiexec (Hydra), or its PMI variables were exported, and torchrun passes them "
    "on to the ranks. Each of them then talks to a process manager that is not its own. Intel's oneCCL starts MPI in "
    "every rank.",
    (Fix("Start without these variables.",
         ("env | grep -E '^(PMI|HYD|MPI|I_MPI)'", "env -u PMI_FD -u PMI_RANK -u PMI_SIZE -u PMI_PORT torchrun ...")),
     Fix("With oneCCL, use libfabric without MPI.", ("export CCL_ATL_TRANSPORT=ofi CCL_PROCESS_LAUNCHER=none",))),
    "[cli_0]: write_line error; fd=9 buf=:cmd=init pmi_version=1 pmi_subversion=1\n"
    "Abort(1090831) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init_thread: Unknown error class, error stack:\n"
    "MPIR_Init_thread(196): \nMPID_Init(1612)......: \nMPIR_pmi_init(142)...: PMI_Get_appnum returned -1\n",
    "https://www.intel.com/content/www/us/en/docs/oneccl/developer-guide-reference/2021-14/environment-variables.html")
ROWS = (
    Row("log_mpi_slots", "root", "launcher",
        r"not enough slots available in the system to satisfy the \d+|"
        r"more processes than (?:slots|cpus|ppr)\b",
        ("There are not enough slots available in the system to satisfy the 8 slots",
         "A request was made to bind to that would result in binding more processes than cpus on a resource:"),
        "mpirun has fewer slots than ranks were requested",
        "A slot is a core (or a Slurm task), not a GPU. Without a host file, mpirun uses those of this node or of the "
        "allocation only.",
        Fix("Name the slots of each node, or let ranks share cores.",
            ("mpirun -np 16 -H node1:8,node2:8 ...", "mpirun --oversubscribe --bind-to none ...",
             "sbatch --ntasks-per-node=8 ...")), _FAQ),
    Row("log_mpi_as_root", "root", "launcher", r"(?:mpirun|mpiexec|prterun) has detected an attempt to run as root",
        ("mpirun has detected an attempt to run as root.",),
        "mpirun refuses to run as root", "In a container the user is often root.",
        Fix("Allow it, inside a container only.", ("mpirun --allow-run-as-root ...",
                                                  "export OMPI_ALLOW_RUN_AS_ROOT=1 "
                                                  "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")), _FAQ),
    Row("log_mpi_daemon_failed", "root", "launcher",
        r"(?:ORTE|PRTE|PRRTE) was unable to reliably start one or more daemons|"
        r"An? (?:ORTE|PRTE|PRRTE) daemon has unexpectedly failed|"
        r"lost communication with a remote daemon|HYDU_sock_connect .*unable to connect from|"
        r"(?:orted|prted|hydra_pmi_proxy): (?:command not found|No such file)",
        ("ORTE was unable to reliably start one or more daemons.",
         "An ORTE daemon has unexpectedly failed after launch and before communicating back to mpirun.",
         '[mpiexec@n1] HYDU_sock_connect (utils/sock/sock.c:145): unable to connect from "n1" to "n2" (Connection '
         "refused)", "bash: line 1: orted: command not found",
         "ORTE has lost communication with a remote daemon."),
        "mpirun could not start its helper on another node",
        "The login by ssh fails or prompts, MPI is not on PATH there, or a firewall blocks the connection back to "
        "this node.",
        (Fix("Try it by hand: it must print the path without a prompt.",
             ("ssh -o BatchMode=yes NODE which orted prted", "mpirun --prefix /opt/openmpi ...")),
         Fix("Set the interface that connects the nodes.",
             ("mpirun --mca oob_tcp_if_include IFACE --mca btl_tcp_if_include IFACE ...",))), _FAQ,
        because_of=("log_ssh_refused", "log_name_not_resolved")),
    Row("log_mpi_program_missing", "root", "launcher",
        r"(?:mpirun|prterun|mpiexec) was unable to (?:find|launch) the specified (?:executable|application)|"
        r"execvp error on file ",
        ("mpirun was unable to find the specified executable file, and therefore did not launch the job.",
         "[proxy:0:0@n1] HYDU_create_process (utils/launch/launch.c:75): execvp error on file torchrun (No such file "
         "or directory)"),
        "mpirun did not find the program on a node",
        "It is not on PATH there: the environment is active in this shell only, or the path is not on a shared disk.",
        Fix("Use the full path of the interpreter.", ("mpirun -np 8 $(which python) train.py",)), _FAQ),
    Row("log_mpi_without_slurm", "root", "launcher",
        r"OMPI was not built with SLURM'?s PMI|PMI2_(?:Init|Job_GetId) failed|[Ii]nvalid MPI plugin name|"
        r"(?:[Cc]ouldn't find the specified plugin name|[Cc]annot find mpi plugin|[Cc]an't find plugin) for mpi/|OPAL "
        r"ERROR: Unreachable in file .*pmi|"
        r"cannot (?:create|open) (?:context|plugin) .*mpi/",
        ('The application appears to have been direct launched using "srun", but OMPI was not built with SLURM\'s PMI '
         "support and therefore cannot execute.",
         "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files",
         "srun: error: Invalid MPI plugin name", "[n1:4711] OPAL ERROR: Unreachable in file pmix3x_client.c at line "
                                                 "111"),
        "srun and this MPI do not fit: they have no common PMI plugin",
        "srun starts MPI ranks only if both were built with the same PMI (pmix, pmi2).",
        Fix("Choose a plugin that both have, start with mpirun, or do without MPI.",
            ("srun --mpi=list", "srun --mpi=pmix ...", "mpirun -np $SLURM_NTASKS ...",
             "srun --ntasks-per-node=1 torchrun ...")), _SLURM),
    Row("log_mpi_ranks_unreachable", "root", "network",
        r"pair of MPI processes are unable to reach each other|"
        r"accepted a TCP connection from what appears to be|"
        r"WARNING: Open MPI failed to TCP connect to a peer MPI process|"
        r"at least one MPI process is unreachable from another",
        ("At least one pair of MPI processes are unable to reach each other for",
         "WARNING: Open MPI accepted a TCP connection from what appears to be a",
         "WARNING: Open MPI failed to TCP connect to a peer MPI process.  This",
         "MPI_INIT has failed because at least one MPI process is unreachable from another."),
        "MPI uses an interface over which the nodes cannot reach each other",
        "By default it tries all of them: docker0, virbr0 and loopback addresses exist on every node.",
        Fix("Set the interface that connects the nodes.",
            ("ip -br addr", "mpirun --mca btl_tcp_if_include IFACE --mca oob_tcp_if_include IFACE ...",
             "mpirun --mca pml ucx -x UCX_NET_DEVICES=mlx5_0:1 ...")), _NETWORK),
    Row("log_mpi_not_initialized", "secondary", "launcher",
        r"An error occurred in MPI_Init|It looks like MPI_INIT failed for some reason|"
        r"Fatal error in (?:internal_|P)?MPIX?_Init|MPID_Init\(\d+\)\.*: |MPI_Init(?:_thread)?\(\) failed",
        ("*** An error occurred in MPI_Init_thread", "It looks like MPI_INIT failed for some reason; your parallel "
                                                     "process is", "Abort(1090575) on node 0 (rank 0 in comm 0): Fatal "
         "error in PMPI_Init_thread: Other MPI error, error stack:"),
        "MPI did not start in a rank",
        "The MPI that the program (mpi4py, an extension) was built with is not the one whose mpirun or srun plugin "
        "started it, or its network library (UCX, libfabric) fails on this node.",
        Fix("Use the mpirun of the same installation.",
            ("which mpirun; python -c 'from mpi4py import MPI; print(MPI.Get_library_version())'",
             "pip install --force-reinstall --no-deps --no-binary mpi4py mpi4py")), _HELP, cases=(_NO_MANAGER,)),
    Row("log_mpi_rank_ended", "wrapper", "launcher",
        r"Primary job +terminated normally, but \d+ process|MPI_ABORT was invoked on rank|"
        r"detected that one or more processes exited with non-zero status|"
        r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        ("Primary job  terminated normally, but 1 process returned",
         "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
         "mpirun detected that one or more processes exited with non-zero status, thus causing",
         "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"),
        "mpirun stopped the run because a rank failed; its summary does not report why",
        "The cause is in the output of that rank.",
        Fix("Read that rank's own output, starting at its first error.", ("mpirun --output-filename logs ...",)),
        _FAQ, tags=("exit_only",)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
