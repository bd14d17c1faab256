"""What `mgpu doctor --script` reports besides the findings: how the script trains, and the command to start it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from mgpu import engine
from mgpu.config.reading import parse_config
from mgpu.doctor import script_report
from mgpu.readers.training_script import read as training_script_read
from mgpu.report.screen import Screen
from mgpu.snapshot import Config, Script, Snapshot
from tests.bad_scripts import read
from tests.conftest import CHECKS

BY_HAND = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
def fit(model):
    torch.distributed.init_process_group("nccl")
    model = DDP(model)
    for batch in range(3):
        model(batch).sum().backward()
"""
BY_SRUN = "import os\n" + BY_HAND.replace('"nccl"', '"nccl", rank=int(os.environ["SLURM_PROCID"])') + "fit(net)\n"
OWN_TRAINER = "from transformers import Trainer\nclass Own(Trainer):\n    pass\nOwn(model).train()\n"


def next_of(script: Script) -> list[str]:
    outcomes = [
        outcome
        for check in CHECKS.values()
        if check.facts == ("script",)
        for outcome in engine.run_check(check, Snapshot(script=script))
    ]
    return script_report.next_commands(script, outcomes)


def text_of(script: Script) -> str:
    found = script_report.lines(
        script, None, [], Screen(400, False, False, io.StringIO()), "mgpu doctor", verbose=False
    )
    return "\n".join("".join(one[0] for one in line) for line in found)


def test_a_script_whose_ranks_are_tasks_of_slurm_is_started_with_srun() -> None:
    assert next_of(read(BY_SRUN)) == ["srun --ntasks-per-node=2 --gpus-per-node=2 python train.py"]
    assert next_of(read(BY_SRUN.replace("SLURM_PROCID", "RANK"))) == ["mgpu launch train.py"]


@pytest.mark.parametrize(
    ("test", "shown"),
    [
        ("args.multiprocessing_distributed", []),
        ("args.setting == 'ddp'", []),
        ("'RANK' not in os.environ", ["mgpu launch train.py"]),
    ],
)
def test_no_launcher_is_named_where_an_option_makes_the_script_start_its_ranks(test: str, shown: list[str]) -> None:
    text = BY_HAND.replace("import torch\n", "import os, torch\nargs = parse()\n", 1).replace(
        '"nccl"', '"nccl", rank=args.rank or int(os.environ["RANK"])'
    )
    spawning = f"if {test}:\n    torch.multiprocessing.spawn(fit, nprocs=2)\nelse:\n    fit(net)\n"
    assert next_of(read(text + spawning)) == shown


def test_no_launcher_is_named_where_a_start_without_slurm_spawns() -> None:
    spawning = 'if "SLURM_PROCID" in os.environ:\n    fit(net)\nelse:\n    torch.multiprocessing.spawn(fit, nprocs=2)\n'
    assert next_of(read(BY_HAND.replace("import torch\n", "import os, torch\n", 1) + spawning)) == []
    assert next_of(read(BY_HAND + "fit(net)\n")) == ["mgpu launch train.py"]


def test_the_module_that_connects_the_ranks_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(BY_HAND)
    (tmp_path / "train.py").write_text("import loop\nloop.fit(net)\n")
    found = training_script_read.read(tmp_path / "train.py")
    assert "trains with torch.distributed directly, in loop.py. It was not run." in text_of(found)
    assert "trains with torch.distributed directly. It was not run." in text_of(read(BY_HAND + "fit(net)\n"))


def test_a_class_derived_from_a_trainer_trains() -> None:
    assert "No training step was found" not in text_of(read(OWN_TRAINER))
    assert "No training step was found" in text_of(read(OWN_TRAINER.replace("(Trainer)", "")))


def test_copies_of_a_script_that_does_not_train_are_of_no_use() -> None:
    assert next_of(read("import torch\nmodel.eval()\n")) == ["python train.py"]
    assert next_of(read("import tensorflow as tf\nmodel = tf.keras.Model()\n")) == ["python train.py"]
    assert next_of(read("import ray, torch\nray.init()\nloss.backward()\n")) == ["python train.py"]
    assert next_of(read(BY_HAND + "fit(net)\n")) == ["mgpu launch train.py"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("optimizer.step()", True),
        ("self.opt_1.step()", True),
        ("model.fit(data)", True),
        ("state = env.step(action)", False),
        ("scheduler.step()", False),
        ("from sklearn.svm import SVC\nSVC().fit(data)", False),
    ],
)
def test_what_is_a_step_of_the_training(text: str, shown: bool) -> None:
    assert ("No training step was found" not in text_of(read(f"import torch\n{text}\n"))) is shown


def test_a_trainer_of_lightning_made_of_arguments_is_lightning() -> None:
    made = "from {} import Trainer\ntrainer = Trainer.from_argparse_args(args)\ntrainer.fit(model, loader)\n"
    for package in ("pytorch_lightning", "lightning", "lightning.pytorch"):
        found = read(made.format(package))
        assert (found.speaks, found.unclear) == ("lightning", None), package
        assert next_of(found) == []
    assert read("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net, Data)\n").speaks == "lightning"


