"""Does the script fit the wrapper around its model: DDP, DataParallel, gradient checkpointing?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from . import _device_cases, _plain_torch_cases, _recomputed_dtypes
from ._circumstances import said
from ._in_place_cases import CHANGED_IN_PLACE
from ._other_program_cases import RECOMPUTED_BY_SCRIPT
from ._trainer_arguments import handed_to_trainer
from ._unused_parameters import FIX, TITLE, WHY, explain_unused
from ._wrapper_cases import ATTRIBUTES, DATA_PARALLEL, NOT_A_MODEL, ONE_SAMPLE_PER_RANK, UNUSED_IN_LIGHTNING

_DDP = "https://pytorch.org/docs/stable/notes/ddp.html"
_ACCELERATOR = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"
_LOADER = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/data_loader.py"
_CHECKPOINT = "https://pytorch.org/docs/stable/checkpoint.html"
_SCRIPT = "mgpu doctor --script train.py"

# Attributes of torch's DDP itself, in some of its releases (torch/nn/parallel/distributed.py, 1.8 to 2.13).
_DDP_INTERNALS = (
    r"(?:_use_replicated_tensor_module|_set_static_graph|_sync_params|_module_copies|_lazy_init_ran|_rebuild_buckets|"
    r"_check_sync_bufs_post_fwd|_run_ddp_forward|_find_tensors|_passing_sync_batchnorm_handle|_active_ddp_module|"
    r"_register_fused_optim|_get_ddp_logging_data|require_forward_param_sync)"
)
# fmt: off
_WRAPPED_FOR_TRAINER = Case(
    handed_to_trainer,
    "a trainer got a model that is wrapped already ({wrapper}): it reads .{name}, which only the model inside has",
    "The script wrapped the model (DistributedDataParallel, prepare(), deepspeed.initialize()) before it made the "
    "trainer. Trainers wrap the model themselves.",
    Fix("Pass the model that is not wrapped, and leave out the call that wraps it.", ("Trainer(model=model.module)",)),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    trainer = SFTTrainer('
    'model=model)\n  File "/x/site-packages/trl/trainer/sft_trainer.py", line 412, in __init__\n    if '
    'model.config.use_cache:\n  File "/x/site-packages/torch/nn/modules/module.py", line 1931, in __getattr__\n    '
    "raise AttributeError(\nAttributeError: 'DistributedDataParallel' object has no attribute 'config'\n",
    "https://huggingface.co/docs/transformers/main_classes/trainer")
_TOTAL_BATCH = Case(
    said(r"(?:[Tt]otal|[Gg]lobal|IMS_PER_BATCH).{0,20} must be divisible by (?:the )?(?:world|number)"),
    "the total batch size is not a multiple of the number of ranks",
    "The config gives the batch over all GPUs together, and each rank gets an equal part of it.",
    Fix("Make it a multiple of the number of GPUs, and scale the learning rate with it.",
        ("SOLVER.IMS_PER_BATCH 16 SOLVER.BASE_LR 0.02", "--num-gpus 8")),
    "AssertionError: Total batch size (10) must be divisible by the number of gpus (4).\n",
    "https://github.com/facebookresearch/detectron2/blob/main/detectron2/data/build.py")
_POOLED_TO_ONE = Case(
    said(r"Expected more than 1 value per channel.* torch\.Size\(\[1, \d+(?:, 1)+\]\)"),
    "BatchNorm got one value per channel: a single sample, which a layer before it reduced to size 1",
    "In training mode it needs at least two values per channel to compute a variance. A map has them in its pixels "
    "even with a batch of 1, but a global pooling (ASPP, squeeze and excitation) or a small input leaves one.",
    (Fix("For a test call or inference, switch to evaluation mode. Else use a batch of at least 2.",
         ("model.eval()", "x = torch.randn(2, 3, 224, 224)")),
     Fix("In training, drop a last batch of one sample.", ("DataLoader(..., batch_size=4, drop_last=True)",)),
     Fix("If the batch must be 1, use a norm without statistics of the batch behind that pooling, or none.",
         ("torch.nn.GroupNorm(8, channels)",))),
    "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 64, 1, 1])\n",
    "https://github.com/jfzhang95/pytorch-deeplab-xception/issues/41")
ROWS = (
    Row("log_parameters_unused", "root", "script", r"Expected to have finished reduction in the prior "
        r"iteration|parameters that were not used in producing the loss|"
        r"(?:indices|Parameters) which did not receive grad",
        ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
         "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss "
         "returned by training_step.", "Parameter indices which did not receive grad for rank 0: 12 13 14",
         "Parameters which did not receive grad for rank 14: final_block.bias, norm_mid.weight"),
        TITLE, WHY, FIX, "https://github.com/pytorch/pytorch/issues/43259", explain=explain_unused,
        cases=(UNUSED_IN_LIGHTNING,)),
    Row("log_ddp_forward_bypassed", "root", "script",
        r"(?:expect_autograd_hooks_|autograd_hooks_expected_|require_finalize_) INTERNAL ASSERT FAILED",
        ('RuntimeError: expect_autograd_hooks_ INTERNAL ASSERT FAILED at "/pytorch/torch/csrc/distributed/c10d/'
         'reducer.cpp":1633, please report a bug to PyTorch.',),
        "backward reached DDP's reducer without a forward through the DDP wrapper before it",
        "DDP prepares its reducer in its own forward. Code that calls the model inside (model.module), a training step "
        "that a package has replaced, or a second backward of one forward skips that. It is not a bug of torch.",
        (Fix("Call the wrapped model, and run one backward for each forward.",
             ("output = model(inputs)  # not model.module(inputs)",)),
         Fix("If a package replaces the training step (unsloth and others), train on one GPU, or use its version for "
             "several.", ("mgpu launch --gpus 1 train.py",))),
        "https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/reducer.cpp"),
    Row("log_parameter_ready_twice", "root", "script", r"Expected to mark a variable ready only once",
        ("RuntimeError: Expected to mark a variable ready only once.",),
        "DDP got the gradient of a parameter twice in one step",
        "Usual reasons: reentrant gradient checkpointing (the old default of torch and transformers), the wrapped "
        "model called several times before one backward pass (real and generated samples, two views), or a parameter "
        "used outside of the wrapped forward().",
        (Fix("With gradient checkpointing, use one that is not reentrant, and leave find_unused_parameters off.",
             ("model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{'use_reentrant': False}})",
              "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")),
         Fix("Without it, call the model once per backward pass, and compute in its forward() all that uses its "
             "parameters.", ("real, fake = model(torch.cat([x, g])).chunk(2)",))),
        "https://github.com/huggingface/accelerate/issues/389"),
    Row("log_wrapped_model_attribute", "root", "script",
        r"'?(?P<wrapper>DistributedDataParallel|FullyShardedDataParallel|DataParallel|DeepSpeedEngine)'? object has no "
        rf"attribute '?(?P<name>(?!{_DDP_INTERNALS})\w+)",
        ("AttributeError: 'DistributedDataParallel' object has no attribute 'config'",
         "AttributeError: DistributedDataParallel object has no attribute config",
         "AttributeError: 'DataParallel' object has no attribute 'generate'"),
        "the script reads .{name} from the wrapper {wrapper}, but it belongs to the model inside",
        "prepare() wraps the model. The wrapper forwards calls, not attributes.",
        Fix("Access the model inside.", ("accelerator.unwrap_model(model).{name:name}", "model.module.{name:name}")),
        "https://github.com/huggingface/diffusers/issues/3651",
        summary="The script reads an attribute of the model from DDP's wrapper.",
        cases=(ATTRIBUTES[0], _WRAPPED_FOR_TRAINER, *ATTRIBUTES[1:], DATA_PARALLEL)),
    Row("log_ddp_internals_differ", "root", "library",
        rf"DistributedDataParallel'? object has no attribute '?(?P<name>{_DDP_INTERNALS})\b",
        ("AttributeError: 'MMDistributedDataParallel' object has no attribute '_use_replicated_tensor_module'",
         "AttributeError: 'DistributedDataParallel' object has no attribute '_set_static_graph'"),
        "a package uses {name}, which is internal to DDP and does not exist in the installed torch",
        "torch changes the internals of DDP between releases. The package that calls it (an old mmcv or fairscale, "
        "deepspeed, the framework's own DDP class) was written for an older or a newer torch.",
        Fix("Upgrade the package of the last frame in {the_traceback}, or install the torch it was made for.",
            ("pip list | grep -iE 'torch|mmcv|mmengine|fairscale|lightning'",)),
        "https://github.com/JingyunLiang/VRT/issues/22",
        summary="A package uses internals of DDP that the installed torch does not have."),
    Row("log_model_not_wrapped", "root", "script",
        r"'(?P<owner>(?!(?:NoneType|str|dict|list|tuple|function|Tensor|Namespace|int|float|bool|set|bytes|ndarray|"
        r"DataFrame|Series|\w*(?:Config|Cfg|Args|Arguments|Options|Settings|Dict|Path|Loader|Dataset))')\w+)' object "
        r"has no attribute 'module'",
        ("AttributeError: 'ActorCritic' object has no attribute 'module'. Did you mean: 'modules'?",),
        "the script reads .module of the model {owner}, which is not wrapped",
        "Only DDP, DataParallel and DeepSpeed put the model into .module. With one process, or FSDP 2, there is no "
        "wrapper.",
        Fix("Unwrap it in a way that works with and without a wrapper.",
            ("accelerator.unwrap_model(model)", "getattr(model, 'module', model)")),
        "https://huggingface.co/docs/accelerate/package_reference/accelerator",
        summary="The script reads .module of a model that is not wrapped.", cases=(NOT_A_MODEL,)),
    Row("log_nothing_to_train", "root", "script",
        r"DistributedDataParallel is not needed when a module doesn't have any parameters? that requires? a gradient",
        ("RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
         "gradient.", "AssertionError: DistributedDataParallel is not needed when a module doesn't have any parameters "
         "that require a gradient."),
        "a model without trainable parameters is wrapped in DDP",
        "All its parameters are frozen (a VAE, a text encoder, a teacher), or it has none. prepare() of accelerate and "
        "some trainers wrap every model that they are given.",
        (Fix("If it is the model to train: find the line that freezes all of it (requires_grad_(False), a loop over "
             "parameters(), also after get_peft_model), and leave what should be trained.",
             ("print([n for n, p in model.named_parameters() if p.requires_grad])",)),
         Fix("Otherwise, leave it unwrapped, and do not pass it to prepare(). Move it to the device by hand.",
             ("vae.to(accelerator.device)",))),
        "https://github.com/kohya-ss/sd-scripts/pull/1374"),
    Row("log_ddp_got_no_numbers", "root", "nccl", r"inconsistent 0 params",
        ("RuntimeError: DDP expects same model across all ranks, but Rank 1 has 338 params, while rank 0 has "
         "inconsistent 0 params.",),
        "the first exchange between the ranks returned zeros: the transport is broken, not the model",
        "A collective was aborted early, or direct GPU traffic (P2P) transfers no data.",
        Fix("Test the transport alone.",
            ("mgpu smoke-test", "NCCL_P2P_DISABLE=1 mgpu smoke-test",
             "mgpu doctor --only iommu_translates_peer_traffic,pcie_acs_redirects")), _DDP),
    Row("log_models_differ", "root", "script",
        r"but Rank \d+ has \d+ params, while rank \d+ has inconsistent [1-9]|"
        r"appears not to match (?:sizes|strides) of the same param",
        ("RuntimeError: [1]: params[2] in this process with sizes [5, 4] appears not to match sizes of the same param "
         "in "
         "process 0.", "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 200 params, while rank 1 "
         "has inconsistent 198 params."),
        "the ranks built different models",
        "A size comes from the data of each rank (vocabulary, classes), random numbers have no seed, or code depends "
        "on the rank.",
        Fix("Build the model from the same sizes on every rank.", ("accelerate.utils.set_seed(42)", _SCRIPT)), _DDP),
    Row("log_changed_in_place", "root", "script",
        r"needed for gradient computation has been modified by an inplace operation|"
        r"\w+Backward\w* is a view and (?:is|its base)",
        ("RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
         "operation: [torch.cuda.FloatTensor [64]] is at version 4; expected version 3 instead.",),
        "a tensor that the backward pass needs was modified before it ran",
        "An operation in place (x += y, x[i] = y, x.relu_(), inplace=True), or an optimizer's step between a forward "
        "pass and its backward pass, changed it. The message names its type, its shape and what made it.",
        (Fix("Let torch show the forward call that made the tensor, then write that operation without in place.",
             ("torch.autograd.set_detect_anomaly(True)", "x = x + y  # not: x += y")),
         Fix("Between two optimizers, run all backward passes before the first step.")),
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd",
        cases=CHANGED_IN_PLACE),
    Row("log_ddp_devices_wrong", "root", "script",
        r"module must have its parameters and buffers on device|arguments only work with single-device",
        ("RuntimeError: module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of "
         "them on device: cuda:1", "ValueError: DistributedDataParallel device_ids and output_device arguments only "
                                   "work "
         "with single-device/multiple-device GPU modules or CPU modules"),
        "the model is not on the device that its wrapper was given",
        "DataParallel needs it on the first GPU, DDP on the rank's own GPU.",
        Fix("Move it to the GPU of LOCAL_RANK first.", ("model.to(local_rank)", _SCRIPT)),
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"),
    Row("log_batch_of_one", "root", "script", r"Expected more than 1 value per channel when training",
        ("ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 64])",),
        "BatchNorm got a batch with a single sample",
        "In training mode it needs two values per channel to compute a variance. The model is in training mode where a "
        "single sample is meant (a test, a prediction, an agent's observation), the batch size is 1, or the last batch "
        "of an epoch has one sample left.",
        (Fix("For a single sample, switch to evaluation mode.", ("model.eval()",)),
         Fix("In training, drop the last batch, or use a larger one.", ("DataLoader(..., drop_last=True)",))),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html",
        cases=(_POOLED_TO_ONE, ONE_SAMPLE_PER_RANK)),
    Row("log_sync_batch_norm_on_cpu", "root", "script", r"SyncBatchNorm expected input tensor to be on",
        ("ValueError: SyncBatchNorm expected input tensor to be on GPU",
         "ValueError: SyncBatchNorm expected input tensor to be on GPU or HPU or XPU or privateuseone"),
        "SyncBatchNorm got a tensor on the CPU",
        "SyncBatchNorm supports GPUs only.", Fix("Move model and input to the GPU, or keep BatchNorm.", (_SCRIPT,)),
        "https://pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html"),
    Row("log_no_gradient", "root", "script",
        r"does not require grad and does not have a grad_fn|element \d+ of (?:tensors|variables) does not require "
        r"grad|"
        r"[Nn]one of the inputs? (?:has|have) requires_grad=True(?!\. Gradients will)",
        ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",),
        "the loss does not depend on any trained parameter",
        "With frozen layers (LoRA, PEFT), reentrant gradient checkpointing cuts the gradient if a layer's inputs do "
        "not require one. Otherwise, every parameter is frozen.",
        (Fix("Make the inputs require gradients, or use checkpointing that is not reentrant.",
             ("model.enable_input_require_grads()",
              "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{'use_reentrant': False}})")),
         Fix("Check that something is trained.", ("model.print_trainable_parameters()",))),
        "https://github.com/huggingface/peft/blob/main/docs/source/developer_guides/troubleshooting.md",
        cases=_plain_torch_cases.NO_GRADIENT),
    Row("log_checkpointed_part_frozen", "root", "script", r"none of output has requires_grad=True",
        ("RuntimeError: none of output has requires_grad=True, this checkpoint() is not necessary",),
        "a part of the model that gradient checkpointing computes again returns nothing that requires a gradient",
        "Reentrant checkpointing runs the part a second time in the backward pass. All parameters in it are frozen (a "
        "vision tower, layers without adapters), or it computes under torch.no_grad(), while one of its inputs "
        "requires a gradient.",
        (Fix("Use checkpointing that is not reentrant.",
             ("gradient_checkpointing_kwargs={{'use_reentrant': False}}", "use_reentrant_gc: false  # LLaMA-Factory")),
         Fix("Or leave the frozen part out of checkpointing. Print which parameters are trained.",
             ("print([n for n, p in model.named_parameters() if p.requires_grad][:20])",))), _CHECKPOINT),
    Row("log_recomputation_finds_shards", "root", "script",
        r"(?:saved|recomputed) metadata: .*torch\.Size\(\[0\]\)",
        ("recomputed metadata: {'shape': torch.Size([0]), 'dtype': torch.bfloat16, 'device': device(type='cuda')}",),
        "gradient checkpointing found a parameter of size 0: it was partitioned in one of the two passes",
        "ZeRO-3 and FSDP gather a layer's parameters for its forward pass and release them. A checkpoint that is not "
        "reentrant compares the tensors of both passes, and finds an empty one.",
        (Fix("With ZeRO-3, use reentrant checkpointing.",
             ("gradient_checkpointing_kwargs={{'use_reentrant': True}}", "model.enable_input_require_grads()")),
         Fix("With FSDP, use its own checkpointing, not the model's.",
             ("accelerate launch --fsdp_activation_checkpointing true ...",))), _CHECKPOINT),
    Row("log_recomputation_differs", "root", "script",
        r"Recomputed values for the following tensors have different|"
        r"different number of tensors was saved during the original forward|"
        r"trying to save more tensors during recomputation than during the original forward",
        ("torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors "
         "have different metadata than during the forward pass.",
         "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved "
         "during the original forward and recomputation."),
        "gradient checkpointing computed different values the second time",
        "Mixed precision, random numbers, a cache (use_cache) or the choice of experts (MoE) differ in the second "
        "forward pass, or FSDP gathers parameters in between.",
        Fix("Turn off the cache. With FSDP, use its own activation checkpointing.",
            ("model.config.use_cache = False",
             "accelerate launch --fsdp_activation_checkpointing true ...")), _CHECKPOINT,
        because_of=("log_recomputation_finds_shards",), explain=_recomputed_dtypes.explain,
        cases=(_recomputed_dtypes.PATCHED_LATE, RECOMPUTED_BY_SCRIPT)),
    Row("log_static_graph_changed", "root", "script",
        r"training graph has changed in this iteration|not compatible with static_graph set to True",
        ("RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is used in first "
         "iteration, but then got unused in the second iteration. this is not compatible with static_graph set to "
         "True.",),
        "DDP was configured so that every step uses the same parameters (static_graph), but they differ",
        "A layer is used in some steps only, or not on every rank.",
        Fix("Turn static_graph off, and let DDP search for unused parameters.",
            ("DistributedDataParallel(model, static_graph=False, find_unused_parameters=True)",
             "DistributedDataParallelKwargs(static_graph=False, find_unused_parameters=True)  # with accelerate")),
        _DDP),
    Row("log_recomputed_once_only", "root", "script",
        r"retrieve a tensor saved by autograd multiple times without checkpoint|"
        r"Trying to backward through the graph a second time|for a tensor that was already unpacked once|"
        r"Trying to backward an extra time\. You are only allowed to backward once on any region",
        ("RuntimeError: Attempt to retrieve a tensor saved by autograd multiple times without checkpoint recomputation "
         "being triggered in between, this is not currently supported.",
         "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after "
         "they have already been freed)."),
        "the backward pass ran twice over the same forward pass",
        "Two losses share a forward pass and each calls backward(), a tensor of the last step is used again without "
        "detach(), or a hook (DDP, ZeRO) reads checkpointed tensors a second time.",
        Fix("Add the losses and call backward() once, and detach what is kept from the last step.",
            ("accelerator.backward(loss_1 + loss_2)", "state = state.detach()")),
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html"),
    Row("log_data_parallel_used", "secondary", "script",
        r"Caught \w+ in replica \d+ on device", ("RuntimeError: Caught RuntimeError in replica 1 on device 1.",),
        "the run uses nn.DataParallel: one process for all GPUs",
        "Trainer uses it when it is started with plain python on a node with several GPUs. It is slow, and GPU 0 fills "
        "up first.",
        Fix("Start the script with a launcher.", ("mgpu launch train.py",)),
        "https://huggingface.co/docs/transformers/perf_train_gpu_many"),
    Row("log_device_map_auto", "root", "script", r"loaded with `device_map='auto'` in any distributed mode",
        ("ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",),
        "the model was loaded with device_map='auto', which spreads it across all GPUs in every rank",
        "Each rank needs a whole model on its own GPU.",
        Fix("Remove device_map. If the model is too large for one GPU, use FSDP or ZeRO-3.",
            (_SCRIPT, "mgpu configure")),
        _ACCELERATOR, cases=_device_cases.DEVICE_MAP),
    Row("log_quantized_on_wrong_gpu", "root", "script",
        r"(?:8-bit or 4-bit|8-bit|4-bit) precision on a different device",
        ("ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device "
         "than the one you're training on.",
         "ValueError: You can't train a model that has been loaded in 8-bit precision on a different device than the "
         "one you're training on."),
        "the quantized model was loaded on a GPU other than this rank's",
        "device_map names a fixed GPU. A quantized model cannot be moved afterwards.",
        Fix("Load it on the rank's own GPU.",
            ("device_map={{'': PartialState().local_process_index}}",)), _ACCELERATOR),
    Row("log_batches_of_different_size", "root", "script",
        r"can't use batches of different size with `dispatch_batches=True`",
        ("RuntimeError: You can't use batches of different size with `dispatch_batches=True` or when using an "
         "`IterableDataset`.",),
        "rank 0 reads the data for all ranks, and its batches have different sizes",
        "With an IterableDataset, accelerate reads on rank 0 and distributes the batches. Batches padded to different "
        "lengths cannot be joined.",
        Fix("Let every rank read its own data.", ("DataLoaderConfiguration(dispatch_batches=False)",)), _LOADER),
    Row("log_batch_not_divisible", "root", "script",
        r"needs to be a round multiple of the number of processes|"
        r"(?:[Tt]otal|[Gg]lobal) [Bb]atch size \S+ must be divisible by (?:the )?(?:world|number of (?:gpu|GPU|process|"
        r"rank|device|worker))",
        ("ValueError: To use a `BatchSamplerShard` in `split_batches` mode, the batch size (10) needs to be a round "
         "multiple of the number of processes (4).",),
        "split_batches is on, and the batch size is not a multiple of the number of ranks",
        "With split_batches, the DataLoader's batch size is the total over all ranks.",
        Fix("Make it a multiple of the number of ranks, or turn split_batches off.",
            ("DataLoaderConfiguration(split_batches=False)",)), _LOADER, cases=(_TOTAL_BATCH,)),
    Row("log_accelerator_changed", "root", "script",
        r"AcceleratorState has already been initialized and cannot be changed",
        ("ValueError: AcceleratorState has already been initialized and cannot be changed, restart your runtime "
         "completely and pass `mixed_precision='bf16'` to `Accelerator()`.",),
        "a second Accelerator uses a different precision or device than the first",
        "A process has one accelerate state. A library created an Accelerator before the script did.",
        Fix("Create one Accelerator, and set the precision in the config.",
            ("accelerate launch --mixed_precision bf16 ...",)),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
