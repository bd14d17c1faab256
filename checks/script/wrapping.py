"""Is the model wrapped correctly for training on several ranks?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import Script, ScriptCall

from ._calls import DDP, DDP_DOC, OF_TRAINER, argument, calls, finding, reached_calls
from ._data_parallel import data_parallel_call, data_parallel_calls

# Below this number of samples per GPU, batch normalization statistics become unreliable (Wu and He, Group
# Normalization, figure 1: the error rises from 8 downward).
_FEW_SAMPLES = 16
# Models of torchvision with batch normalization (https://docs.pytorch.org/vision/stable/models.html).
_BATCH_NORM_MODELS = (
    r"torchvision\.models\.(?:\w+\.)?(?:resnet|resnext|wide_resnet|densenet|mobilenet|inception|googlenet|shufflenet"
    r"|mnasnet|efficientnet|regnet|deeplabv3|fcn_resnet|lraspp)\w*|torchvision\.models\.(?:\w+\.)?vgg\d+_bn"
)
# What wraps the model, or sets how a library wraps it. Lightning's modules are not trained by their forward pass.
_WRAPPERS = (
    rf"{re.escape(DDP)}|accelerate\.(?:\w+\.)*DistributedDataParallelKwargs"
    r"|(?:transformers|trl)\.(?:\w+\.)*\w*(?:TrainingArguments|Config)"
)
_FREEZES = r".*\.requires_grad_|(?:.*[._])?(?:un)?freeze\w*|.*\.get_peft_model|.*\.set_adapter"
_NO_MODEL = re.compile(r"torch\.(?:optim|utils\.data)\.[\w.]+\(\)")
_LAYER = re.compile(r"torch\.nn\.(?:Linear|Bilinear|Conv[123]d|Embedding|Transformer)\(\)")
_TESTS = re.compile(r"val|test|eval", re.IGNORECASE)
_BY_HAND = "model = torch.nn.parallel.DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])"


@check(
    Severity.WARNING,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
    tags=("portable", "in_one_process"),
)
def script_uses_data_parallel(script: Script) -> Answer:
    """The script uses DataParallel, although a launcher starts one process per GPU.

    Why: It is meant for one process with several GPUs. With several ranks, each rank uses all GPUs, gradients are not
    averaged between ranks, and the GPUs run out of memory.

    Fix: Let accelerate wrap it.
    More: Or use DistributedDataParallel.
    """
    if (call := data_parallel_call(script)) is None:
        used = data_parallel_calls(script)
        return Ok("DataParallel is used only in single-process runs" if used else "no model is wrapped in DataParallel")
    return finding(
        script,
        call,
        "DataParallel uses all GPUs from each rank",
        (
            commands("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"),
            Fix("Or wrap it by hand.", (_BY_HAND,)),
        ),
    )


@check(Severity.INFO, source=DDP_DOC)
def script_looks_for_unused_parameters(script: Script) -> Answer:
    """The script makes DDP look for unused parameters in every step, although each step certainly uses all of them.

    Why: It is needed only if some parameters get no gradient (branches that are not taken, partly frozen models).
    Otherwise it only costs time, and torch warns that it found none.
    More: DDP traverses the whole graph after each forward pass. That is reported only if the model's class is in code
    that was read, its forward pass uses all of its layers without a condition, and nothing is frozen. It is not known
    of models from a library.

    Fix: Omit it.
    """
    for call in reached_calls(script, _WRAPPERS):
        for name in ("find_unused_parameters", "ddp_find_unused_parameters"):
            if call.keywords.get(name) == "True" and _uses_all_parameters(script, call):
                return finding(
                    script, call, f"{name}=True traverses the graph in every step, and no parameter is unused"
                )
    return Ok("find_unused_parameters is not set to True, or parameters may be unused")


def _uses_all_parameters(script: Script, wrapper: ScriptCall) -> bool:
    """Whether each step certainly uses all parameters of the models that are wrapped with this call's options."""
    if any(one.target.endswith(".requires_grad") for one in script.sets) or calls(script, _FREEZES):
        return False
    if wrapper.name == DDP:
        given = [argument(wrapper, 0, "module")]
    elif wrapper.name.startswith("accelerate."):
        prepared = reached_calls(script, r"accelerate\.Accelerator\(\)\.prepare(?:_model)?")
        given = [value for call in prepared for value in call.arguments if not _NO_MODEL.fullmatch(value)]
    else:
        given = [argument(call, 0, "model") for call in reached_calls(script, OF_TRAINER.pattern)]
    return bool(given) and all(value is not None and _is_used_fully(script, value) for value in given)


def _is_used_fully(script: Script, made: str) -> bool:
    """Whether the model that a call creates certainly uses all of its parameters in each step."""
    if _LAYER.fullmatch(made):
        return True
    name = made.removesuffix("()").rpartition(".")[2]
    found = [one.uses_all for one in script.classes if one.name == name]
    return made.endswith("()") and bool(found) and all(found)


@check(Severity.INFO, source="https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html")
def script_batch_norm_not_synced(script: Script) -> Answer:
    """Batch normalization uses small batches, separately on each rank.

    Why: BatchNorm computes mean and variance over the batch of one GPU. With so few samples they are noisy, and the
    model gets worse than with the whole batch on one GPU.

    Fix: Synchronize it before the model is wrapped.
    More: SyncBatchNorm does that.
    """
    layers = reached_calls(script, rf"torch\.nn\.BatchNorm[123]d|{_BATCH_NORM_MODELS}")
    if not layers or script.speaks not in ("ddp", "accelerate"):
        return Ok("no visible batch normalization layers")
    if calls(script, r".*convert_sync_batchnorm|torch\.nn\.SyncBatchNorm|.*convert_syncbn_model"):
        return Ok("batch normalization is synchronized")
    loaders = [c for c in calls(script, r"torch\.utils\.data\.DataLoader") if not _TESTS.search(" ".join(c.targets))]
    sizes = [int(value) for c in loaders if (value := c.keywords.get("batch_size", "")).isdecimal()]
    few = [size for size in sizes if 1 < size < _FEW_SAMPLES]
    if not few:
        return Ok("no small batch size per GPU found")
    line = "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)"
    return finding(
        script,
        layers[0],
        f"batch normalization over {few[0]} samples, separately on each rank",
        commands(line),
        layers[1:],
        batch_size=few[0],
    )