ONE_DEVICE = "with 1 each rank of a launcher trains alone"
OPTION = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--gpus', default={})\n"


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("Trainer(devices=config.num_gpus).fit(model)", False),
        ("Trainer(gpus=parser.parse_args().gpus).fit(model)", False),
        ("Trainer.from_argparse_args(args).fit(model)", False),
        ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net, Data)", False),
        ("from lightning.pytorch.cli import LightningCLI\nclass CLI(LightningCLI):\n    pass\nCLI(Net, Data)", False),
        ("Trainer().fit(model)", True),
        ("Trainer(devices=4).fit(model)", True),
        ("Trainer(devices='auto').fit(model)", True),
        ("import torch\nTrainer(devices=torch.cuda.device_count()).fit(model)", True),
    ],
)
def test_no_launcher_is_named_where_a_config_decides_how_many_devices_lightning_uses(text: str, certain: bool) -> None:
    found = read("from lightning.pytorch import Trainer\n" + OPTION.format(1) + text + "\n")
    assert found.speaks == "lightning"
    assert next_of(found) == (["mgpu launch train.py"] if certain else [])
    shown = " ".join(text_of(found).split())
    assert ("Next: no command is certain to work: " in shown and ONE_DEVICE in shown) is not certain


@pytest.mark.parametrize("default", ["-1", "'auto'"])
def test_an_option_whose_default_is_all_devices_is_no_doubt(default: str) -> None:
    text = "Trainer(devices=parser.parse_args().gpus).fit(model)\n"
    found = read("from lightning.pytorch import Trainer\n" + OPTION.format(default) + text)
    assert next_of(found) == ["mgpu launch train.py"]


BY_DEEPSPEED = """\
import argparse, deepspeed, os
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
{before}if args.local_rank != -1:
    deepspeed.init_distributed()
engine, *_ = deepspeed.initialize(args=args, model=net)
engine.backward(engine(x))
"""


def test_deepspeed_starts_a_script_that_gets_its_rank_as_an_option() -> None:
    assert next_of(read(BY_DEEPSPEED.format(before=""))) == ["mgpu launch -- deepspeed train.py"]
    from_environment = "args.local_rank = int(os.environ.get('LOCAL_RANK', -1))\n"
    assert next_of(read(BY_DEEPSPEED.format(before=from_environment))) == ["mgpu launch train.py"]
    always = BY_DEEPSPEED.replace("if args.local_rank != -1:", "if True:")
    assert next_of(read(always.format(before=""))) == ["mgpu launch train.py"]


def test_a_script_that_sets_the_port_is_started_with_that_port() -> None:
    port = "import os\nos.environ['MASTER_ADDR'] = '{}'\nos.environ['MASTER_PORT'] = '12355'\n"
    text = BY_HAND + "fit(net)\n"
    assert next_of(read(port.format("localhost") + text)) == ["mgpu launch --port 12355 train.py"]
    other = read(port.format("10.0.0.7") + text)
    assert next_of(other) == [] and "sets MASTER_ADDR to '10.0.0.7'" in text_of(other)
    unless = "import os\nif 'MASTER_PORT' not in os.environ:\n    os.environ['MASTER_PORT'] = '12355'\n"
    assert next_of(read(unless + text)) == ["mgpu launch train.py"]


def test_the_header_names_data_parallel_where_a_library_may_connect_the_ranks() -> None:
    text = "import torch, ignite.engine\nmodel = {}(torch.nn.Linear(2, 2))\nloss.backward()\noptimizer.step()\n"
    parallel = text_of(read(text.format("torch.nn.DataParallel")))
    assert "no multi-GPU framework found besides DataParallel. It was not run." in parallel
    assert "ignite, which was not read, can connect the ranks" in parallel
    assert "besides" not in text_of(read(text.format("")))


def test_a_script_of_another_library_is_not_copied_by_a_launcher() -> None:
    other = read("import tensorflow as tf\nimport engines\nengines.train(tf.keras.Model())\n")
    assert "uses TensorFlow, which mgpu does not examine" in text_of(other) and next_of(other) == ["python train.py"]
    both = read("import torch\nimport tensorflow as tf\nimport engines\nengines.train(tf.data.Dataset())\n")
    assert "no multi-GPU framework found" in text_of(both) and next_of(both) == ["mgpu smoke-test train.py"]


def test_a_finding_in_a_module_has_one_path(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "kit.py").write_text(BY_HAND)
    (tmp_path / "tools" / "train.py").write_text("import kit\nkit.fit(net)\n")
    found = replace(training_script_read.read(tmp_path / "tools" / "train.py"), path="tools/train.py")
    (outcome,) = engine.run_check(CHECKS["script_group_not_ended"], Snapshot(script=found))
    assert outcome.problem and outcome.problem.place and outcome.problem.place.file == "kit.py"
    assert outcome.problem.title.startswith("kit.py line 4: ")


def test_the_next_command_has_the_config_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mgpu launch refuses without a config, so the command that writes one comes first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MGPU_CONFIG", raising=False)
    script = read(BY_HAND.replace('"nccl"', '"nccl", rank=int(os.environ["RANK"])'))

    def steps(config: Config | None = None) -> list[str]:
        return script_report.next_steps(script, config, [])

    assert steps() == ["mgpu configure", "mgpu launch train.py"]
    assert text_of(script).endswith("\nNext:  mgpu configure\nthen   mgpu launch train.py")
    assert steps(parse_config(b"num_processes: 2", "two.yaml")) == ["mgpu launch -c two.yaml train.py"]
    Path("accelerate.yaml").write_text("num_processes: 2\n")
    assert steps() == steps(parse_config(b"num_processes: 2", "accelerate.yaml")) == ["mgpu launch train.py"]
