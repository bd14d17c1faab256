"""What do parts that a sharded checkpoint lacks mean, or sizes and dtypes that differ, by their names?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException

from ._circumstances import every, passed, said, shown
from ._sizes import OF_HEAD

_SHAPES = re.compile(
    r"size mismatch for (?P<name>[^\s:]+): copying a param with shape torch\.Size\(\[(?P<classes>\d+)(?P<rest>[\d, ]*)"
    r"\]\) from checkpoint, the shape in current model is torch\.Size\(\[(?P<other>\d+)(?P<others>[\d, ]*)\]\)"
)
# Embeddings of tokens, not of positions or of parts of an image: these differ with another resolution, too.
_OF_TOKENS = re.compile(
    r"embed_tokens|word_embeddings?\b|tok_embeddings|\bwte\b|lm_head|embed_in|embed_out|shared\.weight"
)
_WIDTH = re.compile(r", \d+")
_NEW_HEAD = "To train a new head, leave out the old one. Only its keys may be missing in what this prints."
_WITHOUT_HEAD = (
    "state.pop('HEAD.weight'); state.pop('HEAD.bias')",
    "print(model.load_state_dict(state, strict=False))",
)
_OF_HUB = frozenset({"transformers", "diffusers", "peft", "sentence_transformers", "adapters", "optimum", "trl"})
_NO_HEAD = re.compile(r"lm_head|lora_|embed|vocab")


def of_classes(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain the first parameter of another size, if it is a head and only its number of outputs differs."""
    found = _SHAPES.search(f"{raised.message}\n{raised.more or ''}") if raised else None
    if not found or not OF_HEAD.search(found[0]) or _NO_HEAD.search(found["name"]) or found["rest"] != found["others"]:
        return None
    name, classes, other = found["name"], found["classes"], found["other"]
    if classes == other or "1" in (classes, other):
        return None
    plain = raised is not None and _OF_HUB.isdisjoint(raised.packages)  # the script loads it with load_state_dict
    return Meaning(
        f"the head of the checkpoint ({name}) has {classes} outputs, and the model's has {other}: probably "
        "another number of classes",
        "The checkpoint was trained on another data set or with other labels"
        f"{', or before the head was changed in the code' if plain else ''}.",
        _own_head(name, classes) if plain else _heads_of_hub(classes, other),
    )


def _heads_of_hub(classes: str, other: str) -> tuple[Fix, ...]:
    return (
        Fix(
            "Set the number of classes that the checkpoint has.",
            (python("from_pretrained(CHECKPOINT, num_labels={:number})", classes),),
        ),
        Fix(
            _NEW_HEAD,
            (
                python("from_pretrained(CHECKPOINT, num_labels={:number}, ignore_mismatched_sizes=True)", other),
                *_WITHOUT_HEAD,
            ),
        ),
    )


def _own_head(name: str, classes: str) -> tuple[Fix, ...]:
    module = name.rpartition(".")[0] or name
    words = [part for part in module.split(".") if not part.isdigit()]  # parts of an nn.Sequential have numbers
    return (
        Fix(
            f"To use the checkpoint, build the model with {classes} outputs in {module}, or load the checkpoint that "
            "this code wrote.",
            (shell("grep -rnw --include='*.py' {} .", words[-1]),) if words else (),
        ),
        Fix(_NEW_HEAD, _WITHOUT_HEAD),
    )


def of_width(raised: UncaughtException | None) -> Meaning | None:
    """Explain an embedding or head of the same vocabulary, but of another width: another size of the model."""
    for found in _SHAPES.finditer(f"{raised.message}\n{raised.more or ''}") if raised else ():
        named = _OF_TOKENS.search(found["name"]) and "lora_" not in found["name"]
        if not named or not (_WIDTH.fullmatch(found["rest"]) and _WIDTH.fullmatch(found["others"])):
            continue
        if found["classes"] != found["other"] or found["rest"] == found["others"]:
            continue
        ours, theirs = found["others"].strip(", "), found["rest"].strip(", ")
        return Meaning(
            f"the checkpoint is of a model of another size: {found['name']} is {theirs} wide, and {ours} here",
            "The number of rows (the vocabulary) is the same, but not the hidden size. The checkpoint belongs to "
            "another variant of the model (small, base, large), or to a run with another config.",
            (
                Fix("Compare both configs.", ("grep -E 'hidden_size|num_hidden_layers' CHECKPOINT/config.json",)),
                Fix("Build the model from the checkpoint's own config.", ("AutoConfig.from_pretrained('CHECKPOINT')",)),
            ),
            complete=True,
        )
    return None


