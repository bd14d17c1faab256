"""Does every rank train on its own shard of the data, and is the whole evaluation set counted?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import python
from mgpu.snapshot import Script, ScriptCall, ScriptClass, ScriptLoop
from mgpu.text import counted

from ._calls import DATA_LOADER, DDP, INIT, argument, calls, finding, last_part, unpacks
from ._own_samples import has_own_samples
from ._rank_paths import (
    LOOPS_OF_ITS_OWN,
    PREPARED,
    backward_calls,
    by_hand,
    callers,
    dotted_names,
    has_rank_argument,
    is_reached_by_all,
    is_repeated,
    mentions_rank,
    own_loop_or_trainer,
    reached_by_every_rank,
    requires_kind,
    training_loops,
    visibly_called,
    with_accelerate,
)
from ._trainer_loaders import undivided_trainer_loaders

_DISTRIBUTED_EVALUATION = "https://huggingface.co/docs/accelerate/main/en/quicktour#distributed-evaluation"
_SAMPLER_DOC = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler"
_STREAM_DOC = "https://huggingface.co/docs/datasets/main/en/use_with_pytorch#distributed"
_ITERABLE = "torch.utils.data.IterableDataset"
_SAMPLER = r"torch\.utils\.data\.(?:distributed\.)?DistributedSampler"
_SAMPLING = ("sampler", "batch_sampler")
_OF_DATA = re.compile(r"Subset|DataLoader|Dataset|load_data|read_")  # by an argument that depends on the rank
_OF_SAMPLES = re.compile(r".*\.(?:__iter__|__getitem__|__len__)")
# Calls that get the rank in most scripts, but do not shard the data.
_KNOWS_RANK = re.compile(
    r"print|int|str|len|range|.*(?:log\w*|info|debug|device|set_device|cuda|to|init_process_group|barrier|seed|spawn"
    r"|get|getenv|add_argument|format|DistributedDataParallel|join|wandb\.\w+|append|write|save\w*|load\w*|tqdm)$"
)
_EPOCH = re.compile(r"epoch", re.IGNORECASE)
_NOT_TRAINED_ON = re.compile(r"val|test|eval|dev|infer|predict", re.IGNORECASE)
_SPLIT = r"torch\.utils\.data\.(?:dataset\.)?random_split|sklearn\.model_selection\.train_test_split"
_SPLIT_OF_DATASETS = r"datasets\..*\(\)\.train_test_split"
# Calls that combine the ranks' results.
_GATHERS = re.compile(r".*(?:gather\w*|reduce\w*|all_to_all\w*|synchronize_between_processes|sync_\w+|_sync)$")


@check(Severity.WARNING, source=_SAMPLER_DOC, given=own_loop_or_trainer)
def script_data_not_divided(script: Script) -> Answer:
    """Every rank trains on the whole dataset instead of its own shard.

    Why: N GPUs process the data N times per epoch, and an epoch takes as long as on one GPU.
    More: A DataLoader does not know about other ranks. Without a DistributedSampler (or accelerator.prepare), each rank
    iterates over all of the data. A Trainer prepares only the DataLoader of its own get_train_dataloader.

    Fix: Pass the DataLoader a DistributedSampler, or pass it to accelerator.prepare.
    """
    loaders = [call for call in visibly_called(script, calls(script, DATA_LOADER)) if not unpacks(call)]
    if wrong_methods := undivided_trainer_loaders(script):
        fix = Fix("Prepare the DataLoader there.", ("return self.accelerator.prepare(loader)",))
        title = "get_train_dataloader returns a DataLoader that nothing prepares: every rank trains on all of the data"
        return finding(script, wrong_methods[0], title, fix, wrong_methods[1:])
    if script.speaks == "trainer":
        return Ok("no visible DataLoader that the Trainer leaves undivided")
    if not loaders:
        return Ok("no visible DataLoader")
    if script.speaks != "accelerate" and (_streams(script) or _iterable_classes(script)):
        return Ok("the data is a stream, for which there is no sampler")
    wrong = (
        _unprepared_loaders(script, loaders) if script.speaks == "accelerate" else _unsampled_loaders(script, loaders)
    )
    if not wrong:
        return Ok(f"{counted(len(loaders), 'DataLoader')}, none is certainly read in full by every rank")
    name = wrong[0].targets[0] if wrong[0].targets else "loader"
    if script.speaks == "accelerate":
        title = f"{name} is not passed to accelerator.prepare"
        fix = Fix(
            "Prepare it together with the model.", (python("{:dotted} = accelerator.prepare({:dotted})", name, name),)
        )
    else:
        title = "the training DataLoader has no DistributedSampler"
        fix = Fix(
            "Use a sampler instead of shuffle=True, and call set_epoch in every epoch.",
            ("sampler=DistributedSampler(dataset)", "loader.sampler.set_epoch(epoch)"),
        )
    return finding(script, wrong[0], f"{title}: every rank trains on all of the data", fix)


def _unprepared_loaders(script: Script, loaders: list[ScriptCall]) -> list[ScriptCall]:
    """Return the loaders of the training loops that are not passed to prepare."""
    preparing = calls(script, r".*\.prepare(?:_data_loader)?|.*skip_first_batches")
    if not preparing or any(unpacks(call) for call in preparing):
        return []
    given_to = dotted_names(text for call in preparing for text in call.written)
    loops = [script.loops[number] for number in training_loops(script) if number < len(script.loops)]
    return [
        loader
        for loader in loaders
        if loader.targets[1:] == ()
        and not given_to.intersection(loader.targets)
        and not _samples_by_rank(script, loader)
        and not has_own_samples(script, loader)
        and any(_iterates_over(loop, loader) for loop in loops)
    ]


def _samples_by_rank(script: Script, loader: ScriptCall) -> bool:
    """Whether the loader's sampler gives each rank its own samples."""
    samplers = [value for name, value in loader.keywords.items() if name in _SAMPLING]
    if mentions_rank(*samplers) or any("Distributed" in sampler for sampler in samplers):
        return True
    return any(f"{call.name}()" in samplers and has_rank_argument(call) for call in script.calls)


