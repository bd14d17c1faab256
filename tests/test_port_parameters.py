"""Are all gradients of a ported script averaged, and does no rank wait for one that a step does not compute?"""

from __future__ import annotations

import pytest

from mgpu.port.port_script import port
from tests.test_port_changes import HEAD, LOOP, ported

pytestmark = pytest.mark.quick

NET = """\
class Net(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.wide = wide
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 1)

    def forward(self, x):
        {}
"""


def looks(forward: str, *, rest: str = "", made: str = "self.second = nn.Linear(2, 1)") -> bool:
    """Whether the port lets DistributedDataParallel look for unused parameters."""
    net = NET.format(forward.replace("\n", "\n        ")).replace("self.second = nn.Linear(2, 1)", made)
    text = HEAD.replace("model = nn.Linear(2, 1)\n", f"{net}{rest}\nmodel = Net(True)\n") + LOOP
    found = ["find_unused_parameters=True" in ported(text, ddp=ddp) for ddp in (False, True)]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    "forward",
    [
        "return self.first(x)",
        "x = self.first(x)\nif self.wide:\n    x = self.second(x)\nreturn x",
        "return self.second(self.first(x)) if self.wide else self.first(x)",
        "x = self.first(x)\nif self.wide:\n    return self.end(x)\nreturn x",
        "x = self.first(x)\nreturn self.wide and self.second(x)",
        "x = self.first(x)\nif x.sum() > 0:\n    return x\nelse:\n    return self.second(x)",
    ],
)
def test_a_layer_that_a_step_may_not_use(forward: str) -> None:
    assert looks(forward, rest="    def end(self, x):\n        return self.second(x)\n")


@pytest.mark.parametrize(
    "forward",
    [
        "return self.second(self.first(x))",
        "x = self.first(x)\nfor _ in range(3):\n    x = self.second(x)\nreturn x",
        "x = self.first(x)\nif self.wide:\n    return self.second(x)\nelse:\n    return self.second(x).tanh()",
        "x = self.first(x)\nif self.wide == 1:\n    return self.second(x)\nelif self.wide:\n    return -self.second(x)",
        "x = self.first(x)\nreturn self.end(x)",
        "x = self.first(x)\nif self.training:\n    x = self.second(x)\nreturn x",
        "x = self.first(x)\nif self.second is not None:\n    x = self.second(x)\nreturn x",
        "for layer in self.children():\n    x = layer(x)\nreturn x",
    ],
)
def test_layers_that_each_step_uses(forward: str) -> None:
    assert not looks(forward, rest="    def end(self, x):\n        return self.second(x)\n")


@pytest.mark.parametrize(
    "made",
    [
        "self.second = nn.Dropout(0.1)",  # no parameters
        "if wide:\n            self.second = nn.Linear(2, 1)",  # perhaps the same condition
        "self.second = nn.Linear(2, 1)\n        self.first.weight = self.second.weight",
        "self.second = nn.Linear(2, 1)\n        self.both = nn.Sequential(self.first, self.second)",
        "self.second = nn.Parameter(torch.ones(1), requires_grad=False)",
    ],
)
def test_what_needs_no_look(made: str) -> None:
    assert not looks("x = self.first(x)\nif self.wide:\n    x = self.second(x)\nreturn x", made=made)


def test_a_layer_that_the_training_reads_itself() -> None:
    loop = LOOP.replace("y)", "y) + model.second.weight.norm()")
    text = HEAD.replace("model = nn.Linear(2, 1)\n", NET.format("return self.first(x)") + "\nmodel = Net(True)\n")
    assert "find_unused_parameters" not in ported(text + loop)
    assert "find_unused_parameters" in ported(text + LOOP + "print(model.second.weight)\n")


def test_the_reason_names_the_layer_and_its_line() -> None:
    text = (
        HEAD.replace("model = nn.Linear(2, 1)\n", NET.format("return self.first(x)") + "\nmodel = Net(True)\n") + LOOP
    )
    reasons = " ".join(reason for hunk in port(text, "nothing").hunks for reason in hunk.reasons)
    assert "A step may not use Net.second (line 9) of the model" in reasons


