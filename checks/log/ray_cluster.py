"""Did Ray fail: its GPUs, its memory, its workers, its head node?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._ray_cases import FEWER_GPUS, GPUS_IN_USE, NODE_DIED, POD_MEMORY

_CLUSTER = "https://docs.ray.io/en/latest/cluster/faq.html"
_RESOURCES = "https://docs.ray.io/en/latest/ray-core/scheduling/resources.html"
_FAULTS = "https://docs.ray.io/en/latest/ray-core/fault-tolerance.html"
_OBJECTS = "https://docs.ray.io/en/latest/ray-core/objects/object-spilling.html"
_VERL = "https://github.com/verl-project/verl/issues/539"
_VERSIONS = re.compile(
    r"Ray: (?P<ray>[\w.]+) Python: (?P<python>[\w.]+) .*?Ray: (?P<own_ray>[\w.]+) Python: (?P<own_python>[\w.]+)"
)
# fmt: off
_STATUS = Fix("Check what Ray has and who uses it. Stop an old cluster or another job.",
              ("ray status", "ray list actors --filter state=ALIVE", "ray stop --force", "nvidia-smi"))
_LOGS = Fix("Read the log of the process that died, on its own node.",
            ("ls -t /tmp/ray/session_latest/logs | head", "grep -l -i 'error\\|killed' /tmp/ray/session_latest/logs/*",
             "sudo dmesg -T | grep -i 'killed process' | tail"))


def _head(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    address = groups["address"].rstrip(".,")
    if not address.startswith(":"):
        return None
    return Meaning(
        f"the address of Ray's head node has no host: {address}",
        "A variable of the start command is empty on this node (MASTER_ADDR, HEAD_NODE_IP), so Ray connects to itself.",
        (Fix("Set it to the address of the node that runs `ray start --head`.",
             ("echo $MASTER_ADDR", "ray start --address=HEAD_ADDRESS:6379 --block")),),
    )


def _versions(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the versions of the cluster and of this process, which the message has."""
    found = _VERSIONS.search(raised.message) if raised else None
    if not found:
        return None
    same_ray = found["ray"] == found["own_ray"]
    name, theirs, own = ("Python", "python", "own_python") if same_ray else ("Ray", "ray", "own_ray")
    install = (shell("conda install python={:id}", found["python"]), "which -a python ray") if same_ray else ()
    return Meaning(
        f"the Ray cluster runs {name} {found[theirs]}, but this process runs {name} {found[own]}",
        f"Ray needs the same {name} version on all nodes and in the job"
        f"{', down to the last number (objects are pickled)' if same_ray else ''}. An old cluster still runs, or this "
        "node or job has another environment.",
        (
            Fix("Stop the cluster, and start it from this environment on all nodes.",
                ("ray stop --force", "ray start --head --port=6379")),
            Fix(f"Or use the cluster's {name} here.",
                install or (shell("pip install {:package}", f"ray=={found['ray']}"),)),
        ),
    )


