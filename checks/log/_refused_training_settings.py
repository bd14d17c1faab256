"""What do Trainer, trl and accelerate refuse before or in training, and which two settings are at odds?

One entry for one message, or for one that several classes print.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

# fmt: off
_COLUMNS = Fix("Compare the columns with the arguments of the model's forward().",
               ("print(dataset.column_names)", "print(next(iter(trainer.get_train_dataloader())).keys())"))
_DECODED = Fix("For a model with a decoder, pass labels, or use generate().",
               ("model(input_ids=input_ids, labels=labels)",))
# An object of Python's own classes has not become a model at all.
_OWNER = r"(?P<owner>(?!NoneType'|str'|dict'|list'|tuple'|function'|method'|type')\w+)"
_OF_TRAINER = (
    Refusal("TypeError", r"operand type\(s\) for \*\* or pow\(\): 'str' and|"
            r"^can't multiply sequence by non-int of type 'float'",
            "gamma of the learning rate scheduler is a text, not a number{at}",
            "It was read as text: quotes in a config file, a letter O instead of a zero, 1e-1 in YAML (it needs "
            "1.0e-1), or argparse without type=float. The scheduler computes with it only at its first milestone or "
            "step, so training runs until then.",
            (Fix("Correct it in the config, or convert it where the scheduler is made.",
                 ("print(repr(scheduler.gamma))", "MultiStepLR(optimizer, milestones, gamma=float(cfg['gamma']))")),),
            of_code=True, raised=r"self\.gamma\b", within=r"^torch/optim/lr_scheduler\.py in "),
    Refusal("RuntimeError ValueError", r"`Trainer` requires either a `model` or `model_init` argument(?P<both>, but "
            r"not "
            r"both)?",
            "Trainer needs exactly one of model and model_init{at}",
            "model is a finished model. model_init is a function that returns a new one for each trial of a search. "
            "The call gives both of them, or the variable that it gives is None.",
            (Fix("Give one of them.", ("Trainer(model=model, args=args, ...)",
                                       "Trainer(model_init=lambda: build(), args=args, ...)  # for a search")),),
            of_code=True),
    Refusal("RuntimeError", r"No hyperparameter search backend available",
            "hyperparameter_search() needs a package for it, and none is installed{at}",
            "optuna, ray[tune] and wandb can do the search.",
            (Fix("Install one of them.", ("pip install optuna",)),), of_code=True),
    Refusal("ValueError", r"You cannot specify both (?P<e>\w+_ids) and (?P<f>\w+_embeds) at the same time",
            "the model got both {e} and {f}{at}", "It needs exactly one of the two.",
            (Fix("Leave out one.", ("model(input_ids=None, inputs_embeds=embeds)",)),), of_code=True),
    Refusal("ValueError", r"You (?:have to|must) specify (?:either |exactly one of )?(?P<c>decoder_input_ids) or "
            r"(?P<d>decoder_inputs_embeds)",
            "the decoder got no input: neither labels nor {c}{at}",
            "A sequence to sequence model needs labels or {c}, from which the decoder's input is made.",
            (_DECODED,)),
    Refusal("ValueError", r"You must specify exactly one of (?P<a>\w+_ids) or (?P<b>\w+_embeds)|"
            r"You (?:have to|must) specify (?:either )?(?P<c>\w+_ids) or (?P<d>\w+_embeds)",
            "the model got neither {a}{c} nor {b}{d}, or both of them{at}",
            "It needs exactly one of the two. Mostly the batch has no {a}{c}: the dataset is not tokenized, its "
            "columns have other names, Trainer removed them, or a collate function left them out. A sequence to "
            "sequence model also needs labels or decoder_input_ids.",
            (Fix("Tokenize the dataset before training, and look at a batch.",
                 ("dataset = dataset.map(lambda x: tokenizer(x['text'], truncation=True), batched=True)",
                  "print(next(iter(trainer.get_train_dataloader())).keys())")), _DECODED)),
    Refusal("TypeError", r"^can only join an iterable$",
            "Trainer got an empty batch{at}",
            "It wants to list the columns that the model expects, and fails itself, because "
            "remove_unused_columns=False left that list unset. The collator returned a batch without a tensor: the "
            "default one keeps numbers and tensors, and drops text and None.",
            (Fix("Give the dataset columns of numbers, or a data_collator that makes tensors.",
                 ("Trainer(..., data_collator=DataCollatorWithPadding(tokenizer))",)), _COLUMNS),
            within=r"^transformers/trainer"),
    Refusal("KeyError", r"Invalid key: \S+ Please first select a split",
            "a whole DatasetDict is used as a dataset: it holds splits, not samples{at}",
            "load_dataset() without split= returns a dictionary of splits, also for a single file.",
            (Fix("Select a split.", ("Trainer(..., "
                                     "train_dataset=dataset['train'])", "print(dataset)")),), of_code=True),
    Refusal("ValueError TypeError", r"Dataset at position \d+ has at least one split: (?P<splits>\[[^\]]{1,80}\])|"
            r"`(?P<name>\w+)` must be a `Dataset` or `IterableDataset`, got `DatasetDict`|"
            r"Expected a list of Dataset objects or a list of IterableDataset objects, but got <class "
            r"'\S*DatasetDict'>",
            "a DatasetDict is given where one dataset is expected{at}",
            "load_dataset() without split= returns a dictionary of splits {splits}, also for a single file.",
            (Fix("Select a split.", ("dataset['train']", "print(dataset)")),), of_code=True),
    Refusal("ValueError", r"tokenizer does not have a mask token which is necessary for masked language modeling",
            "the collator prepares masked language modeling, and the tokenizer has no mask token{at}",
            "DataCollatorForLanguageModeling masks tokens by default (mlm=True), as for BERT. GPT and Llama models are "
            "trained to predict the next token.",
            (Fix("For a model that predicts the next token:", ("DataCollatorForLanguageModeling(tokenizer, "
                    "mlm=False)",)),
             Fix("For a masked model: add the token, and resize the model.",
                 ("tokenizer.add_special_tokens({'mask_token': '<mask>'})",
                  "model.resize_token_embeddings(len(tokenizer))"))), of_code=True),
    Refusal("TypeError", r"^'(?P<kind>float|int|numpy\.float\d+|tuple|NoneType)' object does not support item "
            r"assignment$",
            "compute_metrics returned a {kind} instead of a dictionary{at}",
            "Trainer adds names to its result: it must be a dictionary of names and numbers.",
            (Fix("Return a dictionary.", ("return {'accuracy': float(accuracy)}",)),), of_code=True,
            raised_in=r"^transformers/trainer\w*\.py in (?:evaluate|evaluation_loop|prediction_loop|predict)$"),
    Refusal("TypeError", r"cannot unpack non-iterable "
            r"(?P<kind>(?:Accelerated)?\w*(?:Optimizer|Adam\w*|SGD|RMSprop|Lion|"
            r"Adafactor)) object",
            "optimizers= got one optimizer ({kind}), and expects a pair{at}",
            "It is a tuple of the optimizer and the learning rate scheduler. Either can be None, and Trainer makes it.",
            (Fix("Pass both.", ("Trainer(..., optimizers=(optimizer, None))",)),), of_code=True,
            within=r"^transformers/trainer"),
    Refusal("AttributeError", r"'TrainOutput' object has no attribute '(?P<name>copy|items|keys|get)'",
            "the result of trainer.train() is used as a dictionary of metrics{at}",
            "It is a tuple of three: global_step, training_loss and metrics.",
            (Fix("Take its metrics.", ("trainer.log_metrics('train', result.metrics)",
                                       "trainer.save_metrics('train', result.metrics)")),), of_code=True),
    Refusal("AttributeError", rf"'{_OWNER}' object has no attribute '(?P<name>save_pretrained)'",
            "{owner} has no {name}(), which the script calls{at}",
            "Models, tokenizers and processors of transformers, diffusers and PEFT have it. {owner} is another class: "
            "a module or wrapper of its own, with such a model in an attribute, or a plain nn.Module.",
            (Fix("Call it on the model of these libraries inside, if there is one.",
                 ("print([name for name, _ in model.named_children()])",)),
             Fix("Save the weights of any other module with torch.", ("torch.save(model.state_dict(), path)",))),
            of_code=True, line=r"\.save_pretrained\("),
    Refusal("AttributeError", r"'"
            rf"{_OWNER}' object has no attribute '(?P<name>get_input_embeddings|"
            r"gradient_checkpointing_enable|gradient_checkpointing_disable|enable_input_require_grads|"
            r"save_pretrained|get_output_embeddings|resize_token_embeddings|"
            r"_set_gradient_checkpointing|tie_weights)'",
            "{owner} has no {name}(), which models of transformers have{at}",
            "A setting of the run needs it (gradient_checkpointing, neftune_noise_alpha, PEFT, a save in the format of "
            "transformers). {owner} is probably a plain nn.Module, or a wrapper around the model (DDP, a module with "
            "the model in an attribute).",
            (Fix("Turn the setting off, or call it on the model inside.",
                 ("TrainingArguments(gradient_checkpointing=False, neftune_noise_alpha=None)",
                  "accelerator.unwrap_model(model)")),
             Fix("Or derive the class from PreTrainedModel, or pass the method on.",
                 ("def gradient_checkpointing_enable(self, **kw): self.model.gradient_checkpointing_enable(**kw)",))),
            of_code=True),
    Refusal("AttributeError", rf"'{_OWNER}' object has no attribute 'prepare_inputs_for_generation'",
            "{owner} has no prepare_inputs_for_generation(){at}",
            "Since transformers 4.50 PreTrainedModel does not bring it: a class with a head inherits it from "
            "GenerationMixin. Or {owner} is a base model without a head.",
            (Fix("Inherit it, or load the class with a head.",
                 ("class MyModel(PreTrainedModel, GenerationMixin): ...",
                  "AutoModelForCausalLM.from_pretrained(MODEL)")),), of_code=True),
    Refusal("ValueError", r"^the `?--?group_by_length`? option is only available for `Dataset`",
            "samples of a stream cannot be grouped by length{at}", "A stream does not know its lengths in advance.",
            (Fix("Turn it off.", ("TrainingArguments(group_by_length=False)",)),), of_code=True),
)
_OF_TRL = (
    Refusal("ValueError", r"Number of reward weights \((?P<weights>\d+)\) must match number of reward functions "
            r"\((?P<functions>\d+)\)",
            "reward_weights has {weights} entries, and there are {functions} reward functions{at}",
            "Each function of reward_funcs has one weight, in the same order.",
            (Fix("Give one weight per function, or leave reward_weights out: all count 1.",
                 ("GRPOConfig(reward_weights=[1.0] * len(reward_funcs))",)),), of_code=True),
    Refusal("ValueError", r"`loss_weights` must have the same length as `loss_type`.*Got (?P<weights>\d+) weights for "
            r"(?P<types>\d+) loss",
            "loss_weights has {weights} entries, and loss_type has {types}{at}",
            "Each loss has one weight, in the same order.",
            (Fix("Give one weight per loss.", ("DPOConfig(loss_type=['sigmoid', 'sft'], loss_weights=[1.0, 0.5])",)),),
            of_code=True),
    Refusal("ValueError", r"No reward source provided",
            "GRPO got no reward function{at}",
            "It learns from the rewards of its own completions; a dataset of answers alone gives none.",
            (Fix("Pass one or more functions, or the name of a reward model.",
                 ("def reward(completions, **kwargs): return [float(len(one)) for one in completions]",
                  "GRPOTrainer(..., reward_funcs=[reward])")),), of_code=True),
    Refusal("ValueError", r"model has `num_labels=(?P<got>\d+)`, but reward models require `num_labels=1`",
            "the reward model has {got} outputs, and needs one{at}",
            "Its output is one number per answer. Models for classification have 2 labels unless the call says "
            "otherwise.",
            (Fix("Load it with one.", ("AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1)",)),),
            of_code=True),
    Refusal("ValueError", r"`assistant_only_loss=True`, but the dataset is not conversational",
            "assistant_only_loss needs conversations, and the dataset has plain text{at}",
            "It computes the loss on the assistant's messages, so that the dataset needs a column messages, or "
            "conversations in prompt and completion.",
            (Fix("Give the dataset messages.",
                 ("{'messages': [{'role': 'user', 'content': question}, {'role': 'assistant', 'content': answer}]}",)),
             Fix("With columns prompt and completion, use the other option.",
                 ("SFTConfig(assistant_only_loss=False, completion_only_loss=True)",))), of_code=True),
    Refusal("ValueError RuntimeError", r"chat template is not training-compatible|"
            r"assistant_masks|return_assistant_tokens_mask.{0,60}generation|"
            r"template does not (?:contain|support) `?\{% generation %\}",
            "the chat template does not mark which tokens the assistant wrote{at}",
            "assistant_only_loss finds them by the block {{% generation %}} in the template. Most models' templates "
            "lack it; trl has its own for some families.",
            (Fix("Put it around the assistant's content in the template, and set that.",
                 ("{% generation %}{{ message['content'] }}{% endgeneration %}",
                  "tokenizer.chat_template = open('template.jinja').read()")),
             Fix("Or train on all tokens, or on a column completion.",
                 ("SFTConfig(assistant_only_loss=False)",))), of_code=True),
    Refusal("ValueError", r"formatting function was provided while `completion_only_loss=True`",
            "formatting_func and completion_only_loss=True exclude each other{at}",
            "The function joins prompt and completion into one text, after which nothing says where the completion "
            "begins.",
            (Fix("Keep the columns prompt and completion, without the function, or train on the whole text.",
                 ("SFTTrainer(..., formatting_func=None)", "SFTConfig(completion_only_loss=False)")),), of_code=True),
    Refusal("ValueError", r"When (?:packing|`packing`) is enabled, `max_length` can't be `None`",
            "packing needs max_length, and it is None{at}",
            "Packing fills sequences of that length with several samples.",
            (Fix("Set a length, or turn packing off.", ("SFTConfig(packing=True, max_length=2048)",)),), of_code=True),
    Refusal("ValueError", r"custom data collator is not supported when using (?P<what>padding-free|packing)",
            "{what} needs trl's own collator, and the call passes another one{at}",
            "It joins the samples of a batch into one sequence with position_ids, which other collators do not.",
            (Fix("Leave out data_collator, or turn the option off.",
                 ("SFTConfig(padding_free=False, packing=False)",)),), of_code=True),
    Refusal("ValueError", r"passed a `PeftModel` instance together with a `peft_config`|"
            r"passed `peft_config` (?:and|with) a `PeftModel`",
            "the model has an adapter already, and peft_config asks for another one{at}",
            "The trainer wraps a plain model with peft_config. A model from get_peft_model() or "
            "PeftModel.from_pretrained() is wrapped already.",
            (Fix("To train the adapter that it has, leave out peft_config.",
                 ("PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)", "SFTTrainer(model=model, args=args, "
                         "...)")),
             Fix("To train a new one, merge the old one first.", ("model = model.merge_and_unload()",))), of_code=True),
    Refusal("ValueError", r"dataset appears to be vision-related.{0,80}model does not seem to be a vision",
            "the dataset has images, and the model or its processor is for text only{at}",
            "A column image or images makes trl expect a model for images and text, with its processor.",
            (Fix("Load such a model and its processor.",
                 ("AutoModelForImageTextToText.from_pretrained(MODEL)",
                  "SFTTrainer(..., processing_class=AutoProcessor.from_pretrained(MODEL))")),
             Fix("If the images should not be used, remove the column.",
                 ("dataset = dataset.remove_columns('images')",))), of_code=True),
    Refusal("ValueError", r"`(?P<option>precompute_ref_log_probs)=True` is not supported with IterableDataset",
            "{option} needs a dataset with random access, and the data is a stream{at}",
            "It computes a value for each sample before training, and stores it with the sample.",
            (Fix("Load the dataset without streaming, or turn the option off.",
                 ("load_dataset(..., streaming=False)", "DPOConfig(precompute_ref_log_probs=False)")),), of_code=True),
    Refusal("ValueError", r"cannot use `sync_ref_model=True` together with `precompute_ref_log_probs=True`",
            "sync_ref_model and precompute_ref_log_probs exclude each other{at}",
            "One of them updates the reference model during training, the other computes its values only once before.",
            (Fix("Keep one.", ("DPOConfig(sync_ref_model=True, precompute_ref_log_probs=False)",)),), of_code=True),
    Refusal("AttributeError", r"'list' object has no attribute 'endswith'",
            "a list of texts is used as one text: probably formatting_func returns a list{at}",
            "trl calls it with one sample and expects one text. Older releases called it with a batch, and it returned "
            "a list. A column with lists of texts does the same.",
            (Fix("Return one text.", ("def formatting_func(example): return example['prompt'] + example['answer']",)),),
            of_code=True,
            within=r"^trl/"),
    Refusal("TypeError", r"^'(?P<kind>NoneType|int|float)' object is not iterable",
            "a reward function returned {kind} instead of a list of rewards{at}",
            "It gets lists, and returns a list with one number (or None) per completion.",
            (Fix("Return a list.", ("def reward(completions, **kwargs): return [score(one) for one in "
                                    "completions]",)),),
            of_code=True, raised_in=r"^trl/\S+ in _calculate_rewards$"),
)
_OF_ACCELERATE = (
    Refusal("TypeError", r"expected str, bytes or os\.PathLike object, not NoneType",
            "save_state() got no folder{at}",
            "Without a folder it saves to project_dir, but only with automatic names.",
            (Fix("Name the folder, or turn automatic names on.",
                 ("accelerator.save_state('out/checkpoint-500')",
                  "Accelerator(project_config=ProjectConfiguration('out', automatic_checkpoint_naming=True))")),),
            of_code=True, within=r"^accelerate/accelerator\.py in save_state$"),
    Refusal("ValueError", r"only pass one <class '\S*?\.(?P<kind>\w+)'> in `kwargs_handlers`",
            "kwargs_handlers has {kind} twice{at}", "Each kind can be in the list once.",
            (Fix("Put all options into one.", ("DistributedDataParallelKwargs(find_unused_parameters=True)",)),),
            of_code=True),
    Refusal("AssertionError ValueError", r"Unsupported kwargs handler passed: ",
            "kwargs_handlers contains something that is not one of accelerate's handlers{at}",
            "It is a list of objects such as DistributedDataParallelKwargs, not of dictionaries.",
            (Fix("Use the class.", ("from accelerate import DistributedDataParallelKwargs",
                                    "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs("
                                    "find_unused_parameters=True)])")),), of_code=True),
    Refusal("ValueError", r"No input_dir provided and automatic checkpoint naming is disabled",
            "load_state() got no folder{at}",
            "Without a folder it takes the last checkpoint of project_dir, but only with automatic names.",
            (Fix("Name the folder, or turn automatic names on.",
                 ("accelerator.load_state('out/checkpoint-500')",
                  "Accelerator(project_config=ProjectConfiguration('out', automatic_checkpoint_naming=True))")),),
            of_code=True),
    Refusal("ValueError", r"`checkpoint` should be the path to a file containing a whole state dict.*but got "
            r"(?P<path>.+)\.$",
            "{path} does not exist, or is not a checkpoint that accelerate can load{at}",
            "It loads a file with all weights, an index, or a folder that has one of them. A name on the Hub is not "
            "downloaded.",
            (Fix("Check the path, and download the model first.",
                 ("ls -la FOLDER", "huggingface_hub.snapshot_download('ORG/MODEL')")),), of_code=True),
    Refusal("ValueError", r"`size` (?P<size>.{1,40}) is not in a valid format",
            "a size of memory is '{size}', which accelerate cannot read{at}",
            "max_memory takes bytes as a whole number, or a number with a unit.",
            (Fix("Write the unit without words.", ("max_memory={0: '20GiB', 'cpu': '100GiB'}",)),), of_code=True),
    Refusal("ValueError", r"^(?P<name>(?:dp_replicate|dp_shard|tp|cp|sp)_size) must be at least 1, but got "
            r"(?P<got>-?\d+)",
            "{name} is {got}, and must be at least 1{at}",
            "1 turns this kind of parallelism off. The product of all sizes is the number of ranks.",
            (Fix("Use 1 to turn it off.", ("ParallelismConfig(dp_shard_size=8, tp_size=1)",)),), of_code=True),
)
OF_TRAINING = (*_OF_TRAINER, *_OF_TRL, *_OF_ACCELERATE)
# fmt: on
