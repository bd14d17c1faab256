"""Cases of what stops a run at its start: NCCL's interfaces and library, a server's port, a missing command."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Case, Meaning
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import counts, either, line_of, passed, reported, shown, within
from ._own_sockets import OWN_PORT

_SERVERS = (
    r"\b(?:uvicorn|aiohttp|fastapi|flask|gradio|prometheus_client|socketserver|http/server|hypercorn|werkzeug|zmq)\b|"
    r"_server\b.* in \w*(?:main|serve|start|run)\w*$"
)


_AT_START = 60  # lines


def several_launchers(log: Log, raised: UncaughtException | None) -> bool:
    """Whether several launchers started together, and all but one of each node failed at the port.

    With one per node, only the main node's launcher opens the port: one fails. If each is its own main node, all fail.
    """
    banner = next((one for one in log.shows if one.name == "launcher_banner"), None)
    if banner is None or raised is None or not _BY_LAUNCHER(log, raised):
        return False
    taken = next((one for one in log.seen if one.signature == "log_port_taken"), None)
    together = taken is not None and 0 < taken.line - banner.line < _AT_START and taken.file == banner.file
    return together and 2 <= raised.times < banner.times


_BY_LAUNCHER = within(r"^torch/distributed/elastic/rendezvous/")


def at_loopback(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return the meaning of an unreachable main node if its address means this node itself."""
    if raised is None or not re.search(r"\((?:127\.[\d.]+|localhost)\b", raised.message):
        return None
    return Meaning(
        "a rank waited for rank 0 at its own node's loopback address without an answer",
        "With several nodes, MASTER_ADDR must not be localhost, nor a host name that /etc/hosts maps to 127.0.1.1: "
        "each node then waits for itself. On a single node, rank 0 exited before, prepares data for so long before "
        "init_process_group, or fewer ranks were started than WORLD_SIZE says.",
        (
            Fix(
                "Several nodes: use the address on the network that connects them.",
                ("ip -br addr", "getent hosts $MASTER_ADDR", "mgpu doctor --only hostname_is_loopback"),
            ),
            Fix("One node: read rank 0's own output first.", ("mgpu doctor --log LOGS...",)),
            Fix("Under Slurm, compare the tasks with the ranks.", ("env | grep -E 'SLURM_NTASKS|WORLD_SIZE'",)),
        ),
    )


_KERNEL = re.compile(r"(?:ipykernel|colab_kernel)_launcher\.py")
_OF_KERNEL = "parse_args() was called in a notebook, where the command line is that of the notebook's kernel"
_WHY_KERNEL = (
    "sys.argv of a notebook has the kernel's own options (-f and the path of its connection file) and none of the "
    "script's, so argparse refuses what is there, and does not find what it requires."
)
_FOR_KERNEL = (
    Fix(
        "Pass the options as a list.",
        ("args = parser.parse_args(['--lr', '1e-4'])", "args = parser.parse_args([])  # the defaults"),
    ),
    Fix("Or run the script as a program, in a cell of its own.", ("!python train.py --lr 1e-4",)),
)


def argument_missing(groups: Mapping[str, str], _: UncaughtException | None) -> Meaning | None:
    """Return the meaning with the program's own name in the commands, and where such programs read their options."""
    program = groups.get("program", "")
    if _KERNEL.fullmatch(program):
        return Meaning(f"{_OF_KERNEL}: {groups['argument']} is required", _WHY_KERNEL, _FOR_KERNEL)
    if program == "llamafactory-cli":
        commands = "llamafactory-cli train CONFIG.yaml", "llamafactory-cli train --help"
    elif program.endswith(".py"):
        commands = shell("python {:path} CONFIG.yaml", program), shell("python {:path} --help", program)
    else:
        return None
    hint = "The command may also end too early: after a line without a backslash, or at an empty variable."
    title = f"a required argument of {program} is missing: {groups['argument']}"
    others = "Add it, and check which others exist."
    if not re.search(r"--\w+_\w+/--\w+-", groups["argument"]):  # HfArgumentParser prints both forms
        return Meaning(title, f"Script arguments go after the script. {hint}", (Fix(others, commands[1:]),))
    return Meaning(
        title,
        f"A program that can read its options from a YAML or JSON file does so only if the file is its first argument. "
        f"{hint}",
        (Fix("If the options are in a file, pass it as the first argument.", commands[:1]), Fix(others, commands[1:])),
    )


