"""Is a model not known to the installed transformers or vLLM, or loaded with the wrong class?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from .. import _skew_meanings as meanings
from .. import _version_skew as skew

_AUTO = "https://huggingface.co/docs/transformers/model_doc/auto"
_MODEL_TYPES = "|".join(name for name in skew.model_types() if re.search(r"[_\d]", name))

# fmt: off
ROWS = (
    Row("log_model_not_known", "root", "library",
        r"has model type `(?P<model>[\w.-]+)` but Transformers does not recognize this architecture",
        ("ValueError: The checkpoint you are trying to load has model type `my_new_model` but Transformers does not "
         "recognize "
         "this architecture. This could be because of an issue with the checkpoint, or because your version of "
         "Transformers is out of date.",
         "ValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not "
         "recognize this architecture."),
        "the installed transformers does not know {model} models",
        "It is older than the model, or the model comes with its own code (trust_remote_code).",
        (Fix("Upgrade it.", ("pip install --upgrade transformers", "pip show transformers")),
         Fix("If the model comes with its own code (auto_map in its config.json), allow it.",
             ("from_pretrained(..., trust_remote_code=True)",))), _AUTO,
        summary="The installed transformers is too old for the model.", explain=meanings.explain_model),
    Row("log_model_key_not_known", "root", "library", rf"^KeyError: '(?P<model>{_MODEL_TYPES})'$",
        ("KeyError: 'qwen2_5_vl'", "KeyError: 'gemma3'"),
        "the installed transformers is too old for {model} models", "Its table of models has no such entry.",
        Fix("Upgrade it.", ("pip show transformers", "pip install --upgrade transformers")), _AUTO,
        summary="The installed transformers has no entry for the model.", explain=meanings.explain_model),
    Row("log_architecture_not_supported", "root", "library",
        r"Model architectures \['(?P<model>\w+)'[^\]]*\] (?:are not supported for now|failed to be inspected)",
        ("ValueError: Model architectures ['Qwen3ForCausalLM'] are not supported for now. Supported architectures: x",
         "ValueError: Model architectures ['Gemma3ForConditionalGeneration'] failed to be inspected."),
        "the installed vLLM does not support {model}",
        "It is older than the model, or its copy of the model does not fit the installed transformers.",
        Fix("Upgrade both.", ("pip install --upgrade vllm transformers", "pip show vllm transformers")),
        "https://docs.vllm.ai/en/latest/models/supported_models.html",
        summary="The installed vLLM does not support the model."),
    Row("log_tokenizer_class_not_known", "root", "library",
        r"Tokenizer class (?P<model>\w+) does not exist or is not currently imported",
        ("ValueError: Tokenizer class FrobTokenizer does not exist or is not currently imported.",
         "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently imported."),
        "the installed transformers has no tokenizer class {model}",
        "The tokenizer was saved with a newer transformers, or needs a package that is not installed.",
        Fix("Upgrade it.", ("pip install --upgrade transformers tokenizers", "pip show transformers")), _AUTO,
        summary="The installed transformers lacks the tokenizer's class.", explain=meanings.explain_model),
    Row("log_auto_class_wrong", "root", "script",
        r"Unrecognized configuration class <class '[\w.]+\.(?P<config>\w+)'> (?:for this kind of|to build an) "
        r"(?:AutoModel|Auto\w+)",
        ("ValueError: Unrecognized configuration class <class "
         "'transformers.models.llava.configuration_llava.LlavaConfig'> "
         "for this kind of AutoModel: AutoModelForCausalLM.",
         "ValueError: Unrecognized configuration class <class 'transformers_modules.x.configuration_y.YConfig'> to "
         "build an "
         "AutoTokenizer."),
        "the Auto class that the script uses cannot build a model of {config}",
        "The model is of another kind (image and text, sequence to sequence), or only a newer transformers can.",
        (Fix("Use the class that the model's page names, for example AutoModelForImageTextToText.", ()),
         Fix("If it is the right class, upgrade transformers.", ("pip install --upgrade transformers",))), _AUTO,
        summary="The script loads a model with the wrong Auto class."),
    Row("log_model_type_missing", "root", "script", r"Unrecognized model in (?P<path>\S+?)\. Should have a "
                                                    r"`model_type` key",
        ("ValueError: Unrecognized model in /data/run/checkpoint-100. Should have a `model_type` key in its "
         "config.json",),
        "{path} is not a model that transformers can load",
        "Its config.json has no model_type: a LoRA adapter, an incomplete checkpoint, or a folder above the model.",
        Fix("Check what is in it.", ("ls -la {path:path}",)), _AUTO,
        summary="A folder is not a model that transformers can load."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
