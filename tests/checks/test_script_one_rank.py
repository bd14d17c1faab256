"""checks/script/one_rank.py"""

from __future__ import annotations

import pytest

from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, informs, skips, table, warns, well

HEAD = """\
import os
import logging
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
model = build()
net = DistributedDataParallel(model)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
"""
LOOP = """\
for x, y in loader:
    loss = net(x).sum()
    loss.backward()
    optimizer.step()
    schedule.step()
"""
ALONE = LOOP.replace("    schedule.step", "    if dist.get_rank() == 0:\n        schedule.step")
VALUED = ALONE.replace("        schedule.step()", "        tested = test(net)\n        schedule.step(tested)")
STEPS = LOOP.replace("    optimizer.step", "    if dist.get_rank() == 0:\n        optimizer.step")
PREPARED = """\
from accelerate import Accelerator
accelerator = Accelerator()
net, optimizer = accelerator.prepare(net, optimizer)
accelerator.backward(loss)
if accelerator.is_main_process:
    optimizer.step()
"""
LOADS = "if dist.get_rank() == 0:\n    net.module.load_state_dict(torch.load(path))\n"
# The other ranks load it themselves.
LOADS_TOO = LOADS + "if dist.get_rank() != 0:\n    net.module.load_state_dict({})\n"
IN_ELSE = LOADS + "else:\n    net.module.load_state_dict({})\n"
BEFORE = "if dist.get_rank() == 0:\n    model.load_state_dict(torch.load(path))\n"
SENDS = "dist.broadcast(x, src=dist.get_rank())\n"
WORLD = HEAD.replace("dist.init", 'os.environ["WORLD_SIZE"] = "1"\ndist.init')
OF_ONE = HEAD.replace('("nccl")', '("nccl", rank=0, world_size=1)')
SHARDS = """\
import torch
from torch.distributed.fsdp import fully_shard
model = build()
optimizer = torch.optim.AdamW(model.parameters())
fully_shard(model)
"""
SAMPLER = "sampler = torch.utils.data.DistributedSampler(data, num_replicas={}, rank=dist.get_rank())\n"
NO_SYNC = LOOP.replace("    loss.backward()", "    with net.no_sync():\n        loss.backward()")
INNER = LOOP.replace("net(x)", "net.module(x)")
LOGS = "logging.basicConfig(filename={})\n"
TRIED = 'try:\n    os.makedirs("out")\n{}\n'
FOLDER = 'if not os.path.exists("out"):\n    os.makedirs("out"{})\n'

# The ranks but one end, and rank 0 waits for them.
LEAVES_FIRST = """\
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def main():
    rank = int(os.environ["RANK"])
    if rank != 0:
        return
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(2, 2))
    for batch in range(3):
        model(batch).sum().backward()
main()
"""

LEAVES_DIRECTLY = """\
import itertools, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def share(lines, rank, world):
    return itertools.islice(lines, rank, None, world)
def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(2, 2))
    lines = share(open("x"), dist.get_rank(), dist.get_world_size())
    while True:
        try:
            line = next(lines)
        except StopIteration:
            break
        model(line).sum().backward()
main()
"""

