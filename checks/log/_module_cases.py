"""Which module and which input do not fit, by torch's names of their tensors?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.signature import Case, Meaning
from mgpu.snapshot import UncaughtException

from .._wording import at_place
from ._circumstances import either, every, shown, within

# fmt: off
_BNB = "https://huggingface.co/docs/bitsandbytes/main/en/installation"
BNB_SOURCE_TREE = Case(
    shown("bitsandbytes_source_tree"),
    "Python imports bitsandbytes from a source tree that has no compiled library",
    "The path in the log is not in site-packages: a clone of the repository, in the current folder or on PYTHONPATH, "
    "hides the installed package. Its library exists only after it was compiled, so another release does not help.",
    (Fix("Run from another folder, or rename the clone, so that the installed package is found.",
         ("cd / && python -c 'import bitsandbytes; print(bitsandbytes.__file__)'", "echo $PYTHONPATH")),
     Fix("Compile the clone for this CUDA.", ("cmake -DCOMPUTE_BACKEND=cuda -S . && make && pip install -e .",)),
     Fix("Let it use torch's own CUDA version.", ("unset BNB_CUDA_VERSION",))),
    "Could not find the bitsandbytes CUDA binary at PosixPath('/home/u/bitsandbytes/bitsandbytes/"
    "libbitsandbytes_cuda124.so')\n", _BNB)
BNB_CUDA_CHOSEN = Case(
    shown("bitsandbytes_cuda_chosen"),
    "bitsandbytes has no library for the CUDA version that BNB_CUDA_VERSION names",
    "The variable replaces the version of torch's CUDA, for which the wheel usually has a library. It is probably a "
    "leftover of another environment.",
    (Fix("Unset it where the ranks start.", ("unset BNB_CUDA_VERSION", "python -m bitsandbytes")),
     Fix("If it is set on purpose, see which libraries the package has.",
         ("ls $(python -c 'import importlib.util as u; print(u.find_spec(\"bitsandbytes\").submodule_search_locations"
          "[0])')",))),
    "BNB_CUDA_VERSION=99 environment variable detected; loading libbitsandbytes_cuda99.so.\n", _BNB)
_LOAD_IN_4BIT = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    model = load()\n'
    '  File "/x/site-packages/transformers/quantizers/quantizer_bnb_4bit.py", line 70, in validate_environment\n'
    "    raise ImportError(\nImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of "
    "bitsandbytes: `pip install -U bitsandbytes`")
# In transformers 4.53 and later, and with a GPU that torch can use, the message means only that the package is missing.
BNB_NOT_INSTALLED = Case(
    every(within(r"^transformers/quantizers/quantizer_bnb_\w+\.py in validate_environment"),
          either(shown("bitsandbytes_alone_checked"), shown("has_its_gpus"))),
    "bitsandbytes is not installed in the Python of this run, and the model is loaded in 4 or 8 bits",
    "transformers did not find the package when it was imported. The GPU is not the reason. The model is loaded in 4 "
    "or 8 bits because the script asks for it (load_in_4bit, BitsAndBytesConfig), or because it was saved so "
    "(quantization_config in its config.json).",
    (Fix("Install it before transformers is imported. In a notebook, restart the kernel after that.",
         ("pip install -U bitsandbytes",)),
     Fix("Without internet access, install it from a wheel.",
         ("pip download bitsandbytes --no-deps -d wheels  # where there is internet access",
          "pip install --no-index --no-deps --find-links wheels bitsandbytes"))),
    "GPU available: True (cuda), used: True\n" + _LOAD_IN_4BIT,
    "https://github.com/huggingface/transformers/blob/v4.53.3/src/transformers/utils/import_utils.py")
NO_BITSANDBYTES = Case(
    within(r"^transformers/quantizers/quantizer_bnb_\w+\.py in validate_environment"),
    "transformers finds no bitsandbytes that it can use: it is not installed in this Python, or torch has no GPU here",
    "The message is the same if torch.cuda.is_available() is False (a login node, a job without GPUs, a torch for "
    "another CUDA), whatever release of bitsandbytes is installed.",
    (Fix("Check both in the environment of the ranks, on the node of the job.",
         ("python -c 'import torch, bitsandbytes as b; print(torch.cuda.is_available(), b.__version__)'",
          "pip install -U bitsandbytes")),
     Fix("If torch has no GPU there, find out why.", ("mgpu doctor --only driver,visibility,pytorch",))),
    _LOAD_IN_4BIT,
    "https://github.com/huggingface/transformers/blob/main/src/transformers/quantizers/quantizer_bnb_8bit.py")
# fmt: on
_TYPES = re.compile(
    r"Input type \((?P<input>[\w.:]+)\) and (?P<what>weight|bias) type \((?P<weight>[\w.:]+)\) should be the same"
)
_CALLED = re.compile(r"(?:^|[=(, ])(?P<name>(?:self\.)?[A-Za-z_]\w*(?:\.\w+)*)\(")
# Calls that are no modules: Python's own, and methods of tensors and loggers.
_NO_MODULE = re.compile(r"(?:^|\.)(?:to|cuda|cpu|print|len|backward|step|float|half|detach|append|next|enumerate|zip)$")
_MAIN = frozenset({"model", "self.model", "net", "self.net", "unet", "transformer"})


_GPUS = re.compile(r"(?i)cuda|^mps|xpu|npu|xla|hpu")
_DISTRIBUTED = frozenset({"accelerate", "transformers", "diffusers", "trl", "peft", "deepspeed"})


def _on_gpu(name: str) -> bool:
    return bool(_GPUS.search(name))


def of_accelerate(one: UncaughtException | None) -> bool:
    """Whether the exception went through accelerate or a library that is built on it."""
    return one is not None and bool(_DISTRIBUTED & {*one.packages})


def called_module(one: UncaughtException | None) -> str | None:
    """Return what the script's own line calls: "image_encoder" of "out = image_encoder(batch)"."""
    for found in _CALLED.finditer(one.own_code or "") if one else ():
        if not _NO_MODULE.search(found["name"]):
            return found["name"]
    return None


