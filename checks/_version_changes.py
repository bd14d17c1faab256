"""Which release of a package added or removed an argument, an attribute, a name or a model?

Facts only; `_version_skew.py` looks them up. Compared in the sources of the releases themselves: the tags of trl,
accelerate, peft, datasets and huggingface_hub, and the wheels of transformers from 4.36 to 5.5. torch, triton and vllm:
from the pull requests and issues in `PAGES`; torch 1.1: github.com/tianweiy/CenterPoint/issues/59.
"""

from __future__ import annotations

# A line: package, release, + (added) or - (removed), then items. An item is `Class(argument)`, `Class(first,second)`,
# `function(argument)`, `Class.attribute`, a name to import (`name@module` if only that module has changed) or
# `/module`; after `=`, what replaced it.
CHANGES = """
transformers 4.36 + /cache_utils Cache DynamicCache
transformers 4.38 + TrainingArguments(accelerator_config) TrainingArguments(dataloader_prefetch_factor) StaticCache
transformers 4.38 + /quantizers
transformers 4.39 + BitsAndBytesConfig(bnb_4bit_quant_storage) TrainingArguments(optim_target_modules) QuantoConfig
transformers 4.39 - top_k_top_p_filtering is_flash_attn_available=is_flash_attn_2_available
transformers 4.39 - is_torch_tpu_available@trainer
transformers 4.40 + TrainingArguments(eval_do_concat_batches) AutoModelForKeypointDetection
transformers 4.40 - /generation_utils=transformers.generation
transformers 4.41 + TrainingArguments(eval_strategy) TrainingArguments(batch_eval_metrics) WatermarkingConfig
transformers 4.41 - GenerationMixin.greedy_search=generate GenerationMixin.sample=generate
transformers 4.41 - GenerationMixin.beam_search=generate
transformers 4.42 + TrainingArguments(eval_on_start) HybridCache SlidingWindowCache QuantizedCacheConfig
transformers 4.42 - Conversation
transformers 4.43 + EncoderDecoderCache TrainingArguments(torch_empty_cache_steps)
transformers 4.43 + TrainingArguments(eval_use_gather_object) /modeling_rope_utils /modeling_flash_attention_utils
transformers 4.44 + DataCollatorWithFlattening OffloadedCache
transformers 4.44 - PreTrainedTokenizerBase.default_chat_template=chat_template
transformers 4.45 + TorchAoConfig TrainingArguments(use_liger_kernel) ProcessingKwargs
transformers 4.46 + AutoModelForImageTextToText Trainer(processing_class) Trainer(compute_loss_func)
transformers 4.46 + TrainingArguments(include_for_metrics) TrainingArguments(average_tokens_across_devices)
transformers 4.46 - HfDeepSpeedConfig@deepspeed=transformers.integrations.HfDeepSpeedConfig
transformers 4.46 - /deepspeed=transformers.integrations
transformers 4.47 + Trainer(optimizer_cls_and_kwargs) is_torch_greater_or_equal LossKwargs FlashAttentionKwargs
transformers 4.47 + SaveStrategy
transformers 4.47 - shard_checkpoint=huggingface_hub.split_torch_state_dict_into_shards
transformers 4.48 + ALL_ATTENTION_FUNCTIONS Seq2SeqTrainer(compute_loss_func) /integrations.flex_attention
transformers 4.48 + /integrations.flash_attention
transformers 4.48 - PreTrainedModel._is_quantized_training_enabled=hf_quantizer.is_trainable LLAMA_ATTENTION_CLASSES
transformers 4.48 - LlamaFlashAttention2 LlamaSdpaAttention LlamaLinearScalingRotaryEmbedding Qwen2FlashAttention2
transformers 4.48 - LlamaDynamicNTKScalingRotaryEmbedding Qwen2SdpaAttention QWEN2_ATTENTION_CLASSES
transformers 4.48 - MISTRAL_ATTENTION_CLASSES is_torch_greater_or_equal_than_1_13
transformers 4.49 + FineGrainedFP8Config GPTQConfig(backend)
transformers 4.49 - LogitsWarper=LogitsProcessor MaxNewTokensCriteria DynamicCache.get_max_length=get_max_cache_shape
transformers 4.49 - Cache.get_max_length=get_max_cache_shape
transformers 4.50 + TrainingArguments(tp_size) use_kernel_forward_from_hub is_torch_greater_or_equal_than_2_6
transformers 4.50 - AdamW=torch.optim.AdamW _load_state_dict_into_model@modeling_utils
transformers 4.51 + can_return_tuple HybridChunkedCache
transformers 4.51 - TrainingArguments(evaluation_strategy)=eval_strategy dtype_byte_size@modeling_utils
transformers 4.51 - TrainingArguments(dispatch_batches)=accelerator_config
transformers 4.51 - TrainingArguments(split_batches)=accelerator_config is_torch_tpu_available=is_torch_xla_available
transformers 4.52 + GradientCheckpointingLayer auto_docstring ALL_PARALLEL_STYLES /modeling_layers /video_utils
transformers 4.52 + /video_processing_utils
transformers 4.52 - TrainingArguments(tp_size) VideoInput@image_utils=transformers.video_utils.VideoInput
transformers 4.52 - make_batched_videos@image_utils=transformers.video_utils.make_batched_videos /agents=smolagents
transformers 4.53 + TrainingArguments(liger_kernel_config) TrainingArguments(hub_revision) is_flash_attn_3_available
transformers 4.53 + /masking_utils
transformers 4.53 - ALL_LAYERNORM_LAYERS@trainer ALL_PARALLEL_STYLES@tensor_parallel Qwen2_5_VLFlashAttention2
transformers 4.54 + TransformersKwargs check_model_inputs OutputRecorder
transformers 4.54 - LossKwargs=TransformersKwargs PreTrainedModel._supports_flash_attn_2=_supports_flash_attn
transformers 4.54 - Cache.get_usable_length=get_seq_length DynamicCache.get_usable_length=get_seq_length
transformers 4.54 - Cache.seen_tokens=get_seq_length DynamicCache.seen_tokens=get_seq_length
transformers 4.55 + Mxfp4Config
transformers 4.56 + TrainingArguments(parallelism_config)
transformers 4.56 - DynamicCache.key_cache=layers DynamicCache.value_cache=layers QuantizedCacheConfig CacheConfig
transformers 4.56 - find_pruneable_heads_and_indices@modeling_utils=transformers.pytorch_utils
transformers 4.56 - prune_linear_layer@modeling_utils=transformers.pytorch_utils.prune_linear_layer
transformers 4.56 - apply_chunking_to_forward@modeling_utils=transformers.pytorch_utils.apply_chunking_to_forward
transformers 4.56 - Conv1D@modeling_utils=transformers.pytorch_utils.Conv1D
transformers 4.57 + TrainingArguments(project) TrainingArguments(trackio_space_id)
transformers 4.57 - BeamSearchScorer ConstrainedBeamSearchScorer TrainingArguments(use_ipex)=use_cpu
transformers 5.0 + PreTrainedConfig TokenizersBackend TrainingArguments(enable_jit_checkpoint)
transformers 5.0 + TrainingArguments(use_cache) /initialization /tokenization_python /core_model_loading
transformers 5.0 - Trainer(tokenizer)=processing_class Seq2SeqTrainer(tokenizer)=processing_class
transformers 5.0 - Trainer.tokenizer=processing_class TrainingArguments(no_cuda)=use_cpu
transformers 5.0 - TrainingArguments(overwrite_output_dir) TrainingArguments(save_safetensors)
transformers 5.0 - TrainingArguments(push_to_hub_token)=hub_token TrainingArguments(push_to_hub_model_id)=hub_model_id
transformers 5.0 - TrainingArguments(push_to_hub_organization)=hub_model_id TrainingArguments(torchdynamo)=torch_compile
transformers 5.0 - TrainingArguments(per_gpu_train_batch_size)=per_device_train_batch_size TrainingArguments(past_index)
transformers 5.0 - TrainingArguments(per_gpu_eval_batch_size)=per_device_eval_batch_size
transformers 5.0 - TrainingArguments(adafactor)=optim TrainingArguments(fp16_backend)
transformers 5.0 - TrainingArguments(half_precision_backend) TrainingArguments(fp16_opt_level)
transformers 5.0 - TrainingArguments(include_inputs_for_metrics)=include_for_metrics TrainingArguments(use_mps_device)
transformers 5.0 - TrainingArguments(fsdp_min_num_params)=fsdp_config TrainingArguments(jit_mode_eval)
transformers 5.0 - TrainingArguments(fsdp_transformer_layer_cls_to_wrap)=fsdp_config TrainingArguments(ray_scope)
transformers 5.0 - TrainingArguments(include_tokens_per_second)=include_num_input_tokens_seen
transformers 5.0 - AutoModelForVision2Seq=AutoModelForImageTextToText HybridCache=StaticCache
transformers 5.0 - SlidingWindowCache=StaticCache SinkCache OffloadedCache=DynamicCache OffloadedStaticCache
transformers 5.0 - QuantoQuantizedCache=QuantizedCache HybridChunkedCache find_pruneable_heads_and_indices prune_layer
transformers 5.0 - is_torch_fx_available is_tf_available is_flax_available is_torch_sdpa_available
transformers 5.0 - is_safetensors_available@utils TRANSFORMERS_CACHE SpecialTokensMixin TextDataset
transformers 5.0 - LineByLineTextDataset EvaluationStrategy=IntervalStrategy TFPreTrainedModel create_optimizer
transformers 5.0 - no_init_weights@modeling_utils=transformers.initialization.no_init_weights is_remote_url download_url
transformers 5.0 - load_tf_weights_in_bert BeamScorer PreTrainedTokenizerBase.encode_plus=__call__
transformers 5.0 - PreTrainedTokenizerBase.all_special_tokens_extended=all_special_tokens
transformers 5.0 - PreTrainedTokenizerBase.batch_encode_plus=__call__ PreTrainedTokenizerBase.prepare_for_model
transformers 5.0 - PreTrainedTokenizerBase.prepare_seq2seq_batch=__call__ PreTrainedTokenizerBase.as_target_tokenizer
transformers 5.0 - PreTrainedTokenizerBase.build_inputs_with_special_tokens=__call__ PreTrainedModel.prune_heads
transformers 5.0 - PreTrainedModel.to_bettertransformer=attn_implementation DynamicCache.from_legacy_cache
transformers 5.0 - DynamicCache.to_legacy_cache is_offline_mode@utils=huggingface_hub.is_offline_mode
transformers 5.0 - /tokenization_utils=transformers.tokenization_python /onnx=optimum /utils.fx /utils.bitsandbytes
transformers 5.0 - /tokenization_utils_fast=transformers.tokenization_utils_tokenizers /utils.model_parallel_utils
transformers 5.0 - /keras_callbacks /modeling_tf_utils /generation.beam_search
transformers 5.2 + TrainingArguments(train_sampling_strategy)
transformers 5.2 - TrainingArguments(group_by_length)=train_sampling_strategy check_model_inputs
transformers 5.4 - BaseImageProcessorFast /image_processing_utils_fast=transformers.image_processing_backends
trl 0.8 + ModelConfig KTOTrainer KTOConfig RewardConfig setup_chat_format get_kbit_device_map
trl 0.9 + SFTConfig DPOConfig RLOOTrainer
trl 0.11 + /data_utils
trl 0.12 + SFTTrainer(processing_class) DPOTrainer(processing_class) RewardTrainer(processing_class) ScriptArguments
trl 0.12 + KTOTrainer(processing_class) ORPOTrainer(processing_class) PPOTrainer(processing_class)
trl 0.12 - PPOTrainer(dataset)=train_dataset PPOTrainer(lr_scheduler)=optimizers PPOTrainer(optimizer)=optimizers
trl 0.12 - PPOTrainer(num_shared_layers) PPOConfig(ppo_epochs)=num_ppo_epochs PPOConfig(log_with)=report_to
trl 0.12 - PPOConfig(steps) PPOConfig(model_name) PPOConfig(init_kl_coef)=kl_coef PPOConfig(adap_kl_ctrl)
trl 0.12 - PPOConfig(target_kl) PPOConfig(optimize_cuda_cache) PPOConfig(early_stopping) PPOConfig(use_score_scaling)
trl 0.12 - PPOConfig(forward_batch_size) is_torch_greater_2_0 PPOTrainer.step=PPOTrainer.train
trl 0.12 - PPOTrainer.generate=PPOTrainer.train
trl 0.13 + PPOTrainer(args) PPOTrainer(model) PPOTrainer(ref_model)
trl 0.13 - SFTTrainer(dataset_text_field)=SFTConfig(dataset_text_field) SFTTrainer(max_seq_length)=SFTConfig(max_length)
trl 0.13 - SFTTrainer(packing)=SFTConfig(packing) SFTTrainer(dataset_num_proc)=SFTConfig(dataset_num_proc)
trl 0.13 - SFTTrainer(dataset_kwargs)=SFTConfig(dataset_kwargs)
trl 0.13 - SFTTrainer(model_init_kwargs)=SFTConfig(model_init_kwargs)
trl 0.13 - SFTTrainer(neftune_noise_alpha)=SFTConfig(neftune_noise_alpha)
trl 0.13 - SFTTrainer(eval_packing)=SFTConfig(eval_packing) SFTTrainer(chars_per_token) SFTTrainer(dataset_batch_size)
trl 0.13 - SFTTrainer(num_of_sequences) SFTTrainer(infinite) DPOTrainer(beta)=DPOConfig(beta)
trl 0.13 - DPOTrainer(max_length)=DPOConfig(max_length) DPOTrainer(loss_type)=DPOConfig(loss_type)
trl 0.13 - DPOTrainer(max_prompt_length) DPOTrainer(max_target_length)
trl 0.13 - DPOTrainer(label_smoothing)=DPOConfig(label_smoothing)
trl 0.13 - DPOTrainer(model_init_kwargs)=DPOConfig(model_init_kwargs) DPOTrainer(padding_value)
trl 0.13 - DPOTrainer(truncation_mode) DPOTrainer(generate_during_eval)
trl 0.13 - DPOTrainer(dataset_num_proc)=DPOConfig(dataset_num_proc)
trl 0.13 - DPOTrainer(precompute_ref_log_probs)=DPOConfig(precompute_ref_log_probs) DPOTrainer(label_pad_token_id)
trl 0.13 - DPOTrainer(ref_model_init_kwargs) DPOTrainer(disable_dropout)=DPOConfig(disable_dropout)
trl 0.13 - PPOv2Trainer=PPOTrainer PPOv2Config=PPOConfig DPOScriptArguments=ScriptArguments
trl 0.13 - SFTScriptArguments=ScriptArguments DPOTrainer(reference_free) DPOTrainer(force_use_ref_model)
trl 0.13 - DPOTrainer(is_encoder_decoder) /commands=trl.cli /trainer.ppov2_trainer=trl.trainer.ppo_trainer
trl 0.14 + GRPOTrainer GRPOConfig
trl 0.14 - KTOTrainer(tokenizer)=processing_class RewardTrainer(max_length)=RewardConfig(max_length)
trl 0.14 - top_k_top_p_filtering@core respond_to_batch logprobs_from_logits@core AdaptiveKLController /trainer.base
trl 0.15 + SFTTrainer(compute_loss_func) GRPOConfig(vllm_max_model_len) GRPOConfig(vllm_dtype)
trl 0.15 - RewardTrainer(tokenizer)=processing_class ORPOTrainer(tokenizer)=processing_class
trl 0.15 - PPOTrainer(tokenizer)=processing_class PPOTrainer(config)=args PPOTrainer(policy)=model
trl 0.15 - PPOTrainer(ref_policy)=ref_model SFTTrainer(model_init)
trl 0.15 + GRPOConfig(log_completions,reward_weights,sync_ref_model,ds3_gather_for_generation)
trl 0.16 - SFTTrainer(tokenizer)=processing_class DPOTrainer(tokenizer)=processing_class
trl 0.16 + GRPOConfig(num_iterations,epsilon,epsilon_high,min_p,top_k,top_p,repetition_penalty,scale_rewards)
trl 0.16 + GRPOConfig(vllm_server_host,vllm_server_port,vllm_server_timeout) SFTConfig(max_length,padding_free)
trl 0.17 + GRPOConfig(loss_type,mask_truncated_completions,disable_dropout,shuffle_dataset)
trl 0.17 + SFTConfig(completion_only_loss,eos_token)
trl 0.18 + /rewards
trl 0.18 - SFTConfig(chars_per_token) SFTConfig(dataset_batch_size) SFTConfig(num_of_sequences)
trl 0.18 - SFTConfig(use_liger)=use_liger_kernel GRPOConfig(vllm_device)=vllm_mode GRPOConfig(vllm_dtype)
trl 0.18 - GRPOConfig(vllm_max_model_len) GRPOConfig(vllm_enable_prefix_caching)
trl 0.18 + GRPOConfig(steps_per_generation,generation_batch_size,vllm_mode,vllm_tensor_parallel_size,delta)
trl 0.18 + SFTConfig(activation_offloading)
trl 0.19 + clone_chat_template
trl 0.19 + SFTConfig(assistant_only_loss,chat_template_path,packing_strategy) GRPOConfig(generation_kwargs)
trl 0.20 - SFTConfig(max_seq_length)=max_length DataCollatorForCompletionOnlyLM=SFTConfig(completion_only_loss)
trl 0.20 - ConstantLengthDataset
trl 0.20 + GRPOConfig(importance_sampling_level,top_entropy_quantile)
trl 0.21 - TextEnvironment /environment
trl 0.23 + GRPOConfig(vllm_enable_sleep_mode,vllm_importance_sampling_correction) SFTConfig(loss_type)
trl 0.24 - DDPOTrainer DDPOConfig IterativeSFTTrainer AlignPropTrainer is_diffusers_available
trl 0.25 - BestOfNSampler LengthSampler RLOOTrainer(policy)=model RLOOTrainer(config)=args
trl 0.25 - RLOOConfig(rloo_k)=num_generations /core /extras.best_of_n_sampler
trl 0.25 + GRPOConfig(chat_template_kwargs,cast_lm_head_to_fp32) GRPOTrainer(rollout_func)
trl 0.26 + /experimental
trl 0.26 - setup_chat_format=clone_chat_template
trl 0.26 + GRPOTrainer(tools) GRPOConfig(num_generations_eval)
trl 0.27 - ModelConfig(torch_dtype)=dtype get_reward@utils prepare_model_for_kbit_training@models
trl 0.28 - GRPOConfig(max_prompt_length) GRPOConfig(use_liger_loss)=use_liger_kernel
trl 0.29 - AutoModelForCausalLMWithValueHead
trl 0.29 - AutoModelForSeq2SeqLMWithValueHead PPOTrainer
trl 0.29 - PPOConfig ORPOTrainer=trl.experimental.orpo PRMTrainer ORPOConfig=trl.experimental.orpo
trl 0.29 - CPOTrainer=trl.experimental.cpo CPOConfig=trl.experimental.cpo GKDTrainer=trl.experimental.gkd
trl 0.29 - GKDConfig=trl.experimental.gkd OnlineDPOTrainer=trl.experimental.online_dpo BCOTrainer
trl 0.29 - XPOTrainer NashMDTrainer DPOConfig(max_prompt_length)
trl 0.29 - DPOConfig(rpo_alpha) DPOConfig(generate_during_eval) DPOConfig(reference_free)
trl 0.29 - DPOConfig(max_completion_length) DPOConfig(label_pad_token_id) DPOConfig(ref_model_init_kwargs)
trl 0.29 - /models.modeling_value_head /trainer.ppo_config
trl 0.29 - /trainer.ppo_trainer /models.modeling_base
trl 0.29 - /trainer.orpo_trainer=trl.experimental.orpo /trainer.cpo_trainer=trl.experimental.cpo
trl 1.7 - ModelConfig(trust_remote_code)
accelerate 0.21 + is_npu_available load_and_quantize_model Accelerator.save_model
accelerate 0.22 + AutocastKwargs Accelerator.verify_device_map Accelerator.trigger_sync_in_backward
accelerate 0.23 - Accelerator.gather_for_metrics(tensor)=input_data
accelerate 0.25 + clean_state_dict_for_safetensors check_cuda_p2p_ib_support
accelerate 0.26 + is_msamp_available Accelerator(use_seedable_sampler)
accelerate 0.27 + is_peft_model prepare_pippy
accelerate 0.28 + DataLoaderConfiguration Accelerator(dataloader_config) is_torch_xla_available
accelerate 0.28 - is_tpu_available=is_torch_xla_available
accelerate 0.29 + is_mlu_available set_numa_affinity extract_model_from_parallel(recursive)
accelerate 0.30 + Accelerator.gather_for_metrics(use_gather_object) DataLoaderConfiguration(non_blocking)
accelerate 0.30 + is_schedulefree_available
accelerate 0.31 + merge_fsdp_weights get_state_dict_from_offload
accelerate 0.32 + DDPCommunicationHookType ProfileKwargs DistributedDataParallelKwargs(comm_hook) clear_device_cache
accelerate 0.33 + is_musa_available clear_device_cache(garbage_collection)
accelerate 0.34 + DataLoaderConfiguration(use_stateful_dataloader) enable_fsdp_ram_efficient_loading
accelerate 0.34 + is_torchdata_available
accelerate 1.0 + Accelerator(deepspeed_plugins) get_active_deepspeed_plugin
accelerate 1.0 - Accelerator(dispatch_batches)=dataloader_config Accelerator(split_batches)=dataloader_config
accelerate 1.0 - shard_checkpoint Accelerator(even_batches)=dataloader_config
accelerate 1.0 - Accelerator(use_seedable_sampler)=dataloader_config
accelerate 1.0 - Accelerator.autocast(cache_enabled)=autocast_handler
accelerate 1.1 + DataLoaderConfiguration(data_seed) align_module_device has_offloaded_params get_grad_scaler
accelerate 1.2 + infer_auto_device_map(fallback_allocation) Accelerator(dynamo_plugin) purge_accelerate_environment
accelerate 1.3 + Accelerator.unwrap_model(keep_torch_compile) extract_model_from_parallel(keep_torch_compile)
accelerate 1.4 + TorchTensorParallelPlugin Accelerator(torch_tp_plugin) AORecipeKwargs TERecipeKwargs
accelerate 1.6 + FullyShardedDataParallelPlugin(fsdp_version) FullyShardedDataParallelPlugin(reshard_after_forward)
accelerate 1.6 + fsdp2_load_full_state_dict fsdp2_prepare_model
accelerate 1.7 + is_compiled_module@utils compile_regions load_checkpoint_in_model(full_state_dict)
accelerate 1.8 + Accelerator.load_state(load_kwargs)
accelerate 1.9 + model_has_dtensor
accelerate 1.10 + ParallelismConfig Accelerator(parallelism_config) TorchContextParallelConfig
accelerate 1.10 + Accelerator.maybe_context_parallel /parallelism_config
accelerate 1.12 + DeepSpeedSequenceParallelConfig
peft 0.4 + prepare_model_for_kbit_training
peft 0.6 + LoraConfig(rank_pattern) LoraConfig(alpha_pattern)
peft 0.7 + LoftQConfig LoraConfig(loftq_config) OFTConfig
peft 0.8 + LoraConfig(use_rslora) cast_mixed_precision_params
peft 0.9 + LoraConfig(use_dora)
peft 0.10 + LoraConfig(layer_replication) replace_lora_weights_loftq
peft 0.10 - prepare_model_for_int8_training=prepare_model_for_kbit_training
peft 0.12 + LoraConfig(runtime_config) LoraRuntimeConfig FourierFTConfig
peft 0.13 + PeftModel.from_pretrained(low_cpu_mem_usage) VBLoRAConfig
peft 0.14 + LoraConfig(exclude_modules) LoraConfig(lora_bias) EvaConfig LoraConfig(eva_config)
peft 0.15 + LoraConfig(trainable_token_indices) LoraConfig(corda_config) register_peft_method
peft 0.15 - PEFT_TYPE_TO_CONFIG_MAPPING@mapping
peft 0.16 + LoraConfig(use_qalora) set_additional_trainable_modules
peft 0.16 + LoraConfig(qalora_group_size)
peft 0.17 + LoraConfig(target_parameters) ParamWrapper
peft 0.18 + LoraConfig(arrow_config) LoraConfig(alora_invocation_tokens) LoraConfig(ensure_weight_tying)
peft 0.19 + LoraConfig(use_bdlora,lora_ga_config)
peft 0.20 + LoraConfig(velora_config,monteclora_config)
peft 0.19 - /tuners.bone=peft.tuners.miss
huggingface_hub 0.11 - hf_hub_download(use_auth_token)=token snapshot_download(use_auth_token)=token
huggingface_hub 0.20 + list_repo_tree get_token
huggingface_hub 0.21 + split_torch_state_dict_into_shards /serialization
huggingface_hub 0.22 + /errors
huggingface_hub 0.22 - /inference._text_generation=huggingface_hub.inference
huggingface_hub 0.23 + HFValidationError@errors OfflineModeIsEnabled@errors
huggingface_hub 0.23 - HfApi.list_files_info=list_repo_tree
huggingface_hub 0.24 - ModelFilter=list_models DatasetFilter=list_datasets
huggingface_hub 0.25 + HfHubHTTPError@errors RepositoryNotFoundError@errors EntryNotFoundError@errors
huggingface_hub 0.25 + GatedRepoError@errors LocalEntryNotFoundError@errors
huggingface_hub 0.25 - RepositoryNotFoundError@_errors EntryNotFoundError@_errors HfHubHTTPError@_errors
huggingface_hub 0.25 - GatedRepoError@_errors /utils._errors=huggingface_hub.errors /inference._types
huggingface_hub 0.26 - cached_download=hf_hub_download url_to_filename hf_hub_download(legacy_cache_layout)
huggingface_hub 0.26 - /utils._token
huggingface_hub 0.27 + export_entries_as_dduf DDUFEntry
huggingface_hub 0.30 + XetConnectionInfo
huggingface_hub 0.32 + StrictDataclassError StrictDataclassFieldValidationError StrictDataclassDefinitionError
huggingface_hub 1.0 + close_session
huggingface_hub 1.0 - HfFolder=get_token Repository=HfApi.upload_folder InferenceApi=InferenceClient
huggingface_hub 1.0 - configure_http_backend hf_hub_download(resume_download) hf_hub_download(proxies)
huggingface_hub 1.0 - hf_hub_download(local_dir_use_symlinks) snapshot_download(resume_download)
huggingface_hub 1.0 - snapshot_download(proxies) snapshot_download(local_dir_use_symlinks)
huggingface_hub 1.0 - hf_hub_download(force_filename) login(write_permission) login(new_session)
huggingface_hub 1.0 - reset_sessions=close_session huggingface-cli=hf /repository /inference_api /keras_mixin
huggingface_hub 1.0 - /utils._hf_folder /commands=huggingface_hub.cli
huggingface_hub 1.3 + is_offline_mode
datasets 2.15 + /exceptions
datasets 2.16 + load_dataset(trust_remote_code)
datasets 3.0 - load_metric=evaluate.load Metric=evaluate load_dataset(use_auth_token)=token load_dataset(task)
datasets 3.0 - load_dataset(ignore_verifications)=verification_mode load_from_disk(fs)=storage_options /tasks
datasets 3.0 - /metric=evaluate
datasets 4.0 - load_dataset(trust_remote_code)
torch 1.1 + DistributedDataParallel(find_unused_parameters)
torch 2.0 - /_six
torch 2.1 + float8_e4m3fn float8_e5m2
torch 2.2 + init_device_mesh DeviceMesh register_pytree_node /distributed.device_mesh /distributed.checkpoint.state_dict
torch 2.3 + GradScaler@amp uint16 uint32 uint64 get_default_device
torch 2.4 + register_fake custom_op custom_fwd@amp custom_bwd@amp RMSNorm is_bf16_supported(including_emulation)
torch 2.4 - _get_socket_with_port log@api
torch 2.5 + *@tensor flex_attention create_block_mask /nn.attention.flex_attention
torch 2.6 + fully_shard@fsdp FSDPModule@fsdp MixedPrecisionPolicy@fsdp CPUOffloadPolicy@fsdp wrap_triton triton_op
torch 2.6 + accelerator
torch 2.7 + float8_e8m0fnu
torch 2.8 + float4_e2m1fn_x2
triton 3.2 + AttrsDescriptor@backends
triton 3.3 - AttrsDescriptor
numpy 1.26 + /_core
torchmetrics 1.0 - _compare_version
torchvision 0.17 - /transforms.functional_tensor=torchvision.transforms.functional
pytorch_lightning 2.0 - Trainer(gpus)=devices Trainer(tpu_cores)=devices Trainer(num_processes)=devices
pytorch_lightning 2.0 - Trainer(ipus)=devices Trainer(resume_from_checkpoint)=fit(ckpt_path)
pytorch_lightning 2.0 - Trainer(auto_select_gpus)=devices Trainer(amp_backend)
pytorch_lightning 2.0 - Trainer(replace_sampler_ddp)=use_distributed_sampler Trainer(auto_lr_find)=Tuner.lr_find
pytorch_lightning 2.0 - Trainer(auto_scale_batch_size)=Tuner.scale_batch_size Trainer(track_grad_norm)
pytorch_lightning 2.0 - Trainer(amp_level) Trainer(move_metrics_to_cpu)
pytorch_lightning 2.0 - Trainer(multiple_trainloader_mode)=CombinedLoader
pytorch_lightning 2.0 - /utilities.distributed=pytorch_lightning.utilities.rank_zero
flash_attn 2.0 - flash_attn_unpadded_func=flash_attn_varlen_func
flash_attn 2.0 - flash_attn_unpadded_qkvpacked_func=flash_attn_varlen_qkvpacked_func
flash_attn 2.0 - flash_attn_unpadded_kvpacked_func=flash_attn_varlen_kvpacked_func /flash_attention=flash_attn_interface
pydantic 2.0 + field_validator model_validator TypeAdapter ConfigDict
pydantic 2.0 - BaseSettings=pydantic_settings.BaseSettings
httpx 0.28 - Client(proxies)=proxy AsyncClient(proxies)=proxy
pyarrow 21.0 - PyExtensionType=ExtensionType
setuptools 70.0 - packaging
setuptools 82.0 - /pkg_resources
"""