def misspelled_option(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain an option that the usage in the log has with another spelling."""
    wrong, meant = groups.get("wrong"), groups.get("meant")
    if not wrong or not meant:
        return None
    is_same = re.sub(r"[-_.]", "", wrong).lower() == re.sub(r"[-_.]", "", meant).lower()
    return Meaning(
        f"the script has no option {wrong}: {'it is written' if is_same else 'probably it is'} {meant} there",
        f"The usage in the log lists {meant}. To argparse, - and _ are different letters. What it did not accept: "
        f"{groups.get('argument', '')}.",
        (Fix(f"Write {meant} in the command, or give the option both names in the script."),),
    )


_MISSING_SCRIPT = re.compile(r"can't open file '?(?P<path>[^']+?)'?: \[Errno 2\]")
_SPAWNED = re.compile(r"spawned with command: \['[^']+'(?:, '-\w+')*, '(?P<path>(?![/~])[^']+\.py)'")


def script_is_relative(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the path of a missing script is relative: as some Pythons print it, or in the launcher's command."""
    paths = [found["path"] for one in log.seen if (found := _MISSING_SCRIPT.search(one.text))]
    given = [found["path"] for one in log.shows if (found := _SPAWNED.search(one.text))]
    if not paths or not paths[0].strip():
        return False
    absolute = paths[0].startswith(("/", "\\", "~")) or paths[0][1:2] == ":"
    return not absolute or any(paths[0].endswith(f"/{path.removeprefix('./')}") for path in given)


# fmt: off
SYNC_BATCH_NORM = Case(
    within(r"^torch/nn/modules/batchnorm\.py in forward|(?i:/\w*sync_?b(?:atch_?)?n(?:orm)?\w*\.py in forward)"),
    "the model has SyncBatchNorm layers, and the run has no process group: it is one process without DDP",
    "These layers compare the statistics of all ranks. They are meant for DDP: a config of several GPUs "
    "(sync_batchnorm=True, norm_cfg=dict(type='SyncBN'), convert_sync_batchnorm) runs here as one process. Newer "
    "releases of torch then use plain batch norm.",
    (Fix("On one GPU, use plain BatchNorm.", ("grep -rniE 'sync_?b(atch_?)?n' --include='*.py' --include='*.y*ml' .",
                                              "norm_cfg = dict(type='BN')")),
     Fix("With several GPUs, start one rank per GPU, with DDP.",
         ("mgpu launch train.py", "Trainer(strategy='ddp', devices=2)"))),
    'Traceback (most recent call last):\n  File "/home/u/fit.py", line 7, in main\n    y = net(x)\n'
    '  File "/x/site-packages/torch/nn/modules/batchnorm.py", line 735, in forward\n'
    "    world_size = torch.distributed.get_world_size(process_group)\nRuntimeError: Default process group has not "
    "been initialized, please make sure to call init_process_group.\n",
    "https://github.com/pytorch/pytorch/blob/v1.13.1/torch/nn/modules/batchnorm.py")
TOO_MANY_RANKS = Case(
    counts(r"world_size=(\d+), worker_count=(\d+)", lambda counted: int(counted[1]) > int(counted[0])),
    "{came} ranks reached the first barrier, but only {all} belong to this run: the store counts others too",
    "Ranks of another run, of an earlier start, or a second init_process_group() in the same processes use the same "
    "store: the same address and port, or the same file:// path that was not deleted.",
    (Fix("Give each run its own port, and stop what is left of earlier runs.",
         ("mgpu launch --port auto train.py", "mgpu doctor --only rank_orphaned,port_busy")),
     Fix("Delete the file of a file:// rendezvous, and create the process group once.",
         ("mgpu doctor --script train.py",))),
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: "
    "store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)\n",
    "https://github.com/pytorch/pytorch/blob/main/torch/distributed/distributed_c10d.py")
CONTAINER_NETWORKS = Case(
    shown("interfaces_of_containers"),
    "NCCL uses network interfaces of containers and bridges (docker, br-, veth), which other nodes probably cannot "
    "reach",
    "Without NCCL_SOCKET_IFNAME, NCCL takes the interfaces that are up. Bridges and virtual interfaces exist on one "
    "node only: a connection to their addresses fails, and torch reports a failed system call.",
    (Fix("Name the interface of the network between the nodes, on every node.",
         ("ip -br addr", "export NCCL_SOCKET_IFNAME=^docker,br-,veth,lo GLOO_SOCKET_IFNAME=eth0",
          "mgpu doctor --only network")),
     Fix("Run again with NCCL's messages, and read the first WARN.", ("NCCL_DEBUG=INFO mgpu launch train.py",))),
    "INFO NET/Socket : Using [0]bond0:192.168.1.161<0> [1]br-05ab815fa14e:172.19.0.1<0>\n"
    "[2]veth6163fba:fe80::b878:6cff:fe52:abe2%veth6163fba<0>\n"
    "ncclSystemError: System call (socket, malloc, munmap, etc) failed\n",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname")
LINK_LOCAL = Case(
    line_of("log_data_port_unreachable", r"\bfe80:"),
    "NCCL tries to reach another node at an IPv6 link-local address (fe80:...), which works only within one link",
    "The other node announced the address of an interface without an IPv4 address, or of one that does not connect the "
    "nodes: an InfiniBand port (ib), a bridge, a second network card.",
    (Fix("Name the interface of the network between the nodes and use IPv4, on every node.",
         ("ip -br addr", "export NCCL_SOCKET_IFNAME=IFACE NCCL_SOCKET_FAMILY=AF_INET", "mgpu doctor --only network")),
     Fix("See which interface each node selects.", ("NCCL_DEBUG=INFO mgpu launch train.py",))),
    "NCCL WARN socketStartConnect: Connect to fe80::1%ib1<17943> failed : Software caused connection abort\n",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-family")
RELATIVE_SCRIPT = Case(
    script_is_relative,
    "the script {script} does not exist: its path is relative, and the run was started in a folder that it does not "
    "fit",
    "A relative path is looked up in the folder in which the launcher was started: that of the shell, or of the job. "
    "Often the job script was started in its own folder, and the path is from the project's.",
    (Fix("Change to the folder that the path starts from, or write the whole path.",
         ("cd PROJECT_FOLDER", "ls -l {script:path}")),),
    "[INFO] process 71 spawned with command: ['/usr/bin/python3', '-u', 'src/fit.py', '--local_rank=0']\n"
    "/usr/bin/python3: can't open file '/home/ada/tool/jobs/src/fit.py': [Errno 2] No such file or directory\n",
    "https://docs.python.org/3/using/cmdline.html")
BLANK_SCRIPT = Case(
    reported(r"can't open file '?(?:/\S*/)?\s+'?: \[Errno 2\]"),
    "the launcher got a blank in place of the script: there is a space after a backslash at the end of a line",
    "In a shell script, a backslash joins two lines only if nothing follows it. With a space after it, the space "
    "becomes "
    "an argument, the command ends there, and the next line (the script and its options) runs as a command of its own: "
    "\"command not found\".",
    (Fix("Remove what follows the backslashes.", ("grep -nE '\\\\[[:space:]]+$' JOB.sh",
        "sed -i 's/\\\\[[:space:]]*$/\\\\/' JOB.sh")),
     Fix("A line end of Windows does the same.", ("sed -i 's/\\r$//' JOB.sh",))),
    "/usr/bin/python: can't open file ' ': [Errno 2] No such file or directory",
    "https://www.gnu.org/software/bash/manual/bash.html#Escape-Character")
WINDOWS_SCRIPT = Case(
    reported(r"can't open file '?\S*(?:\\r|\r)'?: \[Errno 2\]"),
    "the name of the script ends with a carriage return (\\r): the job script has the line ends of Windows",
    "Linux takes the carriage return at the end of a line as a part of what is before it, here of the script's name.",
    Fix("Remove them.", ("sed -i 's/\\r$//' JOB.sh", "file JOB.sh")),
    "/usr/bin/python: can't open file '/home/ada/fit.py\\r': [Errno 2] No such file or directory",
    "https://www.gnu.org/software/bash/manual/bash.html#Escape-Character")
NCCL_NOT_ON_PATH = Case(
    line_of("log_nccl_not_found", r"error while loading shared libraries"),
    "the system's loader does not find libnccl.so.2: its folder is not on LD_LIBRARY_PATH",
    "A compiled program (nccl-tests, an MPI program) does not look into Python's packages. NCCL is not installed on "
    "this node, or in a folder that the loader does not search.",
    (Fix("Add the folder that has the library, on every node.",
         ("find / -name 'libnccl.so.2' -not -path '/proc/*' 2>/dev/null",
          "export LD_LIBRARY_PATH=/path/to/nccl/lib:$LD_LIBRARY_PATH")),
     Fix("Or install NCCL for the system.", ("sudo apt install libnccl2",), who="admin")),
    "./build/all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file: No "
    "such file or directory\n",
    "https://github.com/NVIDIA/nccl-tests#quick-examples")
SYSTEM_PORT = Case(
    line_of("log_port_taken",
            r"(?:(?:bind to|listen on) (?:\[[\w.:%]*\]|[\w.-]+):|address\. port: )(?:\d{1,3}|10[01]\d|102[0-3])\b"),
    "the rendezvous port is below 1024, where services of the system listen (22 is ssh, 80 and 443 are web servers)",
    "A launcher or its script probably read the port from a variable that was set for something else, such as PORT "
    "in a container, or MASTER_PORT. It is probably not the port of another run.",
    (Fix("Find the variable, and give the run a port of its own.",
         ("env | grep -E '^[A-Z_]*PORT='", "unset PORT; export MASTER_PORT=29500",
          "torchrun --master-port=29500 ...")),
     Fix("See what listens there.", ("ss -ltnp 'sport = :29500'",))),
    "[W socket.cpp:401] [c10d] The server socket has failed to bind to 0.0.0.0:443 (errno: 98 - Address already in "
    "use).\n",
    "https://github.com/open-mmlab/mmpretrain/issues/960")
OWN_STORE = Case(
    within(r"dynamic_rendezvous\.py in _create_tcp_store_server"),
    "torchrun cannot reach its own store: this node's name probably does not lead to itself",
    "The process that failed is the one that starts the store, and it connects to it under the name of its own node. "
    "The name is not in DNS or /etc/hosts, or leads to an address that this process cannot use, as in a container or "
    "behind a proxy. Other nodes are not involved.",
    (Fix("See what the name leads to.", ("getent hosts HOST", "hostname -i", "cat /etc/hosts")),
     Fix("On a single node, use the loopback address, which needs no name.",
         ("torchrun --standalone --nproc-per-node=8 train.py", "torchrun --local-addr=127.0.0.1 ...")),
     Fix("In a container, give it a name that it can resolve, or the host's network.",
         ("docker run --network=host ...",))),
    'Traceback (most recent call last):\n  File "/x/site-packages/torch/distributed/elastic/rendezvous/'
    'dynamic_rendezvous.py", line 1126, in _create_tcp_store_server\n    return dist.TCPStore(\n'
    "torch.distributed.DistNetworkError: The client socket has timed out after 300000ms while trying to connect to "
    "(node7, 41331).", "https://docs.pytorch.org/docs/stable/elastic/run.html")
CONTAINER_NAME = Case(
    line_of("log_master_unreachable", r"to (?:host )?[(\[]?(?=[0-9a-f]{0,11}\d)[0-9a-f]{12}(?:, |\]?:)\d"),
    "the address of the main node is the name of a container, which only that container knows",
    "Docker names a container by 12 digits of its id, and other containers and nodes cannot resolve such a name.",
    (Fix("Start the containers with the host's network, and use the node's address.",
         ("docker run --network=host ...", "ip -br addr", "getent hosts HOST")),
     Fix("On a single node, no name is needed.", ("torchrun --standalone --nproc-per-node=8 train.py",))),
    "The client socket has timed out after 60000ms while trying to connect to (4f0c1d2e3a5b, 29500).\n",
    "https://docs.docker.com/engine/network/")
SERVER_PORT = Case(
    either(passed(_SERVERS), reported(r"Address already in use \(os error 98\)"),
           reported(r"error while attempting to bind on address")),
    "the port of a server that this program starts is already in use",
    "It is not the rendezvous of the ranks: the program itself opens a server (a lighthouse, an inference or a metrics "
    "server), and another process on this node listens on its port, often the same server of an earlier run.",
    (Fix("Find the process that listens, and stop it if it is a leftover.",
         ("ss -ltnp", "mgpu doctor --only rank_orphaned,port_busy")),
     Fix("Or give the server another port: --port or --bind in most programs.")),
    "Traceback (most recent call last):\n"
    '  File "/home/u/.local/bin/torchft_lighthouse", line 8, in <module>\n'
    "    sys.exit(lighthouse_main())\n"
    "RuntimeError: Address already in use (os error 98)\n",
    "https://doc.rust-lang.org/std/io/enum.ErrorKind.html#variant.AddrInUse")
NO_ANSWER = Case(
    line_of("log_master_not_there_yet", r"errno: 110\b|[Cc]onnection timed out"),
    "the address of the main node did not answer: a connection to it timed out",
    "A node that is only not ready refuses a connection at once. No answer at all means that the address is wrong or "
    "belongs to no node, or that a firewall drops the packets. torch tries again until its own timeout.",
    (Fix("Compare the address in the message with those of the main node.",
         ("ip -br addr", "env | grep -E 'MASTER_(ADDR|PORT)'")),
     Fix("If it is right, check the way there.", ("nc -vz HOST 29500", "mgpu doctor --only network"))),
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 110 - Connection timed "
    "out).\n",
    "https://man7.org/linux/man-pages/man2/connect.2.html")
NO_PYTHON = Case(
    line_of("log_launcher_not_found", r"(?:^|[^\w/-])python3?: (?:command )?not found"),
    "this shell finds no command of the name python or python3 (the line says which)",
    "The environment is not active in this shell (sudo, sbatch, a container), or the system has Python under the other "
    "name: many have python3 and no python.",
    (Fix("See what there is, and activate the environment in the script itself.",
         ("command -v python python3", "source /path/to/env/bin/activate  # or: conda activate ENV")),
     Fix("Use the name that exists, or install the other one.",
         ("python3 train.py", "sudo apt-get install -y python-is-python3"))),
    "train.sh: line 4: python: command not found\n", "https://docs.python.org/3/using/unix.html")
NO_SUCH_COMMAND = Case(
    line_of("log_argument_unknown", r"argument (?:\w*command\w*|action|cmd|\{[^}]*\}): invalid choice"),
    "the installed release of this program does not have this command: {argument}",
    "The command is in the instructions of another release: newer ones add commands (trl 0.16 added vllm-serve), some "
    "remove them. The log lists those that this release has.",
    (Fix("Upgrade the package that the program comes with.", ("pip install --upgrade trl  # or its own package",)),
     Fix("Or use the documentation of the installed release.", ("pip show trl accelerate transformers deepspeed",))),
    "usage: trl\nTRL CLI: error: argument command: invalid choice: 'vllm-serve' (choose from 'chat', 'dpo', 'sft')\n",
    "https://github.com/huggingface/trl/releases/tag/v0.16.0")
OTHER_CHOICE = Case(
    line_of("log_argument_unknown", r"argument [^:]+: invalid choice"),
    "an option has a value that is not one of its choices: {argument}",
    "The program accepts only the values in its list. The name is misspelled, has other letters (upper or lower case), "
    "or belongs to another release.",
    (Fix("Use one of the values that the message lists, or add yours to choices= in the script.",
         ("python train.py --help",)),),
    "usage: train.py [-h] [--opt {adam,sgd}]\ntrain.py: error: argument --opt: invalid choice: 'lion' (choose from "
    "'adam', 'sgd')\n", "https://docs.python.org/3/library/argparse.html#choices")
PASTED_TWICE = Case(
    line_of("log_argument_unknown", r"unrecognized arguments: (?:.* )?(?:\S*/)?(?:python[\d.]*|torchrun|"
                                    r"accelerate launch|deepspeed|srun|mpirun|nohup|bash|sh) \S"),
    "the command line has a second command in its arguments: {argument}",
    "The program got the start of another command as its own arguments: the command was pasted twice, or the line "
    "break between two commands is missing.",
    Fix("Split the line into two commands, or remove the second one."),
    "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: python -m torch.distributed.launch "
    "--nproc_per_node=3 train.py\n",
    "https://docs.python.org/3/library/argparse.html#exit-methods")
IN_NOTEBOOK = Case(
    line_of("log_argument_unknown", rf"{_KERNEL.pattern}: error: "), f"{_OF_KERNEL}: {{argument}}", _WHY_KERNEL,
    _FOR_KERNEL,
    "usage: ipykernel_launcher.py [-h] [--lr LR]\nipykernel_launcher.py: error: unrecognized arguments: -f "
    "/root/.local/share/jupyter/runtime/kernel-1.json\n",
    "https://docs.python.org/3/library/argparse.html#the-parse-args-method")
NO_SUCH_OPTION = Case(  # torch's launchers are run.py and launch.py
    line_of("log_argument_unknown", r"(?<![\w.-])(?!(?:run|launch|runner)\.py)[\w.-]+\.py: error: "
                                    r"unrecognized arguments"),
    "the script has no such option: {argument}",
    "The name is misspelled, belongs to another release of the script, or is a field of a config that the script does "
    "not read from the command line. The lines with \"usage\" list the options that it has.",
    Fix("Use an option that it has, set the value where the script's config is, or add the option.",
        ("python train.py --help", "grep -n add_argument train.py")),
    "usage: fit.py [-h] [--lr LR]\nfit.py: error: unrecognized arguments: --max_steps 2\n",
    "https://docs.python.org/3/library/argparse.html#exit-methods")
_BANNER = (
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being "
    "overloaded\n")
_NO_PORT = (
    'Traceback (most recent call last):\n  File "/x/site-packages/torch/distributed/elastic/rendezvous/'
    'static_tcp_rendezvous.py", line 55, in next_rendezvous\n    self._store = TCPStore(\n'
    "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed "
    "to bind to [::]:29500 (errno: 98 - Address already in use).\n")
SEVERAL_LAUNCHERS = Case(
    several_launchers,
    "this job probably starts several launchers on one node, and only the first of them gets the port",
    "Several torchruns started together, and more than one of them found the port taken, but not all. Either srun "
    "started its command once per task: two tasks on a node start two launchers, of which each starts ranks for all "
    "its GPUs, and another port does not help. Or several runs were started on one node on purpose.",
    (Fix("Start one launcher per node.",
         ("sbatch --ntasks-per-node=1 --gpus-per-node=4 ...",
          "srun --ntasks-per-node=1 torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d "
          "--rdzv-endpoint=HOST:29500 train.py")),
     Fix("If they are separate runs, give each its own port and its own GPUs.",
         ("CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node=2 train.py",))),
    _BANNER * 3 + _NO_PORT * 2, "https://docs.pytorch.org/docs/stable/elastic/run.html")
UNKNOWN = (IN_NOTEBOOK, NO_SUCH_COMMAND, OTHER_CHOICE, PASTED_TWICE, NO_SUCH_OPTION)
TAKEN = (SEVERAL_LAUNCHERS, SERVER_PORT, SYSTEM_PORT, OWN_PORT)
UNREACHABLE = (OWN_STORE, CONTAINER_NAME)
# fmt: on
