"""checks/script: reading, launching, devices, group, wrapping, arguments"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu.snapshot import Script, ScriptStart
from tests.bad_scripts import bad, good, read
from tests.checks.facts import YAML, Case, config, informs, problem, script, skips, table, warns, well
from tests.checks.test_script_output import STARTS_ITS_RANKS

FP16 = 'from accelerate import Accelerator\naccelerator = Accelerator(mixed_precision="fp16")\n'
# The rank as an option of absl, and as an option whose value gets a name of its own.
OF_ABSL = """\
import torch
from absl import app, flags
from torch.nn.parallel import DistributedDataParallel as DDP
flags.DEFINE_integer("local_rank", 0, "the rank of this process")
FLAGS = flags.FLAGS
def main(_):
    torch.distributed.init_process_group("nccl")
    model = DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[FLAGS.local_rank])
    for batch in range(3):
        model(batch).sum().backward()
app.run(main)
"""
KEPT_RANK = """\
import argparse, os, torch
from torch.nn.parallel import DistributedDataParallel as DDP
parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", type=int)
args = parser.parse_args()
local_rank = args.local_rank
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(local_rank)
model = DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[local_rank])
for batch in range(3):
    model(batch).sum().backward()
"""
# Not the precision of a run on several GPUs.
NOT_HERE = (
    'from accelerate import Accelerator\nif args.cpu:\n    a = Accelerator(cpu=True, mixed_precision="no")\n'
    "else:\n    a = Accelerator()\n",
    'from accelerate import Accelerator\na = Accelerator(cpu=True, mixed_precision="no")\n',
    'from accelerate import Accelerator\nif world_size == 1:\n    a = Accelerator(mixed_precision="no")\n',
    'from transformers import TrainingArguments\nif args.old:\n    a = TrainingArguments("out", fp16=True)\n',
)
TRAINER = read("""\
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments("out", bf16=True, gradient_accumulation_steps=4)
trainer = Trainer(None, arguments)
trainer.train()
""")
ZERO = config("""\
distributed_type: DEEPSPEED
mixed_precision: bf16
deepspeed_config:
  gradient_accumulation_steps: 2
  zero_stage: 2
""")
# A module of functions, which another script calls.
STEPS = """\
import torch


def teach(model, optimizer, loader):
    for inputs in loader:
        total = model(inputs).mean()
        total.backward()
        optimizer.step()
"""

SETS_VISIBLE = """\
import os, accelerate
os.environ["CUDA_VISIBLE_DEVICES"] = "{}"
accelerate.Accelerator().backward(loss)
"""
IN_WORKER = """\
import torch, argparse
argparse.ArgumentParser().add_argument("--j", default=4)
def collate(samples):
    return torch.stack(samples).cuda()
loader = torch.utils.data.DataLoader([], collate_fn=collate, num_workers={}{})
"""
SPAWNED = ", multiprocessing_context='spawn'"
APART = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator()
optimizer = torch.optim.AdamW(model.parameters())
accelerator.prepare({})
optimizer = accelerator.prepare({})
"""
PLUGIN = """\
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version={}))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
accelerator.prepare({})
optimizer = accelerator.prepare({})
"""
SPLITS = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(split_batches=True)
loader = torch.utils.data.DataLoader(data, batch_size={})
loader = accelerator.prepare(loader)
"""
FSDP2 = config("distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_version: 2\n")
FOUR = config("distributed_type: MULTI_GPU\nnum_processes: 4\n")

ALL_GPUS = """\
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--all-gpus", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(8, 2)
if args.all_gpus:
    model = torch.nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    model(torch.ones(8)).sum().backward()
    optimizer.step()
"""

# Slurm's srun starts the ranks; {} selects the GPU.
BY_SRUN = """\
import os, torch
from torch.nn.parallel import DistributedDataParallel as DDP
rank, gpu = int(os.environ["SLURM_PROCID"]), 0
torch.cuda.set_device({})
torch.distributed.init_process_group("nccl", rank=rank, world_size=int(os.environ["SLURM_NTASKS"]))
model = DDP(torch.nn.Linear(2, 2).to("cuda:0"), device_ids=[0])
for batch in range(3):
    model(batch).sum().backward()
