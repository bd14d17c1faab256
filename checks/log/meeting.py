"""Did the ranks fail to find each other, or did one of them not start?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from .._launcher_variables import explain_variable
from . import _device_cases
from ._circumstances import shown
from ._early_exits import FAILED_AT_START
from ._own_sockets import OWN_NAME
from ._start_cases import (
    BLANK_SCRIPT,
    NO_ANSWER,
    NO_PYTHON,
    RELATIVE_SCRIPT,
    SYNC_BATCH_NORM,
    TAKEN,
    TOO_MANY_RANKS,
    UNKNOWN,
    UNREACHABLE,
    WINDOWS_SCRIPT,
    argument_missing,
    at_loopback,
    misspelled_option,
)

_DIST = "https://pytorch.org/docs/stable/distributed.html"
_ELASTIC = "https://pytorch.org/docs/stable/elastic/errors.html"
_RUN = "https://pytorch.org/docs/stable/elastic/run.html"
_REFUSED = "https://github.com/pytorch/pytorch/issues/107021"
_NOTEBOOK = "https://huggingface.co/docs/accelerate/basic_tutorials/notebook"
_LOG = Fix("Read the log of the first rank that failed.", ("mgpu launch train.py", "mgpu doctor --log LOG"))
_MISSING = "A node was not started or got a different number of nodes or processes, or some ranks exited early."
# fmt: off
_START_ALL = (
    Fix("Start every node, with the same counts.",
        ("mgpu launch --dry-run train.py", "env | grep -E 'WORLD_SIZE|RANK|MASTER'")),
    Fix("If all were started, check whether they can reach the main node.", ("mgpu doctor --only network",)),
)
# fmt: on


# fmt: off
_ENDPOINT = Fix("Pass the first node's name or address on the network that connects the nodes.",
                ("export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
                 "torchrun --nnodes=N --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --rdzv-id=JOB ...", "ip -br addr"))
_LOOPBACK_ENDPOINT = Case(
    shown("endpoint_is_loopback"),
    "the nodes did not find each other: each one waits at its own loopback address",
    "The rendezvous endpoint (MASTER_ADDR) is localhost or 127.x, which means this node itself on every node. Scripts "
    "fall back to it if what determines the first node fails, for example if scontrol is missing in a container.",
    (_ENDPOINT, Fix("Find out why the script did not get the first node's name.",
                    ("env | grep -E 'MASTER_ADDR|SLURM_JOB_NODELIST'", "getent hosts $MASTER_ADDR",
                     "mgpu doctor --only hostname_is_loopback"))),
    "0: + torchrun --nnodes=4 --rdzv-endpoint=localhost:29500 -m train\n"
    "2: torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    "https://github.com/mlc-ai/pith-train/pull/91")
_WITHOUT_NODES = Case(
    shown("torchrun_without_nodes"),
    "this node waited for a main node elsewhere, and torchrun was probably started without --nnodes and an endpoint",
    "The log shows torchrun without --nnodes, --node-rank, --master-addr or --rdzv-endpoint. Then each node starts a "
    "run of its own, and no rank 0 listens at MASTER_ADDR. Only operators that set PET_NNODES, PET_NODE_RANK and "
    "PET_MASTER_ADDR make these arguments unnecessary.",
    (Fix("Pass them on each node.",
         ("torchrun --nnodes=N --node-rank=RANK --nproc-per-node=8 --master-addr=ADDRESS --master-port=29500 ...",
          "torchrun --nnodes=N --rdzv-backend=c10d --rdzv-endpoint=ADDRESS:29500 --rdzv-id=JOB ...")),
     Fix("In Kubernetes, check what the operator sets.", ("env | grep -E '^PET_|MASTER_|WORLD_SIZE|RANK'",))),
    "+ torchrun /tmp/train_func.py\n[c10d] The client socket has timed out after 900000ms while trying to connect to "
    "(job-node-0-0.job, 29500).", "https://github.com/kubeflow/sdk/issues/142")
ROWS = (
    Row("log_port_taken", "root", "launcher",
        r"EADDRINUSE|errno: 98\b|^(?!.*(?:\bRAS\b|\bUDS: |[Tt]ensor[Bb]oard|[Jj]upyter)).*[Aa]ddress already in use",
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
         "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
         "RuntimeError: Address already in use", "OSError: [Errno 98] Address already in use"),
        "the rendezvous port is already in use",
        "Another run on this node, or a process left by an earlier run, listens on it. Every run uses 29500 by "
        "default.",
        (Fix("Use another port.", ("mgpu launch --port auto train.py", "accelerate launch --main_process_port 0 ...",
                                   "torchrun --standalone ...")),
         Fix("Find the process that uses it.",
             ("ss -ltnp 'sport = :29500'", "mgpu doctor --only port_busy,rank_orphaned"))),
        "https://github.com/pytorch/pytorch/issues/126510", cases=TAKEN),
    Row("log_main_port_taken", "root", "launcher", r"Tried to launch distributed communication on port `(?P<port>\d+)`",
        ("ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing "
         "it.",),
        "port {port} of the main node is already in use",
        "accelerate checks the port first. Another run, or a process left by an earlier run, uses it.",
        Fix("Use another port, the same on every node.",
            ("ss -ltnp 'sport = :{port:number}'", "mgpu launch --port auto train.py",
             "accelerate launch --main_process_port 29501 ...")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py",
        summary="The port of the main node is already in use."),
    Row("log_ranks_missing", "root", "launcher",
        r"waiting for clients\. (?P<came>\d+)/(?P<all>\d+) clients joined",
        ("torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.",),
        "only {came} of {all} ranks reached the rendezvous", _MISSING, _START_ALL, _DIST,
        summary="Not all ranks reached the rendezvous."),
    Row("log_ranks_missing_at_barrier", "secondary", "launcher",
        r"store based barrier on rank: \d+, .*world_size=(?P<all>\d+), worker_count=(?P<came>\d+)",
        ("Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 "
         "(world_size=8, worker_count=4, timeout=0:30:00)",),
        "{came} ranks reached the first barrier, {all} were expected", _MISSING, _START_ALL, _DIST,
        summary="The number of ranks at the first barrier differs from the expected number.",
        because_of=("log_rank_worked_alone",), cases=(TOO_MANY_RANKS,)),
    Row("log_master_unreachable", "root", "launcher",
        r"client socket has timed out after \d+m?s while trying to connect to \(?"
        r"(?!\(?255\.|\(?0\.0\.0\.0|[^)]+, 51216\))[\w.:\[]|"
        r"TCP client failed to connect/validate to host (?!255\.|0\.0\.0\.0)\S+ - timed out|"
        r"^(?!.*(?:cannot be retrieved|gai error)).*client socket has failed to connect to any network address of "
        r"\((?!255\.|0\.0\.0\.0)|"
        r"Failed to connect to TCPStore|connect\(\) timed out\. Original timeout was",
        ("The client socket has timed out after 60000ms while trying to connect to (127.0.0.2, 29577).",
         "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to "
         "(10.0.0.1, 29500).", "[c10d] TCP client failed to connect/validate to host 10.0.0.1:29500 - timed out "
         "(try=1, timeout=60000ms): Connection timed out", "RuntimeError: connect() timed out. Original timeout was "
         "60000 ms."),
        "the main node cannot be reached at the configured address and port",
        "It was not started, the address belongs to another node or an unreachable network, or a firewall blocks the "
        "port. On a single node: rank 0 exited, or prepares data for so long before init_process_group.",
        (Fix("Check whether the port is reachable while the main node starts.",
             ("nc -vz HOST 29500", "mgpu doctor --only network", "getent hosts HOST")),
         Fix("Use the address of the interface that connects the nodes. In Docker, use the host's network.",
             ("ip -br addr", "docker run --network=host ..."))),
        "https://github.com/pytorch/pytorch/issues/107021", explain=at_loopback, cases=(*UNREACHABLE, _WITHOUT_NODES)),
    Row("log_master_not_there_yet", "secondary", "launcher",
        r"TCP client failed to connect/validate to host (?!\[?(?:::ffff:)?255\.)\S+ - retrying|"
        r"^(?!.*any network address).*client socket has failed to connect to (?!\[(?:::ffff:)?255\.)\S+ \(errno",
        ("[c10d] TCP client failed to connect/validate to host 127.0.0.2:29577 - retrying (try=0, timeout=60000ms, "
         "delay=48384ms): Connection refused",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 111 - Connection "
         "refused)."),
        "the main node did not respond immediately",
        "This is normal while it starts, and a cause only if nothing else follows.",
        Fix("Check that it was started and is reachable.", ("nc -vz HOST 29500", "mgpu doctor --only network")),
        _REFUSED, because_of=("log_main_pod_closed_connection",), cases=(NO_ANSWER,)),
    Row("log_rendezvous_failed", "wrapper", "launcher", r"RendezvousConnectionError|RendezvousStateError",
        ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
         "failed. See inner exception for details.",),
        "torchrun could not reach its rendezvous; the inner exception has the reason",
        "No node recognizes itself as the host of the rendezvous endpoint, or the host is unreachable.",
        Fix("Use the address of one of the nodes as endpoint, and start that node first.",
            ("ip -br addr", "torchrun --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --nnodes=N ...",
             "torchrun --local-addr=ADDRESS ...")),
        "https://github.com/pytorch/pytorch/issues/79388", effect_of="store_exit"),
    Row("log_machines_did_not_meet", "root", "launcher",
        r"RendezvousTimeoutError|can't complete rendezvous: deadline|timed out waiting for all \d+ members to join",
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",),
        "not all nodes reached torchrun's rendezvous in time",
        "They have different endpoints or run ids (a random number in each node's shell, --master_addr with the c10d "
        "backend, which ignores it), or the batch script started only one node.",
        (Fix("Use the same endpoint and id on all nodes.",
             ("torchrun --rdzv-backend=c10d --rdzv-endpoint=$HOST:29500 --rdzv-id=$SLURM_JOB_ID --nnodes=N ...",)),
         Fix("Under Slurm, start the launcher with srun, once per node.",
             ("srun --ntasks-per-node=1 torchrun ...", "mgpu doctor --only slurm"))),
        "https://github.com/pytorch/pytorch/issues/124380", cases=(_LOOPBACK_ENDPOINT,)),
    Row("log_rendezvous_closed", "secondary", "launcher",
        r"Rendezvous(?:Closed|GracefulExit)Error|attempted to join .*rendezvous .*closed|"
        r"[Rr]endezvous '\S*' (?:is|was|has been) closed|The node '\S+' has (?:closed|shut down) the rendezvous",
        ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
         "The node 'node1_22_0' attempted to join the next round of the rendezvous '77', but it was closed"),
        "another node's agent had closed torchrun's rendezvous and left",
        "An agent closes it when its own ranks failed, finished or were stopped. The error is in the log of the node "
        "that left first, or the run's id belongs to an earlier run.",
        (Fix("Read the logs of the other nodes, from the node that ended first.", ("mgpu doctor --log LOGS...",)),
         Fix("For a restart, use a new run id.", ("torchrun --rdzv-id=$SLURM_JOB_ID-$SLURM_RESTART_COUNT ...",))),
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py"),
    Row("log_ssh_refused", "root", "launcher",
        r"^(?!.*git@).*(?:ssh: connect to host \S+ port \d+: (?!Connection timed out)|"
        r"Permission denied \([\w,-]*(?:publickey|password|keyboard|gssapi)|Host key verification failed)",
        ("ssh: connect to host node2 port 22: Connection refused",
         "node2: Permission denied (publickey,password).", "node2: Host key verification failed."),
        "ssh could not log in to another node, so the launcher started nothing there",
        "pdsh, mpirun and DeepSpeed start the other nodes over ssh without a password. No ssh server listens there "
        "(refused), the key is not accepted (publickey), or the host's key is unknown or changed.",
        (Fix("Try it by hand from this node until it works without a prompt.",
             ("ssh -o BatchMode=yes HOST true", "ssh-copy-id HOST", "ssh-keyscan HOST >> ~/.ssh/known_hosts")),
         Fix("Or start the launcher on each node yourself, or with srun.",
             ("srun --ntasks-per-node=1 torchrun ...",
              "accelerate launch --deepspeed_multinode_launcher standard ..."))),
        "https://man.openbsd.org/ssh"),
    Row("log_master_address_impossible", "root", "launcher",
        r"^(?=.*(?:timed out|255\.)).*(?:connect to [(\[]|to host )(?:::ffff:)?"
        r"(?P<address>255\.\d+\.\d+\.\d+|0\.0\.0\.0)\b(?!\D{1,2}51216)",
        ("The client socket has timed out after 60000ms while trying to connect to (255.255.255.0, 29500).",
         "The client socket has timed out after 60s while trying to connect to (0.0.0.0, 29500).",
         "The client socket has failed to connect to [::ffff:255.255.0.0]:29500 (errno: 110 - Connection timed out)."),
        "MASTER_ADDR is {address}, which is not the address of a node",
        "255.x is a netmask or broadcast address: the script took another column of `ifconfig`. 0.0.0.0 is an address "
        "to listen on. No other node can be reached there.",
        Fix("Set the main node's name or its address on the network that connects the nodes.",
            ("ip -br addr", "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)")),
        "https://www.rfc-editor.org/rfc/rfc6890", summary="MASTER_ADDR is a netmask or 0.0.0.0."),
    Row("log_name_not_resolved", "secondary", "network",
        r"^(?!.*any network address of ).*network addresses? of \((?!None)[\w.:-]+, \d+\) cannot be retrieved|"
        r"gaierror: \[Errno -\d+\]|Could not resolve hostname \S+|[Hh]ostname \S+ not (?:known|found)(?! in)",
        ("[W socket.cpp:764] [c10d] The IPv6 network addresses of (no-such-host, 29566) cannot be retrieved (gai "
         "error: -2 - Name or service not known).", "socket.gaierror: [Errno -3] Temporary failure in name resolution",
         "ssh: Could not resolve hostname worker-3.default.svc: Name or service not known"),
        "a node's host name cannot be resolved",
        "It is neither in DNS nor in /etc/hosts of this node. For IPv6 alone this is only a warning.",
        Fix("Use an IP address, or add the name to DNS or /etc/hosts.",
            ("getent hosts HOST", "mgpu doctor --only hostname_unresolvable,master_unresolvable")),
        "https://github.com/nyu-systems/Grendel-GS/issues/9", because_of=("log_network_failed",), cases=(OWN_NAME,)),
    Row("log_main_address_missing", "root", "launcher",
        r"network addresses of \(None, \d+\)|`MASTER_ADDR` env was not set",
        ("[W socket.cpp:764] [c10d] The IPv6 network addresses of (None, 29500) cannot be retrieved (gai error: -2 - "
         "Name or service not known).", "ValueError: Tried to launch on distributed with multinode, but `MASTER_ADDR` "
         "env was not set, please try exporting rank 0's hostname as `MASTER_ADDR`"),
        "a run on several nodes has no address of the main node",
        "accelerate passes None as a host name, and every node tries to resolve it.",
        Fix("Set it in the config.",
            ("accelerate launch --main_process_ip ADDRESS --main_process_port 29500 ...",
             "mgpu doctor --only config_options_missing --config accelerate.yaml")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    Row("log_rank_variable_missing", "root", "launcher",
        r"[Ee]nvironment variable \w+ expected, but not set|LOCAL_RANK is not in the environment|"
        r"Default process group has not been initialized",
        ("ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
         "expected, but not set", "ValueError: Default process group has not been initialized, please make sure to "
         "call init_process_group."),
        "the script was started without a launcher, or uses the process group before creating it",
        "It communicates with other ranks, but only torchrun and accelerate set RANK, WORLD_SIZE and MASTER_ADDR.",
        Fix("Start the script with a launcher.",
            ("mgpu launch train.py", "torchrun --nproc-per-node=2 train.py")), _DIST, cases=(SYNC_BATCH_NORM,)),
    Row("log_launcher_variable_missing", "root", "launcher",
        r"KeyError: ?'(?P<variable>RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|GROUP_RANK|"
        r"NODE_RANK|LOCAL_SIZE|CROSS_RANK|CROSS_SIZE|(?:OMPI_COMM_WORLD|MV2_COMM_WORLD|PMI|PMIX|MPI)_\w*(?:RANK|SIZE)|"
        r"SLURM_(?:PROCID|LOCALID|NTASKS|NPROCS|NODEID))'",
        ("KeyError: 'LOCAL_RANK'", "KeyError: 'OMPI_COMM_WORLD_RANK'", "KeyError: 'CROSS_RANK'",
         "KeyError: 'RANK'", "[rank0]: KeyError: 'MASTER_ADDR'", "KeyError:'SLURM_PROCID'"),
        "the script was started without a launcher: {variable} is not set",
        "torchrun, accelerate and deepspeed set it for every rank. Plain python and srun alone do not.",
        Fix("Start the script with a launcher.",
            ("mgpu launch train.py", "torchrun --nproc-per-node=8 train.py",
             "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS python train.py'")),
        _DIST, summary="A variable that a launcher sets for every rank is not set.", explain=explain_variable),
    Row("log_fewer_ranks_than_nodes", "root", "launcher", r"elastic/agent/server/api\.py\", line \d+, in __post_init__|"
        r"assert self\.local_world_size > 0",
        ("    assert self.local_world_size > 0",
         "  File \"/x/torch/distributed/elastic/agent/server/api.py\", line 98, in __post_init__"),
        "no rank is left for this node: num_processes is smaller than the number of nodes",
        "accelerate divides num_processes, the total of all nodes, by num_machines.",
        Fix("Set num_processes to nodes x GPUs per node.",
            ("accelerate launch --num_machines 2 --num_processes 16 ...", "mgpu configure --validate accelerate.yaml")),
        _RUN),
    Row("log_libuv_missing", "root", "launcher", r"use_libuv was requested but PyTorch was (?:build|built) without "
                                                 r"libuv",
        ("RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
         "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built without libuv support, run "
         "with USE_LIBUV=0 to disable it."),
        "this torch was built without libuv, which its rendezvous store uses by default since 2.4",
        "Builds for Windows, and some own builds, lack it. torchrun's static rendezvous ignores the setting in some "
        "releases.",
        Fix("Turn it off, or use Linux (WSL2) or a build with libuv.",
            ("export USE_LIBUV=0  # Windows: set USE_LIBUV=0", "torchrun --rdzv-backend=c10d "
                                                               "--rdzv-endpoint=localhost:0 "
             "--rdzv-conf=use_libuv=0 ...")),
        "https://docs.pytorch.org/tutorials/intermediate/TCPStore_libuv_backend.html"),
    Row("log_group_made_twice", "root", "script", r"trying to initialize the default process group twice",
        ("ValueError: trying to initialize the default process group twice!",),
        "the process group is created twice",
        "The script calls init_process_group, and a library (accelerate, Trainer, DeepSpeed) does too.",
        Fix("Check first, or leave it to the library.",
            ("if not torch.distributed.is_initialized(): torch.distributed.init_process_group('nccl')",)), _DIST),
    Row("log_local_rank_argument", "root", "launcher", r"unrecognized arguments: --local[-_]rank",
        ("lr.py: error: unrecognized arguments: --local-rank=0", "t.py: error: unrecognized arguments: --local_rank=1"),
        "the launcher passes --local-rank, which the script does not accept",
        "torch.distributed.launch passes it, with a dash since torch 2.0. torchrun sets LOCAL_RANK instead.",
        Fix("Use torchrun, or accept both spellings.",
            ("torchrun --nproc-per-node=8 train.py",
             "parser.add_argument('--local-rank', '--local_rank', type=int, default=0)")),
        "https://github.com/huggingface/pytorch-image-models/issues/1724"),
    Row("log_argument_unknown", "root", "launcher",
        r"error: (?:unrecognized arguments: (?!--local[-_]rank)|ambiguous option: |"
        r"argument [^:]+: invalid choice: )(?P<argument>.+)",
        ("train.py: error: unrecognized arguments: --bf17",
         "train.py: error: ambiguous option: --batch could match --batch_size, --batch_accum",
         "launch: error: argument --mixed_precision: invalid choice: 'bf17' (choose from 'no', 'fp16', 'bf16', 'fp8')"),
        "the script or the launcher does not accept an argument: {argument}",
        "Launcher options go before the script, script options after it.",
        Fix("Check which arguments they accept.", ("python train.py --help", "mgpu launch --help")),
        "https://docs.python.org/3/library/argparse.html#exit-methods",
        cases=UNKNOWN, explain=misspelled_option,
        summary="The script or the launcher does not accept an argument."),
    Row("log_local_rank_required", "root", "script",
        r"error: the following arguments are required: --local[-_]rank\b",
        ("train.py: error: the following arguments are required: --local_rank",),
        "the script requires --local_rank, which torchrun and accelerate do not pass",
        "Only torch.distributed.launch passes it. torchrun and accelerate set LOCAL_RANK in the environment.",
        Fix("Read it from the environment, where every launcher sets it.",
            ("parser.add_argument('--local-rank', '--local_rank', type=int, default=int(os.environ['LOCAL_RANK']))",)),
        "https://pytorch.org/docs/stable/elastic/run.html#transitioning-from-torch-distributed-launch-to-torchrun"),
    Row("log_argument_missing", "root", "launcher",
        r"(?:(?P<program>[\w.-]+)(?: <command> \[<args>\] launch)?: )?error: the following arguments are required: "
        r"(?!--local[-_]rank\b)(?P<argument>.+)",
        ("prog: error: the following arguments are required: --data",),
        "a required argument is missing: {argument}",
        "The program named in the line requires it. Script arguments go after the script.",
        Fix("Add it, and check which others exist.", ("mgpu launch train.py --help",)),
        "https://docs.python.org/3/library/argparse.html#exit-methods",
        summary="A required argument of the script or the launcher is missing.", explain=argument_missing),
    Row("log_script_not_found", "root", "script",  # no rank can work, whatever else is wrong
        r"can't open file '?(?P<script>[^']+?)'?: \[Errno 2\]",
        ("/usr/bin/python: can't open file '/home/ada/tran.py': [Errno 2] No such file or directory",),
        "the script {script} does not exist",
        "The path is wrong, is relative to a folder other than the launcher's, or is not mounted on this node.",
        Fix("Check the current folder.", ("pwd; ls -l {script:path}",)), "https://docs.python.org/3/using/cmdline.html",
        summary="The training script does not exist.", cases=(BLANK_SCRIPT, WINDOWS_SCRIPT, RELATIVE_SCRIPT),
        because_of=("log_folder_not_entered", "log_path_in_slurm_spool")),
    Row("log_launcher_not_found", "root", "launcher",
        r"(?:accelerate|torchrun|deepspeed|python3?|mgpu): (?:command )?not found|"
        r"exec: \"?(?:accelerate|torchrun|deepspeed|python3?)\"?: executable file not found|"
        r"'accelerate' is not recognized",
        ("/bin/bash: accelerate: command not found", "bash: line 3: torchrun: command not found",
         "sh: 1: accelerate: not found", 'exec: "accelerate": executable file not found in $PATH'),
        "the launcher is not on PATH",
        "The environment is not active in this shell (sudo, sbatch, a container), or the launcher is not installed.",
        Fix("Start it through the interpreter.",
            ("python -m accelerate.commands.launch ...", "python -m torch.distributed.run ...",
             "mgpu doctor --only accelerate_command_missing")),
        "https://github.com/KimMeen/Time-LLM/issues/20",
        because_of=("log_conda_folder_missing", "log_environment_not_active",
                    "log_module_not_loaded"), cases=(NO_PYTHON,)),
    Row("log_ranks_counted_without_gpu", "root", "launcher", r"Unsupported nproc_per_node value|"
        r"ValueError: Cuda is not available",
        ("ValueError: Unsupported nproc_per_node value: gpus", "ValueError: Cuda is not available."),
        "torchrun cannot count the GPUs",
        "nproc_per_node has an unknown value, or is `gpu` while torch sees no GPU.",
        Fix("Pass a number, or find out why torch sees no GPU.",
            ("torchrun --nproc-per-node=8 ...", "mgpu doctor --only torch_sees_fewer_gpus,driver")), _RUN),
    Row("log_backend_missing", "root", "launcher",
        r"No backend type associated with device type \w+|Your assigned backend \S+ is not ava\w+ble|"
        r"Tensors must be CUDA and dense|ProcessGroupGloo::\w+: (?:unsupported|invalid) device|only supports dense CPU",
        ("RuntimeError: No backend type associated with device type cpu",
         "RuntimeError: Tensors must be CUDA and dense",
         "ValueError: Your assigned backend nccl is not available, please use gloo"),
        "a collective got tensors that the group's backend does not support",
        "NCCL supports GPU tensors only, gloo mostly CPU tensors. A tensor was not moved to the GPU, or the group has "
        "one backend but needs both. Libraries for one GPU (Unsloth) exchange CPU tensors too.",
        Fix("Move the tensor, or set both backends.",
            ("torch.distributed.init_process_group('cpu:gloo,cuda:nccl')",)), _DIST, cases=_device_cases.BACKENDS),
    Row("log_notebook_touched_gpu", "root", "script",
        r"should only be initialized inside your training function|"
        r"To launch a multi-(?:GPU|device) training from your notebook|"
        r"has been initialized before the `notebook_launcher`|"
        r"can't create new processes if CUDA is already initialized",
        ("ValueError: To launch a multi-device training from your notebook, the `Accelerator` should only be "
         "initialized inside your training function.",
         "RuntimeError: CUDA has been initialized before the `notebook_launcher` could create a forked subprocess.",
         "RuntimeError: Lightning can't create new processes if CUDA is already initialized. Did you manually call "
         "`torch.cuda.*` functions, have moved the model to the device, or allocated memory on the GPU any other way?"),
        "a notebook used CUDA or created an Accelerator before the launcher started the ranks",
        "The launcher of a notebook forks its process, and a forked process cannot use its parent's CUDA.",
        (Fix("Restart the kernel. Create the Accelerator and the model, and call torch.cuda, only inside the training "
             "function.", ()),
         Fix("Or run a script.", ("mgpu launch train.py",))), _NOTEBOOK),
    Row("log_main_not_guarded", "root", "script",
        r"start a new process before the|process has finished its bootstrapping phase",
        ("        An attempt has been made to start a new process before the",
         "        current process has finished its bootstrapping phase."),
        "the script starts processes while it is being imported",
        "With spawn (loader workers, mp.spawn) every child imports the script again, so its top-level code needs a "
        "guard.",
        Fix("Put the top-level code in a guarded function.", ("if __name__ == '__main__': main()",)),
        "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods"),
    Row("log_no_accelerator_yet", "root", "script",
        r"`PartialState` or `Accelerator` must be initialized|initialize the accelerate state by calling either",
        ("ValueError: The `PartialState` or `Accelerator` must be initialized before calling this function.",
         "RuntimeError: You must initialize the accelerate state by calling either `PartialState()` or `Accelerator()` "
         "before using the logging utility."),
        "a feature of accelerate is used before an Accelerator exists",
        "Its logger and decorators need the rank.",
        Fix("Create the Accelerator first.", ("accelerator = Accelerator()",)),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    Row("log_child_failed", "wrapper", "launcher",
        r"ChildFailedError|error_file: <N/A>|failed \(exitcode: [1-9]\d?\) local_rank: \d|"
        r"ProcessRaisedException|"
        r"torch\.multiprocessing\.spawn\.ProcessExitedException"
        r": process \d+ terminated with exit code|(?<!'ninja', '-v'\]' )returned non-zero exit status (?!137\b)|"
        r"(?<!\.yaml'\] )(?<!\.yml'\] )exits with return code = [1-9]",
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "  error_file: <N/A>",
         "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 7) of x",
         "[ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = 1",
         "torch.multiprocessing.spawn.ProcessRaisedException:",
         "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
         "subprocess.CalledProcessError: Command '['/usr/bin/python', 't.py']' returned non-zero exit status 1."),
        "a rank failed; the launcher's summary does not report why",
        "The exception is further up, in the output of that rank. A rank that was killed prints none.",
        (_LOG, Fix("Let torch record the exception.",
                   ("from torch.distributed.elastic.multiprocessing.errors import record",))),
        _ELASTIC, tags=("last_line", "exit_only"), cases=(FAILED_AT_START,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