def test_recomputed_activations_are_marked() -> None:
    """DistributedDataParallel cannot look for unused parameters there."""
    head = HEAD.replace("model = nn.Linear(2, 1)\n", NET.format("return self.first(x)") + "\nmodel = Net(True)\n")
    text = head + LOOP.replace("model(x)", "torch.utils.checkpoint.checkpoint(model, x)")
    result = port(text, "nothing")
    assert "find_unused_parameters" not in result.text
    assert any("each step must use Net.second (line 9)" in why for _, why in result.decisions)


@pytest.mark.parametrize("ddp", [False, True])
def test_gradients_of_a_method_are_averaged_after_the_backward_pass(ddp: bool) -> None:
    lines = ported(HEAD + LOOP.replace("loss.backward", "model.loss(x).backward"), ddp=ddp).splitlines()
    ranks = "ranks" if ddp else "accelerator"
    at = lines.index("    for parameter in model.parameters():")
    assert "backward" in lines[at - 1] and "optimizer.step()" in lines[at + 3]
    assert lines[at + 2].strip() == f'parameter.grad = {ranks}.reduce(parameter.grad, reduction="mean")'


def test_each_backward_pass_averages_once() -> None:
    loop = LOOP.replace("    loss.backward()", "    loss = loss + model.a(x) + model.b(x)\n    loss.backward()")
    assert ported(HEAD + loop).count("for parameter in model.parameters():") == 1


def test_a_loss_without_parameters_is_not_wrapped() -> None:
    text = HEAD.replace("optimizer =", "class MyLoss(nn.Module):\n    pass\ncriterion = MyLoss()\noptimizer =", 1)
    text = text.replace("model.parameters()", "[*model.parameters(), *criterion.parameters()]")
    new = ported(text + LOOP.replace("nn.functional.mse_loss", "criterion"))
    assert "if list(criterion.parameters()):\n    criterion = accelerator.prepare(criterion)\n" in new
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in new


HELD = """\
class Holder(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)
"""


@pytest.mark.parametrize("wrap", ["nn.DataParallel(Holder(model))", "Holder(model)"])
def test_a_model_that_is_trained_only_inside_another_one_is_not_ported(wrap: str) -> None:
    text = HEAD.replace("optimizer =", f"{HELD}held = {wrap}\noptimizer =") + LOOP.replace("model(x)", "held(x)")
    result = port(text, "nothing")
    assert "held(...) trains a model that another one holds" in result.refused
    assert result.text == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("held(x)", "model(x)"),  # the model itself is trained
        ("model.parameters()", "held.parameters()"),  # the holder is prepared
        ("    loss =", "    with torch.no_grad():\n        target = held(x)\n    loss = model(x) +"),
    ],
)
def test_a_model_that_another_one_holds_is_ported(old: str, new: str) -> None:
    text = HEAD.replace("optimizer =", f"{HELD}held = Holder(model)\noptimizer =") + LOOP.replace("model(x)", "held(x)")
    assert "prepare(" in ported(text.replace(old, new))


def test_a_holder_that_is_made_of_the_prepared_model_is_ported() -> None:
    text = HEAD + f"{HELD}held = Holder(model)\n" + LOOP.replace("model(x)", "held(x)")
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in ported(text)


@pytest.mark.parametrize("call", ["model.module(x)", "model.module.forward(x)", "model.module.body(x)"])
def test_the_gradients_of_the_model_inside_data_parallel_are_averaged(call: str) -> None:
    text = HEAD.replace("nn.Linear(2, 1)\n", "nn.DataParallel(nn.Linear(2, 1))\n") + LOOP.replace("model(x)", call)
    assert 'parameter.grad = accelerator.reduce(parameter.grad, reduction="mean")' in ported(text)
    near_miss = text.replace(call, "model(x)") + "torch.save(model.module.state_dict(), 'x')\n"
    assert "parameter.grad" not in ported(near_miss)
