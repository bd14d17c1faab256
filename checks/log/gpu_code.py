"""Does the script use a GPU in a way that the GPU does not support?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from .. import _notebooks as notebooks
from . import _device_cases
from ._dtype_cases import BF16_ON_MAC
from ._kernel_cases import INDEXES
from ._module_cases import explain_input_type
from ._system_cases import NOTHING_TO_DRAW
from ._which_device import made_on_cpu, metric_elsewhere, which_device

_API = "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"
_NVRTC = "https://docs.nvidia.com/cuda/nvrtc/index.html"
_NOTES = "https://pytorch.org/docs/stable/notes/cuda.html"
_UNSLOTH = "https://docs.unsloth.ai/basics/multi-gpu-training-with-unsloth"
_ONE_GPU_EACH = (
    Fix("Show the process one GPU, before anything imports torch.", ("CUDA_VISIBLE_DEVICES=0 python train.py",)),
    Fix("For several GPUs, start one rank per GPU, without a device_map.", ("torchrun --nproc-per-node=8 train.py",)),
)


def _unsloths(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain tensors on several GPUs in a process that Unsloth patched."""
    if raised is None or not any(package.startswith("unsloth") for package in raised.packages):
        return None
    return Meaning(
        "one process with Unsloth uses several GPUs, and its tensors are on different ones",
        "Unsloth's patched layers expect one GPU per process. With several visible GPUs and plain python, device_map "
        "or nn.DataParallel spreads the model over them.",
        _ONE_GPU_EACH,
    )