# fmt: off
_COUNT = Fix("Count the experts that the checkpoint has.",
             ("python -c \"import torch.distributed.checkpoint as d; print(*[k for k in "
              "d.FileSystemReader('CHECKPOINT').read_metadata().state_dict_metadata if 'expert' in k], sep='\\n')\"",))
_SAMPLE = ("[rank0]: Traceback (most recent call last):\n"
           '[rank0]:   File "{file}", line 188, in {function}\n[rank0]:     dcp.load(state, checkpoint_id=path)\n'
           '[rank0]:   File "/x/dist-packages/torch/distributed/checkpoint/default_planner.py", line 479, in '
           "create_default_local_load_plan\n"
           "[rank0]: RuntimeError: Missing key in checkpoint state_dict: {key}.")
_EXPERT = r"\bexperts?[._]\d+|\bexperts\.|local_experts|grouped_?gemm"
KEYS = (
    Case(said(r"rerun_state_machine_state"),
         "the checkpoint lacks the state of Megatron's rerun state machine: {key}",
         "It was probably saved in the middle of a fault (NaN, rerun), or by a run with "
         "--ckpt-assume-constant-structure, "
         "which reuses the plan of an earlier save that had no such entry. Weights and optimizer can be complete.",
         (Fix("Resume from the checkpoint before it.", ("--ckpt-step ITERATION",)),
          Fix("Do not combine that option with the rerun state machine, and upgrade Megatron.",
              ("--rerun-mode disabled", "pip show megatron-core"))),
         _SAMPLE.format(file="/x/megatron/core/dist_checkpointing/strategies/torch.py", function="load",
                        key="rerun_state_machine_state/shard_0_64"),
         "https://github.com/NVIDIA/Megatron-LM/issues/4378"),
    Case(said(r"_extra_state"),
         "the checkpoint lacks Transformer Engine's _extra_state: {key}",
         "It holds the scales of fp8, and is empty in bf16. The checkpoint was written without fp8, by another release "
         "of Transformer Engine, or by another implementation of the layer. The weights are complete.",
         (Fix("Ignore what is missing.", ("--dist-ckpt-strictness log_all",)),
          Fix("Or load it with the release and the layer implementation that wrote it.",
              ("pip show transformer-engine megatron-core",))),
         _SAMPLE.format(file="/x/megatron/core/dist_checkpointing/strategies/torch.py", function="load",
                        key="module.decoder.layers.self_attention.q_layernorm._extra_state/shard_0_16"),
         "https://github.com/NVIDIA/cosmos/issues/69"),
    Case(every(said(_EXPERT), passed(r"(?i)state_dict_adapter|automodel|in load_(?:base_)?model\b|from_hf|HuggingFace|"
                                     r"load_pretrained")),
         "the framework names experts otherwise than the base model's checkpoint does: {key}",
         "Hugging Face checkpoints store experts one by one or grouped in one tensor. The code that translates the "
         "names asks for the other form. The checkpoint is probably intact, and it affects the ranks that hold these "
         "experts.",
         (Fix("Upgrade the framework: the translation of this model's names is its part.", ("pip check",)), _COUNT),
         _SAMPLE.format(file="/opt/Automodel/nemo_automodel/components/checkpoint/checkpointing.py",
                        function="load_model", key="mtp.layers.0.mlp.experts.224.down_proj.weight"),
         "https://github.com/NVIDIA-NeMo/Automodel/pull/2595"),
    Case(every(said(_EXPERT), passed(r"megatron/core/")),
         "Megatron's checkpoint has experts in another form than the run loads: {key}",
         "Experts are stored one by one (local_experts) or together (grouped GEMM), depending on the implementation of "
         "the layer. It or the number of experts has changed since the save, or the converter wrote the other form.",
         (Fix("Use the expert implementation that wrote it, or convert it again.",
              ("--moe-grouped-gemm", "--use-checkpoint-args")), _COUNT,
          Fix("Or upgrade Megatron.", ("pip show megatron-core",))),
         _SAMPLE.format(file="/x/megatron/core/dist_checkpointing/strategies/torch.py", function="load",
                        key="decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight"),
         "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/transformer/moe/experts.py"),
    Case(said(_EXPERT),
         "the checkpoint lacks experts that the run loads: {key}; probably it was saved incompletely under expert "
         "parallelism",
         "If each rank numbers its own experts from 0, the ranks save different experts under the same names, and only "
         "one rank's are kept. Such a checkpoint cannot be repaired by other settings when it is loaded.",
         (_COUNT,
          Fix("If experts are missing, save again with global numbers for the experts (rank x experts per rank), and "
              "start from a checkpoint that has them all."),
          Fix("If they are all there under other names, upgrade the framework or convert the names.")),
         _SAMPLE.format(file="/ws/kempnerforge/checkpoint/manager.py", function="load",
                        key="model.layers.1.mlp.experts.2.down_proj.weight"),
         "https://github.com/KempnerInstitute/KempnerForge/issues/202"),
    Case(said(r"state_dict: \S*\b(?:lora_|base_layer|adapter|base_model\.model)"),
         "the sharded checkpoint was saved with other adapters (PEFT) than the run loads: {key}",
         "PEFT changes the names of the layers that it adapts, and adds lora_A and lora_B.",
         Fix("Resume with the same LoRA settings, or load the weights before adding the adapter."),
         _SAMPLE.format(file="/x/train.py", function="main", key="model.layers.0.q_proj.lora_A.default.weight"),
         "https://huggingface.co/docs/peft/developer_guides/checkpoint"),
    Case(said(r"state_dict: \S*\b_orig_mod\b"),
         "the sharded checkpoint was saved without torch.compile, and is loaded with it: {key}",
         "torch.compile(model) puts '_orig_mod.' into the names.",
         Fix("Load before compiling, or compile in place, which keeps the names.", ("model.compile()",)),
         _SAMPLE.format(file="/x/train.py", function="main", key="model._orig_mod.layers.0.weight"),
         "https://github.com/pytorch/torchtitan/issues/961"),
    Case(said(r"state_dict: (?:optim|optimizer)\b"),
         "the sharded checkpoint has no optimizer state for {key}",
         "It was saved without the optimizer, with another set of trained parameters or another optimizer, or the "
         "installed accelerate names them otherwise (1.12 did with FSDP2).",
         (Fix("Resume with the same trained parameters and optimizer, or load the weights only."),
          Fix("If they are the same, upgrade accelerate and torch.",
              ("pip install --upgrade accelerate", "pip show torch"))),
         _SAMPLE.format(file="/x/train.py", function="main", key="optimizer.state.module.weight.step"),
         "https://github.com/huggingface/accelerate/issues/3971"),
)