# Who uses what a release removed: names that scripts do not import. https://github.com/deepspeedai/DeepSpeed/issues/5603
USED_BY = {
    ("torch", "_get_socket_with_port"): "deepspeed",
    ("torch", "log@api"): "deepspeed",
    ("torch", "is_bf16_supported(including_emulation)"): "unsloth",  # unslothai/unsloth/issues/926
    ("transformers", "top_k_top_p_filtering"): "trl",  # huggingface/trl/issues/1409
    ("diffusers", "convert_state_dict_to_diffusers"): "trl",
}

# Releases in which a base class began to pass an argument to a method that scripts override.
PASSED = """
transformers 4.46 compute_loss(num_items_in_batch) training_step(num_items_in_batch)
transformers 4.47 log(start_time)
transformers 4.52 _get_train_sampler(train_dataset)
transformers 4.35 _set_gradient_checkpointing(enable) _set_gradient_checkpointing(gradient_checkpointing_func)
transformers 4.40 forward(cache_position)
transformers 4.45 forward(num_logits_to_keep)
"""

# The first release of transformers with a model: its model_type, also the beginning of its classes' names.
MODELS = """
4.28 llama
4.34 mistral
4.36 mixtral llava
4.37 qwen2 siglip vipllava
4.38 gemma stablelm depth_anything
4.39 cohere llava_next mamba starcoder2 udop
4.40 dbrx grounding_dino idefics2 jamba olmo qwen2_moe recurrent_gemma
4.41 jetmoe paligemma phi3 video_llava
4.42 gemma2 instructblipvideo llava_next_video rt_detr
4.43 chameleon hiera zoedepth
4.44 mamba2 nemotron
4.45 falcon_mamba granite granitemoe llava_onevision mimi mllama olmoe pixtral qwen2_audio qwen2_vl
4.46 glm idefics3 moshi phimoe zamba
4.47 ijepa olmo2
4.48 aria bamba cohere2 colpali diffllama dinov2_with_registers emu3 modernbert moonshine timm_wrapper vitpose
4.49 dab_detr depth_pro got_ocr2 granitemoeshared helium qwen2_5_vl rt_detr_v2 superglue zamba2
4.50 aya_vision gemma3 gemma3_text mistral3 shieldgemma2 siglip2 smolvlm
4.51 deepseek_v3 glm4 llama4 llama4_text phi4_multimodal qwen3 qwen3_moe
4.52 bitnet csm d_fine granitemoehybrid granite_speech internvl janus qwen2_5_omni sam_hq timesfm
4.53 arcee colqwen2 dia dots1 falcon_h1 gemma3n glm4v lightglue minimax smollm3 t5gemma vjepa2
4.54 deepseek_v2 deepseek_vl ernie4_5 ernie4_5_moe exaone4 glm4_moe lfm2 voxtral perception_lm xlstm
4.55 cohere2_vision gpt_oss
4.56 apertus dinov3_vit dinov3_convnext florence2 glm4v_moe hunyuan_v1_dense hunyuan_v1_moe ovis2 sam2 seed_oss
4.57 blt edgetam flex_olmo lfm2_vl longcat_flash ministral olmo3 qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe
4.57 vaultgemma
5.0 afmoe audioflamingo3 cwm ernie4_5_vl_moe glm46v glm4_moe_lite glm_image lfm2_moe lighton_ocr minimax_m2 ministral3
5.0 nanochat paddleocr_vl sam3 solar_open t5gemma2 video_llama_3
5.1 exaone_moe glm_ocr youtu
5.2 glm_moe_dsa qwen3_5 qwen3_5_moe voxtral_realtime
5.3 eurobert nemotron_h olmo_hybrid timesfm2_5 vibevoice_asr
5.4 jina_embeddings_v3 mistral4 pi0
5.5 gemma4 gemma4_text musicflamingo nomic_bert
"""

