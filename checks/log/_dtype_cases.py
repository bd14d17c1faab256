"""What do tensors of the wrong dtype mean, by where they were used and how the run started?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, never, said, several_ranks, shown, within

# fmt: off
BF16_ON_MAC = Case(
    shown("on_mac"),
    "bf16 was requested on a Mac, and this program accepts it on NVIDIA's and other GPUs only",
    "The check asks for a CUDA device, which a Mac does not have. Apple's GPU (mps) computes in fp32 and fp16; in bf16 "
    "only with macOS 14 and a recent torch.",
    (Fix("Train in fp32, or load the weights in fp16 for inference.",
         ("TrainingArguments(bf16=False, fp16=False)", "from_pretrained(MODEL, torch_dtype=torch.float16)")),
     Fix("Newer releases accept more on mps.", ("pip install --upgrade torch transformers accelerate",))),
    'Traceback (most recent call last):\n  File "/Users/ada/tune.py", line 9, in <module>\n    args = arguments()\n'
    "ValueError: Your setup doesn't support bf16/gpu.\n",
    "https://docs.pytorch.org/docs/stable/notes/mps.html")
_DTYPES = ('Traceback (most recent call last):\n  File "/x/site-packages/{file}", line 9, in {function}\n    y = f(x)\n'
           "RuntimeError: {message}")
_TRAINS = either(within(r"(?i)train|^trl/|in (?:log_validation|evaluat\w*|prediction_step)$"), shown("loss_logged"),
                 several_ranks)
_ONE_LACKS_IT = said(r"not implemented for '")
_MAT = "mat1 and mat2 must have the same dtype, but got Float and BFloat16"
DTYPES = (
    Case(every(said(r"not implemented for '(?:Half|BFloat16)'"),
               within(r"^torch/optim/(?!lr_scheduler)\w+\.py in|^(?:deepspeed|apex)/\S*adam\S*\.py in")),
         "the optimizer's step computes in 16 bits, and torch has no such operation for this dtype on this device",
         "The message names the operation and the dtype (Half is fp16). The optimizer works on the parameters as "
         "they are stored, outside of autocast. On the CPU (offload) and on devices other than NVIDIA's "
         "and AMD's GPUs, releases of torch lack operations for fp16.",
         (Fix("Load the trained parameters in fp32, and let mixed precision compute in 16 bits.",
              ("from_pretrained(..., torch_dtype=torch.float32)", "TrainingArguments(bf16=True)",
               "print({{p.dtype for p in model.parameters()}}, {{p.device for p in model.parameters()}})")),
          Fix("Or use a newer torch, which has more of them.", ("pip show torch",))),
         _DTYPES.format(file="torch/optim/adam.py", function="_single_tensor_adam",
                        message="\"lerp_kernel_scalar\" not implemented for 'Half'"),
         "https://docs.pytorch.org/docs/stable/amp.html"),
    Case(said(r"FlashAttention(?:-\d)? only supports?"),
         "FlashAttention got fp32 tensors: it computes in fp16 and bf16 only",
         "The model was loaded in fp32 and runs outside of autocast, or a layer (norms in fp32, LoRA, "
         "prepare_model_for_kbit_training) makes its query and key fp32.",
         (Fix("Load the model in bf16, and compute inside autocast.",
              ("from_pretrained(..., torch_dtype=torch.bfloat16)", "TrainingArguments(bf16=True)",
               "with torch.autocast('cuda', dtype=torch.bfloat16):")),
          Fix("Or use PyTorch's attention.", ("from_pretrained(..., attn_implementation='sdpa')",))),
         _DTYPES.format(file="flash_attn/flash_attn_interface.py", function="forward",
                        message="FlashAttention only support fp16 and bf16 data type"),
         "https://github.com/Dao-AILab/flash-attention"),
    Case(every(within(r"generation/utils\.py|^diffusers/"), never(_TRAINS), never(_ONE_LACKS_IT)),
         "two tensors have different dtypes in inference: parts of the model, or an input, are of another type",
         "The weights were loaded or converted to one type (fp16, bf16), and a part or an input (images, embeddings, "
         "an adapter, a new head) was made in another. Outside of autocast, torch does not convert them.",
         (Fix("Load all parts in one dtype, and convert the inputs that are not ids.",
              ("from_pretrained(MODEL, torch_dtype=torch.float16)",
               "inputs = {{k: v.to(model.dtype) if v.is_floating_point() else v for k, v in inputs.items()}}",
               "print({{p.dtype for p in model.parameters()}})")),
          Fix("Or compute inside autocast.", ("with torch.autocast('cuda', dtype=torch.float16):",))),
         'Traceback (most recent call last):\n  File "/x/chat.py", line 9, in <module>\n    model.generate(x)\n'
         '  File "/x/site-packages/transformers/generation/utils.py", line 9, in generate\n    y = f(x)\n'
         f"RuntimeError: {_MAT}",
         "https://huggingface.co/docs/transformers/main_classes/model"),
    Case(every(within(r"generation/utils\.py|in log_validation$|^(?:transformers|trl|diffusers|swift|peft)/\S* in "
                      r"generate$"), never(_ONE_LACKS_IT)),
         "two tensors have different dtypes in generation, which runs outside of mixed precision",
         "The trainer computes the forward pass of a step inside autocast. generate() and samples for validation do "
         "not run there by themselves.",
         (Fix("Run it inside autocast, or load everything in one dtype.",
              ("with torch.autocast('cuda', dtype=torch.bfloat16):", "TrainingArguments(bf16_full_eval=True)")),),
         "step 3 loss: 1.25\n"
         + _DTYPES.format(file="transformers/generation/utils.py", function="generate", message=_MAT),
         "https://pytorch.org/docs/stable/amp.html"),
    Case(within(r"(?:^|/)peft/"),
         "an adapter (LoRA) and its base model have different dtypes",
         "PEFT keeps trained adapters in fp32, the base model is in bf16 or fp16, and the layer ran outside of "
         "autocast.",
         (Fix("Train with mixed precision, or cast the adapter too.",
              ("TrainingArguments(bf16=True)", "model.to(torch.bfloat16)",
               "get_peft_model(model, config, autocast_adapter_dtype=False)")),),
         _DTYPES.format(file="peft/tuners/lora/layer.py", function="forward", message=_MAT),
         "https://huggingface.co/docs/peft/developer_guides/troubleshooting"),
    Case(within(r"deepspeed/runtime/"),
         "an input has another dtype than the weights: DeepSpeed runs the model in bf16 or fp16 without autocast",
         "DeepSpeed converts the weights, and casts only the direct float inputs of the engine's forward(). Images, "
         "masks, embeddings or buffers made inside the model stay in fp32.",
         (Fix("Cast them to the model's dtype where they are made.", ("x = x.to(self.dtype)",)),
          Fix("Or let torch cast (newer releases of DeepSpeed).", ('"torch_autocast": {{"enabled": true}}',))),
         _DTYPES.format(file="deepspeed/runtime/engine.py", function="forward", message=_MAT),
         "https://www.deepspeed.ai/docs/config-json/"),
)
# fmt: on
