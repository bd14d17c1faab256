"""Did an optimizer, gradient clipping or a compiled step fail on its tensors?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import shown
from ._one_process_cases import OWN_POOL, STEPS_ON_GPU

_ADAM = "https://github.com/pytorch/pytorch/blob/main/torch/optim/adam.py"
_CLIP = "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html"
_GRAPHS = "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"
_UNCOMPILED = "TORCHDYNAMO_DISABLE=1 mgpu launch train.py"
_OPTIM = "https://docs.pytorch.org/docs/stable/optim.html"


def _traced(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the error of the operation that torch.compile traced, which is at the end of the message."""
    _, found, inner = (raised.message if raised else "").partition("): got ")
    if not found or not inner:
        return None
    return Meaning(
        f"an operation fails, and torch.compile found it while tracing: {inner}",
        "torch.compile runs the model once with tensors without data. The operation has wrong shapes, dtypes or "
        "devices, and would fail without torch.compile too, or only with it (autocast, DTensors).",
        (
            Fix("Run once without torch.compile, and fix that error first.", (_UNCOMPILED,)),
            Fix("If it only fails when compiled, exclude that module.", ("@torch.compiler.disable",)),
        ),
    )


# fmt: off
_NARROW = Fix("Try it without what splits the sequence, then without activation checkpointing: what makes the error "
              "disappear is the cause.")
_SPLIT_DIFFERENTLY = Case(
    shown("tensor_parallel"),
    "the backward pass got a gradient of another shape than the forward pass computed: {got} instead of {wanted}, "
    "under tensor parallelism",
    "The sequence is split or cut ({name}) differently in forward and backward, or not equally by the ranks. If a "
    "framework splits it (its recipe, not your model), it is probably a mistake of that release.",
    (Fix("Confirm it with tensor parallel size 1.", ("tensor_parallel_dim=1  # torchtune",)), _NARROW,
     Fix("Install another release or commit of the framework: the newest, or the one that worked before.",
         ("pip show torchtune torchtitan torch", "git bisect start BAD GOOD")),
     Fix("Make the sequence length divisible by the tensor parallel size.",
         ("tokenizer(text, padding=True, pad_to_multiple_of=64)",))),
    "tune run full_finetune_distributed tensor_parallel_dim=2\nTraceback (most recent call last):\n"
    '  File "/x/torchtune/recipes/full_finetune_distributed.py", line 956, in train\n    current_loss.backward()\n'
    "RuntimeError: Function SliceBackward0 returned an invalid gradient at index 0 - got [753, 4096] but expected "
    "shape compatible with [763, 4096]",
    "https://github.com/meta-pytorch/torchtune/pull/2782")
