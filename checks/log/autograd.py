"""Did autograd, mixed precision, a scheduler or torch.nn.DataParallel refuse what the script does?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import either, passed, said
from ._plain_script_cases import in_plain_script

_AUTOGRAD = "https://docs.pytorch.org/docs/stable/notes/autograd.html"
_CHECKPOINT = "https://github.com/pytorch/pytorch/blob/main/torch/utils/checkpoint.py"
_SCALER = "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py"
_SCHEDULER = "https://github.com/pytorch/pytorch/blob/main/torch/optim/lr_scheduler.py"
_MODULE = "https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/module.py"
_PARALLEL = "https://github.com/pytorch/pytorch/blob/main/torch/nn/parallel/_functions.py"
_SCRIPT = "mgpu doctor --script train.py"
_REENTRANT = Fix(
    "Use checkpointing that is not reentrant.",
    (
        "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
        "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{'use_reentrant': False}})",
    ),
)

# fmt: off
_SHARDED_EVALUATION = Case(
    either(passed(r"torch/distributed/fsdp/|deepspeed/runtime/zero/|torch/nn/parallel/distributed\.py")),
    "a tensor that torch.inference_mode() made reached DDP, FSDP or ZeRO in a training step",
    "FSDP gathers parameters and DDP broadcasts buffers during an evaluation. Under inference_mode these become "
    "inference tensors, which autograd may not use in the next training step. torch.no_grad() has no such effect.",
    (Fix("Evaluate under torch.no_grad() instead of torch.inference_mode().", ("with torch.no_grad():", _SCRIPT)),
     Fix("In Lightning, turn it off.", ("Trainer(inference_mode=False)",))),
    "Traceback (most recent call last):\n"
    '  File "/x/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", line 300, in unshard\n    x\n'
    "RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get "
    "a normal tensor before doing inplace update.\n",
    "https://github.com/Lightning-AI/pytorch-lightning/issues/16908")
_FUNCTIONAL = Case(
    said(r"attention"),
    "double backward was requested through a fused attention kernel, which has only one derivative",
    "A gradient penalty, a second-order optimizer or create_graph=True differentiates the gradient again. The flash "
    "and memory-efficient kernels do not support that.",
    (Fix("Use the math kernel for that part.",
         ("with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH): ...",
          "from_pretrained(..., attn_implementation='eager')")),),
    "RuntimeError: derivative for aten::_scaled_dot_product_flash_attention_backward is not implemented\n", _AUTOGRAD)

_OTHER_DEVICE = Case(
    said(r"autocast device_type '(?!cuda|cpu|xpu)[a-z]+'"),
    "torch.autocast does not support that device in this release of torch",
    "The message names the device. Autocast exists for 'cuda' and 'cpu' in all releases, for 'mps' (a Mac) since "
    "torch 2.5, and for others with their own packages.",
    (Fix("Turn autocast off on that device, or use a newer torch.",
         ("torch.autocast(device.type, enabled=device.type == 'cuda')", "pip install --upgrade torch")),),
    "RuntimeError: User specified an unsupported autocast device_type 'mps'\n",
    "https://docs.pytorch.org/docs/stable/amp.html")
# fmt: on


def _steps(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a number of steps that is above 0, and so of another type; None for 0."""
    count = groups["count"]
    if float(count) <= 0:
        return None
    round_up = Fix("Round it up where it is computed.", ("total_steps = math.ceil(samples / batch_size) * epochs",))
    return Meaning(
        f"the learning rate schedule got {groups['what']} = {count}, and takes a whole number (int)",
        "It is a whole number of another type: the integers of numpy (int64) are not Python's int."
        if count.isdigit()
        else "A division with / gives a float, and so does a config that has 1e4 or 100.0.",
        (Fix("Convert it.", (python("int({:name})", groups["what"]),)) if count.isdigit() else round_up,),
    )


