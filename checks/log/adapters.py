"""Do adapters (PEFT), quantized weights and bitsandbytes fit the model, the GPUs and the sharding?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case, Row, signatures

from ._circumstances import shown
from ._relative_paths import without_slash

_PEFT = "https://huggingface.co/docs/peft/developer_guides/troubleshooting"
_LORA = "https://github.com/huggingface/peft/blob/main/src/peft/tuners/lora/model.py"
_QLORA_FSDP = "https://huggingface.co/docs/bitsandbytes/main/en/fsdp_qlora"
_BNB = "https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/functional.py"
_QUANTIZERS = "https://huggingface.co/docs/transformers/main/en/quantization/overview"
_MODEL = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"
_ACCELERATOR = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"
# fmt: off
_OWN_GPU = Fix("Load it on the rank's own GPU.",
               ("from_pretrained(..., device_map={{'': PartialState().local_process_index}})",))
_TORCH_ADAM = Fix("Use an optimizer of torch, or torchao's 8-bit AdamW, which can be sharded.",
                  ("TrainingArguments(optim='adamw_torch')", "TrainingArguments(optim='adamw_torch_8bit')"))

_IA3 = "https://github.com/huggingface/peft/blob/main/src/peft/tuners/ia3/config.py"
_JOINED = Case(
    shown("module_names_joined"),
    "the names of the modules are one text, not a list: the script does not split it, so peft compares whole texts",
    "The log shows several names joined in one string. For peft, that is one name (or one pattern). "
    "feedforward_modules must then name exactly what target_modules names.",
    (Fix("Split both options in the same way, at the character that joins the names.",
         ("target_modules = args.target_modules.split('/')", "feedforward_modules = "
                                                             "args.feedforward_modules.split('/')",
          "print(target_modules, feedforward_modules)")),
     Fix("Every feed-forward module must be in target_modules too.",
         ("IA3Config(target_modules=attention + feedforward, feedforward_modules=feedforward)",))),
    "Target_modules=['layer.1.key/layer.1.value']\n"
    "ValueError: `feedforward_modules` should be a subset of `target_modules`", _IA3)

ROWS = (
    Row("log_ia3_modules_differ", "root", "script",
        r"`feedforward_modules` should be a subset of `target_modules`",
        ("ValueError: `feedforward_modules` should be a subset of `target_modules`",),
        "IA3: a module in feedforward_modules is not in target_modules",
        "IA3 scales the input of feed-forward modules and the output of the others. Both options must list names in "
        "the same form: whole names, or the same endings; a string with several names in it is one name.",
        Fix("List every feed-forward module in target_modules too.",
            ("IA3Config(target_modules=attention + feedforward, feedforward_modules=feedforward)",)),
        _IA3, cases=(_JOINED,)),
    Row("log_lora_target_not_supported", "root", "script",
        r"Target modules? (?P<module>.{1,400}?) is not supported\. Currently, only the following modules",
        ("ValueError: Target module Conv3d(3, 64, kernel_size=(2, 2, 2)) is not supported. Currently, only the "
         "following modules are supported: `torch.nn.Linear`, `torch.nn.Embedding`, `torch.nn.Conv2d`, "
         "`transformers.pytorch_utils.Conv1D`.",),
        "LoRA cannot adapt the module {module}, which target_modules match",
        "A name (or a part of it) matches more than the linear layers: a container, a vision tower's own class, a "
        "quantized layer that this PEFT does not know, or a layer that is wrapped already.",
        (Fix("Target the linear layers only.", ("LoraConfig(target_modules='all-linear')",
                                                "LoraConfig(target_modules=r'.*language_model.*\\.(q|k|v|o)_proj')")),
         Fix("If it is a quantized layer, upgrade PEFT.", ("pip install --upgrade peft",))), _LORA,
        summary="LoRA's target_modules match a module that LoRA cannot adapt."),
    Row("log_quantized_over_gpus", "root", "script",
        r"loaded in (?:8-bit or 4-bit|8-bit|4-bit) precision on multiple devices",
        ("ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on multiple devices in "
         "any distributed mode.",),
        "the quantized model was spread across GPUs by device_map, in every rank",
        "Each rank of a launcher needs a whole model on its own GPU.",
        (_OWN_GPU,
         Fix("If it is too large for one GPU, use FSDP with quantized storage, or start one process that spreads it.",
             ("bnb_4bit_quant_storage=torch.bfloat16", "accelerate launch --num_processes 1 train.py"))), _ACCELERATOR),
    Row("log_quantized_offloaded", "root", "script",
        r"8-bit or 4-bit precision with CPU or disk offload|"
        r"Some modules are dispatched on the CPU or the disk",
        ("ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision with CPU or disk "
         "offload.", "Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the "
                     "quantized model."),
        "the quantized model does not fit on the GPU: device_map put a part of it on the CPU or the disk",
        "Quantized weights cannot be trained from there. Other processes, or another rank on the same GPU, may use the "
        "memory.",
        (Fix("Check who uses the GPU.", ("nvidia-smi", "mgpu doctor --only gpu")), _OWN_GPU,
         Fix("Or shard it with FSDP, or use a smaller model.", ("bnb_4bit_quant_storage=torch.bfloat16",))),
        _QUANTIZERS),
    Row("log_quantized_moved", "root", "script",
        r"`\.(?:to|half\(\)|float\(\))` is not supported for (?:`?\d-bit`? |quantized|HQQ|Quark)|"
        r"Calling `(?:cuda|to)\(\)` is not supported for `?\d-bit|"
        r"You cannot cast a (?:bitsandbytes|GPTQ) model in a new `dtype`",
        ("ValueError: `.to` is not supported for `4-bit` or `8-bit` bitsandbytes models. Please use the model as it "
         "is, since the model has already been set to the correct devices and casted to the correct `dtype`.",
         "ValueError: Calling `cuda()` is not supported for `8-bit` quantized models.",
         "ValueError: You cannot cast a bitsandbytes model in a new `dtype`."),
        "the script moves or casts a quantized model with .to(), .cuda() or .half()",
        "Its weights were placed and packed when they were loaded.",
        (Fix("Remove that call, and choose the GPU and the dtype when loading.",
             ("from_pretrained(..., device_map={{'': PartialState().local_process_index}}, torch_dtype=torch.bfloat16)",
              )),
         Fix("If a package calls it (accelerate, Trainer), upgrade both.",
             ("pip install --upgrade accelerate transformers bitsandbytes",))), _MODEL),
    Row("log_quantization_state_lost", "root", "script",
        r"FP4 quantization state not initialized|^\s*assert module\.weight\.shape\[1\] == 1|"
        r"'Params4bit' object has no attribute '(?:quant_s|absmax|quant_map|nested_)|"
        r"'Parameter' object has no attribute '(?:SCB|CB|quant_state)'",
        ("AssertionError: FP4 quantization state not initialized. Please call .cuda() or .to(device) on the LinearFP4 "
         "layer first.", "    assert module.weight.shape[1] == 1",
         "AttributeError: 'Params4bit' object has no attribute 'absmax'",
         "AttributeError: 'Parameter' object has no attribute 'SCB'"),
        "4-bit weights were moved, sharded or saved without their quantization state",
        "FSDP and ZeRO-3 treat the packed weights as plain parameters, unless they are stored in the dtype of the "
        "others. Weights that were never moved to a GPU are not quantized yet.",
        (Fix("With FSDP, store 4-bit weights like the others, and keep the same dtype.",
             ("BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)",
              "pip install --upgrade bitsandbytes peft accelerate")),
         Fix("With DeepSpeed, use ZeRO stage 2.", ('"zero_optimization": {{"stage": 2}}',))), _QLORA_FSDP),
    Row("log_8bit_optimizer_sharded", "root", "script",
        r"Gradient ?\+ ?optimizer bit data type combination not supported|"
        r"Operator bitsandbytes\.\S*optimizer\S* does not have a sharding|"
        r"output tensor must have the same type as input tensor",
        ("ValueError: Gradient+optimizer bit data type combination not supported: grad torch.bfloat16, optimizer "
         "torch.bfloat16", "RuntimeError: output tensor must have the same type as input tensor"),
        "an 8-bit optimizer of bitsandbytes probably got parameters or states that it cannot handle, as with FSDP",
        "Its states are uint8, which FSDP does not shard or collect like float states, and its kernels expect plain "
        "tensors.",
        (_TORCH_ADAM, Fix("Or shard with DeepSpeed instead of FSDP.", ("mgpu configure",))),
        "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/89"),
    Row("log_bitsandbytes_on_cpu", "root", "script",
        r"nput tensors need to be on the same (?:GPU|device), but found (?:some|the following) tensor",
        ("RuntimeError: All input tensors need to be on the same GPU, but found some tensors to not be on a GPU: "
         "[(torch.Size([1, 8388608]), device(type='cpu'))]",
         "RuntimeError: Input tensors need to be on the same GPU, but found the following tensor and device "
         "combinations:"),
        "bitsandbytes was given tensors on the CPU, or on another GPU",
        "Its kernels run on one GPU. Parameters or optimizer states were offloaded to the CPU (FSDP or DeepSpeed "
        "offload, device_map), or a checkpoint was loaded to another device.",
        (Fix("Do not offload what bitsandbytes updates.", ("accelerate launch --fsdp_offload_params false ...",)),
         _TORCH_ADAM), _BNB),
    Row("log_8bit_kernels_missing", "root", "library",
        r"'NoneType' object has no attribute 'c(?:adam|lion|adagrad|quantize|dequantize|gemm|igemm)\w*'",
        ("AttributeError: 'NoneType' object has no attribute 'cadam32bit_grad_fp32'",),
        "bitsandbytes has no CUDA kernels here: its library for this CUDA was not loaded",
        "Without it only the CPU part is imported, and 8-bit optimizers and layers fail in their first step. The wheel "
        "was built without CUDA, for another platform, or lacks the version that torch uses.",
        (Fix("See what it finds, and install a wheel with CUDA.",
             ("python -m bitsandbytes", "pip install --force-reinstall --no-deps bitsandbytes",
              "python -c 'import torch; print(torch.version.cuda)'")), _TORCH_ADAM),
        "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1635"),
    Row("log_adapter_config_missing", "root", "script",
        r"Can't find '?adapter_config\.json'? at '(?P<path>[^']+)'",
        ("ValueError: Can't find 'adapter_config.json' at 'out/checkpoint-100'",),
        "{path} is not a LoRA adapter: it has no adapter_config.json",
        "It is a full model, an incomplete checkpoint, or a name that exists neither here nor on the Hub.",
        Fix("Check what is in it. Load a full model with from_pretrained().", ("ls -la {path:path}",)), _PEFT,
        cases=(without_slash("log_adapter_config_missing", "ValueError: Can't find 'adapter_config.json' at "
                             "'./home/ada/out/checkpoint-100'"),), summary="A folder is not a LoRA adapter."),
    Row("log_adapter_weights_missing", "root", "script", r"Can't find weights for (?P<path>\S+) in \S+ or in the Hug",
        ("ValueError: Can't find weights for out/ckpt in out/ckpt or in the Hugging Face Hub. Please check that the "
         "file adapter_model.bin or adapter_model.safetensors is present at out/ckpt.",),
        "{path} has the config of an adapter, but no weights",
        "The save was interrupted, or only one node wrote to a disk that is not shared.",
        Fix("Check which files exist, on every node.", ("ls -la {path:path}",)), _PEFT,
        summary="A folder has the config of an adapter, but no weights."),
    Row("log_quantizer_missing", "root", "library",
        r"Loading an? (?P<method>[\w-]+)(?: fbgemm)? quantized model requires .{1,200}?"
        r"pip install (?:--upgrade )?'?(?P<package>[A-Za-z][\w.-]*)",
        ("ImportError: Loading a GPTQ quantized model requires optimum (`pip install optimum`)",
         "ImportError: Loading an AWQ quantized model requires auto-awq library (`pip install autoawq`)",
         "ImportError: Loading an FP8 quantized model requires accelerate (`pip install --upgrade accelerate`)"),
        "the model is quantized with {method}, which needs the package {package}",
        "transformers leaves the kernels of each method to a package of its own.",
        Fix("Install it.", ("pip install --upgrade {package:package}", "pip check")), _QUANTIZERS,
        summary="A quantized model needs a package that is not installed."),
    Row("log_package_metadata_missing", "root", "library",
        r"No package metadata was found for (?:The ')?(?P<package>[A-Za-z][\w.-]*)",
        ("importlib.metadata.PackageNotFoundError: No package metadata was found for bitsandbytes",),
        "the package {package} is required, but is not installed in this environment",
        "Or its folder was copied or deleted by hand, so that pip's record of it is missing.",
        Fix("Install it where the ranks run.", ("python -m pip install --force-reinstall --no-deps {package:package}",
                                                "which python accelerate torchrun")),
        "https://docs.python.org/3/library/importlib.metadata.html",
        summary="A required package is not installed in this environment."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