CASES = (
    warns("script_rank_leaves_before_group", "rank 0 alone can return here", "raise SystemExit(1)", at=(12, 13),
        script=bad("group-one-rank-leaves-before-the-group")),
    warns("script_rank_leaves_before_group", "a rank other than 0 can return here", "raise SystemExit(1)", script=read(
        LEAVES_FIRST)),
    well("script_rank_leaves_before_group", "no rank ends alone",
        script=good("group-one-rank-leaves-before-the-group")),
    well("script_rank_leaves_before_group", "no rank ends alone", script=read(
        LEAVES_FIRST.replace("    if rank != 0:", "    if not os.path.exists('x'):"))),
    skips("script_rank_leaves_before_group", "scripts that use nothing", script=bad("launching-one-gpu-only")),
    warns("script_rank_leaves_with_its_shard", "when its own share of the data ends", "all_reduce(ended", at=(20, 13),
        script=bad("data-a-rank-whose-share-of-a-stream-ends-first")),
    warns("script_rank_leaves_with_its_shard", "when its own share of the data ends", "the same step",
        script=read(LEAVES_DIRECTLY)),
    well("script_rank_leaves_with_its_shard", "no rank leaves alone",
        script=good("data-a-rank-whose-share-of-a-stream-ends-first")),
    well("script_rank_leaves_with_its_shard", "of the others",
        script=read(LEAVES_DIRECTLY.replace("    while True", "    with model.join():\n     while True"))),
    well("script_rank_leaves_with_its_shard", "no data is divided with islice", script=read(
        LEAVES_DIRECTLY.replace("rank, None, world", "0, None, 2"))),
    warns("script_steps_on_one_rank", "the optimizer steps only on rank 0", "every rank", script=read(HEAD + STEPS)),
    warns("script_steps_on_one_rank", "the schedule steps only on rank 0", "every rank", script=read(HEAD + ALONE)),
    warns("script_steps_on_one_rank", "line 6: the optimizer steps", "every rank", script=read(PREPARED)),
    warns("script_steps_on_one_rank", "the schedule steps", "[tested] if dist.get_rank() == 0",
        script=read(HEAD + VALUED)),
    warns("script_steps_on_one_rank", "the schedule steps", "Step on every rank, outside the condition.",
        script=read(HEAD + VALUED.replace("(tested)", "(epoch)"))),
    well("script_steps_on_one_rank", "2 calls of step()", script=read(HEAD + LOOP)),
    warns("script_loads_on_one_rank", "only rank 0 loads this", "before the model is wrapped",
        script=read(HEAD + LOADS)),
    *(well("script_loads_on_one_rank", "2 loads", script=read(HEAD + text.format("torch.load(path)")))
        for text in (LOADS_TOO, IN_ELSE)),
    *(warns("script_loads_on_one_rank", "only rank 0 loads this", "before the model is wrapped",
        script=read(HEAD + text.format("torch.load(other)"))) for text in (LOADS_TOO, IN_ELSE)),
    well("script_loads_on_one_rank", "0 loads", script=read(HEAD + BEFORE)),
    well("script_loads_on_one_rank", "0 loads", script=read((HEAD + LOADS).replace(
        "torch.nn.parallel import DistributedDataParallel",
        "torch.distributed.fsdp import FullyShardedDataParallel as DistributedDataParallel"))),
    well("script_loads_on_one_rank", "1 load", script=read(HEAD + LOADS.replace("if dist.get_rank() == 0", "if True"))),
    warns("script_sends_from_every_rank", "src=torch.distributed.get_rank() is another rank", "src=0",
        script=read(HEAD + SENDS)),
    well("script_sends_from_every_rank", "1 call", script=read(HEAD + SENDS.replace("dist.get_rank()", "0"))),
    warns("script_group_of_one_rank", "line 6: WORLD_SIZE is set to 1", "to the launcher", script=read(WORLD)),
    warns("script_group_of_one_rank", "init_process_group(world_size=1)", "to the launcher", script=read(OF_ONE)),
    well("script_group_of_one_rank", "the launcher decides", script=read(HEAD)),
    well("script_group_of_one_rank", "the launcher decides",  # only without a launcher
        script=read(WORLD.replace("os.environ[", 'if "RANK" not in os.environ:\n    os.environ['))),
    warns("script_optimizer_before_sharding", "line 4: the optimizer is created before", "after", script=read(SHARDS)),
    well("script_optimizer_before_sharding", "1 call",
        script=read(SHARDS + "optimizer = torch.optim.AdamW(model.parameters())\n")),
    warns("script_replicas_fixed", "num_replicas=4", "Omit", script=read(HEAD + SAMPLER.format(4))),
    well("script_replicas_fixed", "1 DistributedSampler",
        script=read(HEAD + SAMPLER.format("dist.get_world_size()"))),
    warns("script_never_exchanges", "every backward pass is inside no_sync", "last batch",
        script=read(HEAD + NO_SYNC)),
    well("script_never_exchanges", "2 backward passes", script=read(HEAD + NO_SYNC + "net(x).sum().backward()\n")),
    well("script_never_exchanges", "1 backward pass", script=read(
        HEAD + NO_SYNC.replace("net.no_sync()", "net.no_sync() if more else nullcontext()"))),
    warns("script_trains_inner_model", "the model inside the wrapper", "wrapped model itself",
        script=read(HEAD + INNER)),
    well("script_trains_inner_model", "call no model inside", script=read(HEAD + LOOP)),
    informs("script_logs_on_every_rank", "every rank logs to train.log", "on rank 0 only",
        script=read(HEAD + LOGS.format('"train.log"'))),
    well("script_logs_on_every_rank", "0 log files",
        script=read(HEAD + LOGS.format('f"train{dist.get_rank()}.log"'))),
    informs("script_creates_folder_on_every_rank", "every rank creates this folder", "exist_ok=True",
        script=read(HEAD + FOLDER.format(""))),
    well("script_creates_folder_on_every_rank", "no folder", script=read(HEAD + FOLDER.format(", exist_ok=True"))),
    *(well("script_creates_folder_on_every_rank", "no folder", script=read(HEAD + TRIED.format(handler)))
        for handler in ("except FileExistsError:\n    pass", "except OSError as e:\n    if e.errno != 17: print(e)",
            "except OSError:\n    if not os.path.isdir('out'):\n        raise")),
    *(informs("script_creates_folder_on_every_rank", "every rank creates this folder", "exist_ok=True",
        script=read(HEAD + TRIED.format(handler)))
        for handler in ("except OSError:\n    raise", "except KeyError:\n    pass", "finally:\n    print()")),
    well("script_creates_folder_on_every_rank", "no folder", script=read(
        HEAD + "import contextlib\nwith contextlib.suppress(FileExistsError):\n    os.makedirs('out')\n")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
