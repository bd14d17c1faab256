"""Does the fact `script` say what stands in a script, and does `mgpu doctor --script` tell it well?"""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from pathlib import Path

import pytest

from mgpu.errors import MgpuError
from mgpu.readers import launch_lines
from mgpu.readers.training_script import python_source
from mgpu.readers.training_script import read as probe
from mgpu.readers.training_script.names import Frame
from mgpu.snapshot import Script, ScriptCall, Snapshot, from_json, to_json
from tests.bad_scripts import read
from tests.conftest import Run

DDP = "torch.nn.parallel.DistributedDataParallel"
WHOLE = """\
import argparse, os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as Wrapped
from torch.utils.data import DataLoader

def setup():
    dist.init_process_group("nccl", init_method="env://")
    return dist.get_rank(), int(os.environ["LOCAL_RANK"])

def save(model, path):
    torch.save(model.module.state_dict(), path)

class Trainer:
    def __init__(self, model, rank):
        self.model = model
        self.main = rank == 0
    def fit(self, loader):
        for epoch in range(3):
            for batch in loader:
                with torch.autocast("cuda"):
                    loss = self.model(batch)
                loss.backward()
                if loss > 9:
                    break
            if self.main:
                save(self.model, "last.pt")

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", "-l", type=float, default=0.1)
    args = parser.parse_args()
    rank, local_rank = setup()
    model = Wrapped(torch.nn.Linear(2, 2).to("cuda:0"), device_ids=[local_rank])
    Trainer(model, rank).fit(DataLoader([1], batch_size=8))
    if rank != 0:
        return
    print("done", token="abcdef")

if __name__ == "__main__":
    main()
"""


def one(script: Script, name: str) -> ScriptCall:
    (found,) = [call for call in script.calls if call.name == name]
    return found


@pytest.fixture(scope="module")
def whole() -> Script:
    return read(WHOLE)


def test_a_name_is_what_was_imported_and_assigned(whole: Script) -> None:
    wrapped = one(whole, DDP)
    assert (wrapped.line, wrapped.column, wrapped.function) == (34, 13, "main")
    assert wrapped.arguments == ("torch.nn.Linear()",)
    assert wrapped.keywords == {"device_ids": "[local_rank]"}
    assert wrapped.targets == ("model",)
    # Through the parameters of Trainer.__init__, an attribute, and save's.
    assert one(whole, f"{DDP}().module.state_dict").line == 12
    assert one(whole, "torch.distributed.init_process_group").keywords == {"init_method": "'env://'"}


def test_loops_contexts_and_guards_are_those_of_the_callers_too(whole: Script) -> None:
    forward = one(whole, f"{DDP}()")
    assert [whole.loops[place].over for place in forward.loops] == ["range(3)", "loader"]
    assert whole.loops[forward.loops[1]].source == "torch.utils.data.DataLoader()"
    assert forward.within == ("torch.autocast",)
    assert one(whole, "torch.save").guards == ("main",)
    assert [whole.loops[place].target for place in one(whole, "torch.save").loops] == ["epoch"]
    assert one(whole, "print").guards == ("main",), "what follows `if rank != 0: return`"
    left, out = sorted(whole.jumps, key=lambda jump: jump.kind, reverse=True)
    assert (out.kind, out.conditions) == ("break", ("loss > 9",))
    assert (left.kind, left.guards, left.loops) == ("return", ("not_main",), ())


def test_the_rest_of_the_fact(whole: Script) -> None:
    assert (whole.speaks, whole.main_guard, whole.error, whole.lines) == ("ddp", True, None, 41)
    assert tuple(one.name for one in whole.functions) == ("setup", "save", "Trainer.__init__", "Trainer.fit", "main")
    (option,) = whole.options
    assert (option.names, option.default, option.type) == (("--lr", "-l"), "0.1", "float")
    assert [text.text for text in whole.texts] == ["env://", "cuda", "cuda:0"]
    assert one(whole, "print").keywords == {"token": "'***'"}, "secrets are masked"
    assert "abcdef" not in json.dumps(to_json(Snapshot(script=whole)))
    assert from_json(json.loads(json.dumps(to_json(Snapshot(script=whole))))).script == whole


GUARDS = {
    "if rank == 0:": ("main",),
    "if not rank:": ("main",),
    "if dist.get_rank() == 0:": ("main",),
    "if 0 == int(os.environ['RANK']):": ("main",),
    "if local_rank in [-1, 0]:": ("local_main",),
    "if args.rank % 8 == 0:": ("local_main",),
    "if accelerator.is_main_process:": ("main",),
    "if accelerator.is_local_main_process:": ("local_main",),
    "if trainer.is_world_process_zero():": ("main",),
    "if not args.distributed or rank == 0:": ("main",),
    "if rank == 0 and step % 10 == 0:": ("main",),
    "if rank == 0 or debug:": ("some",),
    "if rank == 3:": ("some",),
    "if rank != 0:": ("not_main",),
    "if rank:": ("not_main",),
    "if world_size > 1:": ("distributed",),
    "if torch.cuda.device_count() == 1:": ("single",),
    "if args.local_rank == -1:": ("single",),
    "if step % 10 == 0:": (),
    "if args.save_model:": (),
    "is_first = rank == 0\nif is_first:": ("main",),
    "def first():\n    return dist.get_rank() == 0\nif first():": ("main",),
    "if rank != 0:\n    pass\nelse:": ("main",),
}


