"""checks/script/output.py"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest

from mgpu.snapshot import Script, ScriptCall
from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, informs, problem, skips, table, warns, well

_ranks: Any = importlib.import_module("mgpu.checks.script._rank_paths")

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
for step in range(9):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
HOOK = HEAD + 'def hook(model):\n    torch.save(model, "x.pt")\nlibrary.register(hook)\n'
TWICE = HEAD + 'torch.save(model, "x.pt")\ntorch.save(model, "y.pt")\n'
# A decorator of the script decides which ranks save.
_RUN = "return func(self, *given)"
_BODY = {
    "main": f"            if self.rank_id == 0:\n                {_RUN}\n",
    "returns": f"            if dist.get_rank() != 0:\n                return None\n            {_RUN}\n",
    "timed": f"            if self.rank_id == 0:\n                print(time.time())\n            {_RUN}\n",
    "both": f"            if self.rank_id == 0:\n                {_RUN}\n            return func(self)\n",
}
DECORATED = {
    name: HEAD
    + f"""\
class Saver:
    def __init__(self, rank_id):
        self.rank_id = rank_id
    def masked(func):
        def inner(self, *given):
{body}\
        return inner
    @masked
    def save(self):
        torch.save(model, "x.pt")
Saver(rank).save()
"""
    for name, body in _BODY.items()
}
OF_FUNCTION = (
    HEAD
    + """\
def masked(func):
    def inner(*given):
        if rank == 0:
            func(*given)
    return inner
@masked
def save():
    torch.save(model, "x.pt")
save()
"""
)
# An object that saves when it is called.
CALLED = (
    HEAD
    + """\
class Stopper:
    def __call__(self, loss):
        self.save()
    def save(self):
        torch.save(model, "x.pt")
stopper = Stopper()
"""
)
SHARDED = """\
from accelerate import Accelerator, ParallelismConfig
accelerator = Accelerator(parallelism_config=ParallelismConfig())
model, optimizer = accelerator.prepare(model, optimizer)
for batch in loader:
    accelerator.backward(model(batch))
    optimizer.step()
model.save_pretrained("out")
"""

# A method starts the ranks; what calls it runs once, too.
STARTED_BY_A_METHOD = """\
import torch, torch.distributed as dist, wandb
from torch.nn.parallel import DistributedDataParallel as DDP
class Runner:
    def work(self, rank, run):
        dist.init_process_group("nccl", rank=rank, world_size=2)
        model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
        for batch in range(3):
            model(batch).sum().backward()
    def start(self, run):
        torch.multiprocessing.spawn(self.work, args=(run,), nprocs=2)
def track():
    return wandb.init(project="digits")
def main():
    Runner().start(track())
if __name__ == "__main__":
    main()
