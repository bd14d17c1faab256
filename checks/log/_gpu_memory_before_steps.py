"""Cases of a full GPU outside of the training steps: loading, sharding, resuming, saving, weights for an engine."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, line_of, message, never, shown, source_line, through, within
from ._gpu_memory import BY_DRIVER, trace

_FSDP = "https://docs.pytorch.org/docs/stable/fsdp.html"
_ZERO = "https://deepspeed.readthedocs.io/en/latest/zero3.html"
# fmt: off
BF16 = Fix("Load the weights in bf16, or quantized.", ("from_pretrained(..., dtype=torch.bfloat16)",))
OFFLOAD = Fix("Shard over more GPUs, or keep the optimizer in host memory.",
              ("accelerate launch --zero_stage 3 --offload_optimizer_device cpu ...",
               "accelerate launch --fsdp_offload_params true ..."))
_LOADING = within(
    r" in (?:from_pretrained|_load_pretrained_model|load_model\w*|_?load_\w+_model|load_pretrained\w*|get_model\w*|"
    r"build_model\w*|create_model\w*|init_model\w*|setup_model\w*|load_checkpoint_and_dispatch|dispatch_model|"
    r"convert_and_load_state_dict_in_model|_load_state_dict_into_meta_model|set_module_tensor_to_device)$")
_SAVING = either(
    within(r" in (?:_?(?:\w+_)?save|_?(?:\w+_)?save_(?!for_backward|on_cpu|tensor)\w*(?:check|ckpt|chkpt|model|state|"
           r"weight|network|pretrained|fsdp|full|optim|shard|adapter|lora|param|all)\w*|dump_checkpoint|export_\w*model\w*|"
           r"get_(?:\w+_)?state_dict|\w*consolidated\w*state_dict|\w*gather\w*_(?:state_dict|weights|params)|"
           r"state_dict|"
           r"_(?:full|sharded|local)_(?:pre|post)_state_dict_hook|clone_tensors_for_torch_save)$"),
    line_of("log_gpu_memory_full", r"Failed to clone\(\) tensor with name"))
_RESUMING = within(
    r" in (?:_?load_checkpoint\w*|load_state(?:_dict)?|load_fsdp_(?:model|optimizer)|_load_optimizer_and_scheduler|"
    r"_load_from_checkpoint|_?load_optim\w*|_?restore\w*|resume\w*|set_(?:model_|optimizer_)?state_dict|"
    r"deepspeed_load_checkpoint|_load_zero_checkpoint|load_ckpt|dist_cp_load)$|"
    r"torch/(?:serialization|distributed/checkpoint/\S+)\.py in ")
_TO_ENGINE = within(
    r"(?:^|/)(?:fsdp|megatron)_(?:vllm|sglang)\.py in |sharding_manager/|"
    r"^(?:verl|openrlhf|slime|skyrl\w*|nemo_rl|trl|swift|areal|roll)/\S+ in (?:\w*(?:move|sync|broadcast|push|refit|"
    r"transfer|update|load|send|stream)\w*(?:vllm|engine|rollout|weights)\w*|refit_\w+|rollout_mode|wake_up)$")
_FSDP_INIT = within(
    r"torch/distributed/fsdp/(?:_init_utils|wrap|_wrap_utils)\.py in |fully_sharded_data_parallel\.py in __init__$|"
    r"_fully_shard/\S+ in (?:fully_shard|_init_sharded_param|_move_states_to_device)$|"
    r" in (?:fsdp2_prepare_model|fsdp2_load_full_state_dict|apply_fsdp2?|_move_states_to_device|_init_param_handle)$")
_ZERO_INIT = within(
    r"deepspeed/\S+ in (?:_configure_(?:zero_|basic_|bf16_|fp16_)?optimizer|"
    r"_setup_for_real_optimizer|_create_fp(?:16|32)_partitions\w*|initialize_optimizer_states|"
    r"_create_param_groups\w+)$")
_DDP_INIT = within(r"torch/nn/parallel/distributed\.py in (?:__init__|_ddp_init_helper)$")
_TO_GPU = every(within(r"torch/nn/modules/module\.py in (?:to|cuda|_apply|convert)$"),
                never(within(r"torch/nn/modules/module\.py in cpu$")))

# Loading and saving never compute a forward pass: a function with such a name then does more than that.
_COMPUTES = within(r" in (?:forward|backward|_call_impl|run_backward)$")
_GATHERS = either(within(r"fsdp|deepspeed|/distributed/|megatron|state_dict|consolidat|gather"),
                  line_of("log_gpu_memory_full", r"Failed to clone\(\) tensor with name"), shown("fsdp"))
_VALIDATES = within(r" in (?:\w*validat\w*|_?validate_images|sample_images?)$")
_DECODES = within(r"autoencoders?/\S+ in _?decode$| in \w*(?:vae|ae)_decode\w*$")

BEFORE_STEPS = (
    Case(every(_VALIDATES, _DECODES),
         "a GPU's memory is full while the images of a validation are decoded, probably all at once",
         "The decoder of an autoencoder works on full-size images, and needs far more memory for each of them than the "
         "training does for its latents. Weights, gradients and optimizer stay on the GPU meanwhile.",
         (Fix("Decode a few latents at a time, without gradients.",
              ("images = torch.cat([vae.decode(z).sample.cpu() for z in latents.split(2)])",
               "vae.enable_slicing(); vae.enable_tiling()")),
          Fix("Free the training's cache before, and validate fewer images.", ("torch.cuda.empty_cache()",))),
         trace("trainer.py in validate", "utils.py in vae_decode",
               "diffusers/models/autoencoders/autoencoder_kl.py in decode"),
         "https://huggingface.co/docs/diffusers/optimization/memory"),
    Case(within(r" in (?:log_validation|run_validation|_?validate_images)$"),
         "a GPU's memory is full during validation: a whole pipeline is built beside the model that trains",
         "Training fits. For its sample images the script loads text encoders and decoder again, or generates several "
         "images at once, while weights, gradients and optimizer stay on the GPU.",
         (Fix("Validate less, with fewer images, or offload the pipeline's parts that are not in use.",
              ("pipeline.enable_model_cpu_offload()", "pipeline.enable_vae_tiling()",
               "--num_validation_images 1 --validation_epochs 1000")),
          Fix("Reuse the models of the training, compute the prompt's embeddings once, and free the cache before.",
              ("torch.cuda.empty_cache()",))),
         trace("train_controlnet.py in main", "train_controlnet.py in log_validation",
               "diffusers/pipelines/pipeline_utils.py in from_pretrained"),
         "https://github.com/huggingface/diffusers/issues/11225"),
    Case(_TO_ENGINE,
         "a GPU's memory is full while the trained weights are copied into the inference engine",
         "For a moment the trainer's weights, the gathered copy of them, and the engine's weights and KV cache share "
         "the GPU. The batch size does not matter here.",
         (Fix("Give the engine a smaller share of the GPU, let it sleep while the model trains, and wake its weights "
              "before its KV cache.",
              ("actor_rollout_ref.rollout.gpu_memory_utilization=0.4  # verl",
               "GRPOConfig(vllm_gpu_memory_utilization=0.3, vllm_enable_sleep_mode=True)  # TRL")),
          Fix("Move the trainer's weights and optimizer to host memory meanwhile, or split the engine over more GPUs.",
              ("actor_rollout_ref.actor.fsdp_config.param_offload=True",
               "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True",
               "actor_rollout_ref.rollout.tensor_model_parallel_size=4"))),
         trace("verl/workers/fsdp_workers.py in generate_sequences",
               "verl/workers/sharding_manager/fsdp_vllm.py in __enter__",
               "torch/distributed/fsdp/_state_dict_utils.py in _full_pre_state_dict_hook"),
         "https://github.com/vllm-project/vllm/issues/15254"),
    Case(every(_SAVING, through("deepspeed")),
         "a GPU's memory is full while ZeRO-3 gathers the weights for a checkpoint",
         "The training steps fit. Saving gathers the whole weights on rank 0's GPU (or gathers a large layer), which "
         "has no room left. The batch size is not the cause.",
         (Fix("Save each rank's own part, and merge the files after the run.",
              ('"stage3_gather_16bit_weights_on_model_save": false',
               "python zero_to_fp32.py CHECKPOINT MERGED  # is in the checkpoint's folder")),
          Fix("Free cached memory first.", ("torch.cuda.empty_cache()",)), OFFLOAD),
         trace("transformers/trainer.py in save_model",
               "deepspeed/runtime/engine.py in _zero3_consolidated_16bit_state_dict"),
         "https://github.com/huggingface/transformers/issues/12587"),
    Case(every(_SAVING, never(_RESUMING), never(_GATHERS), never(_COMPUTES)),
         "a GPU's memory is full while a checkpoint is saved",
         "Saving itself needs little of the GPU's memory. What is saved is copied there before: a deep copy or an "
         "average of the weights, weights that are merged or converted, or a sharded model that is gathered.",
         (Fix("Copy to host memory before saving, and keep nothing of it.",
              ("state = {{name: t.detach().cpu() for name, t in model.state_dict().items()}}",)),
          Fix("Free the cache before it.", ("torch.cuda.empty_cache()",))),
         trace("train.py in main", "train.py in save_checkpoint"),
         "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"),
    Case(every(_SAVING, never(_RESUMING), never(_COMPUTES)),
         "a GPU's memory is full while a checkpoint is saved: the full state dict is gathered on the GPU",
         "The training steps fit. A full (unsharded) state dict puts the whole model, and of an EMA or a reference "
         "model its copy, on the GPU of each rank in addition. The batch size is not the cause.",
         (Fix("Save sharded: each rank writes its own part.",
              ("accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT ...",)),
          Fix("Or gather in host memory, on rank 0 only.",
              ("FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",
               "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))"))),
         trace("train.py in main", "fsdp_utils.py in fsdp_save_ckpt", "torch/nn/modules/module.py in state_dict",
               "torch/distributed/fsdp/_state_dict_utils.py in _full_pre_state_dict_hook"),
         "https://github.com/huggingface/transformers/issues/23386"),
    Case(_FSDP_INIT,
         "a GPU's memory is full while FSDP shards the model: each GPU gets whole parameters first",
         "A GPU holds the unsharded weights of the model, or of one FSDP unit, before it keeps only its part. Without "
         "a wrapping policy the unit is the whole model. The batch size does not matter yet.",
         (Fix("Keep the model in host memory or on the meta device until FSDP has sharded it, and wrap each layer.",
              ("accelerate launch --use_fsdp --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
               "--fsdp_cpu_ram_efficient_loading true --fsdp_sync_module_states true ...",)),
          Fix("Remove .to('cuda') and device_map before FSDP, and load in bf16.",
              ("from_pretrained(..., dtype=torch.bfloat16)",)),
          Fix("Check what else is on the GPU.", ("nvidia-smi",))),
         trace("train.py in main", "torch/distributed/fsdp/fully_sharded_data_parallel.py in __init__",
               "torch/distributed/fsdp/_init_utils.py in _move_states_to_device"),
         "https://github.com/huggingface/transformers/issues/35636"),
    Case(within(r"deepspeed/runtime/engine\.py in _configure_distributed_model$"),
         "a GPU's memory is full while DeepSpeed puts the whole model on it, before it shards anything",
         "Each rank moves all weights to its GPU, unless the model was built under ZeRO-3. There are no fp32 copies or "
         "optimizer states yet: offloading the optimizer, an 8-bit optimizer or a smaller batch does not help. Models "
         "that are on the GPU already (text encoder, VAE, reference) take their part.",
         (Fix("Use ZeRO-3, and build the model under its configuration, so that each GPU gets only its part.",
              ("keep = HfDeepSpeedConfig(ds_config)  # before from_pretrained, kept in a variable",
               "with deepspeed.zero.Init(config_dict_or_path=ds_config): model = build()")),
          BF16,
          Fix("Move frozen models to the CPU before, and see what else is on the GPU.",
              ("text_encoder.to('cpu'); torch.cuda.empty_cache()", "nvidia-smi"))),
         trace("accelerate/accelerator.py in _prepare_deepspeed", "deepspeed/runtime/engine.py in __init__",
               "deepspeed/runtime/engine.py in _configure_distributed_model", "torch/nn/modules/module.py in to",
               "torch/nn/modules/module.py in _apply"),
         _ZERO),
    Case(_ZERO_INIT,
         "a GPU's memory is full while DeepSpeed sets up: its share of fp32 weights and optimizer states does not fit",
         "ZeRO keeps 12 bytes per trained parameter, divided by the number of GPUs, in addition to the weights. ZeRO-1 "
         "and 2 also keep the whole model on each GPU. The batch size does not matter yet.",
         (OFFLOAD, Fix("Train fewer parameters (LoRA), or use an 8-bit optimizer.",
                       ("TrainingArguments(optim='adamw_bnb_8bit')",))),
         trace("transformers/trainer.py in _inner_training_loop", "accelerate/accelerator.py in _prepare_deepspeed",
               "deepspeed/runtime/engine.py in _configure_zero_optimizer",
               "deepspeed/runtime/zero/stage3.py in _setup_for_real_optimizer"),
         _ZERO),
    Case(_DDP_INIT,
         "a GPU's memory is full while DDP is set up: its gradient buffers are as large as the model",
         "DDP keeps the whole model on each GPU, and at the start allocates buckets for all gradients. The optimizer's "
         "states (2 more copies in fp32) follow at the first step.",
         (Fix("Shard the model (FSDP, ZeRO) instead.", ("mgpu configure",)),
          Fix("Or train fewer parameters, and let gradients share the buckets' memory.",
              ("DistributedDataParallel(model, gradient_as_bucket_view=True)",))),
         trace("accelerate/accelerator.py in prepare_model",
               "torch/nn/parallel/distributed.py in __init__", "torch/nn/parallel/distributed.py in _ddp_init_helper"),
         "https://github.com/deepspeedai/DeepSpeed/issues/4715"),
    Case(every(_LOADING, shown("zero_three")),
         "a GPU's memory is full while the model is loaded: each rank probably loads it whole, before ZeRO-3 shards it",
         "from_pretrained shards only if the DeepSpeed configuration exists before it: Trainer's TrainingArguments, or "
         "an HfDeepSpeedConfig that is kept alive. The batch size does not matter yet.",
         (Fix("Create TrainingArguments (or HfDeepSpeedConfig) before the model, and pass no device_map.",
              ("keep = HfDeepSpeedConfig(ds_config)  # before from_pretrained, kept in a variable",)), BF16),
         "zero_optimization: {'stage': 3}\n" + trace("train.py in main",
                                                     "transformers/modeling_utils.py in from_pretrained"),
         "https://huggingface.co/docs/transformers/deepspeed#non-trainer-integration"),
    Case(every(_LOADING, shown("fsdp")),
         "a GPU's memory is full while the model is loaded: each rank probably loads it whole, before FSDP shards it",
         "Each rank puts the full weights on its own GPU. cpu_ram_efficient_loading (only rank 0 loads) is in force "
         "only if ACCELERATE_USE_FSDP is set, which accelerate launch does and torchrun does not. The batch size does "
         "not matter yet.",
         (Fix("Set both variables, or start with accelerate launch, and upgrade the trainer.",
              ("export ACCELERATE_USE_FSDP=true FSDP_CPU_RAM_EFFICIENT_LOADING=true",
               "accelerate launch --use_fsdp --fsdp_cpu_ram_efficient_loading true ...")),
          Fix("Remove device_map and .to('cuda') before FSDP."), BF16),
         "Setting args.fsdp: {'fsdp': 'full_shard auto_wrap'}\n" + trace(
             "train.py in main", "transformers/modeling_utils.py in from_pretrained"),
         "https://github.com/modelscope/ms-swift/pull/9980"),
    Case(every(_RESUMING, never(within(r" in (?:from_pretrained|_load_pretrained_model)$")), never(_COMPUTES)),
         "a GPU's memory is full while a checkpoint is loaded",
         "torch.load puts tensors on the GPU that they were saved from, so every rank may load onto GPU 0. The "
         "checkpoint and the model then need the GPU at the same time, and the optimizer's states too.",
         (Fix("Load into host memory, and delete the checkpoint after it was copied.",
              ("torch.load(path, map_location='cpu', mmap=True)",)),
          Fix("Under FSDP, save and load sharded.",
              ("accelerate launch --fsdp_state_dict_type SHARDED_STATE_DICT ...",))),
         trace("train.py in main", "train.py in resume", "torch/serialization.py in load"),
         "https://github.com/huggingface/transformers/issues/22123"),
    Case(_LOADING,
         "a GPU's memory is full while the model is loaded",
         "The weights alone do not fit on one GPU, other models or processes hold a part of it, or every rank loads "
         "the whole model onto its GPU (or all onto GPU 0) before it is sharded. The batch size does not matter yet.",
         (Fix("Shard the model while it is loaded (FSDP or ZeRO-3), and remove device_map and .to('cuda').",
              ("mgpu configure", "accelerate launch --use_fsdp --fsdp_cpu_ram_efficient_loading true ...")), BF16,
          Fix("Check what else is on the GPU.", ("nvidia-smi",))),
         trace("train.py in main", "transformers/modeling_utils.py in from_pretrained"),
         _FSDP),
    Case(source_line(r"deepcopy\("),
         "a GPU's memory is full while a model is copied (EMA, reference or target model)",
         "copy.deepcopy makes a second model on the same GPU, before anything is sharded.",
         (Fix("Copy it in host memory, or shard the copy too.", ("ema = copy.deepcopy(model.cpu())",)),),
         trace("train.py in main", code="ema = deepcopy(model)"),
         "https://github.com/ByteDance-Seed/Bagel/issues/157"),
    Case(every(_TO_GPU, message(BY_DRIVER)),
         "a GPU was full before the model was moved to it: another process holds its memory",
         "The driver itself refused: torch had allocated nothing there yet, or it would report what it tried to "
         "allocate. Another program, an orphaned rank or another rank of this run uses this GPU. The batch size does "
         "not matter.",
         (Fix("See which processes are on the GPU, and select a free one.",
              ("nvidia-smi", "mgpu doctor --only gpu_busy,gpu_memory_without_process",
               "export CUDA_VISIBLE_DEVICES=1,2,3  # without GPU 0, for example")),
          Fix("Check that each rank uses its own GPU.",
              ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",))),
         trace("train.py in main", "torch/nn/modules/module.py in to", "torch/nn/modules/module.py in convert",
               message="RuntimeError: CUDA error: out of memory", code="return t.to(device)"),
         "https://github.com/pytorch/pytorch/issues/20532"),
    Case(_TO_GPU,
         "a GPU's memory is full while the model is moved to it",
         "The whole model goes to one GPU. Other models of the script and other processes can hold a part of it. "
         "Without sharding, training then needs 16 bytes per trained parameter on each GPU. The batch size does not "
         "matter yet.",
         (Fix("Shard the model (FSDP, ZeRO-3), and remove .to('cuda').", ("mgpu configure",)), BF16,
          Fix("If it should fit: check that each rank uses its own GPU, and what else is on it.",
              ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "nvidia-smi"))),
         trace("train.py in main", "torch/nn/modules/module.py in to", "torch/nn/modules/module.py in _apply",
               code="model.to(device)"),
         _FSDP),
)
# fmt: on
