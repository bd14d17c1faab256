"""Options that a program did not accept, below the usage that it printed: which one is meant, and when it is not known.

The usages are written here, in the form of argparse.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import explained

USAGE = """\
usage: fit.py [-h] [--data DATA] [--warmup-steps WARMUP_STEPS]
              [--grad_accum GRAD_ACCUM] [--learning-rate LEARNING_RATE]
              [--lr-min LR_MIN] [--lr_min LR_MIN] [--bf16]
"""


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ("--warmup_steps 100", "the script has no option --warmup_steps: it is written --warmup-steps there"),
        ("--grad-accum=4", "the script has no option --grad-accum: it is written --grad_accum there"),
        ("7 --learningRate 0.1", "the script has no option --learningRate: it is written --learning-rate there"),
        ("--extra --learnig-rate 0.1",  # codespell:ignore learnig
         "the script has no option --learnig-rate: probably it is --learning-rate there"),  # codespell:ignore learnig
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_the_option_that_is_meant(arguments: str, title: str, prefix: str, tmp_path: Path) -> None:
    lines = f"{USAGE}fit.py: error: unrecognized arguments: {arguments}\n".splitlines()
    row, found, words = explained(tmp_path, "epochs\n" + "".join(f"{prefix}{line}\n" for line in lines))
    assert (row, found) == ("log_argument_unknown", title)
    assert arguments in words


@pytest.mark.parametrize(
    "text",
    [
        f"{USAGE}fit.py: error: unrecognized arguments: --momentum 0.9\n",  # nothing is alike
        f"{USAGE}fit.py: error: unrecognized arguments: --fp16\n",  # another option, not a mistake
        f"{USAGE}fit.py: error: unrecognized arguments: --lrmin 0.1\n",  # two are alike
        f"{USAGE}fit.py: error: unrecognized arguments: --data two\n",  # the option is not the fault
        "fit.py --warmup-steps 3\nfit.py: error: unrecognized arguments: --warmup_steps 3\n",  # no usage
    ],
)
def test_no_option_is_meant(text: str, tmp_path: Path) -> None:
    row, title, _ = explained(tmp_path, text)
    assert row == "log_argument_unknown"
    assert title.startswith("the script has no such option: --")
