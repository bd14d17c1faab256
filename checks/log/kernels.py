"""Did a kernel or a compiled part refuse: Triton, flash-attn, xformers, apex, CUDA graphs, an extension's cache?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from . import _own_values as own_values
from ._circumstances import passed, said
from ._kernel_sources import of_kernel_source

_TRITON = "https://github.com/triton-lang/triton/issues/2925"
_DRIVER = "https://github.com/triton-lang/triton/blob/main/python/triton/runtime/driver.py"
_GRAPHS = "https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html"
_FLASH = "https://github.com/Dao-AILab/flash-attention/blob/main/csrc/flash_attn/flash_api.cpp"
_XFORMERS = "https://github.com/facebookresearch/xformers/blob/main/xformers/ops/fmha/dispatch.py"
_BUILD = "https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py"
_SCRIPT = "mgpu doctor --script train.py"


def _named(_: Mapping[str, str], one: UncaughtException | None) -> Meaning | None:
    """Return what the script's line shows of the empty list; None without that line."""
    found = own_values.explain(one) if one else None
    return Meaning(found.title, found.why, found.fixes) if found else None


# fmt: off
_NOTHING_IN_ZERO = Case(
    passed(r"deepspeed/runtime/|torch/optim/"),
    "a group of parameters is empty: no parameter in it is trained",
    "DeepSpeed joins the parameters of each optimizer group into one buffer. A group without trainable parameters "
    "(everything frozen, adapters that were not added, a filter by name that matches nothing) gives it an empty list.",
    (Fix("Check what is trained, and leave empty groups out.",
         ("sum(p.numel() for p in model.parameters() if p.requires_grad)",
          "groups = [g for g in groups if g['params']]")),),
    "Traceback (most recent call last):\n"
    '  File "/x/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", line 380, in __init__\n'
    "    flat = torch.cat(tensors)\n"
    "RuntimeError: torch.cat(): expected a non-empty list of Tensors\n",
    "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py")
_NO_OPERATOR = Case(
    said(r"No operator found for `memory_efficient_attention"),
    "xformers has no kernel for these inputs on this GPU",
    "The lines below the message say for each kernel why not: fp32 inputs, a head dimension that is too large, a GPU "
    "that the wheel was not built for, or an xformers of another torch (\"wasn't build with CUDA support\").",
    (Fix("Install the xformers of this torch, or use torch's own attention.",
         ("python -m xformers.info", "pip install --upgrade torch xformers",
          "from_pretrained(..., attn_implementation='sdpa')")),
     Fix("Compute in bf16 or fp16.", ("accelerate launch --mixed_precision bf16 ...",))),
    "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n", _XFORMERS)

