"""Which tensor does a script's own line make on the CPU, and which calls make a number instead?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

DEVICES = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, {}!\n"


def answer(code: str, folder: Path) -> tuple[str, str]:
    text = frames((SCRIPT, "main", code)) + DEVICES.format("cuda:0 and cpu")
    return explained(folder, text)[1:]


@pytest.mark.parametrize(
    ("code", "title", "command"),
    [
        (
            "out = feats + torch.from_numpy(grid)",
            "torch.from_numpy(grid) makes",
            "torch.from_numpy(array).to(x.device)",
        ),
        ("out = feats * torch.ones(4)", "torch.ones(4) makes", "torch.ones(..., device=x.device)"),
        ("out = feats + torch.arange(9).unsqueeze(0)", "torch.arange(9) makes", "torch.arange(..., device=x.device)"),
        ("out = feats * torch.ones(int(k))", "torch.ones(int(k)) makes", "torch.ones(..., device=x.device)"),
    ],
)
def test_a_tensor_made_on_the_cpu(code: str, title: str, command: str, tmp_path: Path) -> None:
    found, words = answer(code, tmp_path)
    assert found.startswith(f"probably {title} a tensor on the CPU") and command in words, (found, words)
    assert "torch.set_default_device" in words


@pytest.mark.parametrize(
    "code",
    [
        "out = feats + bias * torch.rand(1).item()",
        "out = feats + bias if n < torch.arange(n).tolist()[1] else feats",
        "out = feats + bias * torch.randn(8).abs().sum().item()",
        "out = feats + bias * float(torch.rand(1))",
        "out = feats + sum(bias[i] for i in range(len(torch.zeros(3))))",
        "out = feats.view(torch.zeros(2, 3).shape) + bias",
    ],
)
def test_a_number_has_no_device(code: str, tmp_path: Path) -> None:
    assert "makes a tensor on the CPU" not in answer(code, tmp_path)[0]
