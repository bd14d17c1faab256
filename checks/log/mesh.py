"""Do meshes and the sizes of parallelism fit the ranks, the model and its wrapper?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from . import _device_cases
from ._circumstances import counts, message, passed, said
from ._divided_quantities import of_message
from ._divided_sizes import divided_size

_MESH = "https://docs.pytorch.org/docs/stable/distributed.html#devicemesh"
_PARALLEL = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/parallelism_config.py"
_VALIDATE = "mgpu configure --validate accelerate.yaml"
_OF_RANKS = re.compile(
    r"(?i)world|rank|parallel|gpu|process|chunk|node|shard|mesh|replica|degree|stage|batch|(?:\b|"
    r"_)e?(?:[tdpces]p)(?:\b|_)"
)


_OF_BATCHES = re.compile(r"(?i)(?:mini|micro|forward|ppo|local|train|sub)?[-_ ]?batch(?:es)?(?:[-_ ]?size)?")
_OF_STEPS = re.compile(r"[\w.`'-]*(?:interval|freq|every|page_size)|.*\bby `?page_size")


def _division(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a division without names, or one that has nothing to do with the number of ranks; None if it may have."""
    what = groups["what"]
    if (numbers := divided_size(what, raised)) is not None:
        return numbers
    if not _OF_RANKS.search(_OF_BATCHES.sub("", what)) and len(_OF_BATCHES.findall(what)) > 1:
        return Meaning(
            f"two batch sizes do not fit each other: {what}",
            "A larger batch is made of whole smaller ones: mini-batches, micro batches, accumulation steps. Trainers "
            "that count all ranks together multiply them by the number of ranks first.",
            (Fix("Make the first size a multiple of the second."),),
        )
    if (named := of_message(what, raised)) is not None:
        return named
    if _OF_RANKS.search(what) and not _OF_STEPS.match(what):
        return None
    return Meaning(
        f"a size cannot be divided evenly: {groups['what']}",
        "The model's settings contradict each other, or an input has a size that the model does not accept. The number "
        "of ranks is not the cause.",
        (Fix("Change one of the two sizes that the message names."),),
    )


_WRAPPERS = frozenset({"accelerate", "deepspeed", "transformers", "pytorch_lightning", "lightning"})


