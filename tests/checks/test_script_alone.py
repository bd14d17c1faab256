"""checks/script/alone.py and on_cpu.py"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bad_scripts import bad, good, read
from tests.checks.facts import Case, config, informs, no_driver, problem, skips, table, warns, well

OPTIONAL = bad("alone-several-ranks-only-with-an-option")
# Its accelerator is handed to a function that may prepare.
HANDED_ON = """\
from accelerate import Accelerator
from trainer import fit, wrap
accelerator = Accelerator()
model = wrap(accelerator)
for batch in range(3):
    accelerator.backward(model(batch))
"""
# A config names the class of its Trainer, and the arguments.
BY_CONFIG = """\
import hydra
from lightning import Trainer
trainer: Trainer = hydra.utils.instantiate(config)
trainer.fit(model, loader)
"""
# It trains in a function that several loops call, and averages nothing.
UPDATES = """\
import torch
{}
def update(batch):
    model(batch).sum().backward()
for step in range(10):
    update(step)
for step in range(20):
    update(step)
"""
# It prepares nothing, and does not even compute gradients through the accelerator.
PLAIN_BACKWARD = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
for step in range(10):
    model(torch.randn(8, 4)).sum().backward()
"""
# The group is started by hand.
GROUP = """\
import torch
import torch.distributed as dist
{}
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
model = {}
for step in range(10):
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""
# The average is computed by hand.
BY_HAND = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
for step in range(10):
    model(torch.randn(8, 4)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
"""
# What the option sets is replaced by what the launcher says.
REPLACED = """\
import argparse, os
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_true")
args = parser.parse_args()
args.distributed = int(os.environ["WORLD_SIZE"]) > 1
if args.distributed:
    dist.init_process_group("gloo")
"""
# Two options have names that can mean "several ranks"; the condition has one of them.
TWO_OPTIONS = """\
import argparse, torch
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--accelerator", action="store_true")
parser.add_argument("--ddp", action="store_true")
args = parser.parse_args()
accelerator = Accelerator() if args.accelerator else None
model = torch.nn.Linear(2, 2)
for batch in range(3):
    model(batch).sum().backward()
"""
BOTH_OPTIONS = TWO_OPTIONS.replace(
    "accelerator = Accelerator() if args.accelerator else None",
    "if args.ddp:\n    if args.accelerator:\n        accelerator = Accelerator()",
)
ANOTHER_NAME = TWO_OPTIONS.replace(
    "accelerator = Accelerator() if args.accelerator else None",
    "distributed = args.ddp\nif distributed:\n    accelerator = Accelerator()",
)
CUDA = "import torch\nmodel = torch.nn.Linear(4, 1)\nmodel.cuda()\n"
BARE = """\
import lightning as L
from model import Digits, loader
trainer = L.Trainer(max_epochs=1)
trainer.fit(Digits(), loader)
"""
LOOP = """\
import torch
model = torch.nn.Linear(4, 1)
for step in range(9):
    model(torch.ones(2, 4)).sum().backward()
"""
ON_CPU = config("use_cpu: true\nnum_processes: 2\ndistributed_type: MULTI_CPU\n")
PREPARES = "from accelerate import Accelerator\nacc = Accelerator()\n{}\nacc.backward(loss)\n"
CASES = (
    warns("script_nothing_prepared", "accelerator never prepares anything", "accelerator.prepare(", at=(4, 15),
        script=bad("alone-an-accelerator-that-prepares-nothing")),
    warns("script_nothing_prepared", "accelerator never prepares anything", "accelerator.prepare(",
        script=read(PLAIN_BACKWARD)),
    well("script_nothing_prepared", "something is prepared", script=good("alone-an-accelerator-that-prepares-nothing")),
    well("script_nothing_prepared", "no visible training loop", script=read(HANDED_ON)),
    warns("script_list_prepared", "prepare gets one list", "prepare(*objects)", at=(7, 20),
        script=bad("alone-a-list-that-is-prepared")),
    warns("script_list_prepared", "prepare gets one list", "prepare(*objects)", at=(4, 9),
        script=read("from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = Net()\n"
                    "x = y = accelerator.prepare((model, optimizer))\n")),
    well("script_list_prepared", "no list", script=good("alone-a-list-that-is-prepared")),
    well("script_list_prepared", "no list", script=read("from accelerate import Accelerator\n"
        "accelerator = Accelerator()\nmodel = accelerator.prepare((model))\nparts = accelerator.prepare(models[0])\n")),
    *(well("script_list_prepared", "no list", script=read(PREPARES.format(line))) for line in (
        "model = acc.prepare([model][0])", "model = acc.prepare((model or other)(a, b))",
        "def unused():\n    acc.prepare([model, optimizer])")),
    warns("script_list_prepared", "unprepared: every rank would train alone", "acc.prepare(*objects)",
        script=read(PREPARES.format("a = acc.prepare([model])"))),
    skips("script_list_prepared", "scripts that use ddp", script=bad("alone-a-group-and-no-wrapper")),
    skips("script_nothing_prepared", "scripts that use ddp", script=bad("alone-a-group-and-no-wrapper")),
    warns("script_group_without_wrapper", "nothing averages gradients", "DistributedDataParallel(model)",
        script=bad("alone-a-group-and-no-wrapper")),
    *(warns("script_group_without_wrapper", "nothing averages gradients", "DistributedDataParallel(model)",
        script=read(text)) for text in (
            GROUP.format("", "torch.nn.DataParallel(model)"),
            GROUP.format("from apex import amp", "model\namp.initialize(model, optimizer)\ntorch.cuda.synchronize()"),
            GROUP.format("import fairseq.search, helpers", "model\nhelpers.show(1)"))),
    *(well("script_group_without_wrapper", "", script=read(GROUP.format("import helpers", text)))
        for text in ("helpers.wrap(model)", "model\nhelpers.average(optimizer)")),
    well("script_group_without_wrapper", "the model is wrapped", script=good("alone-a-group-and-no-wrapper")),
    well("script_group_without_wrapper", "exchanges data itself", script=read(BY_HAND)),
    warns("script_distributed_by_option", "only with --distributed, which is not given",
        "mgpu launch train.py --distributed", script=replace(OPTIONAL, command_known=True)),
    well("script_distributed_by_option", "the command line is not known", script=OPTIONAL),
    informs("script_needs_option", "without --distributed, the ranks are not connected",
        "mgpu launch train.py --distributed", script=OPTIONAL),
    informs("script_needs_option", "without --accelerator, the ranks", "mgpu launch train.py --accelerator",
        script=read(TWO_OPTIONS)),  # the option that means several ranks as well is not the condition
    informs("script_needs_option", "without --accelerator or --ddp", "mgpu launch train.py --accelerator --ddp",
        script=read(BOTH_OPTIONS)),
    informs("script_needs_option", "without --ddp, the ranks", "mgpu launch train.py --ddp", script=read(ANOTHER_NAME)),
    well("script_needs_option", "the command line is known", script=replace(OPTIONAL, command_known=True)),
    well("script_needs_option", "no option is needed", script=read(REPLACED)),
    warns("script_distributed_by_option", "only with --accelerator and --ddp, which are not given", "Add the options",
        script=replace(read(BOTH_OPTIONS), command_known=True)),
    warns("script_distributed_by_option", "--accelerator and --ddp, and --ddp is not given", "Add the option.",
        script=replace(read(BOTH_OPTIONS), command_known=True, arguments=("--accelerator",))),
    well("script_distributed_by_option", "--accelerator: given",
        script=replace(read(TWO_OPTIONS), command_known=True, arguments=("--accelerator",))),
    well("script_distributed_by_option", "--distributed: given",
        script=replace(OPTIONAL, command_known=True, arguments=("--distributed",))),
    well("script_distributed_by_option", "without an option", script=read(REPLACED)),
    warns("script_lightning_on_one_device", "one device (devices=1)", 'strategy="ddp"',
        script=bad("alone-lightning-on-one-device")),
    warns("script_lightning_on_one_device", "one device (gpus=1)", "gpus=-1",
        script=bad("alone-an-older-lightning-on-one-device")),
    warns("script_lightning_on_one_device", "the default on the CPU", 'strategy="ddp", devices=2',
        script=bad("alone-lightning-on-the-processor")),
    well("script_lightning_on_one_device", "no Trainer is limited", script=good("alone-lightning-on-one-device")),
    well("script_lightning_on_one_device", "no Trainer is created in the code", script=read(BY_CONFIG)),
    well("script_lightning_default_on_cpu", "no Trainer is created in the code", script=read(BY_CONFIG),
        config=ON_CPU, driver=no_driver()),
    warns("script_group_without_wrapper", "nothing averages gradients", "DistributedDataParallel", script=read(
        UPDATES.format("torch.distributed.init_process_group('gloo')"))),
    warns("script_nothing_prepared", "never prepares anything", "prepare", script=read(
        UPDATES.format("from accelerate import Accelerator\naccelerator = Accelerator()"))),
    warns("script_lightning_default_on_cpu", "line 3: Lightning trains on one device", "devices=2", at=(3, 11),
        script=read(BARE), config=ON_CPU, driver=no_driver()),
    well("script_lightning_default_on_cpu", "there are GPUs", script=read(BARE)),
    well("script_lightning_default_on_cpu", "one rank", script=read(BARE), driver=no_driver(),
        config=config("use_cpu: true\nnum_processes: 1\ndistributed_type: 'NO'\n")),
    well("script_lightning_default_on_cpu", "the Trainer has a strategy", config=ON_CPU, driver=no_driver(),
        script=read(BARE.replace("max_epochs=1", "strategy='ddp', devices=2"))),
    well("script_lightning_default_on_cpu", "no visible training", config=ON_CPU, driver=no_driver(),
        script=read(BARE.replace("trainer.fit(Digits(), loader)", "print(trainer)"))),
    skips("script_lightning_default_on_cpu", "scripts that use ddp", config=ON_CPU, driver=no_driver(),
        script=bad("alone-a-group-and-no-wrapper")),
    warns("script_code_not_read", "line 1: exec runs code that mgpu did not read", "import it",
        script=read("exec(open('real.py').read())\n")),
    warns("script_code_not_read", "line 2: runpy.run_path runs code", "import it",
        script=read("import runpy\nrunpy.run_path('real.py')\n")),
    well("script_code_not_read", "no exec", script=read(CUDA)),
    well("script_code_not_read", "in code that was read", script=read(f"exec(open('settings.py').read())\n{LOOP}")),
    warns("script_needs_cuda_on_cpu_ranks", "line 3: cuda needs a GPU, but the ranks run on the CPU", "is_available()",
        script=read(CUDA), config=ON_CPU),
    warns("script_needs_cuda_on_cpu_ranks", "line 3: to needs a GPU", "machine with GPUs",
        script=read(CUDA.replace("cuda()", "to('cuda:0')")), driver=no_driver()),
    warns("script_needs_cuda_on_cpu_ranks", "line 2: NCCL needs a GPU", 'else "gloo"',
        script=read("import torch.distributed as dist\ndist.init_process_group('nccl')\n"), config=ON_CPU),
    well("script_needs_cuda_on_cpu_ranks", "no visible line", config=ON_CPU,
        script=read(CUDA.replace(".cuda()", ".to('cuda' if torch.cuda.is_available() else 'cpu')"))),
    well("script_needs_cuda_on_cpu_ranks", "no visible line", config=ON_CPU,
        script=read(CUDA.replace("model.cuda()", "if torch.cuda.is_available():\n    model.cuda()"))),
    well("script_needs_cuda_on_cpu_ranks", "the ranks run on GPUs", script=read(CUDA)),
    warns("script_trains_unwrapped_model", "the model that unwrap_model returned", "output = model(batch)",
        script=bad("alone-the-unwrapped-model-is-trained")),
    well("script_trains_unwrapped_model", "no training loop", script=good("alone-the-unwrapped-model-is-trained")),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    "line",
    [
        "model = model.cuda() if torch.cuda.is_available() else model",
        "args.cuda and model.cuda()",
        "torch.load('last.pt', map_location=lambda storage, _: storage.cuda())",
        "try:\n    model.cuda()\nexcept Exception:\n    pass",
        "def unused():\n    model.cuda()",
        "if args.resume:\n    model.cuda()",
        "USE_GPU = False\nif USE_GPU:\n    model.cuda()",
    ],
)
def test_a_line_that_not_every_run_executes_needs_no_gpu(line: str) -> None:
    case = CUDA.replace("model.cuda()", line)
    assert case != CUDA
    well("script_needs_cuda_on_cpu_ranks", "no visible line", config=ON_CPU, script=read(case)).verify()


def test_a_list_beside_what_is_prepared() -> None:
    text = "model, optimizer = acc.prepare(model, optimizer)\nacc.prepare([a, b])"
    assert problem("script_list_prepared", script=read(PREPARES.format(text))).title.endswith("it returns unprepared")