def _no_forward(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a class of the script's own without forward(); None for torch's containers."""
    name = groups["name"]
    if name in ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Module"):
        return None
    return Meaning(
        f"{name} was called, and its class has no forward()",
        "Usually forward is misspelled, or indented wrongly: nested in __init__, or outside of the class. If the class "
        "only holds other modules, call these.",
        (Fix("Look at the class.", (shell("grep -rnE --include='*.py' -A30 {} .", rf"class {name}\b"),)),),
    )


# fmt: off
ROWS = (
    Row("log_inference_tensor_trained", "root", "script",
        r"Inference tensors cannot be saved for backward|Inplace update to inference tensor outside InferenceMode|"
        r"Cannot set version_counter for inference tensor|"
        r"Inference tensors do not track version counter|Setting requires_grad=True on inference tensor",
        ("RuntimeError: Inference tensors cannot be saved for backward. To work around you can make a clone to get a "
         "normal tensor and use it in autograd.",
         "RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone "
         "to get a normal tensor before doing inplace update.",
         "RuntimeError: Cannot set version_counter for inference tensor"),
        "a tensor that was created under torch.inference_mode() is used in training",
        "Such tensors can never take part in autograd. The model was loaded or moved, a cache or a reference output "
        "was computed, or an evaluation ran under inference_mode, and a later training step uses the result.",
        (Fix("Use torch.no_grad() for whatever training uses later, or clone the tensor.",
             ("with torch.no_grad():", "t = t.clone()", _SCRIPT)),),
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html",
        cases=(_SHARDED_EVALUATION,)),
    Row("log_forward_missing", "root", "script",
        r"Module \[(?P<name>\w+)\] is missing the required \"forward\" function",
        ('NotImplementedError: Module [ModuleList] is missing the required "forward" function',),
        "{name} was called, but it has no forward(): it is a container, or forward is misspelled or indented wrongly",
        "nn.ModuleList and nn.ModuleDict only hold modules. A wrapper (DDP, FSDP, DeepSpeed) around such a container, "
        "or around a class whose forward() is nested in another method, fails at its first call.",
        Fix("Call the modules in it, or wrap the module that has a forward().",
            ("for layer in layers: x = layer(x)", "grep -n 'def forward' FILE")), _MODULE,
        summary="A module without forward() was called.", explain=_no_forward),
    Row("log_gradients_sparse", "root", "script",
        r"(?:\w+) does not support sparse gradients|"
        r"Sparse gradients? (?:is|are) not supported|sparse gradients? not supported",
        ("RuntimeError: Adam does not support sparse gradients, please consider SparseAdam instead",
         "RuntimeError: FusedAdam does not support sparse gradients, please consider SparseAdam instead"),
        "an embedding makes sparse gradients, which the optimizer does not support",
        "nn.Embedding(sparse=True) makes them. Few optimizers accept them, ZeRO and FSDP do not, and NCCL cannot "
        "exchange them.",
        Fix("Use dense gradients, or a separate optimizer for that layer.",
            ("nn.Embedding(n, d, sparse=False)", "torch.optim.SparseAdam(embedding.parameters())")),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html"),
    Row("log_scaler_never_scaled", "root", "script", r"Attempted \w+ but _(?:scale|growth_tracker) is None",
        ("AssertionError: Attempted unscale_ but _scale is None.  This may indicate your script did not use "
         "scaler.scale(loss or outputs) earlier in the iteration.",),
        "the gradient scaler is stepped, but no loss was scaled with it before",
        "scaler.scale(loss) was skipped in this iteration: another scaler object (one per rank or per loss), a branch "
        "without a loss (no images, an empty batch on this rank), or loss.backward() without the scaler.",
        Fix("Scale every loss, with the one scaler, on every rank.",
            ("scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()", "accelerator.backward(loss)")),
        _SCALER),
    Row("log_scaler_state_empty", "root", "script",
        r"source state dict is empty, possibly because it was saved from a disabled instance of GradScaler",
        ("RuntimeError: The source state dict is empty, possibly because it was saved from a disabled instance of "
         "GradScaler.",),
        "the checkpoint has no state of the gradient scaler: it was saved without fp16",
        "The run that saved it used bf16 or fp32, where the scaler is off. This run uses fp16.",
        Fix("Resume with the same precision, or do not load the scaler.",
            ("torch.autocast('cuda', dtype=torch.bfloat16)", "accelerate launch --mixed_precision bf16 ...",
             "if state['scaler']: scaler.load_state_dict(state['scaler'])")), _SCALER),
    Row("log_autocast_device_wrong", "root", "script",
        r"User specified (?:an unsupported )?autocast device_type (?:must be .*'?)?'?(?:[\w:]+)",
        ("RuntimeError: User specified an unsupported autocast device_type 'cuda:1'",
         "RuntimeError: User specified autocast device_type must be 'cuda' or 'cpu'"),
        "torch.autocast got a device with a number or an unknown name instead of a type",
        "It needs the type: 'cuda', 'cpu' or 'xpu'. 'cuda:1' names one GPU.",
        Fix("Pass the type.", ("torch.autocast(device_type=device.type, dtype=torch.bfloat16)",)),
        "https://docs.pytorch.org/docs/stable/amp.html", cases=(_OTHER_DEVICE,)),
    Row("log_checkpointing_with_grad", "root", "script",
        r"(?:torch\.utils\.checkpoint is incompatible|Checkpointing is not compatible) with \.grad\(\)",
        ("RuntimeError: Checkpointing is not compatible with .grad() or when an `inputs` parameter is passed to "
         ".backward(). Please use .backward() and do not pass its `inputs` argument.",
         "RuntimeError: When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an "
         "`inputs` parameter to .backward()."),
        "reentrant gradient checkpointing does not work with torch.autograd.grad() or backward(inputs=...)",
        "It runs a second backward pass inside the first, which needs a plain .backward(). Gradient penalties, "
        "pipeline schedules (torch.distributed.pipelining, zero-bubble) and some optimizers call the others.",
        _REENTRANT, _CHECKPOINT),
    Row("log_selective_checkpointing_differs", "root", "script",
        r"encountered during backward but not found in storage|"
        r"Tensor cached during selective activation checkpoint has been mutated",
        ("RuntimeError: aten.mm.default encountered during backward but not found in storage.",
         "RuntimeError: Tensor cached during selective activation checkpoint has been mutated"),
        "selective activation checkpointing ran other operations the second time than in the forward pass",
        "It keeps the results of some operations by their order. A cache, a random branch, experts, an in-place "
        "operation, or torch.compile and autocast that apply to only one of the two passes change that order.",
        Fix("Checkpoint whole layers instead, or keep such operations out of the region.",
            ("activation_checkpoint.mode = 'full'", "model.config.use_cache = False")), _CHECKPOINT),
    Row("log_schedule_without_steps", "root", "script",
        r"Expected positive integer (?P<what>total_steps|steps_per_epoch|epochs), but got "
        r"(?P<count>-?\d{1,18}(?:\.\d{1,18})?(?:e[+-]\d{1,3})?)\b",
        ("ValueError: Expected positive integer total_steps, but got 0",
         "ValueError: Expected positive integer steps_per_epoch, but got 0"),
        "the learning rate schedule got {what} = {count}",
        "The number of steps is 0 or less: the loader has no batch (no samples, or drop_last with less than one "
        "batch), the number of epochs is 0, or samples // (batch size x accumulation x ranks) rounds down to 0.",
        Fix("Compute it from the loader, rounded up.",
            ("total_steps = math.ceil(len(loader) / accumulation) * epochs", "print(len(dataset), len(loader))")),
        _SCHEDULER, summary="The learning rate schedule got no steps.", explain=_steps),
    Row("log_non_leaf_optimized", "root", "script",
        r"can't optimize a non-leaf Tensor|Cannot assign non-leaf Tensor to parameter",
        ("ValueError: can't optimize a non-leaf Tensor",
         "ValueError: Cannot assign non-leaf Tensor to parameter 'weight'. Model parameters must be created "
         "explicitly."),
        "the optimizer or a module got a tensor that was computed, not a parameter",
        "nn.Parameter(x).to(device), .cuda(), .half() or a slice return a new tensor that depends on the parameter. "
        "Only the original parameter can be trained.",
        Fix("Move the data first, then make the parameter.",
            ("nn.Parameter(torch.zeros(n, device=device))", "optimizer = torch.optim.AdamW(model.parameters())")),
        "https://github.com/pytorch/pytorch/blob/main/torch/optim/optimizer.py"),
    Row("log_data_parallel_on_cpu", "root", "script",
        r"(?P<what>Broadcast|Gather) function not implemented for CPU tensors",
        ("AssertionError: Gather function not implemented for CPU tensors",
         "AssertionError: Broadcast function not implemented for CPU tensors"),
        "nn.DataParallel got a tensor on the CPU ({what}): it works between GPUs only",
        "Broadcast: a parameter or buffer is still on the CPU. Gather: forward() returns a tensor that was made on the "
        "CPU (a constant, a count, a loss after .cpu()).",
        (Fix("Move the model first, and return tensors of the input's device.",
             ("model.to('cuda:0')", "torch.tensor(n, device=x.device)")),
         Fix("Better, use one process per GPU.", ("mgpu launch train.py",))), _PARALLEL,
        summary="nn.DataParallel got a tensor on the CPU."),
    Row("log_expanded_tensor_written", "root", "script",
        r"element(?:s of the input tensor and|) ?(?:of )?the written-to tensor refers? to a single memory location",
        ("RuntimeError: unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
         "single memory location. Please clone() the tensor before performing the operation.",
         "RuntimeError: unsupported operation: more than one element of the written-to tensor refers to a single "
         "memory location. Please clone() the tensor before performing the operation."),
        "a tensor that was made with expand() is written, probably a buffer that DDP or FSDP broadcasts",
        "expand() repeats elements without copying them. DDP writes the buffers of rank 0 into those of the others, "
        "which such a buffer (position_ids, masks) does not allow.",
        Fix("Copy it when it is registered, or do not broadcast buffers.",
            ("self.register_buffer('position_ids', ids.expand((1, -1)).clone())",
             "DistributedDataParallel(model, broadcast_buffers=False)",
             "DistributedDataParallelKwargs(broadcast_buffers=False)  # with accelerate")),
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html", explain=in_plain_script),
    Row("log_ddp_gradients_detached", "root", "script",
        r"Can't detach views in-place\. Use detach\(\) instead\. If you",
        ("RuntimeError: Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
         "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets",),
        "gradients were set to zero in place, but with gradient_as_bucket_view they are parts of DDP's buckets",
        "zero_grad(set_to_none=False), grad.detach_() or an old optimizer detaches them in place.",
        Fix("Let zero_grad() remove the gradients, or turn the option off.",
            ("optimizer.zero_grad(set_to_none=True)", "DDP(model, gradient_as_bucket_view=False)")),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"),
    Row("log_derivative_missing", "root", "script",
        r"derivative for (?P<operator>aten::\w+|'?\w+'?) is not implemented",
        ("RuntimeError: derivative for aten::_scaled_dot_product_flash_attention_backward is not implemented",
         "RuntimeError: derivative for aten::searchsorted is not implemented"),
        "the loss depends on an operation without a derivative: {operator}",
        "The operation (or the second derivative of one, such as a name that ends with _backward) cannot be "
        "differentiated.",
        Fix("Detach what should not be trained, or use another operation.", ("x.detach()",)), _AUTOGRAD,
        summary="The loss depends on an operation without a derivative.", cases=(_FUNCTIONAL,)),
    Row("log_random_tracker_missing", "root", "script",
        r"cuda rng state (?P<name>[\w-]+) (?:is not added|already exists)",
        ("Exception: cuda rng state model-parallel-rng is not added",
         "Exception: cuda rng state model-parallel-rng already exists"),
        "the random state {name} of tensor parallelism was not set up, or was set up twice",
        "Megatron, Transformer Engine and DeepSpeed keep a separate random state for tensor-parallel layers. It is "
        "made by a seed function after the parallel groups exist, once per process.",
        Fix("Set the seed once, after the parallel groups are created and before the model.",
            ("megatron.core.tensor_parallel.model_parallel_cuda_manual_seed(1234)",
             "deepspeed.checkpointing.model_parallel_cuda_manual_seed(1234)")),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/tensor_parallel/random.py",
        summary="The random state of tensor parallelism was not set up, or was set up twice."),
    Row("log_attention_without_kernel", "root", "script",
        r"No available kernel\. Aborting execution|No viable backend for scaled_dot_product_attention was found|"
        r"FlashAttention backward for head dim .* requires|query must have dtype (?:fp16|float16) or (?:bf16|bfloat16)",
        ("RuntimeError: No available kernel. Aborting execution.",
         "RuntimeError: FlashAttention backward for head dim > 192 requires A100/A800 or H100/H800",
         "RuntimeError: query must have dtype fp16 or bf16"),
        "the attention kernel that the script selects does not support these inputs or this GPU",
        "sdpa_kernel() allows certain kernels only, and none of them fits: fp32 inputs, a mask that the flash kernel "
        "does not accept, a head dimension that is too large for this GPU's generation, or a GPU before Ampere.",
        (Fix("Let torch choose the kernel, and compute in bf16.",
             ("from_pretrained(..., attn_implementation='sdpa', torch_dtype=torch.bfloat16)",
              "torch.backends.cuda.enable_math_sdp(True)")),
         Fix("See why each kernel was rejected: torch prints it as warnings.",
             ("python -W always train.py 2>&1 | grep -i 'attention'",))),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