@pytest.mark.parametrize("text", GUARDS)
def test_who_comes_past_a_condition(text: str) -> None:
    found = read(f"import os, torch\nimport torch.distributed as dist\n{text}\n    probe_here()\n")
    assert one(found, "probe_here").guards == GUARDS[text]


@pytest.mark.parametrize(
    ("text", "speaks"),
    [
        ("from accelerate import Accelerator\naccelerator = Accelerator()", "accelerate"),
        (
            "import accelerate, transformers\nstate = accelerate.PartialState()\ntransformers.Trainer(model).train()",
            "trainer",
        ),
        (
            "import accelerate, transformers as t\naccelerator = accelerate.Accelerator()\nm = accelerator.prepare(m)\n"
            "class Loss(t.Trainer): pass\nLoss()",
            "accelerate",
        ),
        ("import transformers\ntransformers.Trainer(model).train()", "trainer"),
        ("from trl import SFTTrainer\nclass Mine(SFTTrainer): pass\nMine(model).train()", "trainer"),
        ("import pytorch_lightning as pl\npl.Trainer().fit(model)", "lightning"),
        ("import lightning as L\nL.Trainer().fit(model)", "lightning"),
        ("import deepspeed\nengine, *_ = deepspeed.initialize(model=model)", "deepspeed"),
        ("import torch\ntorch.distributed.init_process_group()", "ddp"),
        ("import torch\nloss.backward()\noptimizer.step()", "nothing"),
        ("import torch, somebodys_engine\nloss.backward()\noptimizer.step()", None),
        ("print('hello')", None),
    ],
)
def test_what_makes_its_ranks_train_together(text: str, speaks: str | None) -> None:
    assert read(text + "\n").speaks == speaks


OWN_LOOP = """import torch
{imports}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
def train():
    for batch in batches:
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
{after}
"""


@pytest.mark.parametrize(
    ("imports", "before", "after"),
    [
        ("import peft, monai, easydict", "model = peft.get_peft_model(model)", "train()"),  # known libraries
        ("import helpers", "config = helpers.Config(lr=0.1)", "train()"),
        ("import helpers", "helpers.save(model.state_dict(), model_name)", "train()"),
        ("import helpers", "log = helpers.Log()", "rate = optimizer.param_groups[0]['lr']\nlog.add(rate)\ntrain()"),
        (
            "import helpers",
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, len)\nhelpers.log(schedule.get_last_lr()[0])",
            "schedule.step()\ntrain()",
        ),
        ("import helpers", "data = helpers.distances('a')\nhelpers.setup_logging()", "train()"),
        ("from helpers import DDPM", "ddpm = DDPM()", "train()"),
        ("from accelerate.utils import set_seed", "set_seed(1)", "train()"),
        ("import torch.distributed as dist", "several = dist.is_initialized()", "train()"),
        ("from cuda_kernels._C import distCUDA2", "near = distCUDA2(points)", "train()"),
        ("from apex import amp", "model, optimizer = amp.initialize(model, optimizer)", "train()"),
        ("import dgl.function, dgl.nn", "graph = dgl.graph(edges)", "train()"),
        ("import hydra", "", "@hydra.main(config_path='x')\ndef main(config):\n    train()\nmain()"),
    ],
)
def test_a_loop_of_its_own_that_no_unread_library_takes_part_in(imports: str, before: str, after: str) -> None:
    found = read(OWN_LOOP.format(imports=imports, before=before, after=after))
    assert (found.speaks, found.unclear) == ("nothing", None)


