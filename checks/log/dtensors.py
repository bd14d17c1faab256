"""Do sharded tensors (FSDP 2, tensor and context parallelism) and their checkpoints fit what the run does with them?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import said
from ._mixed_tensors import OUTSIDE, USE_FORWARD, mixed_tensors
from ._other_program_cases import WITHOUT_MEMORY
from ._plain_script_cases import in_plain_script

_FSDP2 = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_FSDP = "https://docs.pytorch.org/docs/stable/fsdp.html"
_DTENSOR = "https://docs.pytorch.org/docs/stable/distributed.tensor.html"
_DCP = "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html"
_CP = "https://docs.pytorch.org/tutorials/unstable/context_parallel.html"

# fmt: off
_TOO_FEW_MICROBATCHES = Case(
    said(r"[Nn]umber of (?:contiguous )?micro-?batches .*(?:must be|should|less than|smaller than)|"
         r"n_microbatches.*stages"),
    "too few microbatches for the number of pipeline stages",
    "Each stage works on another microbatch at the same time, so the schedule needs about as many per step as there "
    "are stages (an interleaved one: a multiple of them).",
    (Fix("Raise the number of microbatches: more gradient accumulation (batch_accumulation_per_replica, "
         "gradient_accumulation_steps), a larger global batch, or a smaller microbatch."),
     Fix("Or use fewer pipeline stages.", ("--pipeline-model-parallel-size 2",))),
    "AssertionError: Number of microbatches (1) must be at least PP_SIZE-1=7 when using the "
    "OneForwardOneBackwardPipelineEngine\n",
    "https://github.com/huggingface/nanotron/issues/347")

ROWS = (
    Row("log_tensor_kinds_mixed", "root", "script", r"(?P<operator>[\w.]+):? got mixed torch\.Tensor and DTensor",
        ("RuntimeError: aten.add.Tensor: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
         "DTensor before calling distributed operators!",
         "RuntimeError: aten._foreach_mul_.Tensor: got mixed torch.Tensor and DTensor, need to convert all "
         "torch.Tensor to DTensor before calling distributed operators!"),
        "{operator} got a sharded tensor (DTensor) and a plain tensor", OUTSIDE, USE_FORWARD, _FSDP2,
        summary="An operator got a sharded tensor (DTensor) and a plain tensor.", explain_in=mixed_tensors),
    Row("log_fsdp_versions_mixed", "root", "script",
        r"'(?P<policy>MixedPrecisionPolicy|CPUOffloadPolicy|OffloadPolicy)' object has no attribute",
        ("AttributeError: 'MixedPrecisionPolicy' object has no attribute '_module_classes_to_ignore'",),
        "FSDP 1 got a setting of FSDP 2: {policy} is for fully_shard, not for FullyShardedDataParallel",
        "The config selects FSDP 2 (fsdp_version: 2), but a package wraps one of the models with the class of FSDP 1: "
        "a reference or a value model in TRL, an older accelerate, code of your own.",
        (Fix("Upgrade the package that wraps the model: the last frames of {the_traceback} name it.",
             ("pip install --upgrade accelerate trl", "pip show torch accelerate trl")),
         Fix("Or use FSDP 1 until then.", ("accelerate launch --fsdp_version 1 ...",))),
        "https://github.com/huggingface/trl/issues/3581",
        summary="FSDP 1 got a setting of FSDP 2."),
    Row("log_meshes_mixed", "root", "script",
        r"does not support cross-mesh operation|must have the same mesh, but got|on inputs with different meshes|"
        r"Cannot distribute a DTensor with device mesh",
        ("RuntimeError: DTensor does not support cross-mesh operation on aten._fused_adamw_.default! Got meshes: "
         "DeviceMesh('cuda', [0, 1]) DeviceMesh('cuda', [[0, 1], [2, 3]]). Please make sure all the arguments have the "
         "same DeviceMesh.",
         "ValueError: All operands in aten._foreach_norm.Scalar must have the same mesh, but got DeviceMesh((dp=4)) "
         "and DeviceMesh((dp=2, tp=2))"),
        "an operator got parameters that are sharded over different device meshes",
        "With tensor or expert parallelism, some parameters live on a 2D mesh and others on FSDP's mesh. Fused and "
        "foreach optimizers and gradient clipping join all of them.",
        Fix("Handle the parameters one by one, or in one group per mesh.",
            ("torch.optim.AdamW(model.parameters(), foreach=False, fused=False)",
             "torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=False)", "pip install --upgrade torch")),
        "https://github.com/pytorch/pytorch/pull/153268"),
    Row("log_sharded_twice", "root", "script",
        r"distributed API can only be applied to a module once|auto wrapping requires modules to not already have FSDP|"
        r"already managed by (?:`fully_shard`|another FSDP group)|distribute_module`? should only",
        ("AssertionError: Each distinct composable distributed API can only be applied to a module once. fully_shard "
         "has already been applied to the following module:",
         "ValueError: FSDP auto wrapping requires modules to not already have FSDP applied but found layers.0 in Model",
         "ValueError: Parameter 'lm_head.weight' is shared with a parameter already managed by another FSDP group."),
        "a module, or a weight that two modules share, was sharded twice",
        "The script and a library (accelerate, Trainer) both shard the model, or tied weights (embedding and head) are "
        "in two groups.",
        Fix("Shard in one place, and put modules with tied weights into one group.",
            ("fully_shard([model.embed_tokens, model.lm_head])", "mgpu doctor --script train.py")), _FSDP2),
    Row("log_shard_left_on_meta", "root", "script",
        r"FSDP parameters should be materialized from meta device",
        ("RuntimeError: FSDP parameters should be materialized from meta device before training, but the following "
         "were still on meta device: ['layers.0.weight']",),
        "some parameters have no weights yet (meta device)",
        "The model was built on the meta device. The checkpoint has no weights for these parameters (names differ, new "
        "layers), or they were never loaded.",
        Fix("Load or initialize every parameter after sharding.",
            ("model.to_empty(device='cuda'); model.init_weights()",
             "torch.distributed.checkpoint.state_dict.set_model_state_dict(model, state, options=...)")), _FSDP2),
    Row("log_shard_used_outside", "root", "script",
        r"has already been lazily initialized for|The tensor has a non-zero number of elements, but its data is not "
        r"allocated yet|out of bounds for storage of size 0",
        ("RuntimeError: FSDP state has already been lazily initialized for layers.0 FSDP requires running forward "
         "through the root module first",
         "RuntimeError: setStorage: sizes [4096, 4096], strides [4096, 1], storage offset 0, and itemsize 2 "
         "requiring a storage size of 33554432 are out of bounds for storage of size 0",
         "RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet."),
        "a layer was used outside of the sharded model's forward pass",
        "FSDP gathers a layer's weights only while forward() of the root runs, and frees them afterwards. The script "
        "calls a submodule or generate() directly, shares weights between wrapped layers, or evaluates an unwrapped "
        "model.",
        (Fix("Call the root model's forward(), or gather the weights for that part.",
             ("torch.distributed.fsdp.register_fsdp_forward_method(model, 'generate')",
              "with FSDP.summon_full_params(model): ...")),
         Fix("Wrap modules with tied weights together.", ())), _FSDP, cases=(WITHOUT_MEMORY,)),
    Row("log_shard_scalar_parameter", "root", "script",
        r"(?:FSDP|fully_shard) doesn't support scalar parameters\. Change (?P<name>\S+)",
        ("ValueError: fully_shard doesn't support scalar parameters. Change logit_scale to a 1D tensor with numel "
         "equal to 1.",),
        "FSDP cannot shard the scalar parameter {name}", "A tensor without dimensions cannot be split.",
        Fix("Give it one dimension.", ("nn.Parameter(torch.ones(1))",)), _FSDP2,
        summary="FSDP cannot shard a scalar parameter."),
    Row("log_shard_uneven", "root", "script",
        r"FSDP does not support uneven sharding on dim|Shard\(\d+\) requires even sharding|"
        r"Cannot (?:un)?flatten unevenly sharded tensor|Cannot shard unevenly distributed tensor",
        ("NotImplementedError: FSDP does not support uneven sharding on dim 1: torch.Size([4096, 11]) (world size: 4)",
         "RuntimeError: Cannot flatten unevenly sharded tensor: dimension 0 (size 151667) is not evenly divisible by "
         "mesh dimension 0 (size 8)."),
        "a parameter cannot be sharded evenly over the ranks",
        "A size (the vocabulary after new tokens, heads, experts) is not a multiple of the number of ranks that share "
        "it.",
        Fix("Pad the size, or shard over fewer ranks.",
            ("model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)",)), _DTENSOR),
    Row("log_shard_not_contiguous", "root", "script", r"FSDP does not support non-contiguous parameters",
        ("NotImplementedError: FSDP does not support non-contiguous parameters yet: param.shape=torch.Size([151936, "
         "896]) param.stride()=(1, 151936)",),
        "FSDP cannot shard a parameter that is not contiguous in memory",
        "The parameter is a transposed or sliced view: a weight that was tied, transposed or loaded that way.",
        Fix("Make the parameters contiguous before sharding.",
            ("for p in model.parameters(): p.data = p.data.contiguous()", "pip install --upgrade torch")), _FSDP2),
    Row("log_shards_differ_from_metadata", "root", "script",
        r"Number of local shards \((?P<have>\d+)\) does not match number of local shards metadata in "
        r"sharded_tensor_metadata \((?P<listed>\d+)\) on rank \((?P<on>\d+)\)",
        ("RuntimeError: Number of local shards (2) does not match number of local shards metadata in "
         "sharded_tensor_metadata (0) on rank (9)",),
        "rank {on} made {have} shards of a sharded tensor (a TorchRec table, for example), and the metadata lists "
        "{listed} for it",
        "The metadata places the shards by rank. It was made from another sharding plan than the shards, for another "
        "number of ranks, or for another process group: a group of one node counts its ranks from 0.",
        (Fix("Make one plan for all ranks, with the world size and the process group that the model is sharded with.",
             ("plan = planner.collective_plan(model, sharders, dist.GroupMember.WORLD)",)),
         Fix("Print the plan on that rank and on another one, and compare them.", ("print(dist.get_rank(), plan)",)),
         Fix("If the plan is right, compare the releases: some of TorchRec pass another group than the plan's.",
             ("pip show torch torchrec fbgemm-gpu",))),
        "https://github.com/meta-pytorch/torchrec/pull/1033",
        summary="A rank has another number of shards than the metadata of a sharded tensor lists."),
    Row("log_shard_would_move", "root", "script",
        r"would remove or reshape sharded dimension|Attempted to (?:unbind along the|flatten) sharded dimension|"
        r"in-place operations that require placement changes are not supported",
        ("RuntimeError: This operation would remove or reshape sharded dimension 1, which requires redistribution. "
         "Please redistribute the input first.",
         "RuntimeError: aten.add_.Tensor: in-place operations that require placement changes are not supported."),
        "an operation needs the whole dimension that tensor parallelism has split",
        "A view, reshape or in-place operation on a DTensor crosses the split: heads that are not divided evenly, or "
        "code written for whole tensors.",
        Fix("Use the local size in views (-1), or gather the tensor first.",
            ("x.view(batch, length, -1, head_dim)", "x.redistribute(placements=[Replicate()])")), _DTENSOR),
    Row("log_ranks_gather_different_layers", "root", "script",
        r"rank \d+ is all-gathering .* while rank \d+ is all-gathering",
        ("RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 12 parameters while rank 1 is "
         "all-gathering 8 parameters",),
        "the ranks run different layers in the same step",
        "FSDP gathers each layer on all ranks together. Experts, skipped layers, or batches without images make a rank "
        "run other layers.",
        Fix("Let every rank run the same layers: a dummy input for the skipped part, or FSDP around the whole part.",
            ()), _FSDP),
    Row("log_optimizer_shards_do_not_fit", "root", "script",
        r"Tensor optimizer state does not have same shape as its parameter|is not in the optimizer state\. The "
        r"FSDPParamInfo|All unflattened parameters comprising a single flat parameter must have",
        ("ValueError: Tensor optimizer state does not have same shape as its parameter: torch.Size([8]) "
         "torch.Size([16, 8])",
         "RuntimeError: layers.0.weight is not in the optimizer state. The FSDPParamInfo has the param keys ['a']"),
        "the optimizer's state does not fit FSDP's parameters",
        "It was saved with another wrapping, another number of trained parameters or use_orig_params, or with a "
        "sharded format that was loaded as a full one.",
        Fix("Resume with the FSDP settings that saved it, or start with a new optimizer.",
            ("mgpu configure --validate accelerate.yaml",)), _FSDP),
    Row("log_loader_state_of_other_size", "root", "script",
        r"Missing key in checkpoint state_dict: (?P<key>\S*(?:dp_rank_|rank_?)\d+)",
        ("RuntimeError: Missing key in checkpoint state_dict: dataloader.dp_rank_15.",
         "RuntimeError: Missing key in checkpoint state_dict: rng_state.rank_9."),
        "the checkpoint has no state for this rank ({key}): it was written by fewer ranks",
        "Weights and optimizer can be loaded on another number of ranks. The position in the data and the random state "
        "are kept per rank.",
        (Fix("Resume with the same number of data-parallel ranks.", ()),
         Fix("Or load without that state: the data starts from the beginning.",
             ("--checkpoint.exclude_from_loading dataloader",))),
        "https://github.com/pytorch/torchtitan/issues/811",
        summary="A checkpoint has no state for this rank: it was written by fewer ranks."),
    Row("log_rank_file_missing", "root", "script",
        r"No such file or directory: '?(?P<path>\S*(?:world_?size_\d+_rank_\d+|zero_pp_rank_\d+|__\d+_\d+\.distcp|"
        r"mp_rank_\d+|rng_state_\d+|rank_?\d+\.(?:pt|pth|ckpt|safetensors))\S*?)'?$",
        ("FileNotFoundError: [Errno 2] No such file or directory: 'out/model_world_size_8_rank_5.pt'",
         "FileNotFoundError: [Errno 2] No such file or directory: 'out/step_100/__12_0.distcp'",
         "FileNotFoundError: [Errno 2] No such file or directory: 'out/zero_pp_rank_8_mp_rank_00_model_states.pt'"),
        "a rank's own part of the checkpoint is missing: {path}",
        "The checkpoint was written by another number of ranks, or each node wrote its part to its own disk, or the "
        "save was interrupted.",
        (Fix("Compare the files with the number of ranks, on every node.", ("ls CHECKPOINT | sort -V | tail",)),
         Fix("Save to a disk that all nodes share, or copy the parts together. To change the number of ranks, convert "
             "the checkpoint or load a full one.", ("df -h CHECKPOINT",))), _DCP,
        summary="A rank's own part of the checkpoint is missing."),
    Row("log_saving_plans_differ", "root", "script", r"Failed to validate global plan|"
        r"Non-sharded dimensions should have identical size across ranks|Inconsistent tensor metadata \(including "
        r"shape",
        ("ValueError: Failed to validate global plan",
         "ValueError: Inconsistent tensor metadata (including shape and stride) across ranks."),
        "the ranks hold different shapes of one tensor",
        "Sharded tensors must have one global shape. A size comes from each rank's data, or from_local() guessed it "
        "from uneven parts.",
        Fix("Build the tensors from the same sizes on all ranks, and pass shape and stride to from_local().",
            ("DTensor.from_local(part, mesh, placements, shape=shape, stride=stride)",)), _DTENSOR),
    Row("log_context_parallel_attention", "root", "script",
        r"Load balancing requires `is_causal=True`|is_causal requires the same query and context sequence lengths|"
        r"Context [Pp]arallel\w* (?:only supports?|does not support|requires?|is (?:only|not) (?:supported|"
        r"compatible))|"
        r"(?:context_parallel|cp_size) ?.*(?:only|not) (?:supported|compatible) with"
        r"|Context parallelism is supported only with SDPA|Packing is not compatible with context parallelism",
        ("RuntimeError: Load balancing requires `is_causal=True`.",
         "AssertionError: Context parallelism does not support qkv_format=thd!",
         "ValueError: Context parallelism is only supported with SDPA attention, you requested flash_attention_2.",
         "ValueError: Context parallelism is supported only with SDPA attention, you are using flash_attention_2."),
        "context parallelism does not support what the run combines it with",
        "It exchanges keys and values inside the attention kernel. That works for causal attention without a mask, in "
        "the kernels that the message names.",
        Fix("Use sdpa with a causal mask only, without packing, or turn context parallelism off.",
            ("from_pretrained(..., attn_implementation='sdpa')", "mgpu configure --validate accelerate.yaml")), _CP),
    Row("log_pipeline_schedule_wrong", "root", "script",
        r"[Nn]umber of microbatches \S*.*(?:must be|is less than|smaller than)|n_microbatches.*(?:stages|divisible)|"
        r"Expecting \d+ (?:arg_mbs|kwarg_mbs)|[Pp]ipeline stage \d+ .*(?:shape|dtype) mismatch|PipeliningShapeError|"
        r"contiguous micro-?batches in a virtual pipeline|Mismatch in shape: grad_output\[\d+\] has a shape of",
        ("torch.distributed.pipelining._utils.PipeliningShapeError: forward input 0 mismatch: stage 1 expected shape "
         "(1, 2048) but got (1, 1024)",
         "ValueError: Number of microbatches (2) must be greater than or equal to the number of stages (4)",
         "ValueError: The number of contiguous micro-batches in a virtual pipeline stageshould range in [PP=6 , M=3]",
         "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([4, 2262, 8]) and output[0] has a "
         "shape of torch.Size([4, 2361, 8])."),
        "the pipeline's microbatches do not fit its stages",
        "A stage compiles its buffers for the shapes of the first microbatch, and an interleaved schedule needs at "
        "least as many microbatches as stages. The last batch, or sequences of variable length, differ.",
        Fix("Use batches of one shape (drop_last, padding to a fixed length) and enough microbatches.",
            ("DataLoader(..., drop_last=True)",)), "https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
        cases=(_TOO_FEW_MICROBATCHES,), explain=in_plain_script),
    Row("log_no_accelerator_for_fsdp", "root", "launcher",
        r"FSDP (?:needs a non-CPU accelerator device|does not support CPU only execution)",
        ("RuntimeError: FSDP needs a non-CPU accelerator device, but no accelerator device is detected.",),
        "FSDP found no GPU", "torch sees none, or the config says use_cpu.",
        Fix("Find out why torch sees no GPU.", ("mgpu doctor", "nvidia-smi")), _FSDP),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
