"""Did a GPU or the CUDA driver reject an operation or fail?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from .. import _notebooks as notebooks
from . import _device_cases
from ._circumstances import shown
from ._extension_kernels import extension_without_kernels
from ._gpu_generations import other_generation
from ._gpu_number_cases import GLOBAL_RANK, GPU_NUMBERS, NEGATIVE_NUMBERS
from ._kernel_cases import CRASHES, FAILED_IN_TRAINING, START_IN_FORK
from ._missing_gpu_cases import NO_GPU, NUMBER_OF_ONE_PROCESS, WITHOUT_CUDA_ON_MAC
from ._old_drivers import NEWER_TOOLKIT, driver_of_cuda
from ._plain_torch_cases import CUBLAS_HANDLE
from ._ray_cases import GPU_NOT_REQUESTED

_API = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_DRIVER_API = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
# fmt: off
_SMALLER = Fix("Halve the batch per GPU and double gradient accumulation. The effective batch size stays the same.",
               ("(loss / 2).backward()  # and optimizer.step() after every second batch",
                "accelerate launch --gradient_accumulation_steps 2 ..."))
_DRIVER = Fix("Install a newer driver, or a torch built for an older CUDA.",
              ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
               "mgpu doctor --only driver_too_old_for_torch"), who="admin")
_ARCH = Fix("Install a torch with kernels for this GPU, and build extensions for it.",
            ("python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'",
             "mgpu doctor --only torch_lacks_gpu_kernels"))
_FIND_KERNEL = Fix("Find the call: the traceback then stops at it.", ("CUDA_LAUNCH_BLOCKING=1 python train.py",))
_KERNEL_LOG = Fix("Check what the driver logged (an Xid), and whether the GPU is healthy.",
                  ("sudo dmesg -T | grep -iE 'nvrm|xid'", "mgpu doctor --deep --only cuda"), who="admin")


def _in_optimizer(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Return the meaning of a crash in bitsandbytes' optimizer, which accelerate's optimizer called."""
    called = [one for one in (raised.packages if raised else ()) if one != "torch"]
    if called[-2:] != ["accelerate", "bitsandbytes"]:
        return None
    return Meaning(
        "an optimizer of bitsandbytes crashed on a GPU",
        "Its 8-bit and paged optimizers do not support parameters that FSDP has sharded or offloaded. Their kernels "
        "then read memory that is not theirs.",
        (Fix("Use an optimizer of torch, or torchao's 8-bit AdamW, which can be sharded.",
             ("TrainingArguments(optim='adamw_torch')", "TrainingArguments(optim='adamw_torch_8bit')")),
         Fix("Or upgrade bitsandbytes, and shard with DeepSpeed.", ("pip install --upgrade bitsandbytes",))),
    )