@pytest.mark.parametrize(
    ("imports", "before", "after", "why"),
    [
        ("import horovod.torch as hvd", "", "train()", "horovod, which was not read, can connect the ranks"),
        (
            "import engines",
            "model = engines.wrap(model)",
            "train()",
            "engines.wrap, which was not read, gets the model",
        ),
        (
            "import engines",
            "tool = engines.Tool()\ntool.attach(optimizer)",
            "train()",
            "gets the model or the optimizer",
        ),
        ("import engines", "engines.tune(optimizer.param_groups)", "train()", "gets the model or the optimizer"),
        ("import engines", "engines.tune(optimizer.param_groups[0])", "train()", "gets the model or the optimizer"),
        ("import engines", "engines.sum(optimizer.param_groups[0]['params'])", "train()", "gets the model or the"),
        ("import apex", "model = apex.parallel.DistributedDataParallel(model)", "train()", "apex, which was not read"),
        ("import dgl.distributed", "", "train()", "dgl, which was not read, can connect the ranks"),
        ("import dgl", "dgl.dataloading.DataLoader(g, use_ddp=True)", "train()", "dgl, which was not read"),
        ("import engines", "engines.init_distributed()", "train()", "may connect the ranks (line 5)"),
        ("import engines.parallel_state", "", "train()", "may connect the ranks"),
        ("import engines", "", "engines.start(train)", "gets a function or object that trains"),
        ("import engines", "", "@engines.task\ndef main():\n    train()\nmain()", "decorates a function that trains"),
        ("from engines import *", "", "train()", "`from engines import *` defines"),
        ("import engines", "engine = engines.Engine()\nengine.backward(loss)", "train()", "gets the loss"),
        ("import accelerate", "accelerate.dispatch_model(model)", "train()", "accelerate.dispatch_model is called"),
        ("import torch.distributed as dist", "rank = dist.get_rank()", "train()", "what starts the process group"),
        ("import accelerate", "def other():\n    accelerate.Accelerator()", "train()", "accelerate is used only in"),
        (
            "import engines",
            "class Mine(engines.Base):\n    def go(self):\n        train()",
            "Mine().go()",
            "derived from",
        ),
    ],
)
def test_a_loop_of_its_own_that_an_unread_library_may_take_part_in(
    imports: str, before: str, after: str, why: str
) -> None:
    found = read(OWN_LOOP.format(imports=imports, before=before, after=after))
    assert found.speaks is None and why in (found.unclear or "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('hello')", None),  # certainly no training
        ("import engines\nengines.train()", "its training is not in the code that was read"),
        ("import torch, engines\nloss.backward()\noptimizer.step()", "what creates its optimizer is not visible"),
    ],
)
def test_why_it_is_not_known_how_its_ranks_train(text: str, why: str | None) -> None:
    found = read(text + "\n")
    assert found.speaks is None and (why in found.unclear if why and found.unclear else found.unclear is why)


WRAPS_IF_SEVERAL = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
def is_distributed():
    return dist.is_initialized()
def setup_logger():
    print("ready")
def main():
    {start}
    setup_logger()
    model = net
    if is_distributed():
        model = DDP(net)
    for batch in batches:
        model(batch).sum().backward()
main()
"""


@pytest.mark.parametrize(
    ("start", "speaks"),
    [
        ("if False:\n        dist.init_process_group('nccl')", None),
        ("if True:\n        dist.init_process_group('nccl')", "ddp"),
        ("if several:\n        dist.init_process_group('nccl')", "ddp"),
        ("engines.setup_ranks()", "ddp"),  # of a library, which may start the group
    ],
)
def test_a_wrapper_without_a_start_of_its_group(start: str, speaks: str | None) -> None:
    assert read(WRAPS_IF_SEVERAL.format(start=start)).speaks == speaks


def test_a_package_whose_first_module_imports_the_next_is_read(tmp_path: Path) -> None:
    """`import package.settings` first reads the package, which imports the same module."""
    package = tmp_path / "src" / "package"
    (package / "step").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (package / "__init__.py").write_text("", "utf-8")
    (package / "step" / "__init__.py").write_text("from .other import more\n", "utf-8")
    (package / "step" / "other.py").write_text("from package.step.settings import lr\nmore = lr\n", "utf-8")
    (package / "step" / "settings.py").write_text("lr = 0.1  # optim.SGD\n", "utf-8")
    (package / "step" / "train.py").write_text("import torch\nfrom package.step.settings import lr\n", "utf-8")
    found = probe.read(package / "step" / "train.py")
    assert found.unread == () and "settings.py" in found.files


def test_modules_beside_the_script_are_read_and_no_others(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("import torch\ntorch.save(1, 'outside')\n", "utf-8")
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "__init__.py").write_text("", "utf-8")
    (folder / "tools" / "io.py").write_text(
        "import torch\nfrom . import more\ndef keep(x):\n    torch.save(x, 'x.pt')\n", "utf-8"
    )
    (folder / "tools" / "more.py").write_text("import torch\nimport tools.io\n", "utf-8")
    (folder / "escapes.py").symlink_to(outside)
    (folder / "train.py").write_text(
        "import escapes, json\nfrom tools.io import keep\nif rank == 0:\n    keep(1)\n", "utf-8"
    )
    found = probe.read(folder / "train.py")
    kept = one(found, "torch.save")
    assert (kept.file, kept.line, kept.function, kept.guards) == ("tools/io.py", 4, "keep", ("main",))
    assert found.files == ("tools/__init__.py", "tools/io.py", "tools/more.py")
    assert found.unread == ("escapes",)
    assert probe.read(folder / "train.py", follow=False).files == ()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", b"def f(:\n", "invalid syntax"),
        ("a.py", b"print 'python 2'\n", "Missing parentheses"),
        ("a.py", b"x = '\xff'\n", "not UTF-8"),
        ("a.py", b"# coding: klingon\n", "klingon"),
        ("a.py", b"x = 1\0\n", "null byte"),
        ("a.py", b"x = " + b"(" * 5000 + b")" * 5000, "nested"),
        ("a.py", b"x = 1\n" * 200_000, "larger than 1 MiB"),
        ("a.py", b"if x:\n" + b"".join(b" " * n + b"if x:\n" for n in range(1, 90)) + b" " * 90 + b"pass\n", ""),
        ("job.sbatch", b"#!/bin/bash\nsrun x\n", "starts with #!/bin/bash"),
        ("job.sh", b"srun x\n", "it is not a Python script"),
        ("a.ipynb", b"{}", "it is not a Python script"),
        ("program", b"\x7fELF\x02", "not a text file"),
    ],
)
def test_what_is_no_python_is_told_in_words(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    found = probe.read(path)
    assert found.calls == ()
    assert words in (found.error or ""), found.error


def test_an_expression_of_600_terms_is_read() -> None:
    found = read("import torch\nx = " + " + ".join(["torch.rand(1)"] * 600) + "\n")
    assert (len(found.calls), found.error) == (600, None)


def test_each_link_of_a_chain_of_calls_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[ast.expr] = []
    resolve = Frame.resolve

    def counted(self: Frame, node: ast.expr) -> str | None:
        looked.append(node)
        assert len(looked) < 2000, "a chain takes more than the square of its length"
        return resolve(self, node)

    monkeypatch.setattr(Frame, "resolve", counted)
    found = read("x = (a + b)" + ".float().half()" * 13 + "\n")
    assert (len(found.calls), found.error) == (26, None)
    own = read("class Net:\n    def half(self):\n        return 1\n" + "x = Net().half().float()\nx.go()\n")
    assert one(own, "Net().half().go").line == 5, "a method of the script's own is not torch's"


def test_arguments_are_kept_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("pass\n", "utf-8")
    assert probe.read(path, ["--lr", "1", "--hub_token", "abc"]).arguments == ("--lr", "1", "--hub_token", "***")
    with pytest.raises(MgpuError, match="cannot read"):
        probe.read(tmp_path / "none.py")


ALONE = """\
import torch; optimizer = torch.optim.SGD([])
for batch in range(3):
    loss = torch.zeros(1, requires_grad=True).sum()
    loss.backward()
    optimizer.step()
