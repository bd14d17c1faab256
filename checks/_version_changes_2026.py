"""Which release of transformers since 5.6, DeepSpeed, diffusers, bitsandbytes or sentence-transformers changed what?

Facts only, in the form of `_version_changes.py`. Compared in the sources of the releases themselves: the wheels of
transformers from 5.5 to 5.24, the tags of the others (all of DeepSpeed's, from 0.13 to 0.20).
"""

from __future__ import annotations

CHANGES = """
PIL 10.0 - ANTIALIAS=Image.LANCZOS
transformers 5.6 + TrainingArguments(ddp_static_graph,trackio_bucket_id,trackio_static_space_id) /fusion_mapping
transformers 5.9 + /vision_utils
transformers 5.13 + /image_processing_outputs
transformers 5.14 - get_fsdp_ckpt_kwargs update_fsdp_plugin_peft@fsdp
transformers 5.14 - is_fsdp_enabled@fsdp=transformers.integrations.is_fsdp_enabled
transformers 5.14 - is_fsdp_managed_module@fsdp=transformers.integrations.is_fsdp_managed_module
transformers 5.15 + TrainingArguments(dataloader_in_order,dataloader_multiprocessing_context)
transformers 5.15 - TrainingArguments(warmup_ratio)=warmup_steps TrainingArguments(logging_dir)=TENSORBOARD_LOGGING_DIR
transformers 5.16 - TensorParallelLayer@tensor_parallel ColwiseParallel@tensor_parallel RowwiseParallel@tensor_parallel
transformers 5.20 - Cache.get_max_cache_shape=get_max_length DynamicCache.get_max_cache_shape=get_max_length
transformers 5.23 + TrainingArguments(activation_checkpointing,activation_checkpointing_kwargs)
transformers 5.24 - /modeling_attn_mask_utils=transformers.masking_utils
diffusers 0.22 + convert_state_dict_to_diffusers
vllm 0.8 + EngineArgs(worker_extension_cls) LLM(worker_extension_cls) AsyncEngineArgs(worker_extension_cls)
diffusers 0.29 - /models.unet_2d_condition=diffusers.models.unets /models.unet_2d=diffusers.models.unets
diffusers 0.29 - /models.unet_2d_blocks=diffusers.models.unets /models.transformer_2d=diffusers.models.transformers
diffusers 0.29 - /models.transformer_temporal=diffusers.models.transformers FromOriginalUNetMixin
diffusers 0.29 - UNet2DConditionModel.unload_lora
diffusers 0.30 - /loaders.lora=diffusers.loaders.lora_pipeline FromOriginalVAEMixin FromOriginalControlNetMixin
diffusers 0.30 - LoRAAttnProcessor(hidden_size)=peft.LoraConfig LoRAAttnProcessor(cross_attention_dim)=peft.LoraConfig
diffusers 0.37 - /models.controlnet=diffusers.models.controlnets /models.controlnet_sd3=diffusers.models.controlnets
diffusers 0.37 - /models.controlnet_flux=diffusers.models.controlnets
bitsandbytes 0.45 - Linear8bitLt(memory_efficient_backward)
bitsandbytes 0.46 - double_quant get_tile_inds extract_outliers AnalysisAdam
bitsandbytes 0.48 + /nn.parametrize
bitsandbytes 0.50 - AdamW8bit(block_wise) AdamW8bit(percentile_clipping) Adam8bit(block_wise) AdamW(block_wise)
bitsandbytes 0.50 - Adam8bit(percentile_clipping) AdamW(percentile_clipping) /research /triton /nn.triton_based_modules
sentence_transformers 3.0 + SentenceTransformerTrainer SentenceTransformerTrainingArguments
sentence_transformers 4.0 - CrossEncoder(automodel_args)=model_kwargs /cross_encoder.evaluation.CERerankingEvaluator
sentence_transformers 5.0 - /models.Asym=sentence_transformers.models.Router
datasets 4.6 - DuplicatedKeysError@keyhash /keyhash
accelerate 1.13 - is_ipex_available is_ccl_available get_ccl_version
trl 0.20 - GRPOTrainer._get_per_token_logps=_get_per_token_logps_and_entropies
deepspeed 0.14.1 - required_torch_version@utils=deepspeed.utils.torch.required_torch_version
deepspeed 0.14.2 - get_grad_norm@utils
deepspeed 0.14.4 + DeepSpeedEngine.compile
deepspeed 0.15.0 - /pydantic_v1=pydantic
deepspeed 0.15.2 + DeepSpeedEngine.offload_states DeepSpeedEngine.reload_states
deepspeed 0.15.3 + safe_set_full_grad
deepspeed 0.16.0 + DeepSpeedEngine.no_sync
deepspeed 0.16.4 + tp_model_init set_autotp_mode DeepSpeedZeRoOffload._register_deepspeed_module
deepspeed 0.16.4 - DeepSpeedZeRoOffload._register_hooks_recursively=_register_deepspeed_module
deepspeed 0.16.4 - DeepSpeedEngine.zero_has_nvme_offload
deepspeed 0.17.0 + /runtime.sequence_parallel UlyssesSPAttentionHF
deepspeed 0.18.3 - DeepSpeedZeroOptimizer.backward=DeepSpeedEngine.backward
deepspeed 0.18.3 - DeepSpeedZeroOptimizer_Stage3.backward=DeepSpeedEngine.backward
"""