def _of_devices(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    special = metric_elsewhere(raised) or _unsloths(groups, raised)
    return special or explain_input_type(raised) or made_on_cpu(raised) or which_device(raised)


# fmt: off
_ARCH = Fix("Build extensions for this GPU.",
            ("python -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'",
             "mgpu doctor --only torch_lacks_gpu_kernels"))
_FIND_KERNEL = Fix("Find the call: the traceback then stops at it.", ("CUDA_LAUNCH_BLOCKING=1 python train.py",))

ROWS = (
    Row("log_index_out_of_range", "root", "script",
        r"device-side assert triggered|index out of range in self|Target -?\d+ is out of bounds|"
        r": block: \[[\d,]+\], thread: \[[\d,]+\] Assertion|\.hip:\d+: \w+: Device-side assertion",
        ("RuntimeError: CUDA error: device-side assert triggered", "IndexError: index out of range in self",
        "IndexError: Target 10 is out of bounds.",
         "../aten/src/ATen/native/cuda/Indexing.cu:1284: indexSelectLargeIndex: block: [21,0,0], thread: [64,0,0] "
         "Assertion `srcIndex < srcSelectDimSize` failed.",
         "/pytorch/aten/src/ATen/native/hip/Indexing.hip:1292: indexSelectLargeIndex: Device-side assertion "
         "`srcIndex < srcSelectDimSize' failed."),
        "an index is out of range: a label or token id exceeds the size of its table",
        "A class label >= the number of classes, or a token id >= the vocabulary size (tokens added without "
        "resize_token_embeddings). Other ranks, if there are any, then fail in a collective without this one.",
        (_FIND_KERNEL, Fix("Check the ids before they go to the GPU: labels.max() < num_classes, input_ids.max() < the "
                           "rows of the embedding.", ())), _NOTES, cases=INDEXES),
    Row("texts_not_cut", "context", "script",
        r"`max_length` is ignored when `padding`=`True` and there is no truncation strategy",
        ("UserWarning: `max_length` is ignored when `padding`=`True` and there is no truncation strategy. To pad to "
         "max length, use `padding='max_length'`.",),
        "", "", Fix("No action needed.", ()),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/tokenization_utils_base.py"),
    Row("log_cuda_in_fork", "root", "script", r"Cannot re-initialize CUDA in forked subprocess|"
        r"CUDA (?:must not be|was) initialized before (?:spawn|fork)",
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
         "the 'spawn' start method",),
        "CUDA was used before the process forked",
        "A forked child cannot use its parent's CUDA. Either the dataset or collator creates GPU tensors in loader "
        "workers or in map(num_proc=...), or a notebook cell or an import used the GPU before the ranks were forked.",
        (Fix("Create tensors on the CPU in the dataset, and move them in the training loop.", ()),
         Fix("If the script starts processes itself, start them with spawn, before anything uses the GPU.",
             ("torch.multiprocessing.set_start_method('spawn')",
              "DataLoader(..., multiprocessing_context='spawn')",
               "export VLLM_WORKER_MULTIPROC_METHOD=spawn  # vLLM"))), _NOTES, explain=notebooks.explain_fork),
    Row("log_kernel_too_large", "root", "cuda", r"too many resources requested for launch|"
        r"invalid configuration argument",
        ("RuntimeError: CUDA error: too many resources requested for launch",
         "RuntimeError: CUDA error: invalid configuration argument"),
        "a kernel was launched with sizes that this GPU cannot run",
        "A tensor is empty or very large, or the kernel was built for another GPU.",
        (_FIND_KERNEL, _ARCH), _API, cases=(NOTHING_TO_DRAW,)),
    Row("log_gpu_lacks_bf16", "root", "script",
        r"Current CUDA Device does not support bfloat16|Your setup doesn't support bf16|"
        r"bf16 mixed precision requires|Bfloat16 is only supported on GPUs with compute capability|"
        r"[Ff]ull bf16 training is not supported on this hardware|bf16 precision was requested but not available|"
        r"bf16 requested, but AMP is not supported on this GPU",
        ("RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16.",
         "ValueError: Your setup doesn't support bf16/gpu.",
         "ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device.",
         "RuntimeError: Full bf16 training is not supported on this hardware.",
         "RuntimeError: bf16 precision was requested but not available on this hardware. Please use fp32 precision "
         "instead.",
         "  Value error, bf16 requested, but AMP is not supported on this GPU. Requires Ampere series or above. "
         "[type=value_error, input_value={'base_model': 'x'}, input_type=dict]"),
        "bf16 was requested, but the GPUs do not support it, or no GPU is visible",
        "bf16 needs Ampere (compute capability 8.0). The message is the same if torch sees no GPU.",
        Fix("Check the GPUs, or use fp16.",
            ("mgpu doctor --only gpu,pytorch,config_bf16_emulated", "torch.autocast('cuda', dtype=torch.float16)",
             "accelerate launch --mixed_precision fp16 ...")),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",
        because_of=("log_cuda_start_failed", "log_driver_too_old", "log_fabric_not_ready"), cases=(BF16_ON_MAC,)),
    Row("log_gpu_too_old_for_flash_attention", "root", "script",
        r"FlashAttention only supports Ampere|FlashAttention forward only supports (?!head dimension)",
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.",),
        "FlashAttention was requested on a GPU older than Ampere, or with unsupported sizes",
        "Its kernels exist for compute capability 8.0 and above.",
        Fix("Use PyTorch's own attention.", ("from_pretrained(..., attn_implementation='sdpa')",)),
        "https://github.com/Dao-AILab/flash-attention/blob/main/csrc/flash_attn/flash_api.cpp"),
    Row("log_head_too_large_for_flash_attention", "root", "script",
        r"FlashAttention (?:forward |backward )?only supports head dimension (?P<limit>at most \d+)",
        ("RuntimeError: FlashAttention forward only supports head dimension at most 256",
         "RuntimeError: FlashAttention backward only supports head dimension at most 128",
         "RuntimeError: FlashAttention only supports head dimension at most 256"),
        "FlashAttention has no kernel for this model's attention heads: their dimension must be {limit}",
        "The head dimension (head_dim of the model's config, or hidden_size / num_attention_heads) is not one that "
        "this build of FlashAttention supports. It is a property of the model, not of the GPU's age. Some models have "
        "layers whose heads are larger than those of the others.",
        (Fix("Use PyTorch's own attention, which has no such limit.",
             ("from_pretrained(..., attn_implementation='sdpa')",)),
         Fix("Compare with the model's sizes.", ("grep -nE 'head_dim|hidden_size|num_attention_heads' config.json",))),
        "https://github.com/Dao-AILab/flash-attention/blob/main/csrc/flash_attn/flash_api.cpp",
        summary="FlashAttention does not support the model's head dimension."),
    Row("log_tensors_on_several_devices", "root", "script",
        r"Encountered different devices in metric calculation|"
        r"Expected all tensors to be on the same device|[Ee]xpected self and \w+ to be on the same device|"
        r"Query/Key/Value should be on the same device|indices should be either on cpu or on the same device|"
        r"expected device (?!meta)\w\S* but got device (?!meta)\w|"
        r"[Ee]xpected object of (?:device|backend) (?:type )?(?:cuda|CUDA|cpu|CPU) but got (?:device|backend)|"
        r"Input type \([^)]+\) and weight type \([^)]+\) should be the same|"
        r"Input type \(torch\.(?:cuda\.\w+\) and bias type \(torch\.(?!cuda\.)|"
        r"(?!cuda\.)\w+\) and bias type \(torch\.cuda\.)|"
        r"Input, output and indices must be on the current device|arguments are located on different GPUs|"
        r"[Ii]nput and (?:\w+ )?(?:parameter|hidden|weight) tensors are not at the same device|"
        r"Tensor for argument .+ is on (?:cpu|CPU)|Tensor on device (?!meta)\S+ is not on the expected device (?!meta)",
        ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
         "cuda:1!", "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be "
         "the same",
         "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
         "RuntimeError: Input, output and indices must be on the current device",
         "RuntimeError: expected device cuda:0 but got device cpu",
         "RuntimeError: Expected object of backend CPU but got backend CUDA for argument #4 'mat1'",
         "RuntimeError: Expected object of device type cuda but got device type cpu for argument #3 'index'",
         "RuntimeError: arguments are located on different GPUs at /pytorch/aten/src/THC/generic/THCTensorIndex.cu:400",
         "RuntimeError: Input and parameter tensors are not at the same device, found input tensor at cpu and "
         "parameter tensor at cuda:0",
         "RuntimeError: Encountered different devices in metric calculation (see stacktrace for details). This could "
         "be due to the metric class not being on the same device as input."),
        "the model and its input are on different devices",
        "A batch was not moved, a device is hard-coded as cuda:0, or device_map spread the model across GPUs in "
        "one rank. With plain python on several GPUs, nn.DataParallel copies the model to each of them, and a fixed "
        "device is another one than the copy's.",
        (Fix("Let accelerate move batches (prepare the DataLoader), or use accelerator.device everywhere.",
             ("mgpu doctor --script train.py",)),
         Fix("Put the whole model and each batch on one device, and remove device_map.",
             ("model = model.to(accelerator.device)", "x, y = x.to(accelerator.device), y.to(accelerator.device)")),
         Fix("If the script was started with plain python, start one process per GPU.", ("mgpu launch train.py",))),
        _NOTES, explain=_of_devices, cases=_device_cases.TWO_DEVICES),
    Row("log_loss_divided_elsewhere", "root", "script", r"^\s*loss = loss / num_items_in_batch",
        ("    loss = loss / num_items_in_batch",),
        "the model is probably spread across GPUs by device_map, and this transformers divides its loss on the wrong "
        "one",
        "The number of items is on the first GPU, the loss on the GPU of the last layer. Releases around 4.51 do not "
        "move it.",
        (Fix("Put the whole model on one GPU per rank, and shard it with FSDP or ZeRO-3 if it is too large.",
             ("mgpu launch train.py", "mgpu configure")),
         Fix("Or upgrade transformers.", ("pip install --upgrade transformers",))),
        "https://github.com/oobabooga/textgen/issues/7016"),
    Row("log_unsloth_on_several_gpus", "root", "launcher",
        r"(?i)unsloth (?:currently )?(?:does not|doesn't|do not) (?:yet )?(?:work on|support) multi[- ]?gpu",
        ("RuntimeError: Unsloth currently does not support multi GPU setups - unless you are using `torchrun`!",
         "NotImplementedError: Unsloth currently does not work on multi GPU setups - sorry! 1 GPU only."),
        "this version of Unsloth refuses to run in a process that sees several GPUs",
        "It checks the visible GPUs when it is imported or when training starts.", _ONE_GPU_EACH, _UNSLOTH),
    Row("log_metal_operator_missing", "root", "script",
        r"operator '(?P<operator>[\w:.]+)' is not currently implemented for the MPS dev",
        ("NotImplementedError: The operator 'aten::cumprod.out' is not currently implemented for the MPS device. If "
         "you want this op to be added in priority during the prototype phase of this feature, please comment on",),
        "this torch cannot compute {operator} on Apple's GPU (the mps device)",
        "Metal has no kernel for it in this release. Each release adds some.",
        (Fix("Let torch compute it on the CPU. Set this before Python starts.",
             ("export PYTORCH_ENABLE_MPS_FALLBACK=1",)),
         Fix("Or upgrade torch, or move that part to the CPU.", ("pip install --upgrade torch", "x = x.cpu()"))),
        "https://docs.pytorch.org/docs/stable/notes/mps.html",
        summary="An operation does not exist for Apple's GPUs in this release of torch."),
    Row("log_nvrtc_lacks_gpu", "root", "cuda",
        r"nvrtc: error: invalid value for --gpu-architecture",
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)",),
        "torch's CUDA is older than this GPU: its run-time compiler (NVRTC) does not know the GPU",
        "torch compiles some functions (erfinv, complex and other rare ones) for the GPU when they are first called. "
        "Each CUDA release knows the GPUs that existed when it came out.",
        Fix("Install torch built with a newer CUDA.",
            ("python -c \"import torch; print(torch.version.cuda, torch.cuda.get_arch_list())\"",
             "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu130",
             "mgpu doctor --only pytorch")), _NVRTC),
    Row("log_nvrtc_library_missing", "root", "library",
        r"nvrtc: error: failed to open (?P<library>libnvrtc-builtins\S*?)\.?$",
        ("nvrtc: error: failed to open libnvrtc-builtins.so.12.4.",),
        "CUDA's run-time compiler (NVRTC) does not find its own library: {library}",
        "torch compiles some functions when they are first called. Another CUDA's libnvrtc was loaded first "
        "(LD_LIBRARY_PATH, a second torch or CUDA package), and its part with that version is not on the path.",
        (Fix("Take the other CUDA off the path, so that torch loads its own.",
             ("unset LD_LIBRARY_PATH", "pip list | grep -i nvidia", "find / -name 'libnvrtc-builtins*' 2>/dev/null")),
         Fix("Or reinstall torch with the packages that it needs.", ("pip install --force-reinstall torch",))),
        _NVRTC, summary="CUDA's run-time compiler does not find its own library."),
    Row("log_nvrtc_failed", "root", "library",
        r"^(?:\w*Error:)?\s*#ifdef __HIPCC__|\bNVRTC_ERROR_\w+",
        ("  #ifdef __HIPCC__", "CuPy: NVRTC_ERROR_COMPILATION (6)"),
        "CUDA's run-time compiler (NVRTC) could not compile a function for this GPU",
        "torch compiles some functions (erfinv, complex and other rare ones) when they are first called. The log "
        "first has the source code; the compiler's own error is at its end.",
        Fix("Read the last lines of the message, and check that torch's CUDA fits the driver and the GPU.",
            ("mgpu doctor --only pytorch,driver",)), _NVRTC,
        because_of=("log_nvrtc_lacks_gpu", "log_nvrtc_library_missing")),
    Row("log_graph_capture_failed", "root", "cuda",
        r"operation not permitted when stream is capturing|operation failed due to a previous error during capture|"
        r"cudaErrorStreamCapture|merge of separate capture sequences|capture was not ended in the same stream|"
        r"capturing stream has unjoined work|dependency created on uncaptured work in another stream|"
        r"legacy stream depend on a capturing|event last recorded in a capturing stream|"
        r"due to earlier legacy dependency",
        ("RuntimeError: CUDA error: operation not permitted when stream is capturing",
         "RuntimeError: CUDA error: operation failed due to a previous error during capture"),
        "an operation that CUDA graphs do not support was called during capture",
        "Synchronizing calls (item(), printing a tensor), allocations or a collective on another stream abort the "
        "capture.",
        Fix("Capture without it, or turn off CUDA graphs.", ("torch.compile(model, mode='default')",)), _NOTES),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
