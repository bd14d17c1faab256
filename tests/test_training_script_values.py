"""Values that decide how a script is read: constants that are passed, flags, errors that are caught, annotations."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.training_script import local_modules
from mgpu.readers.training_script import read as training_script_read
from tests.bad_scripts import read

CHOOSES = """\
def train(data, method="plain", *, sharded=False):
    if method == "plain":
        plain_here()
    else:
        probe_here()
    if sharded and method != "plain":
        return sharded_here()
    last_here()
"""
# The calls of the functions above, and which of them a run can reach.
CALLS = {
    'train(1, method="zero")': {"probe_here", "last_here"},
    'train(1, "zero", sharded=True)': {"probe_here", "sharded_here"},
    "train(1)": {"plain_here", "last_here"},
    'train(1, method="zero")\ntrain(2)': {"plain_here", "probe_here", "last_here"},
    "train(1, method=args.method)": {"plain_here", "probe_here", "last_here"},
    "train(1, sharded=args.sharded)": {"plain_here", "last_here"},
    "train(1, args.method, sharded=args.sharded)": {"plain_here", "probe_here", "sharded_here", "last_here"},
    'train(1, method="zero", **options)': {"probe_here", "sharded_here", "last_here"},
    'train(1, method="zero")\ndef old():\n    train(1)': {"probe_here", "last_here"},  # nothing calls it
    "train(1, **options)": {"plain_here", "probe_here", "sharded_here", "last_here"},
    "import fire\nfire.Fire(train)": {"plain_here", "probe_here", "sharded_here", "last_here"},
    'train(1)\nchosen = {"a": train}': {"plain_here", "probe_here", "sharded_here", "last_here"},
}


def names(text: str) -> set[str]:
    return {call.name for call in read(text).calls if call.name.endswith("_here")}


@pytest.mark.parametrize("call", CALLS)
def test_a_branch_that_no_call_takes_is_not_read(call: str) -> None:
    assert names(f"{CHOOSES}{call}\n") == CALLS[call]


@pytest.mark.parametrize(
    "body",
    [
        "method = other\n    if method == 'zero':",  # changed before it is tested
        "if method == 'zero' or data:",
        "if data == 'zero':",
        "if method == other:",
    ],
)
def test_a_branch_that_may_be_taken_is_read(body: str) -> None:
    assert names(f"def train(data, method):\n    {body}\n        probe_here()\ntrain(x, 'plain')\n") == {"probe_here"}


def test_a_decorator_may_pass_other_values() -> None:
    text = "import app\n@app.command()\ndef f(wide=False):\n    if wide:\n        probe_here()\nf()\n"
    assert names(text) == {"probe_here"}


def test_the_class_of_the_other_branch_is_not_reached(tmp_path: Path) -> None:
    (tmp_path / "engines.py").write_text(
        "class Plain:\n    def train(self, loss):\n        plain_here(loss.backward())\n"
        "class Sharded:\n    def train(self, loss):\n        probe_here()\n"
        "def choose(kind='plain'):\n    if kind == 'plain':\n        return Plain()\n    return Sharded()\n"
    )
    (tmp_path / "train.py").write_text("import engines\nengines.choose(kind='sharded').train(1)\n")
    found = training_script_read.read(tmp_path / "train.py")
    assert {call.name for call in found.calls if call.reached and call.name.endswith("_here")} == {"probe_here"}


def test_a_function_of_a_package_is_not_a_method_that_returns_its_object(tmp_path: Path) -> None:
    """`model.train()` returns the model, but `kit.train()` is a function that kit's __init__ imports."""
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "__init__.py").write_text("from .core import *\n")
    (tmp_path / "kit" / "core.py").write_text(
        "class Plain:\n    def train(self):\n        plain_here(loss.backward())\n"
        "class Sharded:\n    def train(self):\n        probe_here()\n"
        "def train(kind='plain'):\n    if kind == 'plain':\n        made = Plain()\n    else:\n"
        "        made = Sharded()\n    return made\n"
    )
    (tmp_path / "train.py").write_text("import kit\nmade = kit.train(kind='sharded')\nmade.train()\n")
    found = training_script_read.read(tmp_path / "train.py")
    assert {call.name for call in found.calls if call.reached and call.name.endswith("_here")} == {"probe_here"}