# Month of a release, from its tag or its wheel.
RELEASED = {
    "transformers": "4.36 2023-12 4.37 2024-01 4.38 2024-02 4.39 2024-03 4.40 2024-04 4.41 2024-05 4.42 2024-06 "
    "4.43 2024-07 4.44 2024-08 4.45 2024-09 4.46 2024-10 4.47 2024-12 4.48 2025-01 4.49 2025-02 4.50 2025-03 "
    "4.51 2025-04 4.52 2025-05 4.53 2025-06 4.54 2025-07 4.55 2025-08 4.56 2025-08 4.57 2025-10 "
    "5.0 2026-01 5.1 2026-02 5.2 2026-02 5.3 2026-03 5.4 2026-03 5.5 2026-04",
    "trl": "0.8 2024-03 0.11 2024-09 0.12 2024-11 0.13 2024-12 0.14 2025-01 0.15 2025-02 0.16 2025-03 "
    "0.17 2025-04 0.18 2025-05 0.19 2025-06 0.20 2025-07 0.21 2025-08 0.23 2025-09 0.24 2025-10 0.25 2025-11 "
    "0.26 2025-12 0.27 2026-01 0.28 2026-02 0.29 2026-02 1.0 2026-03 1.7 2026-06",
    "accelerate": "0.21 2023-07 0.22 2023-08 0.23 2023-09 0.25 2023-12 0.26 2024-01 0.27 2024-02 0.28 2024-03 "
    "0.29 2024-04 0.30 2024-05 0.31 2024-06 0.32 2024-07 0.33 2024-07 0.34 2024-09 1.0 2024-10 "
    "1.1 2024-11 1.2 2024-12 1.3 2025-01 1.4 2025-02 1.6 2025-04 1.7 2025-05 1.8 2025-06 "
    "1.9 2025-07 1.10 2025-08 1.12 2025-11",
    "peft": "0.5 2023-08 0.6 2023-11 0.7 2023-12 0.8 2024-01 0.9 2024-02 0.10 2024-03 0.12 2024-07 "
    "0.13 2024-09 0.14 2024-12 0.15 2025-03 0.16 2025-07 0.17 2025-08 0.18 2025-11",
    "huggingface_hub": "0.20 2023-12 0.21 2024-02 0.23 2024-05 0.24 2024-07 0.25 2024-09 0.26 2024-10 0.27 2024-12 "
    "0.30 2025-03 0.32 2025-05 1.0 2025-10 1.3 2026-01",
    "datasets": "2.16 2023-12 3.0 2024-09 4.0 2025-07",
}

