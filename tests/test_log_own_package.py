"""What is missing is in the project itself: the package that the script is in, an import that is hidden, a None."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read

HEAD = "Traceback (most recent call last):\n"


def told(text: str, folder: Path) -> str:
    (folder / "x.log").write_text(HEAD + text)
    first = root_cause.find_cause(read.read_logs([folder / "x.log"]), None).first
    assert first is not None and first.outcome.problem is not None
    problem = first.outcome.problem
    return " | ".join(
        [problem.title, problem.cause, *(part for fix in problem.fixes for part in (fix.text, *fix.commands))]
    )


@pytest.mark.parametrize(
    ("file", "module", "shown", "absent"),
    [
        ("talkative/bin/train.py", "talkative", "export PYTHONPATH=$PWD:$PYTHONPATH", "pip install talkative"),
        ("talkative/bin/train.py", "talkative", "python -m talkative.bin.train", "pip install talkative"),
        ("/home/me/set/talkative/run.py", "talkative.nets", "PYTHONPATH=/home/me/set:$PYTHONPATH", "install talkative"),
        ("/home/me/talkative/run-all.py", "talkative", "PYTHONPATH=/home/me:$PYTHONPATH", "python -m"),
        ("/home/me/talkative.py", "talkative", "not installed", "python -m talkative"),
        ("/home/me/other/train.py", "talkative", "pip install talkative", "folder above it"),
        ("/home/me/wandb/train.py", "wandb", "pip install wandb", "folder above it"),
    ],
)
def test_a_package_that_the_script_is_in(file: str, module: str, shown: str, absent: str, tmp_path: Path) -> None:
    text = f'  File "{file}", line 9, in <module>\n    from {module} import x\n'
    found = told(f"{text}ModuleNotFoundError: No module named '{module}'\n", tmp_path)
    assert shown in found and absent not in found


@pytest.mark.parametrize(("file", "hidden"), [("model/__init__.py", True), ("model/nets.py", False)])
def test_an_import_whose_error_is_hidden(file: str, hidden: bool, tmp_path: Path) -> None:
    text = '  File "/home/me/set/train.py", line 9, in <module>\n    from set.model import Net\n'
    error = f"ImportError: cannot import name 'Net' from 'set.model' (/home/me/set/{file})\n"
    assert ("in a `try`" in told(text + error, tmp_path)) is hidden


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("stat, infos = self._match(module.state_dict(), state['ema'])", False),  # state is what the caller passes
        ("infos = module.state_dict()", True),
    ],
)
def test_a_none_that_may_not_be_the_argument(line: str, named: bool, tmp_path: Path) -> None:
    text = (
        '  File "/home/me/set/solver.py", line 41, in setup\n    self.load(self.cfg.tuning)\n'
        f'  File "/home/me/set/solver.py", line 63, in load\n    {line}\n'
    )
    found = told(f"{text}AttributeError: 'NoneType' object has no attribute 'state_dict'\n", tmp_path)
    assert ("self.cfg.tuning" in found) is named
