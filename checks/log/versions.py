"""Do two installed packages not fit: an argument, an attribute, a name, a module or a model that one of them lacks?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from .. import _skew_meanings as meanings
from .. import _version_skew as skew
from ._image_cases import CLASS_OF_CHECKPOINT, CLASS_OF_OTHER_PROJECT
from ._lazy_imports import explain_lazy_import
from ._other_methods import own_method, own_mode, own_registry
from .generated_code import GENERATED, OF_UNSLOTH

_ERRORS = "https://docs.python.org/3/library/exceptions.html"
_MISSING_ATTRIBUTES = "|".join(map(re.escape, skew.attribute_names()))
_SETTINGS = "|".join(skew.class_names())


# fmt: off
_COMPARE = Fix("Compare the versions with those that the code was tested with.", ("pip check", "pip list"))

ROWS = (
    Row("log_argument_not_accepted", "root", "library",
        r"(?<![\w.\"'])(?!\w*[Rr]eward\w*\(\))(?P<call>[\w.]+)(?:\.<locals>\.\w+)?\(\) got an unexpected keyword "
        r"argument '(?P<name>\w+)(?:'|$)",
        ("TypeError: frobnicate() got an unexpected keyword argument 'strength'",
         "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
         "TypeError: __init__() got an unexpected keyword argument 'evaluation_strategy'",
         "TypeError: Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'",
         "TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'"),
        "{call}() does not accept the argument {name}",
        "The argument is misspelled, or the package that defines {call}() is older or newer than its caller expects.",
        _COMPARE, "https://docs.python.org/3/library/exceptions.html#TypeError",
        summary="A function does not accept an argument: the caller expects another version of it.",
        explain=meanings.explain_argument),
    Row("log_option_not_parsed", "root", "library",
        r"(?:arguments|keys) are not used by the HfArgumentParser: (?P<names>\[.+\])",
        ("ValueError: Some specified arguments are not used by the HfArgumentParser: ['--my_option', '3']",
         "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--evaluation_strategy', "
         "'steps']"),
        "the script does not accept these options: {names}",
        "The name is misspelled, or the installed transformers is older or newer than the command line expects.",
        Fix("Check which options it accepts.", ("pip check", "python train.py --help", "pip show transformers")),
        "https://huggingface.co/docs/transformers/main_classes/trainer",
        summary="The script does not accept an option of TrainingArguments.", explain=meanings.explain_parser),
    Row("log_dataset_option_removed", "root", "library",
        r"BuilderConfig \S*.* doesn't have a '(?P<name>\w+)' key",
        ("ValueError: BuilderConfig ParquetConfig(name='default') doesn't have a 'trust_remote_code' key.",),
        "load_dataset does not accept {name} in the installed datasets",
        "load_dataset passes arguments that it does not have to the dataset's builder. datasets 3.0 removed "
        "use_auth_token and task, 4.0 removed trust_remote_code.",
        (Fix("Remove the argument (token replaces use_auth_token).", ("pip show datasets",)),
         Fix("Or install an older datasets.", ("pip install 'datasets<4'",))),
        "https://github.com/huggingface/datasets/releases/tag/4.0.0",
        summary="load_dataset does not accept an argument in the installed datasets."),
    Row("log_overridden_method_differs", "root", "library",
        r"(?P<call>[\w.]*\b(?:log|_save_checkpoint|_get_train_sampler|training_step|compute_loss|prediction_step))\(\) "
        r"(?:takes \d+ positional arguments? but \d+ were given|missing \d+ required positional arguments?)",
        ("TypeError: MyTrainer.log() takes 2 positional arguments but 3 were given",
         "TypeError: MyTrainer._save_checkpoint() missing 1 required positional argument: 'metrics'",
         "TypeError: MyTrainer._get_train_sampler() takes 1 positional argument but 2 were given"),
        "{call}() overrides a method of Trainer, with the arguments of another transformers release",
        "transformers 4.46 added num_items_in_batch to compute_loss and training_step, 4.47 added start_time to log "
        "and removed metrics from _save_checkpoint, 4.52 added train_dataset to _get_train_sampler.",
        (Fix("Accept *args and **kwargs in the method, and pass them on.", ("pip show transformers",)),
         Fix("Or install the release that it was written for.", ("pip install 'transformers<4.46'",))),
        "https://github.com/huggingface/transformers/releases/tag/v4.47.0",
        summary="An overridden method of Trainer does not fit the installed transformers.", explain=own_method),
    Row("log_positions_not_passed", "root", "library",
        r"forward\(\) missing 1 required positional argument: 'position_embeddings'|"
        r"^\s+cos, sin = position_embeddings$",
        ("TypeError: LlamaAttention.forward() missing 1 required positional argument: 'position_embeddings'",
         "    cos, sin = position_embeddings"),
        "a patched or copied attention layer does not fit the installed transformers",
        "Since 4.48, the model computes the rotary embeddings once and passes them to every layer. Code that calls or "
        "replaces a layer for an older release does not.",
        (Fix("Upgrade the package that patches the model, or install the transformers that it was written for.",
             ("pip install 'transformers<4.48'", "pip show transformers")),),
        "https://github.com/huggingface/transformers/releases/tag/v4.48.0"),
    Row("log_parallel_styles_missing", "root", "library", r"^\s*if v not in ALL_PARALLEL_STYLES",
        ("    if v not in ALL_PARALLEL_STYLES:",),
        "the installed torch is too old for this transformers: its table of parallel styles is empty",
        "transformers 4.51 and 4.52 need torch 2.5 here and do not check for it. Python only reports that NoneType is "
        "not iterable.",
        (Fix("Upgrade torch.", ("pip install 'torch>=2.5' torchvision torchaudio",)),
         Fix("Or install another transformers.", ("pip install 'transformers<4.51'",))),
        "https://github.com/hiyouga/LlamaFactory/issues/8397"),
    Row("log_registered_twice", "root", "library",
        r"(?P<name>\w+) is already registered in (?P<registry>\w+) at (?P<package>[\w.]+)",
        ("KeyError: 'Adafactor is already registered in optimizer at torch.optim'",
         "KeyError: 'SiLU is already registered in activation at torch.nn.modules.activation'"),
        "{name} was registered twice as {registry}: the installed {package} has it already",
        "mmcv and mmengine add such names themselves, and fail if a newer release of torch or of another package has "
        "one of its own (Adafactor: torch 2.5, fixed in mmengine 0.10.6). In your own code: a module is imported under "
        "two names.",
        Fix("Upgrade mmengine and mmcv, or install the older torch that they were made for.",
            ("pip install --upgrade mmengine", "pip show mmengine mmcv torch")),
        "https://github.com/open-mmlab/mmengine/issues/1609",
        summary="A name was registered twice: a newer package has it already.", explain=own_registry),
    Row("log_module_lacks_name", "root", "library",
        rf"(?<!initialized )\bmodule '?(?P<module>(?!numpy\b|{GENERATED}|"
        r"deepspeed\.runtime\.sequence_parallel|torch\._C'? has no attribute '?_cuda_)[A-Za-z_][\w.]*)'? "
        r"has no "
        r"attribute '?(?P<name>\w+)",
        ("AttributeError: module 'helpers' has no attribute 'make_optimizer'",
         "AttributeError: module transformers has no attribute Qwen2_5_VLForConditionalGeneration",
         "AttributeError: module 'torch.library' has no attribute 'register_fake'",
         "AttributeError: module 'torch' has no attribute 'float8_e8m0fnu'. Did you mean: 'float8_e4m3fn'?"),
        "the {module} that is imported has no {name}",
        "The code was written for an older or newer {module}, another file of that name is imported, or, if it is a "
        "module of the project, {name} is missing or misspelled in it.",
        Fix("Check which file is imported, and its version.",
            ("pip check", "python -c 'import {module:dotted} as m; print(m.__file__)'")), _ERRORS + "#AttributeError",
        summary="A module lacks a name that the code reads: another version is installed.",
        explain=meanings.explain_name),
    Row("log_object_lacks_attribute", "root", "library",
        rf"(?:'|AttributeError: )(?P<owner>(?:{_SETTINGS})(?=')|(?=\w+'? (?:object )?has no attribute "
        rf"'?(?:{_MISSING_ATTRIBUTES})\b)"
        r"(?!(?:float|int|str|bytes|list|tuple|dict|set|bool|function|method|Tensor)\b|Dummy(?:Optim|Scheduler)|DistributedDataParallel|FullyShardedDataParallel|DataParallel|DeepSpeedEngine|"
        r"NoneType|ConfigDict|CfgNode|EasyDict|AttrDict|DictConfig|Munch\b|Box\b)\w+)'? "
        r"(?:object )?has no attribute '?(?P<name>\w+)'?",
        ("AttributeError: 'TinyNet' object has no attribute 'tokenizer'",
         "AttributeError: 'Qwen2ForCausalLM' object has no attribute '_is_quantized_training_enabled'",
         "AttributeError: 'DynamicCache' object has no attribute 'get_max_length'",
         "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended. Did you mean: 'x'?",
         "AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'. Did you mean: 'num_generations'?",
         "AttributeError: 'DynamicCache' object has no attribute 'seen_tokens'"),
        "an object of the class {owner} has no attribute {name}",
        "If {owner} is the script's own class, it does not define the attribute. If it is a class of a package, "
        "another release may have it.",
        Fix("Go to the line at the end of {the_traceback}. If the class is a package's, compare its version.",
            ("pip check",)), _ERRORS + "#AttributeError",
        summary="An object lacks an attribute that another release of its package has.",
        explain=meanings.explain_attribute),
    Row("log_rope_keys_are_a_list", "root", "library",
        r"ignore_keys_at_rope_validation \| \{",
        ('    ignore_keys_at_rope_validation = ignore_keys_at_rope_validation | {"partial_rotary_factor"}',),
        "the installed transformers does not fit the package that defines the model's config (probably vllm)",
        "transformers 5 expects ignore_keys_at_rope_validation to be a set. Configs of models that other packages "
        "bring along (vllm 0.17 and 0.18 for Qwen3.5) pass a list.",
        (Fix("Install releases that were tested together.",
             ("pip show transformers vllm", "pip install --upgrade vllm", "pip check")),
         Fix("Or change that line in the package's file.", ("set(ignore_keys_at_rope_validation) | {{...}}",))),
        "https://github.com/modelscope/ms-swift/issues/8305"),
    Row("log_optimizer_has_no_modes", "root", "library",
        r"'(?P<owner>\w*(?:Adam|SGD|Lion|Adafactor|Adagrad|Optimizer|RMSprop|Lamb)\w*)' object has no attribute "
        r"'(?P<name>train|eval)'",
        ("AttributeError: 'AdamW' object has no attribute 'train'", "'SGD' object has no attribute 'eval'"),
        "the installed accelerate is too old for this transformers: it calls {owner}.{name}(), which few "
        "optimizers have",
        "Trainer puts optimizers into training mode since 4.46. accelerate checks since 0.34 whether the optimizer has "
        "such a mode.",
        Fix("Upgrade accelerate.", ("pip install 'accelerate>=0.34'", "pip show accelerate transformers")),
        "https://github.com/huggingface/accelerate/releases/tag/v0.34.0",
        summary="Trainer calls train() or eval() of an optimizer through an accelerate that is too old.",
        explain=own_mode),
    Row("log_name_not_in_module", "root", "library",
        r"(?:ImportError: |^)cannot import name '(?P<name>[\w.]+)' from (?!partially)"
        rf"'(?!pyramid\.|{OF_UNSLOTH})(?P<module>[\w.]+)'",
        ("ImportError: cannot import name 'make_optimizer' from 'helpers' (/home/u/helpers.py)",
         "ImportError: cannot import name 'Qwen3Config' from 'transformers' (/x/transformers/__init__.py)",
         "ImportError: cannot import name 'packaging' from 'pkg_resources' (/x/pkg_resources/__init__.py)",
         "ImportError: cannot import name 'AttrsDescriptor' from 'triton.compiler.compiler' (/x/compiler.py)",
         "cannot import name 'LossKwargs' from 'transformers.utils' (/x/transformers/utils/__init__.py)"),
        "the {module} that is imported has no {name}",
        "The code was written for a newer or an older {module}, another file of that name is imported, or, if it is a "
        "module of the project, {name} is missing or misspelled in it.",
        Fix("Check which file is imported, and which package requires it.",
            ("pip check", "python -c 'import {module:dotted} as m; print(m.__file__)'",
             "mgpu doctor --only requirement_not_met,versions_known_bad_together")),
        _ERRORS + "#ImportError", summary=
        "An installed package lacks a name that another one imports.", explain=meanings.explain_name),
    Row("log_submodule_missing", "root", "library",
        r"(?:ModuleNotFoundError: |ImportError: |^|Original error was: |python[\d.]*: )No module named "
        r"'?(?!vllm\._(?:version|commit)|mmcv\._ext\b)(?P<module>[A-Za-z_]\w*(?:\.\w+)+)",
        ("ModuleNotFoundError: No module named 'mylib.losses'",
         "ModuleNotFoundError: No module named 'transformers.deepspeed'",
         "ModuleNotFoundError: No module named 'huggingface_hub.errors'",
         "ModuleNotFoundError: No module named 'numpy._core'",
         "No module named 'transformers.models.qwen3'",
         "Original error was: No module named 'numpy.core._multiarray_umath'"),
        "the installed package has no module {module}",
        "The package is there, but this module of it is not: the code was written for a newer or an older release, or "
        "another folder of that name is imported.",
        Fix("Check the version, and which folder is imported.", ("pip check", "pip list")), _ERRORS +
        "#ModuleNotFoundError",
        summary="An installed package lacks a module: another version is needed.", cases=(CLASS_OF_CHECKPOINT,),
        explain=meanings.explain_module),
    Row("log_module_missing", "root", "library",
        r"(?:^\s*(?:ModuleNotFoundError|ImportError)|^\S*python[\d.]*|specification for '\S+' "
        r"\(ModuleNotFoundError|^): "
        r"No module named '?(?!mpi4py)(?P<module>[A-Za-z_]\w*)(?!\.?\w)",
        ("ModuleNotFoundError: No module named 'flash_attn'", "/usr/bin/python: No module named accelerate",
         "ModuleNotFoundError: No module named 'sentencepiece'", "ModuleNotFoundError: No module named 'sklearn'",
         "ModuleNotFoundError: No module named 'amp_C'"),
        "a Python module is not installed in this environment: {module}",
        "Either it was never installed, or the run uses a different Python interpreter than the one that you installed "
        "it for (environment not activated, sudo, Slurm, another kernel of a notebook).",
        Fix("Check which Python runs, and install the module there.",
            ("which python accelerate torchrun", "mgpu doctor --only python_on_path_is_another")),
        _ERRORS + "#ModuleNotFoundError", summary="A Python module is not installed in this environment.",
        explain=meanings.explain_installable, cases=(CLASS_OF_OTHER_PROJECT,),
        because_of=("log_build_isolated", "log_conda_folder_missing", "log_environment_not_active",
                    "log_module_not_loaded")),
    Row("log_requires_other_version", "root", "library",
        r"(?P<wanted>[A-Za-z][\w.-]+ ?[<>=!~]=?[\w.,<>=!~*]+) is required for a normal functioning of this module, but "
        r"found "
        r"(?P<installed>[\w.=+-]+)",
        ("ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found "
         "tokenizers==0.20.0.",
         "ImportError: huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module, but found "
         "huggingface-hub==1.0.1."),
        "an installed package requires {wanted}, but {installed} is installed", "Only one of them was upgraded.",
        Fix("Install what the line requires.", ("pip check",)),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/versions.py",
        summary="An installed package requires another version of a package.", explain=meanings.explain_requirement),
    Row("log_requirement_conflicts", "root", "library",
        r"(?:(?:Distribution|Package)NotFound(?:Error)?: The '|^The '|Requirement\.parse\(')(?P<wanted>[^']+)'\)?"
        r"(?: distribution was not found and is required by |, \{')(?P<who>the application|[\w.-]+)",
        ("pkg_resources.DistributionNotFound: The 'transformers<4.45,>=4.33' distribution was not found and is "
         "required by ms-swift",
         "pkg_resources.ContextualVersionConflict: (transformers 4.46.0 (/x/site-packages), "
         "Requirement.parse('transformers<4.45,>=4.33'), {'ms-swift'})"),
        "{who} requires {wanted}, which is not what is installed",
        "The package is missing, or its version is outside the range that {who} accepts.",
        Fix("Install what it requires, or another release of {who}.", ("pip install {wanted:package}", "pip check")),
        "https://setuptools.pypa.io/en/latest/pkg_resources.html",
        summary="A package requires another version of a package than is installed."),
    Row("log_transformers_import_failed", "wrapper", "library",
        r"Failed to import [a-z]\w+\.[\w.]+ because of the following error|"
        r"Could not import module '\w+'\. Are this object's requirements",
        ("RuntimeError: Failed to import transformers.models.llama.modeling_llama because of the following error (look "
         "up to see its traceback):",
         "RuntimeError: Failed to import trl.trainer.grpo_trainer because of the following error (look up to see its "
         "traceback):",
         "ModuleNotFoundError: Could not import module 'Trainer'. Are this object's requirements defined correctly?"),
        "a package could not import one of its own modules; the first exception of the chain has the reason",
        "A package that it imports is missing, or does not fit. transformers, diffusers and trl import their modules "
        "when they are first used.",
        Fix("Read the first exception, or import the module alone.", ("python -c 'from transformers import Trainer'",)),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/import_utils.py",
        explain=explain_lazy_import),
    Row("log_keras_3", "root", "library", r"installed version of Keras is Keras 3",
        ("ValueError: Your currently installed version of Keras is Keras 3, but this is not yet supported in "
         "Transformers. Please install the backwards-compatible tf-keras package with `pip install tf-keras`.",),
        "TensorFlow with Keras 3 is installed, which this transformers does not support",
        "transformers imports TensorFlow if it finds it, even if only torch is used.",
        Fix("Remove TensorFlow from this environment, or install the old Keras next to it.",
            ("pip uninstall -y tensorflow", "pip install tf-keras", "export USE_TF=0")),
        "https://github.com/huggingface/transformers/issues/34761"),
    Row("log_filesystems_do_not_fit", "root", "library",
        r"Invalid pattern: '\*\*' can only be an entire path component|"
        r"Loading a dataset cached in a LocalFileSystem is not supported",
        ("ValueError: Invalid pattern: '**' can only be an entire path component",
         "NotImplementedError: Loading a dataset cached in a LocalFileSystem is not supported."),
        "the installed datasets is too old for this fsspec", "fsspec 2023.10 changed paths that older datasets "
                                                             "releases use.",
        Fix("Upgrade datasets.", ("pip install --upgrade datasets",)),
        "https://github.com/huggingface/datasets/issues/6352"),
    Row("log_triton_too_old", "root", "library",
        r"LLVM ERROR: Cannot select: intrinsic %llvm\.nvvm|'sm_\d+a?' is not a recognized processor|"
        r"\btriton\S* (?:is )?too old",
        ("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
         "'sm_120' is not a recognized processor for this target (ignoring processor)"),
        "the installed triton does not support this GPU", "Its compiler is older than the GPU's generation. Each torch "
        "release requires one triton release.",
        Fix("Upgrade torch and triton together: torch 2.7 with triton 3.3 is the first for Blackwell.",
            ("pip install --upgrade 'torch>=2.7'", "pip show torch triton")),
        "https://github.com/pytorch/pytorch/issues/148551"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
