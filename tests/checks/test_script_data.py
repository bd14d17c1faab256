"""checks/script/data.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, skips, table, warns, well

SHARDS = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from my_data import Shard
dist.init_process_group("nccl")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
for batch in DataLoader(Shard(rank=rank)):
    model(batch).sum().backward()
"""
SPLIT = """\
from datasets import load_dataset
from transformers import Trainer
data = load_dataset("imdb", split="train").train_test_split(test_size=0.1{})
Trainer(model, train_dataset=data["train"]).train()
"""
ORDERED = SHARDS.replace("Shard(rank=rank)", "data, sampler=DistributedSampler(data, shuffle=False)").replace(
    "import DataLoader", "import DataLoader, DistributedSampler"
)
STREAM = """\
import torch
from datasets import load_dataset
torch.distributed.init_process_group("nccl")
data = load_dataset("imdb", streaming=True)
"""
# A sampler that gets the rank is a sampler of each rank's own samples, also in a loader that is not prepared.
OWN_SAMPLER = """\
import torch
from accelerate import Accelerator
from my_data import MixedBatches
from torch.utils.data import DataLoader{imported}
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
batches = {sampler}
loader = DataLoader(data, {option}=batches)
for batch in loader:
    accelerator.backward(model(batch).sum())
"""
OWN_SAMPLERS = (
    OWN_SAMPLER.format(imported="", option="batch_sampler",
        sampler="MixedBatches(data, local_rank=accelerator.process_index, world_size=accelerator.num_processes)"),
    OWN_SAMPLER.format(imported="\nfrom torch.utils.data import DistributedSampler", option="sampler",
        sampler="DistributedSampler(data)"),
)  # fmt: skip
# Each round trains on the samples that this rank has collected in it, or on a file that every rank reads.
ROUNDS = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
class Pairs(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs{}
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))
pairs = []
{}for number in range(9):
    pairs = []
    {}
    data = Pairs(pairs)
    loader = DataLoader(data)
    for batch in loader:
        accelerator.backward(model(batch).sum())