"""

# The function that starts the ranks runs once; the one that it starts, on every rank.
STARTS_ITS_RANKS = """\
import os, torch, torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter
from torch.nn.parallel import DistributedDataParallel as DDP
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
def work(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
    for batch in range(3):
        model(batch).sum().backward()
def main():
    writer = SummaryWriter("runs")
    torch.multiprocessing.spawn(work, args=(2,), nprocs=2)
if __name__ == "__main__":
    main()
"""
# Event files of every rank; {} is the condition under which the script writes to them.
EVENTS = """\
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("runs")
for step in range(9):
    if {}:
        writer.add_scalar("loss", 1.0, step)
"""
BY_TRAINER = """\
import torch, wandb
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Own(Trainer):
    pass
def main():
    model = AutoModelForCausalLM.from_pretrained("tiny")
    {before}
    trainer = {trainer}(model, TrainingArguments("out"))
    trainer.train()
    {after}
main()
"""


def by_trainer(after: str = "pass", before: str = "pass", trainer: str = "Trainer") -> Script:
    """A script of a Trainer, with lines before and after its training."""
    return read(BY_TRAINER.format(after=after, before=before, trainer=trainer))


# The tracker starts where no process group may exist.
TRACKED = """\
import os, torch, wandb
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def train(world_size):
    {}
    model = DDP(torch.nn.Linear(2, 2))
    for step in range(9):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    {}
    train(2)
    {}
"""
_START, _TRACK = 'dist.init_process_group("nccl")', "wandb.init()"

CASES = (
    *(warns("script_tracker_on_every_rank", "every rank calls wandb.init()", line, script=read(TRACKED.format(*parts)))
        for parts, line in (
            ((_START, _TRACK, "pass"), "int(os.environ.get('RANK', 0)) == 0:"),
            ((_START, "pass", _TRACK), "if dist.get_rank() == 0:"),
            ((f"{_START}; {_TRACK}", "pass", "pass"), "if dist.get_rank() == 0:"),
            (("pass", f"{_START}; {_TRACK}", "pass"), "if dist.get_rank() == 0:"),
            ((f"if world_size > 1: {_START}", "pass", _TRACK), "if not dist.is_initialized() or dist.get_rank()"))),
    *(warns("script_saves_on_every_rank", "line 10: every rank runs save_pretrained()", "trainer.save_model",
        script=by_trainer(line, trainer=kind))
        for line in ("model.save_pretrained('out')", "trainer.model.save_pretrained('out')")
        for kind in ("Trainer", "Own")),
    warns("script_saves_on_every_rank", "every rank runs save()", "trainer.is_world_process_zero()", script=by_trainer(
        "torch.save(model.lm_head, 'head.pt')")),
    *(well("script_saves_on_every_rank", "1 save call", script=read(text))
        for text in (DECORATED["main"], DECORATED["returns"], OF_FUNCTION)),
    *(warns("script_saves_on_every_rank", "every rank runs save() to the same file", "get_rank", script=read(text))
        for text in (DECORATED["timed"], DECORATED["both"], OF_FUNCTION.replace("rank == 0", "given"))),
    *(well("script_saves_on_every_rank", "sav", script=by_trainer(after, before)) for after, before in (
        ("if trainer.is_world_process_zero():\n        model.save_pretrained('out')", "pass"),
        ("if trainer.args.should_save:\n        model.save_pretrained('out')", "pass"),
        ("tokenizer.save_pretrained('out')", "pass"), ("trainer.save_model('out')", "pass"),
        ("pass", "model.save_pretrained('start')"))),
    warns("script_tracker_on_every_rank", "every rank calls wandb.init()", "report_to", at=(7, 5),
        script=by_trainer(before="wandb.init(project='digits')")),
    well("script_tracker_on_every_rank", "1 tracker", script=by_trainer(
        before="if int(os.environ['RANK']) == 0:\n        wandb.init(project='digits')")),
    warns("script_tracker_on_every_rank", "calls SummaryWriter()", "dist.get_rank() == 0",
        script=read(HEAD + EVENTS.format("step % 3 == 0"))),
    well("script_tracker_on_every_rank", "1 tracker", script=read(HEAD + EVENTS.format("rank == 0"))),
    well("script_tracker_on_every_rank", "1 tracker", script=read(HEAD + EVENTS.format("rank == 0 and step % 3 == 0"))),
    *(warns("script_tracker_on_every_rank", "wandb.init()", "get_rank() == 0", script=read(
        "import time, wandb\n" + HEAD + text)) for text in (
            "wandb.init(name=time.strftime('%H%M'))\n", "now = time.strftime('%H%M')\nwandb.init(name='run' + now)\n",
            "args.day = time.strftime('%d')\nat = time.strftime('%H')\nwandb.init(name=args.day + '_' + at)\n")),
    *(well("script_tracker_on_every_rank", "configured for several ranks", script=read(
        "import os, time, wandb\n" + HEAD + text)) for text in (
            "wandb.init(name=f'{time.time()}-{rank}')\n", "wandb.init(name=time.strftime('%H'), notes=rank)\n",
            "name = f'{rank}'\nwandb.init(name=time.strftime('%H') + name)\n",
            "name = time.strftime('%H')\nname = str(os.getpid())\nwandb.init(name=name)\n")),
    *(warns("script_tracker_on_every_rank", "wandb.init()", "get_rank() == 0", script=read(
        "import wandb\n" + HEAD + f"wandb.init(settings=wandb.Settings({given}))\n"))
        for given in ('start_method="fork"', 'init_timeout=300, console="off"')),
    *(well("script_tracker_on_every_rank", "configured for several ranks", script=read(
        "import wandb\n" + HEAD + f"wandb.init(settings={given})\n"))
        for given in ('wandb.Settings(mode="shared", x_primary=rank == 0)', "wandb.Settings(**options)", "settings")),
    well("script_tracker_on_every_rank", "1 tracker", script=read(STARTED_BY_A_METHOD)),
    warns("script_tracker_on_every_rank", "every rank calls wandb.init()", "get_rank() == 0", at=(6, 9), script=read(
        STARTED_BY_A_METHOD.replace("        model =", "        wandb.init(project='digits')\n        model ="))),
    warns("script_saves_on_every_rank", "line 17: every rank runs save() to the same file", "dist.get_rank() == 0",
        script=bad("saving-model-saved-by-every-rank")),
    warns("script_saves_on_every_rank", "line 21: every rank runs save_pretrained()", "is_main_process=",
        script=bad("saving-save_pretrained-by-every-rank")),
    warns("script_saves_on_every_rank", "line 10: every rank", "dist.get_rank() == 0", script=read(TWICE)),
    warns("script_saves_on_every_rank", "line 14: every rank", "get_rank() == 0", script=read(CALLED + "stopper(1)\n")),
    well("script_saves_on_every_rank", "1 save call", script=read(CALLED)),
    well("script_saves_on_every_rank", "1 save call", script=good("saving-model-saved-by-every-rank")),
    well("script_saves_on_every_rank", "1 save call", script=read(HEAD + 'torch.save(model, f"{rank}.pt")\n')),
    well("script_saves_on_every_rank", "1 save call",
        script=read(SHARDED.replace("(parallelism_config=ParallelismConfig())", "()").replace(
            '"out"', '"out", save_function=accelerator.save'))),
    well("script_saves_on_every_rank", "1 save call, each guarded", script=read(HOOK)),
    well("script_saves_on_every_rank", "no visible training and saving", script=read(HEAD)),
    skips("script_saves_on_every_rank", "every rank must save", script=read(SHARDED)),
    skips("script_saves_on_every_rank", "not known", script=read("import engine\nengine.train()\n")),
    skips("script_saves_on_every_rank", "nothing in this script trains", script=read("import torch\n")),
    informs("script_writes_on_every_rank", "line 20: every rank opens the same file", "dist.get_rank() == 0",
        script=bad("saving-results-written-by-every-rank")),
    well("script_writes_on_every_rank", "1 file", script=good("saving-results-written-by-every-rank")),
    well("script_writes_on_every_rank", "no file is opened", script=read(HEAD + 'open("/dev/null", "w")\n')),
    well("script_writes_on_every_rank", "no file is opened", script=read(HEAD + 'open("data.txt")\n')),
    warns("script_tracker_on_every_rank", "line 13: every rank calls wandb.init(): N GPUs create N runs",
        "get_rank() == 0", script=bad("logging-wandb-run-for-every-rank")),
    warns("script_tracker_on_every_rank", "wandb.init", "log_with", script=bad("logging-wandb-beside-accelerate")),
    warns("script_tracker_on_every_rank", "calls SummaryWriter()", "dist.get_rank() == 0",
        script=bad("logging-event-files-of-every-rank-in-one-folder")),
    well("script_tracker_on_every_rank", "1 tracker", script=good("logging-wandb-run-for-every-rank")),
    well("script_tracker_on_every_rank", "1 tracker", script=read(STARTS_ITS_RANKS)),
    warns("script_tracker_on_every_rank", "every rank calls SummaryWriter()", "get_rank() == 0",
        script=read(STARTS_ITS_RANKS.replace("dist.init", "SummaryWriter('runs'); dist.init"))),
    well("script_tracker_on_every_rank", "configured for several ranks",
        script=read("import wandb\n" + HEAD + 'wandb.init(group="run 1")\n')),
    well("script_tracker_on_every_rank", "no experiment tracker", script=read(HEAD)),
)  # fmt: skip


def test_helpers_that_call_each_other_are_asked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [[f"step_{layer}_{place}" for place in range(4)] for layer in range(7)]
    text = HEAD + "".join(f'def {name}():\n    torch.save(model, "x.pt")\n' for name in layers[0])
    for below, here in itertools.pairwise(layers):
        for name in here:
            text += f"def {name}():\n" + "".join(f"    {called}()\n" for called in below)
    script = read(text + "if rank == 0:\n    step_6_0()\nif rank == 3:\n    step_6_0()\n")
    asked: list[str] = []
    callers = _ranks.callers

    def counted(script: Script, spot: ScriptCall) -> list[ScriptCall]:
        asked.append(spot.function)
        found: list[ScriptCall] = callers(script, spot)
        return found

    monkeypatch.setattr(_ranks, "callers", counted)
    assert not _ranks.reached_by_every_rank(script, [call for call in script.calls if call.name == "torch.save"])
    assert 4 <= len(asked) < 500, "each way through the helpers is gone by itself"


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_further_places_are_named() -> None:
    assert problem("script_saves_on_every_rank", script=read(TWICE)).evidence == {"also in line": "11"}