# Release notes; {release} stands for the release. Without it: the page about the change.
PAGES = {
    "transformers": "https://github.com/huggingface/transformers/releases/tag/v{release}.0",
    "trl": "https://github.com/huggingface/trl/releases/tag/v{release}.0",
    "accelerate": "https://github.com/huggingface/accelerate/releases/tag/v{release}.0",
    "peft": "https://github.com/huggingface/peft/releases/tag/v{release}.0",
    "huggingface_hub": "https://github.com/huggingface/huggingface_hub/releases/tag/v{release}.0",
    "datasets": "https://github.com/huggingface/datasets/releases/tag/{release}.0",
    "torch": "https://github.com/pytorch/pytorch/releases/tag/v{release}.0",
    "triton": "https://github.com/triton-lang/triton/releases/tag/v{release}.0",
    "numpy": "https://numpy.org/doc/stable/release.html",
    "torchmetrics": "https://github.com/Lightning-AI/torchmetrics/releases/tag/v{release}.0",
    "torchvision": "https://github.com/pytorch/vision/releases/tag/v{release}.0",
    "pytorch_lightning": "https://github.com/Lightning-AI/pytorch-lightning/releases/tag/{release}.0",
    "flash_attn": "https://github.com/Dao-AILab/flash-attention#changelog",
    "pydantic": "https://docs.pydantic.dev/latest/migration/",
    "httpx": "https://github.com/encode/httpx/releases/tag/{release}.0",
    "pyarrow": "https://arrow.apache.org/release/{release}.0.html",
    "setuptools": "https://setuptools.pypa.io/en/latest/history.html",
}