MODELS = """
5.6 hy_v3 qianfan_ocr slanet
5.7 deimv2 laguna
5.8 deepseek_v4 exaone4_5 granite4_vision granite_speech_plus
5.9 cohere2_moe hrm_text hyperclovax rf_detr
5.10 gemma4_unified glmga
5.11 cosmos3_omni deepseek_ocr2 deepseek_v32 diffusion_gemma mellum sapiens2
5.12 minimax_m3_vl
5.13 hunyuan_vl kimi_k25 mimo_v2_flash minicpm3 nemotron_asr_streaming qwen3_asr videoprism zaya
5.14 inkling tipsv2
5.15 cosmos3_edge granite_swa granitemoe_swa
5.16 cohere_compass esmfold2 granite_speech5 qwen4_exp step3p7
5.17 glm5_next hy_v4 kimi_linear neucodec
5.18 hyperclovax_vision_v2 nemotron_h_omni
5.19 embedding_gemma2
5.20 bailing_hybrid molmo2 ultrabert unlimited_ocr
5.21 minicpm_ocr pocket_tts
5.22 mistral_large4
5.23 granite_docling inkling2 internlm3 lfm3 lfm3_vl
"""

RELEASED = {
    "transformers": "5.6 2026-04 5.7 2026-04 5.8 2026-05 5.9 2026-05 5.10 2026-06 5.11 2026-06 5.12 2026-06 "
    "5.13 2026-07 5.14 2026-07 5.15 2026-08 5.16 2026-08 5.17 2026-09 5.18 2026-09 5.19 2026-10 "
    "5.20 2026-10 5.21 2026-10 5.22 2026-10 5.23 2026-11 5.24 2026-11",
    "diffusers": "0.29 2024-06 0.30 2024-08 0.37 2026-03",
    "bitsandbytes": "0.45 2024-12 0.46 2025-05 0.48 2025-09 0.50 2026-07",
    "sentence_transformers": "3.0 2024-05 4.0 2025-03 5.0 2025-07",
    "datasets": "4.6 2026-02",
    "accelerate": "1.13 2026-03",
    "deepspeed": "0.14.1 2024-04 0.14.2 2024-04 0.14.4 2024-06 0.15.0 2024-08 0.15.2 2024-10 0.15.3 2024-10 "
    "0.16.0 2024-11 0.16.4 2025-02 0.17.0 2025-06 0.18.3 2025-12",
}

PAGES = {
    "PIL": "https://pillow.readthedocs.io/en/stable/releasenotes/{release}.0.html",
    "deepspeed": "https://github.com/deepspeedai/DeepSpeed/releases/tag/v{release}",
    "vllm": "https://github.com/vllm-project/vllm/releases/tag/v{release}.0",
    "diffusers": "https://github.com/huggingface/diffusers/releases/tag/v{release}.0",
    "bitsandbytes": "https://github.com/bitsandbytes-foundation/bitsandbytes/releases/tag/{release}.0",
    "sentence_transformers": "https://github.com/huggingface/sentence-transformers/releases/tag/v{release}.0",
}