def never_moved(name: str | None, where: str, *, accelerated: bool) -> Meaning:
    """Explain a module whose weights are on the CPU while its input is on the GPU.

    `accelerated`: accelerate moves what it prepares.
    """
    module, of_module = name or "MODULE", f"the weights of {name}" if name else "a module's weights"
    title = f"{of_module} are on the CPU, and its input is on the GPU{where}"
    if not accelerated:
        return _left_behind(title, module)
    only = (
        "" if module in _MAIN else " A frozen part (an encoder, a VAE, a reward or teacher model) is not moved by it."
    )
    return Meaning(
        title,
        f"The module was never moved to the rank's GPU. accelerator.prepare() and DDP move only what they are "
        f"given.{only}",
        (
            Fix(
                "Move it once, before the training loop, in the dtype of its input.",
                (python("{:dotted}.to(accelerator.device, dtype=weight_dtype)", module),),
            ),
            Fix(
                "If it was moved, check what moved it back (enable_model_cpu_offload, a reload from a checkpoint).",
                (python("print(next({:dotted}.parameters()).device)", module),),
            ),
        ),
    )


def _left_behind(title: str, module: str) -> Meaning:
    """Explain a module that the script did not move, or of which it left out a part."""
    return Meaning(
        title,
        "The module, or a part of it, was not moved to the GPU. model.to(device) moves the layers that a module "
        "has as attributes or in nn.ModuleList: not those in a plain list or dict, nor those that are made in "
        "forward(). accelerator.prepare() and DDP move only what they are given.",
        (
            Fix("Move it once, before the loop.", (python("{:dotted}.to(device)", module),)),
            Fix(
                "If it was moved, look for the layers that are left.",
                (
                    python("print([n for n, p in {:dotted}.named_parameters() if p.device.type == 'cpu'])", module),
                    "self.layers = nn.ModuleList(layers)  # not a list",
                ),
            ),
        ),
    )


def input_not_moved(name: str | None, where: str, *, accelerated: bool) -> Meaning:
    """Explain an input on the CPU of a module whose weights are on the GPU."""
    title = f"the input of {name or 'a module'} is on the CPU, and its weights are on the GPU{where}"
    if not accelerated:
        return Meaning(
            title,
            "The batch, or a tensor made in the script, was not moved to the GPU. x.to(device) returns the moved "
            "tensor and does not change x. accelerate moves the batches of a DataLoader that it prepared.",
            (Fix("Move it to the device of the weights.", ("x = x.to(next(model.parameters()).device)",)),),
        )
    return Meaning(
        title,
        "The batch, or a tensor made in the script, was not moved to the rank's GPU.",
        (
            Fix("Move the tensor before the call.", ("x = x.to(accelerator.device)", "mgpu doctor --script train.py")),
            Fix("With accelerate, let it move the batches.", ("loader = accelerator.prepare(loader)",)),
        ),
    )


def explain_input_type(one: UncaughtException | None) -> Meaning | None:
    """Explain an input of another device or dtype than the weights of the module that gets it."""
    found = _TYPES.search(one.message) if one else None
    if one is None or found is None:
        return None
    weight_on_gpu, input_on_gpu = _on_gpu(found["weight"]), _on_gpu(found["input"])
    name = called_module(one)
    module, where = name or "MODULE", at_place(one)
    if input_on_gpu and not weight_on_gpu:
        return never_moved(name, where, accelerated=of_accelerate(one))
    if weight_on_gpu and not input_on_gpu:
        return input_not_moved(name, where, accelerated=of_accelerate(one))
    return Meaning(
        f"the input of {name or 'a module'} has another dtype than its {found['what']}: {found['input']} and "
        f"{found['weight']}{where}",
        "The module was loaded or cast to one dtype (fp16, bf16), and its input was made in another, outside of "
        "autocast. Validation, sampling and frozen parts often run outside of it.",
        (
            Fix(
                "Cast the input to the module's dtype.",
                (python("x = x.to(next({:dotted}.parameters()).dtype)", module),),
            ),
            Fix("Or run it inside autocast.", ("with torch.autocast('cuda', dtype=torch.bfloat16):",)),
        ),
    )