_SIZES = ('Traceback (most recent call last):\n  File "/x/train.py", line 3, in main\n    '
          'model.load_state_dict(state)\n'
          '  File "/x/site-packages/torch/nn/modules/module.py", line 2152, in load_state_dict\n    raise '
          'RuntimeError(\n'
          "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for {name}: copying a param with "
          "shape torch.Size([{a}]) from checkpoint, the shape in current model is torch.Size([{b}]).")
SIZES = (
    Case(said(r"with shape torch\.Size\(\[1\]\) from checkpoint, the shape in current model is torch\.Size\(\[\d+, "),
         "the checkpoint holds placeholders of size 1 instead of weights: it was saved under ZeRO-3 without gathering "
         "them",
         "Older releases of DeepSpeed leave one element of every parameter outside of its layer's forward pass. "
         "state_dict() of the model then saves these.",
         (Fix("Recover the weights from the ZeRO shards next to it (global_step*), if they exist.",
              ("python zero_to_fp32.py CHECKPOINT OUTPUT",)),
          Fix("Save through the engine.", ("engine.save_checkpoint(FOLDER)", "accelerator.get_state_dict(model)"))),
         _SIZES.format(name="transformer.layers.12.fn.weight", a="1", b="8192, 1024"),
         "https://github.com/deepspeedai/DeepSpeed/issues/1394"),
    Case(said(r"size mismatch for \S*lora_(?:A|B|embedding)"),
         "the adapter in the checkpoint is for another base model than the run's, or has other ranks in some layers",
         "lora_A is rank x input, lora_B is output x rank: not only the rank differs.",
         Fix("Use the base model, target_modules, r and rank_pattern of adapter_config.json.",
             ("cat CHECKPOINT/adapter_config.json",)),
         _SIZES.format(name="base_model.model.layers.0.q_proj.lora_A.default.weight", a="8, 2048", b="8, 4096"),
         "https://huggingface.co/docs/peft/developer_guides/checkpoint"),
    Case(said(r"size mismatch for \S*(?:classifier|\bscore\b|\bfc\b|(?:cls|roi|bbox)_(?:head|score|pred)|logits|"
              r"num_classes|out_proj)"),
         "the head of the checkpoint has another number of classes than the model's",
         "The checkpoint was trained on another data set or with other labels.",
         (Fix("Set the number of classes that the checkpoint has.",
              ("from_pretrained(CHECKPOINT, num_labels=CLASSES)",)),
          Fix("To train a new head, leave out the old one.",
              ("from_pretrained(CHECKPOINT, num_labels=CLASSES, ignore_mismatched_sizes=True)",))),
         _SIZES.format(name="classifier.weight", a="2, 768", b="1, 768"),
         "https://huggingface.co/docs/transformers/main_classes/model"),
)