"""


def test_the_doctor_tells_a_scripts_faults_where_they_are(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE, "utf-8")
    done = mgpu("doctor", "--script", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith("mgpu doctor"), text
    assert "on train.py 5 lines: trains on one GPU only. It was not run." in text
    assert "Where train.py:4:5" in text
    assert "accelerator.backward(loss)" in text
    assert "1 warning from" in text
    assert "Next: mgpu doctor --script train.py --fix" in text
    assert mgpu("doctor", "--script", "train.py", "--strict", cwd=tmp_path).returncode == 1


def test_a_script_whose_loop_is_in_a_module_is_not_said_to_be_changed(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(f"def train(model):\n{textwrap.indent(ALONE, '    ')}", "utf-8")
    (tmp_path / "train.py").write_text("import torch\nfrom loop import train\ntrain(torch.nn.Linear(2, 2))\n", "utf-8")
    text = " ".join(mgpu("doctor", "--script", "train.py", cwd=tmp_path).stdout.split())
    assert "loop.py line 5: every rank would train the same thing" in text
    assert "--fix" not in text
    assert "Next: python train.py" in text


def test_layers_come_from_a_module_that_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("from .net import *\n", "utf-8")
    (tmp_path / "models" / "net.py").write_text("import torch.nn as nn\n", "utf-8")
    (tmp_path / "train.py").write_text("from models import *\nnn.DataParallel(net)\n", "utf-8")
    assert [call.name for call in probe.read(tmp_path / "train.py").calls] == ["torch.nn.DataParallel"]
    (tmp_path / "train.py").write_text("from models import *\nimport nn\nnn.DataParallel(net)\n", "utf-8")
    assert [call.name for call in probe.read(tmp_path / "train.py").calls] == ["nn.DataParallel"]


def test_a_builder_in_a_folder_of_models_wraps_the_model_in_data_parallel(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "build.py").write_text(
        "import torch\ndef build():\n    return torch.nn.DataParallel(torch.nn.Linear(2, 2))\n", "utf-8"
    )
    (tmp_path / "train.py").write_text(f"from models.build import build\nmodel = build()\n{ALONE}", "utf-8")
    text = " ".join(mgpu("doctor", "--script", "train.py", cwd=tmp_path).stdout.split())
    assert "trains in one process, with DataParallel. It was not run." in text
    assert "Where models/build.py:3" in text
    assert "on one GPU" not in text


def test_the_doctors_json_has_file_and_line(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE, "utf-8")
    done = mgpu("doctor", "--script", "train.py", "--json", cwd=tmp_path)
    whole = json.loads(done.stdout)
    (entry,) = [entry for entry in whole["checks"] if entry["status"] == "warn"]
    assert (entry["id"], entry["file"], entry["line"], entry["column"]) == ("script_trains_alone", "train.py", 4, 5)
    assert entry["verify"] == "mgpu doctor --script train.py --only script_trains_alone"
    assert (whole["verdict"], whole["next"]) == ("ready_with_warnings", ["mgpu doctor --script train.py --fix"])


def test_the_doctor_and_a_file_that_cannot_be_read(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n", "utf-8")
    done = mgpu("doctor", "--script", "broken.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "broken.py:1" in done.stdout and "invalid syntax" in done.stdout
    assert "1 warning from 1 check." in done.stdout
    (tmp_path / "note.ipynb").write_text("{}", "utf-8")
    for name, words in (("note.ipynb", "it is not a Python script"), ("none.py", "No such file")):
        done = mgpu("doctor", "--script", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_a_config_is_judged_with_the_script(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        'from accelerate import Accelerator\naccelerator = Accelerator(mixed_precision="fp16")\n', "utf-8"
    )
    (tmp_path / "bf16.yaml").write_text("distributed_type: MULTI_GPU\nmixed_precision: bf16\n", "utf-8")
    done = mgpu("doctor", "--script", "train.py", "-c", "bf16.yaml", cwd=tmp_path)
    assert done.returncode == 0
    assert "train.py:2:15" in done.stdout and "but the config sets bf16" in done.stdout


# ---- which modules are read, and what is reached from the script's start


def project(folder: Path, files: dict[str, str]) -> Path:
    """Write a project's files. Returns tools/train.py."""
    for name, text in {"pyproject.toml": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / "tools" / "train.py"


def test_modules_of_the_project_are_read_from_above_the_script(tmp_path: Path) -> None:
    script = project(
        tmp_path,
        {
            "tools/train.py": "from engine import fit\nfrom src_only import more\nimport big, broken\nfit()\n",
            "engine.py": "import torch\ndef fit():\n    loss.backward()\n    torch.save(1, 'x.pt')\n",
            "src/src_only.py": "more = 1  # torch.save(\n",
            "big.py": "import torch\n# wandb " + "x" * 300_000 + "\n",
            "broken.py": "import wandb\ndef f(:\n",
        },
    )
    found = probe.read(script, most_bytes=200_000)
    assert found.files == ("../engine.py", "../src/src_only.py")
    assert found.skipped["../big.py"] == "limit" and "not valid in Python" in found.skipped["../broken.py"]
    assert (found.cut, found.unread, found.speaks) == (True, (), None)
    assert one(found, "torch.save").file == "../engine.py"
    (tmp_path / "pyproject.toml").unlink()
    assert probe.read(script).files == (), "nothing says that the folder above belongs to the project"


@pytest.mark.parametrize("import_line", ["from .solver import Solver", "from . import (  # the loop\n    solver,\n)"])
def test_a_module_that_trains_is_found_through_modules_that_do_not(tmp_path: Path, import_line: str) -> None:
    files = {
        "train.py": "from src.work import main\nmain()\n",
        "src/__init__.py": "",
        "src/work.py": f"from .between import Solver\n{import_line}\ndef main():\n    Solver().solve()\n",
        "src/between.py": "from src.solver import Solver\nfrom . import shapes\n",
        "src/shapes.py": "import math\nsize = 3\n",  # is not parsed: it leads to nothing
        "src/solver.py": "import torch\nclass Solver:\n    def solve(self):\n        torch.nn.DataParallel(net)\n",
    }
    found = probe.read(project(tmp_path, files).parent.parent / "train.py")
    assert set(found.files) == set(files) - {"train.py"} and found.skipped == {}
    assert one(found, "torch.nn.DataParallel").file == "src/solver.py" and one(found, "torch.nn.DataParallel").reached


def test_a_module_that_only_leads_to_others_leaves_half_of_the_limit_to_them(tmp_path: Path) -> None:
    large = "from solver import fit\n" + "size = 3\n" * 1000
    files = {
        "train.py": "import shapes\nimport solver\n",
        "shapes.py": large,
        "solver.py": "import torch\ntorch.load('x')\n",
    }
    found = probe.read(project(tmp_path, files).parent.parent / "train.py", most_bytes=12_000)
    assert (found.skipped, found.files, found.cut) == ({"shapes.py": "limit"}, ("solver.py",), True)


def test_a_module_of_a_package_has_its_dotted_name(tmp_path: Path) -> None:
    names = ("pkg/__init__.py", "pkg/data.py", "pkg/__main__.py")
    project(tmp_path, {**dict.fromkeys(names, ""), "pkg/train.py": "from . import data\n"})
    read_ = probe.read(tmp_path / "pkg" / "train.py")
    assert (read_.module, read_.files) == ("pkg.train", ("__init__.py", "data.py"))


def test_what_an_imported_module_does_not_run_is_not_reached(tmp_path: Path) -> None:
    script = project(
        tmp_path,
        {
            "tools/train.py": "from tools.helper import used, Kept\nused()\nKept().go()\n",
            "tools/__init__.py": "",
            "tools/helper.py": """\
import torch
def used():
    torch.save(1, "used")
def unused():
    torch.save(1, "unused")
class Base:
    def __init__(self):
        torch.save(1, "init")
class Kept(Base):
    def __init__(self):
        super().__init__()
    def go(self):
        torch.save(1, "go")
    def stay(self):
        torch.save(1, "stay")
if __name__ == "__main__":
    torch.save(1, "main")
""",
        },
    )
    saves = [call for call in probe.read(script).calls if call.name == "torch.save"]
    assert {call.arguments[1]: call.reached for call in saves} == {
        "'used'": True, "'unused'": False, "'init'": True, "'go'": True, "'stay'": False,
    }  # fmt: skip


OVERRIDDEN = """\
class Base:
    def run(self):
        if self.rank == 0:
            self.keep()
    def keep(self):
        pass
class Own(Base):
    def keep(self):
        probe_here()
Own().run()
"""


def test_a_method_has_the_callers_of_what_it_overrides() -> None:
    assert one(read(OVERRIDDEN), "probe_here").guards == ("main",)


METHOD = """\
import os, torch
class Net(torch.nn.Module):
    def save(self, path):
        probe_here()
        torch.save(self.state_dict(), path)
def finish(net):
    if int(os.environ["RANK"]) == 0:
        net.save("net.pt")
finish(Net())
torch.save(1, f"of-{os.environ['RANK']}.pt")
"""


def test_a_function_of_a_library_is_no_call_of_a_method_of_that_name() -> None:
    script = read(METHOD)
    method = next(function for function in script.functions if function.name == "Net.save")
    assert [(site.line, site.guards) for site in method.callers] == [(8, ("main",))]


REACHED = {
    "def f():\n    probe_here()\nf()": True,
    "def f():\n    probe_here()": False,
    "def f():\n    probe_here()\nx = {'f': f}": True,
    "import app\n@app.command()\ndef f():\n    probe_here()": True,
    "import torch\n@torch.no_grad()\ndef f():\n    probe_here()": False,
    "def main():\n    probe_here()": True,
    "import torch\nclass D(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        probe_here()\nD()": True,
    "import lightning\nclass M(lightning.LightningModule):\n    def on_x(self):\n        probe_here()\nM()": True,
    "import torch\nclass M(torch.nn.Module):\n    def helper(self):\n        probe_here()\nM()": False,
    "import torch\nclass M(torch.nn.Module):\n    def save(self):\n        probe_here()\nM()\ntorch.save(1, '')": False,
    "import numpy as np\nclass M:\n    def save(self):\n        probe_here()\nM()\nnp.save('x', 1)": False,
    "import x\nclass M:\n    def save(self):\n        probe_here()\nM()\nx.model.save('x')": True,
}


@pytest.mark.parametrize("text", REACHED)
def test_what_is_reached(text: str) -> None:
    assert one(read(text + "\n"), "probe_here").reached is REACHED[text]


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    probe_here()",
        "if False:\n    probe_here()",
        "import sys\nsys.exit(0)\nprobe_here()",
        "def f():\n    return 1\n    probe_here()\nf()",
    ],
)
def test_dead_code_is_not_read(text: str) -> None:
    assert [call for call in read(text + "\n").calls if call.name == "probe_here"] == []


