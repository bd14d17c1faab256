"""What else keeps a container, or a pod, from starting: programs of the host, images, disks, names, secrets?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_ENROOT = "https://github.com/NVIDIA/enroot/blob/master/doc/requirements.md"
_ENROOT_RUNTIME = "https://github.com/NVIDIA/enroot/blob/master/src/runtime.sh"
_PYXIS = "https://github.com/NVIDIA/pyxis/blob/master/pyxis_slurmstepd.c"
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
_APPTAINER = "https://apptainer.org/docs/admin/main/user_namespace.html"
_DOCKER = "https://docs.docker.com/engine/install/linux-postinstall/"
_PODS = "https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/"

# fmt: off
ROWS = (
    Row("log_container_tool_missing", "root", "scheduler",
        r"\[ERROR\] Command not found: (?P<command>[\w-]+)",
        ("slurmstepd: error: pyxis:     [ERROR] Command not found: mksquashfs",
         "[ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container"),
        "a program that the container runtime needs is not installed on this node: {command}",
        "enroot, pyxis and Apptainer call programs of the node: squashfs-tools (mksquashfs, unsquashfs) for images, "
        "libnvidia-container-tools (nvidia-container-cli) for GPUs, parallel, curl and jq for the import.",
        (Fix("Install it on every compute node.",
             ("sudo apt-get install -y squashfs-tools parallel jq curl libnvidia-container-tools",), who="admin"),
         Fix("Exclude the node until then.", ("sbatch --exclude=NODE SCRIPT",))), _ENROOT,
        summary="A program that the container runtime needs is not installed on a node."),
    Row("log_image_file_missing", "root", "scheduler",
        r"(?:\[ERROR\] |pyxis: .{0,40})(?P<what>(?:No such file or directory|Invalid image format|Failed to mount|"
        r"squashfs file does not exist|source path does not exist): \S+)",
        ("slurmstepd: error: pyxis:     [ERROR] No such file or directory: /data/images/train.sqsh",
         "slurmstepd: error: pyxis:     [ERROR] Invalid image format: /data/images/train.sqsh",
         "slurmstepd: error: pyxis: --container-mounts: source path does not exist: /scratch/u/data"),
        "the container's image, or a path that it mounts, is missing or damaged on this node: {what}",
        "The path must exist on each node of the job: not on the login node alone, and not on a disk that only some "
        "nodes mount. An image that was copied or imported incompletely has an invalid format.",
        (Fix("Check it on all nodes.", ("srun --ntasks-per-node=1 ls -l PATH",)),
         Fix("Import an incomplete image again.",
             ("enroot import -o /shared/train.sqsh docker://nvcr.io#nvidia/pytorch:25.01-py3",))), _ENROOT_RUNTIME,
        summary="The container's image, or a path that it mounts, is missing or damaged on a node."),
    Row("log_container_disk_full", "root", "scheduler",
        r"(?:file creation failed: |failed to register layer: |mksquashfs.*|unsquashfs.*|FATAL ERROR: ?.*|"
        r"Failed to write|failed to extract layer).{0,160}[Nn]o space left on device|"
        r"FATAL ERROR: ?.{0,40}(?:because no space left|out of space)",
        ("nvidia-container-cli: mount error: file creation failed: /run/enroot/overlay/usr/bin/nvidia-smi: no space "
         "left "
         "on device",
         "failed to register layer: write /usr/lib/libcudnn.so.9: no space left on device"),
        "the disk on which the container's image is unpacked is full",
        "Images for training unpack to 20 to 40 GB. enroot unpacks below ENROOT_DATA_PATH and ENROOT_RUNTIME_PATH, "
        "often a RAM disk of the node (/run, /tmp); Docker below /var/lib/docker; Apptainer in APPTAINER_TMPDIR.",
        (Fix("Look which disk is full, and remove old containers.",
             ("df -h /run /tmp /var/lib/docker ~", "enroot list && enroot remove NAME", "docker system df")),
         Fix("Unpack on a larger disk.",
             ("export ENROOT_DATA_PATH=/scratch/$USER/enroot ENROOT_CACHE_PATH=/scratch/$USER/enroot-cache",
              "export APPTAINER_TMPDIR=/scratch/$USER APPTAINER_CACHEDIR=/scratch/$USER/apptainer"))),
        "https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md"),
    Row("log_container_name_state", "root", "scheduler",
        r"(?P<state>the container (?:already exists|is not running)|a container with name \"[^\"]+\" does not exist)",
        ('slurmstepd: error: pyxis: error: "exec" flag was passed to --container-name but the container is not running',
         'slurmstepd: error: pyxis: error: a container with name "train" does not exist, and --container-image is not '
         'set'),
        "--container-name refers to a container that is not in the needed state on this node: {state}",
        "pyxis keeps named containers on each node, for one job only (by default): a later job, or another node of the "
        "same job, does not have them.",
        Fix("Pass the image too, and create the container in the first step on all nodes.",
            ("srun --ntasks-per-node=1 --container-image=IMAGE --container-name=train true",
             "srun --container-image=IMAGE --container-name=train:auto python train.py")), _PYXIS,
        summary="A named container of pyxis does not exist, or is not running, on a node."),
    Row("log_container_exited_at_start", "secondary", "scheduler",
        r"pyxis: container exited too soon|pyxis: failed to start container(?: |$)|"
        r"pyxis: container was not started successfully by another task|"
        r"required plugin spank_pyxis\.so: \w+\(\) failed|Failed to invoke spank plugin stack",
        ("slurmstepd: error: pyxis: container exited too soon",
         "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1"),
        "pyxis could not start the container of a task; the lines before it have the reason",
        "pyxis prints enroot's messages above: an image that cannot be unpacked, a hook that failed, an entrypoint "
        "that "
        "ended at once, a mount that does not exist.",
        Fix("Read enroot's lines. Without a reason there, start the container without its entrypoint.",
            ("srun --no-container-entrypoint --container-image=IMAGE ...", "enroot start IMAGE.sqsh")), _PYXIS,
        because_of=("log_image_not_pulled", "log_image_import_failed", "log_image_file_missing",
                    "log_container_disk_full",
                    "log_container_tool_missing", "log_container_program_missing", "log_container_not_started",
                    "log_container_mount_missing", "log_container_user_namespaces", "log_docker_without_gpus",
                    "log_container_gpu_unknown", "log_image_wants_newer_driver")),
    Row("log_image_brand_refused", "root", "scheduler",
        r"requirement error: unsatisfied condition: (?P<condition>(?:brand|arch|driver)\S+)",
        ("nvidia-container-cli: requirement error: unsatisfied condition: brand=tesla",),
        "the image does not accept this GPU or driver: {condition}",
        "NVIDIA_REQUIRE_ variables of the image list the drivers and GPU brands for which its CUDA is supported. A "
        "GeForce or RTX card with an older driver does not satisfy them.",
        (Fix("Update the driver, or use an image with the CUDA of the driver.", ("nvidia-smi | head -4",)),
         Fix("Or skip the test. CUDA may then not work.", ("docker run -e NVIDIA_DISABLE_REQUIRE=1 --gpus all "
                                                           "IMAGE",))),
        _TOOLKIT, summary="The image does not accept this GPU or driver."),
    Row("log_docker_not_reachable", "root", "scheduler",
        r"permission denied while trying to connect to the [Dd]ocker (?:daemon|API)|"
        r"Cannot connect to the Docker daemon at \S+",
        ("docker: permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
         "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"),
        "Docker's daemon cannot be reached: it does not run, or this user may not use it",
        "Users outside the group docker may not open its socket. On most Slurm clusters Docker is not for users: "
        "enroot or Apptainer run containers there.",
        (Fix("Start it, or join the group.", ("sudo systemctl start docker", "sudo usermod -aG docker $USER")),
         Fix("On a cluster, use what it offers.",
             ("srun --container-image=IMAGE ...", "apptainer exec --nv docker://IMAGE python train.py"))), _DOCKER),
    Row("log_image_other_processor", "root", "scheduler",
        r"no matching manifest for \S+|\bexec /\S+: exec format error|"
        r"image's platform \(\S+\) does not match the (?:detected|expected) host platform",
        ("docker: no matching manifest for linux/arm64/v8 in the manifest list entries.",
         "exec /usr/bin/bash: exec format error"),
        "the image is for another processor than the node's",
        "Images are built for x86_64 (amd64) or for Arm (arm64: Grace, GH200, GB200, Jetson). The program cannot run "
        "on "
        "the other one.",
        Fix("Use an image for this processor.", ("uname -m", "docker manifest inspect IMAGE | grep architecture")),
        "https://docs.docker.com/build/building/multi-platform/"),
    Row("log_container_program_not_run", "root", "scheduler",
        r"exec user process caused(?: \\?\"|: )no such file or directory|\bexec /\S+: no such file or directory",
        ("standard_init_linux.go:228: exec user process caused: no such file or directory",
         "exec /entrypoint.sh: no such file or directory"),
        "the container's program could not be run: the file, or the interpreter in its first line, does not exist in "
        "the image",
        "A script with the line ends of Windows has the interpreter '/bin/bash\\r', which does not exist. Other "
        "reasons: the path is missing in the image, a mounted folder hides it, or the image has no such shell.",
        (Fix("Check the script's line ends and its first line.",
             ("file entrypoint.sh", "head -1 entrypoint.sh | cat -A", "sed -i 's/\\r$//' entrypoint.sh")),
         Fix("Check that the path exists in the image.", ("docker run --rm --entrypoint ls IMAGE -l /",))),
        "https://docs.docker.com/engine/containers/run/#exit-status"),
    Row("log_apptainer_program_missing", "root", "scheduler",
        r"FATAL: +(?:stat )?\"?(?P<program>[^\":\s]+)\"?: (?:executable file not found|no such file or directory)",
        ('FATAL:   "torchrun": executable file not found in $PATH',
         "FATAL:   stat /workspace/run.sh: no such file or directory"),
        "the container does not have the program {program}",
        "The image's PATH does not contain it (an environment inside the image is not active), or the host's folder "
        "with it is not mounted: Apptainer mounts only the home, /tmp and the current folder.",
        Fix("Look inside, and mount what is missing.",
            ("apptainer exec IMAGE.sif which python torchrun", "apptainer exec --nv --bind /scratch IMAGE.sif python "
                                                               "train.py")),
        "https://apptainer.org/docs/user/main/bind_paths_and_mounts.html",
        summary="The Apptainer container does not have a program."),
    Row("log_apptainer_image_refused", "root", "scheduler",
        r"(?:FATAL|ERROR) *: +(?P<what>kernel too old|image format not recognized|[Uu]nable to handle \S+ uri: .*|"
        r"failed to load FUSE.*|No user namespace support)",
        ("FATAL:   kernel too old", "FATAL:   image format not recognized",
         "FATAL:   Unable to handle docker://nvcr.io/nvidia/pytorch:25.01-py3 uri: failed to get checksum"),
        "Apptainer cannot use the image here: {what}",
        "A node with an old kernel cannot run images with a newer glibc. An unknown format is an incomplete download. "
        "A docker:// address needs network on this node, and a login for private registries.",
        Fix("Build the .sif on a node with network, and pass the file.",
            ("apptainer pull train.sif docker://nvcr.io/nvidia/pytorch:25.01-py3", "uname -r")), _APPTAINER,
        summary="Apptainer cannot use the image on this node."),
    Row("log_pod_reference_missing", "root", "scheduler",
        r"(?P<kind>(?i:secret|configmap|service ?account)) \"(?P<name>[^\"]+)\" "
        r"(?:is )?not found",
        ('Warning  Failed  Error: CreateContainerConfigError: secret "wandb" not found',
         'Warning  FailedMount  configmap "training-config" not found'),
        "the pod refers to the {kind} {name}, which does not exist in its namespace",
        "The container waits and never starts. The name is misspelled, or the object is in another namespace.",
        Fix("Create it in the namespace of the job, or correct the name.",
            ("kubectl get secret,configmap,pvc,serviceaccount -n NAMESPACE",)), _PODS,
        summary="A pod refers to a secret, ConfigMap or volume claim that does not exist."),
    Row("log_pod_group_waits", "root", "scheduler",
        r"(?P<counts>pod group is not ready, [\d]+ [A-Z]\w+(?:, \d+ \w+)*|\d+/\d+ tasks? in gang unschedulable)",
        ("Warning  Unschedulable  3/4 tasks in gang unschedulable: pod group is not ready, 3 Running, 1 Pending, 4 "
         "minAvailable",),
        "the job's pods wait until all of them can run at once: {counts}",
        "A gang scheduler (Volcano, Kueue, coscheduling) starts no pod before minAvailable of them have a place. The "
        "queue or the cluster lacks GPUs for the rest.",
        Fix("Lower the number of workers, wait for GPUs, or correct minAvailable.",
            ("kubectl get podgroup -A", "kubectl describe nodes | grep -A8 'Allocated resources'")),
        "https://volcano.sh/en/docs/podgroup/", summary="The pods of a job wait until all of them can run at once."),
    Row("log_pod_probe_failed", "root", "scheduler",
        r"(?:Liveness|Startup) probe failed: |failed (?:liveness|startup) probe, will be restarted",
        ("Warning  Unhealthy  Liveness probe failed: command timed out",
         "Normal  Killing  Container trainer failed liveness probe, will be restarted"),
        "Kubernetes restarts the container, because its liveness or startup probe failed",
        "Loading a large model, compiling or a long collective keeps the process from answering in time. The restart, "
        "not the training, ends the ranks.",
        Fix("Remove the probe from training pods, or give it more time.",
            ("kubectl get pod POD -o yaml | grep -A8 -i probe",)),
        "https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/"),
    Row("log_pods_forbidden", "root", "scheduler",
        r"(?<!\(Forbidden\): )\b(?:pods|\w{2,20}\.kubeflow\.org)(?: \"[^\"]{1,80}\")? is forbidden: (?!exceeded quota)"
        r"(?P<why>User .*|unable to validate.*|violates PodSecurity.*|maximum .*)",
        ('Warning  FailedCreate  Error creating: pods "x-worker-0" is forbidden: violates PodSecurity '
         '"restricted:latest": hostPath volumes',
         'Error creating: pods "x-0" is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods"'),
        "the cluster's rules forbid the pods: {why}",
        "The user or service account lacks a role in this namespace, or the namespace's security level forbids what "
        "the "
        "pod asks for (hostPath, hostNetwork, IPC_LOCK, privileged: often for InfiniBand and /dev/shm).",
        Fix("Ask for the role or for a namespace with that level, or leave the setting out.",
            ("kubectl auth can-i create pods -n NAMESPACE", "kubectl get ns NAMESPACE --show-labels"), who="admin"),
        "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
        summary="The cluster's rules forbid the pods of the run."),
    Row("log_workload_preempted", "root", "scheduler",
        r"Preempted to accommodate a (?:higher priority )?[Ww]orkload|Workload was preempted|"
        r"Evicted by Kueue|preempted by .* workload",
        ("Preempted to accommodate a higher priority Workload in the ClusterQueue",),
        "the queue took the GPUs from this job for one with a higher priority",
        "Its pods are stopped, and start again when quota is free. No rank failed by itself.",
        Fix("Save checkpoints often and resume, or use a queue with its own quota.",
            ("kubectl describe workload WORKLOAD", "kubectl get clusterqueue")),
        "https://kueue.sigs.k8s.io/docs/concepts/preemption/"),
    Row("log_training_job_failed", "wrapper", "scheduler",
        r"\b\w{2,20}Job \S{1,80} (?:is|has) failed because \d+ \w+ replica\(s\) failed|TrainJob .{0,80}JobSetFailed",
        ("PyTorchJob llama is failed because 1 Worker replica(s) failed.",),
        "a pod of the training job failed; its own log has the reason",
        "The operator reports only which replica failed.",
        Fix("Read the log of the failed pod, also of its last run.",
            ("kubectl get pods -l training.kubeflow.org/job-name=JOB", "kubectl logs POD --previous")),
        "https://github.com/kubeflow/trainer/tree/release-1.9"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