ROWS = (
    Row("log_triton_pointer_elsewhere", "root", "script",
        r"Pointer argument (?:\(at \d+\) )?cannot be accessed from Triton",
        ("ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
         "ValueError: Pointer argument cannot be accessed from Triton (cpu tensor?)"),
        "a Triton kernel got a tensor that is not on the current GPU: on another GPU, or on the CPU",
        "Triton launches on the current device of the process. If that is still cuda:0 while the rank's tensors are "
        "on cuda:1 (no torch.cuda.set_device, device_map over several GPUs, nn.DataParallel), the kernel cannot read "
        "them. Offloaded weights and inputs that were not moved are on the CPU.",
        (Fix("Select the rank's GPU before anything else.",
             ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", _SCRIPT)),
         Fix("In code that calls such a kernel, select the tensor's device.",
             ("with torch.cuda.device(x.device): ...",)),
         Fix("With a model over several GPUs in one process, use one process per GPU instead.",
             ("mgpu launch train.py",))), _TRITON),
    Row("log_triton_without_driver", "root", "cuda", r"\d+ active drivers \(.*\)\. There should only be one",
        ("RuntimeError: 0 active drivers ([]). There should only be one.",
         "RuntimeError: 2 active drivers ([<class 'HIPDriver'>, <class 'CudaDriver'>]). There should only be one."),
        "Triton does not find exactly one kind of GPU in this process",
        "0: torch sees no GPU here (a login node, CUDA_VISIBLE_DEVICES, a Ray actor without GPUs, a CPU build of "
        "torch), or Triton is not the release of this torch. 2: the parts of two Triton builds are mixed.",
        (Fix("Check whether torch sees a GPU in this process.",
             ("python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'", "nvidia-smi -L",
              "mgpu doctor --only driver,visibility,container")),
         Fix("Otherwise install Triton again, in the release of this torch.",
             ("pip uninstall -y triton pytorch-triton-rocm triton-windows; pip install --force-reinstall torch",))),
        _DRIVER),
    Row("log_triton_source_rejected", "root", "library",
        r"triton\.compiler\.(?:errors\.|compiler\.)?(?:CompilationError|UnsupportedLanguage)",
        ("triton.compiler.errors.CompilationError: at 10:12:", "triton.compiler.CompilationError: at 14:26:"),
        "Triton could not compile the source of a kernel",
        "The lines below point into the kernel, and the last one has the reason. Kernels of packages (flash-attn, fla, "
        "liger, mamba, unsloth, bitsandbytes) are written for some releases of Triton, which torch determines, and "
        "some fail for a dtype or size only.",
        (Fix("Use the package's release for this torch, and clear Triton's cache.",
             ("pip show torch triton", "rm -rf ~/.triton/cache")),
         Fix("Or turn the kernel off in the package's options.")),
        "https://github.com/triton-lang/triton/blob/main/python/triton/compiler/errors.py",
        explain=of_kernel_source),
    Row("log_graph_pool_broken", "root", "library",
        r"Expected curr_block->next == nullptr to be true|"
        r"live storage data ptrs are in the cudagraph pool but not accounted for",
        ("RuntimeError: Expected curr_block->next == nullptr to be true, but got false.",
         "RuntimeError: These live storage data ptrs are in the cudagraph pool but not accounted for as an output of "
         "cudagraph trees:"),
        "torch.compile's CUDA graphs found memory in their pool that they do not know",
        "mode='reduce-overhead' and 'max-autotune' record CUDA graphs. A hook of DDP, FSDP or ZeRO, an out-of-memory "
        "error during the recording, or a custom kernel that allocates memory breaks their bookkeeping.",
        Fix("Compile without CUDA graphs.",
            ("torch.compile(model, mode='default')", "torch.compile(model, mode='max-autotune-no-cudagraphs')",
             "torch._inductor.config.triton.cudagraphs = False")), _GRAPHS),
    Row("log_recompiled_too_often", "root", "script",
        r"torch\._dynamo\.exc\.(?:FailOnRecompile|FailOnCacheLimit|CacheLimitExceeded|RecompileLimitExceeded)",
        ("torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with fullgraph=True.",
         "torch._dynamo.exc.CacheLimitExceeded: cache_size_limit reached"),
        "torch.compile compiled one function again and again, up to its limit",
        "It compiles again for each new shape, flag or object that the code depends on. Batches and sequences of "
        "variable length, a step counter as an int, or one function for many layers reach the limit (8). Ranks that "
        "compile at different times also wait for each other.",
        (Fix("Pad to fixed sizes, or mark what varies.",
             ("torch.compile(model, dynamic=True)", "torch._dynamo.mark_dynamic(x, 1)",
              "TORCH_LOGS=recompiles mgpu launch train.py")),
         Fix("Or raise the limit.",
             ("torch._dynamo.config.recompile_limit = 64  # cache_size_limit in older releases",))),
        "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html"),
    Row("log_compile_backend_unknown", "root", "script",
        r"torch\._dynamo\.exc\.InvalidBackend: Invalid backend: '(?P<name>[^']*)'",
        ("torch._dynamo.exc.InvalidBackend: Invalid backend: 'inducto', see `torch._dynamo.list_backends()` for "
         "available backends.",),
        "torch.compile has no backend '{name}' here",
        "The name is misspelled, or the package that registers it (tvm, openxla, a vendor's) is not installed.",
        Fix("Use a backend that exists.",
            ("python -c 'import torch; print(torch._dynamo.list_backends())'",
             "accelerate launch --dynamo_backend inductor ...")),
        "https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/backends/registry.py",
        summary="torch.compile has no backend of that name."),
    Row("log_attention_kernel_refused", "root", "script",
        r"Head_size should be below or equal to|"
        r"Number of heads in key/value must divide number of heads in query|"
        r"(?:Input tensor|q|k|v) must have contiguous last dimension|Expected is_sm80(?: \|\| is_sm90)? to be true|"
        r"No operator found for `memory_efficient_attention_\w+`",
        ("RuntimeError: Number of heads in key/value must divide number of heads in query",
         "RuntimeError: Input tensor must have contiguous last dimension",
         "RuntimeError: Expected is_sm80 || is_sm90 to be true, but got false.",
         "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:"),
        "the attention kernel does not support the sizes or the layout of these inputs on this GPU",
        "Flash attention has limits: the head dimension (256, and on consumer GPUs less in the backward pass), heads "
        "of keys and values that divide those of queries, and inputs that are contiguous in their last dimension. With "
        "tensor or sequence parallelism, each rank has only a part of the heads.",
        (Fix("Use torch's own attention, which chooses a kernel that fits.",
             ("from_pretrained(..., attn_implementation='sdpa')",)),
         Fix("Or change the layout or the parallel size.", ("q = q.contiguous()", "mgpu configure"))), _FLASH,
        cases=(_NO_OPERATOR,)),
    Row("log_apex_without_extensions", "root", "library",
        r"apex\.\S+ requires cuda extensions|apex was (?:installed|built) without (?:its )?(?:--cuda_ext|CUDA ext)",
        ("RuntimeError: apex.optimizers.FusedAdam requires cuda extensions",),
        "apex is installed without its CUDA extensions",
        "`pip install apex` without options builds the Python part only (and the apex on PyPI is another project).",
        Fix("Build it with them, in the environment of the ranks, or use torch's fused optimizer.",
            ("git clone https://github.com/NVIDIA/apex && cd apex && pip install -v --no-build-isolation "
             "--config-settings '--build-option=--cpp_ext' --config-settings '--build-option=--cuda_ext' .",
             "torch.optim.AdamW(params, fused=True)")), "https://github.com/NVIDIA/apex#from-source"),
    Row("log_transformer_engine_incomplete", "root", "library", r"Found empty `transformer-engine` meta package",
        ("RuntimeError: Found empty `transformer-engine` meta package installed. Install `transformer-engine` with "
         "framework extensions via'pip3 install --no-build-isolation transformer-engine[pytorch,jax]==VERSION'",),
        "Transformer Engine is installed without its part for PyTorch",
        "The package transformer-engine on PyPI is empty by itself. Its part for PyTorch is an extra, which is "
        "compiled against the installed torch and CUDA.",
        Fix("Install it with the extra, in the environment of the ranks.",
            ("pip install --no-build-isolation 'transformer-engine[pytorch]'", "pip list | grep -i transformer")),
        "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/installation.html"),
    Row("log_extension_cache_broken", "root", "library",
        r"torch_extensions/\S+\.so: (?:cannot open shared object file|file too short|invalid ELF header|"
        r"undefined symbol)",
        ("ImportError: /root/.cache/torch_extensions/py311_cu124/fused_adam/fused_adam.so: cannot open shared object "
         "file: No such file or directory",),
        "a compiled operator is missing or incomplete in the cache of torch's extensions",
        "DeepSpeed and others compile operators at their first use, into ~/.cache/torch_extensions. Another rank or "
        "node may still compile it or may have failed (its log has the compiler's error), or the cache is of another "
        "torch, GPU or image, on a home folder that the nodes share.",
        (Fix("Delete the cache, and build once before the run.",
             ("rm -rf ~/.cache/torch_extensions", "python -c 'import deepspeed; "
              "deepspeed.ops.op_builder.CPUAdamBuilder().load()'")),
         Fix("On shared home folders, use one cache per node.",
             ("export TORCH_EXTENSIONS_DIR=/tmp/torch_extensions",))), _BUILD,
        because_of=("log_extension_not_built",)),
    Row("log_start_method_set_twice", "root", "script", r"^(?:\w+\.)*RuntimeError: context has already been set",
        ("RuntimeError: context has already been set",),
        "multiprocessing's start method was set a second time",
        "set_start_method() works once per process. A package set it before the script, or the script is imported "
        "again by a spawned process without `if __name__ == '__main__'`.",
        Fix("Set it once, under the main guard.",
            ("torch.multiprocessing.set_start_method('spawn', force=True)", "if __name__ == '__main__': main()")),
        "https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods"),
    Row("log_no_tensors_to_join", "root", "script",
        r"torch\.(?:cat|stack|concat)\(\): expected a non-empty list of Tensors|"
        r"(?:cat|stack) expects a non-empty (?:list|TensorList)|received an empty list of sequences",
        ("RuntimeError: torch.cat(): expected a non-empty list of Tensors",
         "RuntimeError: stack expects a non-empty TensorList", "RuntimeError: received an empty list of sequences"),
        "a list of tensors that should be joined is empty",
        "A loop collected nothing: this rank got no batches (a dataset smaller than the number of ranks, drop_last, "
        "an evaluation on one rank), or every sample was filtered out.",
        Fix("Print the list's length on every rank, and handle the rank without data.",
            ("print(rank, len(parts), len(loader))", _SCRIPT)),
        "https://docs.pytorch.org/docs/stable/generated/torch.cat.html", explain=_named,
        cases=(_NOTHING_IN_ZERO,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