PASSED = """\
import os, torch
class Log:
    def __init__(self, enabled, folder):
        self.enabled = enabled
        self.folder = folder
        if self.enabled:
            probe_here()
        torch.save(1, self.folder)
main = int(os.environ["RANK"]) == 0
name = f"run-{os.environ['RANK']}"
Log(main, name)
"""


def test_values_that_are_passed_as_arguments_keep_their_meaning() -> None:
    found = read(PASSED)
    assert one(found, "probe_here").guards == ("main",)
    assert one(found, "torch.save").unique
    assert not one(read(PASSED.replace("Log(main, name)", "Log(main, 'run')")), "torch.save").unique


def test_a_value_that_only_one_rank_passes_is_its_condition() -> None:
    call = "log('x' if os.environ['RANK'] == '0' else None)"
    text = f"import os\ndef log(project):\n    if project:\n        probe_here()\n{call}\n"
    assert one(read(text), "probe_here").guards == ("main",)


def test_a_function_that_unwraps_returns_the_inner_model() -> None:
    text = (
        "from torch.nn.parallel import DistributedDataParallel as D\ndef inner(model):\n"
        "    if isinstance(model, D):\n        return model.module\n    return model\ninner(D(net)).go()\n"
    )
    assert one(read(text), f"{DDP}().module.go").line == 6


