"""Did Kubernetes not place, start or keep the pods of a run?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_SCHEDULING = "https://kubernetes.io/docs/concepts/scheduling-eviction/"
_PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin"
_JOB = "https://kubernetes.io/docs/concepts/workloads/controllers/job/"
_STORAGE = "https://kubernetes.io/docs/concepts/storage/persistent-volumes/"
# fmt: off
_EVENTS = Fix("Read the pod's events.", ("kubectl describe pod POD | tail -n 20",
                                         "kubectl get events --sort-by=.lastTimestamp | tail -n 20"))

ROWS = (
    Row("log_pod_not_placed", "root", "scheduler",
        r"\b0/\d+ nodes are available: (?P<reason>(?:[^.\n]|\.(?=\S))+)",
        ("  Warning  FailedScheduling  2m    default-scheduler  0/4 nodes are available: 4 Insufficient "
         "nvidia.com/gpu. preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
         "0/3 nodes are available: 3 node(s) had untolerated taint {nvidia.com/gpu: present}."),
        "Kubernetes found no node for a pod: {reason}",
        "Insufficient nvidia.com/gpu: the GPUs are in use, or the device plugin reports none. Untolerated taint: the "
        "pod lacks a toleration. The other pods of the run wait for this one.",
        (Fix("Compare the request with what the nodes have and what is in use.",
             ("kubectl describe nodes | grep -E 'nvidia.com/gpu|Taints'", "kubectl get pods -A -o wide")),
         Fix("If nodes report no GPUs, check the device plugin.",
             ("kubectl get pods -A | grep -i nvidia",), who="admin"), _EVENTS), _SCHEDULING,
        summary="Kubernetes found no node for a pod."),
    Row("log_pod_gpu_refused", "root", "scheduler",
        r"Allocate failed due to (?P<reason>.*(?:device|nvidia)[^,]*)",
        ("  Warning  UnexpectedAdmissionError  kubelet  Allocate failed due to no healthy devices present; cannot "
         "allocate unhealthy devices nvidia.com/gpu, which is unexpected",
         "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
         "Requested: 8, Available: 7, which is unexpected"),
        "the node could not give the pod its GPUs: {reason}",
        "The device plugin marked a GPU unhealthy (an Xid, fallen off the bus), or restarted while pods held GPUs.",
        (Fix("Check the GPUs of that node, and drain it.",
             ("nvidia-smi; sudo dmesg -T | grep -i xid", "kubectl cordon NODE"), who="admin"),
         Fix("Delete the failed pod, so that it is placed again.", ("kubectl delete pod POD",))), _PLUGIN,
        summary="The node could not give the pod its GPUs."),
    Row("log_pod_disk_used_up", "root", "scheduler",
        r"ephemeral local storage usage exceeds|local ephemeral storage usage exceeds|"
        r"node was low on resource: ephemeral-storage|Usage of EmptyDir volume \"[^\"]+\" exceeds",
        ("Message: Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.",
         "Container trainer exceeded its local ephemeral storage usage exceeds limit",
         'Usage of EmptyDir volume "dshm" exceeds the limit "8Gi".',
         "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 2Gi."),
        "the pod was evicted: it wrote more to its local disk or to a memory volume than its limit allows",
        "Checkpoints, caches (Hugging Face, datasets, Triton) and logs inside the container count, and so does an "
        "emptyDir at /dev/shm.",
        (Fix("Put caches and checkpoints on a volume.",
             ("export HF_HOME=/data/hf TMPDIR=/data/tmp TRITON_CACHE_DIR=/data/triton",)),
         Fix("Or raise the limit: ephemeral-storage, or the sizeLimit of the emptyDir.", ())),
        "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/"),
    Row("log_pod_volume_not_ready", "root", "scheduler",
        r"unbound immediate PersistentVolumeClaims|MountVolume\.\w+ failed for volume|"
        r"AttachVolume\.\w+ failed for volume|persistentvolumeclaim \"[^\"]+\" not found|Multi-Attach error for volume|"
        r"Unable to attach or mount volumes",
        ('  Warning  FailedMount  kubelet  MountVolume.SetUp failed for volume "data" : mount failed: exit status 32',
         "0/3 nodes: pod has unbound immediate PersistentVolumeClaims.",
         'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) trainer-0'),
        "a volume of the pod could not be mounted, so the pod did not start",
        "The claim does not exist or is not bound, the file server refuses, or a ReadWriteOnce volume is requested by "
        "pods on several nodes, which need ReadWriteMany.",
        (Fix("Check the claim and its access mode.", ("kubectl get pvc", "kubectl describe pvc CLAIM")), _EVENTS),
        _STORAGE),
    Row("log_pod_runtime_missing", "root", "scheduler",
        r"no runtime for \"?nvidia\"? is configured|RuntimeHandler \"nvidia\" not supported|"
        r"RuntimeClass(?:\.node\.k8s\.io)? \"nvidia\" not found",
        ("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "
         '"nvidia" is configured',
         'pods "t" is forbidden: pod rejected: RuntimeClass "nvidia" not found'),
        "the node's container runtime has no NVIDIA runtime",
        "The container toolkit is not installed on this node, or containerd was not configured for it or not "
        "restarted.",
        Fix("Configure the runtime.",
            ("sudo nvidia-ctk runtime configure --runtime=containerd && sudo systemctl restart containerd",
             "kubectl get runtimeclass"), who="admin"), _PLUGIN),
    Row("log_quota_of_cluster", "root", "scheduler",
        r"is forbidden: exceeded quota: |is forbidden: failed quota|"
        r"insufficient (?:unused )?quota (?:for \S+ )?in (?:flavor|cohort)",
        ('Error creating: pods "train-0" is forbidden: exceeded quota: gpu-quota, requested: '
         "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8",
         "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor default"),
        "the request exceeds the namespace's or queue's quota in Kubernetes",
        "Other runs of the same namespace or queue use it. No pod was created.",
        Fix("Check what is used, and by whom.", ("kubectl describe resourcequota", "kubectl get pods")),
        "https://kubernetes.io/docs/concepts/policy/resource-quotas/"),
    Row("log_node_taken_away", "root", "scheduler",
        r"[Ss]pot (?:[Ii]nstance )?(?:interruption|preemption|termination) (?:notice|warning)|"
        r"instance-?action.*\bterminate\b|[Pp]reempted by (?:a )?(?:pod|Pod|\S+/\S+)|"
        r"TaintManagerEviction|reason: ?\"?(?:DeletionByTaintManager|PreemptionByScheduler|TerminationByKubelet)|"
        r"Pod was terminated in response to imminent node shutdown|compute\.instances\.preempted|"
        r"[Ii]nstance .{0,60}\bwas preempted",
        ('{"level":"warning","msg":"EC2 Spot instance interruption notice received"}',
         "  Normal  Preempted  default-scheduler  Preempted by a pod on node gpu-3",
         "Message: Pod was terminated in response to imminent node shutdown.",
         "Instance gke-a100-pool-1 was preempted.", "Received spot interruption notice. Saving a checkpoint"),
        "the node or the pod was taken away: a spot instance was reclaimed, or a pod with higher priority needed it",
        "All processes there are stopped. The other ranks report closed connections and timeouts.",
        (Fix("Resume from the last checkpoint, and save more often.", ("torchrun --max-restarts=3 ...",)),
         Fix("Use nodes that are not reclaimed, or a higher priority class.", ("kubectl get priorityclass",))),
        _SCHEDULING),
    Row("log_job_deadline", "root", "scheduler",
        r"(?<!code = )\bDeadlineExceeded\b.*(?:Job|Pod|active)|was active (?:on the node )?longer than (?:the )?"
        r"specified deadline|MaxRuntimeExceeded|Training job runtime exceeded MaxRuntimeInSeconds",
        ("  Warning  DeadlineExceeded  job-controller  Job was active longer than specified deadline",
         "Training job runtime exceeded MaxRuntimeInSeconds provided"),
        "the job reached its time limit in Kubernetes or SageMaker and was stopped",
        "activeDeadlineSeconds (SageMaker: max_run) was shorter than the run.",
        Fix("Raise it, and resume from the last checkpoint.", ("kubectl get job JOB -o yaml | grep -i deadline",)),
        _JOB),
    Row("log_pod_failed", "wrapper", "scheduler",
        r"(?:\bPod: [\w-]+\.|\bError pod )(?P<pod>[\w.-]+) (?:exited with code|container \S+ exitCode:) [1-9]",
        ("1.9e+09 DEBUG events Pod: ml.train-worker-1 exited with code 1",
         "DEBUG events Error pod train-worker-1 container pytorch exitCode: 137 terminated message:"),
        "the pod {pod} failed; its own log has the reason, this log of the operator does not",
        "The operator reports only that a container exited with an error, and which pod it was: the line names it.",
        (Fix("Read the log of that pod, also of its container before a restart.",
             ("kubectl logs {pod}", "kubectl logs {pod} --previous",
              "kubectl describe pod {pod} | grep -A6 'Last State'")),
         Fix("Exit code 137 is SIGKILL (usually memory), 1 is a Python error, 139 is a crash in compiled code.")),
        "https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/", tags=("exit_only",),
        summary="A pod of the run failed; its own log has the reason."),
    Row("log_job_gave_up", "wrapper", "scheduler",
        r"has reached the specified backoff limit|\bBackoffLimitExceeded\b|Back-off restarting failed container|"
        r"\bCrashLoopBackOff\b|jobset failed due to one or more job failures|\bFailedJobs\b",
        ("Job has reached the specified backoff limit", "  Warning  BackOff  kubelet  Back-off restarting failed "
                                                        "container trainer in pod t-0",
         "jobset failed due to one or more job failures"),
        "Kubernetes stopped restarting the pods; the cause is in the output of the pod that failed first",
        "The job's status reports only that containers failed.",
        Fix("Read the output of the container before its restart.",
            ("kubectl logs POD --previous", "kubectl describe pod POD | grep -A5 'Last State'")), _JOB,
        tags=("exit_only",)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
