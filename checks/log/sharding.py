"""Do the script and its checkpoint fit FSDP?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, names_file, signatures
from mgpu.snapshot import UncaughtException

from . import _checkpoint_cases, _checkpoint_shapes, _device_cases, _flat_shards, _loading_cases
from ._file_call_cases import REMOVED_BY_SCRIPT
from ._image_cases import SIZES_DIFFER
from ._plain_script_cases import WEIGHT_OF_ONE_PROCESS, in_plain_script
from ._plain_torch_cases import OTHER_PARAMETERS
from ._sizes import sizes
from ._state_keys import names_of_both
from ._tensor_sizes import explain_sizes
from ._wrapped_names import wrapped_in_checkpoint

_FSDP = "https://pytorch.org/docs/stable/fsdp.html"
_FSDP2 = "https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_DCP = "https://pytorch.org/docs/stable/distributed.checkpoint.html"
_SAVE = "https://pytorch.org/docs/stable/generated/torch.load.html"
_TENSORS = "https://huggingface.co/docs/safetensors/index"
_FSDP_UTILS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/fsdp_utils.py"


def _of_sizes(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain two sizes of a parameter: flat pieces of it, a head with other classes, or what the numbers show."""
    known = _flat_shards.explain(groups, raised) or _checkpoint_cases.of_width(raised)
    return known or _checkpoint_cases.of_classes(groups, raised) or _checkpoint_shapes.explain(groups, raised)


# fmt: off
_DOWNLOAD = Fix("Check its size, and download it again on one rank.",
                ("ls -la FILE; head -c 100 FILE", "git lfs pull"))
