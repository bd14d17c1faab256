"""Does every rank train on its own share of the data, and is the whole of it judged?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall, ScriptLoop

from ._calls import DDP, calls, finding, given, unpacks
from ._rank_paths import (
    LOOPS_OF_ITS_OWN,
    PREPARED,
    by_everyone,
    by_hand,
    by_rank,
    everyone,
    in_use,
    own_loop,
    repeated,
    speaking,
    training_loops,
    with_accelerate,
    words,
)
from ._rank_paths import backward as backward_of

_DISTRIBUTED_EVALUATION = "https://huggingface.co/docs/accelerate/main/en/quicktour#distributed-evaluation"
_SAMPLER_DOC = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler"
_LOADER = r"torch\.utils\.data\.(?:dataloader\.)?DataLoader"
_SAMPLER = r"torch\.utils\.data\.(?:distributed\.)?DistributedSampler"
_SAMPLING = ("sampler", "batch_sampler")
# What is told the rank in every script, and does not divide the data.
_KNOWS_RANK = re.compile(
    r"print|int|str|len|range|.*(?:log\w*|info|debug|device|set_device|cuda|to|init_process_group|barrier|seed|spawn"
    r"|get|getenv|add_argument|format|DistributedDataParallel|join|wandb\.\w+|append|write|save\w*|load\w*|tqdm)$"
)
_NOT_TRAINED_ON = re.compile(r"val|test|eval|dev|infer|predict", re.IGNORECASE)
_SPLIT = r"torch\.utils\.data\.(?:dataset\.)?random_split|sklearn\.model_selection\.train_test_split"
_SPLIT_OF_DATASETS = r"datasets\..*\(\)\.train_test_split"
# What brings the ranks' results together.
_GATHERS = re.compile(r".*(?:gather\w*|reduce\w*|all_to_all\w*|synchronize_between_processes|sync_\w+|_sync)$")


@check(Severity.WARNING, source=_SAMPLER_DOC, given=own_loop)
def script_data_not_divided(script: Script) -> Answer:
    """Every rank trains on the whole data set instead of its share.

    Why: N GPUs go N times through the data in one epoch, and an epoch takes as long as on one GPU.
    More: A DataLoader knows nothing of the other ranks: without a DistributedSampler (or accelerator.prepare) each goes
    through all of the data.

    Fix: Give the DataLoader a DistributedSampler, or give it to accelerator.prepare.
    """
    loaders = [call for call in in_use(script, calls(script, _LOADER)) if not unpacks(call)]
    if not loaders:
        return Ok("no DataLoader is made in the open")
    wrong = _unprepared(script, loaders) if script.speaks == "accelerate" else _unsampled(script, loaders)
    if not wrong:
        return Ok(f"{len(loaders)} DataLoaders, none that every rank is certain to go through as a whole")
    name = wrong[0].targets[0] if wrong[0].targets else "loader"
    if script.speaks == "accelerate":
        title = f"{name} is not given to accelerator.prepare"
        fix = Fix(
            "Prepare it, together with the model.", (python("{:dotted} = accelerator.prepare({:dotted})", name, name),)
        )
    else:
        title = "the DataLoader of the training has no DistributedSampler"
        fix = Fix(
            "Give it a sampler in place of shuffle=True, and tell the sampler every epoch.",
            ("sampler=DistributedSampler(dataset)", "loader.sampler.set_epoch(epoch)"),
        )
    return finding(script, wrong[0], f"{title}: every rank trains on all of the data", fix)


def _unprepared(script: Script, loaders: list[ScriptCall]) -> list[ScriptCall]:
    """The loaders of the training loops that no prepare is given."""
    preparing = calls(script, r".*\.prepare(?:_data_loader)?|.*skip_first_batches")
    if not preparing or any(unpacks(call) for call in preparing):
        return []
    given_to = words(text for call in preparing for text in call.written)
    loops = [script.loops[number] for number in training_loops(script) if number < len(script.loops)]
    return [
        loader
        for loader in loaders
        if len(loader.targets) == 1
        and loader.targets[0] not in given_to
        and not any(by_rank(value) for name, value in loader.keywords.items() if name in _SAMPLING)
        and any(_goes_over(loop, loader) for loop in loops)
    ]


def _goes_over(loop: ScriptLoop, loader: ScriptCall) -> bool:
    return (
        loop.file == loader.file
        and loop.function == loader.function
        and loader.targets[0] in words([loop.over])
        and "Accelerator" not in loop.source
        and not by_rank(loop.over)
    )


def _unsampled(script: Script, loaders: list[ScriptCall]) -> list[ScriptCall]:
    """The loaders of a script by hand in which nothing at all divides the data."""
    if not calls(script, re.escape(DDP)) or not backward_of(script):
        return []
    divides = any(
        "Sampler" in call.name
        or re.search(r"shard|split_dataset|split_by|webdataset|\bwds\b", call.name)
        or (by_rank(*call.arguments, *call.written, *call.keywords) and not _KNOWS_RANK.fullmatch(call.name))
        for call in script.calls
    )
    own = any(name.endswith(("__iter__", "__getitem__", "__len__")) for name in script.functions)
    sliced = any(by_rank(one.value) and re.search(r"\[.*(?:rank|world)", one.value) for one in script.sets)
    if divides or sliced or script.unread or script.cut or own:
        return []
    open_ = [call for call in loaders if not set(_SAMPLING).intersection(call.keywords) and len(call.arguments) < 4]
    trained = [call for call in open_ if not _NOT_TRAINED_ON.search(" ".join((*call.targets, call.function)))]
    return trained if len(open_) == len(loaders) else []


@check(Severity.WARNING, source=_SAMPLER_DOC, given=by_hand)
def script_set_epoch_missing(script: Script) -> Answer:
    """A DistributedSampler is used over several epochs without set_epoch.

    Why: The sampler shuffles by its seed and its epoch, and the epoch stays 0.
    More: Every epoch has the same order, and every rank sees the same share in the same batches again and again.

    Fix: Make it the first line of the loop over epochs.
    More: sampler.set_epoch(epoch).
    """
    samplers = in_use(script, calls(script, _SAMPLER))
    shuffling = [call for call in samplers if given(call, 3, "shuffle") != "False" and not unpacks(call)]
    trained = [call for call in shuffling if not _NOT_TRAINED_ON.search(" ".join((*call.targets, *call.written[:1])))]
    if not trained:
        return Ok("no DistributedSampler that shuffles what is trained on")
    if calls(script, r".*\.set_epoch"):
        return Ok("set_epoch is called")
    trained = [call for call in trained if not repeated(script, call)]
    if script.cut or not trained or not any(len(call.loops) > 1 for call in backward_of(script)):
        return Skip("no loop over epochs is in sight")
    sampler = trained[0].targets[0] if trained[0].targets else "loader.sampler"
    return finding(
        script,
        trained[0],
        "set_epoch is never called: every epoch has the same order",
        commands(python("{:dotted}.set_epoch(epoch)", sampler)),
    )


@check(Severity.WARNING, source="https://github.com/Lightning-AI/pytorch-lightning/issues/7728")
def script_split_differs_by_rank(script: Script) -> Answer:
    """The data is split at random, and every rank draws another split.

    Why: One rank's validation set is another one's training set, so that the validation looks too good.
    More: Each rank runs the whole script with a random state of its own, and nothing says so.

    Fix: Give the split a seed of its own.
    More: Or set the same seed on every rank before it.
    """
    if script.error or script.speaks in (None, "nothing"):
        return speaking(*LOOPS_OF_ITS_OWN)(script) or Skip("not known")
    splits = in_use(script, calls(script, rf"{_SPLIT}|{_SPLIT_OF_DATASETS}"))
    drawn = [call for call in by_everyone(script, splits) if _unseeded(call)]
    if not drawn:
        return Ok(f"{len(splits)} random splits, each with a seed of its own or on one rank" if splits else "no split")
    seeds = [call for call in script.calls if re.search(r"seed", call.name.rpartition(".")[2], re.IGNORECASE)]
    differing = [call for call in seeds if _by_rank_seeded(call)]
    if (seeds or script.cut) and not differing:
        return Ok(f"a seed is set in line {seeds[0].line}" if seeds else "not all of the script was read")
    what = drawn[0].name.rpartition(".")[2]
    because = f"line {differing[0].line} seeds with the rank" if differing else "no seed is set"
    seeded = python("{:dotted}(..., seed=0)", what)
    if "sklearn" in drawn[0].name:
        seeded = python("{:dotted}(..., random_state=0)", what)
    if what == "random_split":
        seeded = python("{:dotted}(..., generator=torch.Generator().manual_seed(0))", what)
    return finding(script, drawn[0], f"every rank draws another {what}(): {because}", commands(seeded), drawn[1:])


def _unseeded(call: ScriptCall) -> bool:
    names = {"generator", "random_state", "seed", "generators"}
    shuffles = call.keywords.get("shuffle") != "False"
    return not names.intersection(call.keywords) and not unpacks(call) and shuffles and len(call.arguments) < 3


def _by_rank_seeded(call: ScriptCall) -> bool:
    texts = (*call.arguments, *call.written)
    return by_rank(*texts) or call.keywords.get("device_specific") == "True"


@check(Severity.WARNING, source=_DISTRIBUTED_EVALUATION, given=with_accelerate)
def script_metric_of_one_shard(script: Script) -> Answer:
    """A metric is counted on each rank's share of the evaluation data and never brought together.

    Why: What is reported is the result on 1/N of the data.
    More: accelerator.prepare gives every rank its share of the evaluation data. The result is often divided by the size
    of the whole: accuracy falls when GPUs are added.

    Fix: Bring predictions and labels together before they are counted.
    """
    if script.cut or any(_GATHERS.fullmatch(call.name) for call in script.calls):
        return Ok("results are gathered or reduced")
    if any(name.startswith("torchmetrics") for name in script.imports):
        return Skip("torchmetrics brings the ranks' results together by itself")
    loops = [number for number in range(len(script.loops)) if _evaluates(script, number)]
    if not loops:
        return Ok("no loop over prepared evaluation data that counts something")
    return finding(
        script,
        script.loops[loops[0]],
        "each rank counts its own share of the evaluation data, and nothing gathers it",
        commands("predictions, labels = accelerator.gather_for_metrics((predictions, labels))"),
        [script.loops[number] for number in loops[1:]],
    )


def _evaluates(script: Script, number: int) -> bool:
    """Whether a loop goes over prepared data without training, on every rank, and counts what the model says."""
    loop = script.loops[number]
    inside = [call for call in script.calls if number in call.loops]
    if not everyone(loop) or any(call.name.endswith((".backward", ".step")) for call in inside):
        return False
    called = any(re.fullmatch(PREPARED, call.name) for call in inside)
    counted = any(re.match(r".*\.(?:item|add_batch|update)$", call.name) for call in inside)
    return bool(re.fullmatch(PREPARED, loop.source)) and called and counted