"""
# A GPU by number for calls that pass none.
DEFAULT_DEVICE = """\
import torch
def evaluate(model, device=None):
    if device is None:
        device = torch.device("cuda:0")
    model.to(device)
device = choose()
model = torch.nn.Linear(2, 2).to(device)
for batch in range(3):
    model(batch).sum().backward()
    optimizer.step()
evaluate(model{})
"""
# Without Slurm, spawn starts the ranks.
BY_SRUN_OR_SPAWN = """\
import os, torch
import torch.distributed as dist
def train(rank, world):
    if "SLURM_PROCID" in os.environ:
        rank = int(os.environ["SLURM_PROCID"])
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for batch in range(3):
        model(batch).sum().backward()
def main():
    if "SLURM_PROCID" in os.environ:
        rank = int(os.environ["SLURM_PROCID"])
        train(rank, 2)
    else:
        torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
main()
"""
UPDATES = """\
import torch
def update(model, batch):
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
{}update(model, 1)
{}update(model, 2)
"""
# The GPU is selected by what comes after the move.
TO_CUDA = """\
import torch
from transformers import Trainer, TrainingArguments
model = torch.nn.Linear(2, 2){}
arguments = TrainingArguments("out")
Trainer(model, arguments).train()
"""
SET_LATER = """\
import os, torch
from torch.nn.parallel import DistributedDataParallel as DDP
def main():
    global model
    model = torch.nn.Linear(2, 2).cuda()
    rank = set_up()
    DDP(model)(1).sum().backward()
def set_up():
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
main()
"""
# The __call__ of an object moves the model.
MOVED_BY_OBJECT = (
    SET_LATER.replace("    global model\n", "")
    .replace("    model = torch.nn.Linear(2, 2).cuda()\n", "    model = Mover()(2)\n")
    .replace(
        "def set_up",
        """\
class Mover:
    def __call__(self, size):
        return torch.nn.Linear(size, size).cuda()
def set_up""",
    )
)
# The trained model is loaded again on all GPUs, to merge it.
TRAINED_THEN_LOADED = """\
from transformers import AutoModelForCausalLM, Trainer
def fit(trainer):
    trainer.train()
def merge():
    return AutoModelForCausalLM.from_pretrained("out", device_map="auto")
model = AutoModelForCausalLM.from_pretrained("base")
trainer = Trainer(model)
trainer.train()
large = AutoModelForCausalLM.from_pretrained("out", device_map="auto")
"""
# Its function has another name for the loss.
NAMED_INSIDE = """\
import torch
def losses(out):
    whole = out.sum()
    return whole, out.mean()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
for batch in range(3):
    loss, mean = losses(model(batch))
    loss.backward()
    optimizer.step()
"""
# The first gradients are only looked at.
LOOKS_FIRST = """\
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
def norm(batch):
    value = model(batch).sum()
    value.backward()
    return model.weight.grad.norm()
for epoch in range(3):
    for batch in range(3):
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
    print(norm(0))
"""
# With apex, another object has the gradients.
SCALED = """\
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
for batch in range(3):
    loss = model(batch).sum()
    if half:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""
MEASURES = """\
import time, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
for size in (1, 2):
    begin = time.perf_counter()
    for step in range(10):
        model(torch.ones(size, 2)).sum().backward()
        optimizer.step()
    print(size, time.perf_counter() - begin)
"""
EACH = "for batch in range(3):\n    "
# A model all of whose parameters are used, and three ways to have DDP look for unused ones.
_NET = """\
import torch, transformers
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)
    def forward(self, x):
        return self.body(x)
model = {}
"""
UNUSED = (
    _NET + "from accelerate import Accelerator, DistributedDataParallelKwargs\n"
    "accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters={})])\n"
    "model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters()))\n",
    _NET + "arguments = transformers.TrainingArguments('out', ddp_find_unused_parameters={})\n"
    "transformers.Trainer(model, arguments).train()\n",
    _NET + "model = nn.parallel.DistributedDataParallel(model.cuda(), find_unused_parameters={})\n",
)