# torch warns of them once, sees no GPU from then on, and something else fails later.
_NO_START = ("log_cuda_start_failed", "log_driver_too_old", "log_fabric_not_ready")
_PHYSICAL_NUMBER = Case(
    shown("visible_devices_renumbered"),
    "a process requested a GPU that it does not see, probably by the GPU's physical number",
    "CUDA_VISIBLE_DEVICES is set and does not begin with 0. CUDA numbers the visible GPUs again from 0: with 4,5,6,7 "
    "the valid devices are 0 to 3. Code that passes an id of nvidia-smi or of Ray (ray.get_gpu_ids()) to "
    "torch.cuda.set_device then fails, even with as many ranks as GPUs.",
    (Fix("Use the position in the list as the device, not its entry.",
         ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",)),
     Fix("If the code is a framework's, upgrade it, or start without the variable (in a container with only these "
         "GPUs).", ("env -u CUDA_VISIBLE_DEVICES ray start --head", "docker run --gpus '\"device=4,5,6,7\"' ...")),
     Fix("Check that there are not more ranks than visible GPUs.", ("mgpu doctor --only visibility",))),
    "+ export CUDA_VISIBLE_DEVICES=4,5,6,7\n"
    "Traceback (most recent call last):\n"
    '  File "/root/slime/slime/ray/ppo_actor.py", line 71, in init\n'
    '    torch.cuda.set_device(f"cuda:{local_rank}")\n'
    "RuntimeError: CUDA error: invalid device ordinal\n",
    "https://github.com/THUDM/slime/pull/116")

ROWS = (
    Row("log_fabric_not_ready", "root", "cuda", r"system not yet initialized",
        ("Error 802: system not yet initialized (Triggered internally at ...)",
         "RuntimeError: CUDA error: system not yet initialized"),
        "CUDA error 802: the NVSwitch fabric of this node is not set up",
        "On NVSwitch nodes, CUDA waits for the fabric manager, which must have exactly the driver's version. torch "
        "reports that no GPU is available, although nvidia-smi lists all of them.",
        Fix("Start the fabric manager in the driver's version.",
            ("sudo systemctl restart nvidia-fabricmanager", "nvidia-smi -q | grep -A3 Fabric",
             "mgpu doctor --only nvlink_fabric_not_ready,fabric_manager_version_differs"), who="admin"),
        "https://github.com/pytorch/pytorch/issues/35710"),
    Row("log_gpu_wanted", "root", "cuda",
        r"(?:FP16|BF16|[Mm]ixed precision).{0,160}can only be used on CUDA|"
        r"fp16 mixed precision requires a (?:GPU|device in)|Tried to use `fp16` but it is not supported on cpu|"
        r"FlashAttention only supports CUDA|Expected a cuda device, but|requires? a GPU with CUDA",
        ("ValueError: FP16 Mixed precision training with AMP or APEX (`--fp16`) and FP16 half precision evaluation "
         "(`--fp16_full_eval`) can only be used on CUDA or MLU devices.",
         "ValueError: fp16 mixed precision requires a GPU",
         "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
         "RuntimeError: FlashAttention only supports CUDA", "ValueError: Expected a cuda device, but got: cpu"),
        "a setting of the run needs a GPU, and this process uses the CPU: torch sees no GPU, or is set to use none",
        "fp16, flash attention and CUDA calls do not exist on the CPU. torch sees no GPU if the driver, the container "
        "or CUDA_VISIBLE_DEVICES gives it none, or if its wheel was built without CUDA.",
        (Fix("Find out which of these it is.",
             ("python -c 'import torch; print(torch.__version__, torch.cuda.is_available(), "
              "torch.cuda.device_count())'",
              "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "mgpu doctor --only driver,visibility,pytorch")),
         Fix("For a run on the CPU, turn the setting off.", ("TrainingArguments(fp16=False, use_cpu=True)",))),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",
        because_of=_NO_START),
    Row("log_gpu_older_or_newer_than_torch", "secondary", "cuda",
        r"(?P<gpu>[A-Z][\w .()-]{2,60}) with CUDA capability (?P<arch>sm_\d+) is not compatible with the current "
        r"PyTorch",
        ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch "
         "installation.",),
        "the installed torch has no kernels for this GPU: {gpu} ({arch})",
        "A wheel contains code for some GPU generations only; torch's warning lists them.",
        _ARCH, "https://github.com/pytorch/pytorch/issues/167244", explain=other_generation,
        summary="The installed torch has no kernels for this GPU, which its warning names."),
    Row("log_gpu_without_kernels", "root", "cuda",
        r"no kernel image is available for execution|"
        r"cudaErrorNoKernelImageForDevice|CUDA error: invalid device function|"
        r"Error invalid device function at line \d+ in file",  # as bitsandbytes prints it
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device",
         "RuntimeError: CUDA error: invalid device function",
         "Error invalid device function at line 224 in file /src/csrc/ops.hip"),
        "the installed torch, or an extension, has no kernels for this GPU",
        "A wheel contains code for some GPU generations only. This GPU is too new or too old for it.",
        (_ARCH, Fix("Blackwell (sm_100, sm_120) needs a build for CUDA 12.8 or newer.",
                    ("pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128",))),
        "https://github.com/pytorch/pytorch/issues/167244", explain=extension_without_kernels,
        because_of=("log_gpu_older_or_newer_than_torch",)),
    Row("log_toolkit_newer_than_driver", "root", "cuda",
        r"provided PTX was compiled with an unsupported toolchain|cudaErrorUnsupportedPtxVersion|"
        r"device kernel image is invalid",
        ("CUDA error: the provided PTX was compiled with an unsupported toolchain.",
         "RuntimeError: CUDA error: device kernel image is invalid"),
        "code was compiled with a newer CUDA than the driver supports",
        "Triton, torch.compile or an extension produced portable code (PTX) that this driver cannot translate.",
        NEWER_TOOLKIT, _DRIVER_API),
    Row("log_driver_too_old", "root", "cuda",
        r"(?P<found>NVIDIA driver on your system is too old(?: \(found version \d{4,5}\))?|"
        r"CUDA driver version is insufficient for CUDA runtime version|"
        r"API call is not supported in the installed CUDA driver)",
        ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
         "The NVIDIA driver on your system is too old (found version 11040)."),
        "the driver is too old for the CUDA that torch was built with",
        "torch reports that no GPU is available, and a run without --cpu falls back to the CPU or fails.",
        _DRIVER, "https://github.com/zai-org/ChatGLM3/issues/100", explain=driver_of_cuda),
    Row("log_no_gpu", "root", "cuda",
        r"Found no NVIDIA driver on your system|couldn't communicate with the NVIDIA driver|"
        r"(?<!CUDA_ERROR_NO_DEVICE: )no CUDA-capable device is detected|No CUDA GPUs are available|no GPUs found!|"
        r"No supported gpu backend found|"
        r"NVML Shared Library Not Found|NVMLError_DriverNotLoaded|nvidia-smi: command not found"
        r"|[Uu]nsloth:? (?:cannot find any torch accelerator|currently only works on NVIDIA GPUs)|"
        r"No NVIDIA GPU found\?|with a model not initialized on GPU and with no GPU available|"
        r"Flash Attention \d is not available on CPU|FlashAttention\d is not available on CPU",
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
         "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
         "RuntimeError: No CUDA GPUs are available", "bash: nvidia-smi: command not found",
         "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
         "MisconfigurationException: No supported gpu backend found!",
         "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
         "NotImplementedError: Unsloth cannot find any torch accelerator? You need a GPU.",
         "NotImplementedError: Unsloth: No NVIDIA GPU found? Unsloth currently only supports GPUs!",
         "ValueError: You are attempting to use Flash Attention 2.0 with a model not initialized on GPU and with no "
         "GPU available. This is not supported yet."),
        "the ranks see no GPU",
        "The driver is not loaded, the container or Slurm job was given no GPU, a Ray task or actor did not request "
        "one (num_gpus), or CUDA_VISIBLE_DEVICES hides all of them.",
        (Fix("Check which of these it is.",
             ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES", "mgpu doctor --only driver,visibility,container")),
         Fix("In a container or a job, request GPUs.", ("docker run --gpus all ...", "sbatch --gpus-per-node=8 ..."))),
        "https://github.com/Oneflow-Inc/oneflow/issues/3106", cases=(GPU_NOT_REQUESTED, *NO_GPU), because_of=_NO_START),
    Row("log_torch_without_cuda", "root", "cuda", r"Torch not compiled with CUDA enabled|"
        r"'?torch\._C'? has no attribute '?_cuda_|is_available\(\) is False\. If you are running on a CPU-only machine",
        ("AssertionError: Torch not compiled with CUDA enabled",
         "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
         "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If "
         "you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu')"),
        "this torch build has no CUDA, or sees no GPU",
        "pip or conda selected the CPU wheel, or this machine has no usable NVIDIA GPU.",
        (Fix("With an NVIDIA GPU here: install a build with CUDA. An older Python or torch needs another command: "
             "https://pytorch.org/get-started/previous-versions/",
             ("mgpu doctor --only torch_is_cpu_build",
              "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126")),
         Fix("Without one: choose the device at run time.",
             ("device = 'cuda' if torch.cuda.is_available() else 'cpu'",))),
        "https://pytorch.org/get-started/locally/", cases=(WITHOUT_CUDA_ON_MAC, *_device_cases.FROM_A_GPU)),
    Row("log_gpu_number_invalid", "root", "cuda", r"invalid device ordinal|cudaErrorInvalidDevice\b|"
        r"device >= 0 && device < num_gpus|AssertionError: Invalid device id|But your machine only has|"
        r"Invalid device_ids? \[|local rank is larger than the number of available GPUs|"
        r"local_rank \d+ exceeds available GPUs in CUDA_VISIBLE_DEVICES|device_id \S+ is out of range\. Please use a"
        r"|but this machine only has \d+ GPU|^ValueError: cuda:\d+ is not available, you should use"
        r"|SafetensorError: device cuda:\d+ is invalid|Device index must (?:not be |be (?:-1 or )?non-)negative",
        ("RuntimeError: CUDA error: invalid device ordinal",
         "torch.AcceleratorError: CUDA error: invalid device ordinal", "AssertionError: Invalid device id",
         "ValueError: Invalid device_ids [0, 1, 2, 3] for 2 GPUs",
         "torch.cuda.DeferredCudaCallError: CUDA call failed lazily at initialization with error: device >= 0 && "
         "device < num_gpus INTERNAL ASSERT FAILED", "lightning.fabric.utilities.exceptions.MisconfigurationException: "
         "You requested gpu: [0, 1] But your machine only has: [0]",
         "ValueError: You requested to find 8 devices but this machine only has 2 GPUs.",
         "ValueError: cuda:1 is not available, you should use device=\"cpu\" instead",
         "safetensors_rust.SafetensorError: device cuda:3 is invalid"),
        "a rank requested a GPU that it does not have: more ranks than visible GPUs",
        "num_processes exceeds the GPUs, CUDA_VISIBLE_DEVICES hides some, Slurm shows each task only its own GPU "
        "(--gpus-per-task) while the script counts by LOCAL_RANK, or the GPUs are in MIG mode: a process sees one "
        "instance.",
        (Fix("Start as many ranks as there are visible GPUs.",
             ("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "mgpu doctor --only visibility", "mgpu configure")),
         Fix("Under Slurm, request GPUs per node.", ("sbatch --gpus-per-node=8 --ntasks-per-node=1 ...",))),
        "https://github.com/tatsu-lab/stanford_alpaca/issues/67",
        cases=(*NEGATIVE_NUMBERS, GLOBAL_RANK, _PHYSICAL_NUMBER, *GPU_NUMBERS, *NUMBER_OF_ONE_PROCESS)),
    Row("log_illegal_memory_access", "root", "cuda",
        r"an illegal memory access was encountered|unspecified launch failure|misaligned address|"
        r"an illegal instruction was encountered|hardware stack error|invalid program counter|"
        r"cudaErrorIllegalAddress|cudaErrorLaunchFailure",
        ("RuntimeError: CUDA error: an illegal memory access was encountered",
         "RuntimeError: CUDA error: unspecified launch failure", "CUDA error: misaligned address",
         "RuntimeError: CUDA error: an illegal instruction was encountered"),
        "a kernel crashed on a GPU",
        "A custom kernel (flash-attn, bitsandbytes, Triton, your own) reads out of bounds, or the GPU is faulty. The "
        "reported line is often later than the cause.",
        (_FIND_KERNEL, _KERNEL_LOG), "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        explain=_in_optimizer, because_of=("log_deepep_timed_out",), cases=CRASHES),
    Row("log_gpu_memory_uncorrectable", "root", "cuda", r"uncorrectable ECC error encountered|"
        r"CUDA error: .*uncorrectable ECC error|cudaErrorECCUncorrectable",
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered",
         "torch.AcceleratorError: CUDA error: contained: uncorrectable ECC error"),
        "a GPU's memory had an error that ECC could not correct",
        "The GPU is unreliable, at least until it is reset.",
        Fix("Reset the GPU. If the error comes back, have the GPU replaced.",
            ("sudo nvidia-smi --gpu-reset -i INDEX", "mgpu doctor --only ecc"), who="hardware"), _API),
    Row("log_nvlink_error", "root", "cuda",
        r"uncorrectable NVLink error|Invalid access of peer GPU memory over nvlink",
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
         "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"),
        "an NVLink failed during a transfer",
        "The data is lost, and the process fails. The links, or the GPU at the other end, are faulty.",
        Fix("Check the links and the driver's log.", ("nvidia-smi nvlink -e", "mgpu doctor --only links,xid"),
            who="admin"), _API),
    Row("log_driver_mismatch", "root", "cuda",
        r"[Dd]river/library version mismatch|system has unsupported display driver / cuda driver combination|"
        r"NVRM: API mismatch",
        ("Failed to initialize NVML: Driver/library version mismatch",
         "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
         "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination",
         "NVRM: API mismatch: the client has the version 550.144, but this kernel module has the version 550.90."),
        "the driver's libraries and its loaded kernel module have different versions",
        "The driver was upgraded (often by unattended upgrades) while the old module stayed loaded, or a container "
        "includes its own libcuda.",
        (Fix("Compare the versions, in the container too. If an image or a folder on LD_LIBRARY_PATH has its own "
             "libcuda, remove it: a reboot does not help then.",
             ("cat /proc/driver/nvidia/version; ldconfig -p | grep -E 'libcuda|nvidia-ml'",
              "mgpu doctor --only driver_library_mismatch,libraries")),
         Fix("If the host's driver was upgraded, stop all programs on the GPUs and load the new module.",
             ("sudo systemctl stop nvidia-persistenced nvidia-fabricmanager; sudo modprobe -r nvidia_drm "
              "nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia nvidia_uvm",), who="admin"),
         Fix("If it stays in use, reboot. If the old version comes back, its module was not rebuilt: install the "
             "driver again.", ("sudo reboot", "dkms status; modinfo nvidia | grep ^version"), who="admin")),
        "https://github.com/NVIDIA/ubuntu-packaging-nvidia-driver/issues/3"),
    Row("log_container_lost_gpus", "root", "cuda", r"Failed to initialize NVML: Unknown Error",
        ("Failed to initialize NVML: Unknown Error",),
        "the container lost its GPUs while it was running",
        "systemd rewrote the container's device rules (daemon-reload, an update of the host) without the GPUs. New "
        "CUDA programs in it fail.",
        (Fix("Restart the container.", ("docker restart CONTAINER", "mgpu doctor --only container_lost_gpus")),
         Fix("Prevent it in the future.", ("sudo nvidia-ctk system create-dev-char-symlinks --create-all",),
             who="admin")),
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"),
    Row("log_forward_compat_refused", "root", "cuda",
        r"forward compatibility was attempted on non supported HW|compat mode not supported",
        ("RuntimeError: Error 804: forward compatibility was attempted on non supported HW",),
        "a CUDA compatibility library is found before the driver's own, on a GPU that it does not support",
        "The `compat` folder of an image contains a newer libcuda, which supports data center GPUs only.",
        Fix("Remove the folder from the library path.",
            ("export LD_LIBRARY_PATH=$(echo \"$LD_LIBRARY_PATH\" | tr ':' '\\n' | grep -v compat | paste -sd:)",
             "mgpu doctor --only cuda_compat_on_geforce,cuda_compat_active")), _API),
    Row("log_gpu_unavailable", "root", "cuda",
        r"busy or unavailable|cudaErrorDevicesUnavailable",
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
         "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
        "a GPU accepts no further process",
        "It is in exclusive compute mode with a process on it, in prohibited mode, or in MIG mode without an instance. "
        "Two ranks on one exclusive GPU cause this too.",
        Fix("Check its mode and its processes.",
            ("nvidia-smi -q -d COMPUTE", "mgpu doctor --only gpu,mig", "sudo nvidia-smi -c DEFAULT"), who="admin"),
        _API),
    Row("log_cuda_start_failed", "root", "cuda",
        r"CUDA unknown error|CUDA driver initialization failed|Error 304: OS call failed|CUDA error: unknown error|"
        r"CUDA error: initialization error|cudaGetDeviceCount\(\) returned cudaErrorNotSupported",
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env "
         "variable CUDA_VISIBLE_DEVICES after program start.", "RuntimeError: CUDA error: unknown error",
         "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
         "RuntimeError: CUDA error: initialization error"),
        "the CUDA driver does not start in this process",
        "Often nvidia_uvm is not loaded or hangs after a suspend, /dev/nvidia-uvm is missing in the container, or "
        "CUDA_VISIBLE_DEVICES was changed after CUDA had started.",
        (Fix("Check what CUDA reports on its own.", ("mgpu doctor --deep --only cuda", "ls -l /dev/nvidia*")),
         Fix("Reload nvidia_uvm.", ("sudo modprobe -r nvidia_uvm; sudo modprobe nvidia_uvm",), who="admin")),
        "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/689", explain=notebooks.explain_start,
        cases=(START_IN_FORK, FAILED_IN_TRAINING)),
    Row("log_peer_access_refused", "root", "cuda",
        r"^(?!.*transport/shm\.cc).*peer access is not supported between these two devices|"
        r"cudaErrorPeerAccessUnsupported",
        ("RuntimeError: CUDA error: peer access is not supported between these two devices",
         "node1:1:2 [0] transport/p2p.cc:449 NCCL WARN Cuda failure 217 'peer access is not supported between these "
         "two devices'"),
        "direct access between two GPUs was requested, but they do not support it",
        "GeForce cards and virtual machines have none, NCCL_P2P_LEVEL forces it, or the driver reports access that "
        "the GPUs do not have. NCCL 2.24 and later also need it to share host memory through CUDA (cuMem). Under Ray "
        "and mpirun, NCCL_P2P_DISABLE of the shell does not reach the ranks.",
        (Fix("Turn off both in the environment of every rank. Under Ray: env_vars of runtime_env.",
             ("export NCCL_P2P_DISABLE=1 NCCL_CUMEM_HOST_ENABLE=0",
              "ray job submit --runtime-env-json '{{\"env_vars\": {{\"NCCL_P2P_DISABLE\": \"1\", "
              "\"NCCL_CUMEM_HOST_ENABLE\": \"0\"}}}}' -- python train.py")),
         Fix("Check which pairs support it.", ("nvidia-smi topo -p2p r", "unset NCCL_P2P_LEVEL",
                                               "mgpu doctor --only links"))),
        "https://github.com/hiyouga/EasyR1/issues/579", because_of=("log_nccl_host_memory_path",)),
    Row("log_apple_memory_full", "root", "cuda", r"MPS backend out of memory \(MPS allocated: (?P<used>[\d.]+ [GM]i?B)",
        ("RuntimeError: MPS backend out of memory (MPS allocated: 7.12 GB, other allocations: 10.73 GB, max allowed: "
         "18.13 GB). Tried to allocate 594.00 MB on private pool.",),
        "the memory of this Mac's GPU is full: torch uses {used} of what all programs share",
        "CPU and GPU share the memory of an Apple computer, and the message counts the other programs as \"other "
        "allocations\". Training needs weights, gradients, optimizer states and activations; the logits of a large "
        "vocabulary alone take batch x length x vocabulary x 4 bytes, more than once.",
        (Fix("Use a smaller batch and shorter sequences, and accumulate gradients.",
             ("TrainingArguments(per_device_train_batch_size=1, gradient_accumulation_steps=8)",)),
         Fix("Recompute activations, and train an adapter instead of all weights.",
             ("TrainingArguments(gradient_checkpointing=True)",)),
         Fix("Close other programs that use the GPU."),
         Fix("Let torch use more than its limit.", ("export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",), kind="stopgap",
             caveat="The whole system can become slow or stop, as the message says.")),
        "https://docs.pytorch.org/docs/stable/mps_environment_variables.html",
        summary="The memory of an Apple GPU is full."),
    Row("log_mps_failed", "root", "cuda",
        r"MPS client failed to connect|MPS server is not ready to accept|MPS client has been terminated|"
        r"resources required to (?:create MPS client|support device connections) have been exhausted|cudaErrorMps|"
        r"procedural call between the MPS server and the MPS client failed",
        ("RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
         "CUDA error: MPS client has been terminated by the server"),
        "NVIDIA's Multi-Process Service (MPS) failed",
        "A daemon is dead or belongs to another user, or a fault in another client terminated this one.",
        Fix("Stop it, or restart it.",
            ("echo quit | nvidia-cuda-mps-control", "unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY",
             "mgpu doctor --only mps_running")), "https://docs.nvidia.com/deploy/mps/index.html"),
    Row("log_kernel_timed_out", "root", "cuda", r"the launch timed out and was terminated",
        ("RuntimeError: CUDA error: the launch timed out and was terminated",),
        "the driver stopped a kernel that blocked a display",
        "A GPU with a display has a time limit for kernels.",
        Fix("Train on a GPU without a display, or stop the display server.",
            ("nvidia-smi -q -d DISPLAY", "sudo systemctl isolate multi-user.target"), who="admin"), _API),
    Row("log_cublas_failed", "root", "cuda",
        r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|NOT_INITIALIZED|INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH)|"
        r"in function \w*gemm\w*: cuBLAS Error: ",
        ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`",
         "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        "a matrix multiplication failed in cuBLAS",
        "GPU memory is full, an earlier kernel failed (an index out of range), or a cuBLAS other than torch's was "
        "loaded.",
        (_FIND_KERNEL, Fix("Check whether another cuBLAS is loaded first, and whether the GPU works.",
                           ("mgpu doctor --only library_path_shadows_wheels", "mgpu doctor --deep --only cuda"))),
        "https://docs.nvidia.com/cuda/cublas/index.html", cases=CUBLAS_HANDLE),
    Row("log_cudnn_failed", "root", "cuda",
        r"^(?!.*Warning: Plan failed).*?(?:CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|BAD_PARAM|NOT_INITIALIZED|"
        r"NOT_SUPPORTED|MAPPING_ERROR|SUBLIBRARY)|"
        r"[Uu]nable to find (?:a valid cuDNN algorithm|an engine to execute)|\w+Desc->finalize\(\)|"
        r"cuDNN version incompatibility|"
        r"Could not load library libcudnn)",
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
         "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) but found runtime "
         "version (8, 5, 0).", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
         "RuntimeError: ptrDesc->finalize()",
         "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file"),
        "cuDNN failed, or is not the version that torch was built with",
        "Another cuDNN comes first on the library path, two packages of it (-cu12, -cu13) overwrote each other, or GPU "
        "memory is full.",
        (Fix("Let torch use its own cuDNN.",
             ("unset LD_LIBRARY_PATH", "pip list | grep -i cudnn  # then reinstall the one that torch requires",
              "mgpu doctor --only cudnn_refused_by_torch")),
         _SMALLER), "https://docs.nvidia.com/deeplearning/cudnn/latest/index.html"),
    Row("log_cudnn_other_version", "root", "cuda",
        r"Loaded runtime CuDNN library: (?P<loaded>[\d.]+) but source was compiled with: (?P<wanted>[\d.]+)",
        ("E tensorflow/stream_executor/cuda/cuda_dnn.cc:361] Loaded runtime CuDNN library: 8.0.4 but source was "
         "compiled with: 8.1.0.  CuDNN library needs to have matching major version.",),
        "cuDNN {loaded} is loaded, but this TensorFlow or JAX was built with {wanted}",
        "It needs the same major version, and at least the same minor version. Without it no convolution runs.",
        (Fix("Install the cuDNN that it was built with, and check which one is found first.",
             ("pip list | grep -i cudnn", "ldconfig -p | grep libcudnn", "echo $LD_LIBRARY_PATH")),),
        "https://www.tensorflow.org/install/source#gpu",
        summary="Another cuDNN is loaded than the one that this TensorFlow or JAX was built with."),
    Row("log_cuda_symbol_missing", "root", "cuda", r"named symbol not found|shared object symbol not found|"
        r"PTX JIT compiler library not found",
        ("RuntimeError: CUDA error: named symbol not found",
         "RuntimeError: CUDA error: PTX JIT compiler library not found"),
        "part of the CUDA driver is missing or has a different version",
        "The container got only part of the driver, or libraries of two versions are mixed.",
        (Fix("Request the driver's compute libraries for the container, and check which libraries exist.",
             ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
              "ldconfig -p | grep -E 'libcuda|libnvidia'")),
         Fix("With Docker Desktop on Windows: update it and WSL. Releases before 4.31 do not know drivers from 555 on.",
             ("wsl --update",))), "https://github.com/AbdBarho/stable-diffusion-webui-docker/issues/694"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
