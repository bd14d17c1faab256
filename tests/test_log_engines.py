"""What engines for inference, PEFT, tokenizers for words, kernels and trackers refuse, and messages like these."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

LAYERS = ("peft/tuners/tuners_utils.py", "check_target_module_exists", "found = layer_index in layer_indexes")
SDPA = ("torch/nn/functional.py", "scaled_dot_product_attention", "return torch._C._nn.sdpa(q, k, v)")
COMPILED = ("torch/_inductor/codecache.py", "__call__", "return self.current_callable(inputs)")
NPU = ("vllm_ascend/attention.py", "forward", "raise RuntimeError(")
LOAD = ("vllm/model_executor/models/llama.py", "load_weights", "loader = param.weight_loader")
SYNC = ("trl/generation/vllm_generation.py", "sync_weights", "llm_model.load_weights([(name, param.data)])")
LOSS = ("unsloth_zoo/fused_losses/cross_entropy_loss.py", "_get_chunk_multiplier", "raise RuntimeError(")
KEY = ("wandb/sdk/lib/apikey.py", "write_key", "raise ValueError(")
MERGE = ("llamafactory/train/tuner.py", "export_model", "raise ValueError(")
WORDS = ("transformers/tokenization_utils_fast.py", "_batch_encode_plus", "out = self._tokenizer.encode_batch(x)")
POOL = ("multiprocess/pool.py", "get", "raise self._value")
NOT_STRING = "TypeError: 'in <string>' requires string as left operand, not int"
BIAS = "RuntimeError: invalid dtype for bias - should match query's dtype"
LOADER = "AttributeError: 'Parameter' object has no attribute 'weight_loader'"
PRE = "TypeError: PreTokenizedEncodeInput must be Union[PreTokenizedInputSequence, Tuple[PreTokenizedInputSequence]]"

CONFIG = ("unsloth_zoo/hf_utils.py", "get_transformers_model_type", "raise RuntimeError(")
NO_CONFIG = "RuntimeError: Unsloth: No config file found - are you sure the `model_name` is correct?"


def words(code: str, below: tuple[tuple[str, str, str], ...], error: str, folder: Path) -> str:
    return " | ".join(explained(folder, f"{frames((SCRIPT, 'main', code), *below)}{error}\n"))


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "fix"),
    [
        ("m = get_peft_model(m, c)", (LAYERS,), NOT_STRING, "layers_to_transform is a text", "int(x) for x in"),
        ("trainer.train()", (COMPILED, SDPA), BIAS, "the attention mask (bias) has another dtype than the query",
         "torch_compile=False"),
        ("y = attention(q, k, v, mask)", (SDPA,), BIAS, "the attention mask (bias) has another dtype",
         "mask.to(query.dtype)"),
        ("out = llm.generate(p)", (NPU,), "RuntimeError: Prefix cache and chunked prefill are currently not supported.",
         "supports neither prefix caching nor chunked prefill", "enable_prefix_caching=False"),
        ("trainer.train()", (SYNC, LOAD), LOADER, "cannot load the trainer's weights into a parameter",
         "quantization=None"),
        ("trainer.train()", (LOSS,), "RuntimeError: Unsloth: No or negligible GPU memory available for fused cross "
         "entropy.", "the GPU has no memory left for Unsloth's loss", "nvidia-smi"),
        ("model, tok = load(args.adapter)", (CONFIG,), NO_CONFIG, "finds no config of the model that it should load",
         "afterok:JOBID"),
        ("FastVisionModel.from_pretrained('ada/tiny')", (CONFIG,), NO_CONFIG, "its folder or name does not exist",
         "hf download"),
        ("wandb.login(key=k)", (KEY,), "ValueError: API key must be 40 characters long, yours was 9",
         "is none: it has 9 characters", "wandb login"),
        ("wandb.login(key=k)", (KEY,), "ValueError: API key must have 40+ characters, has 11.",
         "is none: it has 11 characters", "wandb login"),
        ("wandb.login(key=k)", (KEY,), "ValueError: API key must be 40 characters long, yours was 86",
         "has 86 characters, and the installed release of wandb takes 40", "--upgrade wandb"),
        ("export(args)", (MERGE,), "ValueError: Cannot merge adapters to a quantized model.",
         "merged into a quantized model", "ORIGINAL_MODEL"),
        ("m.merge_and_unload()", (("peft/tuners/lora/model.py", "_check", "raise ValueError("),),
         "ValueError: Cannot merge LORA layers when the model is gptq quantized", "merged into a quantized model",
         "side by side"),
        ("b = tok(texts, is_split_into_words=True)", (WORDS,), PRE, "expects a text as a list of words",
         "is_split_into_words=True"),
        ("ds = ds.map(f)", (POOL,), PRE, "expects a text as a list of words", "language model"),
    ],
)
def test_what_an_engine_refuses(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, fix: str, tmp_path: Path
) -> None:
    said = words(code, below, error, tmp_path)
    assert title in said, said
    assert fix in said, said


@pytest.mark.parametrize(
    ("code", "below", "error", "not_said"),
    [
        ("if n in name:", (), NOT_STRING, "layers_to_transform"),
        # torch's functions that are never compiled pass through this file, too
        ("y = attention(q, k, v, mask)", (("torch/_dynamo/eval_frame.py", "_fn", "return fn(*args)"), SDPA), BIAS,
         "torch.compile generated"),
        ("y = attention(q, k, v, mask)", (SDPA,), "RuntimeError: invalid dtype for weight", "attention mask"),
        ("out = llm.generate(p)", (NPU,), "RuntimeError: Sliding window is currently not supported.", "prefix caching"),
        ("out = llm.generate(p)", (NPU,), "RuntimeError: Prefix cache and chunked prefill are currently not supported "
         "when using quantization.", "supports neither"),
        ("f = p.weight_loader", (), LOADER, "it replaced"),
        ("llm = LLM(model)", (LOAD,), LOADER, "it replaced"),  # the first load
        ("trainer.train()", (SYNC, LOAD), "AttributeError: 'Parameter' object has no attribute 'scale'",
         "it replaced"),
        ("trainer.train()", (LOSS,), "RuntimeError: Unsloth: No labels are available for fused cross entropy.",
         "nvidia-smi"),
        ("wandb.login(key=k)", (KEY,), "ValueError: API key must be 40 characters long, yours was 86", "placeholder"),
        ("wandb.login(key=k)", (KEY,), "ValueError: API key is not known to the server of the team", "placeholder"),
        ("export(args)", (MERGE,), "ValueError: Cannot merge adapters to a model of another type at all.", "quantized "
         "model, which"),
        ("b = tok(texts)", (WORDS,), "TypeError: TextEncodeInput must be Union[TextInputSequence, Tuple[x]]",
         "list of words"),
        ("ds = ds.map(f)", (POOL,), "ValueError: The samples of this file are not what the reader can take",
         "multiprocess checked"),
    ],
)
def test_similar_messages_of_others(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, not_said: str, tmp_path: Path
) -> None:
    assert not_said not in words(code, below, error, tmp_path)
# fmt: on
