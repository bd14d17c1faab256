"""Which changes does a script get, and what is only marked?"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu.doctor import run as doctor_run
from mgpu.doctor.request import Request
from mgpu.errors import USAGE, MgpuError
from mgpu.port.change import DECIDE
from mgpu.port.port_script import port
from tests.conftest import ROOT

pytestmark = pytest.mark.quick

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
"""
LOOP = """\
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""


def ported(text: str, *, ddp: bool = False) -> str:
    result = port(text, "train.py", "nothing", ddp=ddp)
    assert not result.refused
    ast.parse(result.text)
    return result.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.cuda()", "model.to(accelerator.device)"),
        ("model = model.to('cuda:0')", "model = model.to(accelerator.device)"),
        ("device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "device = accelerator.device"),
        ("device = 'cuda' if torch.cuda.is_available() else 'cpu'", "device = str(accelerator.device)"),
        ("t = torch.zeros(2, device='cuda')", "t = torch.zeros(2, device=accelerator.device)"),
        ("state = torch.load('x.pt')\nmodel.load_state_dict(state)", "torch.load('x.pt', map_location=\"cpu\")"),
    ],
)
def test_devices_and_loading(before: str, after: str) -> None:
    assert after in ported(HEAD + before + "\n" + LOOP)


@pytest.mark.parametrize("kept", ["t = torch.zeros(2, device='cpu')", "b = a.to(b.device)", "c = x.to(torch.float16)"])
def test_what_names_no_gpu_stays(kept: str) -> None:
    assert kept in ported(HEAD + kept + "\n" + LOOP)


def test_comments_and_formatting_stay() -> None:
    text = HEAD + "x = [ 1,2 ]   # as written\n" + LOOP
    new = ported(text)
    assert "x = [ 1,2 ]   # as written\n" in new
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in new


def test_plain_torch_distributed_needs_no_accelerate() -> None:
    new = ported(HEAD + LOOP, ddp=True)
    assert "accelerate" not in new and "class Ranks:" in new and "loss.backward()" in new


def test_a_try_around_the_training_holds_the_prepare() -> None:
    lines = (HEAD + LOOP).splitlines(keepends=True)
    text = "".join(lines[:4]) + "try:\n" + "".join(f"    {line}" for line in lines[4:]) + "finally:\n    pass\n"
    assert "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n" in ported(text)


def test_a_file_that_is_only_saved_is_opened_by_one_rank() -> None:
    text = HEAD + LOOP + "with open('m.pt', 'wb') as f:\n    torch.save(model.state_dict(), f)\n"
    assert "accelerator.save(accelerator.get_state_dict(model), 'm.pt')" in ported(text) and "open(" not in ported(text)


def test_every_rank_waits_before_a_test_whether_a_saved_file_exists() -> None:
    load = "import os\nif os.path.exists('m.pt'):\n    model.load_state_dict(torch.load('m.pt'))\n"
    new = ported(HEAD + LOOP + "torch.save(model.state_dict(), 'm.pt')\n" + load)
    assert "accelerator.wait_for_everyone()\nif os.path.exists" in new


def test_sizes_of_the_whole_batch_become_those_of_the_part() -> None:
    head = HEAD.replace("batch_size=4", "batch_size=size").replace("model =", "size = 4\nmodel =", 1)
    new = ported(head + LOOP.replace("    loss =", "    z = torch.ones(size, 1)\n    n = 3 * size\n    loss =", 1))
    assert "torch.ones((size // accelerator.num_processes), 1)" in new and "n = 3 * size" in new


@pytest.mark.parametrize(
    "given",
    [
        "list(model.parameters()) + list(other.parameters())",
        "itertools.chain(model.parameters(), other.parameters())",
        "[{'params': model.parameters()}, {'params': other.weight_part.parameters(), 'lr': 1}]",
        "[p for m in (model, other) for p in m.parameters()]",
        "filter(lambda p: p.requires_grad, [*model.parameters(), *other.parameters()])",
        "parameters",
    ],
)
def test_every_model_that_is_trained_is_prepared(given: str) -> None:
    text = HEAD.replace("optimizer =", "other = nn.Linear(1, 1)\noptimizer =").replace("model.parameters()", given)
    if given == "parameters":
        named = "parameters = list(model.parameters())\nparameters += list(other.parameters())\noptimizer ="
        text = text.replace("optimizer =", named, 1)
    result = port(text + LOOP, "train.py", "nothing")
    prepared = next((line for line in result.text.splitlines() if ".prepare(" in line), "")
    assert result.refused or result.decisions or ("model" in prepared and "other" in prepared), result.text


def test_a_trained_tensor_without_a_model_is_marked() -> None:
    text = HEAD.replace("model.parameters()", "[{'params': model.parameters()}, {'params': [log_alpha]}]")
    assert any("log_alpha" in why for _, why in port(text + LOOP, "train.py", "nothing").decisions)


def test_every_hunk_has_a_reason() -> None:
    for script in sorted((ROOT / "tests/port_scripts").glob("*.py")):
        for hunk in port(script.read_text(), script.name, "nothing").hunks:
            assert hunk.reasons, (script.name, hunk.lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOOP.replace("loss.backward", "model.loss(x).backward"), "computes are not averaged"),
        ("for i in range(3):\n    model(torch.ones(4, 2)).sum().backward()\n", "every rank trains on the same batches"),
        (LOOP.replace("y)", "y, reduction='sum')"), "sums the loss"),
        ("get_ipython().system('pip list')\n" + LOOP, "for a notebook"),
        (LOOP.replace("    opt", "    counts.append(other(y))\n    opt"), ""),
    ],
)
def test_what_is_not_safe_is_marked(text: str, said: str) -> None:
    result = port(HEAD + text, "train.py", "nothing")
    assert not result.refused
    if said:
        assert any(said in why for _, why in result.decisions) and DECIDE in result.text


@pytest.mark.parametrize(
    ("text", "framework", "why"),
    [
        ("print(1)\n", None, "no backward pass"),
        ("import torch\nloss.backward()\n", None, "no optimizer"),
        ("from accelerate import Accelerator\na = Accelerator()\n", "accelerate", "already trains with accelerate"),
        ("import torch.distributed as d\nd.init_process_group()\n", "ddp", "already trains with torch.distributed"),
        ("x = (\n", None, "not valid Python"),
        ("print 'two'\n", None, "not valid Python"),
    ],
)
def test_what_is_not_ported_says_why(text: str, framework: str | None, why: str) -> None:
    assert why in port(text, "train.py", framework).refused


def test_a_trainer_gets_the_one_change_it_needs() -> None:
    text = (
        "from transformers import AutoModel, Trainer\nmodel = AutoModel.from_pretrained('x', device_map='auto')\n"
        "model.to('cuda')\nTrainer(model).train()\n"
    )
    new = port(text, "train.py", "trainer").text
    assert "device_map=None" in new and "cuda" not in new and "accelerat" not in new.lower().replace("accelerator", "")


def test_lightning_gets_all_devices() -> None:
    text = "import lightning as L\nt = L.Trainer(accelerator='gpu', devices=1)\n"
    assert 'devices="auto"' in port(text, "train.py", "lightning").text


# ---- the command


def _train(folder: Path) -> Path:
    path = folder / "train.py"
    path.write_text(HEAD + LOOP)
    return path


def test_it_is_written_with_a_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _train(tmp_path)
    doctor_run.run(Request(script=str(path), fix=True, yes=True))
    assert "accelerator.prepare(" in path.read_text() and (tmp_path / "train.py.bak").read_text() == HEAD + LOOP
    assert "backup: train.py.bak" in capsys.readouterr().out


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _train(tmp_path)
    doctor_run.run(Request(script=str(path), fix=True, dry_run=True))
    assert path.read_text() == HEAD + LOOP and "+    accelerator.backward(loss)" in capsys.readouterr().out


def test_without_a_terminal_it_asks_for_yes(tmp_path: Path) -> None:
    path = _train(tmp_path)
    with pytest.raises(MgpuError) as error:
        doctor_run.run(Request(script=str(path), fix=True))
    assert error.value.exit_code == USAGE and path.read_text() == HEAD + LOOP


def test_libcst_is_imported_only_to_port() -> None:
    code = "import sys, mgpu.__main__, mgpu.cli.doctor, mgpu.doctor.run; assert 'libcst' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