def test_the_branch_of_several_ranks_counts() -> None:
    text = (
        "from torch.nn.parallel import DistributedDataParallel as D\nmodel = D(net)\n"
        "if isinstance(model, D):\n    inner = model.module\nelse:\n    inner = model\ninner.go()\n"
    )
    assert one(read(text), f"{DDP}().module.go").line == 7


GUARDS_OF_OBJECTS = {
    "if self.accelerator is None:": ("single",),
    "if accelerator is not None:": ("distributed",),
    "if accelerator:": ("distributed",),
    "if fabric is None:\n    pass\nelse:": ("distributed",),
}


@pytest.mark.parametrize("text", GUARDS_OF_OBJECTS)
def test_an_object_of_a_library_exists_only_with_it(text: str) -> None:
    assert one(read(f"{text}\n    probe_here()\n"), "probe_here").guards == GUARDS_OF_OBJECTS[text]


SPAWNS_IF_SEVERAL = """\
import os
import torch
def work(worker, world_size):
    torch.distributed.init_process_group("nccl", {})
if world_size == 1:
    work(0, 1)
else:
    torch.multiprocessing.spawn(work, args=(world_size,), nprocs=world_size)"""
PROCESSES = """\
import os
import torch, torch.multiprocessing as mp
def work(config):
    torch.distributed.init_process_group("nccl", rank={}, world_size=4)
def main(config):
    for config.rank in range(4):
        mp.Process(target=work, args=(config,)).start()
main(object())"""