ROWS = (
    Row("log_gradient_of_other_shape", "root", "script",
        r"Function (?P<name>\w+Backward\d*) returned an invalid gradient at index \d+ - got (?P<got>\[[\d, ]*\]) but "
        r"expected shape compatible with (?P<wanted>\[[\d, ]*\])",
        ("RuntimeError: Function SliceBackward0 returned an invalid gradient at index 0 - got [753, 4096] but expected "
         "shape compatible with [763, 4096]",),
        "the backward pass got a gradient of another shape than the forward pass computed: {got} instead of {wanted}",
        "Between forward and backward ({name}) a tensor was changed or exchanged in another size: ranks that split a "
        "sequence differently (tensor, sequence or context parallelism), a custom autograd.Function, a layer that was "
        "recomputed with other inputs, or parameters resized by a wrapper (ZeRO-3, FSDP).",
        (_NARROW,
         Fix("Make the sequence length divisible by the parallel size: pad the batch.",
             ("tokenizer(text, padding=True, pad_to_multiple_of=64)",))),
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/engine.cpp",
        summary="The backward pass got a gradient of another shape than the forward pass computed.",
        cases=(_SPLIT_DIFFERENTLY,)),
    Row("log_optimizer_state_elsewhere", "root", "script",
        r"params and state_steps must be on supported devices|"
        r"Tensors of the same index must be on the same device and the same dtype|"
        r"must contain a list of singleton tensors|Expected scalars to be on CPU, got cuda|"
        r"If capturable=False, state_steps should not be CUDA tensors|"
        r"`?fused(?:=True)?`? requires all the params to be floating point Tensors",
        ("AssertionError: If capturable=True, params and state_steps must be on supported devices: ['cuda', 'xpu'].",
         "RuntimeError: Tensors of the same index must be on the same device and the same dtype except `step` tensors "
         "that can be on CPU and float32 notwithstanding",
         "RuntimeError: `fused=True` requires all the params to be floating point Tensors of supported devices: "
         "['mps', 'cuda'] but torch.float32 and cpu",
         "RuntimeError: API has changed, `state_steps` argument must contain a list of singleton tensors"),
        "the optimizer's state and its parameters have different devices or dtypes",
        "The optimizer was built before the model was moved to the GPU or to another dtype, its state was loaded "
        "from a checkpoint with other settings (fused, capturable, offload), or some parameters stay on the CPU.",
        (Fix("Move and convert the model first, then build the optimizer, then load its state.", ()),
         Fix("Or use the implementation that accepts mixed tensors.",
             ("torch.optim.AdamW(params, fused=False, foreach=False)",)),
         Fix("If Trainer runs the steps with FSDP, upgrade it: before 4.47 it had a bug with gradient accumulation.",
             ("pip install --upgrade transformers accelerate", "pip show transformers accelerate"))), _ADAM,
        cases=(STEPS_ON_GPU,)),
    Row("log_scheduler_groups_differ", "root", "library",
        r"zip\(self\.optimizer\.param_groups, \w+, strict=True\)",
        ("    for param_group, lr in zip(self.optimizer.param_groups, values, strict=True):",),
        "the learning rate scheduler and the optimizer have different numbers of parameter groups",
        "torch 2.10 began to check it; older releases ignored what was too many. The scheduler was built before the "
        "optimizer's groups changed: DeepSpeed merges or drops groups when it takes over the optimizer (groups "
        "without trainable parameters, as with an adapter), or the script added one later. All ranks do the same.",
        (Fix("Upgrade the trainer, which must build the scheduler after the optimizer is prepared.",
             ("pip install --upgrade transformers accelerate", "pip show torch transformers accelerate deepspeed")),
         Fix("Or stay on the torch before that check.", ("pip install 'torch<2.10'",)),
         Fix("In a script of your own, build the scheduler last.",
             ("optimizer = accelerator.prepare(optimizer)",))),
        "https://github.com/huggingface/transformers/pull/43692"),
    Row("log_optimizer_modes_exclude", "root", "script",
        r"`?fused`? and `?foreach`? cannot be (?:both )?`?True`? together|"
        r"lr as a Tensor is not supported for capturable=False and foreach=True|"
        r"`?fused`? does not support `?differentiable`?",
        ("RuntimeError: `fused` and `foreach` cannot be `True` together.",
         "ValueError: lr as a Tensor is not supported for capturable=False and foreach=True"),
        "the optimizer got options that exclude each other",
        "fused, foreach, capturable and differentiable select implementations, and not every combination exists.",
        Fix("Keep one of them.", ("torch.optim.AdamW(params, fused=True)",)), _OPTIM),
    Row("log_muon_got_vectors", "root", "script",
        r"Muon (?:optimizer )?only supports 2D param|if use muon, then tensor dim > 1|[Mm]uon.* (?:2D|2-D|two-dim\w*) "
        r"(?:param|weight|matri|tensor)",
        ("ValueError: Muon only supports 2D parameters whereas we found a parameter with size: torch.Size([4096])",
         "AssertionError: if use muon, then tensor dim > 1, got torch.Size([4096])"),
        "Muon got a parameter that is not a matrix",
        "Muon orthogonalizes matrices. Biases, norms, embeddings and the head belong to AdamW. Under ZeRO-3 or FSDP1, "
        "parameters are flattened, so they all look like vectors.",
        Fix("Give Muon the hidden matrices only, and AdamW the rest.",
            ("[p for n, p in model.named_parameters() if p.ndim == 2 and 'embed' not in n and 'head' not in n]",)),
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html"),
    Row("log_parameter_in_two_groups", "root", "script", r"some parameters appear in more than one parameter group",
        ("ValueError: some parameters appear in more than one parameter group",),
        "a parameter was given to the optimizer twice",
        "Tied weights (embedding and head) are one parameter under two names, or two groups select the same layer.",
        Fix("Collect each parameter once.", ("parameters = list(dict.fromkeys(parameters))",)), _OPTIM),
    Row("log_gradient_norm_not_finite", "root", "script",
        r"total norm of order \S+ for gradients from `parameters` is non-finite",
        ("RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be "
         "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
         "`error_if_nonfinite=False`",),
        "the gradients are NaN or infinite",
        "The learning rate is too high, fp16 overflows, a batch is empty or has only ignored labels, or a GPU computes "
        "wrong results.",
        (Fix("Train in bf16, lower the learning rate, and check batches without labels.",
             ("accelerate launch --mixed_precision bf16 ...", "torch.autograd.set_detect_anomaly(True)")),
         Fix("If it is always the same rank, test its GPU.", ("mgpu smoke-test",))), _CLIP),
    Row("log_worker_pool_died", "secondary", "script",
        r"process in the process pool was terminated abruptly|BrokenProcessPool|"
        r"One of the subprocesses has abruptly died during map"
        r"|Failed to retrieve results from (?:map|prepare_split)\b",
        ("concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while "
         "the future was running or pending.",
         "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable "
         "multiprocessing.",
         "ValueError: Failed to retrieve results from map: result list [None] still contains None - at least one "
         "worker failed to return its results"),
        "a worker process of a pool was killed or crashed",
        "torch.compile's compile workers, datasets.map and tokenizers use pools, one per rank. Host memory ran out, or "
        "compiled code crashed.",
        Fix("Check whether the kernel killed it, and use fewer workers.",
            ("sudo dmesg -T | grep -i 'killed process' | tail", "export TORCHINDUCTOR_COMPILE_THREADS=1",
             "dataset.map(..., num_proc=1)")),
        "https://docs.python.org/3/library/concurrent.futures.html#concurrent.futures.process.BrokenProcessPool",
        cases=(OWN_POOL,)),
    Row("log_graph_random_state", "root", "script",
        r"Offset increment outside graph capture encountered|"
        r"Cannot call CUDAGeneratorImpl::current_seed during CUDA graph|"
        r"capture must be on a non-default stream|CUDAGraph is empty|"
        r"Cannot (?:prepare for replay|set the|copy between CPU and CUDA).* during CUDA graph capture",
        ("RuntimeError: Offset increment outside graph capture encountered unexpectedly.",
         "RuntimeError: Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture. If you need this call "
         "to be captured, please file an issue."),
        "a CUDA graph captured random numbers or a call that graphs do not allow",
        "Dropout and checkpointing use a random state that must be registered with the graph. A copy to the CPU cannot "
        "be captured.",
        (Fix("Turn CUDA graphs off.", ("torch.compile(model, mode='default')", "--cuda-graph-impl none")),
         Fix("Or warm up on a side stream, and checkpoint without preserving the random state.",
             ("torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False, preserve_rng_state=False)",))), _GRAPHS),
    Row("log_compile_cache_broken", "root", "library",
        r"(?:No such file or directory|JSONDecodeError|Text file busy)\S* .*"
        r"(?:\.triton/|triton_cache|torchinductor_|inductor_cache)",
        ("FileNotFoundError: [Errno 2] No such file or directory: '/home/u/.triton/cache/ab12/kernel.cubin.tmp.pid_42'",
         "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/torchinductor_u/ab/cab.py'"),
        "a file in the cache of compiled kernels is missing or incomplete: probably several ranks or nodes wrote it at "
        "once",
        "Triton and torch.compile write to one folder per user. On a shared disk (NFS) its files appear late or vanish "
        "while another rank renames them.",
        Fix("Use a local folder for each node and user, and delete the old cache.",
            ("export TRITON_CACHE_DIR=/tmp/$USER/triton TORCHINDUCTOR_CACHE_DIR=/tmp/$USER/inductor",
             "rm -rf ~/.triton/cache /tmp/torchinductor_$USER")),
        "https://github.com/triton-lang/triton/blob/main/python/triton/runtime/cache.py"),
    Row("log_compile_with_ddp", "root", "script",
        r"DDPOptimizer backend: Found a higher order op|turn off DDP optimizer using torch\._dynamo\.config",
        ("DDPOptimizer backend: Found a higher order op in the graph. This is not supported. Please turn off DDP "
         "optimizer using torch._dynamo.config.optimize_ddp=False.",),
        "torch.compile's optimizer for DDP does not support an operation of the model",
        "It splits the graph at DDP's buckets. Checkpointing and flex_attention are operations that contain graphs, "
        "which it cannot split.",
        Fix("Turn it off.", ("torch._dynamo.config.optimize_ddp = False",)),
        "https://github.com/pytorch/pytorch/issues/104674"),
    Row("log_compile_under_tracing", "root", "script",
        r"using FX to symbolically trace a dynamo-optimized function|torch\._dynamo\.exc\.TorchRuntimeError: |"
        r"Dynamo failed to run FX node with fake tensors",
        ("RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. This is not "
         "supported at the moment.",
         "torch._dynamo.exc.TorchRuntimeError: Failed running call_function <built-in function add>(*(FakeTensor(...",),
        "torch.compile failed while it traced the model",
        "The operation that the message names fails with the traced shapes or tensors: a bug of the model, tensors on "
        "two devices, a DTensor next to a plain tensor, or a model that is compiled twice.",
        (Fix("Run once without torch.compile. If it also fails there, fix that error first.",
             (_UNCOMPILED,)),
         Fix("If not, exclude that module from compiling.", ("@torch.compiler.disable",))),
        "https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html", explain=_traced),
    Row("log_quantized_state_unsupported", "root", "library",
        r"(?P<kind>\w+) dispatch: attempting to run unimplemented (?:operator|function)",
        ("NotImplementedError: OptimState8bit dispatch: attempting to run unimplemented operator/function: "
         "func=<OpOverload(op='aten.new_zeros', overload='default')>",),
        "torchao's {kind} does not support an operation that the run needs",
        "Quantized weights and optimizer states support some operators only. Gathering FSDP's states, saving and "
        "clipping need others.",
        (Fix("Use torch's AdamW, or save sharded states instead of full ones.",
             ("accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT ...", "pip install --upgrade torchao")),),
        "https://github.com/axolotl-ai-cloud/axolotl/issues/2744",
        summary="A quantized tensor of torchao does not support an operation."),
    Row("log_tokens_sent_do_not_add_up", "root", "script",
        r"Split sizes doesn't match total dim 0 size|"
        r"expected (?:input|output)_split_sizes to sum|split_sizes? .*does(?:n't| not) (?:match|sum)",
        ("RuntimeError: Split sizes doesn't match total dim 0 size",),
        "an all-to-all exchange got sizes that do not add up to the tensor",
        "Expert parallelism sends each token to its expert's rank. The counts of tokens per expert were computed for "
        "other tokens: routing that is replayed or recomputed, padding, or ranks with different batches.",
        Fix("Compute the routing in the same pass as the exchange: no replay, no checkpointing of the router.",
            ("--moe-token-dispatcher-type alltoall", "--recompute-granularity selective")),
        "https://github.com/radixark/miles/issues/1002"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
