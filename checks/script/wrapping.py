"""Is the model wrapped correctly for training on several ranks?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import Script

from ._calls import DDP, DDP_DOC, calls, finding, reached_calls, switches, text_of

# Below this number of samples per GPU, batch normalization statistics become unreliable (Wu and He, Group
# Normalization, figure 1: the error rises from 8 downward).
_FEW_SAMPLES = 16
# Models of torchvision with batch normalization (https://docs.pytorch.org/vision/stable/models.html).
_BATCH_NORM_MODELS = (
    r"torchvision\.models\.(?:\w+\.)?(?:resnet|resnext|wide_resnet|densenet|mobilenet|inception|googlenet|shufflenet"
    r"|mnasnet|efficientnet|regnet|deeplabv3|fcn_resnet|lraspp)\w*|torchvision\.models\.(?:\w+\.)?vgg\d+_bn"
)
# What wraps the model, or sets how a library wraps it.
_WRAPPERS = (
    rf"{re.escape(DDP)}|accelerate\.(?:\w+\.)*DistributedDataParallelKwargs|lightning\.(?:\w+\.)*(?:DDPStrategy|Trainer)"
    r"|(?:transformers|trl)\.(?:\w+\.)*\w*(?:TrainingArguments|Config)"
)
_LIGHTNING_STRATEGIES = ("ddp_find_unused_parameters_true", "ddp_spawn_find_unused_parameters_true")
_TESTS = re.compile(r"val|test|eval", re.IGNORECASE)
_BY_HAND = "model = torch.nn.parallel.DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])"


@check(
    Severity.WARNING,
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",
    tags=("portable",),
)
def script_uses_data_parallel(script: Script) -> Answer:
    """The script uses DataParallel, although a launcher starts one process per GPU.

    Why: It is meant for one process with several GPUs. With several ranks, each rank uses all GPUs, gradients are not
    averaged between ranks, and the GPUs run out of memory.

    Fix: Let accelerate wrap it.
    More: Or use DistributedDataParallel.
    """
    found = reached_calls(script, r"torch\.nn\.DataParallel|torch\.nn\.parallel\.data_parallel")
    other_way = bool(calls(script, re.escape(DDP))) or script.speaks in ("accelerate", "trainer", "deepspeed")
    for call in found if script.speaks else ():
        if any("n_gpu" in condition for condition in call.conditions):  # transformers: 1 in a run of several ranks
            continue
        off = set() if script.command_known else set(switches(script))  # no command line is known that has them
        hidden = "distributed" in call.guards and any("parallel" in name for name in off)  # the guard has no name
        if hidden or any(condition.rpartition(".")[2] in off for condition in call.conditions):
            continue
        if {"single", "some"} & set(call.guards) or (other_way and (call.conditions or call.guards)):
            continue
        return finding(
            script,
            call,
            "DataParallel uses all GPUs from each rank",
            (
                commands("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"),
                Fix("Or wrap it by hand.", (_BY_HAND,)),
            ),
        )
    return Ok(
        "no model is wrapped in DataParallel" if not found else "DataParallel is used only in single-process runs"
    )


@check(Severity.INFO, source=DDP_DOC)
def script_looks_for_unused_parameters(script: Script) -> Answer:
    """The script makes DDP look for unused parameters in every step.

    Why: It is needed only if some parameters get no gradient (branches that are not taken, partly frozen models).
    Otherwise it only costs time, and torch warns that it found none.
    More: DDP traverses the whole graph after each forward pass.

    Fix: Omit it, unless the run then stops with "Expected to have finished reduction".
    """
    for call in reached_calls(script, _WRAPPERS):
        for name in ("find_unused_parameters", "ddp_find_unused_parameters"):
            if call.keywords.get(name) == "True":
                return finding(script, call, f"{name}=True traverses the graph in every step")
        if text_of(call.keywords.get("strategy")) in _LIGHTNING_STRATEGIES:
            return finding(script, call, f"strategy={call.keywords['strategy']} traverses the graph in every step")
    return Ok("find_unused_parameters is not set to True in the script")


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
