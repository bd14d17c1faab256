"""Do the script's model, tokenizer, dataset and Trainer arguments fit together?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import said

_TRAINER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
_TOKENIZER = "https://huggingface.co/docs/transformers/main_classes/tokenizer"
_TEMPLATES = "https://huggingface.co/docs/transformers/chat_templating"
_PEFT = "https://huggingface.co/docs/peft/developer_guides/troubleshooting"


# fmt: off
_NO_TARGETS = Case(
    said(r"Target modules (?:\[\s*\]|\{\s*\}|set\(\)|'') not found"),
    "LoRA's list of target modules is empty",
    "The code that collects the names (find_all_linear_names and similar) found no layer of the class it looks for: "
    "the model is not quantized as it expects (Linear4bit, Linear8bitLt), or has other layers.",
    Fix("Name the layers, or target all linear ones.",
        ("LoraConfig(target_modules='all-linear')",
         "print({{(name.rpartition('.')[2], type(one).__name__) for name, one in model.named_modules()}})")),
    "ValueError: Target modules [] not found in the base model. Please check the target modules and try again.\n",
    _PEFT)
# fmt: on


def _not_imported(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a name of accelerate that the script itself uses without importing it."""
    if raised is None or not raised.packages or raised.packages[-1]:
        return None
    name = groups["name"]
    return Meaning(
        f"the script uses {name} of accelerate without importing it",
        "Python does not find the name in the script's own file.",
        (Fix("Import it.", (python("from accelerate import {:name}", name),)),),
    )


