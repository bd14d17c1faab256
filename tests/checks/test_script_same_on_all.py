"""checks/script/same_on_all.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import read
from tests.checks.facts import Case, table, warns, well

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank = dist.get_rank()
net = DistributedDataParallel(build())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for x, y in loader:
    loss = net(x).sum()
    loss.backward()
    optimizer.step()
"""
SAVED = "if rank == 0:\n    torch.save(net.module.state_dict(), path)\n"
LOADED = "net.module.load_state_dict(torch.load(path))\n"
HEADS = HEAD.replace("net = ", "head = nn.Linear(2, 2)\nnet = ").replace(
    "net.parameters()", "[*net.parameters(), *head.parameters()]"
)

CASES = (
    warns("script_collective_by_rank", "line 14: all_reduce() gets another operation, size or type on each rank", "pad",
        script=read(HEAD + "dist.all_reduce(loss, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)\n")),
    warns("script_collective_by_rank", "all_gather()", "pad",
        script=read(HEAD + "dist.all_gather(found, torch.zeros(3 + dist.get_rank()))\n")),
    well("script_collective_by_rank", "1 collective",
        script=read(HEAD + "dist.all_reduce(torch.zeros(3, device=rank), dist.ReduceOp.SUM)\n")),
    well("script_collective_by_rank", "1 collective", script=read(HEAD + "dist.all_reduce(torch.full((1,), rank))\n")),
    warns("script_reads_before_written", "line 16: the other ranks load path while rank 0 saves it", "dist.barrier()",
        script=read(HEAD + SAVED + LOADED)),
    well("script_reads_before_written", "1 file loaded", script=read(HEAD + SAVED + "dist.barrier()\n" + LOADED)),
    well("script_reads_before_written", "1 file loaded", script=read(HEAD + SAVED + LOADED.replace("path", "other"))),
    well("script_reads_before_written", "0 files loaded",
        script=read(HEAD + SAVED + f"if rank == 0:\n    {LOADED}")),
    warns("script_replaces_trained_layer", "line 14: the optimizer of line 8 has the parameters of the old net.fc",
        "create the optimizer", script=read(HEAD + "net.fc = nn.Linear(2, 9)\n")),
    well("script_replaces_trained_layer", "1 optimizer", script=read(HEAD + "other.fc = nn.Linear(2, 9)\n")),
    well("script_replaces_trained_layer", "2 optimizers",
        script=read(HEAD + "net.fc = nn.Linear(2, 9)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n")),
    warns("script_schedule_by_own_loss", "line 14: each rank steps ReduceLROnPlateau with its own loss", "all_reduce",
        script=read(HEAD + "    schedule.step(loss)\n")),
    well("script_schedule_by_own_loss", "1 step", script=read(HEAD + "schedule.step(validate(net))\n")),
    well("script_schedule_by_own_loss", "1 step",
        script=read(HEAD + "    dist.all_reduce(loss)\n    schedule.step(loss)\n")),
    warns("script_model_not_wrapped", "line 7: head is trained, but not wrapped as net is", "head = Distributed",
        script=read(HEADS)),
    well("script_model_not_wrapped", "1 optimizer", script=read(HEAD)),
    well("script_model_not_wrapped", "1 optimizer",
        script=read(HEADS.replace("nn.Linear(2, 2)", "DistributedDataParallel(nn.Linear(2, 2))"))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