ROWS = (
    Row("log_ray_task_without_gpu", "root", "launcher",
        r"Current node has no GPU available",
        ("ValueError: Current node has no GPU available. current_node_resource={'CPU': 64.0}. vLLM engine cannot start "
         "without GPU. Make sure you have at least 1 GPU available in a node current_node_id='9d3c'",),
        "vLLM was started in a Ray task or actor that Ray gave no GPU",
        "Ray hides all GPUs from a task or actor that did not request any (num_gpus), or whose placement group has "
        "none on this node. The GPUs are there, and newer vLLM releases insist on one in the process that starts the "
        "engine. If a framework started the task, that is its mistake, or it is too old for this vLLM.",
        (Fix("Request GPUs where the task or actor is defined, or start vLLM in the main process.",
             ("worker = ray.remote(num_gpus=1)(function)", "Actor.options(num_gpus=1).remote()")),
         Fix("If a framework defines it: upgrade the framework, or use one engine without its data parallel workers.",
             ("pip show vllm ray", "data_parallel_size=1")), _STATUS),
        "https://github.com/vllm-project/vllm/issues/14610"),
    Row("log_ray_driver_off_its_gpus", "root", "launcher", r"Ray does not allocate any GPUs on the driver node",
        ("ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the Ray placement group or "
         "running the driver on a GPU node.",),
        "Ray placed vLLM's driver on a node where its placement group has no GPU",
        "The process that starts vLLM must run on a node of its workers. The placement group has its GPUs on another "
        "node, because the actor was not pinned to one of its bundles, or the group asks for no GPU.",
        (Fix("Pin the actor to a bundle of its own placement group, and pack the group.",
             ("PlacementGroupSchedulingStrategy(placement_group=pg, placement_group_bundle_index=0)",
              "placement_group([{{'GPU': 1, 'CPU': 1}}] * 4, strategy='PACK')")),
         Fix("If a framework starts it: upgrade the framework. Tensor parallel size 1, or one node, avoids it.",
             ("pip show vllm ray", "--vllm_tensor_parallel_size 1  # OpenRLHF")), _STATUS),
        "https://github.com/OpenRLHF/OpenRLHF/pull/732"),
    Row("log_ray_gpus_taken", "root", "launcher",
        r"[Tt]otal available GPUs (?P<free>[\d.]+) is less than total desired GPUs (?P<wanted>[\d.]+)",
        ("ValueError: Total available GPUs 0 is less than total desired GPUs 8",
         "ValueError: Total available GPUs 4.0 is less than total desired GPUs 8"),
        "Ray has {free} free GPUs, but the job needs {wanted}",
        "Another job on the same Ray cluster, or the workers of an earlier run, hold them. Or Ray was started without "
        "them (--num-gpus, CUDA_VISIBLE_DEVICES, a node that did not join). The GPUs themselves are not the problem.",
        (_STATUS, Fix("Set the number of GPUs of the job to what Ray has.",
                      ("trainer.n_gpus_per_node=8 trainer.nnodes=1",))), _VERL,
        summary="Ray has fewer free GPUs than the job needs."),
    Row("log_ray_request_too_large", "secondary", "launcher",
        r"(?:No available node types can fulfill resource requests?|resource requests? cannot be scheduled right now:|"
        r"Infeasible resource requests?:) *(?:defaultdict\(<class 'float'>, )?"
        r"(?P<request>\{[^}]*\}|\S.*)",
        ("(autoscaler +14s) Error: No available node types can fulfill resource request "
         "defaultdict(<class 'float'>, {'CPU': 2.0, 'GPU': 2.0}). Add suitable node types to this "
         "cluster to resolve this issue.",
         "(scheduler +1m) Warning: The following resource request cannot be scheduled right now: {'GPU': 2.0}. This is "
         "likely due to all cluster resources being claimed by actors."),
        "Ray cannot start a worker: no node has enough free resources for it",
        "The request ({request}) needs more GPUs or CPUs on one node than Ray has or has left. Until then the job "
        "waits.",
        (_STATUS, Fix("Start Ray with the GPUs and CPUs that it may use.",
                      ("ray start --head --num-gpus=8 --num-cpus=64",))), _RESOURCES,
        cases=(FEWER_GPUS, GPUS_IN_USE)),
    Row("log_ray_group_waits", "secondary", "launcher",
        r"(?:No|not) enough resources? for placement group|[Pp]lacement group \S*.{0,40}"
        r"(?:timed out|not ready|infeasible|cannot be scheduled|is pending|to be scheduled)|"
        r"Cannot provide a placement group",
        ("ray.exceptions.PlacementGroupSchedulingError: Placement group 5b2 cannot be scheduled",
         "Waiting for placement group to be scheduled",
         "ValueError: Cannot provide a placement group of placement_group_specs=[{'GPU': 4.0}] within 1800 seconds."),
        "Ray cannot reserve the GPUs and CPUs of the job (placement group)",
        "The group needs all its GPUs and CPUs at once, on the nodes that its strategy allows. More CPUs than a "
        "node has are as fatal as more GPUs.",
        _STATUS, "https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html"),
    Row("log_ray_worker_died", "secondary", "kernel",
        r"^(?!.*Worker PID: \d+ Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits).*?(?:"
        r"[Ww]orker (?:process )?(?:has )?died(?: or was killed)? (?:while|unexpectedly)|[Aa]ctor died unexpectedly|"
        r"(?<!\()(?:ActorDiedError|RayActorError)(?!.*(?:creation task|ray::))|WorkerCrashedError|"
        r"ActorUnavailableError|worker unexpectedly exits with a "
        r"connection error|Worker unexpectedly exits with|leased worker .*died|Worker exit type: SYSTEM_ERROR)",
        ("ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.",
         "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
         "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
         "ray.exceptions.ActorUnavailableError: The actor 5b2 is unavailable: The actor is temporarily unavailable",
         "Worker unexpectedly exits with a connection error code 2. End of file."),
        "a Ray worker process died; its own output has the reason",
        "Ray only reports that the connection closed. The worker was killed (host memory), crashed in compiled code, "
        "or was stopped with the job.",
        _LOGS, _FAULTS, cases=(POD_MEMORY, NODE_DIED), because_of=("log_cuda_call_failed", "log_ray_worker_vanished")),
    Row("log_ray_worker_vanished", "secondary", "kernel",
        r"Worker IP address: (?P<address>\S+) Worker port: \d+ Worker PID: (?P<pid>\d+) Worker exit type: SYSTEM_ERROR "
        r"Worker exit detail: Worker unexpectedly exits with a connection error",
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP "
         "address: 10.0.0.3 Worker port: 10023 Worker PID: 4711 Worker exit type: SYSTEM_ERROR Worker exit detail: "
         "Worker unexpectedly exits with a connection error code 2. End of file.",),
        "Ray's worker process {pid} on {address} ended without an exception of its own: it was killed, or crashed in "
        "compiled code",
        "Ray only saw its connection close. What other processes raise then (ActorUnavailableError, ActorDiedError) is "
        "a consequence. Usually the kernel killed it because the host's memory was full: parameters and optimizer that "
        "are offloaded to the CPU, a checkpoint that is saved, many rollouts. Otherwise it was ray stop, or SIGSEGV.",
        (Fix("See what it did last, in this log and in its own one, and whether the kernel killed it.",
             ("grep -n 'pid={pid:number}[,)]' LOG | tail",
              "tail /tmp/ray/session_latest/logs/worker-*-{pid:number}.err",
              "sudo dmesg -T | grep -i 'killed process' | tail")),
         Fix("If it was killed, give the job more host memory, or keep less there: no offload, fewer workers.")),
        _FAULTS, because_of=("log_cuda_call_failed",), summary="A Ray worker process ended without an exception."),
    Row("log_ray_node_lost", "secondary", "network",
        r"has been marked dead because the detector has missed|[Rr]aylet (?:process )?(?:has )?(?:died|exited|is "
        r"terminated|"
        r"exits)|NodeDiedError|Owner's node has crashed|Raylet is terminated|lost contact with (?:the )?raylet|"
        r"config from raylet because it is dead",
        ("The node with node id: 5b2 and address: 10.0.0.3 and node name: 10.0.0.3 has been marked dead because the "
         "detector has missed too many heartbeats from it.",
         "Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user or system",
         "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable."),
        "Ray lost a node: its raylet stopped or was not reachable",
        "The node went down, its host memory was full, its disk (/tmp/ray) was full, or the network failed.",
        (Fix("Check the node, and Ray's logs there.",
             ("ray status", "df -h /tmp", "tail -50 /tmp/ray/session_latest/logs/raylet.out")), _LOGS), _FAULTS),
    Row("log_ray_head_unreachable", "root", "launcher",
        r"(?:Failed to connect to|Unable to connect to|Could not connect to) (?:GCS|Ray cluster)(?: at address| at)? "
        r"?(?P<address>\S*:\d+)",
        ("gcs_rpc_client.h:151: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
         "gcs_rpc_client.h:151: Failed to connect to GCS at address :6379 within 5 seconds.",
         "RuntimeError: Unable to connect to GCS at 10.0.0.1:6379. Check that (1) Ray GCS with matching version "
         "started"),
        "Ray's head node cannot be reached at {address}",
        "It was not started or has stopped, the address belongs to another network, a firewall blocks the port, or the "
        "head runs another Ray version.",
        Fix("Start the head first, with an address that the other nodes reach.",
            ("ray start --head --node-ip-address=ADDRESS --port=6379", "nc -vz ADDRESS 6379", "ip -br addr")), _CLUSTER,
        summary="Ray's head node cannot be reached.", explain=_head),
    Row("log_ray_not_running", "root", "launcher",
        r"Could not find any running Ray instance|we cannot find the matched Raylet address|"
        r"Timed out while waiting for GCS to become available|GCS has started but no raylets have registered",
        ("ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by setting "
         "`--address` flag or `RAY_ADDRESS` environment variable.",
         "Exception: This node has an IP address of 10.0.0.4, but we cannot find the matched Raylet address.",
         "Failed to get cluster ID from GCS server: TimedOut: Timed out while waiting for GCS to become available."),
        "no Ray cluster is running here, or this node did not join it",
        "`ray start` did not run on this node, failed, or used another address than the job does.",
        Fix("Start Ray on every node before the job, and check that all joined.",
            ("ray status", "ray start --head --port=6379", "ray start --address=ADDRESS:6379", "echo $RAY_ADDRESS")),
        _CLUSTER),
    Row("log_ray_versions_differ", "root", "library",
        r"Error: Version mismatch: The cluster was started with|Ray versions? mismatch|Python version mismatch.*[Rr]ay",
        ("RuntimeError: Version mismatch: The cluster was started with:",),
        "this process has a different Ray or Python version than the Ray cluster it connects to",
        "The next lines name both. An old cluster still runs on the node, or the nodes have different environments.",
        Fix("Stop the old cluster, and start it from this environment on all nodes.",
            ("ray stop --force", "which ray python", "pip show ray")), _CLUSTER,
        summary="This process has another Ray or Python version than the Ray cluster.", explain=_versions),
    Row("log_ray_objects_full", "root", "script",
        r"ObjectStoreFullError|ray\.exceptions\.OutOfDiskError|configured object store size \(\S+ ?\w*\) exceeds "
        r"/dev/shm|"
        r"Failed to put object .* in object store because it is full",
        ("ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full.",
         "ray.exceptions.OutOfDiskError: Local disk is full",
         "ValueError: The configured object store size (128.0 GB) exceeds /dev/shm size (64.0 GB)."),
        "Ray's object store is full, or larger than /dev/shm",
        "Objects passed between workers are kept in /dev/shm, and on the disk of /tmp/ray if they do not fit.",
        Fix("Give the container more shared memory, Ray a smaller store, or spill to a larger disk.",
            ("df -h /dev/shm /tmp", "docker run --shm-size=64g ...", "ray start --object-store-memory=30000000000",
             "ray memory --stats-only")), _OBJECTS),
    Row("log_ray_workers_not_started", "root", "launcher",
        r"workers? (?:of the worker process\S* )?(?:have|has) not registered (?:to raylet )?within the timeout|"
        r"Failed to register worker \S* ?to Raylet",
        ("(raylet) Some workers of the worker process(4711) have not registered within the timeout. The process is "
         "still alive, probably it's hanging during start.",
         "Failed to register worker 01f to Raylet. IOError: [RayletClient] Unable to register worker with raylet."),
        "Ray's workers do not start in time",
        "Importing the environment takes too long (a network disk, too many processes), /tmp/ray is full, or an old "
        "cluster is in the way.",
        Fix("Stop old clusters, and check disk and import time.",
            ("ray stop --force", "df -h /tmp", "time python -c 'import ray'",
             "export RAY_worker_register_timeout_seconds=300")), _CLUSTER),
    Row("log_ray_environment_failed", "root", "launcher", r"RuntimeEnvSetupError|Failed to set up runtime environment|"
        r"Package size \(\S+\) exceeds? the maximum size",
        ("ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.",),
        "Ray could not set up the environment of its workers",
        "working_dir is too large or unreadable, or a package could not be installed on the workers.",
        Fix("Exclude data and checkpoints from working_dir, or use a shared folder.",
            ("ray.init(runtime_env={{'working_dir': '.', 'excludes': ['data/', 'checkpoints/']}})",)),
        "https://docs.ray.io/en/latest/ray-core/handling-dependencies.html"),
    Row("log_ray_task_failed", "wrapper", "launcher", r"RayTaskError(?:\(\w+\))?: ray::|"
        r"ActorHandleNotFoundError",
        ("ray.exceptions.RayTaskError(ValueError): ray::main_task() (pid=4711, ip=10.0.0.1)",
         "ray.exceptions.ActorHandleNotFoundError: This actor handle is not found: created in another job"),
        "a Ray task failed; its own exception has the reason",
        "Ray repeats the exception of the task in the process that waited for it.",
        Fix("Read the innermost exception.", ("mgpu doctor --log LOG",)), _FAULTS),
    Row("log_verl_workers_missing", "wrapper", "launcher", r"failed to get register_center_actor",
        ("AssertionError: failed to get register_center_actor: V9zrH5_register_center in []",),
        "verl's workers did not start; their own output has the reason",
        "The first worker registers itself under that name. It failed before that: while its modules were imported, "
        "its GPU was selected, or the model was loaded.",
        Fix("Read the first exception of a worker, further up or in Ray's own logs.",
            ("mgpu doctor --log LOG", "grep -rlE 'Error|Exception' /tmp/ray/session_latest/logs")),
        "https://github.com/volcengine/verl/blob/main/verl/single_controller/ray/base.py"),
    Row("log_ray_train_failed", "wrapper", "launcher",
        r"TrainingFailedError|The Ray Train run failed|WorkerGroupError|Trials did not complete|"
        r"failed to import on the worker",
        ("ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the previous error "
         "messages for a cause.", "ray.tune.error.TuneError: ('Trials did not complete', [TorchTrainer_1])",
         "RuntimeError: The actor with name Worker failed to import on the worker. This may be because needed library "
         "dependencies are not installed in the worker environment:"),
        "Ray stopped the run because a worker failed; that worker's exception has the reason",
        "The message repeats only that something failed. The exception is in the worker's own lines, or after "
        "this one.",
        Fix("Read the first exception of a worker.", ("ls -t /tmp/ray/session_latest/logs | head",)), _FAULTS),
    Row("log_ray_train_group_not_started", "root", "launcher",
        r"worker group startup timed out after (?P<seconds>[\d.]+) seconds waiting for (?P<workers>\d+) workers",
        ("The worker group startup timed out after 30.0 seconds waiting for 8 workers. Potential causes include: (1) "
         "temporary insufficient cluster resources while waiting for autoscaling",),
        "the workers of Ray Train did not start within {seconds} s ({workers} workers)",
        "Their environment (runtime_env, a large working_dir, an image) takes longer to prepare than the limit, nodes "
        "are still being added, or the cluster does not have the GPUs and CPUs of the ScalingConfig. Ray Train then "
        "tries again, possibly forever.",
        (Fix("Raise the limit, if the cluster has the resources.",
             ("export RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=300",)),
         Fix("Compare what the ScalingConfig requests with what is free.", ("ray status", "nvidia-smi"))),
        "https://github.com/ray-project/ray/pull/60376",
        summary="The workers of Ray Train did not start in time."),
    Row("log_ray_train_retried", "wrapper", "launcher",
        r"\[FailurePolicy\].*FailureDecision\.(?P<decision>RETRY|RAISE)\b.*?Error source: (?P<source>[\w ]+)",
        ("[FailurePolicy] Decision: FailureDecision.RETRY, Error source: controller, Error count / maximum errors "
         "allowed: 1/inf, Error: Training failed due to controller error:",
         "[FailurePolicy] RAISE Source: worker FailureDecision.RAISE, Error source: worker group, Error: x"),
        "Ray Train reports an error of its {source} ({decision}); the error's own message has the reason",
        "The controller decides after each error whether to start the workers again.",
        Fix("Read the message after this line, and limit the retries.",
            ("RunConfig(failure_config=FailureConfig(max_failures=0))",)), _FAULTS,
        summary="Ray Train reports an error and decides whether to try again."),
    Row("log_ray_session_of_other_cluster", "root", "launcher",
        r"Session name \S+ does not match persisted value|Found multiple active Ray instances",
        ("AssertionError: Session name session_2025-11-21 does not match persisted value session_2025-11-20. Perhaps "
         "there was an error connecting to Redis.",
         "ConnectionError: Found multiple active Ray instances: {'10.0.0.1:6379', '10.0.0.1:6380'}. Please specify the "
         "one to connect to"),
        "an older Ray cluster still runs on this node or port",
        "It was not stopped with its job, or another user's cluster uses port 6379.",
        Fix("Stop it, or use another port.",
            ("ray stop --force", "ss -ltnp 'sport = :6379'", "ray start --head --port=6399")), _CLUSTER),
    Row("log_ray_dashboard_not_started", "root", "launcher", r"Failed to start the dashboard ?,? ?return code|"
        r"Failed to bind to \S+:\d+ because it's already occupied",
        ("Exception: Failed to start the dashboard, return code 1",
         "services.py:1355 -- Failed to start the dashboard , return code 1"),
        "Ray's dashboard does not start, and Ray with it",
        "Its packages are missing or too new (ray without [default], grpcio, aiohttp, pydantic), or its port is used.",
        (Fix("Read its log, and install Ray with its dashboard.",
             ("tail -20 /tmp/ray/session_latest/logs/dashboard.log", "pip install 'ray[default]'")),
         Fix("Or start Ray without it.", ("ray start --head --include-dashboard=false",
                                          "ray.init(include_dashboard=False)"))), _CLUSTER),
    Row("log_ray_session_missing", "root", "launcher",
        r"Can't find a `node_ip_address\.json` file|The current node timed out during startup|"
        r"waiting for node to startup\. Did not find socket",
        ("ValueError: Can't find a `node_ip_address.json` file from /tmp/ray/session_2025. for 60 seconds. A ray "
         "instance hasn't started. Did you do `ray start` or `ray.init` on this host?",
         "Exception: The current node timed out during startup. This could happen because some of the raylet failed to "
         "startup or the GCS has become overloaded."),
        "Ray did not start on this node in time",
        "`ray start` was not run here, its raylet failed (its log has the reason), /tmp is full or slow, or too few "
        "CPUs were requested for all its processes.",
        Fix("Start Ray here, and read its log.",
            ("ray stop --force", "df -h /tmp", "tail -50 /tmp/ray/session_latest/logs/raylet.out")), _CLUSTER),
    Row("log_ray_folder_of_other_user", "root", "launcher",
        r"(?:Permission denied: '|cannot create directory ‘?)/tmp/ray\b",
        ("PermissionError: [Errno 13] Permission denied: '/tmp/ray/ray_current_cluster'",),
        "/tmp/ray belongs to another user",
        "Ray keeps its session there. On a shared node, the first user's folder keeps others out.",
        Fix("Give Ray a folder of your own, with a short path.",
            ("export RAY_TMPDIR=/tmp/ray_$USER", "ray start --head --temp-dir=/tmp/ray_$USER")), _CLUSTER),
    Row("log_ray_path_too_long", "root", "launcher", r"AF_UNIX path (?:length cannot exceed|too long)",
        ("OSError: validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: "
         "'/very/long/session/sockets/plasma_store'",),
        "the path of Ray's temporary folder is too long",
        "Its sockets are files, and Linux limits their paths to 107 characters. TMPDIR or --temp-dir is long.",
        Fix("Use a short one.", ("export RAY_TMPDIR=/tmp/r", "ray start --head --temp-dir=/tmp/r")), _CLUSTER),
    Row("log_ray_disk_nearly_full", "secondary", "kernel", r"/\S*session\S* is \w+ \d+% full, available",
        ("(raylet) file_system_monitor.cc:111: /tmp/ray/session_2025 is over 95% full, "  # codespell:ignore
         "available space: 10.1 GB; capacity: 1000 GB. Object creation will fail if spilling is required.",),
        "the disk of Ray's temporary folder is nearly full",
        "Objects that do not fit into memory are written there. If it is full, tasks fail or hang.",
        Fix("Free it, or use a larger disk.", ("df -h /tmp", "ray start --head --temp-dir=/data/ray_$USER")), _OBJECTS,
        tags=("hint",)),
    Row("log_ray_object_captured", "root", "script",
        r"is too large \(\d+ MiB > FUNCTION_SIZE_ERROR_THRESHOLD|Could not serialize the (?:argument|function|actor)|"
        r"Task failed: Can't pickle <",
        ("ValueError: The actor Worker is too large (120 MiB > FUNCTION_SIZE_ERROR_THRESHOLD=95 MiB). Check that its "
         "definition is not implicitly capturing a large array or other object in scope.",
         "TypeError: Could not serialize the argument <x> for a task or actor train.Worker.run:"),
        "an object cannot be sent to Ray's workers: it is too large, or cannot be pickled",
        "A task or actor uses a model, a dataset, a lock or an open file from outside its own code. Ray pickles all "
        "of these.",
        Fix("Create it inside the actor, or put it in the object store once.",
            ("ref = ray.put(dataset); Worker.remote(ref)",)),
        "https://docs.ray.io/en/latest/ray-core/objects/serialization.html"),
    Row("log_ray_get_timed_out", "secondary", "timeout", r"GetTimeoutError|Get timed out: some object\(s\) not ready",
        ("ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",),
        "a result of a Ray task did not arrive in time",
        "The task still runs, waits for GPUs or CPUs that Ray does not have, or its worker hangs.",
        (_STATUS, Fix("Print the stacks of the workers.", ("ray stack",))), _FAULTS),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
