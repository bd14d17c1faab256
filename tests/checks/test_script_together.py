"""checks/script/together.py"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import ScriptStart
from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, config, skips, table, warns, well

HEAD = 'import torch\nimport torch.distributed as dist\ndist.init_process_group("nccl")\nrank = dist.get_rank()\n'
BOTH = HEAD + "if rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.broadcast(y, 0)\n"
FIRST = HEAD + "if rank != 0:\n    dist.barrier()\nload()\nif rank == 0:\n    dist.barrier()\n"
GROUP = HEAD + "some = dist.new_group([0, 1])\nif rank == 0:\n    dist.all_reduce(x, group=some)\n"
SAVED = """\
from accelerate import Accelerator
accelerator = Accelerator()
accelerator.backward(loss)
if accelerator.is_main_process:
    accelerator.save_state("out")
"""
FSDP = config("distributed_type: FSDP\nnum_processes: 2\n")
DDP = config("distributed_type: MULTI_GPU\nnum_processes: 2\n")
LEAVES = HEAD + "for step in range(9):\n    if rank == 0 and step == 3:\n        break\n    loss.backward()\n"
STOPS = HEAD + "for step in range(9):\n    if torch.isnan(loss):\n        raise ValueError\n    loss.backward()\n"

# A function that all ranks but 0 leave collects the shards of the model.
SAVES_SHARDS = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
def save(model, rank):
    if rank != 0:
        return
    torch.save(collect(model), "out.pt")
def collect(model):
    return model.state_dict()
torch.distributed.init_process_group("nccl")
model = FSDP(torch.nn.Linear(2, 2))
for batch in range(3):
    model(batch).sum().backward()
save(model, torch.distributed.get_rank())
"""
CASES = (
    warns("script_collective_on_one_rank", "state_dict() is called only on rank 0", "on every rank", at=(8, 12),
        script=read(SAVES_SHARDS)),
    *(well("script_collective_on_one_rank", "", script=read(text)) for text in (
        SAVES_SHARDS.replace("FSDP(torch.nn", "torch.nn.parallel.DistributedDataParallel(torch.nn"),
        SAVES_SHARDS.replace("    if ra", "    s = collect(model)\n    if ra").replace("(collect(model)", "(s"))),
    warns("script_collective_on_one_rank", "line 19: barrier() is called only on rank 0, which",
        "outside the condition",
        script=bad("collectives-barrier-on-rank-0-alone")),
    warns("script_collective_on_one_rank", "all_reduce() is called only on rank 0, which", "all_reduce()",
        script=bad("collectives-reduce-inside-a-guarded-report")),
    warns("script_collective_on_one_rank", "gather() is called only on rank 0, which", "on every rank",
        script=bad("collectives-gather-for-the-main-process-only")),
    warns("script_collective_on_one_rank", "barrier()", "barrier()",
        script=bad("collectives-early-return-before-a-barrier")),
    well("script_collective_on_one_rank", "1 collective", script=good("collectives-barrier-on-rank-0-alone")),
    well("script_collective_on_one_rank", "2 collectives", script=read(BOTH)),
    well("script_collective_on_one_rank", "2 collectives", script=read(FIRST)),
    well("script_collective_on_one_rank", "2 collectives", script=read(GROUP)),
    warns("script_state_saved_on_one_rank", "line 5: accelerator.save_state() only on the main process, with FSDP",
        "on every process", script=read(SAVED), config=FSDP),
    well("script_state_saved_on_one_rank", "1 save call", config=FSDP,
        script=read(SAVED.replace("if accelerator.is_main_process", "if True"))),
    *(warns("script_collective_on_one_rank", "save_state() is called only on rank 0, which waits", "on every rank",
        script=script) for script in (
            read(SAVED.replace("Accelerator()", "Accelerator(fsdp_plugin=plugin)")),
            read(SAVED.replace("Accelerator()", "Accelerator(deepspeed_plugin=plugin)")),
            read(SAVED.replace("process:", 'process and accelerator.distributed_type == "FSDP":')),
            replace(read(SAVED), starts=(ScriptStart(launcher="accelerate", options=("--use_fsdp",)),)))),
    *(well("script_collective_on_one_rank", "no visible collective", script=script) for script in (
        read(SAVED), read(SAVED.replace("Accelerator()", "Accelerator(fsdp_plugin=None)")),
        read(SAVED.replace("Accelerator()", "Accelerator(deepspeed_plugin=plugin)").replace("_state", "_model")),
        read(SAVED.replace("process:", 'process and accelerator.distributed_type != "FSDP":')))),
    well("script_collective_on_one_rank", "none on one rank", script=read(SAVED.replace(
        "Accelerator()", "Accelerator(fsdp_plugin=plugin)").replace("if accelerator.is_main_process", "if 1"))),
    skips("script_state_saved_on_one_rank", "every rank has all weights", script=read(SAVED), config=DDP),
    warns("script_rank_skips_backward", "a rank can continue alone", "all_reduce",
        script=bad("collectives-batch-with-a-bad-loss-left-out")),
    warns("script_rank_skips_backward", "line 7: a rank can break alone", "all_reduce", script=read(LEAVES)),
    well("script_rank_skips_backward", "1 early exit from training loops",
        script=good("collectives-batch-with-a-bad-loss-left-out")),
    well("script_rank_skips_backward", "no loop is left early", script=read(STOPS)),
    warns("script_stops_by_its_own_loss", "every rank decides on its own", "all_reduce(loss",
        script=bad("collectives-early-stopping-on-every-rank")),
    well("script_stops_by_its_own_loss", "exchange values", script=good("collectives-early-stopping-on-every-rank")),
    well("script_stops_by_its_own_loss", "no visible early stopping", script=read(LEAVES)),
    well("script_stops_by_its_own_loss", "no visible early stopping",
        script=read(LEAVES + "for layer in layers:\n    if patience > 3:\n        break\n")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