@pytest.mark.parametrize(
    ("text", "spawns"),
    [
        ("import torch\ntorch.multiprocessing.spawn(f, nprocs=2)", True),
        ("import torch\nif args.many:\n    torch.multiprocessing.spawn(f, nprocs=2)", False),
        (SPAWNS_IF_SEVERAL.format("rank=worker"), True),
        (SPAWNS_IF_SEVERAL.format("rank=int(os.environ['RANK'])"), False),
        (SPAWNS_IF_SEVERAL.format("world_size=2"), False),
        (PROCESSES.format("config.rank"), True),
        (PROCESSES.format("int(os.environ['RANK'])"), False),
        ("import subprocess\nsubprocess.run(['torchrun', 'x.py'])", True),
        ("import subprocess\ncmd = ['accelerate', 'launch', 'x.py']\nsubprocess.check_call(cmd)", True),
        ("import os\nos.system('python -m torch.distributed.run x.py')", True),
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'accelerate.commands.launch', 'x'])", True),
        ("import os\nos.system('CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 x.py')", True),
        ("import subprocess\nsubprocess.check_call('trl sft --model_name_or_path x', shell=True)", True),
        ("import subprocess\nsubprocess.run(['axolotl', 'train', 'x.yml'])", True),
        ("import subprocess\nsubprocess.run(['trl', 'env'])", False),
        ("import subprocess\nsubprocess.run(['git', 'log', 'torchrun'])", False),
        ("import subprocess\ndef f():\n    subprocess.run(['torchrun', 'x.py'])", False),
    ],
)
def test_a_script_that_starts_its_ranks(text: str, spawns: bool) -> None:
    assert read(text + "\n").spawns_ranks is spawns


NEWER = [
    ("type Pair[T] = tuple[T, T]", "", (3, 11), "3.12"),
    ("def first[T](x: T) -> T: ...", "", (3, 10), "3.12"),
    ("class Box[T]: ...", "", (3, 11), "3.12"),
    ("except* ValueError:", "", (3, 10), "3.11"),
    ("print(f'{x['a']}')", "f-string: unmatched '['", (3, 11), "3.12"),
    ("except ValueError, TypeError:", "multiple exception types", (3, 13), "3.14"),
    ("type Pair[T] = tuple[T, T]", "", (3, 12), None),
    ("except ValueError, error:", "multiple exception types", (3, 13), None),
    ("print 'python 2'", "Missing parentheses", (3, 10), None),
    ("def f(:", "invalid syntax", (3, 10), None),
]


@pytest.mark.parametrize(("line", "message", "running", "expected"), NEWER)
def test_syntax_of_a_newer_python(line: str, message: str, running: tuple[int, int], expected: str | None) -> None:
    error = SyntaxError(message or "invalid syntax", ("train.py", 1, 1, line))
    assert python_source.newer_python(error, running) == expected


