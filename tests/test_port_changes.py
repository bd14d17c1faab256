"""Which changes does a script get, and what is only marked?"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu.doctor import run as doctor_run
from mgpu.doctor.request import Request
from mgpu.errors import REFUSED, USAGE, MgpuError
from mgpu.port import offer as offers
from mgpu.port.change import DECIDE
from mgpu.port.port_script import port
from mgpu.report import output
from tests.conftest import ROOT
from tests.terminal import same_screen

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
    result = port(text, "nothing", ddp=ddp)
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
    result = port(text + LOOP, "nothing")
    prepared = next((line for line in result.text.splitlines() if ".prepare(" in line), "")
    assert result.refused or result.decisions or ("model" in prepared and "other" in prepared), result.text


def test_a_trained_tensor_without_a_model_is_marked() -> None:
    text = HEAD.replace("model.parameters()", "[{'params': model.parameters()}, {'params': [log_alpha]}]")
    assert any("log_alpha" in why for _, why in port(text + LOOP, "nothing").decisions)


def test_every_hunk_has_a_reason() -> None:
    for script in sorted((ROOT / "tests/port_scripts").glob("*.py")):
        for hunk in port(script.read_text(), "nothing").hunks:
            assert hunk.reasons, (script.name, hunk.lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(x):\n    return model.loss(x)\n" + LOOP.replace("loss.backward", "f(x).backward"), "are not averaged"),
        ("for i in range(3):\n    model(torch.ones(4, 2)).sum().backward()\n", "every rank trains on the same batches"),
        (LOOP.replace("y)", "y, reduction='sum')"), "sums the loss"),
        ("get_ipython().system('pip list')\n" + LOOP, "for a notebook"),
        ("from apex import amp\n" + LOOP.replace("for ", "m, o = amp.initialize(m, o)\nfor ", 1), "apex.amp does not"),
        (LOOP + "breakpoint()\n", "stops in a debugger"),
        (LOOP.replace("    opt", "    counts.append(other(y))\n    opt"), ""),
    ],
)
def test_what_is_not_safe_is_marked(text: str, said: str) -> None:
    result = port(HEAD + text, "nothing")
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
    assert why in port(text, framework).refused


def test_a_trainer_gets_the_one_change_it_needs() -> None:
    text = (
        "from transformers import AutoModel, Trainer\nmodel = AutoModel.from_pretrained('x', device_map='auto')\n"
        "model.to('cuda')\nTrainer(model).train()\n"
    )
    new = port(text, "trainer").text
    assert "device_map=None" in new and "cuda" not in new and "accelerat" not in new.lower().replace("accelerator", "")


def test_lightning_gets_all_devices() -> None:
    text = "import lightning as L\nt = L.Trainer(accelerator='gpu', devices=1)\n"
    assert 'devices="auto"' in port(text, "lightning").text


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


def test_a_link_that_leaves_the_folder_is_refused_before_the_question(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = _train(tmp_path / "elsewhere")
    (tmp_path / "project").mkdir()
    link = tmp_path / "project" / "train.py"
    link.symlink_to(real)
    with pytest.raises(MgpuError) as error:
        _offer(link, yes=False, can_ask=True)
    assert error.value.exit_code == REFUSED and real.read_text() == HEAD + LOOP and _files(link.parent) == ["train.py"]


def test_a_link_in_the_folder_stays_a_link(tmp_path: Path) -> None:
    real = _train(tmp_path)
    (tmp_path / "link.py").symlink_to(real.name)
    _offer(tmp_path / "link.py")
    assert (tmp_path / "link.py").is_symlink() and "accelerator.prepare(" in real.read_text()


@pytest.mark.parametrize("ddp", [False, True])
@pytest.mark.parametrize(("mark", "end"), [(b"\xef\xbb\xbf", "\r\n"), (b"", "\r\n"), (b"\xef\xbb\xbf", "\n")])
def test_the_file_keeps_its_mode_its_line_ends_and_its_byte_order_mark(
    tmp_path: Path, mark: bytes, end: str, ddp: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(mark + (HEAD + LOOP).replace("\n", end).encode())
    path.chmod(0o640)
    (tmp_path / "train.py.bak").write_text("older")
    assert _offer(path, "ddp" if ddp else "accelerate")
    new = path.read_bytes()
    assert new.startswith(mark) and new.count(b"\xef\xbb\xbf") == bool(mark) and path.stat().st_mode & 0o777 == 0o640
    assert new.count(b"\n") == new.count(end.encode()) and b"prepare(" in new
    assert (tmp_path / "train.py.bak").read_text() == "older" and (tmp_path / "train.py.bak.2").exists()
    assert not _offer(path, "ddp" if ddp else "accelerate") and path.read_bytes() == new


@pytest.mark.parametrize(
    "raw",
    [
        b"# coding: latin-1\nx = '\xe9'\n" + HEAD.encode() + LOOP.encode(),
        b"# coding: latin-1\nx = '\xc3\xa9'\n" + HEAD.encode() + LOOP.encode(),  # also valid as UTF-8
        b"# coding: nonsense\n" + HEAD.encode() + LOOP.encode(),
        HEAD.encode("utf-16"),
    ],
)
def test_only_utf8_is_ported(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    with pytest.raises(MgpuError, match="not UTF-8"):
        _offer(path)
    assert path.read_bytes() == raw and _files(tmp_path) == ["train.py"]


def test_a_script_that_changes_before_it_is_written_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _train(tmp_path)

    def confirm(_: object) -> bool:
        path.write_text("new = 1\n")
        return True

    monkeypatch.setattr(offers, "_confirm", confirm)
    with pytest.raises(MgpuError, match="has changed in the meantime"):
        _offer(path, yes=False, can_ask=True)
    assert path.read_text() == "new = 1\n" and _files(tmp_path) == ["train.py"]


@pytest.mark.parametrize("text", ["print 'two'\n", "x = 1\0\n", "x = 1\x1a\n", "if 1:\n\tx = 1\n        y = 2\n"])
def test_what_python_cannot_read_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    said: list[str] = []
    assert not offers.offer(path, "accelerate", said.append, yes=True, dry_run=False, can_ask=False)
    assert "not valid Python" in said[0] and path.read_text() == text


def _offer(path: Path, library: str = "accelerate", *, yes: bool = True, can_ask: bool = False) -> bool:
    return offers.offer(path, library, lambda _: None, yes=yes, dry_run=False, can_ask=can_ask)


def _files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


# ---- unusual source text


@pytest.mark.parametrize("ddp", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0'; kept()  # why", "import os\nkept()  # why\n"),
        ("if c: kept(); torch.cuda.set_device(0)\nelse: other()", "if c:\n    kept()\nelse: other()\n"),
        (
            "if c: plt.savefig('x')\nelse: other()",
            "if c:\n    if R.is_main_process:\n        plt.savefig('x')\nelse: o",
        ),
        ("if torch.cuda.set_device(0): kept()", f"{DECIDE}remove torch.cuda.set_device(0)"),
        ("a = os.environ['CUDA_VISIBLE_DEVICES'] = kept()", f"{DECIDE}remove a = os"),
        ("m = nn.DataParallel(device_ids=[0], module=model)", "\nm = model\n"),
        ("model = nn.DataParallel(*kept)", f"{DECIDE}use the model itself"),
        ("def f(device='cuda:0'):\n    'Only a docstring.'", "'Only a docstring.'\n"),
        ("class Accelerator: pass\nclass Ranks: pass", "class Accelerator: pass\nclass Ranks: pass"),
        ("from random import random, shuffle\nshuffle(x)", "import random as random_module\nrandom_module.seed(42)\n"),
    ],
)
def test_neighbours_of_a_change_stay(before: str, after: str, ddp: bool) -> None:
    new = ported(HEAD + before + "\n" + LOOP, ddp=ddp)
    assert after.replace("R.", "all_ranks." if "all_ranks" in new else "ranks." if ddp else "accelerator.") in new
    assert new.count("kept") >= before.count("kept")


@pytest.mark.parametrize(
    "line", ["if __name__ == '__main__': main()  # start", "if __name__ == '__main__':\n    main()"]
)
def test_a_main_guard_on_one_line_is_the_same_as_on_two(line: str) -> None:
    body = "".join(f"    {one}\n" for one in (HEAD + LOOP).splitlines())
    new = ported(f"import torch\ndef main():\n{body}{line}\n")
    assert "if __name__ == '__main__':\n    accelerator = Accelerator(" in new
    assert "    main()\n    accelerator.end_training()" in new


@pytest.mark.parametrize("name", ["accelerator", "hf_accelerator", "Accelerator", "DataLoaderConfiguration", "Ranks"])
@pytest.mark.parametrize("ddp", [False, True])
def test_names_of_the_script_are_not_reused(name: str, ddp: bool) -> None:
    new = ported(f"{name} = kept\n{HEAD}{LOOP}", ddp=ddp)
    bound = [one.id for one in ast.walk(ast.parse(new)) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    bound += [one.name for one in ast.walk(ast.parse(new)) if isinstance(one, ast.ClassDef)]
    bound += [one.asname or one.name for one in ast.walk(ast.parse(new)) if isinstance(one, ast.alias)]
    assert bound.count(name) == 1


def test_quotes_in_an_f_string_are_those_that_every_python_accepts() -> None:
    line = "    log(f\"{loss.item()}\", f'{loss.item()}')\n    loss.backward()\n"
    new = ported(HEAD + LOOP.replace("    loss.backward()\n", line))
    assert "reduction='mean').item()}\"" in new and 'reduction="mean").item()}\'' in new


@pytest.mark.parametrize(
    "loop",
    [
        "for x, y in loader: loss = nn.functional.mse_loss(model(x), y); loss.backward(); print(loss.item())\n",
        LOOP.replace("loss.backward()", "loss.backward(); total += loss.item()"),
        LOOP.replace("loss.backward()", "pred = model(x).argmax(1); loss.backward()"),
    ],
)
def test_a_backward_pass_on_one_line_with_what_is_reported_is_refused(loop: str) -> None:
    result = port(HEAD + loop, "nothing")
    assert "on a line of its own" in result.refused and result.text == HEAD + loop


def test_a_backward_pass_on_one_line_with_the_step_is_ported() -> None:
    loop = LOOP.replace("    loss.backward()\n    optimizer.step()", "    loss.backward(); optimizer.step()  # c")
    assert "    accelerator.backward(loss); optimizer.step()  # c\n" in ported(HEAD + loop)


# ---- the screen


@pytest.mark.parametrize("columns", [80, 40])
def test_the_screen(tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    two = HEAD + "other = DataLoader(more, batch_size=4, drop_last=True)\nfor x, y in other:\n    pass\n" + LOOP
    lines = "".join(f"f(torch.cuda.device({n}))\n" for n in range(2)) + LOOP.replace("loader", "other")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    Path("train.py").write_text(two + lines)
    offers.offer(Path("train.py"), "accelerate", output.to_stdout, yes=True, dry_run=False, can_ask=False)
    shown = capsys.readouterr().out
    assert "Lines 6 and 7: the number of" in shown and "lines 14 and 15:" in shown
    of_code = (" ", "+", "-", "@@")
    assert all(len(one) <= columns for one in shown.splitlines() if not one.startswith(of_code))
    same_screen(shown, "doctor_port" + ("" if columns == 80 else f"_{columns}_columns"))