_NAME = ('Traceback (most recent call last):\n  File "/x/site-packages/vllm/model_executor/models/qwen2.py", line 391, '
         "in load_weights\n    param = params_dict[name]\nKeyError: '{name}'")
WEIGHT_NAMES = (
    Case(said(r"\b(?:base_layer|lora_\w+|modules_to_save|base_model)\."),
         "a weight is sent or saved under a name of its LoRA wrapper, which the model that loads it does not know: "
         "{name}",
         "PEFT puts base_layer, lora_A and lora_B into the names of the layers that it adapts. The model that loads "
         "them has no LoRA layers, or names them otherwise. The weights are probably intact.",
         (Fix("Merge the adapter before the weights are sent or saved.", ("model.merge_and_unload()",)),
          Fix("Or turn LoRA on in the engine as well. Trainers do it with their own setting of the LoRA rank.",
              ("LLM(..., enable_lora=True)", "actor_rollout_ref.model.lora_rank=32 "
                                             "actor_rollout_ref.rollout.load_format=safetensors")),
          Fix("If both are set, upgrade trainer and engine together.", ("pip show verl trl vllm peft",))),
         _NAME.format(name="layers.3.mlp.up_proj.base_layer.weight"), "https://github.com/huggingface/trl/issues/2698"),
    Case(said(r"KeyError: ['\"](?:\w+\.)*(?:_fsdp_wrapped_module|_orig_mod|_forward_module)\.|KeyError: ['\"]module\."),
         "a weight has a wrapper's prefix in its name, which the model that loads it does not know: {name}",
         "DDP, FSDP and torch.compile put module., _fsdp_wrapped_module. or _orig_mod. into the names. The weights are "
         "probably intact.",
         (Fix("Take the weights from inside the wrapper.",
              ("accelerator.unwrap_model(model).state_dict()", "accelerator.get_state_dict(model)")),
          Fix("Or remove the prefix.",
              ("state = {{name.replace('_orig_mod.', ''): tensor for name, tensor in state.items()}}",))),
         _NAME.format(name="_orig_mod.layers.3.mlp.up_proj.weight"),
         "https://pytorch.org/docs/stable/generated/torch.compile.html"),
)

