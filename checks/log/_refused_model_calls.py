"""What do tokenizers, models, generate() and PEFT refuse, and which value of the call is the reason?"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Look, Refusal

# fmt: off
_PRINT_IDS = Fix("Print what is given.", ("print(type(ids), getattr(ids, 'dtype', None), ids)",))
_ADD_TOKENS = Fix("Add it as a token without a role, and resize the model. add_special_tokens() with a list replaces "
                  "the list that is there.",
                  ("tokenizer.add_tokens(['<sp>'], special_tokens=True)",
                   "if len(tokenizer) > model.get_input_embeddings().num_embeddings: "
                   "model.resize_token_embeddings(len(tokenizer))"))
_OVERLAP = ("Long texts are cut into pieces that overlap by stride tokens. Special tokens count to a piece's length.",
            (Fix("Use a smaller overlap, or longer pieces.",
                 ("tokenizer(text, truncation=True, max_length=384, stride=128, return_overflowing_tokens=True)",)),))
_NO_BATCH = ("Ids have the shape (batch, length), images (batch, channels, height, width). One sample without its "
             "batch dimension has one less: tokenizer(text) without return_tensors, or an item of a dataset.")
_ADD_BATCH = Fix("Add the batch dimension.", ("tokenizer(text, return_tensors='pt')", "input_ids.unsqueeze(0)",
                                              "print(input_ids.shape)"))
_OF_TOKENIZERS = (
    Refusal("OverflowError TypeError", r"^number too small to fit in target type|^can't convert negative "
            r"(?:value|int) to "
            r"unsigned( int)?|^out of range integral type conversion attempted|^argument 'ids': .{1,60}negative",
            "a number that no id can be (negative or too large) is given to the tokenizer{at}",
            "Probably ids to decode that contain -100: the label of ignored tokens, which Trainer also uses to pad "
            "predictions. It is no token. In a call of the tokenizer it is max_length.",
            (Fix("Replace it before decoding.",
                 ("ids = np.where(ids != -100, ids, tokenizer.pad_token_id)",
                  "tokenizer.batch_decode(ids, skip_special_tokens=True)")),),
            raised_in=r"^transformers/(?:tokenization|models/\S*/tokenization)|^tokenizers/"),
    Refusal("AttributeError", r"'\w+' object has no attribute 'vllm_engine'",
            "the trainer wants to generate with vLLM inside the model, and the model has no engine{at}",
            "Unsloth's GRPO takes the engine that from_pretrained() made with fast_inference=True. The model was "
            "loaded without it, or vLLM is not installed.",
            (Fix("Load the model with its engine, or generate without vLLM.",
                 ("FastLanguageModel.from_pretrained(NAME, fast_inference=True)", "GRPOConfig(use_vllm=False)")),),
            of_code=True),
    Refusal("OverflowError", r"^int too (?:big|large) to convert",
            "a length or id is too large for the tokenizer{at}",
            "Probably max_length=tokenizer.model_max_length: without a limit in its files, it is 10**30.",
            (Fix("Set a length.", ("print(tokenizer.model_max_length)",
                                   "tokenizer(text, truncation=True, padding='max_length', max_length=1024)")),),
            of_code=True, raised_in=r"^transformers/(?:tokenization|models/\S*/tokenization)|^tokenizers/"),
    Refusal("TypeError", r"^'(?P<kind>list|float|str)' object cannot be interpreted as an integer$|"
            r"^argument 'ids': '(?P<other>\w+)' object cannot be interpreted as an integer",
            "an id is not a whole number but a {kind}{other}{at}",
            "Ids are whole numbers. Logits (batch, length, vocabulary) need argmax first, a list of lists needs "
            "batch_decode(), and a division or a float tensor gives decimals.",
            (Fix("Convert them.", ("ids = logits.argmax(-1)", "tokenizer.batch_decode(ids)", "ids = ids.long()")),
             _PRINT_IDS), of_code=True,
            within=r"^transformers/tokenization|^tokenizers/"),
    Refusal("TypeError", r"^PreTokenizedEncodeInput must be Union\[",
            "the tokenizer expects a text as a list of words, and got it in another form{at}",
            "It was called with is_split_into_words=True, or it is one for documents, such as LayoutLM's, which always "
            "takes words and their boxes. It got a plain text, a number, None or a deeper list.",
            (Fix("Give it words, or plain texts without that argument.",
                 ("tokenizer(text.split(), is_split_into_words=True)", "tokenizer(text)")),
             Fix("If the model is one for documents, it fits no training on texts alone: choose a language model.",
                 ("print(type(tokenizer), type(text))",))), of_code=True),
    Refusal("ValueError", r"You need to specify either `text` or `text_target`",
            "the tokenizer got None as its text{at}",
            "A row of the data has no text (null, an empty cell), or the column has another name and get() returned "
            "None.",
            (Fix("Drop or fill such rows where the data is read.",
                 ("dataset = dataset.filter(lambda x: x['text'] is not None)", "df['text'] = "
                         "df['text'].fillna('')")),)),
    Refusal("TypeError ValueError AttributeError", r"Chat messages should be dicts.{0,80}but got (?P<got>.{1,60}?)\.?$",
            "apply_chat_template() got {got} as a message{at}",
            "It takes a list of dictionaries with role and content. A plain text is read letter by letter.",
            (Fix("Make messages of it.",
                 ("tokenizer.apply_chat_template([{'role': 'user', 'content': text}], tokenize=False)",)),),
            of_code=True),
    Refusal("ValueError", r"continue_final_message and add_generation_prompt are not compatible",
            "continue_final_message and add_generation_prompt exclude each other{at}",
            "One continues the last message, the other begins a new one of the assistant.",
            (Fix("Keep one.", ("tokenizer.apply_chat_template(messages, add_generation_prompt=True)",
                               "tokenizer.apply_chat_template(messages, "
                               "continue_final_message=True)")),), of_code=True),
    Refusal("TemplateSyntaxError", r"unknown tag 'generation'",
            "the chat template has {{% generation %}}, which is not rendered here{at}",
            "It marks the assistant's tokens. apply_chat_template() of newer transformers knows it; older ones, and "
            "programs that render templates with plain Jinja, do not.",
            (Fix("Update transformers, or use a template without the tag here.",
                 ("pip install --upgrade transformers",)),), of_code=True),
    Refusal("TemplateSyntaxError TemplateAssertionError", r"^(?P<what>.+)",
            "the chat template is not valid Jinja: {what}{at}",
            "The text in tokenizer.chat_template, or in the file chat_template.jinja, has a mistake. In Python, braces "
            "of an f-string change {{{{ }}}} to {{ }}.",
            (Fix("Print it, and compare with the template of the base model.", ("print(tokenizer.chat_template)",)),),
            of_code=True,
            within=r"^transformers/|chat_template"),
    Refusal("", r"`stride` must be strictly less than `max_len=(?P<length>\d+)`|"
            r"stride set to \d+, which is greater than or equal to its effective max length of (?P<size>\d+)",
            "stride is not smaller than the length of a piece ({length}{size} tokens){at}", *_OVERLAP, of_code=True),
    Refusal("", r"stride .{0,40}(?:less than|<) max_len",
            "stride is not smaller than the length of a piece{at}", *_OVERLAP, of_code=True),
    Refusal("ValueError", r"^Key (?P<name>\w{1,60}) is not a valid special token",
            "{name} is not a kind of special token{at}",
            "add_special_tokens() knows a few kinds: bos, eos, unk, sep, pad, cls and mask, and a list of others.",
            (_ADD_TOKENS,), of_code=True),
    Refusal("ValueError", r"batch length of `text`: (?P<one>\d+) does not match batch length of `text_pair`: "
            r"(?P<two>\d+)",
            "{one} texts are to be paired with {two}{at}", "The two lists of a call belong together, one by one.",
            (Fix("Print both lengths.", ("print(len(questions), len(contexts))",)),)),
    Refusal("ValueError", r"^dictionary update sequence element #0 has length \d+; 2 is required",
            "a list is given where a dictionary is expected{at}",
            "Probably add_special_tokens(): it takes a dictionary from the role to the token. New tokens without a "
            "role go to add_tokens().", (_ADD_TOKENS,), of_code=True, raised_in=r"^transformers/tokenization"),
)
_OF_GENERATION = (
    Refusal("ValueError", r"Greedy methods .{0,60}do not support `num_return_sequences` different than 1 \(got "
            r"(?P<got>\d+)\)",
            "num_return_sequences is {got}, but greedy search finds only one sequence{at}",
            "Without sampling or beams, every repetition is the same.",
            (Fix("Sample, or use beams.", ("model.generate(..., do_sample=True, num_return_sequences=3)",
                                           "model.generate(..., num_beams=3, "
                                           "num_return_sequences=3)")),), of_code=True),
    Refusal("ValueError", r"`num_return_sequences` \((?P<got>\d+)\) has to be smaller or equal to `num_beams` "
            r"\((?P<beams>\d+)",
            "num_return_sequences ({got}) is larger than num_beams ({beams}){at}",
            "Beam search returns some of its beams.",
            (Fix("Raise num_beams, or ask for fewer.", ("model.generate(..., num_beams=4, num_return_sequences=4)",)),),
            of_code=True),
    Refusal("ValueError", r"Input length of (?P<what>\S+) is (?P<length>\d+), but `max_length` is set to "
            r"(?P<most>-?\d+)",
            "the prompt has {length} tokens, and max_length is {most}: nothing is left to generate{at}",
            "max_length counts the prompt. It is 20 if neither the call nor the model's generation config sets one. A "
            "batch that is padded to a fixed length reaches it, too.",
            (Fix("Limit the new tokens instead.", ("model.generate(**inputs, max_new_tokens=256)",)),
             Fix("Or cut the prompts.", ("tokenizer(text, truncation=True, max_length=1024)",)))),
    Refusal("ValueError", r"`(?P<name>max_new_tokens|max_length|min_length|num_beams|top_k)` (?:must be|has to be) "
            r"(?:greater than 0|a strictly positive integer|positive),? (?:but is|got) (?P<got>-?\S+?)\.?$",
            "{name} is {got}, and must be above 0{at}",
            "It was probably computed: a length minus the length of the prompt. To turn top_k off, use 0 or None.",
            (Fix("Print it. If the prompt is longer than the limit, cut the prompt.",
                 ("print(limit, input_ids.shape)", "tokenizer(text, truncation=True, max_length=1024)")),)),
    Refusal("ValueError", r"`temperature` \(=(?P<got>.{1,20}?)\) has to be a strictly positive float",
            "temperature is {got}, and must be a number above 0{at}",
            "0 asks for the most probable token: that is greedy search. A value that looks right is a text, or a whole "
            "number.",
            (Fix("For greedy search, leave it out.", ("model.generate(..., do_sample=False)",)),
             Fix("Else use a float.", ("model.generate(..., do_sample=True, temperature=float(temperature))",))),
            of_code=True),
    Refusal("ValueError", r"`top_p` (?:has to|must) be a float > 0 and < 1,? but is (?P<got>\S+)",
            "top_p is {got}, and must be between 0 and 1{at}", "It is a share of the probability.",
            (Fix("Correct it.", ("model.generate(..., do_sample=True, top_p=0.9)",)),), of_code=True),
    Refusal("ValueError", r"(?P<what>Contrastive Search|\w[\w ]{2,30}) requires `trust_remote_code=True` in your "
            r"`generate`",
            "{what} is no longer a part of transformers: its code comes from the Hub{at}",
            "Newer releases load rare ways to generate from a repository, and run its code only if allowed. The node "
            "also needs access to the Hub.",
            (Fix("Allow it, if you trust it, or generate in another way.",
                 ("model.generate(..., trust_remote_code=True)", "model.generate(..., do_sample=True, top_p=0.9)")),),
            of_code=True),
    Refusal("ValueError", r"stop strings,.{1,120}could not locate a tokenizer",
            "stop_strings needs the tokenizer, and generate() did not get it{at}",
            "Texts can be cut into tokens in several ways.",
            (Fix("Pass it.", ("model.generate(**inputs, stop_strings=['END'], tokenizer=tokenizer)",)),), of_code=True),
    Refusal("ValueError", r"(?P<what>\w*Streamer) only supports batch size 1",
            "a streamer prints one sequence, and the batch has several{at}",
            "With several prompts, or num_return_sequences above 1, texts would mix.",
            (Fix("Generate one prompt at a time, or leave out streamer.",
                 ("for one in prompts: model.generate(**tokenizer(one, return_tensors='pt'), streamer=streamer)",)),),
            of_code=True),
    Refusal("ValueError", r"`?(?:self\.\S*)?decoder_start_token_id`?(?: or `bos_token_id`)? has to be defined",
            "the model does not know with which token its decoder begins{at}",
            "decoder_start_token_id is not set: the model was built from a new config, or joined from an encoder and a "
            "decoder.",
            (Fix("Set it, as the model was trained: T5 begins with the padding token, others with bos or cls.",
                 ("model.config.decoder_start_token_id = tokenizer.pad_token_id",
                  "model.generation_config.decoder_start_token_id = tokenizer.pad_token_id")),), of_code=True),
    Refusal("ValueError", r"`bad_words_ids` has to be a non-empty list",
            "bad_words_ids is an empty list{at}", "None means that there are none.",
            (Fix("Leave it out if the list is empty.", ("model.generate(..., bad_words_ids=ids or "
                                                        "None)",)),), of_code=True),
    Refusal("TypeError", r"^new\(\): invalid data type '(?P<kind>\w+)'",
            "a tensor is made of a {kind}: probably a special token is given as text instead of its number{at}",
            "eos_token_id, pad_token_id and bos_token_id are numbers.",
            (Fix("Give the number.", ("model.generate(..., eos_token_id=tokenizer.eos_token_id)",
                                      "tokenizer.convert_tokens_to_ids('<|im_end|>')")),), of_code=True,
            within=r"^transformers/generation"),
    Refusal("AttributeError", r"'tuple' object has no attribute 'get_seq_length'",
            "past_key_values is a tuple, which this transformers no longer accepts{at}",
            "Newer releases keep keys and values in Cache objects, and convert no tuples any more.",
            (Fix("If PEFT makes the tuple (prefix tuning), update it.", ("pip install --upgrade peft",)),
             Fix("Make an object, or let the model make it.",
                 ("from transformers import DynamicCache", "model(..., "
                                                           "past_key_values=DynamicCache(config=model.config))")),
             Fix("Or use the transformers of the code.", ("pip install 'transformers<5'",))), of_code=True),
    Refusal("AttributeError", r"'(?P<kind>str|list)' object has no attribute '(?:shape|size)'",
            "a {kind} is given where a tensor is expected{at}",
            "generate() and forward() take the input as a tensor of the shape (batch, length), not a text or lists.",
            (Fix("Tokenize to tensors.", ("inputs = tokenizer(text, return_tensors='pt').to(model.device)",
                                          "model.generate(**inputs, max_new_tokens=64)")),), of_code=True,
            raised_in=r"^transformers/(?:generation/|models/\S*/modeling_)"),
    Refusal("AttributeError", r"^$",
            "what the tokenizer returned has no such attribute: it is a dictionary{at}",
            "If the line names a key (inputs.token_type_ids), this tokenizer does not make it. If a model gets the "
            "whole (model(inputs), generate(inputs)), it is used as input_ids: pass it with two stars.",
            (Fix("Look at its keys, or unpack it.", ("print(inputs.keys())", "model(**inputs)",
                                                     "model.generate(**inputs, max_new_tokens=64)")),), of_code=True,
            within=r"^transformers/tokenization_utils_base\.py in __getattr__$"),
    Refusal("ValueError", r"^not enough values to unpack \(expected (?P<wanted>[2-4]), got (?P<got>[1-3])\)",
            "the model got a tensor with {got} dimensions, and expects {wanted}{at}", _NO_BATCH, (_ADD_BATCH,),
            of_code=True, within=r"^transformers/models/\S+ in forward$", code=r"\.shape|\.size\(|input_shape"),
    Refusal("ValueError", r"^not enough values to unpack \(expected (?P<wanted>[2-4]), got (?P<got>[1-3])\)",
            "the model unpacks {wanted} values and gets {got}: probably a tensor without its batch dimension{at}",
            f"{_NO_BATCH} If the line calls a layer, its result has another form: code or a patch for another release "
            "of transformers.", (_ADD_BATCH,), of_code=True, within=r"^transformers/models/\S+ in forward$"),
    Refusal("RuntimeError", r"cannot reshape tensor of 0 elements into shape",
            "the model got an input without tokens: an empty batch or an empty text{at}",
            "The text is empty and the tokenizer adds no special tokens, or everything was cut off.",
            (Fix("Leave out empty samples.", ("texts = [text for text in texts if text.strip()]",
                                              "print(input_ids.shape)")),),
            within=r"^transformers/models/"),
)
_OF_LOADING = (
    Refusal("OSError EnvironmentError", r"^(?P<name>Auto\w+) is designed to be instantiated using",
            "{name} is called like a class, but it only chooses one{at}",
            "It has two functions: from_pretrained() loads weights, from_config() makes new ones.",
            (Fix("Use one of them.", ("AutoModelForCausalLM.from_pretrained('MODEL')",)),), of_code=True),
    Refusal("ValueError", r"Unrecognized configuration class <class 'str'>",
            "from_config() got a name, and takes a config object{at}",
            "from_config() makes a model with random weights. Trained weights come from from_pretrained().",
            (Fix("Load the model, or the config first.",
                 ("AutoModelForCausalLM.from_pretrained('MODEL')",
                  "AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('MODEL'))")),), of_code=True),
    Refusal("ValueError", r"Unrecognized processing class in (?P<path>\S+?)\. Can't instantiate a processor",
            "{path} has no file of a processor or tokenizer{at}",
            "Only the model was saved there.",
            (Fix("Save the processor with the model, or load that of the base model.",
                 ("processor.save_pretrained('FOLDER')", "AutoProcessor.from_pretrained('BASE_MODEL')")),),
            of_code=True),
    Refusal("Exception", r"^Impossible to guess which (?P<what>tokenizer|\w[\w ]+?) to use",
            "pipeline() got a model object without its {what}{at}",
            "It finds it only by the name or folder of a model.",
            (Fix("Pass it.", ("pipeline('text-generation', model=model, tokenizer=tokenizer)",)),), of_code=True),
    Refusal("ValueError", r"quantization method QuantizationMethod\.(?P<method>\w+) does require the model to be "
            r"pre-quantized",
            "{method} cannot quantize while loading: it needs a checkpoint that is quantized already{at}",
            "The config of this checkpoint has no quantization_config, so that its weights are whole.",
            (Fix("Load a checkpoint that its author quantized, or quantize with another method.",
                 ("from_pretrained('ORG/MODEL-AWQ')",
                  "from_pretrained(MODEL, "
                  "quantization_config=BitsAndBytesConfig(load_in_4bit=True))")),), of_code=True),
    Refusal("RuntimeError ValueError", r"No GPU(?: or XPU)? found\. A GPU(?: or XPU)? is needed for (?P<what>\w[\w ]*)",
            "{what} needs a GPU, and torch sees none here{at}",
            "The node or the job has none, CUDA_VISIBLE_DEVICES hides it, or torch is the build for CPUs.",
            (Fix("Check what torch sees.", ("mgpu doctor --only gpu,pytorch", "nvidia-smi -L")),
             Fix("On a CPU, load without quantization.", ("from_pretrained(MODEL, dtype='auto')",))), of_code=True),
    Refusal("ValueError", r"Input image size \((?P<got>[\d*x]+)\) doesn't match model \((?P<wanted>[\d*x]+)\)",
            "the images are {got}, and the model expects {wanted}{at}",
            "The processor of another model, or a transform of its own, makes another size than image_size of the "
            "config.",
            (Fix("Use the model's processor, or let the model adapt its positions.",
                 ("processor = AutoImageProcessor.from_pretrained(MODEL)",
                  "model(pixel_values=x, interpolate_pos_encoding=True)")),), of_code=True),
    Refusal("ValueError", r"channel dimension of the pixel values match with the one set in the configuration\. "
            r"Expected "
            r"(?P<wanted>\d+) but got (?P<got>\d+)",
            "the images have {got} channels, and the model expects {wanted}{at}",
            "Gray images have 1, pictures with transparency 4. Without the processor the channels can also be in the "
            "last dimension: the model expects (batch, channels, height, width).",
            (Fix("Convert them where they are read.", ("image = image.convert('RGB')", "print(pixel_values.shape)")),)),
)
_OF_ADAPTERS = (
    Refusal("ValueError", r"`r` should be a positive integer value but the value passed is (?P<got>\S+)",
            "the LoRA rank r is {got}, and must be a whole number above 0{at}",
            "To train without LoRA, do not wrap the model at all.",
            (Fix("Set it.", ("LoraConfig(r=16, lora_alpha=32, target_modules='all-linear')",)),), of_code=True),
    Refusal("NotImplementedError", r"Requested bias: (?P<got>\S+?),? is not implemented",
            "bias of the LoRA config is '{got}', and PEFT accepts none, all and lora_only{at}",
            "It says which biases are trained.", (Fix("Use one of "
                                                      "them.", ("LoraConfig(bias='none')",)),), of_code=True),
    Refusal("ValueError", r"All adapters must have the same r value when using combination_type",
            "adapters of different LoRA ranks cannot be combined in this way{at}",
            "linear, ties and dare add up matrices, which must have the same shape.",
            (Fix("Use a way that accepts different ranks.",
                 ("model.add_weighted_adapter(names, weights, 'new', combination_type='svd')  # or 'cat'",)),),
            of_code=True),
    Refusal("ValueError", r"^Adapter (?:with name )?'?(?P<name>[\w.-]+)'? (?P<how>does not exist|not found|already "
            r"exists)",
            "PEFT has no adapter of that name, or has it already: {name} {how}{at}",
            "The first adapter is called default, unless adapter_name says otherwise. add_adapter() needs a new name.",
            (Fix("Print the names.", ("print(list(model.peft_config))",
                                      "PeftModel.from_pretrained(model, FOLDER, adapter_name='style')")),),
            of_code=True),
    Refusal("ValueError", r"^(?P<kind>[A-Z_]+_TUNING|\w+) does not work with gradient checkpointing",
            "{kind} and gradient checkpointing exclude each other{at}",
            "The virtual tokens are kept in the cache of keys and values, which is off while layers are recomputed.",
            (Fix("Turn it off, or use LoRA.", ("model.gradient_checkpointing_disable()",
                                               "TrainingArguments(gradient_checkpointing=False)")),), of_code=True),
    Refusal("ValueError", r"When prompt_tuning_init='?TEXT'?, (?P<what>\w+) can't be None",
            "prompt tuning should begin with a text, and {what} is missing{at}",
            "The text is cut into tokens, whose embeddings are the first values.",
            (Fix("Give both.", ("PromptTuningConfig(prompt_tuning_init='TEXT', prompt_tuning_init_text='Classify:', "
                                "tokenizer_name_or_path=MODEL, ...)",)),), of_code=True),
    Refusal("ValueError", r"AdaLoRA does not work when `total_step` is None",
            "AdaLoRA needs the number of training steps{at}", "It reduces its ranks along the training.",
            (Fix("Set it.", ("AdaLoraConfig(total_step=steps_per_epoch * epochs, ...)",)),), of_code=True),
    Refusal("AttributeError", r"'(?P<owner>\w+)' object has no attribute '(?P<name>merge_and_unload|"
            r"print_trainable_parameters|merge_adapter|unmerge_adapter)'",
            "{owner} has no {name}(){at}",
            "Only get_peft_model() and PeftModel.from_pretrained() return one. A model that was merged already, or "
            "into which a trainer put its adapter, is a plain one. A wrapper (DDP, FSDP) hides it. Prompt, prefix and "
            "P-tuning have nothing to merge.",
            (Fix("Of a wrapper, take the model inside.", ("accelerator.unwrap_model(model)", "model.module")),
             Fix("Load the adapter on top of the base model.", ("model = PeftModel.from_pretrained(base, ADAPTER)",
                                                                "print(type(model))")),
             Fix("If a trainer wrapped it, use the trainer's model.", ("trainer.model.merge_and_unload()",))),
            of_code=True),
    Refusal("AttributeError", r"'dict' object has no attribute 'base_model_name_or_path'",
            "get_peft_model() got a dictionary, and takes a config object{at}", "Settings of a file must become one.",
            (Fix("Make a config of it.", ("get_peft_model(model, LoraConfig(**settings))",)),), of_code=True),
    Refusal("TypeError", r"^'in <string>' requires string as left operand, not int",
            "layers_to_transform is a text, and PEFT expects numbers of layers{at}",
            "PEFT looks for the number of each layer in it. An option of the command line, or a field of a config "
            "file, is a text also if it looks like a list; an empty one is no None.",
            (Fix("Make a list of numbers of it, or None for all layers.",
                 ("LoraConfig(layers_to_transform=[int(x) for x in text.split(',')] if text else None, ...)",)),),
            of_code=True, within=r"^peft/\S+ in check_target_module_exists$"),
    Refusal("ValueError", r"[Cc]annot merge (?:adapters?|LORA layers?|LoRA layers?) (?:to a quantized model|when the "
            r"model is (?:gptq quantized|loaded in \d-bit mode))",
            "an adapter should be merged into a quantized model, which is not possible{at}",
            "Merging adds the adapter to the weights of the base model. Quantized weights (GPTQ, AWQ, 4 or 8 bits) "
            "have no room for it. The checkpoint is quantized, or an option quantizes it when it is loaded.",
            (Fix("Merge into the base model in its original precision, without an option for quantization.",
                 ("PeftModel.from_pretrained(ORIGINAL_MODEL, ADAPTER).merge_and_unload()",
                  "llamafactory-cli export --model_name_or_path ORIGINAL --adapter_name_or_path ADAPTER ...")),
             Fix("Or load base model and adapter side by side, without merging.")), of_code=True),
    Refusal("KeyError", r"^['\"]peft_type['\"]$",
            "adapter_config.json does not say which kind of adapter it is{at}",
            "The key peft_type is missing: the file was written by hand, by another program, or is damaged.",
            (Fix("Compare it with a config of PEFT.", ("cat ADAPTER/adapter_config.json", "\"peft_type\": \"LORA\"")),),
            of_code=True,
            within=r"^peft/"),
)
_OF_ATTENTION = (
    Refusal("TypeError", r"^(?P<name>\w+)\.__call__\(\) missing \d+ required (?:positional|keyword-only) arguments?: "
            r"(?P<what>.+)", "the attention processor {name} gets no {what}{at}",
            "Attention of diffusers only passes on what it is called with, to the processor that was set. The "
            "processor's class and the code that calls the attention do not fit: each block between the pipeline or "
            "the training loop and the attention has to hand the argument on.",
            (Fix("Pass it from the outermost call down to the attention, or give it a default if it can be left out.",
                 ("transformer(..., joint_attention_kwargs={'NAME': value})",
                  "unet(..., cross_attention_kwargs={'NAME': value})",
                  "def __call__(self, attn, hidden_states, ..., NAME=None):")),
             Fix("If the class is one of diffusers, a copy of its model code is older or newer than it.",
                 ("pip show diffusers",))),
            look=Look("See where the class is defined, and which code sets it.",
                      "grep -rnw --include='*.py' {name:name} ."),
            of_code=True, raised_in=r"^diffusers/models/attention\w*\.py in forward$", code=r"\bself\.processor\("),
)
OF_MODELS = (*_OF_ATTENTION, *_OF_TOKENIZERS, *_OF_GENERATION, *_OF_LOADING, *_OF_ADAPTERS)
# fmt: on