def _iterates_over(loop: ScriptLoop, loader: ScriptCall) -> bool:
    here = not loader.targets and loop.line == loader.line and loop.source == f"{loader.name}()"
    return (
        loop.file == loader.file
        and loop.function == loader.function
        and (here or not dotted_names([loop.over]).isdisjoint(loader.targets))
        and "Accelerator" not in loop.source
        and not mentions_rank(loop.over)
    )


def _unsampled_loaders(script: Script, loaders: list[ScriptCall]) -> list[ScriptCall]:
    """Return the training loaders of a plain DDP script in which nothing shards the data."""
    if not calls(script, re.escape(DDP)) or not backward_calls(script):
        return []
    own = any(one.name.endswith(("__iter__", "__getitem__", "__len__")) for one in script.functions if not one.file)
    if _divides_by_rank(script) or script.unread or script.cut or own:
        return []
    if any(set(_SAMPLING).intersection(call.keywords) or len(call.arguments) > 3 for call in loaders):
        return []
    trained = [call for call in loaders if not _NOT_TRAINED_ON.search(" ".join((*call.targets, call.function)))]
    return [call for call in trained if not has_own_samples(script, call)]


def _divides_by_rank(script: Script) -> bool:
    """Whether anything in the script may give each rank its own part of the data."""
    joins = {call.function for call in calls(script, re.escape(INIT)) if call.function}  # `setup(rank, world_size)`
    divides = any(
        "Sampler" in call.name
        or re.search(r"shard|split_dataset|split_by|webdataset|\bwds\b", call.name)
        or (
            mentions_rank(*call.arguments, *call.written, *call.keywords)
            and not _KNOWS_RANK.fullmatch(call.name)
            and (last_part(call.name) not in joins or call.targets)
        )
        or (call.unique and _OF_DATA.search(call.name))
        or (_OF_SAMPLES.fullmatch(call.function) and call.name.endswith(".get_rank"))
        for call in script.calls
    )
    return divides or any(
        mentions_rank(one.value) and re.search(r"\[.*(?:rank|world)|%|//|\bif\b.*rank", one.value)
        for one in script.sets
    )


