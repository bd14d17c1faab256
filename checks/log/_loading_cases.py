"""What does a weight, a key or a file that is missing mean, by what loads it and what the run is?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, said, shown, within

_DEEPSPEED = "https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/deepspeed.py"
_ZERO = "https://deepspeed.readthedocs.io/en/latest/zero3.html"
# fmt: off
_TORCHRUN = Fix("Start it through its launcher, which starts one process per GPU.",
                ("FORCE_TORCHRUN=1 llamafactory-cli train CONFIG.yaml", "NPROC_PER_NODE=8 swift sft ...",
                 "accelerate launch train.py"))
_STATE = ("transformers looks for global_step* folders in it, with the optimizer states of all ranks, and finds none. "
          "save_only_model writes the weights alone, and some frameworks turn it on by themselves.")
_AS_WEIGHTS = (
    Fix("Start a new run from its weights: they are complete.", ("--model_name_or_path {path:path}",)),
    Fix("In that run, save the states too, so that it can be resumed.", ("TrainingArguments(save_only_model=False)",)))
NOT_RESUMABLE = (
    Case(every(within("deepspeed_load_checkpoint"), shown("weights_saved_alone")),
         "{path} has no DeepSpeed state to resume from: probably saved with save_only_model=True, as this run is set",
         _STATE,
         _AS_WEIGHTS,
         "SftArguments(save_only_model=True)\nTraceback (most recent call last):\n"
         '  File "/x/site-packages/transformers/integrations/deepspeed.py", line 402, in deepspeed_load_checkpoint\n'
         '    raise ValueError(f"Can\'t find a valid checkpoint at {checkpoint_path}")\n'
         "ValueError: Can't find a valid checkpoint at out/checkpoint-800",
         "https://github.com/modelscope/ms-swift/issues/574"),
    Case(within("deepspeed_load_checkpoint"),
         "{path} has no DeepSpeed state (global_step*) to resume from: probably only the model was saved "
         "(save_only_model)", _STATE,
         (Fix("Check what is in it.", ("ls -d {path:path}/global_step* {path:path}/*.safetensors",)), *_AS_WEIGHTS),
         "Traceback (most recent call last):\n"
         '  File "/x/site-packages/transformers/integrations/deepspeed.py", line 447, in deepspeed_load_checkpoint\n'
         '    raise ValueError(f"Can\'t find a valid checkpoint at {checkpoint_path}")\n'
         "ValueError: Can't find a valid checkpoint at out/checkpoint-125", _DEEPSPEED),
)

_EMPTY_WEIGHT = ('Traceback (most recent call last):\n  File "/x/train.py", line 3, in train\n    loss = model(x)\n'
                 '  File "/x/site-packages/{frame}", line 9, in {function}\n    return F.embedding(x)\n'
                 "RuntimeError: 'weight' must be 2-D")
EMPTY_WEIGHTS = (
    Case(shown("one_process"),
         "ZeRO-3 has partitioned the weights, but the program runs as one process that no launcher started",
         "from_pretrained() reads the DeepSpeed config and partitions the weights. Without a launcher the Trainer "
         "makes no DeepSpeed engine, which would gather them, so every weight is empty.",
         (_TORCHRUN, Fix("Or run on one GPU without a DeepSpeed config.")),
         "Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False\n"
         + _EMPTY_WEIGHT.format(frame="torch/nn/modules/sparse.py", function="forward"),
         "https://github.com/hiyouga/LlamaFactory/issues/4557"),
    Case(said(r"shape in current model is torch\.Size\(\[0\]\)"),
         "complete weights are loaded into a model that ZeRO-3 has already partitioned (its parameters have size 0)",
         "zero.Init splits the parameters as soon as a model is built, and load_state_dict() then sees empty ones. It "
         "happens to parts that are loaded by hand: an adapter, a projector, a value head, a second model.",
         (Fix("Gather the parameters around the load.",
              ("with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):",)),
          Fix("Or build the model unpartitioned, and let prepare() do it.",
              ("accelerate launch --zero3_init_flag false ...",))),
         'Traceback (most recent call last):\n  File "/x/train.py", line 3, in main\n    head.load_state_dict(state)\n'
         '  File "/x/site-packages/torch/nn/modules/module.py", line 2152, in load_state_dict\n    raise '
         'RuntimeError(\n'
         "RuntimeError: Error(s) in loading state_dict for Linear:\n\tsize mismatch for weight: copying a param with "
         "shape torch.Size([8, 4]) from checkpoint, the shape in current model is torch.Size([0]).", _ZERO),
    Case(said(r"with shape torch\.Size\(\[0\]\) from checkpoint"),
         "the checkpoint holds empty weights (size 0): it was saved under ZeRO-3 without gathering them",
         "Outside its layers' forward passes a rank has only its own shard. state_dict() of the unwrapped model, or "
         "save_pretrained() on rank 0, writes what is left: nothing.",
         (Fix("Recover the weights from the ZeRO shards next to it (global_step*), if they exist.",
              ("python zero_to_fp32.py CHECKPOINT OUTPUT",)),
          Fix("Save with gathering from now on.",
              ("trainer.save_model(OUT)", "model.save_pretrained(OUT, state_dict=accelerator.get_state_dict(model))",
               '"stage3_gather_16bit_weights_on_model_save": true'))),
         'Traceback (most recent call last):\n  File "/x/eval.py", line 3, in main\n    model.load_state_dict(state)\n'
         '  File "/x/site-packages/torch/nn/modules/module.py", line 2152, in load_state_dict\n    raise '
         'RuntimeError(\n'
         "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize mismatch for lm_head.weight: "
         "copying a param with shape torch.Size([0]) from checkpoint, the shape in current model is "
         "torch.Size([32000, 4096]).", "https://github.com/huggingface/transformers/issues/20082"),
    Case(within(r"(?i)liger"),
         "Liger's fused loss reads the head's weight directly, and ZeRO-3 or FSDP has left it empty",
         "The fused loss multiplies with lm_head.weight itself, outside of the head's forward pass. Sharded weights "
         "exist only in there.",
         (Fix("Use the usual loss.", ("TrainingArguments(use_liger_kernel=False)", "GRPOConfig(use_liger_loss=False)")),
          Fix("Or use ZeRO-2, or upgrade: newer releases of trl gather the weight.",
              ("accelerate launch --zero_stage 2 ...", "pip install --upgrade trl liger-kernel"))),
         'Traceback (most recent call last):\n  File "/x/site-packages/trl/trainer/grpo_trainer.py", line 9, in '
         'compute_liger_loss\n    loss = f(x)\n  File "/x/site-packages/liger_kernel/chunked_loss/grpo_loss.py", line '
         '9, '
         "in forward\n    y = x @ w\nRuntimeError: size mismatch, got input (20), mat (20x896), vec (3584)",
         "https://github.com/huggingface/trl/issues/3368"),
    Case(within(r"torch/distributed/(?:fsdp|_composable)/"),
         "FSDP's weights are empty where they are used: a layer runs outside of the forward pass that gathers it",
         "FSDP gathers a layer's weights only for the wrapped module's own forward(). Tied embeddings in different "
         "FSDP units, generate() and calls of a submodule use them outside.",
         (Fix("Keep tied weights in one unit, or gather for that part.",
              ("with FSDP.summon_full_params(model, writeback=False): ...",
               "torch.distributed.fsdp.register_fsdp_forward_method(model, 'generate')")),),
         _EMPTY_WEIGHT.format(frame="torch/distributed/fsdp/fully_sharded_data_parallel.py", function="forward"),
         "https://github.com/pytorch/pytorch/issues/124019"),
    Case(within(r"(?i)ref_|reference|teacher|distill?|reward|text_encod|encode_prompt|diffusers/|"
                r"trl/trainer/(?:dpo|ppo|kto|orpo|gkd|grpo|rloo)"),
         "weights are empty: probably a second model that ZeRO-3 partitioned but no DeepSpeed engine runs",
         "With ZeRO-3, from_pretrained() partitions every model: also a reference, teacher or reward model, or a text "
         "encoder. Only the model given to prepare() gathers its weights for the forward pass.",
         (Fix("Prepare the second model as well, with its own ZeRO-3 config for evaluation.",
              ("ref_model, *_ = deepspeed.initialize(model=ref_model, config=config)",)),
          Fix("Or load it whole in every rank: it then needs its full memory on each GPU.",
              ("with transformers.integrations.unset_hf_deepspeed_config(): ...",
               "accelerate launch --zero_stage 2 ..."))),
         'Traceback (most recent call last):\n  File "/x/site-packages/trl/trainer/dpo_trainer.py", line 327, in '
         "get_batch_metrics\n    self.concatenated_forward(self.ref_model, batch)\nRuntimeError: 'weight' must be 2-D",
         "https://github.com/huggingface/trl/issues/669"),
    Case(within(r"generation/utils\.py in|in generate$"),
         "weights are empty in generate(): ZeRO-3 gathers them for the engine's own forward pass only",
         "generate() was called on the unwrapped model, or on some ranks only. Every rank must take part in every "
         "gather, also after its own text is complete.",
         (Fix("Gather the weights for the generation, and keep the ranks together.",
              ("with deepspeed.zero.GatheredParameters(list(model.parameters())):",
               "model.generate(..., synced_gpus=True)")),),
         _EMPTY_WEIGHT.format(frame="transformers/generation/utils.py", function="generate"), _ZERO),
)

_LAST_KEYS = ('Traceback (most recent call last):\n  File "/x/train.py", line 3, in main\n    '
              'model.load_state_dict(state)'
              '\n  File "/x/site-packages/torch/nn/modules/module.py", line 2152, in load_state_dict\n'
              "    raise RuntimeError(\nRuntimeError: Error(s) in loading state_dict for {model}:\n\t{keys}")
KEYS = (
    Case(every(within(r"deepspeed/runtime/engine\.py|deepspeed_load_checkpoint"),
               said(r"Missing key"), either(shown("keys_of_adapter"), said("Peft|[Ll]ora"))),
         "the DeepSpeed checkpoint of an adapter run (LoRA) is loaded strictly, but holds the trained weights only",
         "The frozen weights of the base model are left out when it is saved. Loading it with load_module_strict=True "
         "then reports them as missing. The checkpoint is complete; transformers 4.37 and older load it like that, "
         "also for load_best_model_at_end.",
         (Fix("Upgrade: newer releases load an adapter's checkpoint with strict=False.",
              ("pip install --upgrade transformers peft accelerate",)),
          Fix("Or load it yourself.", ("engine.load_checkpoint(CHECKPOINT, load_module_strict=False)",)),
          Fix("Or do without the best model at the end.", ("TrainingArguments(load_best_model_at_end=False)",))),
         'Traceback (most recent call last):\n  File "/x/site-packages/deepspeed/runtime/engine.py", line 2568, in '
         "load_module_state_dict\n    self.module.load_state_dict(\nRuntimeError: Error(s) in loading state_dict for "
         'PeftModelForCausalLM:\n\tMissing key(s) in state_dict: "base_model.model.model.embed_tokens.weight".',
         "https://github.com/huggingface/peft/issues/1395"),
    Case(said(r"Missing key\(s\) in state_dict: \"[\w.]*mlp\.experts\."),
         "the checkpoint has experts in another form than the model {model}, or none",
         "Experts are stored one by one (local_experts) or together (grouped GEMM: weight1, linear_fc1), depending on "
         "the implementation of the layer. It has changed since the save, or the converter wrote the other form.",
         (Fix("Use the expert implementation that wrote the checkpoint, or convert it again.",
              ("--moe-grouped-gemm", "--use-checkpoint-args")),
          Fix("If a framework loads a Hugging Face checkpoint, upgrade both.",
              ("pip install --upgrade transformers",))),
         _LAST_KEYS.format(model="GPTModel", keys='Missing key(s) in state_dict: "layers.0.mlp.experts.weight1".'),
         "https://github.com/NVIDIA/Megatron-LM/issues/924"),
    Case(shown("keys_of_compiler"),
         "the checkpoint and the model {model} differ by '_orig_mod.': one of them was compiled",
         "torch.compile(model) puts '_orig_mod.' in front of every name of the state dict.",
         (Fix("Load before compiling, or save what is inside.",
              ("model.load_state_dict(state); model = torch.compile(model)", "state = model._orig_mod.state_dict()")),
          Fix("Compile in place: the names then stay the same.", ("model.compile()",)),
          Fix("Repair a saved file.",
              ("state = {{name.replace('_orig_mod.', ''): tensor for name, tensor in state.items()}}",))),
         _LAST_KEYS.format(model="Net", keys='Missing key(s) in state_dict: "a.weight".\n\t'
                                             'Unexpected key(s) in state_dict: "_orig_mod.a.weight".'),
         "https://pytorch.org/docs/stable/generated/torch.compile.html"),
    Case(shown("keys_of_wrapper"),
         "the checkpoint and the model {model} differ by a wrapper's prefix ('module.'): one of them was wrapped",
         "DDP, DataParallel, DeepSpeed and FSDP put their own name in front of every name of the state dict.",
         (Fix("Save and load the model inside the wrapper.",
              ("accelerator.unwrap_model(model).state_dict()", "model.module.load_state_dict(state)")),
          Fix("Repair a saved file.",
              ("state = {{name.removeprefix('module.'): tensor for name, tensor in state.items()}}",))),
         _LAST_KEYS.format(model="Net", keys='Missing key(s) in state_dict: "a.weight".\n\t'
                                             'Unexpected key(s) in state_dict: "module.a.weight".'),
         "https://pytorch.org/docs/stable/generated/torch.nn.Module.html"),
    Case(shown("keys_of_fake_quantizer"),
         "only one of checkpoint and model {model} is prepared for quantization-aware training",
         "prepare_qat() adds fake_quant and activation_post_process to the layers, and fusing moves 'bn1' into "
         "'conv1.bn'. A state dict fits only a model that was fused and prepared in the same way.",
         (Fix("Build, fuse and prepare the model as the saved one, then load, then convert.",
              ("model.train(); fuse_modules_qat(model, LAYERS, inplace=True)",
               "model.qconfig = get_default_qat_qconfig('fbgemm'); prepare_qat(model, inplace=True)",
               "model.load_state_dict(state); convert(model.eval(), inplace=True)")),
          Fix("If both run in one program, convert the trained model itself, without a second one.")),
         _LAST_KEYS.format(model="Net", keys='Missing key(s) in state_dict: "bn1.weight".\n\t'
                                             'Unexpected key(s) in state_dict: "conv1.weight_fake_quant.scale".'),
         "https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.prepare_qat.html"),
    Case(shown("keys_of_quantizer"),
         "quantized and plain weights are mixed: only one of checkpoint and model {model} is quantized",
         "A quantized layer stores its scales (absmax, SCB, qzeros) next to the packed weight. A plain layer has no "
         "such keys.",
         (Fix("Load the checkpoint with the quantization that it was saved with: keep quantization_config in its "
              "config.json, or pass the same BitsAndBytesConfig."),
          Fix("If only the adapter was trained, load the base model, and then the adapter.",
              ("PeftModel.from_pretrained(base_model, ADAPTER)",))),
         _LAST_KEYS.format(model="LlamaForCausalLM", keys='Unexpected key(s) in state_dict: '
                                                          '"model.layers.0.mlp.up_proj.weight.absmax".'),
         "https://huggingface.co/docs/transformers/main/en/quantization/overview"),
    Case(shown("keys_of_adapter"),
         "an adapter's checkpoint (PEFT) and the model {model} do not fit: only one of them has the adapter's names",
         "PEFT puts 'base_model.model.' in front of every name, and adds lora_A, lora_B and base_layer. A file of an "
         "adapter run fits the base model only after merging.",
         (Fix("Build the PEFT model first, or load the adapter with PEFT.",
              ("PeftModel.from_pretrained(base_model, ADAPTER)", "peft.set_peft_model_state_dict(model, state)")),
          Fix("For a file without the adapter, merge it before saving.", ("model.merge_and_unload()",))),
         _LAST_KEYS.format(model="LlamaForCausalLM", keys='Missing key(s) in state_dict: "model.embed_tokens.weight".'
                                 '\n\tUnexpected key(s) in state_dict: "base_model.model.model.embed_tokens.weight".'),
         "https://huggingface.co/docs/peft/developer_guides/checkpoint"),
    Case(shown("keys_of_other_release"),
         "the checkpoint of the model {model} was written by another release of transformers: it has a buffer more or "
         "less",
         "Releases add and remove buffers that are computed anyway (position_ids, inv_freq, masked_bias).",
         (Fix("Ignore them: they hold no trained value.", ("print(model.load_state_dict(state, strict=False))",)),
          Fix("Or install the release that wrote the checkpoint.", ("pip show transformers",))),
         _LAST_KEYS.format(model="BertModel", keys='Unexpected key(s) in state_dict: "embeddings.position_ids".'),
         "https://github.com/huggingface/transformers/pull/24505"),
)
# fmt: on
