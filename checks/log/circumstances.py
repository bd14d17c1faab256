"""What does a log show of the run itself: its model, its framework, an option, what it was doing?

None of these is a fault. A case of a row (`Case`) can require them, with `shown` of `_circumstances`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures


def _row(name: str, pattern: str, samples: tuple[str, ...], source: str) -> Row:
    return Row(name, "context", "script", pattern, samples, "", "", Fix("No action needed.", ()), source)


# fmt: off
ROWS = (
    _row("multimodal_model",
         r"\b(?:Qwen[\d.]*-?(?:VL|Omni)|LLaVA|InternVL|MiniCPM-[VO]|Idefics|PaliGemma|Pixtral|mllama)\b|"
         r"\b(?:pixel_values|vision_tower|image_grid_thw)\b",
         ("Loading Qwen2.5-VL-7B-Instruct", "    features = self.vision_tower(pixel_values)"),
         "https://huggingface.co/docs/transformers/model_doc/qwen2_5_vl"),
    _row("expert_model",
         r"\bMixtral\b|num_experts|expert_parallel|\bDeepSeek-?V[23]\b|\bQwen[\d.]+-\d+B-A\d+B\b",
         ("model: Qwen3-30B-A3B", "Initializing MoE layer with num_experts 64"),
         "https://huggingface.co/docs/transformers/model_doc/mixtral"),
    _row("one_process",
         r"\blocal_rank: -1, world_size\b|Process rank: -1\b|Process rank: 0, .*\bdistributed training: False",
         ("[INFO:swift] rank: 0, local_rank: -1, world_size: 2, local_world_size: 1",
          "Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False, compute dtype: torch.bfloat16",
          "Process rank: -1, device: cuda:0, n_gpu: 4distributed training: False, 16-bits training: False"),
         "https://github.com/hiyouga/LlamaFactory/issues/4557"),
    _row("weights_saved_alone", r"save_only_model['\"]?[=:] ?[Tt]rue",
         ("SftArguments(sft_type='lora', save_only_model=True, deepspeed=None)", "save_only_model: true"),
         "https://github.com/modelscope/ms-swift/issues/574"),
    _row("spread_by_device_map", r"['\"]device_map['\"]: "
                                 r"['\"]auto['\"]|device_map=['\"](?:auto|balanced\w*)['\"]|MP\(device_map\)",
         ("[INFO:swift] model_kwargs: {'device_map': 'auto'}", "[INFO:swift] Using MP(device_map) + DDP"),
         "https://huggingface.co/docs/accelerate/concept_guides/big_model_inference"),
    _row("adapter_trained", r"trainable params: [\d,]+ \|\| all params|\bPeftModel\w*: [\d.]+M Params|\bLoraConfig\(|"
         r"\blora_(?:rank|alpha|target(?:_modules)?|dropout)\b['\"]?[=: ]|\badapter: q?lora\b|"
         r"(?:sft_type|train_type|finetuning_type)['\"]?[=: ]+['\"]?q?lora\b",
         ("adapter: qlora", "--train_type lora", "lora_rank: 16",
          "trainable params: 13,631,488 || all params: 7,255,363,584 || trainable%: 0.1879",),
         "https://huggingface.co/docs/peft/package_reference/peft_model"),
    _row("zero3",
         r"Detected DeepSpeed ZeRO-3|zero_?stage['\"]?[:= ]+3\b|(?<![a-z])zero3(?![a-z0-9])|ds_z3_|"
         r"['\"]stage['\"]: 3\b",
         ("Detected DeepSpeed ZeRO-3: activating zero.init() for this model", "'zero_optimization': {'stage': 3}",
          "--deepspeed default-zero3"),
         "https://www.deepspeed.ai/docs/config-json/"),
    _row("keys_of_wrapper",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: \"(?:module|_forward_module|_fsdp_wrapped_module)\.",
         ('\tMissing key(s) in state_dict: "module.embed.weight", "module.head.weight".',),
         "https://pytorch.org/docs/stable/generated/torch.nn.Module.html"),
    _row("keys_of_compiler", r"(?:Missing|Unexpected) key\(s\) in state_dict: \"(?:\w+\.)*_orig_mod\.",
         ('\tUnexpected key(s) in state_dict: "_orig_mod.embed.weight", "_orig_mod.head.weight".',),
         "https://pytorch.org/docs/stable/generated/torch.compile.html"),
    _row("keys_of_adapter",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: .*(?:\"base_model\.model\.|\.base_layer\.|\.lora_[AB]\.)",
         ('\tUnexpected key(s) in state_dict: "base_model.model.model.embed_tokens.weight".',),
         "https://huggingface.co/docs/peft/developer_guides/checkpoint"),
    _row("keys_of_quantizer",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: "
         r".*\.(?:absmax|quant_map|quant_state|SCB|weight_format|qweight|"
         r"qzeros|nested_absmax)\b",
         ('\tUnexpected key(s) in state_dict: "model.layers.0.mlp.up_proj.weight.absmax".',),
         "https://huggingface.co/docs/transformers/main/en/quantization/overview"),
    _row("keys_of_other_release",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: \"[\w.]*(?:position_ids|inv_freq|masked_bias|attn\.bias)\"",
         ('\tUnexpected key(s) in state_dict: "bert.embeddings.position_ids".',),
         "https://github.com/huggingface/transformers/pull/24505"),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