@check(Severity.WARNING, source=_STREAM_DOC, given=by_hand)
def script_stream_not_split(script: Script) -> Answer:
    """Every rank reads the whole stream of training data instead of its own part.

    Why: N GPUs process the data N times per epoch, and an epoch takes as long as on one GPU. A DataLoader does
    not split a stream between ranks, and a DistributedSampler cannot: a stream has no index.

    Fix: Let each rank yield only its own samples.
    More: datasets.distributed.split_dataset_by_node, or a slice by rank and world size in __iter__.
    """
    streams, classes = _streams(script), _iterable_classes(script)
    if not streams and not classes:
        return Ok("no stream of training data")
    if script.unread or script.cut or _divides_by_rank(script):
        return Ok("the stream is split by rank, or in a module that was not read")
    if not backward_calls(script):
        return Ok("no visible training loop")
    if streams:
        name = streams[0].targets[0] if streams[0].targets else "dataset"
        line = "{:dotted} = split_dataset_by_node({:dotted}, rank=dist.get_rank(), world_size=dist.get_world_size())"
        fix = Fix(
            "Split it before the DataLoader.",
            ("from datasets.distributed import split_dataset_by_node", python(line, name, name)),
        )
        return finding(script, streams[0], "every rank reads the whole stream of load_dataset", fix, streams[1:])
    fix = Fix(
        "Yield only this rank's samples in __iter__, before they are divided between the DataLoader's workers.",
        ("if index % dist.get_world_size() == dist.get_rank():",),
    )
    return finding(script, classes[0], f"every rank reads all samples of {classes[0].name}", fix, classes[1:])


def _streams(script: Script) -> list[ScriptCall]:
    """Return the calls that open a Hugging Face dataset as a stream of training data."""
    loads = visibly_called(script, calls(script, r"datasets\.load_dataset"))
    opened = [call for call in loads if call.keywords.get("streaming") == "True"]
    return [call for call in opened if not _NOT_TRAINED_ON.search(" ".join((*call.targets, *call.written)))]


def _iterable_classes(script: Script) -> list[ScriptClass]:
    """Return the script's iterable datasets that it creates, and that read samples in a fixed order."""
    created = {call.name.rpartition(".")[2] for call in script.calls if call.reached}
    found = [one for one in script.classes if _ITERABLE in one.bases and one.name in created]
    return [one for one in found if _has_fixed_order(script, one) and not _NOT_TRAINED_ON.search(one.name)]


def _has_fixed_order(script: Script, one: ScriptClass) -> bool:
    """Whether a dataset has its own __iter__ that draws nothing at random, and gets no rank from elsewhere."""
    inside = [spot for spot in script.calls if spot.file == one.file and spot.function.startswith(f"{one.name}.")]
    makers = [call for call in script.calls if call.name.rpartition(".")[2] == one.name]
    own = any(f.name == f"{one.name}.__iter__" and f.file == one.file for f in script.functions)
    drawn = any(re.search(r"random|\brand|shuffle|sample|choice|normal|uniform", call.name) for call in inside)
    return own and not drawn and not any(unpacks(call) or mentions_rank(*call.written) for call in makers)


@check(Severity.WARNING, source=_SAMPLER_DOC, given=by_hand)
def script_set_epoch_missing(script: Script) -> Answer:
    """A DistributedSampler is used for several epochs without set_epoch.

    Why: The sampler shuffles based on its seed and epoch, and the epoch stays 0.
    More: Every epoch has the same order, and every rank sees the same shard in the same batches each time.

    Fix: Call set_epoch at the start of each epoch.
    More: sampler.set_epoch(epoch).
    """
    samplers = visibly_called(script, calls(script, _SAMPLER))
    shuffling = [call for call in samplers if argument(call, 3, "shuffle") != "False" and not unpacks(call)]
    trained = [call for call in shuffling if not _NOT_TRAINED_ON.search(" ".join((*call.targets, *call.written[:1])))]
    if not trained:
        return Ok("no DistributedSampler that shuffles training data")
    if calls(script, r".*\.set_epoch"):
        return Ok("set_epoch is called")
    trained = [call for call in trained if _outlives_epoch(script, call)]
    if script.cut or not trained:
        return Skip("no visible loop over epochs")
    one = bool(trained[0].targets) and not is_repeated(script, trained[0])
    sampler = trained[0].targets[0] if one else "loader.sampler"
    return finding(
        script,
        trained[0],
        "set_epoch is never called: every epoch has the same order",
        commands(python("{:dotted}.set_epoch(epoch)", sampler)),
    )


def _outlives_epoch(script: Script, sampler: ScriptCall) -> bool:
    """Whether a sampler is created before the loop over epochs, also as one of several for parts of the data."""
    training = [call for call in backward_calls(script) if len(call.loops) > 1]
    if not is_repeated(script, sampler):
        return bool(training)
    around = {loop for call in training for loop in call.loops}
    epochs = [number for number in around if _EPOCH.search(script.loops[number].target)]
    made = [sampler, *callers(script, sampler)]
    return bool(epochs) and len(made) <= 2 and not any(around.intersection(one.loops) for one in made)


