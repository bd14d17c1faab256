"""checks/script/preparing.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, informs, table, warns, well

MAPPED = """\
from accelerate import Accelerator
from datasets import load_dataset
accelerator = Accelerator()
data = load_dataset("imdb", split="train[:12]")
data = data.map(print)
accelerator.backward(model(data))
optimizer.step()
"""
LOADS = """\
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
mean = torch.load("mean.pt")
loss.backward()
optimizer.step()
"""

CASES = (
    warns("script_downloads_on_every_rank", "line 13: every rank downloads", "dist.barrier()",
        script=bad("data-every-rank-downloads")),
    well("script_downloads_on_every_rank", "1 download", script=good("data-every-rank-downloads")),
    well("script_downloads_on_every_rank", "no downloads", script=read(LOADS)),
    informs("script_tokenises_on_every_rank", "line 12: every rank runs map()", "main_process_first",
        script=bad("data-every-rank-tokenises")),
    well("script_tokenises_on_every_rank", "one rank goes first", script=good("data-every-rank-tokenises")),
    well("script_tokenises_on_every_rank", "no Hugging Face dataset", script=read(MAPPED)),
    informs("script_checkpoint_loaded_onto_gpu_0", "line 13: torch.load without map_location", 'map_location="cpu"',
        script=bad("loading-checkpoint-onto-GPU-0")),
    informs("script_checkpoint_loaded_onto_gpu_0", "line 11: torch.load", 'map_location="cpu"',
        script=bad("loading-checkpoint-by-way-of-a-variable")),
    well("script_checkpoint_loaded_onto_gpu_0", "has a map_location",
        script=good("loading-checkpoint-onto-GPU-0")),
    well("script_checkpoint_loaded_onto_gpu_0", "none for a checkpoint", script=read(LOADS)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
