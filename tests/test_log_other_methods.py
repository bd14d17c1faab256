"""Which messages that usually are about Trainer, mmengine or a package's release are about the script's own code?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

TRAINER = ("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs, num_items_in_batch=n)")
PLOT = ("matplotlib/axes/_axes.py", "plot", "lines = self._get_lines(x)"), ("matplotlib/base.py", "args", "n = x.shape")
LOG = "TypeError: log() takes 2 positional arguments but 3 were given"


@pytest.mark.parametrize(
    ("calls", "error", "title", "words", "never"),
    [
        ([(SCRIPT, "main", "self.log('x', 1)")], LOG, "passes 3 positional arguments to log()", "def log", "Trainer"),
        ([(SCRIPT, "main", "trainer.train()"), TRAINER], LOG, "log() overrides a method of Trainer", "4.47", "grep"),
        (
            [(SCRIPT, "main", "fit()")],
            LOG.replace("log()", "MyTrainer.log()"),
            "overrides a method of Trainer",
            "4.47",
            "grep",
        ),
        ([], LOG, "log() is called with other arguments than it takes", "If it overrides a method", "grep -n "),
        (
            [(SCRIPT, "main", "optimizer.train()")],
            "AttributeError: 'AdamW' object has no attribute 'train'",
            "calls train() of an optimizer (AdamW)",
            "model.train()",
            "accelerate",
        ),
        (
            [(SCRIPT, "main", "trainer.train()"), TRAINER],
            "AttributeError: 'AdamW' object has no attribute 'train'",
            "accelerate is too old",
            "0.34",
            "schedulefree",
        ),
        (
            [(SCRIPT, "main", "@NETS.register()")],
            "KeyError: 'Tiny is already registered in nets at models.tiny'",
            "models.tiny has it already",
            "under two names",
            "mmengine and mmcv",
        ),
        (
            [(SCRIPT, "main", "@NETS.register()")],
            "KeyError: 'SiLU is already registered in activation at torch.nn'",
            "the installed torch.nn has it already",
            "mmengine",
            "editable",
        ),
        # What a library of functions got from the script.
        (
            [(SCRIPT, "main", "axes.plot(x)"), *PLOT],
            "AttributeError: 'NoneType' object has no attribute 'shape'",
            "fit.py:7 in main raised",
            "None",
            "release of matplotlib",
        ),
        # A module of the project is not installed.
        (
            [(SCRIPT, "main", "tools.run()")],
            "AttributeError: module 'tools' has no attribute 'run'",
            "the tools that is imported has no run",
            "module of the project",
            "installed tools",
        ),
    ],
)
def test_it_is_the_own_code(
    calls: list[tuple[str, str, str]], error: str, title: str, words: str, never: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames(*calls) if calls else ''}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)
    assert never not in f"{found} {text}", (found, text)