@check(Severity.WARNING, source="https://github.com/Lightning-AI/pytorch-lightning/issues/7728")
def script_split_differs_by_rank(script: Script) -> Answer:
    """The data is split randomly, and every rank gets a different split.

    Why: One rank's validation samples are in another rank's training set, so validation results look too good.
    More: Each rank runs the whole script with its own random state, without any warning.

    Fix: Pass a fixed seed to the split.
    More: Or set the same seed on every rank before it.
    """
    if script.error or script.speaks in (None, "nothing"):
        return requires_kind(*LOOPS_OF_ITS_OWN)(script) or Skip("not known")
    splits = visibly_called(script, calls(script, rf"{_SPLIT}|{_SPLIT_OF_DATASETS}"))
    drawn = [call for call in reached_by_every_rank(script, splits) if _is_unseeded(call)]
    if not drawn:
        number = counted(len(splits), "random split")
        return Ok(f"{number}, each with its own seed or on one rank" if splits else "no split")
    seeds = [call for call in script.calls if re.search(r"seed", call.name.rpartition(".")[2], re.IGNORECASE)]
    differing = [call for call in seeds if _is_seeded_by_rank(call)]
    if (seeds or script.cut) and not differing:
        return Ok(f"a seed is set in line {seeds[0].line}" if seeds else "not all of the script was read")
    what = drawn[0].name.rpartition(".")[2]
    because = f"the seed in line {differing[0].line} depends on the rank" if differing else "no seed is set"
    seeded = python("{:dotted}(..., seed=0)", what)
    if "sklearn" in drawn[0].name:
        seeded = python("{:dotted}(..., random_state=0)", what)
    if what == "random_split":
        seeded = python("{:dotted}(..., generator=torch.Generator().manual_seed(0))", what)
    return finding(script, drawn[0], f"every rank gets a different {what}(): {because}", commands(seeded), drawn[1:])


def _is_unseeded(call: ScriptCall) -> bool:
    names = {"generator", "random_state", "seed", "generators"}
    shuffles = call.keywords.get("shuffle") != "False"
    return not names.intersection(call.keywords) and not unpacks(call) and shuffles and len(call.arguments) < 3


def _is_seeded_by_rank(call: ScriptCall) -> bool:
    texts = (*call.arguments, *call.written)
    return mentions_rank(*texts) or call.keywords.get("device_specific") == "True"


@check(Severity.WARNING, source=_DISTRIBUTED_EVALUATION, given=with_accelerate)
def script_metric_of_one_shard(script: Script) -> Answer:
    """A metric is computed on each rank's shard of the evaluation data, but never gathered.

    Why: The reported result is for 1/N of the data.
    More: accelerator.prepare gives every rank its own shard of the evaluation data. The result is often divided by the
    size of the whole set, so accuracy drops when GPUs are added.

    Fix: Gather predictions and labels before you compute the metric.
    """
    if script.cut or any(_GATHERS.fullmatch(call.name) for call in script.calls):
        return Ok("results are gathered or reduced")
    if any(name.startswith("torchmetrics") for name in script.imports):
        return Skip("torchmetrics gathers the ranks' results itself")
    loops = [number for number in range(len(script.loops)) if _evaluates(script, number)]
    if not loops:
        return Ok("no loop computes a metric over prepared evaluation data")
    return finding(
        script,
        script.loops[loops[0]],
        "each rank counts only its own shard of the evaluation data, and nothing gathers the results",
        commands("predictions, labels = accelerator.gather_for_metrics((predictions, labels))"),
        [script.loops[number] for number in loops[1:]],
    )


def _evaluates(script: Script, number: int) -> bool:
    """Whether a loop evaluates the model on prepared data, on every rank and without training, and counts results."""
    loop = script.loops[number]
    inside = [call for call in script.calls if number in call.loops]
    if not is_reached_by_all(loop) or any(call.name.endswith((".backward", ".step")) for call in inside):
        return False
    called = any(re.fullmatch(PREPARED, call.name) for call in inside)
    counted = any(re.match(r".*\.(?:item|add_batch|update)$", call.name) for call in inside)
    return bool(re.fullmatch(PREPARED, loop.source)) and called and counted
