"""What a port must not change or leave as it is without a word: the results of several ranks would be wrong."""

from __future__ import annotations

import pytest

from mgpu.port.port_script import port
from mgpu.port.ported import Ported
from tests.test_port_changes import HEAD, LOOP, ported

pytestmark = pytest.mark.quick

SIZED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
batch_size = 4
{functions}
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=batch_size, shuffle=True)
for x, y in loader:
    loss = nn.functional.mse_loss(model({first}), y)
    loss.backward()
    optimizer.step()
{later}"""
NOISE = "def noise(batch_size):\n    return torch.randn(batch_size, 2)\n"
PHASES = """\
loaders = {{"train": loader, "valid": DataLoader(other, batch_size=4)}}
for phase in ["train", "valid"]:
    found = []
    for x, y in loaders[phase]:
        parts = []
        output = model(x)
        parts.append(output * 2)
        loss = nn.functional.mse_loss(output, y)
        {collected}
        if phase == "train":
            loss.backward()
            optimizer.step()
"""


def decisions(result: Ported) -> list[str]:
    return [text for _, text in result.decisions]


def sized(functions: str, first: str, later: str = "") -> Ported:
    return port(SIZED.format(functions=functions, first=first, later=later), "nothing")


def test_a_size_that_the_caller_has_of_the_ranks_part_is_not_divided() -> None:
    part = sized(NOISE, "noise(x.size(0))", "with torch.no_grad():\n    noise(batch_size)\n")
    assert "num_processes" not in part.text and not part.decisions
    through = NOISE + "def of_batch(x):\n    return noise(batch_size=x.size(0))\n"
    assert "num_processes" not in sized(through, "of_batch(x)").text
    assert "torch.randn((batch_size // accelerator.num_processes), 2)" in sized(NOISE, "noise(batch_size)").text


def test_a_size_that_differs_between_callers_is_marked() -> None:
    found = sized(NOISE, "noise(x.size(0)) + noise(batch_size)")
    assert "num_processes" not in found.text
    assert len(decisions(found)) == 1 and "callers give the size of the whole batch" in decisions(found)[0]


def test_an_attribute_of_the_batch_size_is_divided_as_before() -> None:
    text = SIZED.format(functions="", first="torch.ones(args.size, 2)", later="").replace("=batch_size,", "=args.size,")
    assert "torch.ones((args.size // accelerator.num_processes), 2)" in ported(text)


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        ("import torch.multiprocessing as mp\nmp.set_start_method('spawn')\nmp.Process(target=work).start()\n", True),
        ("import multiprocessing\nmultiprocessing.get_context('spawn')\nmultiprocessing.Pool(2).map(f, x)\n", True),
        ("import torch.multiprocessing as mp\nmp.spawn(work, nprocs=2)\n", True),
        (
            "import multiprocessing as mp\nclass Agent(mp.Process):\n    pass\n"
            "mp.set_start_method('forkserver', True)\nAgent()\n",
            True,
        ),
        ("import multiprocessing\nmultiprocessing.Pool(2).map(f, x)\n", False),
    ],
)
def test_a_script_whose_own_processes_import_it_again_is_refused(before: str, refused: bool) -> None:
    result = port(HEAD + before + LOOP, "nothing")
    assert ("starts processes of its own" in result.refused) is refused
    assert not result.decisions


def test_processes_that_are_forked_are_marked() -> None:
    result = port(HEAD + "import multiprocessing\nmultiprocessing.Process(target=work).start()\n" + LOOP, "nothing")
    assert not result.refused and any("method fork" in text for text in decisions(result))


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("os.makedirs(out)", "os.makedirs(out)"),
        ("os.mkdir(out)", "os.mkdir(out)"),
        ("os.makedirs(out, exist_ok=False)", "os.makedirs(out, exist_ok=False)"),
        ("pathlib.Path(out).mkdir(parents=True)", "pathlib.Path(out).mkdir(parents=True)"),
        ("folder.mkdir(parents=True)", "folder.mkdir(parents=True)"),
    ],
)
def test_one_rank_creates_a_new_folder_and_the_others_wait(call: str, after: str) -> None:
    text = ported(f"import os, pathlib\n{HEAD}{call}\n{LOOP}")
    assert f"if accelerator.is_main_process:\n    {after}\naccelerator.wait_for_everyone()\n" in text


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("if not os.path.exists(out):\n    os.mkdir(out)", "    os.makedirs(out, exist_ok=True)"),
        ("if not folder.exists():\n    folder.mkdir(parents=True)", "    folder.mkdir(parents=True, exist_ok=True)"),
        ("if not folder.exists():\n    folder.mkdir()", "    folder.mkdir(exist_ok=True)"),
        (
            "if os.path.isdir(out):\n    pass\nelse:\n    os.makedirs(out, exist_ok=False)",
            "    os.makedirs(out, exist_ok=True)",
        ),
        ("try:\n    os.mkdir(out)\nexcept OSError:\n    pass", "try:\n    os.mkdir(out)\nexcept OSError:\n    pass"),
        ("os.makedirs(out, exist_ok=True)", "\nos.makedirs(out, exist_ok=True)\n"),
    ],
)
def test_a_folder_that_another_rank_has_created_is_accepted(statement: str, after: str) -> None:
    text = ported(f"import os, pathlib\n{HEAD}{statement}\n{LOOP}")
    assert after in text and "wait_for_everyone" not in text and "is_main_process" not in text


def test_a_folder_that_is_created_in_a_loop_is_marked() -> None:
    result = port("import os\n" + HEAD + LOOP + "    os.mkdir(name(x))\nfor n in names:\n    os.mkdir(n)\n", "nothing")
    assert sum("creates this folder" in text for text in decisions(result)) == 2
    assert "wait_for_everyone" not in result.text


@pytest.mark.parametrize(
    ("collected", "marked"),
    [
        ("found.extend(output.detach().cpu().numpy())", False),  # gathered or marked as a tensor of the batch
        ("array = output.detach().cpu().numpy()\n        found.extend([array[s] for s in range(len(array))])", True),
        ("found.append(loss.item())", False),
    ],
)
def test_what_a_loop_of_two_phases_collects_is_gathered_or_marked(collected: str, marked: bool) -> None:
    result = port(HEAD + PHASES.format(collected=collected), "nothing")
    assert any(text.startswith("array: this collects only the part") for text in decisions(result)) is marked
    assert not any("parts" in text for text in decisions(result))


def test_predictions_that_an_evaluation_of_the_training_data_collects_are_marked() -> None:
    result = port(HEAD + LOOP + "kept = []\nfor x, y in loader:\n    kept.append(score(model, x))\n", "nothing")
    assert any("evaluates only its part" in text for text in decisions(result))
