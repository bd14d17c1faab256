"""Can the pretrained model and its tokenizer be loaded: its files, sizes, attention, tokenizer?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from . import _file_cases

_MODEL = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"
_ATTENTION = "https://huggingface.co/docs/transformers/main/en/attention_interface"
_TOKENIZERS = "https://github.com/huggingface/tokenizers/releases"
_HUB = "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/hub.py"
_GENERATION = (
    "It is the base model's generation_config.json, which transformers checks when it saves a checkpoint. Training "
    "itself does not use it. The message names the values."
)
_CORRECT = (
    Fix("Correct it in the script before training.", ("model.generation_config.do_sample = True",)),
    Fix("Or remove the values from the file of the base model.", ("cat MODEL/generation_config.json",)),
)
_UNUSED = re.compile(r"However, `(\w+)` is set to")


def _generation(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the values that the message lists."""
    text = " ".join(filter(None, (raised.message, raised.more))) if raised else ""
    names = list(dict.fromkeys(_UNUSED.findall(text)))
    if not names:
        return None
    return Meaning(
        f"the model cannot be saved: its generation config sets {listed(names)}, which do_sample=False does not use",
        _GENERATION,
        _CORRECT,
    )


# fmt: off
ROWS = (
    Row("log_generation_config_invalid", "root", "script",
        r"^ValueError: (?:The generation config instance is invalid|GenerationConfig is invalid|"
        r"\[UserWarning\(['\"]`\w+` is set to )",
        ("ValueError: The generation config instance is invalid -- `.validate()` throws warnings and/or exceptions. "
         "Fix these issues to save the configuration.",
         "ValueError: [UserWarning('`do_sample` is set to `False`. However, `temperature` is set to `0.9` -- this flag "
         "is only used in sample-based generation modes.')]"),
        "the model cannot be saved: its generation config contradicts itself (usually temperature or top_p next to "
        "do_sample=False)",
        _GENERATION,
        _CORRECT, "https://github.com/OpenRLHF/OpenRLHF/issues/212", explain=_generation),
    Row("log_weights_file_missing", "root", "script",
        r"Error no file named (?:.{1,200}? )?found in (?:directory )?\S+|"
        r"No such file or directory: \"?\S+\.safetensors\"?$",
        ("OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory out/checkpoint-100.",
         "FileNotFoundError: No such file or directory: \"/data/m/model-00001-of-00004.safetensors\"",
         "OSError: Error no file named diffusion_pytorch_model.bin found in directory out/checkpoint-100/unet."),
        "the model folder lacks a file that from_pretrained() needs",
        "The checkpoint is sharded (FSDP, ZeRO) or holds an adapter only, its save was interrupted, only one node "
        "wrote it, or it is the folder above the model.",
        (Fix("Check which files exist, on every node.", ("ls -la MODEL_FOLDER",)),
         Fix("Merge a sharded checkpoint first.",
             ("accelerate merge-weights CHECKPOINT/pytorch_model_fsdp_0 OUTPUT",
              "python zero_to_fp32.py CHECKPOINT OUTPUT"))), _MODEL, cases=_file_cases.WEIGHTS),
    Row("log_model_file_missing", "root", "script",
        r"(?:OSError|EnvironmentError): (?P<folder>\S+) does not appear to have (?:a file|files) named "
        r"\(?'?(?P<file>[\w./-]*\w)",
        ("OSError: out/checkpoint-100 does not appear to have a file named config.json. Checkout "
         "'https://huggingface.co/out/checkpoint-100/tree/main' for available files.",
         "OSError: /data/m does not appear to have files named ('a-00001-of-00004.safetensors', "
         "'a-00002-of-00004.safetensors'). Checkout"),
        "the model folder or repository {folder} has no file {file}",
        "The folder is incomplete (a save or download was interrupted, only one node has it), it is not the model's "
        "own folder, or the file has another name in this release.",
        (Fix("Check which files exist, on every node.", ("ls -la {folder:path}",)),
         Fix("Copy {file} from the model that it was trained from, or download the model again.",
             ("hf download ORG/MODEL",))), _HUB,
        summary="A model folder or repository lacks a file.", cases=_file_cases.FILES),
    Row("log_weights_of_other_shape", "root", "script",
        r"Trying to set a tensor of shape (?:torch\.Size\(\[[^\]]*\]\)) in \"\w+\" \(which has shape "
        r"(?:torch\.Size\(\[[^\]]*\]\))\)|You set `ignore_mismatched_sizes` to `False`",
        ("ValueError: Trying to set a tensor of shape torch.Size([32001, 4096]) in \"weight\" (which has shape "
         "torch.Size([32000, 4096])), this looks incorrect.",),
        "saved weights have another shape than the model that loads them",
        "The vocabulary or the number of labels was changed before saving or after, the weights are quantized and the "
        "config does not say so, or the checkpoint was saved from shards (size 0).",
        (Fix("Load it with its own config.json and tokenizer, and resize embeddings afterwards.",
             ("model.resize_token_embeddings(len(tokenizer))",)),
         Fix("For a new head only, ignore the saved one.",
             ("from_pretrained(..., num_labels=5, ignore_mismatched_sizes=True)",))), _MODEL),
    Row("log_tied_head_missing", "root", "library",
        r"^KeyError: '(?:\w+\.)*lm_head\.weight'$|FSDP2 mapping failed \(missing|"
        r"Parameters missing after FSDP2 wrapping",
        ("KeyError: 'lm_head.weight'", "KeyError: 'model.lm_head.weight'",
         "ValueError: FSDP2 mapping failed (missing: ['lm_head.weight']). This is likely due to tied embeddings"),
        "a weight is missing where weights are assigned by name: usually the head, which is tied to the embedding",
        "Tied weights have one tensor and two names. The config says that they are tied but the checkpoint has both, "
        "or the reverse, and FSDP2 or vLLM then looks for a name that does not exist.",
        (Fix("Set the option to what the checkpoint has.", ("model.config.tie_word_embeddings = False",)),
         Fix("Or upgrade: newer releases match tied weights.",
             ("pip install --upgrade accelerate transformers", "pip show accelerate transformers vllm"))),
        "https://github.com/huggingface/accelerate/issues/3870"),
    Row("log_attention_not_available", "root", "script",
        r"does not support (?:an attention implementation through|Flash Attention)|"
        r"is not a valid attention implementation|"
        r"Could not find (?:any|the currently requested) flash attn? ?\w* implementation"
        r'|Specified `attn_implementation=\"[^\"]+\"` is not supported',
        ("ValueError: Phi3ForCausalLM does not support an attention implementation through "
         "torch.nn.functional.scaled_dot_product_attention yet. Please request the support for this architecture",
         "ValueError: FooModel does not support Flash Attention 2 yet. Please request to add support where the model "
         "is hosted", "KeyError: '`flash_attention_9` is not a valid attention implementation registered in the "
                   "`AttentionInterface`'",
         "ValueError: Specified `attn_implementation=\"flash_attention_9\"` is not supported. The only possible "
         "arguments are `attn_implementation=\"eager\"`"),
        "the model does not have the attention implementation that was requested",
        "Not each model supports each of them, and names differ between releases of transformers.",
        (Fix("Use another one.", ("from_pretrained(..., attn_implementation='eager')",
                                  "from_pretrained(..., attn_implementation='sdpa')")),
         Fix("Or upgrade transformers: newer releases support more.", ("pip install --upgrade transformers",))),
        _ATTENTION),
    Row("log_flash_attention_missing", "root", "library",
        r"FlashAttention\w* has been toggled on, but it cannot be used(?!.*not available on CPU)|"
        r"the package (?:for )?[Ff]lash_?[Aa]tt\w+ (?:doesn't seem|seems) to be|"
        r"(?:Error|Exception): .{0,60}(?<!ring_)[Ff]lash[-_ ]?[Aa]tt\w+`?(?: ?[23])? (?:is )?not "
        r"(?:installed|available)(?! on CPU)",
        ("ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the "
         "package flash_attn seems to be not installed.", "ImportError: flash_attn is not installed",
         "AssertionError: Flash Attention is not available"),
        "FlashAttention was requested, but flash-attn is not installed, too old, or cannot be imported",
        "It is a package of its own, built for one torch version. If it is installed, its import failed.",
        (Fix("Use PyTorch's own attention, which is nearly as fast.",
             ("from_pretrained(..., attn_implementation='sdpa')",)),
         Fix("Or install it, and check that it loads.",
             ("pip install --no-build-isolation flash-attn", "python -c 'import flash_attn'",
              "mgpu doctor --only extension_does_not_load"))), _ATTENTION),
    Row("log_padding_side_wrong", "root", "script", r"batched generation with padding_side='(?P<side>\w+)'",
        ("ValueError: You are attempting to perform batched generation with padding_side='right' this may lead to "
         "unexpected behaviour for Flash Attention version of Mistral.",),
        "the tokenizer pads on the {side}, which FlashAttention refuses while a cache is on",
        "The model takes a forward pass with a cache for generation, which continues at the right end.",
        Fix("Turn off the cache for training, or pad on the left for generation.",
            ("model.config.use_cache = False", "tokenizer.padding_side = 'left'")),
        "https://github.com/huggingface/transformers/issues/26877",
        summary="The tokenizer pads on the wrong side for FlashAttention."),
    Row("log_tokenizer_file_newer", "root", "library",
        r"data did not match any variant of untagged enum|"
        r"Error deserializing: missing field `?\w+`? at line \d+ column",
        ("Exception: data did not match any variant of untagged enum ModelWrapper at line 757443 column 3",
         "Exception: data did not match any variant of untagged enum PyPreTokenizerTypeWrapper at line 40 column 3"),
        "tokenizer.json has a format that the installed tokenizers package does not know",
        "It was saved by a newer release of tokenizers.",
        Fix("Upgrade it together with transformers.", ("pip install --upgrade transformers tokenizers",
                                                       "pip show transformers tokenizers")), _TOKENIZERS),
    Row("log_revision_missing", "root", "library",
        r"RevisionNotFoundError|is not a valid git identifier|Revision '[^']+' doesn't exist",
        ("huggingface_hub.errors.RevisionNotFoundError: 404 Client Error.",
         "OSError: v9 is not a valid git identifier (branch name, tag name or commit id) that exists for this model "
         "name."),
        "the requested revision (branch, tag or commit) of a model or dataset does not exist",
        "It is a typo, or its owner has deleted or renamed it.",
        Fix("Look it up on its page, or use main.", ("from_pretrained(..., revision='main')",)), _HUB),
    Row("log_custom_code_requires", "root", "library",
        r"Missing requirements in your local environment for|"
        r"modeling file requires the following packages that were not found in your environment",
        ("ImportError: This modeling file requires the following packages that were not found in your environment: "
         "einops. Run `pip install einops`",),
        "the model's own code needs packages that are not installed",
        "It comes with the model (trust_remote_code) and imports more than transformers needs.",
        Fix("Install what the line names. flash_attn is often optional: it has to be built, or patched out.",
            ("pip check",)), _HUB),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
