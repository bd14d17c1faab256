"""What do frameworks and their code refuse: meshes, registries, hooks, values next to a limit?

One entry for one message, as in `_refused_inputs.py`. Texts for `exceptions.py`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.snapshot import UncaughtException

from ._own_objects import Meaning
from ._refusal import Look, Refusal

# fmt: off
_NO_TYPE = ("A config of mmengine or mmcv names the class of each part by `type`. The other keys are the arguments of "
            "that class. It is missing where the config was written or changed, or the code builds a part of the "
            "config that is no class.")
_SHOW_DICT = Look("Find this dict in the config by its first key, and add the type that the model's original config "
                  "has there.", "grep -rn -B3 {first:name} configs")
_NEEDS_TYPE = r"`cfg` or `default_args` must contain the key \"type\", but got (?:\{\\?'(?P<first>\w+))"
_OF_CONFIGS = (
    Refusal("KeyError", _NEEDS_TYPE, "the config dict {name} has no `type`, so its class is not known{at}", _NO_TYPE,
            (), of_code=True, line=r"\bbuild(?:_\w+)?\((?:self\.)?(?P<name>\w+)[,)]", look=_SHOW_DICT),
    Refusal("KeyError", _NEEDS_TYPE, "a dict of the config, which begins with {first}, has no `type`, so its class is "
            "not known{at}", _NO_TYPE, (), of_code=True, look=_SHOW_DICT),
)
_OF_STEPS = (
    Refusal("ZeroDivisionError", r"division|modulo",
            "{name} is 0: the data has fewer samples than one step needs, or none{at}",
            "It is the number of batches of an epoch, in some programs divided by the batches of one step (gradient "
            "accumulation). A data set with fewer samples than one batch has none if incomplete ones are left out "
            "(drop_last).",
            (Fix("Compare the number of samples with the batch size. Use a smaller batch, or more data.",
                 ("print(len(dataset), len(loader), loader.batch_size)",)),), of_code=True,
            line=r"[/%] ?(?P<name>[\w.]*\b(?:self\.)?(?:num_)?(?:steps|batches|iters)_(?:per|in)_epoch)\b"),
)
_OF_MESHES = (
    Refusal("RuntimeError", r"cannot reshape tensor of 0 elements into shape \[-1, 0\]",
            "a dimension of the device mesh {mesh} has the size 0{at}",
            "Sizes of a mesh are mostly computed: the number of GPUs, divided by a parallel size (tensor, sequence, "
            "context or pipeline). It is 0 if that size is larger than the number of GPUs.",
            (Fix("Set the parallel size to a divisor of the number of GPUs of the run, or use more GPUs. Compare both.",
                 ("grep -rnE '(parallel|sp|tp|cp)_size' CONFIG", "nvidia-smi -L | wc -l")),), of_code=True,
            within=r"torch/distributed/device_mesh\.py in ", line=r"^(?:\S*?\b(?P<mesh>\w*mesh\w*) = )?"),
)
_OF_HOOKS = (
    Refusal("AssertionError", r"remove_forward_pre_hook_handles is not empty, it is: \{(?P<name>\w+)\(",
            "Megatron's DDP has hooks on modules that are no longer part of the model: {name}{at}",
            "overlap_param_gather registers a hook on each module. They are removed by going through the model, and "
            "here that did not find all of them: such modules were replaced or taken out in between. Turning CUDA "
            "graphs on or off while the hooks are registered can do that to a CudaGraphManager.",
            (Fix("Turn off overlap_param_gather, or CUDA graphs if the name is CudaGraphManager.",
                 ("overlap_param_gather=False", "enable_cuda_graph=False")),
             Fix("Or let the code remove the hooks before it changes the modules, and add them again after it.")),
            of_code=True),
)
_OF_LIMITS = (
    Refusal("AssertionError ValueError",
            r"^(?!.*(?:toleran|close)).*(?:invalid|negative|range|between|bound|within).*?"
            r"(?<![\w.])(?P<value>-\d(?:\.\d+)?e-(?:0[6-9]|1\d)|1\.00000\d*[1-9]\d*)\b",
            "a value is outside of its range by very little, probably by rounding: {value}{at}",
            "It is less than a hundred thousandth below 0 or above 1, where such limits are. Floating point numbers "
            "miss them by as much: coordinates that are divided by the size of an image, sums of probabilities.",
            (Fix("Limit the values to the range where they are made or read, before the check.",
                 ("x = np.clip(x, 0, 1)", "x = x.clamp(0, 1)")),)),
)
_AS_DICT = (
    r"^(?!.*[\w)\]]\[(?!['\"])).*[\w)\]]\[['\"]"  # all that the line reads, it reads by texts
)
_KEYS_OF_ARRAY = ("The line reads items of dicts, and this one is an array or a tensor: ids that were not decoded, "
                  "predictions that were not parsed, or a batch that was collated.")
_PRINT_IT = (Fix("Print what it is, and pass the dicts that the line expects, or read it by numbers.",
                 ("print(type(x), x)",)),)
_OF_KEYS = (
    Refusal("IndexError", r"only integers, slices \(`:`\), ellipsis", "a text is used as the index of an array{at}",
            _KEYS_OF_ARRAY, _PRINT_IT, of_code=True, line=_AS_DICT, own=True),
    Refusal("IndexError TypeError", r"only integers, slices \(`:`\), ellipsis.*\(got str\)",
            "a text is used as the index of a tensor{at}", _KEYS_OF_ARRAY, _PRINT_IT, of_code=True),
)
_NAMES_OF_CLASSES = "train_dataloader.dataset.metainfo = dict(classes=('car', 'person'))"
# A framework's own line gives these messages another meaning than the one that they have for any array.
_OF_EMPTY_DATA = (
    Refusal("ValueError", r"need at least one array to concatenate",
            "the dataset is empty: none of its annotations is left after they were read and filtered{at}",
            "mmengine joins the records of all samples, and there are none. For a custom dataset, the names of the "
            "classes in the config are usually not those of the annotation file: then no annotation matches, and "
            "images without one are left out (filter_empty_gt). Or the file is another one, or empty.",
            (Fix("Set the names exactly as the annotation file has them, in each dataset of the config, and the number "
                 "of classes in the head.",
                 (_NAMES_OF_CLASSES,
                  "python -c \"import json; print([c['name'] for c in json.load(open('ANN.json'))['categories']])\"")),
             Fix("Check the file and the folder that the config names.",
                 ("grep -rnE 'ann_file|data_root|data_prefix' CONFIG",))), of_code=True,
            within=r"mmengine/dataset/base_dataset\.py in _serialize_data"),
    Refusal("RuntimeError",
            r"start \((?P<start>\d+)\) \+ length \((?P<length>\d+)\) exceeds dimension size \((?P<got>\d+)\)",
            "DeepSpeed's partitions do not fit the parameters: one of {length} elements is taken from a part of {got}",
            "ZeRO divides each group of parameters by its data-parallel size, and links every parameter to its part of "
            "the fp32 copy. Here the part is smaller than what the parameter has in it: the group was divided by "
            "another number of ranks. That happens if the experts of a mixture of experts, which have data-parallel "
            "groups of their own, are in one group with the other parameters, or if a size (tensor, pipeline or "
            "expert parallel) changed after the groups were made.",
            (Fix("Put the experts into groups of their own before deepspeed.initialize.",
                 ("from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer",
                  "groups = split_params_into_different_moe_groups_for_optimizer(groups)")),
             Fix("Compare the sizes of the parallel groups with the number of ranks.",
                 ("grep -rnE '(expert|tensor|pipeline)[-_](model[-_])?parallel[-_]size|ep[-_]size' SCRIPT",)),
             Fix("A newer DeepSpeed may divide this model correctly.", ("pip show deepspeed",))), of_code=True,
            within=r"deepspeed/utils/tensor_fragment\.py in get_hp_fragment_mapping"),
    Refusal("RuntimeError", r"No grad accumulator for a saved leaf",
            "a parameter that a function of its own saved for the backward pass was replaced before it{at}",
            "FSDP builds a layer's parameters from its flat shard before each forward pass and frees them after it. "
            "An autograd function (ctx.save_for_backward of a fused kernel, as those of mamba, flash-attention or "
            "xformers) that saved such a parameter then finds that it no longer exists. Releases of torch before 2.0 "
            "do not keep it.",
            (Fix("Let FSDP keep the parameters of these layers as they are: a newer torch, use_orig_params, or do not "
                 "free them after the forward pass.",
                 ("FSDP(model, use_orig_params=True)", "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP")),
             Fix("Or use DDP, or the layer without its fused kernel."),
             Fix("Without FSDP: do not delete, reassign or move the parameters between forward and backward.")),
            of_code=True),
    Refusal("ValueError", r"^Tools should either be a JSON schema, or a callable function with type hints",
            "the tools of a sample are neither dicts nor functions: probably JSON as text, or a list within a list{at}",
            "The chat template takes a list with one dict (a JSON schema) or function for each tool. Parquet and JSON "
            "Lines files often hold the whole list as one text, or each tool as a text.",
            (Fix("Look at one sample.", ("print(type(tools), type(tools[0]), str(tools)[:300])",)),
             Fix("Turn the text into dicts where the sample is read.",
                 ("tools = json.loads(tools) if isinstance(tools, str) else tools",
                  "tools = [json.loads(t) if isinstance(t, str) else t for t in tools] or None"))), of_code=False),
)
_OF_HYDRA = (
    Refusal("ValueError", r"^GlobalHydra is already initialized",
            "hydra.initialize() is called a second time in one process{at}",
            "Hydra keeps one configuration per process. A loop, a trial of a hyperparameter search, a test or a cell "
            "of a notebook that was run again calls initialize() again.",
            (Fix("Let each call end its own.",
                 ("with hydra.initialize(version_base=None, config_path='conf'): cfg = hydra.compose('config')",)),
             Fix("Or clear it before.", ("hydra.core.global_hydra.GlobalHydra.instance().clear()",))), of_code=True),
)
_OF_YAML = (
    Refusal("TypeError", r"^load\(\) missing 1 required positional argument: 'Loader'",
            "the installed PyYAML is too new for {package}, which calls yaml.load() without a Loader",
            "PyYAML 6.0 removed that. This {package} was written for an older one.",
            (Fix("Install a newer release of the package.", ("pip check",)),
             Fix("Without one, change the call in the package, or install an older PyYAML, which cannot be built with "
                 "Python 3.10 and later.",
                 ("yaml.load(f, Loader=yaml.SafeLoader)", "pip install 'pyyaml<6'  # Python 3.9 and earlier"))),
            of_code=True, in_package=True),
)
OF_FRAMEWORKS = (*_OF_HYDRA, *_OF_YAML, *_OF_CONFIGS, *_OF_STEPS, *_OF_MESHES, *_OF_HOOKS, *_OF_LIMITS, *_OF_KEYS)
# fmt: on


def refused_by_framework(one: UncaughtException) -> Meaning | None:
    """Return what a message means that a framework's own line gives another meaning than the general one."""
    return next((meant for known in _OF_EMPTY_DATA if (meant := known.read(one, one.message))), None)
