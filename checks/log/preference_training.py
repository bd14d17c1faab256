"""Did trl refuse a dataset, a reference model, a reward function or its vLLM server?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_DPO = "https://github.com/huggingface/trl/blob/main/trl/trainer/dpo_trainer.py"
_SFT = "https://github.com/huggingface/trl/blob/main/trl/trainer/sft_trainer.py"
# fmt: off
ROWS = (
    Row("log_reward_count_wrong", "root", "script",
        r"The reward function '(?P<function>[^']+)' returned (?P<got>\d+) rewards, but (?P<wanted>\d+) were expected",
        ("ValueError: The reward function 'format_reward' returned 1 rewards, but 8 were expected (one per "
         "prompt-completion pair).",),
        "the reward function {function} returned {got} rewards for {wanted} completions",
        "It gets lists with one entry per completion of this rank, and must return a list of the same length. A "
        "function written for one completion returns a single number.",
        Fix("Return one reward per completion.",
            ("def reward(completions, **kwargs): return [score(one) for one in completions]",)),
        "https://huggingface.co/docs/trl/main/en/grpo_trainer#using-a-custom-reward-function",
        summary="A reward function returned another number of rewards than there are completions."),
    Row("log_vllm_server_takes_no_weights", "root", "launcher",
        r"vLLM server at (?P<address>\S+) (?:does not expose its development endpoints|has no weight-transfer engine|"
        r"does not expose `/v1/load_lora_adapter`)",
        ("RuntimeError: The vLLM server at http://10.0.0.4:8000 does not expose its development endpoints, which "
         "TRL uses to synchronize weights. Restart it with `VLLM_SERVER_DEV_MODE=1` in its environment.",
         "RuntimeError: The vLLM server at http://10.0.0.4:8000 has no weight-transfer engine. Restart it with "
         "`--weight-transfer-config '{\"backend\": \"nccl\"}'`."),
        "the vLLM server at {address} does not accept new weights from the trainer",
        "trl 1.12 and newer trains with `vllm serve` instead of `trl vllm-serve`. The server must be started with "
        "the endpoints that the trainer sends weights to.",
        (Fix("Start it with them.",
             ("VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config '{{\"backend\": \"nccl\"}}'",)),
         Fix("For LoRA adapters, allow that too.",
             ("export VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",))),
        "https://github.com/huggingface/trl/blob/main/trl/generation/vllm_client.py",
        summary="The vLLM server does not accept new weights from the trainer."),
    Row("log_reference_is_the_model", "root", "script",
        r"`model` and `ref_(?:model|policy)` cannot be the same object|"
        r"`policy` and `ref_policy` cannot be the same object",
        ("ValueError: `model` and `ref_model` cannot be the same object. If you want `ref_model` to be the same "
         "as `model`, you must mass a copy of it, or `None` if you use peft.",),
        "the reference model is the model that is trained",
        "The reference must keep its weights while the model changes.",
        Fix("Leave it out: the trainer makes the copy, or turns adapters off for the reference.",
            ("DPOTrainer(model=model, args=args, train_dataset=dataset)",)),
        _DPO),
    Row("log_reference_with_adapters", "root", "script",
        r"passed both a ref_model and a peft_config|PO/ORPO or LoRA training does not require a ref_model",
        ("ValueError: You passed both a ref_model and a peft_config. For training PEFT adapters with DPO there is "
         "no need to pass a reference model.",),
        "a reference model was passed next to adapters, which do not need one",
        "With LoRA, the base model without its adapters is the reference. A second model would only use memory.",
        Fix("Leave it out.",
            ("DPOTrainer(model=model, args=args, train_dataset=dataset, peft_config=peft_config)",)),
        _DPO),
    Row("log_reference_under_zero3", "root", "script",
        r"ZeRO-3 is enabled and is not compatible with `create_reference_model|"
        r"annot use `precompute_ref_log_probs=True` with Deepspeed ZeRO-3",
        ("ValueError: DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`. Please "
         "instantiate your reference model directly with `AutoModelForCausalLM.from_pretrained()`.",
         "ValueError: You cannot use `precompute_ref_log_probs=True` with Deepspeed ZeRO-3. Please set "
         "`precompute_ref_log_probs=False`."),
        "the reference model cannot be made this way with ZeRO-3",
        "ZeRO-3 has partitioned the weights: a copy in one process has only its own part.",
        (Fix("Load the reference from its files.",
             ("ref_model = AutoModelForCausalLM.from_pretrained(MODEL)",
              "DPOConfig(precompute_ref_log_probs=False)")),
         Fix("Or use ZeRO stage 2, or LoRA, which needs no reference.",
             ("\"zero_optimization\": {{\"stage\": 2}}",))),
        _DPO),
    Row("log_model_arguments_of_a_model", "root", "script",
        r"passed `?(?P<what>\w*(?:model_init_kwargs|model_kwargs|"
        r"quantization_config))`? to the .{1,60}[Bb]ut your (?:\w+ )?model is already instantiated",
        ("ValueError: You passed `model_init_kwargs` to the `GRPOConfig`, but your model is already instantiated. "
         "This argument can only be used when the `model` argument is a string.",
         "ValueError: You passed model_kwargs to the ORPOTrainer. But your model is already instantiated."),
        "{what} was passed next to a model that is loaded already",
        "The trainer uses them only if it loads the model itself, from its name.",
        Fix("Pass the name, or put the arguments into from_pretrained().",
            ("SFTTrainer(model='MODEL', args=SFTConfig(model_init_kwargs=dict(torch_dtype='bfloat16')))",)),
        _SFT,
        summary="Arguments for loading were passed next to a model that is loaded already."),
    Row("log_rl_without_sequence_parallelism", "root", "script",
        r"(?P<trainer>\w*Trainer) does not support sequence-dim parallelism",
        ("ValueError: GRPOTrainer does not support sequence-dim parallelism (`parallelism_config.cp_size > 1` or "
         "`parallelism_config.sp_size > 1`) yet.",),
        "{trainer} does not support context or sequence parallelism",
        "It computes log-probabilities of whole completions, so each rank needs whole sequences. SFTTrainer "
        "supports them.",
        Fix("Set both sizes to 1, and save memory in another way.",
            ("ParallelismConfig(cp_size=1, sp_size=1)",
             "GRPOConfig(gradient_checkpointing=True, use_liger_kernel=True)")),
        "https://huggingface.co/docs/trl/main/en/distributing_training",
        summary="The trainer does not support context or sequence parallelism."),
    Row("log_kto_batch_of_one", "root", "script",
        r"batch size must be > 1\. KTO will not work|Batch size is 1 \(too small\)\. KTO will not work",
        ("ValueError: Actual (not effective) batch size must be > 1. KTO will not work properly because the KL "
         "term will be equivalent to the implied reward.",
         "ValueError: Batch size is 1 (too small). KTO will not work properly because the KL term will be "
         "equivalent to the implied reward."),
        "KTO needs at least two samples per GPU in a batch",
        "It pairs each prompt with the answer of another sample of the same batch. More GPUs or accumulation do not "
        "help.",
        Fix("Raise the batch size of each GPU.",
            ("KTOConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4)",)),
        "https://github.com/huggingface/trl/blob/main/trl/trainer/kto_trainer.py"),
    Row("log_generation_batch_set_twice", "root", "script",
        r"'generation_batch_size' and 'steps_per_generation' can not be both configured",
        ("ValueError: 'generation_batch_size' and 'steps_per_generation' can not be both configured at the same "
         "time",),
        "generation_batch_size and steps_per_generation are both set",
        "generation_batch_size = GPUs x per_device_train_batch_size x steps_per_generation: one follows from the "
        "other.",
        Fix("Set one of them.",
            ("GRPOConfig(steps_per_generation=4)",)),
        "https://github.com/huggingface/trl/blob/main/trl/trainer/grpo_config.py"),
    Row("log_conversation_columns_wrong", "root", "script",
        r"input examples must contain either 'messages' for conversational|Invalid keys in the example: [\[{]|"
        r"Unexpected input keys in examples: ",
        ("KeyError: \"The input examples must contain either 'messages' for conversational data or 'text' for "
         "standard data.\"",
         "KeyError: \"Invalid keys in the example: {'question', 'answer'}\""),
        "the dataset's columns are not those of a format that trl knows",
        "SFT: text, messages, or prompt and completion. DPO and reward: prompt, chosen, rejected. KTO: prompt, "
        "completion, label. GRPO: prompt.",
        Fix("Rename or build them.",
            ("dataset = dataset.map(lambda x: {{'prompt': x['question'], 'completion': x['answer']}}, "
             "remove_columns=dataset.column_names)",
             "print(dataset.column_names)")),
        "https://huggingface.co/docs/trl/main/en/dataset_formats"),
    Row("log_end_token_is_a_placeholder", "root", "library",
        r"The specified `(?:eos|pad)_token` \('(?P<token>[^']+)'\) is not found in the vocabulary",
        ("ValueError: The specified `eos_token` ('<EOS_TOKEN>') is not found in the vocabulary of the given "
         "`processing_class` (Qwen2TokenizerFast). Ensure that the `eos_token` exists in the vocabulary before "
         "using it as an EOS token.",),
        "the config names the token {token}, which the tokenizer does not have",
        "'<EOS_TOKEN>' and '<PAD_TOKEN>' are placeholders of Unsloth: it replaces trl's config and trainer when it "
        "is imported, and must be imported first. Other tokens belong to another model.",
        (Fix("Import Unsloth before trl, and upgrade them together.",
             ("import unsloth  # first line of the script",
              "pip install --upgrade unsloth unsloth_zoo trl")),
         Fix("Or name the tokenizer's own token.",
             ("SFTConfig(eos_token=tokenizer.eos_token)",))),
        _SFT,
        summary="The config names a token that the tokenizer does not have."),
    Row("log_no_assistant_tokens", "root", "script",
        r"using `assistant_only_loss=True`, but at least one example has no assistant",
        ("RuntimeError: You're using `assistant_only_loss=True`, but at least one example has no assistant tokens.",),
        "assistant_only_loss finds no tokens of the assistant in a sample",
        "The chat template of most models does not mark them ({{% generation %}}), or the sample was cut before the "
        "answer.",
        (Fix("Use a template with the marks, or prompt and completion columns.",
             ("SFTConfig(assistant_only_loss=True, chat_template_path='TEMPLATE_WITH_GENERATION_MARKS')",
              "SFTConfig(completion_only_loss=True)")),
         Fix("Or do not cut the samples.",
             ("SFTConfig(max_length=8192)",))),
        _SFT),
    Row("log_chat_template_set_already", "root", "script",
        r"Chat template is already added to the tokenizer",
        ("ValueError: Chat template is already added to the tokenizer. If you want to overwrite it, please set it "
         "to None",),
        "setup_chat_format() was called for a tokenizer that has a chat template",
        "It is for base models. Instruct models bring their own template, and new base models too.",
        Fix("Do not call it, or set tokenizer.chat_template to None before it."),
        "https://github.com/huggingface/trl/blob/v0.19.1/trl/models/utils.py"),
    Row("log_vllm_client_on_other_ranks", "root", "script",
        r"'(?P<owner>\w*(?:VLLMGeneration|Trainer))' object has no attribute 'vllm_client'",
        ("AttributeError: 'VLLMGeneration' object has no attribute 'vllm_client'",),
        "code that talks to the vLLM server runs on a rank that has no client for it ({owner})",
        "With vllm_mode='server', only the main process creates the client. The others get the completions from it.",
        (Fix("Call it on the main process, and send the result to the others.",
             ("if trainer.accelerator.is_main_process: outputs = generate(prompts)",
              "outputs = accelerate.utils.broadcast_object_list([outputs])[0]")),
         Fix("Or let every rank have its own engine, or upgrade trl.",
             ("GRPOConfig(use_vllm=True, vllm_mode='colocate')",
              "pip install --upgrade trl"))),
        "https://github.com/huggingface/trl/issues/5314",
        summary="Code that talks to the vLLM server runs on a rank that has no client for it."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
