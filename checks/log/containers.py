"""Did Docker, enroot or Apptainer not start the container, and why?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from ._container_cases import IMAGES

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
_PYXIS = "https://github.com/NVIDIA/pyxis"
_APPTAINER = "https://apptainer.org/docs/user/latest/"


def _shown(name: str, pattern: str, samples: tuple[str, ...], source: str) -> Row:
    return Row(name, "context", "scheduler", pattern, samples, "", "", Fix("No action needed.", ()), source)


# fmt: off
ROWS = (
    _shown("runs_in_container",
           r"Container image Copyright \(c\)|/NGC-DL-CONTAINER-LICENSE|/\.singularity\.d/|"
           r"^WARNING: +Environment variable \w+ already has value \[.*will not forward new value",
           ("Container image Copyright (c) 2016-2023, NVIDIA CORPORATION & AFFILIATES. All rights reserved.",
            "WARNING: Environment variable FORCE already has value [1], will not forward new value [None] from parent "
            "process environment"), _APPTAINER),
    _shown("libraries_mixed",
           r"^(?!\S*: \S*conda)\S*/\S+: /\S+/lib\w+\.so\S*: no version information available \(required by /",
           ("/bin/bash: /cvmfs/x/usr/lib64/libtinfo.so.6: no version information available (required by /bin/bash)",),
           "https://man7.org/linux/man-pages/man8/ld.so.8.html"),
    Row("log_image_wants_newer_driver", "root", "scheduler",
        r"unsatisfied condition: (?P<wanted>cuda ?>=? ?[\d.]+)",
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a "
         "newer version, or use an earlier cuda container: unknown.",),
        "the image requires a newer driver than this node has ({wanted})",
        "The toolkit compares the image's CUDA with the newest that the driver supports, and refuses to start it.",
        (Fix("Use an image with an older CUDA, or update the driver of the host.",
             ("nvidia-smi | head -n 4", "mgpu doctor --only driver_too_old_for_torch")),
         Fix("Skip the test, on a data center GPU with the compatibility package.",
             ("docker run --gpus all -e NVIDIA_DISABLE_REQUIRE=1 ...",), kind="stopgap",
             caveat="CUDA may then fail inside the container.")), _TOOLKIT,
        summary="The image requires a newer driver than this node has."),
    Row("log_container_device_rules", "root", "scheduler",
        r"failed to add device rules|BPF_CGROUP_DEVICE\) failed|unable to find any existing device filters",
        ("nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters "
         "attached to the cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown.",),
        "the NVIDIA toolkit may not change the container's device rules (cgroup v2)",
        "An old toolkit, or a rootless Docker or Podman, which has no right to do that.",
        (Fix("Update the toolkit.", ("sudo apt-get install -y --only-upgrade nvidia-container-toolkit",), who="admin"),
         Fix("Rootless: let it leave the rules alone.",
             ("sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",), who="admin")), _TOOLKIT),
    Row("log_container_gpu_unknown", "root", "scheduler",
        r"nvidia-container-cli: device error: .*unknown device|unresolvable CDI devices |"
        r"failed to inject CDI devices|no known GPU vendor found",
        ("nvidia-container-cli: device error: 7: unknown device: unknown.",
         "error modifying OCI spec: failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all: unknown",
         "docker: Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found"),
        "the container requests a GPU that the runtime does not know",
        "The number or UUID in --gpus or NVIDIA_VISIBLE_DEVICES does not exist here (a GPU is lost, MIG was changed), "
        "or the list of devices (CDI) was not generated.",
        (Fix("Check which GPUs exist.", ("nvidia-smi -L", "nvidia-ctk cdi list")),
         Fix("Generate the list again.",
             ("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "sudo systemctl restart docker"),
             who="admin")), _TOOLKIT),
    Row("log_image_contains_driver", "root", "scheduler",
        r"file creation failed: \S*lib(?:nvidia|cuda)\S*: file exists",
        ("nvidia-container-cli: mount error: file creation failed: /var/lib/docker/overlay2/x/merged/usr/lib/"
         "x86_64-linux-gnu/libnvidia-ml.so.1: file exists: unknown.",),
        "the image contains libraries of a driver, where the toolkit mounts the host's",
        "It was saved from a running container, or a driver package was installed in it.",
        Fix("Remove them in the image.", ("RUN rm -f /usr/lib/x86_64-linux-gnu/libnvidia-*.so* "
                                         "/usr/lib/x86_64-linux-gnu/libcuda.so*",)),
        "https://github.com/NVIDIA/nvidia-docker/issues/1551"),
    Row("log_container_mount_missing", "root", "scheduler",
        r"enroot-mount: failed to mount: |bind source path does not exist: |"
        r"mount source \S+ doesn't exist|unable to add \S+ to mount list",
        ("slurmstepd: error: pyxis:     enroot-mount: failed to mount: /lustre/data at /raid/enroot/data/u/"
         "pyxis_1/lustre/data: No such file or directory",
         "docker: Error response from daemon: invalid mount config for type \"bind\": bind source path does not "
         "exist: /scratch/u",
         "FATAL:   container creation failed: mount hook function failure: mount /x->/x error: while mounting /x: "
         "mount source /x doesn't exist",
         "FATAL:   container creation failed: unable to add /data to mount list: destination /data doesn't exist in "
         "container"),
        "a folder that is mounted into the container does not exist on this node, or in the image",
        "The path is misspelled, is on another node's local disk, or the file system is not mounted here. Without an "
        "overlay, Apptainer cannot create the destination in the image.",
        Fix("Check the path on that node.", ("srun -w NODE ls -ld PATH", "findmnt -T PATH")), _PYXIS,
        because_of=("log_slurm_node_failed",)),
    Row("log_pyxis_missing", "root", "scheduler",
        r"(?:srun|sbatch|salloc): unrecognized option '(?P<option>--(?:no-)?container-[\w-]+)",
        ("srun: unrecognized option '--container-image=foo'",),
        "this cluster's Slurm does not know {option}: pyxis is not installed or not loaded",
        "The --container-... options belong to the plugin pyxis.",
        (Fix("Check whether Slurm loads it here.", ("srun --help | grep container", "cat /etc/slurm/plugstack.conf")),
         Fix("Use the cluster's own container tool.", ("apptainer exec --nv IMAGE.sif python train.py",))), _PYXIS,
        summary="This cluster's Slurm does not know pyxis's options."),
    Row("log_enroot_folder_not_writable", "root", "scheduler",
        r"pyxis: +mkdir: cannot create directory [\u2018'](?P<folder>[^'\u2019]+)",
        ("slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied",),
        "enroot cannot create its folder {folder} on this node",
        "You have no permission there, or the disk does not exist. enroot.conf, or ENROOT_RUNTIME_PATH, "
        "ENROOT_DATA_PATH and ENROOT_CACHE_PATH, name the folders.",
        (Fix("Use folders that you may write, on a local disk.",
             ("export ENROOT_CACHE_PATH=/tmp/$USER/enroot/cache ENROOT_DATA_PATH=/tmp/$USER/enroot/data "
              "ENROOT_RUNTIME_PATH=/tmp/$USER/enroot/run",)),
         Fix("Or set them in /etc/enroot/enroot.conf on all nodes.", (), who="admin")),
        "https://github.com/NVIDIA/pyxis/issues/12", summary="enroot cannot create its folder on a node."),
    Row("log_container_program_missing", "root", "scheduler",
        r"enroot-switchroot: failed to execute: (?P<program>\S+): ",
        ("slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory",),
        "the program {program} does not exist in the container, or is for another processor",
        "The image's entrypoint, or the command, names a program that the image does not have. Images for arm64 do not "
        "run on x86_64.",
        Fix("Start the container without its entrypoint, and check the image.",
            ("srun --no-container-entrypoint --container-image=IMAGE ...", "uname -m")),
        "https://github.com/NVIDIA/pyxis/issues/61", summary="A program does not exist in the container."),
    Row("log_image_import_failed", "root", "scheduler",
        r"pyxis: failed to import docker image|pyxis: child \d+ failed with error code|"
        r"FATAL: +(?:.*could not open image|[Ww]hile making image from oci registry)|"
        r"\bErrImagePull\b|\bImagePullBackOff\b|Failed to pull image",
        ("slurmstepd: error: pyxis: failed to import docker image",
         "slurmstepd: error: pyxis: child 10028 failed with error code: 1",
         "FATAL:   could not open image /scratch/u/img.sif: failed to retrieve path for /scratch/u/img.sif: lstat "
         "/scratch/u/img.sif: no such file or directory",
         'Failed to pull image "ghcr.io/x/y:z": rpc error: code = NotFound',
         "FATAL:   While checking container encryption: could not open image /home/u/python3: failed to retrieve path"),
        "the container's image was not found, or could not be imported",
        "Name, tag or credentials are wrong, the registry is not reachable from this node, or its disk is full. pyxis "
        "treats a name without / or ./ at its start as an image in a registry, not as a file.",
        (Fix("For a file, give its path.", ("srun --container-image=./image.sqsh ...", "ls -l PATH")),
         Fix("For a registry, fetch it by hand.", ("enroot import docker://IMAGE", "docker pull IMAGE",
                                                   "df -h /tmp $HOME"))),
        "https://github.com/NVIDIA/pyxis/issues/127",
        because_of=("log_image_not_pulled", "log_disk_full", "log_quota_exceeded", "log_enroot_folder_not_writable"),
        cases=IMAGES),
    Row("log_container_user_namespaces", "root", "scheduler",
        r"Could not write info to setgroups|no event received.*user namespace|user namespace mappings: no event|"
        r"[Ff]ailed to create user namespace|squashfuse\S* not found|unprivileged user namespace|"
        r"(?:clone|unshare) failed.*user namespace",
        ("ERROR  : Could not write info to setgroups: Permission denied",
         "ERROR  : Failed to create user namespace: user namespace disabled",
         "FATAL:   container creation failed: while mounting image: squashfuse_ll not found"),
        "this system does not let users create containers (user namespaces), or a helper program is missing",
        "Apptainer and enroot without root need user namespaces, and squashfuse or fuse2fs to mount an image.",
        (Fix("Allow them.", ("sysctl user.max_user_namespaces kernel.apparmor_restrict_unprivileged_userns",),
             who="admin"),
         Fix("Or unpack the image to a folder.", ("apptainer build --sandbox image_dir image.sif",))), _APPTAINER),
    Row("log_apptainer_without_nv", "secondary", "cuda", r"Could not find any nv files on this host",
        ("INFO:    Could not find any nv files on this host!",),
        "Apptainer found no driver on this node to pass to the container (--nv)",
        "The node has no GPU, or the driver's libraries are not where ldconfig finds them.",
        Fix("Check the node outside the container.", ("nvidia-smi", "ldconfig -p | grep libcuda")), _APPTAINER),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