_NAMED_IN_CODE = Case(
    names_file,
    "{the_file} is damaged, truncated, or only a Git LFS pointer ({the_place})",
    "Writing or downloading it was interrupted (full disk, a kill, several ranks writing one file), or it has another "
    "format than the call reads. A file of 130 bytes is a pointer that git-lfs never replaced.",
    _DOWNLOAD,
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n'
    "    net = torch.load('weights/best.pt')\n"
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n", _TENSORS)
ROWS = (
    Row("log_fsdp_mixed_parameters", "root", "script",
        r"Must flatten tensors with uniform (?:dtype|`?requires_grad`?)|FlatParameter`? requires uniform|"
        r"Cannot flatten integer dtype tensors|Integer parameters are unsupported|FSDP expects uniform|"
        r"ValueError: \S+ has both parameters with requires_grad=True and False",
        ("ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
         "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
         "ValueError: Cannot flatten integer dtype tensors", "ValueError: Integer parameters are unsupported",
         "ValueError: `FlatParameter` requires uniform "
         "`requires_grad`",
         "AssertionError: FSDP expects uniform original parameter dtype but got {torch.float32, torch.bfloat16}"),
        "FSDP cannot flatten parameters that differ in dtype or requires_grad (LoRA, quantized)",
        "FSDP version 1 flattens all parameters of a layer into one.",
        (Fix("Use FSDP 2, or keep the original parameters.",
             ("accelerate launch --fsdp_version 2 ...", "accelerate launch --fsdp_use_orig_params true ...")),
         Fix("Quantized models: store 4-bit weights in the dtype of the others.",
             ("bnb_4bit_quant_storage=torch.bfloat16",))),
        "https://github.com/huggingface/peft/issues/1702", cases=_checkpoint_cases.FLATTENING),
    Row("log_fsdp_layer_not_found", "root", "script", r"Could not find the transformer layer class"
        r"|Could not find a transformer layer class called",
        ("ValueError: Could not find the transformer layer class LlamaDecoderLayer in the model.",
         "Exception: Could not find the transformer layer class to wrap in the model.",
         "Exception: Could not find a transformer layer class called 'LlamaDecoderLayer' to wrap in the model."),
        "FSDP is configured to wrap a layer class that the model does not have",
        "fsdp_transformer_layer_cls_to_wrap is for another model. If you did not turn FSDP on, a config that another "
        "project left in ~/.cache/huggingface/accelerate/default_config.yaml probably did.",
        Fix("Use the model's own layer class, or remove the setting: many models define it.",
            ("python -c \"from transformers import AutoModel; m = AutoModel.from_pretrained('MODEL'); "
             "print(m._no_split_modules)\"", "cat ~/.cache/huggingface/accelerate/default_config.yaml")), _FSDP_UTILS),
    Row("log_fsdp_model_on_cpu", "root", "script",
        r"An FSDP-managed module unexpectedly has parameters on|Inconsistent compute device and `device_id`|"
        r"has CPU parameters or buffers when `sync_module_states=True`|FSDP parameters should be materialized on CUDA|"
        r"To support a module with both CPU and GPU params, please pass in device_id|"
        r"FSDP only supports single device modules but got params on|"
        r"FSDP does not support modules with different device types|Must flatten tensors on the same device but got",
        ("RuntimeError: An FSDP-managed module unexpectedly has parameters on cpu. Make sure to move the module to "
         "cuda:0 before training.", "ValueError: Inconsistent compute device and `device_id` on rank 1: cuda:0 vs "
         "cuda:1", "ValueError: The module has CPU parameters or buffers when `sync_module_states=True`, which "
                   "requires them to be on GPU."),
        "FSDP found the model on a device other than this rank's GPU",
        "It was loaded on the CPU or on cuda:0, and device_id or set_device is missing.",
        Fix("Select the GPU by LOCAL_RANK before wrapping the model.",
            ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "mgpu doctor --script train.py")), _FSDP),
    Row("log_meta_tensor_without_data", "root", "script",
        r"Cannot copy out of meta tensor; no data|Tensor\.item\(\) cannot be called on meta tensors|Tensor on device "
        r"meta is not on the expected device",
        ("NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead "
         "of torch.nn.Module.to() when moving module from meta to a different device.",),
        "part of the model has no weights yet (meta device)",
        "It was created without memory: under torch.device('meta') or init_empty_weights(), or by from_pretrained() "
        "with device_map or low_cpu_mem_usage if the checkpoint lacks these weights or they are on the disk. Of "
        "several ranks, only rank 0 may have loaded them, before FSDP or ZeRO has distributed them.",
        (Fix("Load the weights before the model is moved or used.",
             ("print([n for n, p in model.named_parameters() if p.is_meta])",
              "model.to_empty(device='cuda'); model.load_state_dict(state)")),
         Fix("With FSDP, let it distribute the weights, and move nothing before prepare().",
             ("accelerate launch --fsdp_cpu_ram_efficient_loading true --fsdp_sync_module_states true ...",))),
        "https://pytorch.org/docs/stable/meta.html", cases=_device_cases.META),
    Row("log_dtensor_operator_missing", "root", "library",
        r"Operator (?P<operator>\S+) does not have a sharding (?:strategy|rule)",
        ("NotImplementedError: Operator aten.foo.default does not have a sharding strategy registered.",
         "NotImplementedError: Operator aten.as_strided.default does not have a sharding strategy registered."),
        "DTensor has no sharding rule for the operator {operator}",
        "FSDP 2 and tensor parallelism keep parameters as DTensors, and this torch cannot run the operator on them. "
        "torch.compile and custom code use operators that plain training does not.",
        (Fix("Upgrade torch, or do not compile this part.", ("pip install --upgrade torch",
                                                             "accelerate launch --dynamo_backend no ...")),
         Fix("In your own code, use the local or the full tensor.", ("tensor.to_local()", "tensor.full_tensor()"))),
        _FSDP2, summary="DTensor has no sharding rule for an operator."),
    Row("log_lightning_without_optimizer_states", "root", "script", r"KeyError: 'optimizer_states'",
        ("KeyError: 'optimizer_states'",),
        "Lightning saves or loads the optimizer states of a checkpoint that has none",
        "The checkpoint holds weights only (save_weights_only=True), which sharded strategies (FSDP) cannot save or "
        "resume.",
        Fix("Save whole checkpoints, or load weights yourself.", ("ModelCheckpoint(save_weights_only=False)",)),
        "https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/fsdp.html"),
    Row("log_checkpoint_key_missing", "root", "script",
        r"Missing key in checkpoint state_dict: (?!\S*(?:dp_rank_|rank_?)\d)(?P<key>[\w./\[\]-]*[\w\]])",
        ("RuntimeError: Missing key in checkpoint state_dict: model.layers.0.attention.wq.weight.",),
        "the sharded checkpoint has no entry {key}, which the run loads",
        "It is the checkpoint of another model, the wrapping differs (PEFT, torch.compile's _orig_mod and DDP's module "
        "change the names), or the framework names its parts otherwise than the release that saved it.",
        (Fix("Compare the names saved with the names in the error.",
             ("python -c \"import torch.distributed.checkpoint as d; "
              "print(*d.FileSystemReader('CHECKPOINT').read_metadata().state_dict_metadata, sep='\\n')\"",)),
         Fix("If they differ, resume with the same model, PEFT and wrapping that saved it."),
         Fix("If the missing part need not be loaded, allow that.",
             ("torch.distributed.checkpoint.DefaultLoadPlanner(allow_partial_load=True)",))),
        "https://github.com/pytorch/torchtitan/issues/961",
        summary="The names that the run loads from a sharded checkpoint differ from the names saved in it.",
        because_of=("log_checkpoint_sizes_differ", "log_loader_state_of_other_size", "log_rank_file_missing"),
        explain_in=wrapped_in_checkpoint, cases=_checkpoint_cases.KEYS),
    Row("log_checkpoint_exception", "wrapper", "script", r"CheckpointException ranks:",
        ("torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])",),
        "ranks failed while they saved or loaded a sharded checkpoint; their own exceptions follow",
        "Every rank reports the failures of all ranks, each below a line 'Traceback ... (RANK n)'.",
        Fix("Read the exception below that line.", ("mgpu doctor --log LOGS...",)), _DCP),
    Row("log_checkpoint_metadata_missing", "root", "script",
        r"Failed to find the metadata file|No such file or directory: '?\S*?/?\.metadata'?\s*$|"
        r"\.metadata'?: No such file|No \.metadata|^\s*assert metadata is not None$",
        ("FileNotFoundError: [Errno 2] No such file or directory: 'out/checkpoint-100/pytorch_model_fsdp_0/.metadata'",
         "ValueError: Failed to find the metadata file in out/step-100", "    assert metadata is not None"),
        "the folder is not a complete sharded checkpoint: its .metadata is missing",
        "Rank 0 writes .metadata last. The save was interrupted, the path is one level too high or low, or only the "
        "main node's disk has it.",
        (Fix("Check the folder, on every node.", ("find CHECKPOINT -maxdepth 2 | head -50",)),
         Fix("Resume from the checkpoint before it. Without .metadata, its parts cannot be put together.")), _DCP),
    Row("log_optimizer_not_sharded", "root", "script",
        r"parameter in the optimizer couldn't be switched to its sharded version|"
        r"optimizer parameter could not be mapped after FSDP2",
        ("KeyError: \"A parameter in the optimizer couldn't be switched to its sharded version. This breaks the "
         "training.",
         "KeyError: 'A model-owned optimizer parameter could not be mapped after FSDP2 preparation.'"),
        "the optimizer's parameters do not match the parameters that FSDP2 sharded",
        "accelerate replaces the optimizer's parameters with the model's sharded ones. The optimizer was built for "
        "another model, the model changed after it was built, or this accelerate cannot convert this model or "
        "optimizer (bitsandbytes).",
        (Fix("Build the optimizer from the model, and pass both to one prepare().",
             ("model, optimizer = accelerator.prepare(model, optimizer)",)),
         Fix("Or upgrade accelerate and bitsandbytes, or test with torch's AdamW.",
             ("pip install --upgrade accelerate bitsandbytes",))),
        "https://github.com/huggingface/accelerate/issues/3821"),
    Row("log_state_does_not_fit", "root", "script",
        r"Error\(s\) in loading state_dict for (?P<model>\w+)",
        ("RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:",),
        "the checkpoint does not match the model {model}",
        "The next lines name the keys. Keys that start with 'module.' or '_orig_mod.' were saved from inside DDP or "
        "torch.compile. Other missing or unexpected keys come from another configuration of the model.",
        (Fix("Build the model as it was saved, or start in a new folder.", ("ls -lt CHECKPOINT_FOLDER",)),
         Fix("If the keys differ by a prefix, save and load the model inside the wrapper.",
             ("accelerator.unwrap_model(model).state_dict()", "accelerator.get_state_dict(model)"))),
        "https://pytorch.org/docs/stable/generated/torch.nn.Module.html",
        summary="A checkpoint does not match the model.",
        because_of=("log_checkpoint_sizes_differ", "log_weights_lost_to_zero3"), cases=_loading_cases.KEYS,
        explain=names_of_both),
    Row("log_checkpoint_sizes_differ", "root", "script",
        r"(?P<what>size mismatch for [^\s:]+: copying a param(?!.*torch\.Size\(\[0\]\)).*|"
        r"Global shape mismatch for loaded.*|Size mismatch between saved.*)|"
        r"[Ss]hape mismatch\b.*\bcheckpoint|[Cc]heckpoint\b.*\bshape mismatch",
        ("        size mismatch for head.weight: copying a param with shape torch.Size([16, 8]) from checkpoint, the "
         "shape in current model is torch.Size([32, 8]).",
         "CheckpointingException: Global shape mismatch for loaded (torch.Size([64, 8])) and expected ((96, 8)) tensor "
         "for key embedding.weight",
         "ValueError: Size mismatch between saved torch.Size([64, 8]) and current: torch.Size([96, 8]) for embed"),
        "a parameter in the checkpoint has another size than in the model",
        "It was written with another configuration (the folder of an earlier run, resumed after the config changed), "
        "or with another tensor-parallel size.",
        (Fix("Compare the checkpoint's configuration with the run's.", ("ls -lt CHECKPOINT_FOLDER",)),
         Fix("Resume with the configuration and parallel sizes that wrote it, convert it, or start in a new folder.")),
        "https://pytorch.org/docs/stable/generated/torch.nn.Module.html", cases=_checkpoint_cases.SIZES,
        explain=_of_sizes),
    Row("log_weights_lost_to_zero3", "root", "script",
        r"size mismatch for .*torch\.Size\(\[0\]\)|'weight' must be 2-D|weight should have at least three dimensions|"
        r"mat2 must be a matrix, got 1-D tensor|got weight of shape \[0\] and normalized_shape|"
        r"but got input of size\[0\]|size mismatch, got input \(\d+\), mat \(\S+\), vec \(\d+\)",
        ("        size mismatch for lm_head.weight: copying a param with shape torch.Size([0]) from checkpoint, the "
         "shape in current model is torch.Size([32000, 4096]).", "RuntimeError: 'weight' must be 2-D",
         "RuntimeError: mat2 must be a matrix, got 1-D tensor",
         "RuntimeError: Expected weight to be of same shape as normalized_shape, but got weight of shape [0] and "
         "normalized_shape = [1152]",
         "RuntimeError: size mismatch, got input (20), mat (20x896), vec (3584)"),
        "weights are empty: ZeRO-3 or FSDP had sharded them when they were saved or used",
        "Outside the wrapped model's forward pass, a rank has only its own shard, or nothing. With ZeRO-3, "
        "from_pretrained() partitions every model, also one that no DeepSpeed engine runs: a submodule that is called "
        "directly, a part that was not passed to prepare(). With FSDP, reentrant checkpointing, or layers "
        "that are not wrapped, read the flat shard.",
        (Fix("Use weights through the model that prepare() returned, or gather them.",
             ("with deepspeed.zero.GatheredParameters(list(module.parameters())):",)),
         Fix("FSDP: checkpoint without reentrance, and wrap the model's layer class.",
             ("gradient_checkpointing_kwargs={{'use_reentrant': False}}",
              "accelerate launch --fsdp_transformer_layer_cls_to_wrap LAYER_CLASS ...")),
         Fix("Gather weights before saving.",
             ("accelerator.get_state_dict(model)", "python zero_to_fp32.py CHECKPOINT OUTPUT"))),
        "https://deepspeed.readthedocs.io/en/latest/zero3.html", explain=in_plain_script,
        cases=(*_loading_cases.EMPTY_WEIGHTS, WEIGHT_OF_ONE_PROCESS)),
    Row("log_optimizer_state_does_not_fit", "root", "script",
        r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of parameter)",
        ("ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
         "ValueError: loaded state dict has a different number of parameter groups"),
        "the optimizer state in the checkpoint is for other parameters: more or fewer are trained now than then",
        "A part that was trained is frozen now, or the reverse: an adapter or embedding loaded for inference, other "
        "LoRA targets, frozen layers, another optimizer or FSDP wrapping.",
        (Fix("Train the same parameters as the run that saved it.",
             ("print([n for n, p in model.named_parameters() if p.requires_grad])",
              "PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)")),
         Fix("Or keep the weights only: move the old optimizer away, so that a new one starts.",
             ("mkdir CHECKPOINT/old && mv CHECKPOINT/optimizer* CHECKPOINT/scheduler.pt CHECKPOINT/old",))),
        "https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html",
        cases=(OTHER_PARAMETERS,)),
    Row("log_checkpoint_refused_as_unsafe", "root", "script",
        r"Weights only load failed|was not an allowed global by default|Trying to load unsupported GLOBAL|"
        r"Cannot use ``weights_only=True`` with (?:TorchScript|files saved in the legacy)|"
        r"Due to a serious vulnerability issue in "
        r"`?torch\.load",
        ("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two "
         "options, do those steps only if you trust the source of the checkpoint.",
         "WeightsUnpickler error: Unsupported global: GLOBAL numpy.core.multiarray._reconstruct was not an allowed "
         "global by default.",
         "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now "
         "require users to upgrade torch to at least v2.6 in order to use the function."),
        "torch or transformers refuses to unpickle a checkpoint",
        "Since 2.6, torch.load accepts plain tensors only. transformers requires torch 2.6 for .bin files. RNG and "
        "optimizer states of older runs contain other objects. A file that is not a checkpoint (a Git LFS pointer has "
        "130 bytes) causes the same error.",
        Fix("If you trust the file, allow it. Better, use safetensors.",
            ("torch.load(path, weights_only=False)", "pip install --upgrade torch transformers accelerate")), _SAVE),
    Row("log_checkpoint_damaged", "root", "script",
        r"failed finding central directory|PytorchStreamReader failed|Unable to load weights from \w+ checkpoint file|"
        r"invalid load key|Invalid magic number; corrupt file|storage has wrong (?:byte )?size: expected|"
        r"unexpected EOF, expected \d+ more bytes|Ran out of input|pickle data was truncated|"
        r"Error while deserializing header|SafetensorError: (?:Invalid|Metadata)",
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
         "_pickle.UnpicklingError: invalid load key, 'v'.", "EOFError: Ran out of input",
         "RuntimeError: unexpected EOF, expected 3292 more bytes. The file might be corrupted.",
         "RuntimeError: storage has wrong size: expected 0 got 4096",
         "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"),
        "a checkpoint or data file is damaged, truncated, or only a Git LFS pointer",
        "Writing or downloading it was interrupted (full disk, a kill, several ranks writing one file). A file of 130 "
        "bytes is a pointer that git-lfs never replaced.",
        _DOWNLOAD, _TENSORS, cases=(_NAMED_IN_CODE,)),
    Row("log_weights_shared_in_memory", "root", "script", r"Some tensors share memory, this will lead to duplicate|"
        r"weights trying to be saved contained shared tensors",
        ("RuntimeError:     Some tensors share memory, this will lead to duplicate memory on disk and potential "
         "differences when loading them again",
         "RuntimeError: The weights trying to be saved contained shared tensors [{'model.embed_tokens.weight', "
         "'lm_head.weight'}] that are mismatching the transformers base configuration."),
        "two names of the model share one tensor (tied weights), and safetensors does not save it twice",
        "Usually embedding and head. The model's class does not declare them as tied, or a wrapper (PEFT, a value "
        "head, a resized vocabulary) hides that from save_pretrained().",
        (Fix("Save in torch's own format (transformers before 5), or through safetensors' function for models.",
             ("model.save_pretrained(FOLDER, safe_serialization=False)", "TrainingArguments(save_safetensors=False)",
              "safetensors.torch.save_model(model, FILE)")),
         Fix("Or tie them as the class expects, or separate them before training.",
             ("model.tie_weights()", "model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())"))),
        _TENSORS),
    Row("log_rng_states_of_more_gpus", "root", "script",
        r"^\s*default_generator = torch\.cuda\.default_generators\[",
        ("    default_generator = torch.cuda.default_generators[idx]",),
        "the checkpoint has random states of more GPUs than this process sees",
        "torch.cuda.set_rng_state_all sets one state for each GPU that was visible when the checkpoint was saved.",
        (Fix("Resume with as many visible GPUs as it was saved with.", ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES")),
         Fix("Or resume without the random states: the weights and the optimizer do not depend on them.",
             ("ls CHECKPOINT | grep -E 'rng_state|random_states'",))),
        "https://github.com/pytorch/pytorch/blob/main/torch/cuda/random.py"),
    Row("log_rng_state_missing", "secondary", "script", r"Didn't find an RNG file",
        ("Didn't find an RNG file for process 4, if you are resuming a training that wasn't launched in a distributed "
         "fashion, reproducibility is not guaranteed.",),
        "the checkpoint was written by a different number of ranks",
        "Steps per epoch and the sample order will differ from the original run.",
        Fix("To keep the order, resume with the same number of ranks.",
            ("ls CHECKPOINT | grep -E 'rng_state|random_states'",)),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
    Row("log_checkpoint_shards_inconsistent", "root", "script",
        r"Flattened ranges dont cover the whole shard|Invalid access pattern for ShardedTensor|"
        r"Unexpected key.*sharded_state_dict",
        ("megatron.core.dist_checkpointing.core.CheckpointingException: Flattened ranges dont cover the whole shard "
         "ShardedTensor(key='optimizer.state.exp_avg.x')",
         "CheckpointingException: Invalid access pattern for ShardedTensor(key='embedding.word_embeddings.weight')"),
        "the ranks describe different or overlapping shards of one parameter in the checkpoint",
        "Megatron checks before saving that the shards of all ranks make up each parameter. With this combination of "
        "tensor, expert and data parallelism they do not.",
        Fix("Change the parallel sizes, upgrade Megatron-LM, or save in another format.",
            ("pip show megatron-core", "--ckpt-fully-parallel-save --dist-ckpt-strictness log_all")), _DCP),
    Row("log_tensor_sizes_differ", "root", "script",
        r"(?:[Tt]he size of tensor a|[Tt]he expanded size of the tensor) \((?P<a>\d+)\) must match the (?:size of "
        r"tensor b|existing size) \((?P<b>\d+)\)",
        ("RuntimeError: The size of tensor a (187) must match the size of tensor b (203) at non-singleton dimension 1",
         "RuntimeError: The size of tensor a (18959) must match the size of tensor b (19471) at non-singleton "
         "dimension 0", "RuntimeError: The expanded size of the tensor (514) must match the existing size (512) at "
         "non-singleton dimension 1.  Target sizes: [1, 514].  Tensor sizes: [1, 512]"),
        "two tensors have different sizes: {a} and {b}",
        "In a step: a mask, labels or positions were padded or cut to another length than the input, or the last "
        "batch is smaller. While a checkpoint is loaded: its model has another vocabulary or other parallel "
        "sizes.",
        (Fix("Print both shapes just before that line."),
         Fix("If they are of texts, pad inputs, labels and masks together.",
             ("tokenizer.pad(features, padding=True, pad_to_multiple_of=8)",
              "DataCollatorForSeq2Seq(tokenizer, padding=True)"))), _DCP,
        summary="Two tensors have different sizes.", explain_in=explain_sizes, cases=SIZES_DIFFER,
        remark=sizes(r"\((?P<a>\d+)\) must match the [\w ]+ \((?P<b>\d+)\)")),
    Row("log_checkpoint_race", "root", "script",
        r"(?:Error|Errno|No such file|File exists).*tmp-checkpoint-\S+|os\.rename\(staging_output_dir|"
        r"^\s*shutil\.rmtree\((?:checkpoint|staging_output_dir)|Directory not "
        r"empty: .*checkpoint",
        ("OSError: [Errno 39] Directory not empty: '/root/results/tmp-checkpoint-s0yubqtr' -> "
         "'/root/results/checkpoint-50'",
         "FileNotFoundError: [Errno 2] No such file or directory: 'out/tmp-checkpoint-500' -> 'out/checkpoint-500'",
         "    os.rename(staging_output_dir, output_dir)", "    shutil.rmtree(checkpoint, ignore_errors=True)"),
        "several ranks or nodes renamed or deleted the same checkpoint folder",
        "The cause is a bug in some transformers versions on shared disks, or two runs with the same output folder.",
        Fix("Upgrade, and use a separate folder for each run.", ("pip install --upgrade transformers accelerate",)),
        "https://github.com/huggingface/transformers/issues/28015", cases=(REMOVED_BY_SCRIPT,)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