def test_the_doctor_names_what_it_did_not_examine(mgpu: Run, tmp_path: Path) -> None:
    script = project(
        tmp_path,
        {
            "tools/train.py": "import importlib, fancy_engine, sys\n"
            "if sys.argv: import broken\nimportlib.import_module(sys.argv[1]).main()\n",
            "broken.py": "import wandb\ndef f(:\n",
        },
    )
    done = mgpu("doctor", "--script", str(script), cwd=tmp_path)
    text = " ".join(done.stdout.split())
    assert "Not examined: 1 module of the project (not valid in Python" in text and "../broken.py" in text
    assert "the source of libraries: fancy_engine; what is loaded by name at run time (line 3)" in text
    assert "No findings from" in text and "checks did not run: 1 module of the project could not be read" in text
    assert "Next: mgpu configure then mgpu smoke-test" in text and done.returncode == 3
    (tmp_path / "pages.py").write_text("import torch\n", "utf-8")
    done = mgpu("doctor", "--script", "pages.py", cwd=tmp_path)
    assert "No training step was found in what was read" in " ".join(done.stdout.split()) and not done.returncode


def test_the_shell_scripts_of_the_project_show_how_it_starts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    for folder in ("scripts", "tools"):
        (tmp_path / folder).mkdir()
    script = tmp_path / "tools" / "train.py"
    script.write_text("import torch\n", "utf-8")
    (tmp_path / "scripts" / "run.sh").write_text(
        "PORT=29511\nexport A=1\ntorchrun --nproc_per_node 2 \\\n  --master_port $PORT tools/train.py --ddp --lr 1\n"
    )
    (tmp_path / "scripts" / "other.sh").write_text("torchrun tools/other.py  # not train.py\n")
    (found,) = launch_lines.find(script)
    assert (found.launcher, found.file, found.line) == ("torchrun", "../scripts/run.sh", 3)
    assert (found.options, found.arguments) == (
        ("--nproc_per_node", "2", "--master_port", "29511"),
        ("--ddp", "--lr", "1"),
    )
    assert launch_lines.find(tmp_path / "absent" / "train.py") == ()  # another script of this name


def test_the_doctor_names_the_option_that_connects_the_ranks(mgpu: Run, tmp_path: Path) -> None:
    """No command line is known, so the option is no finding, but part of the command to start with."""
    (tmp_path / "train.py").write_text(
        "import argparse, torch, torch.distributed as dist\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--ddp', action='store_true')\n"
        "args = parser.parse_args()\nmodel = torch.nn.Linear(4, 1)\n"
        "if args.ddp:\n    dist.init_process_group('gloo')\n"
        "    model = torch.nn.parallel.DistributedDataParallel(model)\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "for step in range(9):\n    model(torch.ones(4)).backward()\n    optimizer.step()\n"
        "dist.destroy_process_group()\n",
        "utf-8",
    )
    done = mgpu("doctor", "--script", "train.py", cwd=tmp_path)
    text = " ".join(done.stdout.split())
    assert "without --ddp, the ranks are not connected (script_needs_option)" in text and "warning" not in text
    assert "Next: mgpu configure then mgpu launch train.py --ddp" in text


def test_the_doctor_starts_a_script_that_spawns_without_a_launcher(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text("import torch\ntorch.multiprocessing.spawn(print, nprocs=2)\n", "utf-8")
    done = mgpu("doctor", "--script", "spawns.py", cwd=tmp_path)
    assert "Next: python spawns.py" in " ".join(done.stdout.split())
    assert json.loads(mgpu("doctor", "--script", "spawns.py", "--json", cwd=tmp_path).stdout)["next"] == [
        "python spawns.py"
    ]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python reads it")
def test_the_doctor_does_not_call_a_newer_syntax_wrong(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "newer.py").write_text("try:\n    pass\nexcept ValueError, TypeError:\n    pass\n", "utf-8")
    done = mgpu("doctor", "--script", "newer.py", cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "Not examined. line 3" in done.stdout and "it may be valid in 3.14" in " ".join(done.stdout.split())
    assert "No findings" not in done.stdout


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("import kit\n", ("kit.py", 3)),
        ("from pkg import part\n", ("pkg/part.py", 2)),
        ("import pkg.part\n", ("pkg/part.py", 2)),
        ("from above import run\n", ("pkg/part.py", 2)),  # it imports pkg.part
        ("if __name__ == '__main__':\n    print()\ntry:\n    import kit\nexcept SyntaxError:\n    pass\n", None),
        ("def main():\n    import kit\n", None),
        ("from newer import run\n", None),  # valid in a newer Python
        ("from pkg import whole\n", None),
    ],
)
def test_a_module_that_is_not_valid_python(script: str, found: tuple[str, int] | None, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    files = {
        "kit.py": "import torch\ntorch.save(1, 'x')\nprint 'x'\n",
        "pkg/__init__.py": "",
        "pkg/part.py": "import torch.distributed\ndef broken(:\n",
        "pkg/whole.py": "import torch.distributed\n",
        "above.py": "import torch.distributed\nfrom pkg import part\nrun = 1\n",
        "newer.py": "import torch.distributed\ndef run[T = int](): ...\n",
        "train.py": script,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    faults = probe.read(tmp_path / "train.py").faults
    assert [(one.file, one.line) for one in faults if one.kind == "syntax"] == ([found] if found else [])
