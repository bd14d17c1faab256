"""Did the ranks not find each other, or one of them not start?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_DIST = "https://pytorch.org/docs/stable/distributed.html"
_ELASTIC = "https://pytorch.org/docs/stable/elastic/errors.html"
_RUN = "https://pytorch.org/docs/stable/elastic/run.html"
_NOTEBOOK = "https://huggingface.co/docs/accelerate/basic_tutorials/notebook"
_LOG = Fix("Read the log of the rank that failed first.", ("mgpu launch train.py", "mgpu doctor --log LOG"))
_MISSING = "A machine was not started, or with another number of machines or processes; or some ranks died before."
# fmt: off
_START_ALL = (
    Fix("Start every machine, with the same numbers.",
        ("mgpu launch --dry-run train.py", "env | grep -E 'WORLD_SIZE|RANK|MASTER'")),
    Fix("All were started: see whether they reach the main one.", ("mgpu doctor --only network",)),
)

ROWS = (
    Row("log_port_taken", "root", "launcher",
        r"EADDRINUSE|errno: 98\b|^(?!.*(?:\bRAS\b|[Tt]ensor[Bb]oard|[Jj]upyter)).*[Aa]ddress already in use",
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
         "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
         "RuntimeError: Address already in use", "OSError: [Errno 98] Address already in use"),
        "the port at which the ranks meet is taken",
        "Another run on this machine, or a process that an earlier run left, listens there; every run takes 29500 "
        "unless told otherwise.",
        (Fix("Take another port.", ("mgpu launch --port auto train.py", "accelerate launch --main_process_port 0 ...",
                                    "torchrun --standalone ...")),
         Fix("See who holds it.", ("ss -ltnp 'sport = :29500'", "mgpu doctor --only port_busy,rank_orphaned"))),
        "https://github.com/pytorch/pytorch/issues/126510"),
    Row("log_main_port_taken", "root", "launcher", r"Tried to launch distributed communication on port `(?P<port>\d+)`",
        ("ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing "
         "it.",),
        "the port {port} of the main machine is taken",
        "accelerate looks before it starts anything: another run, or a process that an earlier one left, is there.",
        Fix("Take another port: the same on every machine.",
            ("ss -ltnp 'sport = :{port:number}'", "mgpu launch --port auto train.py",
             "accelerate launch --main_process_port 29501 ...")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py",
        summary="The port of the main machine is taken."),
    Row("log_ranks_missing", "root", "launcher",
        r"waiting for clients\. (?P<came>\d+)/(?P<all>\d+) clients joined",
        ("torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 1/2 clients joined.",),
        "only {came} of {all} ranks came to the meeting point", _MISSING, _START_ALL, _DIST,
        summary="Not all ranks came to the meeting point."),
    Row("log_ranks_missing_at_barrier", "root", "launcher",
        r"store based barrier on rank: \d+, .*world_size=(?P<all>\d+), worker_count=(?P<came>\d+)",
        ("Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 "
         "(world_size=8, worker_count=4, timeout=0:30:00)",),
        "{came} ranks came to the first barrier, and {all} were to come", _MISSING, _START_ALL, _DIST,
        summary="Other than the expected number of ranks came to the first barrier."),
    Row("log_master_unreachable", "root", "launcher",
        r"client socket has timed out after \d+m?s while trying to connect to \(|"
        r"TCP client failed to connect/validate to host \S+ - timed out|"
        r"client socket has failed to connect to any network address|"
        r"Failed to connect to TCPStore|connect\(\) timed out\. Original timeout was",
        ("The client socket has timed out after 60000ms while trying to connect to (127.0.0.2, 29577).",
         "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to "
         "(10.0.0.1, 29500).", "[c10d] TCP client failed to connect/validate to host 10.0.0.1:29500 - timed out "
         "(try=1, timeout=60000ms): Connection timed out", "RuntimeError: connect() timed out. Original timeout was "
         "60000 ms."),
        "the main machine cannot be reached at the address and port that were given",
        "It was not started, the address is another machine's or of a network that is not joined, or a firewall is "
        "between them.",
        (Fix("See whether the port can be reached while the main machine starts.",
             ("nc -vz HOST 29500", "mgpu doctor --only network", "getent hosts HOST")),
         Fix("Use the address of the interface that joins the machines; in Docker use the host's network.",
             ("ip -br addr", "docker run --network=host ..."))),
        "https://github.com/pytorch/pytorch/issues/107021"),
    Row("log_master_not_there_yet", "secondary", "launcher",
        r"TCP client failed to connect/validate to host \S+ - retrying|"
        r"client socket has failed to connect to \S+ \(errno",
        ("[c10d] TCP client failed to connect/validate to host 127.0.0.2:29577 - retrying (try=0, timeout=60000ms, "
         "delay=48384ms): Connection refused",
         "[W socket.cpp:601] [c10d] The client socket has failed to connect to [node1]:29500 (errno: 111 - Connection "
         "refused)."),
        "the main machine did not answer at once",
        "Normal while it starts; a cause only where nothing else follows.",
        Fix("See that it was started, and can be reached.", ("nc -vz HOST 29500", "mgpu doctor --only network")),
        "https://github.com/pytorch/pytorch/issues/107021"),
    Row("log_rendezvous_failed", "wrapper", "launcher", r"RendezvousConnectionError|RendezvousStateError",
        ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
         "failed. See inner exception for details.",),
        "torchrun could not reach its meeting point; the inner exception says why",
        "No machine takes itself for the host of the rendezvous endpoint, or it cannot be reached.",
        Fix("The endpoint must be an address of one of the machines; start that one first.",
            ("ip -br addr", "torchrun --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 --nnodes=N ...",
             "torchrun --local-addr=ADDRESS ...")),
        "https://github.com/pytorch/pytorch/issues/79388", effect_of="store_exit"),
    Row("log_machines_did_not_meet", "root", "launcher", r"RendezvousTimeoutError|RendezvousClosedError",
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
         "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"),
        "not all machines came to torchrun's meeting point in time",
        "They have different endpoints or run ids (a random number in each node's shell, --master_addr with the "
        "backend c10d, which ignores it), or the batch script started one machine only.",
        (Fix("Give all the same endpoint and id.",
             ("torchrun --rdzv-backend=c10d --rdzv-endpoint=$HOST:29500 --rdzv-id=$SLURM_JOB_ID --nnodes=N ...",)),
         Fix("Under Slurm start the launcher with srun, once per node.",
             ("srun --ntasks-per-node=1 torchrun ...", "mgpu doctor --only slurm"))),
        "https://github.com/pytorch/pytorch/issues/124380"),
    Row("log_name_not_resolved", "secondary", "network",
        r"network addresses? of \((?!None)\S+, \d+\) cannot be retrieved|"
        r"gaierror: \[Errno -\d+\]|hostname \S+ not (?:known|found)",
        ("[W socket.cpp:764] [c10d] The IPv6 network addresses of (no-such-host, 29566) cannot be retrieved (gai "
         "error: "
         "-2 - Name or service not known).", "socket.gaierror: [Errno -3] Temporary failure in name resolution"),
        "the name of a machine cannot be resolved",
        "It is in no DNS and in no /etc/hosts of this machine; with IPv6 alone it is only a warning.",
        Fix("Use an address, or make the name known.",
            ("getent hosts HOST", "mgpu doctor --only hostname_unresolvable,master_unresolvable")),
        "https://github.com/nyu-systems/Grendel-GS/issues/9"),
    Row("log_main_address_missing", "root", "launcher",
        r"network addresses of \(None, \d+\)|`MASTER_ADDR` env was not set",
        ("[W socket.cpp:764] [c10d] The IPv6 network addresses of (None, 29500) cannot be retrieved (gai error: -2 - "
         "Name or service not known).", "ValueError: Tried to launch on distributed with multinode, but `MASTER_ADDR` "
         "env was not set, please try exporting rank 0's hostname as `MASTER_ADDR`"),
        "a run over several machines was given no address of the main one",
        "accelerate passes the word None on as a host name, and every machine looks for it.",
        Fix("Name it in the config.",
            ("accelerate launch --main_process_ip ADDRESS --main_process_port 29500 ...",
             "mgpu doctor --only config_master_missing --config accelerate.yaml")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    Row("log_rank_variable_missing", "root", "launcher",
        r"environment variable \w+ expected, but not set|"
        r"Default process group has not been initialized",
        ("ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
         "expected, "
         "but not set", "ValueError: Default process group has not been initialized, please make sure to call "
         "init_process_group."),
        "the script was started without a launcher, or uses the group before it is made",
        "It speaks to the other ranks, and RANK, WORLD_SIZE and MASTER_ADDR are set by torchrun or accelerate only.",
        Fix("Start it with a launcher.", ("mgpu launch train.py", "torchrun --nproc-per-node=2 train.py")), _DIST),
    Row("log_group_made_twice", "root", "script", r"trying to initialize the default process group twice",
        ("ValueError: trying to initialize the default process group twice!",),
        "the process group is made twice",
        "The script calls init_process_group, and a library (accelerate, Trainer, DeepSpeed) does so as well.",
        Fix("Ask first, or leave it to the library.",
            ("if not torch.distributed.is_initialized(): torch.distributed.init_process_group('nccl')",)), _DIST),
    Row("log_local_rank_argument", "root", "launcher", r"unrecognized arguments: --local[-_]rank",
        ("lr.py: error: unrecognized arguments: --local-rank=0", "t.py: error: unrecognized arguments: --local_rank=1"),
        "the launcher passes --local-rank, and the script does not know it",
        "torch.distributed.launch does so, with a dash since torch 2.0; torchrun sets LOCAL_RANK instead.",
        Fix("Start it with torchrun, or accept both spellings.",
            ("torchrun --nproc-per-node=8 train.py",
             "parser.add_argument('--local-rank', '--local_rank', type=int, default=0)")),
        "https://github.com/huggingface/pytorch-image-models/issues/1724"),
    Row("log_argument_unknown", "root", "launcher",
        r"error: (?:unrecognized arguments: (?!--local[-_]rank)|argument [^:]+: invalid choice: )(?P<argument>.+)",
        ("train.py: error: unrecognized arguments: --bf17",
         "accelerate <command> [<args>] launch: error: argument --mixed_precision: invalid choice: 'bf17' "
         "(choose from 'no', 'fp16', 'bf16', 'fp8')"),
        "the script or the launcher does not take an argument: {argument}",
        "Options of the launcher stand before the script, those of the script after it.",
        Fix("See which it knows.", ("python train.py --help", "mgpu launch --help")),
        "https://docs.python.org/3/library/argparse.html#exit-methods",
        summary="The script or the launcher does not take an argument."),
    Row("log_argument_missing", "root", "launcher",
        r"error: the following arguments are required: (?P<argument>.+)",
        ("train.py: error: the following arguments are required: --data",),
        "an argument is missing: {argument}",
        "The program named in the line wants it; the script's own arguments stand after the script.",
        Fix("Give it, and see what else there is.", ("mgpu launch train.py --help",)),
        "https://docs.python.org/3/library/argparse.html#exit-methods",
        summary="The script or the launcher misses an argument."),
    Row("log_script_not_found", "root", "launcher",
        r"can't open file '?(?P<script>[^']+?)'?: \[Errno 2\]",
        ("/usr/bin/python: can't open file '/home/ada/tran.py': [Errno 2] No such file or directory",),
        "the script {script} is not there",
        "The path is wrong, or relative to another folder than the launcher was started in (or not mounted on this "
        "node).",
        Fix("See where you are.", ("pwd; ls -l {script:path}",)), "https://docs.python.org/3/using/cmdline.html",
        summary="The training script is not there."),
    Row("log_launcher_not_found", "root", "launcher",
        r"(?:accelerate|torchrun|deepspeed|python3?|mgpu): (?:command )?not found|"
        r"'accelerate' is not recognized",
        ("/bin/bash: accelerate: command not found", "bash: line 3: torchrun: command not found",
         "sh: 1: accelerate: not found"),
        "the launcher is not on PATH",
        "The environment is not activated in this shell (sudo, sbatch, a container), or it is not installed.",
        Fix("Start it by the interpreter.",
            ("python -m accelerate.commands.launch ...", "python -m torch.distributed.run ...",
             "mgpu doctor --only accelerate_command_missing")),
        "https://github.com/KimMeen/Time-LLM/issues/20"),
    Row("log_ranks_counted_without_gpu", "root", "launcher", r"Unsupported nproc_per_node value|"
        r"ValueError: Cuda is not available",
        ("ValueError: Unsupported nproc_per_node value: gpus", "ValueError: Cuda is not available."),
        "torchrun cannot count the GPUs",
        "nproc_per_node is a word it does not know, or `gpu` where torch sees none.",
        Fix("Say a number, or see why no GPU is seen.",
            ("torchrun --nproc-per-node=8 ...", "mgpu doctor --only torch_sees_fewer_gpus,driver")), _RUN),
    Row("log_backend_missing", "root", "launcher",
        r"No backend type associated with device type \w+|Your assigned backend \S+ is not available|"
        r"Tensors must be CUDA and dense|Unknown c10d backend type|Invalid backend: ",
        ("RuntimeError: No backend type associated with device type cpu",
         "RuntimeError: Tensors must be CUDA and dense",
         "ValueError: Your assigned backend nccl is not available, please use gloo"),
        "a collective got tensors that the group's backend cannot carry",
        "NCCL carries GPU tensors only, gloo mostly CPU ones: something was not moved to the device, or the group has "
        "one backend where two are needed.",
        Fix("Move the tensor, or name both backends.",
            ("torch.distributed.init_process_group('cpu:gloo,cuda:nccl')",)), _DIST),
    Row("log_notebook_touched_gpu", "root", "script",
        r"should only be initialized inside your training function|"
        r"To launch a multi-(?:GPU|device) training from your notebook",
        ("ValueError: To launch a multi-device training from your notebook, the `Accelerator` should only be "
         "initialized "
         "inside your training function.",),
        "a notebook made an Accelerator before the launcher started the ranks",
        "notebook_launcher forks, and CUDA must not have been used before.",
        Fix("Restart the kernel, and make the Accelerator inside the training function only.", ()), _NOTEBOOK),
    Row("log_main_not_guarded", "root", "script",
        r"start a new process before the|process has finished its bootstrapping phase",
        ("        An attempt has been made to start a new process before the",
         "        current process has finished its bootstrapping phase."),
        "the script starts processes while it is being imported",
        "With spawn (loader workers, mp.spawn) every child imports the script again; its body must be guarded.",
        Fix("Put the body below a guard.", ("if __name__ == '__main__': main()",)),
        "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods"),
    Row("log_no_accelerator_yet", "root", "script",
        r"`PartialState` or `Accelerator` must be initialized|initialize the accelerate state by calling either",
        ("ValueError: The `PartialState` or `Accelerator` must be initialized before calling this function.",
         "RuntimeError: You must initialize the accelerate state by calling either `PartialState()` or `Accelerator()` "
         "before using the logging utility."),
        "something of accelerate is used before an Accelerator is made",
        "Its logger and decorators ask which rank they are on.",
        Fix("Make the Accelerator first.", ("accelerator = Accelerator()",)),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    Row("log_child_failed", "wrapper", "launcher",
        r"ChildFailedError|error_file: <N/A>|ProcessRaisedException|"
        r"torch\.multiprocessing\.spawn\.ProcessExitedException"
        r": process \d+ terminated with exit code|returned non-zero exit status (?!137\b)|"
        r"exits with return code = \d",
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "  error_file: <N/A>",
         "[ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = 1",
         "torch.multiprocessing.spawn.ProcessRaisedException:",
         "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
         "subprocess.CalledProcessError: Command '['/usr/bin/python', 't.py']' returned non-zero exit status 1."),
        "a rank failed; the launcher's summary does not tell why",
        "The exception stands above it, in the output of that rank, or nowhere where the rank was killed.",
        (_LOG, Fix("Let torch record it.", ("from torch.distributed.elastic.multiprocessing.errors import record",))),
        _ELASTIC, tags=("last_line",)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
