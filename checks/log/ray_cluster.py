"""Did Ray fail: its GPUs, its memory, its workers, its head node?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

_OOM = "https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html"
_CLUSTER = "https://docs.ray.io/en/latest/cluster/faq.html"
_RESOURCES = "https://docs.ray.io/en/latest/ray-core/scheduling/resources.html"
_FAULTS = "https://docs.ray.io/en/latest/ray-core/fault-tolerance.html"
_OBJECTS = "https://docs.ray.io/en/latest/ray-core/objects/object-spilling.html"
_VERL = "https://github.com/verl-project/verl/issues/539"
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


ROWS = (
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
                      ("ray start --head --num-gpus=8 --num-cpus=64",))), _RESOURCES),
    Row("log_ray_group_waits", "secondary", "launcher",
        r"(?:No|not) enough resources? for placement group|[Pp]lacement group \S*.{0,40}"
        r"(?:timed out|not ready|infeasible|cannot be scheduled|is pending)|Cannot provide a placement group",
        ("ray.exceptions.PlacementGroupSchedulingError: Placement group 5b2 cannot be scheduled",
         "ValueError: Cannot provide a placement group of placement_group_specs=[{'GPU': 4.0}] within 1800 seconds."),
        "Ray cannot reserve the GPUs of the job (placement group)",
        "The group needs all its GPUs and CPUs at once, on the nodes that its strategy allows.",
        _STATUS, "https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html"),
    Row("log_ray_memory_full", "root", "kernel",
        r"ray\.exceptions\.OutOfMemoryError|RayOutOfMemoryError|[Tt]ask was killed due to the node running low on "
        r"memory|"
        r"killed due to memory pressure(?!: 0\b)|the node running low on memory",
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
         "(raylet) 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other "
         "reasons "
         "at node (ID: 5b2, IP: 10.0.0.2) over the last time period.",
         "Memory on the node (IP: 10.0.0.2, ID: 5b2) where the task was running was 240.00GB / 251.00GB (0.95), which "
         "exceeds the memory usage threshold of 0.95. Ray killed this worker because of the node running low on "
         "memory"),
        "Ray killed a worker because the node's host memory was nearly full",
        "Ray ends workers above 95 % of the node's or the container's memory, before the kernel does. It is host "
        "memory, "
        "not GPU memory: offloaded parameters and optimizers, replay buffers, loader workers, vLLM's swap space.",
        (Fix("Use less host memory (no CPU offload, fewer workers), or request more for the job.",
             ("free -g", "sbatch --mem=0 ...", "ray memory --stats-only")),
         Fix("Raise or turn off Ray's limit.", ("export RAY_memory_usage_threshold=0.99",
                                              "export RAY_memory_monitor_refresh_ms=0"), kind="stopgap",
             caveat="The kernel may kill a process instead.")), _OOM),
    Row("log_ray_worker_died", "secondary", "kernel",
        r"[Ww]orker (?:process )?(?:has )?died(?: or was killed)? (?:while|unexpectedly)|[Aa]ctor died unexpectedly|"
        r"ActorDiedError|WorkerCrashedError|ActorUnavailableError|RayActorError|worker unexpectedly exits with a "
        r"connection error|Worker unexpectedly exits with|leased worker .*died|Worker exit type: SYSTEM_ERROR",
        ("ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.",
         "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
         "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
         "ray.exceptions.ActorUnavailableError: The actor 5b2 is unavailable: The actor is temporarily unavailable",
         "Worker unexpectedly exits with a connection error code 2. End of file."),
        "a Ray worker process died; its own output has the reason",
        "Ray only reports that the connection closed. The worker was killed (host memory), crashed in compiled code, "
        "or "
        "was stopped with the job.",
        _LOGS, _FAULTS),
    Row("log_ray_node_lost", "secondary", "network",
        r"has been marked dead because the detector has missed|[Rr]aylet (?:process )?(?:has )?(?:died|exited|is "
        r"terminated|"
        r"exits)|NodeDiedError|Owner's node has crashed|Raylet is terminated|lost contact with (?:the )?raylet",
        ("The node with node id: 5b2 and address: 10.0.0.3 and node name: 10.0.0.3 has been marked dead because the "
         "detector has missed too many heartbeats from it.",
         "Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user or system",
         "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable."),
        "Ray lost a node: its raylet stopped or was not reachable",
        "The node went down, its host memory was full, its disk (/tmp/ray) was full, or the network failed.",
        (Fix("Check the node, and Ray's logs there.",
             ("ray status", "df -h /tmp", "tail -50 /tmp/ray/session_latest/logs/raylet.out")), _LOGS), _FAULTS),
    Row("log_ray_head_unreachable", "root", "launcher",
        r"(?:Failed to connect to|Unable to connect to|Could not connect to) GCS(?: at address| at)? "
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
        r"Version mismatch: The cluster was started with|Ray versions? mismatch|Python version mismatch.*[Rr]ay",
        ("RuntimeError: Version mismatch: The cluster was started with:",),
        "this process has a different Ray or Python version than the Ray cluster it connects to",
        "The next lines name both. An old cluster still runs on the node, or the nodes have different environments.",
        Fix("Stop the old cluster, and start it from this environment on all nodes.",
            ("ray stop --force", "which ray python", "pip show ray")), _CLUSTER),
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
         "still "
         "alive, probably it's hanging during start.",
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
        "a Ray task failed; the last exception in its traceback has the reason",
        "Ray repeats the exception of the task in the process that waited for it.",
        Fix("Read the innermost exception.", ("mgpu doctor --log LOG",)), _FAULTS),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
