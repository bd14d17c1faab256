"""What do engines for inference, kernels for attention and the loss, and trackers refuse in the middle of a run?"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal

# fmt: off
_MASK = r"^invalid dtype for bias - should match query's dtype"
_MASK_TITLE = "the attention mask (bias) has another dtype than the query of the attention{at}"
_ONE_DTYPE = Fix("Load the model in the dtype that it computes in, or make the mask in the dtype of the query.",
                 ("from_pretrained(..., torch_dtype=torch.bfloat16)", "mask = mask.to(query.dtype)"))
OF_ENGINES = (
    Refusal("RuntimeError", r"^Unsloth: No config file found",
            "Unsloth finds no config of the model that it should load: its folder or name does not exist, or the "
            "folder has neither config.json nor adapter_config.json{at}",
            "A folder is missing or incomplete if the run that writes it has failed, has not finished or saves to "
            "another place. A name is misspelled, private, or the Hub cannot be reached. Unsloth gives this message "
            "for whatever keeps it from reading a config.",
            (Fix("Look for the folder, from the folder that the run starts in.",
                 ("ls -la MODEL_FOLDER", "find . -name adapter_config.json -o -name config.json")),
             Fix("If it is a name of the Hub, check that this machine can read it.",
                 ("hf download ORG/MODEL config.json",)),
             Fix("If another run writes it, check that it ended well before this one starts. A shell waits for its own "
                 "children only.", ("tail --pid=PID -f /dev/null", "sbatch --dependency=afterok:JOBID eval.sh"))),
            of_code=True),
    Refusal("RuntimeError", _MASK, _MASK_TITLE,
            "torch's memory-efficient attention adds the mask to the scores, and needs one dtype for both. This call "
            "is in code that torch.compile generated, which does not convert it. Usually autocast made the query one "
            "of 16 bits, and the mask has the dtype of the weights, fp32.",
            (_ONE_DTYPE, Fix("Or do not compile the model.", ("TrainingArguments(torch_compile=False)",))),
            of_code=True, within=r"torch/_(?:inductor|functorch/_aot_autograd)/"),
    Refusal("RuntimeError", _MASK, _MASK_TITLE,
            "torch's memory-efficient attention adds the mask to the scores, and needs one dtype for both. Usually "
            "autocast or the layer made the query one of 16 bits, and the mask is fp32.",
            (_ONE_DTYPE,), of_code=True),
    Refusal("RuntimeError NotImplementedError", r"^Prefix cache and chunked prefill are currently not supported\.?$",
            "the installed vllm-ascend supports neither prefix caching nor chunked prefill, and one of them is on{at}",
            "A prompt's beginning was taken from the cache of an earlier one (prefix caching), or a long prompt was "
            "cut in parts (chunked prefill). Both are arguments of the engine: the script or the trainer that makes it "
            "turned one on, or it is on by default.",
            (Fix("Turn both off where the engine is made.",
                 ("LLM(model=MODEL, enable_prefix_caching=False, enable_chunked_prefill=False)",
                  "grep -rn --include='*.py' -E 'enable_(prefix_caching|chunked_prefill)' .")),
             Fix("If a trainer makes the engine, look for the line there.",
                 ("grep -rn enable_prefix_caching $(python -c 'import trl; print(trl.__path__[0])')",)),
             Fix("Or use releases of vllm and vllm-ascend that belong together and support both.",
                 ("pip show vllm vllm-ascend",))), of_code=True),
    Refusal("", r"^'(?:Parameter|Tensor)' object has no attribute 'weight_loader'",
            "the engine cannot load the trainer's weights into a parameter: probably it replaced it after its first "
            "load{at}",
            "vLLM and SGLang give each parameter a function that loads it (weight_loader). Some quantizations, and "
            "kernels for mixtures of experts, put a new parameter without it in its place once the first weights are "
            "there. Loading again, as for each step of reinforcement learning, then fails.",
            (Fix("Run the engine without quantization, if it has one.", ("LLM(model=MODEL, quantization=None)",)),
             Fix("Or use releases of the engine and of the trainer that were tested together with this model.",
                 ("pip list | grep -iE '^(vllm|sglang|torch) '", "pip check"))), of_code=True,
            within=r" in \w*(?:_to_vllm|sync\w*weights?|update_(?:weights?|named_param)|refit)\w*$"),
    Refusal("RuntimeError", r"^Unsloth: No or negligible GPU memory available for fused cross entropy",
            "the GPU has no memory left for Unsloth's loss{at}",
            "Unsloth asks the driver how much memory is free, to choose the parts in which it computes the loss, and "
            "almost none is. The model, its gradients and activations fill the GPU, or another process does. What "
            "torch has reserved and does not use counts as used.",
            (Fix("See what fills it, and end what is not needed.", ("nvidia-smi",)),
             Fix("Use shorter samples, a smaller batch or a smaller model.",
                 ("SFTConfig(per_device_train_batch_size=1, max_length=1024)",
                  "FastLanguageModel.from_pretrained(MODEL, max_seq_length=1024, load_in_4bit=True)")),
             Fix("If torch only has it reserved, name the memory that the loss may use, before unsloth is imported.",
                 ("export UNSLOTH_CE_LOSS_TARGET_GB=1",), kind="stopgap"),
             Fix("Update Unsloth: releases differ in what they count as free.",
                 ("pip install --upgrade unsloth unsloth_zoo",)))),
    Refusal("ValueError", r"Tensorboard already patched",
            "TensorBoard is connected to wandb twice: by wandb.init(sync_tensorboard=True), and by "
            "wandb.tensorboard.patch(){at}",
            "sync_tensorboard=True calls patch() itself. The logger of a library or a trainer that has an option for "
            "wandb does one of the two, and the script the other; a notebook does it again in each cell.",
            (Fix("Leave it to one of them: call wandb.init() without it, or turn the option of the library off.",
                 ("wandb.init(project='PROJECT')  # without sync_tensorboard=True",)),
             Fix("Or undo the first one.", ("wandb.tensorboard.unpatch()",))), of_code=True),
    Refusal("ValueError UsageError AuthenticationError",
            r"API key must (?:be 40 characters long, yours was|have 40\+ characters, has) (?P<number>[1-3]?\d)\b",
            "what was given to wandb as the API key is none: it has {number} characters, and a key at least 40{at}",
            "The argument, or WANDB_API_KEY, holds something else: a placeholder that nothing replaced (its name in "
            "braces, with an f before the string missing), the name of a project, True, or a part of the key.",
            (Fix("Look at what the command line passes as the key: a launcher prints it. A login that is stored needs "
                 "no key in the command.", ("wandb login",)),
             Fix("Or run without wandb.", ("export WANDB_MODE=disabled",))), of_code=True),
    Refusal("ValueError UsageError", r"API key must be 40 characters long, yours was (?P<number>4[1-9]|[5-9]\d|\d{3,})",
            "wandb's API key has {number} characters, and the installed release of wandb takes 40{at}",
            "Keys that wandb makes now are longer, which older releases do not accept. A key that was pasted twice, or "
            "with other text, is longer too.",
            (Fix("Update wandb, then log in again.", ("pip install --upgrade wandb", "wandb login --relogin")),),
            of_code=True),
)
# fmt: on