# fmt: off
ROWS = (
    Row("log_pad_token_missing", "root", "script",
        r"Asking to pad but the tokenizer does not have a padding token|"
        r"attempting to pad samples but the tokenizer|Cannot handle batch sizes > 1 if no padding "
        r"token"
        r"|Padding is enabled, but the tokenizer is not configured with a padding|`pad_token_id` is missing in the `|"
        r"Can't find `pad_token_id` in the",
        ("ValueError: Asking to pad but the tokenizer does not have a padding token. Please select a token to use as "
         "`pad_token` `(tokenizer.pad_token = tokenizer.eos_token e.g.)`",
         "ValueError: Cannot handle batch sizes > 1 if no padding token is defined.",
         "ValueError: Padding is enabled, but the tokenizer is not configured with a padding token. Explicitly set "
         "`tokenizer.pad_token`",
         "ValueError: `padding_value` is not specified in `DPOConfig`, and `pad_token_id` is missing in the "
         "`processing_class`."),
        "the tokenizer or the model has no padding token",
        "Samples of different lengths are padded to one length. Many base models define no token for it.",
        Fix("Set one, in the tokenizer and the model.",
            ("tokenizer.pad_token = tokenizer.eos_token", "model.config.pad_token_id = tokenizer.pad_token_id")),
        _TOKENIZER),
    Row("log_chat_template_missing", "root", "script",
        r"tokenizer\.chat_template is not set|does not have a chat template|no chat template",
        ("ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template "
         "argument was passed!",),
        "the tokenizer has no chat template",
        "It belongs to a base model. Older transformers releases used a default template, which 4.44 removed.",
        Fix("Use the tokenizer of the instruction-tuned model, or set a template.",
            ("tokenizer.chat_template = open('template.jinja').read()",)),
        _TEMPLATES),
    Row("log_chat_template_refused", "root", "script",
        r"(?:jinja2\.exceptions\.)?TemplateError: (?P<what>(?=.*(?i:roles?|system|user|assistant|messages?|"
        r"conversation|content|tool|image)).+)",
        ("jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...",
         "jinja2.exceptions.TemplateError: System role not supported"),
        "the model's chat template refuses the messages: {what}",
        "The template checks the roles and their order, and stops with this message. Many accept user and assistant "
        "only in turns, beginning with the user, and some no system message. One sample of the data breaks that.",
        (Fix("Find the sample: print the roles of each conversation.",
             ("print({{tuple(m['role'] for m in one['messages']) for one in dataset}})",)),
         Fix("Merge messages in a row that have the same role, put the system text into the first user message, and "
             "drop what comes before it."),
         Fix("Or use the template of a tokenizer that accepts them.",
             ("tokenizer.chat_template = open('template.jinja').read()",))),
        _TEMPLATES, summary="The model's chat template refuses the messages of a sample."),
    Row("log_chat_message_malformed", "root", "script",
        r"jinja2\.exceptions\.UndefinedError: (?P<what>.+)",
        ("jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'role'",),
        "the chat template reads something that the messages do not have: {what}",
        "A message is a dictionary with role and content. ShareGPT data has from and value, other data has text in "
        "place of the list of messages, or lacks a field that this template reads (tools, documents).",
        (Fix("Look at one sample, and rename its fields.",
             ("print(dataset[0])", "[{{'role': m['from'], 'content': m['value']}} for m in one['conversations']]")),),
        _TEMPLATES, summary="A message lacks a field that the chat template reads."),
    Row("log_lora_targets_missing", "root", "script",
        r"Target modules .+ not found in the base model|No modules were targeted for adaptation|"
        r"Please specify `target_modules`"
        r"|All modules were excluded\. This is likely unintended|"
        r"No `target_modules` passed but also no `target_parameters`",
        ("ValueError: Target modules {'q_proj', 'v_proj'} not found in the base model. Please check the target modules "
         "and try again.", "ValueError: Please specify `target_modules` in `peft_config`",
         "ValueError: All modules were excluded. This is likely unintended. Check your `target_modules`, "
         "`exclude_modules` and `modules_to_save` configuration."),
        "LoRA's target modules do not exist in this model",
        "Layers have other names in other architectures, or after a wrapper renamed them.",
        Fix("Target all linear layers, or look up the names.",
            ("LoraConfig(target_modules='all-linear')",
            "print({{name for name, _ in model.named_modules()}})")), _PEFT, cases=(_NO_TARGETS,)),
    Row("log_quantized_not_trainable", "root", "script",
        r"cannot perform fine-tuning on purely quantized models|"
        r"quantization method \S+ .*does not support training|is not trainable with (?:this )?quantization",
        ("ValueError: You cannot perform fine-tuning on purely quantized models. Please attach trainable adapters on "
         "top of the quantized model to correctly perform fine-tuning.",),
        "a quantized model is trained without adapters",
        "Quantized weights cannot be updated. QLoRA trains small adapters next to them.",
        Fix("Add LoRA adapters, or load the model without quantization.", ("model = get_peft_model(model, "
                                                                           "LoraConfig(...))",)),
        _PEFT),
    Row("log_strategies_differ", "root", "script",
        r"load_best_model_at_end requires the save and eval(?:uation)? strategy to match|"
        r"requires the saving steps to be a round multiple"
        r"|requires the saving steps to be a multiple of the evaluation steps",
        ("ValueError: --load_best_model_at_end requires the save and eval strategy to match, but found",
         "ValueError: --load_best_model_at_end requires the saving steps to be a round multiple of the evaluation "
         "steps",
         "ValueError: --load_best_model_at_end requires the saving steps to be a multiple of the evaluation steps, "
         "but found 0.2, which is not a multiple of 0.3."),
        "load_best_model_at_end needs checkpoints at the steps that are evaluated",
        "save_strategy and eval_strategy, or their steps, differ.",
        Fix("Set both to the same.", ("TrainingArguments(eval_strategy='steps', save_strategy='steps', eval_steps=500, "
                                      "save_steps=500)",)), _TRAINER),
    Row("log_columns_do_not_match", "root", "script", r"No columns in the dataset match the model's forward method",
        ("ValueError: No columns in the dataset match the model's forward method signature: (input_ids, labels).",),
        "Trainer removed all columns of the dataset: none is an argument of the model",
        "The dataset is not tokenized, or the model is wrapped and Trainer reads the wrapper's arguments.",
        Fix("Tokenize first, or keep the columns for your own collator.",
            ("TrainingArguments(remove_unused_columns=False)",)), _TRAINER),
    Row("log_accelerate_not_imported", "root", "library",
    r"name '(?P<name>init_empty_weights|dispatch_model|PartialState|"
        r"infer_auto_device_map)' is not defined",
        ("NameError: name 'init_empty_weights' is not defined", "NameError: name 'PartialState' is not defined"),
        "transformers could not import accelerate: {name} is not defined",
        "accelerate is not installed, or too old for this transformers, which then continues without it.",
        Fix("Install it.", ("pip install --upgrade accelerate", "pip show accelerate transformers")), _TRAINER,
        summary="transformers could not import accelerate.", explain=_not_imported),
    Row("log_offload_with_own_optimizer", "root", "script",
        r"You are using ZeRO-Offload with a client provided optimizer",
        ("deepspeed.runtime.zero.utils.ZeRORuntimeException: You are using ZeRO-Offload with a client provided "
         "optimizer (<class 'torch.optim.adamw.AdamW'>) which in most cases will yield poor performance.",),
        "the optimizer is offloaded to the CPU, but the script creates one for the GPU",
        "DeepSpeed has its own CPU Adam. It refuses another one unless you allow it.",
        Fix("Let the DeepSpeed file create the optimizer, or allow your own.",
            ("accelerate.utils.DummyOptim(params)", '"zero_force_ds_cpu_optimizer": false')),
        "https://www.deepspeed.ai/docs/config-json/#optimizer-parameters"),
    Row("log_autograd_after_fork", "root", "script", r"Unable to handle autograd's threading in combination with fork",
        ("RuntimeError: Unable to handle autograd's threading in combination with fork-based multiprocessing.",),
        "the process forked after it had run backward()",
        "A notebook trained in the same kernel before notebook_launcher, or a library forks in the middle of training.",
        Fix("Restart the kernel, or start processes with spawn.", ("torch.multiprocessing.set_start_method('spawn')",)),
        "https://github.com/pytorch/pytorch/wiki/Autograd-and-Fork"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
