"""Which release of trl since 0.28, Lightning, ms-swift and the Hub's packages changed what, and of from_pretrained?

Facts only, in the form of `_version_changes.py`. Compared in the wheels themselves: trl from 0.27 to 1.16,
huggingface_hub from 0.36 to 2.4, datasets from 3.6 to 5.2, peft from 0.17 to 0.21, pytorch_lightning from 1.4 to 2.6,
ms-swift 3.12 and 4.0, transformers from 4.52 to 5.0. What from_pretrained() does not know it passes to the model's
__init__(): `PreTrainedModel(dtype)`.
"""

from __future__ import annotations

CHANGES = """
transformers 4.53 - PreTrainedModel(use_flash_attention_2)=attn_implementation
transformers 4.56 + PreTrainedModel(dtype)
transformers 5.0 - PreTrainedModel(load_in_4bit)=quantization_config PreTrainedModel(load_in_8bit)=quantization_config
transformers 5.0 - PreTrainedModel(use_auth_token)=token PreTrainedModel(resume_download)
transformers 5.0 - PreTrainedConfig.rope_theta=rope_parameters PreTrainedConfig.pad_token_id
trl 0.28 - /extras.vllm_client=trl.generation.vllm_client KTOConfig(label_pad_token_id,padding_value)
trl 0.28 - GRPOConfig(vllm_guided_decoding_regex)=vllm_structured_outputs_regex KTOConfig(ref_model_init_kwargs)
trl 0.28 - RLOOConfig(vllm_guided_decoding_regex)=vllm_structured_outputs_regex KTOConfig(base_model_attribute_name)
trl 0.28 - KTOConfig(use_liger_loss)=use_liger_kernel GRPOTrainer._move_model_to_vllm
trl 0.29 + GRPOTrainer(environment_factory)
trl 0.29 - DPOConfig(base_model_attribute_name,force_use_ref_model,tools,model_adapter_name,ref_adapter_name)
trl 0.29 - /mergekit_utils /trainer.judges RLOOConfig(max_prompt_length) FDivergenceType FDivergenceConstants
trl 0.29 - DPOTrainer.get_batch_loss_metrics DPOTrainer.dpo_loss DPOTrainer.concatenated_forward
trl 1.0 + SFTConfig(truncation_mode) GRPOConfig(pad_to_multiple_of) RLOOConfig(pad_to_multiple_of)
trl 1.0 - truncate_dataset
trl 1.1 - prepare_deepspeed(per_device_train_batch_size,bf16,fp16) /experimental.judges /experimental.winrate_callback
trl 1.2 - KTOConfig(generate_during_eval) KTOTrainer(ref_adapter_name,model_adapter_name)
trl 1.3 - is_chat_template_prefix_preserving(tokenizer)=processing_class
trl 1.4 - KTOTrainer(model_init,preprocess_logits_for_metrics)
trl 1.7 + SFTConfig(trust_remote_code,router_aux_loss_coef) GRPOConfig(trust_remote_code,router_aux_loss_coef)
trl 1.7 + GRPOConfig(use_transformers_continuous_batching) DPOConfig(trust_remote_code) RewardConfig(trust_remote_code)
trl 1.8 + SFTTrainer(quantization_config) DPOTrainer(quantization_config) GRPOTrainer(quantization_config)
trl 1.8 + GRPOConfig(entropy_coef) RewardTrainer(quantization_config) KTOTrainer(quantization_config)
trl 1.8 - get_kbit_device_map /experimental.gfpo /experimental.papo
trl 1.9 - /experimental.openenv /experimental.dppo
trl 1.13 - /experimental.ppo /extras.dataset_formatting
trl 1.14 - /experimental.bco /experimental.prm /experimental.xpo /experimental.nash_md
trl 1.14 - /experimental.grpo_with_replay_buffer
trl 1.15 - /experimental.minillm prepare_multimodal_messages_vllm
huggingface_hub 1.0 - HF_HUB_ENABLE_HF_TRANSFER@constants=HF_XET_HIGH_PERFORMANCE hf_cache_home@constants
huggingface_hub 1.0 - is_hf_transfer_available smoothly_deprecate_use_auth_token OfflineAdapter
huggingface_hub 1.0 - update_repo_visibility=update_repo_settings get_token_permission KerasModelHubMixin
huggingface_hub 1.0 - split_tf_state_dict_into_shards push_to_hub_keras from_pretrained_keras
huggingface_hub 1.0 - HfApi.list_models(library)=filter HfApi.list_models(language)=filter
huggingface_hub 1.0 - HfApi.list_models(task)=filter HfApi.list_models(tags)=filter
huggingface_hub 1.0 - HfApi.snapshot_download(resume_download) HfApi.snapshot_download(local_dir_use_symlinks)
huggingface_hub 1.0 - HfApi.hf_hub_download(resume_download) HfApi.hf_hub_download(local_dir_use_symlinks)
huggingface_hub 1.0 - notebook_login(write_permission) notebook_login(new_session)
huggingface_hub 2.0 - upload_large_folder=upload_folder duplicate_space=duplicate_repo request_space_storage
huggingface_hub 2.0 - HfApi.upload_large_folder=upload_folder HfApi.duplicate_space=duplicate_repo
huggingface_hub 2.0 - delete_space_storage repo_type_and_id_from_hf_id HfApi.list_models(model_name)=search
huggingface_hub 2.0 - InferenceClient.text_generation(stop_sequences)=stop HfApi.create_repo(space_storage)
datasets 4.0 - HubDatasetModuleFactoryWithoutScript@load=HubDatasetModuleFactory load_dataset_builder(trust_remote_code)
datasets 4.0 - LocalDatasetModuleFactoryWithoutScript@load=LocalDatasetModuleFactory init_dynamic_modules@load
datasets 4.0 - HF_DATASETS_TRUST_REMOTE_CODE@config get_imports@py_utils lock_importable_file@py_utils Audio(mono)
datasets 4.0 - convert_to_parquet@hub resolve_trust_remote_code@load
peft 0.19 - BoneConfig=MissConfig BoneModel=MissModel is_auto_gptq_available@import_utils
peft 0.19 - is_auto_awq_available@import_utils get_auto_gptq_quant_linear
swift 4.0 - /llm=swift /plugin=swift
pytorch_lightning 1.5 - /metrics=torchmetrics auto_move_data Trainer(distributed_backend)=strategy
pytorch_lightning 1.5 - ModelCheckpoint(period)=every_n_epochs
pytorch_lightning 1.6 - ModelCheckpoint(every_n_val_epochs)=every_n_epochs
pytorch_lightning 1.7 - Trainer(checkpoint_callback)=enable_checkpointing Trainer(weights_summary)=enable_model_summary
pytorch_lightning 1.7 - Trainer(progress_bar_refresh_rate)=TQDMProgressBar Trainer(log_gpu_memory)=DeviceStatsMonitor
pytorch_lightning 1.7 - Trainer(terminate_on_nan)=detect_anomaly Trainer(prepare_data_per_node)
pytorch_lightning 1.7 - Trainer(process_position)
pytorch_lightning 1.7 - Trainer(stochastic_weight_avg)=StochasticWeightAveraging Trainer(flush_logs_every_n_steps)
pytorch_lightning 1.7 - GPUStatsMonitor=DeviceStatsMonitor XLAStatsMonitor=DeviceStatsMonitor TestTubeLogger
pytorch_lightning 1.7 - /core.decorators
pytorch_lightning 1.8 - DDPPlugin=strategies.DDPStrategy DDPSpawnPlugin=strategies.DDPStrategy
pytorch_lightning 1.8 - DeepSpeedPlugin=strategies.DeepSpeedStrategy DDPFullyShardedPlugin=strategies.FSDPStrategy
pytorch_lightning 1.8 - DataParallelPlugin LoggerCollection /plugins.training_type=pytorch_lightning.strategies
pytorch_lightning 1.8 - Trainer(weights_save_path)=default_root_dir Trainer.training_type_plugin=strategy
pytorch_lightning 1.8 - Trainer.lightning_optimizers=strategy
pytorch_lightning 1.9 - /core.lightning=pytorch_lightning /loggers.base=pytorch_lightning.loggers.logger
pytorch_lightning 1.9 - LightningLoggerBase=Logger /utilities.cli=pytorch_lightning.cli
pytorch_lightning 1.9 - GPUAccelerator=CUDAAccelerator /accelerators.gpu=pytorch_lightning.accelerators.cuda
pytorch_lightning 2.0 - EPOCH_OUTPUT DDPFullyShardedNativeStrategy=FSDPStrategy DDPFullyShardedStrategy=FSDPStrategy
pytorch_lightning 2.0 - DDPShardedStrategy=FSDPStrategy DDPSpawnStrategy=DDPStrategy DataParallelStrategy=DDPStrategy
pytorch_lightning 2.0 - DDPSpawnShardedStrategy=FSDPStrategy HorovodStrategy LightningLite=lightning.fabric.Fabric
pytorch_lightning 2.0 - NativeMixedPrecisionPlugin=MixedPrecisionPlugin ApexMixedPrecisionPlugin
pytorch_lightning 2.0 - ProgressBarBase=ProgressBar
pytorch_lightning 2.0 - seed_everything@seed=pytorch_lightning.seed_everything QuantizationAwareTraining
pytorch_lightning 2.0 - /lite=lightning.fabric /profiler=pytorch_lightning.profilers /strategies.ddp_spawn
pytorch_lightning 2.0 - /strategies.dp /strategies.sharded /strategies.fully_sharded
pytorch_lightning 2.0 - /utilities.apply_func=lightning_utilities
pytorch_lightning 2.0 - /utilities.cloud_io=lightning_fabric.utilities.cloud_io
pytorch_lightning 2.0 - Trainer.add_argparse_args=LightningCLI Trainer.from_argparse_args=LightningCLI
pytorch_lightning 2.0 - LightningModule.optimizer_step(optimizer_idx) LightningModule.optimizer_step(on_tpu)
"""

RELEASED = {
    "trl": "1.1 2026-04 1.2 2026-04 1.3 2026-04 1.4 2026-05 1.8 2026-07 1.9 2026-07 1.13 2026-09 1.14 2026-10 "
    "1.15 2026-10",
    "huggingface_hub": "2.0 2026-09",
    "peft": "0.19 2026-04",
    "swift": "4.0 2026-03",
    "pytorch_lightning": "1.5 2021-11 1.6 2022-03 1.7 2022-08 1.8 2022-11 1.9 2023-01 2.0 2023-03",
}

PAGES = {"swift": "https://github.com/modelscope/ms-swift/releases/tag/v{release}.0"}