def test_a_script_that_is_walked_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kit.py").write_text(f"import torch.distributed\n{CHOOSES}")
    (tmp_path / "train.py").write_text('import kit\nkit.train(1, method="zero")\n')
    opened: list[str] = []

    def read_bytes(path: Path) -> bytes:
        opened.append(path.name)
        return path.read_bytes()

    monkeypatch.setattr(local_modules, "read_bytes", read_bytes)
    found = training_script_read.read(tmp_path / "train.py")
    assert {call.name for call in found.calls if call.name.endswith("_here")} == CALLS['train(1, method="zero")']
    assert opened == ["kit.py"] and found.files == ("kit.py",)


FLAG = "def main(rank, step):\n    {}\n    if should_log:\n        probe_here()\nmain(0, 1)\n"
# What gives the variable its value, and the ranks for which it is true.
FLAGS: dict[str, tuple[str, ...]] = {
    "should_log = False\n    if step % 4 == 0:\n        should_log = True": (),
    "should_log = True": (),
    "should_log = False\n    if rank == 0:\n        should_log = True": ("main",),
    "should_log = True\n    should_log = rank == 0": ("main",),
    "should_log = True\n    should_log = options.ask()": ("main",),
    "if options.quiet:\n        should_log = True\n    else:\n        should_log = options.ask()": ("main",),
    "pass": ("main",),
}


@pytest.mark.parametrize("body", FLAGS)
def test_a_flag_that_every_rank_sets_is_not_a_condition_on_the_rank(body: str) -> None:
    call = next(call for call in read(FLAG.format(body)).calls if call.name == "probe_here")
    assert call.guards == FLAGS[body]


def test_another_function_may_change_a_global_flag() -> None:
    text = "is_main = True\ndef start():\n    global is_main\n    is_main = False\n"
    text += "start()\nif is_main:\n    probe_here()\n"
    assert next(call for call in read(text).calls if call.name == "probe_here").guards == ("main",)


CAUGHT = {
    "except OSError:\n    print()": ("try OSError",),
    "except FileExistsError:\n    pass": ("try OSError",),
    "except OSError as e:\n    if e.errno != errno.EEXIST:\n        raise": ("try OSError",),
    "except Exception:\n    pass": ("try",),
    "except OSError:\n    raise": (),
    "except OSError:\n    sys.exit(1)": (),
    "except KeyError:\n    pass": (),
}


@pytest.mark.parametrize("handler", CAUGHT)
def test_which_errors_are_caught(handler: str) -> None:
    text = f"import errno, sys\ntry:\n    probe_here()\n{handler}\n"
    assert next(call for call in read(text).calls if call.name == "probe_here").within == CAUGHT[handler]


CREATED = "import hydra\n{}\n@hydra.main()\ndef main(cfg):\n    {}\n    trainer.fit({})\nmain()\n"
BY_CONFIG = (
    ("from lightning import Trainer", "trainer: Trainer = hydra.utils.instantiate(cfg.trainer)", "model", "lightning"),
    ("import pytorch_lightning as pl", "trainer: pl.Trainer = hydra.utils.instantiate(cfg.t)", "model", "lightning"),
    ("import lightning as L", "trainer = hydra.utils.instantiate(cfg.t)", "model, datamodule=data", "lightning"),
    ("import lightning as L", "trainer = hydra.utils.instantiate(cfg.t)", "model, data", None),
    ("from engine import Trainer", "trainer: Trainer = hydra.utils.instantiate(cfg.t)", "model", None),
)


@pytest.mark.parametrize(("imports", "made", "given", "speaks"), BY_CONFIG)
def test_a_trainer_that_a_config_creates(imports: str, made: str, given: str, speaks: str | None) -> None:
    assert read(CREATED.format(imports, made, given)).speaks == speaks


SPAWNED = """\
import torch
def work({parameter}, count):
    if {parameter} == 0:
        probe_here()
{start}
"""


