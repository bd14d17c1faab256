"""Which release of Megatron or Transformer Engine added or removed an argument, a name or a module?

The form is that of `_version_changes.py`. Compared in the sources of the releases themselves: the tags core_v0.8.0 to
core_v0.19.0 of Megatron-LM and v1.6 to v2.18 of TransformerEngine. Of names, those that Megatron-Bridge, mbridge, NeMo,
verl and ms-swift import.
"""

from __future__ import annotations

CHANGES = """
megatron 0.9 + TransformerConfig(config_logger_dir,external_cuda_graph,first_pipeline_num_layers)
megatron 0.9 + TransformerConfig(last_pipeline_num_layers,tp_comm_overlap_disable_fc1,tp_comm_overlap_disable_qkv)
megatron 0.9 + TransformerConfig(tp_only_amax_red)
megatron 0.9 + DistributedDataParallelConfig(align_param_gather,fp8_param_gather,overlap_param_gather)
megatron 0.9 + initialize_model_parallel(encoder_pipeline_model_parallel_size,encoder_tensor_model_parallel_size)
megatron 0.9 + initialize_model_parallel(get_embedding_ranks,get_position_embedding_ranks)
megatron 0.9 + get_gpt_layer_with_transformer_engine_spec(fp8) GPTDatasetConfig(renormalize_blend_weights)
megatron 0.9 + /core.extensions.transformer_engine /core.extensions
megatron 0.10 + TransformerConfig(cp_comm_type,expert_tensor_parallel_size,flash_decode)
megatron 0.10 + TransformerConfig(hierarchical_context_parallel_sizes,microbatch_group_size_per_vp_stage)
megatron 0.10 + TransformerConfig(moe_ffn_hidden_size,moe_layer_freq,moe_shared_expert_intermediate_size)
megatron 0.10 + TransformerConfig(moe_shared_expert_overlap,multi_latent_attention,overlap_p2p_comm_warmup_flush)
megatron 0.10 + TransformerConfig(tp_comm_bootstrap_backend)
megatron 0.10 + DistributedDataParallelConfig(num_distributed_optimizer_instances)
megatron 0.10 + GPTModel(rope_scaling,scatter_embedding_sequence_parallel)
megatron 0.10 + initialize_model_parallel(expert_tensor_parallel_size,hierarchical_context_parallel_sizes)
megatron 0.10 + initialize_model_parallel(num_distributed_optimizer_instances)
megatron 0.10 + get_gpt_layer_with_transformer_engine_spec(multi_latent_attention)
megatron 0.10 + get_gpt_layer_local_spec(multi_latent_attention) get_gpt_decoder_block_spec@gpt_layer_specs
megatron 0.10 + /core.models.common.embeddings.rope_utils MLATransformerConfig@transformer_config
megatron 0.10 + /core.rerun_state_machine TorchFullyShardedDataParallel@distributed is_torch_min_version@utils
megatron 0.10 + /core.transformer.moe.shared_experts MoESubmodules@moe_layer
megatron 0.10 + fused_apply_rotary_pos_emb@transformer_engine /core.transformer.torch_norm
megatron 0.11 + TransformerConfig(account_for_embedding_in_pipeline_split,account_for_loss_in_pipeline_split)
megatron 0.11 + TransformerConfig(attention_backend,moe_permute_fusion,moe_router_bias_update_rate)
megatron 0.11 + TransformerConfig(moe_router_enable_expert_bias,moe_router_group_topk,moe_router_num_groups)
megatron 0.11 + TransformerConfig(moe_router_score_function,moe_router_topk_limited_devices)
megatron 0.11 + TransformerConfig(moe_router_topk_scaling_factor,moe_use_legacy_grouped_gemm)
megatron 0.11 + TransformerConfig(num_layers_in_first_pipeline_stage,num_layers_in_last_pipeline_stage,softmax_scale)
megatron 0.11 + GPTModel(rope_scaling_factor) get_gpt_layer_with_transformer_engine_spec(moe_use_legacy_grouped_gemm)
megatron 0.11 + get_gpt_layer_local_spec(fp8,moe_use_legacy_grouped_gemm) MLATransformerConfig(rope_type,rotary_percent)
megatron 0.11 + AttnBackend@enums get_batch_on_this_cp_rank@utils get_transformer_layer_offset@transformer_layer
megatron 0.11 + /core.inference.text_generation_controllers.text_generation_controller /core.inference.sampling_params
megatron 0.11 + /core.models.gpt.moe_module_specs /core.dist_checkpointing.tensor_aware_state_dict
megatron 0.11 - GPTDatasetConfig(renormalize_blend_weights)
megatron 0.11 - TransformerConfig(first_pipeline_num_layers)=num_layers_in_first_pipeline_stage
megatron 0.11 - TransformerConfig(last_pipeline_num_layers)=num_layers_in_last_pipeline_stage
megatron 0.12 + TransformerConfig(cross_entropy_fusion_impl,disable_bf16_reduced_precision_matmul)
megatron 0.12 + TransformerConfig(first_last_layers_bf16,fp8_param,fp8_recipe,heterogeneous_block_specs)
megatron 0.12 + TransformerConfig(init_model_with_meta_device,is_hybrid_model,mamba_head_dim,mamba_num_groups)
megatron 0.12 + TransformerConfig(mamba_state_dim,moe_apply_probs_on_input,moe_enable_deepep,moe_router_dtype)
megatron 0.12 + TransformerConfig(mrope_section,mtp_loss_scaling_factor,mtp_num_layers,num_layers_at_end_in_bf16)
megatron 0.12 + TransformerConfig(num_layers_at_start_in_bf16,pipeline_model_parallel_comm_backend,recompute_modules)
megatron 0.12 + DistributedDataParallelConfig(check_for_large_grads,data_parallel_sharding_strategy)
megatron 0.12 + DistributedDataParallelConfig(gradient_reduce_div_fusion)
megatron 0.12 + DistributedDataParallelConfig(keep_fp8_transpose_cache_when_using_custom_fsdp)
megatron 0.12 + DistributedDataParallelConfig(pad_buckets_for_high_nccl_busbw,preserve_fp32_weights)
megatron 0.12 + DistributedDataParallelConfig(suggested_communication_unit_size,use_custom_fsdp)
megatron 0.12 + GPTModel(mtp_block_spec)
megatron 0.12 + initialize_model_parallel(create_gloo_process_groups,pipeline_model_parallel_comm_backend)
megatron 0.12 + get_gpt_layer_with_transformer_engine_spec(qk_l2_norm)
megatron 0.12 + get_gpt_decoder_block_spec(normalization,qk_l2_norm) get_gpt_layer_local_spec(normalization,qk_l2_norm)
megatron 0.12 + /core.inference.contexts deprecate_inference_params@utils get_gpt_mtp_block_spec@gpt_layer_specs
megatron 0.12 + WrappedTensor@utils /core.fp8_utils Fp8Recipe@enums /core.transformer.multi_token_prediction
megatron 0.12 + /core.post_training.modelopt.gpt.model_specs /core.distributed.custom_fsdp
megatron 0.12 + /core.models.gpt.heterogeneous.heterogeneous_layer_specs
megatron 0.12 + /core.transformer.heterogeneous.heterogeneous_config /core.process_groups_config
megatron 0.12 + MultimodalRotaryEmbedding@rotary_pos_embedding L2Norm@torch_norm is_fa_min_version@utils
megatron 0.12 + deprecate_inference_params@attention BaseInferenceContext@attention
megatron 0.13 + TransformerConfig(delay_wgrad_compute,hetereogenous_dist_checkpoint,mamba_num_heads)
megatron 0.13 + TransformerConfig(mlp_chunks_for_prefill,moe_deepep_num_sms,moe_router_force_load_balancing)
megatron 0.13 + TransformerConfig(moe_router_padding_for_fp8,no_rope_freq,pipeline_model_parallel_layout,quant_recipe)
megatron 0.13 + TransformerConfig(symmetric_ar_type,use_kitchen,use_mamba_mem_eff_path)
megatron 0.13 + DistributedDataParallelConfig(fsdp_double_buffer,nccl_ub,reuse_grad_buf_for_mxfp8_param_ag)
megatron 0.13 + GPTModel(vp_stage) initialize_model_parallel(high_priority_stream_groups)
megatron 0.13 + get_gpt_layer_with_transformer_engine_spec(use_kitchen,use_te_op_fuser)
megatron 0.13 + get_gpt_decoder_block_spec(vp_stage) get_gpt_layer_local_spec(use_kitchen)
megatron 0.13 + get_gpt_mtp_block_spec(vp_stage) GPTDatasetConfig(mid_level_dataset_surplus,object_storage_cache_path)
megatron 0.13 + get_pg_rank@utils get_pg_size@utils LayerType@enums /core.transformer.pipeline_parallel_layer_layout
megatron 0.13 + get_tensor_model_parallel_group_if_none@utils set_experimental_flag@config apply_random_logits@moe_utils
megatron 0.13 + /core.ssm.mamba_context_parallel /core.quantization.utils /core.quantization.quant_config
megatron 0.13 + HAVE_TE@transformer_engine
megatron 0.13 - GPTDatasetConfig(s3_cache_path)
megatron 0.14 + TransformerConfig(cpu_offloading_double_buffering,embedding_init_method,embedding_init_method_std)
megatron 0.14 + TransformerConfig(moe_router_fusion,overlap_moe_expert_parallel_comm,transformer_impl)
megatron 0.14 + TransformerConfig(use_fused_weighted_squared_relu)
megatron 0.14 + DistributedDataParallelConfig(delay_wgrad_compute,disable_symmetric_registration)
megatron 0.14 + DistributedDataParallelConfig(keep_fp8_transpose_cache,outer_dp_sharding_strategy,use_megatron_fsdp)
megatron 0.14 + GPTModel(model_comm_pgs) initialize_model_parallel(sharp_enabled_group)
megatron 0.14 + GPTDatasetConfig(full_validation,multiple_validation_sets)
megatron 0.14 + MLATransformerConfig(cache_mla_latents,original_max_position_embeddings) is_pp_last_stage@utils
megatron 0.14 + is_pp_first_stage@utils unwrap_model@utils /core.activations is_vp_first_stage@utils
megatron 0.14 + is_vp_last_stage@utils /core.hyper_comm_grid FullyShardedDataParallel@distributed /core.full_cuda_graph
megatron 0.14 + /core.distributed.fsdp.mcore_fsdp_adapter /core.transformer.fsdp_dtensor_checkpoint
megatron 0.14 + /core.distributed.fsdp.src.megatron_fsdp.uneven_dtensor P2PCommunicator@p2p_communication
megatron 0.14 - TransformerConfig(pipeline_model_parallel_split_rank)
megatron 0.14 - DistributedDataParallelConfig(keep_fp8_transpose_cache_when_using_custom_fsdp)
megatron 0.14 - initialize_model_parallel(encoder_pipeline_model_parallel_size,encoder_tensor_model_parallel_size)
megatron 0.14 - initialize_model_parallel(pipeline_model_parallel_split_rank)
megatron 0.14 - MLATransformerConfig(max_position_embeddings)=original_max_position_embeddings
megatron 0.14 - /core.distributed.custom_fsdp=megatron.core.distributed.fsdp
megatron 0.15 + TransformerConfig(activation_func_clamp_value,fp4,fp4_param,fp4_recipe,fused_single_qkv_rope)
megatron 0.15 + TransformerConfig(glu_linear_offset,softmax_type,use_te_activation_func,window_attn_skip_freq)
megatron 0.15 + GPTModel(pg_collection) get_gpt_layer_with_transformer_engine_spec(use_te_activation_func)
megatron 0.15 + get_gpt_decoder_block_spec(pp_rank) get_gpt_mtp_block_spec(pp_rank)
megatron 0.15 + ProcessGroupCollection@process_groups_config quick_gelu@fused_bias_geglu /core.tokenizers
megatron 0.15 - GPTModel(model_comm_pgs)=pg_collection
megatron 0.15 - ModelCommProcessGroups@process_groups_config=ProcessGroupCollection
megatron 0.16 + TransformerConfig(attention_output_gate,batch_invariant_mode,ep_overlap_early_attn_memory_release)
megatron 0.16 + TransformerConfig(experimental_attention_variant,fine_grained_activation_offloading)
megatron 0.16 + TransformerConfig(fp4_quantizer_factory,fp8_quantizer_factory,hybrid_context_parallel)
megatron 0.16 + TransformerConfig(log_max_attention_logit,max_seqlen_per_dp_cp_rank,min_offloaded_tensor_size)
megatron 0.16 + TransformerConfig(moe_enable_routing_replay,moe_flex_dispatcher_backend,moe_latent_size)
megatron 0.16 + TransformerConfig(moe_router_padding_for_quantization,moe_shared_expert_gate,mtp_standalone)
megatron 0.16 + TransformerConfig(offload_modules,qk_clip,qk_clip_alpha,qk_clip_threshold,qk_l2_norm)
megatron 0.16 + TransformerConfig(use_inference_optimized_layers,use_kitchen_attention)
megatron 0.16 + DistributedDataParallelConfig(fsdp_manual_registration,reduce_scatter_with_fp32_accumulation)
megatron 0.16 + initialize_model_parallel(create_all_gather_group,hybrid_context_parallel)
megatron 0.16 + get_gpt_layer_with_transformer_engine_spec(use_kitchen_attention)
megatron 0.16 + get_gpt_layer_local_spec(use_kitchen_attention)
megatron 0.16 + GPTDatasetConfig(allow_ambiguous_pad_tokens,context_parallel_size,data_parallel_size)
megatron 0.16 + GPTDatasetConfig(defer_npy_index_mmap,fast_cache_load,hybrid_context_parallel,sequence_parallel_size)
megatron 0.16 + GPTDatasetConfig(sequences_per_dataset,token_dtype_code)
megatron 0.16 + /core.models.gpt.experimental_attention_variant_module_specs /core.transformer.moe.router_replay
megatron 0.16 + /core.pipeline_parallel.multimodule_communicator get_gpt_decoder_layer_specs@gpt_layer_specs
megatron 0.16 + /core.optimizer.muon get_standard_config_overrides@optimizer ParamKey@optimizer
megatron 0.16 + ensure_metadata_has_dp_cp_group@utils
megatron 0.17 + TransformerConfig(cpu_offloading_retain_pinned_cpu_buffers,fused_residual_rmsnorm)
megatron 0.17 + TransformerConfig(moe_pad_experts_for_cuda_graph_inference,moe_router_force_biased)
megatron 0.17 + TransformerConfig(mtp_hybrid_override_pattern,mtp_use_repeated_layer,use_mup)
megatron 0.17 + DistributedDataParallelConfig(fsdp_all_gather_in_start_param_sync)
megatron 0.17 + DistributedDataParallelConfig(fsdp_db_use_persist_buf_on_alloc_fail,megatron_fsdp_grad_comm_dtype)
megatron 0.17 + DistributedDataParallelConfig(megatron_fsdp_main_grads_dtype,megatron_fsdp_main_params_dtype)
megatron 0.17 + DistributedDataParallelConfig(param_name_patterns_for_fp32_local_accumulation)
megatron 0.17 + initialize_model_parallel(local_world_size,rank_offset) MLATransformerConfig(mla_down_proj_fusion)
megatron 0.17 + MultiModuleProcessGroupCollection@process_groups_config
megatron 0.17 + parse_hybrid_pattern@mamba_hybrid_layer_allocation get_submodules@spec_utils
megatron 0.17 - TransformerConfig(async_tensor_model_parallel_allreduce,moe_extended_tp,moe_use_legacy_grouped_gemm)
megatron 0.17 - DistributedDataParallelConfig(preserve_fp32_weights)
megatron 0.17 - /core.inference.model_inference_wrappers.inference_wrapper_config=megatron.core.inference.config
megatron 0.17 - async_calls@base
megatron 0.18 + TransformerConfig(fp8_output_proj,high_priority_a2a_comm_stream,mlp_chunks_for_training)
megatron 0.18 + TransformerConfig(moe_expert_rank_capacity_factor,moe_mlp_glu_interleave_size)
megatron 0.18 + TransformerConfig(moe_permute_fusion_into_hybridep,moe_single_grouped_bias,moe_single_grouped_weight)
megatron 0.18 + TransformerConfig(overlap_dispatch_backward_with_experts_wgrad,use_grouped_gemm_for_dense_mlp)
megatron 0.18 + TransformerConfig(use_transformer_engine_op_fuser)
megatron 0.18 + DistributedDataParallelConfig(fp4_param_gather,megatron_fsdp_cuda_graph_mode)
megatron 0.18 + DistributedDataParallelConfig(megatron_fsdp_enable_fine_grained_param_gather)
megatron 0.18 + DistributedDataParallelConfig(megatron_fsdp_use_decoupled_grad,num_buckets)
megatron 0.18 + /core.models.hybrid.hybrid_model /core.models.hybrid.hybrid_layer_specs
megatron 0.18 + /core.transformer.moe.paged_stash /core.post_training.modelopt.hybrid.model_specs
megatron 0.18 - initialize_model_parallel(create_all_gather_group) parse_hybrid_pattern@mamba_hybrid_layer_allocation
megatron 0.18 - mamba_stack_spec@mamba_layer_specs=megatron.core.models.hybrid.hybrid_layer_specs
megatron 0.19 + TransformerConfig(activation_offload_fraction,delay_offload_until_cuda_graph)
megatron 0.19 + TransformerConfig(delta_offload_bytes_across_pp_ranks,experimental_attention_variant_loss_scale_func)
megatron 0.19 + TransformerConfig(expert_gtp_weight_remat_size,expert_tensor_parallel_num_weight_shards)
megatron 0.19 + TransformerConfig(flash_attention_version,mamba_training_ssm_states_dtype,moe_flex_dispatcher_num_sms)
megatron 0.19 + TransformerConfig(moe_grad_scale_func,moe_ncclep_static_shape,moe_ncclep_zero_copy)
megatron 0.19 + TransformerConfig(moe_router_quantile_balancing_ema,moe_shared_expert_glu_interleave_size)
megatron 0.19 + TransformerConfig(mtp_detach_heads,mtp_grad_scale_func,tensor_parallel_num_weight_shards)
megatron 0.19 + TransformerConfig(use_grouped_gemm_for_shared_expert)
megatron 0.19 + DistributedDataParallelConfig(megatron_fsdp_max_pool_double_buffer)
megatron 0.19 + initialize_model_parallel(expert_gtp_remat_size) GPTDatasetConfig(inter_document_masking)
megatron 0.19 - /core.dist_checkpointing.strategies.base
transformer_engine 1.8 + /pytorch.optimizers
transformer_engine 1.11 + /pytorch.tensor.float8_tensor Fp8Padding Fp8Unpadding /pytorch.permutation
transformer_engine 2.0 + MXFP8BlockScaling /pytorch.tensor.mxfp8_tensor Float8Quantizer
transformer_engine 2.2 + Float8CurrentScaling /pytorch.cross_entropy
transformer_engine 2.3 + Float8BlockScaling /pytorch.attention.rope /pytorch.tensor.float8_blockwise_tensor
transformer_engine 2.3 - apply_rotary_pos_emb@attention=transformer_engine.pytorch.attention.rope
transformer_engine 2.3 - _SplitAlongDim@attention
transformer_engine 2.6 + /pytorch.router
transformer_engine 2.8 + NVFP4BlockScaling
transformer_engine 2.9 + /pytorch.quantization quantized_model_init
transformer_engine 2.10 + /pytorch.quantized_tensor
transformer_engine 2.10 - get_workspace@base
transformer_engine 2.17 + /pytorch.ep
"""

# Month of a release, from its tag.
RELEASED = {
    "megatron": "0.13 2025-07 0.14 2025-10 0.15 2025-12 0.16 2026-02 0.17 2026-04 0.18 2026-06 0.19 2026-08",
    "transformer_engine": "1.8 2024-07 1.11 2024-10 2.0 2025-02 2.2 2025-04 2.3 2025-04 2.6 2025-07 2.8 2025-10 "
    "2.9 2025-10 2.10 2025-11 2.17 2026-07",
}

PAGES = {
    "megatron": "https://github.com/NVIDIA/Megatron-LM/releases/tag/core_v{release}.0",
    "transformer_engine": "https://github.com/NVIDIA/TransformerEngine/releases/tag/v{release}",
}