def _collective(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a collective on a DTensor that the script called itself; None if a wrapper or no one is known to."""
    if raised is None or not any(raised.packages[-3:]) or _WRAPPERS.intersection(raised.packages):
        return None
    return Meaning(
        "a collective got a sharded tensor (DTensor), which it cannot exchange",
        "FSDP 2, tensor and sequence parallelism turn parameters and buffers into DTensors. The script broadcasts or "
        "reduces one itself, or gave the sharded model to DDP.",
        (
            Fix(
                "Exchange the local part or the full tensor, and leave sharded parameters out of your own broadcasts.",
                ("torch.distributed.broadcast(t.to_local(), src=0)", "t.full_tensor()"),
            ),
            Fix("Do not wrap a sharded model in DDP."),
        ),
    )


# fmt: off
_ONE_PROCESS = Case(
    counts(r"world[_ ]size ?\(?(\d+)\)? is not divisible by", lambda sizes: sizes[0] == "1"),
    "only one process was started (world size 1), but the model's parallel sizes need several",
    "Without a launcher, or with one task per node, the script runs as a single rank. Tensor, pipeline and context "
    "parallelism need a rank per part.",
    (Fix("Start one process per GPU, with torchrun, srun or mgpu.",
         ("mgpu launch train.py", "torchrun --nproc-per-node=8 train.py", "srun --ntasks-per-node=8 python train.py")),
     Fix("Or set the tensor, pipeline and context parallel sizes to 1.")),
    "RuntimeError: world_size (1) is not divisible by 2\n",
    "https://github.com/NVIDIA-NeMo/Speech/issues/11480")

_OF_ACCELERATE = Case(
    passed(r"^accelerate/"),
    "sizes do not fit the number of ranks: {what}",
    "Ranks, batch, heads or layers are divided evenly over the ranks of each kind of parallelism.",
    Fix("Change the number of ranks, the parallel sizes or the batch, so that it divides.", (_VALIDATE,)),
    'Traceback (most recent call last):\n  File "/x/site-packages/accelerate/parallelism_config.py", line 299, in '
    "_validate\n    raise ValueError(\nValueError: dp_shard_size 3 must be a multiple of the number of nodes, 2\n",
    _PARALLEL)

_WITH_FP8 = Case(
    said(r"using TransformerEngine"),
    "the script prepares the optimizer without its model, which accelerate's fp8 does not allow",
    "With mixed precision fp8, accelerate replaces layers of the model with those of TransformerEngine, and gives "
    "their parameters to the optimizer in the same call.",
    (Fix("Prepare them in one call.", ("model, optimizer = accelerator.prepare(model, optimizer)",)),
     Fix("Or train in bf16.", ("accelerate launch --mixed_precision bf16 ...",))),
    "ValueError: You must pass a model and an optimizer together to `accelerate.prepare()` when using "
    "TransformerEngine.\n",
    "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py")

_TWO_DIMENSIONS = Case(
    message(r"Expected device_mesh to have ndim=2"),
    "hybrid sharding got a device mesh with one dimension, and needs two: replicas x shards",
    "HYBRID_SHARD replicates over one dimension (usually the nodes) and shards over the other (the GPUs of a node). A "
    "mesh with one dimension fits FULL_SHARD only.",
    (Fix("Make a mesh of two dimensions, or choose FULL_SHARD.",
         ("init_device_mesh('cuda', (nodes, gpus_per_node), mesh_dim_names=('replicate', 'shard'))",
          "accelerate launch --fsdp_sharding_strategy FULL_SHARD ..."))),
    "ValueError: Expected device_mesh to have ndim=2 but got 1\n",
    "https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/_init_utils.py")

ROWS = (
    Row("log_sharded_model_wrapped_again", "root", "script", r"found no DeviceMesh from dtensor args",
        ("RuntimeError: found no DeviceMesh from dtensor args for c10d::broadcast_.default!",
         "RuntimeError: found no DeviceMesh from dtensor args for c10d::_allgather_base_.default!"),
        "a model that is already sharded (DTensor) was given to DDP, DeepSpeed or another wrapper",
        "from_pretrained sharded it (tp_plan='auto', or device_map='auto' under a launcher), or fully_shard did. The "
        "second wrapper then broadcasts DTensors as plain tensors.",
        Fix("Use one kind of parallelism: remove tp_plan and device_map from from_pretrained, or the wrapper.",
            ("mgpu doctor --script train.py", "AutoModelForCausalLM.from_pretrained(MODEL)")),
        "https://github.com/huggingface/accelerate/issues/3820", explain=_collective,
        cases=_device_cases.SHARDED_AGAIN),
    Row("log_tensor_parallel_unwanted", "root", "launcher",
        r"does not have a tensor parallel plan|tried to initialize torch\.distributed for you, but it failed|"
        r"`?tp_plan`? (?:supports|is|and `device_map`)",
        ("NotImplementedError: This model does not have a tensor parallel plan.",
         "OSError: We tried to initialize torch.distributed for you, but it failed. Make sure you init torch "
         "distributed in your script to use `tp_plan='auto'`.",
         "ValueError: `tp_plan` and `device_map` are mutually exclusive. Choose either one for parallelization."),
        "transformers turned on tensor parallelism, which this run or this model cannot use",
        "With WORLD_SIZE set, device_map='auto' means tensor parallelism. A variable left over from another job, or a "
        "launcher, sets it.",
        Fix("Without a launcher, unset the variables. With one, remove device_map and tp_plan.",
            ("unset WORLD_SIZE RANK LOCAL_RANK MASTER_ADDR MASTER_PORT", "env | grep -E 'WORLD_SIZE|RANK'",
             "mgpu doctor --only environ")),
        "https://github.com/QwenLM/Qwen2.5-Omni/issues/159"),
    Row("log_mesh_dimension_missing", "root", "script",
        r"Invalid mesh_dim_names? \S.* specified|Mesh dimension '\w+' does not exist|"
        r"Cannot slice a DeviceMesh without mesh_dim_names",
        ("KeyError: \"Invalid mesh_dim_names ('dp_shard_cp',) specified. Valid mesh_dim_names are ['tp'].\"",
         "RuntimeError: Cannot slice a DeviceMesh without mesh_dim_names!"),
        "the device mesh lacks a dimension that the run requires",
        "All ranks are used by other dimensions (tp = number of ranks leaves none for FSDP), or the model was already "
        "parallelized in another way.",
        Fix("Leave ranks for FSDP (lower tp or cp), or start without the FSDP config.", (_VALIDATE,)),
        "https://github.com/huggingface/accelerate/issues/3798"),
    Row("log_mesh_of_other_size", "root", "launcher",
        r"Mesh should not be bigger than default world size|_dim_group_(?:infos|names)\[|"
        r"DeviceMesh only support homogeneous hardware|Expected device_mesh to have ndim=2|"
        r"mesh size \(?\d+\)? (?:does not match|must|is not)",
        ("RuntimeError: Mesh should not be bigger than default world size 4, but found 8 ranks!",
         "    device_mesh._dim_group_infos[mesh_dim_indices[0]]",
         "ValueError: Expected device_mesh to have ndim=2 but got 1"),
        "the device mesh is for a different number of ranks than were started",
        "The product of its sizes (dp_replicate x dp_shard x tp x cp, or nodes x GPUs for hybrid sharding) must equal "
        "the number of ranks. num_processes in the config is too small, or fewer GPUs were given.",
        Fix("Set the sizes and num_processes to the same product.", (_VALIDATE, "mgpu configure")), _MESH,
        cases=(_TWO_DIMENSIONS,)),
    Row("log_sizes_do_not_divide", "root", "launcher",
        r"(?:AssertionError|ValueError|RuntimeError|AssertError): (?!.*(?:unevenly|`split_batches`|BatchSamplerShard|"
        r"FP8|NVFP4|generations|First dimension of the tensor|"
        r"\b[Ss]eq(?:uence)?[ _-]?len(?:gth)?.*(?:divisible|a multiple)|"
        r"divisible by (?:the )?global batch|attention heads \(\d+\) must|real_train_batch|DataProto|infer_tp|"
        r"n_gpus \(|dp size|gpus_per_node|\bmat1\b|weight quantization block|_per_partition))"
        r"(?P<what>.*\b(?:divisible by|equal chunk\. Got size|a multiple of (?:the )?(?:number|world|tensor|dp|tp)).*)",
        ("AssertionError: only support equal chunk. Got size of TensorDict 5 and chunk 4.",
         "RuntimeError: decoder world_size (4) is not divisible by expert_tensor_model_pipeline_parallel size (8)",
         "AssertionError: num_attention_heads 28 must be divisible by ulysses_sp_size 8"),
        "sizes do not fit the number of ranks: {what}",
        "Ranks, batch, heads or layers are divided evenly over the ranks of each kind of parallelism.",
        Fix("Change one of the two sizes that the message names, so that it divides."),
        _PARALLEL,
        summary="A size cannot be divided evenly over the ranks.", explain=_division,
        cases=(_ONE_PROCESS, _OF_ACCELERATE)),
    Row("log_tensor_parallel_layer_unknown", "root", "script",
        r"(?:Colwise|Rowwise|Sequence)Parallel currently only supports? nn\.\w+",
        ("NotImplementedError: ColwiseParallel currently only support nn.Linear and nn.Embedding!",),
        "the tensor-parallel plan splits a layer that is not nn.Linear or nn.Embedding",
        "The layer was replaced before: by LoRA, a quantized or fp8 linear, a fused or expert layer, or a wrapper of "
        "torch.compile or checkpointing. Or the plan's pattern names a whole block.",
        Fix("Apply tensor parallelism first, and name the linear layers themselves.",
            ("parallelize_module(model, mesh['tp'], {{'layers.*.attn.wq': ColwiseParallel()}})",
             "print([n for n, m in model.named_modules() if type(m).__name__ != 'Linear'])")),
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/tensor/parallel/style.py"),
    Row("log_sharding_not_propagated", "secondary", "script",
        r"Sharding propagation failed (?:on op|for) (?P<operator>[\w.]+)",
        ("RuntimeError: Sharding propagation failed on op aten.index_put.default.",
         "RuntimeError: Sharding propagation failed for aten.cat.default"),
        "DTensor could not work out how the result of {operator} is sharded",
        "The operator got sharded tensors in a layout that its rule does not accept: sizes that are not equal on the "
        "ranks, a split dimension that it needs as a whole, or arguments of different meshes. The line 'Error:' below "
        "has the rule's own reason.",
        Fix("Give it replicated or local tensors.",
            ("x = x.redistribute(placements=[Replicate()])", "x = x.to_local()")),
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/tensor/_sharding_prop.py",
        summary="DTensor could not work out how the result of an operator is sharded."),
    Row("log_fsdp2_prepared_separately", "root", "script",
        r"model and (?:an )?optimizer (?:must|need to|should) be (?:passed|prepared) together|"
        r"must pass a model and an optimizer together"
        r"|FSDP2 preparation should be done via",
        ("ValueError: When using FSDP2, a model and optimizer must be passed together to `Accelerator.prepare()` as "
         "the optimizer needs to have its parameters modified after the model is converted.",
         "ValueError: You must pass a model and an optimizer together to `accelerate.prepare()` when using "
         "TransformerEngine.",
         "ValueError: FSDP2 preparation should be done via `accelerate.prepare()`, as it requires a model and an "
         "optimizer."),
        "the script prepares the model and its optimizer in two calls, which FSDP2 does not allow",
        "FSDP2 replaces the parameters, and the optimizer must get the new ones in the same call.",
        Fix("Prepare them in one call.", ("model, optimizer = accelerator.prepare(model, optimizer)",
                                          "mgpu doctor --script train.py")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py", cases=(_WITH_FP8,)),
    Row("log_data_parallel_splits_scalar", "root", "launcher", r"chunk expects at least a 1-dimensional tensor",
        ("RuntimeError: chunk expects at least a 1-dimensional tensor",),
        "the run uses nn.DataParallel, which cannot split a scalar argument over the GPUs",
        "Started with plain python on a node with several GPUs, Trainer wraps the model in nn.DataParallel and passes "
        "it num_items_in_batch.",
        Fix("Start the script with a launcher, or show it one GPU.",
            ("mgpu launch train.py", "CUDA_VISIBLE_DEVICES=0 python train.py")),
        "https://github.com/huggingface/transformers/issues/37151"),
    Row("log_ulysses_without_zero", "root", "launcher",
        r"parallel_state_sp' has no attribute 'get_model_parallel_rank'",
        ("AttributeError: module 'deepspeed.runtime.sequence_parallel.parallel_state_sp' has no attribute "
         "'get_model_parallel_rank'",),
        "DeepSpeed's sequence parallelism (Ulysses) does not work with ZeRO stage 0",
        "The bf16 optimizer of stage 0 calls a function that sequence parallelism does not have.",
        Fix("Use ZeRO stage 1, 2 or 3.", ('"zero_optimization": {{"stage": 1}}', _VALIDATE)),
        "https://github.com/deepspeedai/DeepSpeed/issues/7833"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