BY_MPI = """import os, torch
torch.distributed.init_process_group("nccl", "tcp://{}:1234", rank=int(os.environ["OMPI_COMM_WORLD_RANK"]))
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))(1).sum().backward()
"""

CASES = (
    *(informs("script_rank_from_slurm", "only srun can start the ranks", command, script=read(BY_SRUN.format(gpu)))
        for gpu, command in (("gpu", "srun --ntasks=2 --gpus-per-task=1 python train.py"),
            ("rank % 4", "srun --ntasks-per-node=2 --gpus-per-node=2 python train.py"))),
    informs("script_rank_from_slurm", "only srun can start the ranks", "srun", at=(6, 9), script=read(
        BY_SRUN_OR_SPAWN.replace('"nccl")', '"nccl", rank=rank, world_size=world)'))),
    *(well("script_rank_from_slurm", "not come from Slurm alone", script=read(text)) for text in (
        BY_SRUN.format("gpu").replace('int(os.environ["SLURM_PROCID"])',
            'int(os.environ.get("SLURM_PROCID", os.environ.get("RANK", 0)))'),
        BY_SRUN.format("gpu").replace("SLURM_PROCID", "RANK"),
        BY_SRUN_OR_SPAWN,
        BY_SRUN.format("gpu").replace(
            "rank, gpu =", "gpu, rank = 0, args.local_rank\nif 'SLURM_PROCID' in os.environ:\n    rank, gpu ="))),
    *(well(check, "", script=read(BY_SRUN.format("gpu")))
        for check in ("script_wraps_on_fixed_device", "script_device_fixed")),
    *(warns(check, "", "LOCAL_RANK", script=read(BY_SRUN.format(gpu).replace("SLURM_PROCID", name)))
        for check in ("script_wraps_on_fixed_device", "script_device_fixed")
        for gpu, name in (("rank % 4", "SLURM_PROCID"), ("gpu", "RANK"))),
    *(warns("script_trains_alone", "every rank would train the same thing", "prepare", script=read(
        UPDATES.format(*loops)), at=(4, 5)) for loops in ((EACH, EACH), (EACH, ""))),
    well("script_trains_alone", "no visible training loop", script=read(UPDATES.format("", ""))),
    *(informs("script_looks_for_unused_parameters", "find_unused_parameters=True", "Omit", script=read(
        text.format("Net()", "True"))) for text in UNUSED),
    *(well("script_looks_for_unused_parameters", "", script=read(text.format("Net()", "False"))) for text in UNUSED),
    *(well("script_looks_for_unused_parameters", "may be unused", script=read(text.format("Net()", "True") + freezes))
        for text in UNUSED for freezes in (
            "model.body.requires_grad_(False)\n", "for one in model.parameters():\n    one.requires_grad = False\n")),
    *(well("script_looks_for_unused_parameters", "may be unused", script=read(text.format(made, "True")))
        for text in UNUSED for made in (
            "transformers.BertModel.from_pretrained('base')", "make_model()", "torch.hub.load('a', 'b')")),
    well("script_looks_for_unused_parameters", "may be unused", script=read(
        "import lightning as L\nL.Trainer(strategy='ddp_find_unused_parameters_true').fit(model)\n")),
    well("script_uses_data_parallel", "", script=read(ALL_GPUS)),  # without the option
    well("script_uses_data_parallel", "", script=read(
        ALL_GPUS.replace("all-gpus", "data-parallel").replace("all_gpus", "data_parallel"))),
    warns("script_uses_data_parallel", "DataParallel uses all GPUs", "prepare", script=replace(
        read(ALL_GPUS), command_known=True, arguments=("--all-gpus",))),
    warns("script_uses_data_parallel", "DataParallel uses all GPUs", "prepare", script=read(
        ALL_GPUS.replace("if args.all_gpus", "if torch.cuda.device_count() > 2"))),
    warns("script_does_not_compile", "line 7: invalid syntax", "Correct the line",
        script=script(error="invalid syntax", error_line=7)),
    warns("script_does_not_compile", "it is larger than 1 MiB", "Correct the file",
        script=script(error="it is larger than 1 MiB")),
    well("script_does_not_compile", "11 lines, 1 file", script=replace(good("group-group-never-ended"), lines=11)),
    warns("script_folder_hides_module", "json.py and accelerate/ shadow the modules", "mv /work/run/json.py",
        script=script(shadowed={"json": "/work/run/json.py", "accelerate": "/work/run/accelerate"})),
    well("script_folder_hides_module", "no file or folder next to the script", script=script()),
    warns("script_trains_alone", "every rank would train the same thing", "accelerator.prepare", at=(11, 9),
        script=bad("launching-one-gpu-only")),
    well("script_trains_alone", "the script uses accelerate", script=good("launching-one-gpu-only")),
    skips("script_trains_alone", "not known", script=read(
        "import engine\nfor batch in []:\n    engine.wrap(batch).backward()\n    engine.step()\n")),
    skips("script_trains_alone", "nothing in this script trains", script=read(STEPS)),
    skips("script_trains_alone", "not known", script=read(
        STEPS.replace("total.backward()", "accelerator.backward(total)") + "\n\nteach(None, None, [])\n")),
    warns("script_trains_alone", "line 7: every rank", "accelerator.backward(total)",
        script=read(STEPS + "\n\nteach(None, None, [])\n")),
    warns("script_trains_alone", "line 7: every rank", "mgpu launch --gpus 1",
        script=read(STEPS + "\n\nif __name__ == '__main__':\n    {'teach': teach}['teach'](None, None, [])\n")),
    *(warns("script_trains_alone", "every rank would train", line, script=read(
        UPDATES.format(EACH, EACH).replace("loss", name, 1).replace("loss.backward", text)))
        for name, text, line in (
            ("total", "total.backward", "accelerator.backward(total)"),
            ("parts", "parts[0].backward", "accelerator.backward(loss)"),
            ("out", "out.loss.backward", "accelerator.backward(out.loss)"))),
    warns("script_trains_alone", "every rank would train", "accelerator.backward(loss)", script=read(NAMED_INSIDE)),
    warns("script_trains_alone", "every rank would train", "accelerator.backward(loss)", at=(11, 9),
        script=read(LOOKS_FIRST)),
    warns("script_trains_alone", "every rank would train", "accelerator.backward(loss)", at=(10, 9),
        script=read(SCALED)),
    warns("script_trains_alone", "every rank would train", "python train.py", script=bad("wrapping-data-parallel")),
    well("script_trains_alone", "measures memory or speed", script=replace(read(MEASURES), path="bench.py")),
    *(warns("script_trains_alone", "every rank would train", "prepare", script=replace(read(text), path=path))
        for text, path in (
            (MEASURES, "train.py"), (MEASURES + "torch.save(model.state_dict(), 'x')\n", "bench.py"),
            (MEASURES.replace("range(", "range(epochs * "), "bench.py"),
            (MEASURES.replace("perf_counter", "sleep"), "bench.py"))),
    warns("script_expects_local_rank_argument", "--local_rank is not passed by torchrun", "LOCAL_RANK", at=(7, 1),
        script=bad("launching-the-old-launcher's-argument")),
    warns("script_expects_local_rank_argument", "--local_rank is not passed by torchrun", "flags.DEFINE_integer(",
        at=(4, 1), script=read(OF_ABSL)),
    warns("script_expects_local_rank_argument", "--local-rank is not passed by torchrun", "LOCAL_RANK",
        script=read(KEPT_RANK)),
    *(warns("script_expects_local_rank_argument", "--local-rank is not passed by torchrun", line,
        script=read(KEPT_RANK.replace("type=int)", f"type=int{given})")))
        for given, line in (
            (", default=-1", "default=int(os.environ.get('LOCAL_RANK', -1)))"),
            (", default=0", "default=int(os.environ.get('LOCAL_RANK', 0)))"),
            (", default=NONE", "default=int(os.environ.get('LOCAL_RANK', NONE)))"),
            (", default=1 - 1", "default=int(os.environ.get('LOCAL_RANK', 0)))"),
            ("", "type=int, default=os.environ.get('LOCAL_RANK'))"))),
    warns("script_expects_local_rank_argument", "--local_rank is not passed by torchrun",
        "int(os.environ.get('LOCAL_RANK', -1))", script=read(OF_ABSL.replace('", 0,', '", -1,'))),
    well("script_expects_local_rank_argument", "read from the environment",
        script=read(KEPT_RANK.replace("args.local_rank\n", "int(os.environ['LOCAL_RANK'])\n"))),
    well("script_expects_local_rank_argument", "read from the environment",
        script=good("launching-the-old-launcher's-argument")),
    warns("script_spawns_without_main_guard", "spawned at the top level", "__main__",
        script=bad("launching-spawned-at-the-top-level")),
    well("script_spawns_without_main_guard", "under if __name__", script=good("launching-spawned-at-the-top-level")),
    warns("script_device_fixed", "'cuda:0' is the same GPU on every rank", "accelerator.device", at=(4, 10),
        script=bad("devices-every-rank-on-cuda-0")),
    well("script_device_fixed", "no GPU is named", script=good("devices-every-rank-on-cuda-0")),
    well("script_device_fixed", "no visible training", script=script()),
    *(well("script_device_fixed", "no GPU is named", script=read(DEFAULT_DEVICE.format(given)))
        for given in (", device", ", device=device")),
    *(warns("script_device_fixed", "'cuda:0' is the same GPU on every rank", "LOCAL_RANK", at=(4, 18),
        script=read(text)) for text in (
            DEFAULT_DEVICE.format(""), DEFAULT_DEVICE.format(", device") + "evaluate(model)\n",
            DEFAULT_DEVICE.format(", device").replace("choose()", "None"))),
    warns("script_device_not_set", '"cuda" is GPU 0 on every rank', "torch.cuda.set_device(int(os.environ",
        script=bad("devices-current-device-never-chosen")),
    *(warns("script_device_not_set", "its GPU is selected later, in line", "torch.cuda.set_device(int(os.environ",
        at=at, script=read(text)) for text, at in (
            (TO_CUDA.format('.to("cuda")'), (3, 9)), (TO_CUDA.format('.to(torch.device("cuda"))'), (3, 9)),
            (TO_CUDA.format(".cuda()"), (3, 9)), (SET_LATER, (5, 13)), (MOVED_BY_OBJECT, (9, 16)))),
    *(well("script_device_not_set", "", script=read(text)) for text in (
        TO_CUDA.format('.to("cpu")'), TO_CUDA.format("") + 'model.to("cuda")\n', TO_CUDA.format(".to(device)"),
        *(text.replace("    rank = set_up()\n", "").replace("    model =", "    rank = set_up()\n    model =")
            for text in (SET_LATER, MOVED_BY_OBJECT)))),
    well("script_device_not_set", "selected in line 7", script=good("devices-current-device-never-chosen")),
    informs("script_device_by_global_rank", "selected by the global rank", "LOCAL_RANK",
        script=bad("devices-gpu-by-the-global-rank")),
    well("script_device_by_global_rank", "no GPU is selected", script=good("devices-gpu-by-the-global-rank")),
    warns("script_wraps_on_fixed_device", "device_ids=[0] on every rank", "LOCAL_RANK",
        script=bad("devices-the-same-device-ids-everywhere")),
    well("script_wraps_on_fixed_device", "not fixed", script=good("devices-the-same-device-ids-everywhere")),
    warns("script_spreads_model_on_every_rank", 'device_map="auto" spreads', "device_map={'': int(",
        script=bad("devices-a-model-spread-over-all-gpus")),
    well("script_spreads_model_on_every_rank", "no model is spread",
        script=good("devices-a-model-spread-over-all-gpus")),
    *(well("script_spreads_model_on_every_rank", "no model is spread", script=read(text)) for text in (
        TRAINED_THEN_LOADED, TRAINED_THEN_LOADED.replace(")\ntrainer.train()", ")\nfit(trainer)"),
        TRAINED_THEN_LOADED + "merge()\n")),
    *(warns("script_spreads_model_on_every_rank", 'device_map="auto" spreads', "device_map={'': int(",
        script=read(text)) for text in (
            TRAINED_THEN_LOADED.replace(")\ntrainer.train()\n", ")\n") + "trainer.train()\n",
            TRAINED_THEN_LOADED.replace("\nlarge = ", "\nfor name in (1, 2):\n    trainer.train()\n    large = "))),
    warns("script_sets_visible_devices", "set to 0,1 in every rank", "mgpu launch --gpus 0,1",
        script=bad("devices-visible-devices-of-the-author's-machine")),
    warns("script_sets_visible_devices", "set to 2 in every rank", "mgpu launch --gpus 2, ...",
        script=read(SETS_VISIBLE.format("2"))),
    warns("script_sets_visible_devices", "set to 2,3 in every rank", "mgpu launch --gpus 2,3 ...",
        script=read(SETS_VISIBLE.format("2,3"))),
    well("script_sets_visible_devices", "no launcher starts the script", script=read(STARTS_ITS_RANKS)),
    well("script_sets_visible_devices", "the script does not change the visible GPUs",
        script=good("devices-visible-devices-of-the-author's-machine")),
    warns("script_starts_its_own_ranks", "spawn starts the ranks itself", "python train.py",
        script=bad("group-its-own-ranks")),
    well("script_starts_its_own_ranks", "the launcher starts the ranks", script=good("group-its-own-ranks")),
    warns("script_meeting_point_fixed", "init_method is fixed: tcp://127.0.0.1:23456", 'init_process_group("gloo")',
        at=(5, 1), script=bad("group-address-of-one-machine")),
    warns("script_meeting_point_fixed", "MASTER_ADDR is overwritten with localhost",
        "os.environ.setdefault('MASTER_ADDR'", script=bad("group-port-overwritten")),
    well("script_meeting_point_fixed", "the launcher sets the rendezvous address",
        script=good("group-port-overwritten")),
    well("script_meeting_point_fixed", "run.sh line 3 gives the launcher the same port", script=replace(
        bad("group-port-overwritten"),
        starts=(ScriptStart(3, file="run.sh", launcher="torchrun", options=("--master_port=12355",)),))),
    warns("script_meeting_point_fixed", "MASTER_ADDR is overwritten", "setdefault", script=replace(
        bad("group-port-overwritten"),
        starts=(ScriptStart(3, file="run.sh", launcher="torchrun", options=("--master_port", "29501")),))),
    well("script_meeting_point_fixed", "the deepspeed launcher has no store", script=replace(
        bad("group-port-overwritten"), starts=(ScriptStart(3, file="run.sh", launcher="deepspeed"),))),
    well("script_meeting_point_fixed", "starts its ranks itself", script=bad("group-its-own-ranks")),
    informs("script_requires_port", "only a launcher with port 12355", "torchrun --master_port=12355", script=replace(
        bad("group-port-overwritten"),
        starts=(ScriptStart(3, file="run.sh", launcher="torchrun", options=("--master_port=12355",)),))),
    well("script_requires_port", "does not overwrite the port", script=bad("group-port-overwritten")),
    well("script_requires_port", "no launcher with a store", script=bad("group-its-own-ranks")),
    well("script_meeting_point_fixed", "srun and mpirun have no store",
        script=bad("rendezvous-localhost-with-ranks-of-srun")),
    warns("script_meeting_point_fixed", "MASTER_PORT is overwritten with random.randint()", "The launcher sets",
        script=bad("rendezvous-a-random-port-on-each-rank")),
    informs("script_rendezvous_on_own_node", "the rendezvous address is localhost", "scontrol show hostnames",
        script=bad("rendezvous-localhost-with-ranks-of-srun")),
    informs("script_rendezvous_on_own_node", "line 2: the rendezvous address is localhost", "mpirun -x MASTER_ADDR",
        script=read(BY_MPI.format("127.0.0.1"))),
    well("script_rendezvous_on_own_node", "not localhost", script=read(BY_MPI.format("10.0.0.1"))),
    well("script_rendezvous_on_own_node", "a store of its own", script=bad("group-port-overwritten")),
    informs("script_device_by_global_rank", "selected by the global rank", "SLURM_LOCALID",
        script=bad("rendezvous-localhost-with-ranks-of-srun")),
    informs("script_group_not_ended", "started here but never destroyed", "destroy_process_group()",
        script=bad("group-group-never-ended")),
    well("script_group_not_ended", "destroyed in line", script=good("group-group-never-ended")),
    warns("script_uses_data_parallel", "uses all GPUs from each rank", "accelerator.prepare",
        script=bad("wrapping-data-parallel")),
    well("script_uses_data_parallel", "no model is wrapped", script=good("wrapping-data-parallel")),
    informs("script_looks_for_unused_parameters", "find_unused_parameters=True", "Omit",
        script=bad("wrapping-unused-parameters-looked-for")),
    well("script_looks_for_unused_parameters", "find_unused_parameters is not set",
        script=good("wrapping-unused-parameters-looked-for")),
    warns("script_starts_its_own_ranks", "line 7: run() starts a launcher itself", "python train.py",
        script=bad("launching-launcher-started-by-the-script")),
    well("script_starts_its_own_ranks", "the launcher starts", script=good("launching-launcher-started-by-the-script")),
    warns("script_variable_misspelt", "CUDA_VISIABLE_DEVICES has no effect", "CUDA_VISIBLE_DEVICES",
        at=(3, 1), script=bad("launching-misspelled-variable")),
    warns("script_variable_misspelt", "NCCL_SOCKET_IFNAM has no effect", "NCCL_SOCKET_IFNAME",
        script=read("import os\nos.environ.setdefault('NCCL_SOCKET_IFNAM', 'eth0')\n")),
    well("script_variable_misspelt", "1 environment variable set", script=good("launching-misspelled-variable")),
    well("script_variable_misspelt", "1 environment variable set",
        script=read("import os\nos.environ['HIP_VISIBLE_DEVICES'] = '0'\n")),
    warns("script_cuda_in_worker", "line 13: Numbers.__getitem__ uses the GPU", "batch.to(device",
        script=bad("data-dataset-that-moves-samples-to-the-GPU")),
    well("script_cuda_in_worker", "no dataset visibly", script=good("data-dataset-that-moves-samples-to-the-GPU")),
    well("script_cuda_in_worker", "how worker processes start", script=read(IN_WORKER.format("2", SPAWNED))),
    well("script_cuda_in_worker", "no DataLoader with", script=read(IN_WORKER.format("0", ""))),
    warns("script_cuda_in_worker", "line 4: collate uses the GPU", "batch.to",
        script=read(IN_WORKER.format("args.j", ""))),
    warns("script_fsdp2_prepared_apart", "optimizer is prepared without model", "prepare(model, optimizer)", at=(6, 13),
        script=read(APART.format("model", "optimizer")), config=FSDP2),
    well("script_fsdp2_prepared_apart", "none of an optimizer without its model",
        script=read(APART.format("model, optimizer", "loader")), config=FSDP2),
    well("script_fsdp2_prepared_apart", "does not enable FSDP 2", script=read(APART.format("model", "optimizer"))),
    well("script_fsdp2_prepared_apart", "not visible", script=read(APART.format("*all", "optimizer")), config=FSDP2),
    warns("script_fsdp2_plugin_prepared_apart", "optimizer is prepared without model", "prepare(model, optimizer)",
        at=(7, 13), script=read(PLUGIN.format(2, "model", "optimizer"))),
    well("script_fsdp2_plugin_prepared_apart", "none of an optimizer without its model",
        script=read(PLUGIN.format(2, "model, optimizer", "loader"))),
    well("script_fsdp2_plugin_prepared_apart", "does not enable FSDP 2 itself",
        script=read(PLUGIN.format(1, "model", "optimizer"))),
    well("script_fsdp2_plugin_prepared_apart", "not visible", script=read(PLUGIN.format(2, "*all", "optimizer"))),
    warns("script_batch_not_divisible", "batch_size=6 is not a multiple of 4 ranks", "such as 8",
        script=read(SPLITS.format(6)), config=FOUR),
    well("script_batch_not_divisible", "1 prepared DataLoader", script=read(SPLITS.format(8)), config=FOUR),
    well("script_batch_not_divisible", "whole batches",
        script=read(SPLITS.format(6).replace("True", "False")), config=FOUR),
    skips("script_does_not_compile", "may be valid in 3.12: run mgpu with",
        script=Script("train.py", error="invalid syntax", error_line=3, python="3.11", newer_python="3.12")),
    informs("script_batch_norm_not_synced", "over 4 samples", "convert_sync_batchnorm(model)",
        script=bad("wrapping-small-batches-in-a-model-of-torchvision")),
    informs("script_batch_norm_not_synced", "over 2 samples", "convert_sync_batchnorm(model)",
        script=bad("wrapping-small-batches-normalised")),
    well("script_batch_norm_not_synced", "synchronized", script=good("wrapping-small-batches-normalised")),
    warns("script_precision_contradicts_config", "mixed_precision='fp16', but the config sets bf16", "mgpu smoke-test",
        script=read(FP16)),
    warns("script_precision_contradicts_config", "--fp16, but the config sets bf16", "its arguments",
        script=script(arguments=("--fp16",))),
    warns("script_precision_contradicts_config", "--mixed_precision fp16, but", "its arguments",
        script=script(arguments=("--mixed_precision", "fp16"))),
    warns("script_precision_contradicts_config", "bf16=True, but the config sets fp16", "the script",
        script=TRAINER, config=config(YAML.replace("bf16", "fp16"))),
    well("script_precision_contradicts_config", "the script does not set the precision",
        script=script(arguments=("--fp16", "False"))),
    *(well("script_precision_contradicts_config", "the script does not set the precision",
        script=read(text)) for text in NOT_HERE),
    warns("script_precision_contradicts_config", "mixed_precision='no', but the config sets bf16", "the script",
        script=read(NOT_HERE[0].replace("if args.cpu:", "if world_size > 1:").replace("cpu=True, ", ""))),
    well("script_precision_contradicts_config", "--bf16, same as the config", script=script(arguments=("--bf16",))),
    warns("script_engine_contradicts_config", "--deepspeed, but the config sets distributed_type: MULTI_GPU",
        "distributed_type: DEEPSPEED", script=replace(TRAINER, arguments=("--deepspeed", "zero2.json"))),
    warns("script_engine_contradicts_config", "--fsdp, but the config sets distributed_type: DEEPSPEED",
        "distributed_type: FSDP", script=replace(TRAINER, arguments=("--fsdp=full_shard",)), config=ZERO),
    well("script_engine_contradicts_config", "does not set how the model is sharded",
        script=replace(TRAINER, arguments=("--deepspeed", "zero2.json")), config=ZERO),
    well("script_engine_contradicts_config", "does not set how the model is sharded", script=TRAINER),
    warns("script_accumulation_contradicts_config", "gradient_accumulation_steps=4, but the config sets 2", "in both",
        script=TRAINER, config=ZERO),
    warns("script_accumulation_contradicts_config", "--gradient_accumulation_steps 8, but the config sets 2", "in both",
        script=script(arguments=("--gradient_accumulation_steps", "8")), config=ZERO),
    well("script_accumulation_contradicts_config", "over 2 steps", script=script(), config=ZERO),
    well("script_accumulation_contradicts_config", "does not set gradient accumulation", script=TRAINER),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_further_lines_of_the_same_are_told_in_the_evidence() -> None:
    twice = read(
        "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
        "a = torch.zeros(2).to('cuda:0')\nb = torch.zeros(2).cuda(0)\naccelerator.backward(a + b)\n"
    )
    assert problem("script_device_fixed", script=twice).evidence["also in line"] == "5"
