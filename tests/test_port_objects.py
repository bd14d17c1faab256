"""Are models, optimizers and sums found in the ways that scripts write them?"""

from __future__ import annotations

import re

import pytest

from mgpu.port.port_script import port
from tests.test_port_changes import HEAD, LOOP, ported

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "made",
    [
        "getattr(torch.optim, name)(model.parameters())",
        "torch.optim.__dict__[name](model.parameters())",
        "{'sgd': torch.optim.SGD, 'adam': torch.optim.Adam}[name](model.parameters())",
        "kind(model.parameters())",
    ],
)
@pytest.mark.parametrize("annotated", [False, True])
def test_an_optimizer_that_is_chosen_in_the_run(made: str, annotated: bool) -> None:
    text = HEAD.replace("torch.optim.SGD(model.parameters(), lr=0.1)", made)
    text = text.replace("optimizer =", "kind = torch.optim.Adam if c else torch.optim.SGD\noptimizer =", 1)
    if annotated:
        text = text.replace("model =", "model: nn.Module =", 1).replace("optimizer =", "optimizer: Optimizer =", 1)
    new = ported(text + LOOP)
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in new


@pytest.mark.parametrize("model", ["nn.Linear(2, 1)", "zoo.Net()"])
def test_parameters_that_a_function_collects(model: str) -> None:
    text = HEAD.replace("nn.Linear(2, 1)", model).replace("model.parameters()", "zoo.groups(model, 0.1)")
    new = ported(text + "model.train()\n" + LOOP)
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in new


def test_a_part_of_a_module_dict_is_averaged() -> None:
    text = HEAD.replace("nn.Linear(2, 1)", "nn.ModuleDict({'a': nn.Linear(2, 1)})") + LOOP.replace(
        "model(x)", "model['a'](x)"
    )
    result = port(text, "nothing")
    assert any("a part of model goes past" in why for hunk in result.hunks for why in hunk.reasons)
    assert "accelerator.unwrap_model(model)['a'](x)" in result.text


@pytest.mark.parametrize("size", ["x.size(0)", "len(x)", "x.shape[0]"])
def test_a_sum_that_is_divided_by_the_batch_is_its_mean(size: str) -> None:
    summed = LOOP.replace("y)", f"y, reduction='sum') / {size}")
    assert not port(HEAD + summed, "nothing").decisions
    assert not port(HEAD + LOOP.replace("y)", f"y, reduction='sum').div({size})"), "nothing").decisions
    assert port(HEAD + summed.replace(size, "3"), "nothing").decisions


def test_a_size_is_that_of_its_function() -> None:
    """Another function has a variable of the same name."""
    mean = (
        "def loss_of(x, y):\n    size = x.size(0)\n    return nn.functional.mse_loss(x, y, reduction='sum').div(size)\n"
    )
    text = f"{HEAD}def other():\n    size = args.size\n{mean}" + LOOP.replace("nn.functional.mse_loss", "loss_of")
    assert not port(text, "nothing").decisions


def test_a_device_of_a_checkpoint_is_the_cpu() -> None:
    """torch cannot restore to the device cpu:0, which Accelerate uses on CPU ranks."""
    text = (
        HEAD + LOOP + "device = torch.device('cuda')\nmodel.load_state_dict(torch.load('x.pt', map_location=device))\n"
    )
    assert "torch.load('x.pt', map_location=\"cpu\")" in ported(text)


@pytest.mark.parametrize(
    "read", ["loss.item()", "loss.detach().cpu().item()", "loss.data.cpu().numpy()", "float(loss)"]
)
def test_a_loss_that_is_read_before_the_backward_pass_is_that_of_all_ranks(read: str) -> None:
    new = ported(HEAD + LOOP.replace("    loss.backward()", f"    losses.append({read})\n    loss.backward()"))
    line = next(one for one in new.splitlines() if "losses.append" in one)
    assert 'accelerator.reduce(loss.detach(), reduction="mean")' in line


def test_a_loss_that_is_read_after_the_loop_is_that_of_all_ranks() -> None:
    loop = (
        "for epoch in range(2):\n" + "".join(f"    {line}\n" for line in LOOP.splitlines()) + "    print(loss.item())\n"
    )
    assert (
        '    loss = accelerator.reduce(loss.detach(), reduction="mean")\n    accelerator.print(loss.item())'
        in ported(HEAD + loop)
    )


def test_a_loss_that_is_written_before_the_backward_pass_is_no_collective_of_one_rank() -> None:
    text = HEAD + LOOP.replace("    loss.backward()", "    writer.add_scalar('loss', loss.item())\n    loss.backward()")
    result = port(text, "nothing")
    assert "is_main_process" not in result.text and any("writes this" in why for _, why in result.decisions)


def test_batches_of_a_sampler_of_the_script_are_not_split() -> None:
    """accelerate cannot split them: they have no size."""
    sampler = "class Episodes:\n    def __iter__(self):\n        yield torch.randperm(8)[:4]\n"
    text = re.sub(r"DataLoader\((\w+).*?\)\n", r"DataLoader(\1, batch_sampler=Episodes())\n", HEAD) + LOOP
    text = text.replace("model =", f"{sampler}model =", 1)
    result = port(text, "nothing")
    assert [why for _, why in result.decisions] == [
        "every rank trains on the batches of this batch_sampler (right, but not faster): let it make the rank's part."
    ]
    assert "prepare(model, optimizer)" in result.text


def test_a_question_of_the_script_is_marked() -> None:
    result = port(HEAD + "name = input('Folder? ')\n" + LOOP, "nothing")
    assert [why for _, why in result.decisions] == ["every rank waits for an answer, and only one of them can get it."]


@pytest.mark.parametrize(("read", "disabled"), [("bar.n", False), ("bar.close()", True)])
def test_a_bar_whose_count_is_read_counts_on_every_rank(read: str, disabled: bool) -> None:
    new = ported(f"from tqdm import tqdm\n{HEAD}bar = tqdm(total=8)\n{LOOP}    bar.update(1)\nx = {read}\n")
    assert ("disable=not" in new) == disabled


@pytest.mark.parametrize(
    "name", ["str(time.time())", "time.strftime('%H%M')", "f'{datetime.now()}'", "str(uuid.uuid4())"]
)
def test_a_name_of_a_file_by_time_is_marked(name: str) -> None:
    """Rank 1 looks for a checkpoint with another name than rank 0 has written."""
    imports = "import time\nimport uuid\nfrom datetime import datetime\n"
    text = f"{imports}{HEAD}name = 'x' + {name}\n{LOOP}began = time.time()\nprint(time.ctime())\n"
    result = port(text + "torch.save(1, name)\nmodel.load_state_dict(torch.load(name))\n", "nothing")
    marked = [line for (_, line), why in result.decisions if "each rank has another text here" in why]
    assert len(marked) == 1 and not port(text, "nothing").decisions


def test_the_ranks_wait_before_they_open_a_checkpoint() -> None:
    text = HEAD + LOOP + "torch.save(1, 'x')\nwith open('x', 'rb') as file:\n    state = torch.load(file)\n"
    assert "accelerator.wait_for_everyone()\nwith open('x', 'rb') as file:\n    state =" in ported(text)