"""
COLLECTS = "for prompt in prompts:\n        pairs.append(model(prompt))"
# A Trainer with a DataLoader of its own.
OWN_LOADER = """\
import torch
from torch.utils.data import DataLoader
from transformers import Trainer
class Own(Trainer):
    def __init__(self, *args, own=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.own = own
    def get_train_dataloader(self):
        {}
made = DataLoader(data, batch_size=8{})
Own(model, own={}).train()
"""
# Samplers of several parts of the data.
PARTS = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 2))
loaders = []
for part in parts:
    loaders.append(DataLoader(part, sampler=DistributedSampler(part)))
for {} in range(9):
    for loader in loaders:
        for batch in loader:
            model(batch).sum().backward()
"""
# Each part of the data is trained on by itself.
EACH_PART = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("nccl")
model = DDP(torch.nn.Linear(2, 2))
for part in parts:
    loader = DataLoader(part, sampler=DistributedSampler(part))
    for epoch in range(9):
        for batch in loader:
            model(batch).sum().backward()
"""
METRICS = good("data-accuracy-of-one-shard")

CASES = (
    warns("script_data_not_divided", "has no DistributedSampler: every rank trains on all",
        "sampler=DistributedSampler", script=bad("data-loader-without-a-sampler")),
    warns("script_data_not_divided", "loader is not passed to accelerator.prepare",
        "loader = accelerator.prepare(loader)", script=bad("data-loader-that-prepare-was-not-given")),
    well("script_data_not_divided", "1 DataLoader", script=good("data-loader-without-a-sampler")),
    well("script_data_not_divided", "1 DataLoader", script=good("data-loader-that-prepare-was-not-given")),
    well("script_data_not_divided", "1 DataLoader", script=read(SHARDS)),
    *(well("script_data_not_divided", "1 DataLoader", script=read(text)) for text in OWN_SAMPLERS),
    warns("script_data_not_divided", "loader is not passed to accelerator.prepare", "prepare(loader)", script=read(
        OWN_SAMPLER.format(imported="", option="batch_sampler", sampler="MixedBatches(data, seed=7)"))),
    well("script_data_not_divided", "1 DataLoader", script=read(ROUNDS.format("", "", COLLECTS))),
    warns("script_data_not_divided", "loader is not passed to accelerator.prepare", "prepare(loader)", script=read(
        ROUNDS.format("", "", "pairs = load(number)"))),
    warns("script_data_not_divided", "loader is not passed to accelerator.prepare", "prepare(loader)", script=read(
        ROUNDS.format("", "for line in open('x'):\n    pairs.append(line)\n", "pairs = load(pairs)"))),
    well("script_data_not_divided", "1 DataLoader", script=read(
        ROUNDS.format("", "", "pairs = load('x')[accelerator.process_index::accelerator.num_processes]"))),
    well("script_data_not_divided", "1 DataLoader", script=read(
        ROUNDS.format("[accelerator.process_index :: 2]", "", "pairs = load('x')"))),
    *(warns("script_data_not_divided", "line 8: get_train_dataloader returns a DataLoader that nothing prepares",
        "self.accelerator.prepare(loader)", script=read(OWN_LOADER.format(*given)))
        for given in (("return self.own", "", "made"), ("return DataLoader(self.train_dataset)", "", "None"))),
    *(well("script_data_not_divided", "DataLoader", script=read(OWN_LOADER.format(*given)))
        for given in (("return self.own", ", sampler=ours", "made"), ("return self.own", "", "None"),
            ("return self.accelerator.prepare(DataLoader(self.train_dataset))", "", "None"),
            ("return super().get_train_dataloader()", "", "made"),
            ("return DataLoader(self.train_dataset, sampler=self._get_train_sampler())", "", "None"))),
    warns("script_set_epoch_missing", "line 8: set_epoch is never called", "loader.sampler.set_epoch(epoch)",
        script=read(PARTS.format("epoch"))),
    skips("script_set_epoch_missing", "no visible loop over epochs", script=read(PARTS.format("part"))),
    skips("script_set_epoch_missing", "no visible loop over epochs", script=read(EACH_PART)),
    warns("script_set_epoch_missing", "every epoch has the same order", "sampler.set_epoch(epoch)",
        script=bad("data-the-same-order-in-every-epoch")),
    well("script_set_epoch_missing", "set_epoch is called", script=good("data-the-same-order-in-every-epoch")),
    well("script_set_epoch_missing", "no DistributedSampler that shuffles", script=read(ORDERED)),
    skips("script_set_epoch_missing", "scripts that use accelerate",
        script=good("data-loader-that-prepare-was-not-given")),
    warns("script_stream_not_split", "reads the whole stream of load_dataset", "split_dataset_by_node",
        script=bad("data-stream-that-every-rank-reads-in-full")),
    warns("script_stream_not_split", "line 8: every rank reads all samples of Lines", "index % dist.get_world_size()",
        script=bad("data-iterable-dataset-that-does-not-know-its-rank")),
    well("script_stream_not_split", "split by rank", script=good("data-stream-that-every-rank-reads-in-full")),
    well("script_stream_not_split", "split by rank", script=good("data-iterable-dataset-that-does-not-know-its-rank")),
    well("script_stream_not_split", "no stream", script=read(ORDERED)),
    well("script_stream_not_split", "no visible training loop", script=read(STREAM)),
    well("script_data_not_divided", "for which there is no sampler",
        script=bad("data-stream-that-every-rank-reads-in-full")),
    warns("script_split_differs_by_rank", "gets a different random_split(): no seed is set", "manual_seed(0)",
        script=bad("data-another-split-on-every-rank")),
    warns("script_split_differs_by_rank", "line 11 depends on the rank", "manual_seed(0)",
        script=bad("data-split-seeded-with-the-rank")),
    warns("script_split_differs_by_rank", "gets a different train_test_split()", "seed=0",
        script=read(SPLIT.format(""))),
    well("script_split_differs_by_rank", "1 random split", script=read(SPLIT.format(", seed=1"))),
    well("script_split_differs_by_rank", "1 random split", script=good("data-another-split-on-every-rank")),
    well("script_split_differs_by_rank", "a seed is set in line 11", script=good("data-split-seeded-with-the-rank")),
    warns("script_metric_of_one_shard", "line 23: each rank counts only its own shard", "gather_for_metrics",
        script=bad("data-accuracy-of-one-shard")),
    well("script_metric_of_one_shard", "gathered or reduced", script=METRICS),
    skips("script_metric_of_one_shard", "torchmetrics",
        script=read("import torchmetrics\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