@pytest.mark.parametrize(
    ("parameter", "start", "guards"),
    [
        ("worker", "torch.multiprocessing.spawn(work, args=(2,), nprocs=2)", ("local_main",)),
        ("worker", "if count == 1:\n    work(0, 1)\nelse:\n    torch.multiprocessing.spawn(fn=work)", ("local_main",)),
        ("worker", "import torch.multiprocessing as mp\nmp.start_processes(work, nprocs=2)", ("local_main",)),
        ("rank", "torch.multiprocessing.spawn(work, args=(2,), nprocs=2)", ("main",)),
        ("worker", "work(0, 1)\ntorch.multiprocessing.spawn(other)", ()),
        ("worker", "for at in range(2):\n    work(at, 2)", ()),
    ],
)
def test_the_first_argument_of_a_spawned_function_is_the_rank(
    parameter: str, start: str, guards: tuple[str, ...]
) -> None:
    found = [one for one in read(SPAWNED.format(parameter=parameter, start=start)).calls if one.name == "probe_here"]
    assert [one.guards for one in found] == [guards]


def test_a_spawned_function_can_be_a_method_or_come_from_another_module(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "import torch.distributed\ndef work(at, run):\n    if at == 0:\n        probe_here()\n"
    )
    (tmp_path / "train.py").write_text("import torch\nfrom loop import work\ntorch.multiprocessing.spawn(work)\n")
    found = training_script_read.read(tmp_path / "train.py")
    assert [one.guards for one in found.calls if one.name == "probe_here"] == [("local_main",)]
    text = "class Run:\n    def work(self, at):\n        if at == 0:\n            probe_here()\n"
    text += "    def start(self):\n        torch.multiprocessing.spawn(self.work)\nRun().start()\n"
    assert [one.guards for one in read(text).calls if one.name == "probe_here"] == [("local_main",)]


DEVICES = """\
import torch
DEVICE = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
NAMED: str = "cuda:0"
def move(model):
    return model.to(DEVICE)
def name():
    return NAMED
def count(model):
    return len(list(model.parameters()))
"""


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        ("from kit import count\ncount(1)", True),
        ("from kit import move, name\nmove(1)\nname()", False),
        ("from kit import DEVICE as here, NAMED as there\ncount(here, there)", False),
        ("import kit\ncount(kit.DEVICE, kit.NAMED)", False),
        ("from kit import *\ndef f():\n    return DEVICE, NAMED\nf()", False),
        ("from kit import *\ndef f():\n    return DEVICE, NAMED", True),
    ],
)
def test_a_variable_of_a_module_may_not_be_read(tmp_path: Path, text: str, unused: bool) -> None:
    (tmp_path / "kit.py").write_text(DEVICES)
    (tmp_path / "train.py").write_text(f"{text}\n")
    found = training_script_read.read(tmp_path / "train.py")
    assert {one.unused for one in found.calls if one.name == "torch.device"} == {unused}
    assert {one.unused for one in found.sets if one.target == "NAMED"} == {unused}


SAME_NAME = """\
def evaluate(model):
    probe_here()
def load({parameters}):
    {first}
    if evaluate:
        other()
load({given})
if rank == 0:
    evaluate(1)
"""


@pytest.mark.parametrize(
    ("parameters", "first", "given", "guards"),
    [
        ("evaluate=False", "pass", "", ("main",)),
        ("evaluate", "pass", "evaluate=True", ("main",)),
        ("data", "evaluate = False", "1", ("main",)),
        ("data", "for evaluate in data:\n        evaluate(data)", "1", ("main",)),
        ("data", "pass", "1", ()),  # the function itself
        ("evaluate", "evaluate(2)", "evaluate", ()),  # the function, passed as an argument
    ],
)
def test_a_variable_with_the_name_of_a_function(
    parameters: str, first: str, given: str, guards: tuple[str, ...]
) -> None:
    found = read(SAME_NAME.format(parameters=parameters, first=first, given=given))
    assert [one.guards for one in found.calls if one.name == "probe_here"] == [guards]