_FLAT = ('Traceback (most recent call last):\n  File "/x/site-packages/torch/distributed/fsdp/_flat_param.py", line '
         "792, in _validate_tensors_to_flatten\n    raise ValueError(\nValueError: {message}")
FLATTENING = (
    Case(said(r"integer dtype|Integer parameters"),
         "FSDP cannot shard integer weights: the model is probably quantized to 8 bits (load_in_8bit), or to 4 bits in "
         "uint8",
         "FSDP 1 flattens the parameters of a layer into one of a floating type. 8-bit weights of bitsandbytes have no "
         "such form. 4-bit weights do if they are stored as bf16.",
         (Fix("Use QLoRA with 4 bits and storage in the dtype of the other weights.",
              ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",
               "load_in_8bit: false")),
          Fix("Or turn quantization off, or use DDP or DeepSpeed instead of FSDP.", ("mgpu configure",))),
         _FLAT.format(message="Cannot flatten integer dtype tensors"),
         "https://github.com/axolotl-ai-cloud/axolotl/issues/2250"),
    Case(said(r"requires_grad"),
         "FSDP 1 flattens frozen and trained weights of a layer into one, which it refuses (LoRA, frozen layers)",
         "Trained adapters are in the same FSDP unit as frozen weights, and use_orig_params is off.",
         (Fix("Keep the original parameters, or use FSDP 2.",
              ("accelerate launch --fsdp_use_orig_params true ...", "accelerate launch --fsdp_version 2 ...")),
          Fix("Or put the trained modules into units of their own (needs less memory).",
              ("peft.utils.other.fsdp_auto_wrap_policy(model)",))),
         _FLAT.format(message="Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"),
         "https://huggingface.co/docs/peft/accelerate/fsdp"),
    Case(every(said(r"uniform (?:original parameter )?dtype"), shown("adapter_trained")),
         "LoRA weights and the base model's weights in one FSDP unit have different dtypes",
         "PEFT keeps adapters in fp32, while the base weights are in bf16 or fp16. With 4-bit weights, their storage "
         "dtype counts too. FSDP 1 flattens all of them into one tensor.",
         (Fix("Make adapters and base model the same dtype before they are wrapped.",
              ("get_peft_model(model, config, autocast_adapter_dtype=False)", "model.to(torch.bfloat16)")),
          Fix("With 4-bit weights, store them in that dtype too.",
              ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",)),
          Fix("Or use FSDP 2, which keeps parameters separate.", ("accelerate launch --fsdp_version 2 ...",))),
         "trainable params: 13,631,488 || all params: 7,255,363,584 || trainable%: 0.1879\n"
         + _FLAT.format(message="Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"),
         "https://huggingface.co/docs/peft/accelerate/fsdp"),
    Case(said(r"uniform (?:original parameter )?dtype"),
         "weights of one FSDP unit have different dtypes: a part of the model was loaded or cast otherwise",
         "Adapters, layer norms, a router or a vision tower in fp32 are next to bf16 weights; 4-bit weights are stored "
         "in another dtype than the others; or a rank that loads no weights (fsdp_cpu_ram_efficient_loading) makes "
         "empty ones in fp32.",
         (Fix("Load the whole model in one dtype, and let FSDP compute in bf16.",
              ("from_pretrained(..., torch_dtype=torch.float32)  # or bfloat16 for all of it, adapters too",
               "print({{name: p.dtype for name, p in model.named_parameters()}})")),
          Fix("With 4-bit weights, store them in the dtype of the others.",
              ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",)),
          Fix("Or use FSDP 2, which keeps parameters separate.", ("accelerate launch --fsdp_version 2 ...",))),
         _FLAT.format(message="Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"),
         "https://github.com/huggingface/trl/issues/1723"),
)
# fmt: on
