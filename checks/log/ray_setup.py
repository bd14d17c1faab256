"""Was Ray called in a way that its cluster refuses: counts, environments, names, placement groups?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_WORKER = "https://github.com/ray-project/ray/blob/master/python/ray/_private/worker.py"
_RESOURCES = "https://github.com/ray-project/ray/blob/master/python/ray/_private/resource_and_label_spec.py"
_EXCEPTIONS = "https://docs.ray.io/en/latest/ray-core/api/exceptions.html"
_GROUPS = "https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html"
_ACTORS = "https://docs.ray.io/en/latest/ray-core/actors/named-actors.html"
_ENVIRONMENT = "https://docs.ray.io/en/latest/ray-core/handling-dependencies.html"

# fmt: off
ROWS = (
    Row("log_ray_check_failed", "root", "library",
        r"\bC \d+ \d+\] (?:\(\w+\) )?(?P<place>\w+\.cc:\d+):\s+(?:An unexpected .{0,80})?Check failed: (?P<what>\S.*)",
        ("[2025-07-06 07:14:27,052 C 2915798 2915798] task_receiver.cc:219:  Check failed: objects_valid",
         "(raylet) [2025-01-01 10:00:00,000 C 12 12] (raylet) node_manager.cc:85:  Check failed: status.ok() Bad"),
        "a check in Ray's own C++ code failed, and the process stopped: {what} ({place})",
        "Ray stops a process when its state is not as it expects: an object was lost (memory or the disk of /tmp/ray "
        "full), the nodes have different versions, or a bug of this release.",
        (Fix("Look for a full disk, killed workers or lost nodes in the lines before it.",
             ("df -h /tmp", "free -g", "ray status")),
         Fix("If there are none, use another release of Ray, the same on all nodes.", ("pip show ray",))),
        "https://github.com/verl-project/verl/issues/2380", summary="A check in Ray's own code failed."),
    Row("log_ray_counts_for_other_cluster", "root", "launcher",
        r"When connecting to an existing cluster, (?P<what>[\w, ]+) must not be provided",
        ("ValueError: When connecting to an existing cluster, num_cpus and num_gpus must not be provided.",),
        "ray.init() is given {what}, but joins a cluster that already runs",
        "RAY_ADDRESS is set, or `ray start` runs on this node (also of another job or user), so that ray.init() starts "
        "no cluster of its own. The running one has its counts already.",
        (Fix("Stop the old cluster, and let the script start its own.", ("ray stop --force", "unset RAY_ADDRESS")),
         Fix("Or join it without counts.", ("ray.init(address='auto')", "ray start --head --num-gpus=8"))), _WORKER,
        summary="ray.init() is given resources, but joins a cluster that already runs."),
    Row("log_ray_started_twice", "root", "script", r"Maybe you called ray\.init twice by accident",
        ("RuntimeError: Maybe you called ray.init twice by accident? This error can be suppressed by passing in "
         "'ignore_reinit_error=True' or by calling 'ray.shutdown()' prior to 'ray.init()'.",),
        "the process calls ray.init() a second time",
        "A trainer or an inference engine (vLLM with Ray) has started Ray before, or a notebook cell ran twice.",
        Fix("Start it once.", ("if not ray.is_initialized(): ray.init()", "ray.shutdown()")), _WORKER),
    Row("log_ray_environments_clash", "root", "launcher",
        r"Failed to merge the Job's runtime env .* because of a conflict",
        ("ValueError: Failed to merge the Job's runtime env {'env_vars': {'A': '1'}} with a ray.init's runtime env "
         "{'env_vars': {'A': '2'}} because of a conflict. Specifying the same runtime_env fields or the same "
         "environment "
         "variable keys is not allowed.",),
        "`ray job submit` and ray.init() set the same fields of the runtime environment",
        "The script's ray.init(runtime_env=...) runs inside a job that has its own runtime_env.",
        Fix("Set each field and variable in one of the two places, or let the job's win.",
            ("export RAY_OVERRIDE_JOB_RUNTIME_ENV=1", "ray job submit --address ADDRESS -- python train.py")),
        _ENVIRONMENT),
    Row("log_ray_bundle_too_small", "root", "launcher",
        r"Cannot schedule (?P<what>\S+) with the placement group because the (?:resource request|actor requires)",
        ("ValueError: Cannot schedule RayWorkerWrapper with the placement group because the resource request {'GPU': "
         "1, "
         "'CPU': 1} cannot fit into any bundles for the placement group, [{'GPU': 1.0}].",),
        "{what} needs more than any bundle of its placement group has",
        "An actor inside a placement group gets its CPUs and GPUs from one bundle. A bundle with a GPU only has no CPU "
        "for it.",
        Fix("Give every bundle what one actor needs, or ask for less.",
            ("placement_group([{{'GPU': 1, 'CPU': 1}}] * 8)", "Actor.options(num_cpus=0, num_gpus=1)")), _GROUPS,
        summary="A Ray actor needs more than any bundle of its placement group has."),
    Row("log_ray_more_gpus_than_visible", "root", "launcher",
        r"Attempting to start raylet with (?P<wanted>\d+) (?:\w+), but (?P<variable>\w+) contains (?P<has>\S.*)",
        ("ValueError: Attempting to start raylet with 8 GPU, but CUDA_VISIBLE_DEVICES contains ['0', '1'].",),
        "Ray is started with {wanted} GPUs, but {variable} shows {has}",
        "--num-gpus or ray.init(num_gpus=...) is larger than what Slurm, the container or the shell gives this node.",
        Fix("Leave the number out, so that Ray counts, or show all GPUs.",
            ("ray start --head", "unset CUDA_VISIBLE_DEVICES", "nvidia-smi -L")), _RESOURCES,
        summary="Ray is started with more GPUs than it may use."),
    Row("log_ray_memory_left_too_small", "root", "launcher",
        r"amount of memory on this node available for tasks and actors \((?P<left>[^)]+)\) is less than",
        ("ValueError: After taking into account object store and redis memory usage, the amount of memory on this node "
         "available for tasks and actors (0.3 GB) is less than 5% of total.",),
        "Ray's object store leaves too little memory for the tasks: {left}",
        "By default it reserves 30 % of the host's memory. In a container or a Slurm job with a small limit, or with a "
        "large object_store_memory, almost nothing is left.",
        Fix("Limit the object store, or request more memory.",
            ("ray start --head --object-store-memory=10000000000", "sbatch --mem=0 SCRIPT")), _RESOURCES,
        summary="Ray's object store leaves too little memory for the tasks."),
    Row("log_ray_name_taken", "root", "launcher",
        r"The name (?:\S+) \(namespace=[^)]*\) is already taken|"
        r"Actor with name '?\S+?'? already exists",
        ("ray.exceptions.ActorAlreadyExistsError: The name train (namespace=verl) is already taken. Please use a "
         "different name or get the existing actor using ray.get_actor('train', namespace='verl')",),
        "a Ray actor of that name exists already",
        "A detached actor of an earlier run is alive in the same cluster and namespace, or two runs share the cluster.",
        Fix("Kill it, or restart the cluster.",
            ("ray list actors --filter state=ALIVE", "ray stop --force")), _ACTORS,
        summary="A Ray actor of that name exists already."),
    Row("log_ray_named_actor_missing", "secondary", "launcher",
        r"Failed to look up actor with name '(?P<name>[^']+)'",
        ("ValueError: Failed to look up actor with name 'train_register_center'. This could because 1. You are trying "
         "to "
         "look up a named actor you didn't create. 2. The named actor died.",),
        "the Ray actor {name} does not exist, or has died",
        "The process that should have created it failed earlier, waits for GPUs, or runs in another namespace.",
        Fix("Find the first error of that process.",
            ("ray list actors --detail", "ls -t /tmp/ray/session_latest/logs | head")), _ACTORS,
        summary="A named Ray actor does not exist, or has died."),
    Row("log_ray_not_schedulable", "root", "launcher",
        r"(?:Actor|Task)UnschedulableError: ",
        ("ray.exceptions.ActorUnschedulableError: The actor is not schedulable: The actor fails to be scheduled "
         "because "
         "of node affinity",),
        "Ray cannot place an actor or a task on the node or bundle that it asks for",
        "The node has disappeared, the placement group was removed, or the node lacks the resource.",
        Fix("Compare what it asks for with the "
            "cluster.", ("ray status", "ray list nodes", "ray list placement-groups")),
        _EXCEPTIONS),
    Row("log_ray_object_lost", "secondary", "network",
        r"(?:ObjectLostError|OwnerDiedError|ObjectFetchTimedOutError|ObjectReconstructionFailed\w*|"
        r"ReferenceCountingAssertionError): ",
        ("ray.exceptions.OwnerDiedError: Failed to retrieve object 00ffff. The object's owner has exited.",
         "ray.exceptions.ObjectFetchTimedOutError: Failed to retrieve object 00ffff."),
        "Ray lost an object: the process or node that held it has disappeared, or does not answer",
        "It is the consequence of a worker or a node that died, was evicted, or cannot be reached through the network.",
        Fix("Find the worker or node that died first.",
            ("ray list nodes --filter state=DEAD", "ray list workers --filter is_alive=False",
             "sudo dmesg -T | grep -i 'killed process' | tail")), _EXCEPTIONS),
    Row("log_ray_package_missing_on_node", "root", "launcher",
        r"RaySystemError: System error: (?:No module named '(?P<module>[\w.]+)'|Failed to unpickle)",
        ("ray.exceptions.RaySystemError: System error: No module named 'verl'",),
        "a Ray worker cannot load what the driver sent: a package is missing there ({module})",
        "Workers run in the environment of their own node and folder: a package that is only in the driver's folder, "
        "or only installed on one node, is missing. Other releases of a package there have the same effect.",
        Fix("Install it on every node, or ship the code.",
            ("ray job submit --working-dir . -- python train.py", "ray.init(runtime_env={{'working_dir': '.'}})",
             "pip check")), _ENVIRONMENT,
        summary="A Ray worker cannot load what the driver sent."),
    Row("log_rocr_variable_with_ray", "root", "launcher",
        r"Please don't set ROCR_VISIBLE_DEVICES when HIP/CUDA_VISIBLE_DEVICES is set|"
        r"use the same HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES|"
        r"Please use HIP_VISIBLE_DEVICES instead of ROCR_VISIBLE_DEVICES",
        ("ValueError: Please don't set ROCR_VISIBLE_DEVICES when HIP/CUDA_VISIBLE_DEVICES is set.",
         "RuntimeError: Please use HIP_VISIBLE_DEVICES instead of ROCR_VISIBLE_DEVICES"),
        "two variables select the AMD GPUs, and they contradict each other",
        "Slurm sets ROCR_VISIBLE_DEVICES. Ray and verl need HIP_VISIBLE_DEVICES, whose numbers count only what ROCR "
        "shows.",
        Fix("Keep HIP_VISIBLE_DEVICES alone.",
            ("unset ROCR_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES; export HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",)),
        "https://github.com/verl-project/verl/blob/main/verl/single_controller/base/worker.py"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
