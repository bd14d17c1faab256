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
