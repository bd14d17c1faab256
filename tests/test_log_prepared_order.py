"""Results of accelerator.prepare that get each other's names: the line that does it is named, not a release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mgpu.check import Problem
from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.snapshot import Definition
from tests.test_log_contexts import RAISED

ITERATED = ("for x, y in loader:", "TypeError: 'AcceleratedOptimizer' object is not iterable")
# accelerate's loader passes a missing attribute on to torch's.
STEPPED = (
    'optimizer.step()\n  File "/v/lib/python3.11/site-packages/accelerate/data_loader.py", line 451, in __getattr__\n'
    "    return getattr(self.base_dataloader, name)",
    "AttributeError: 'DataLoader' object has no attribute 'step'",
)
SWAPPED = "model, optimizer, loader = accelerator.prepare(model, loader, optimizer)"


def cause(failed: tuple[str, str], folder: Path, *defined: Definition) -> Problem:
    code, error = failed
    (folder / "run.log").write_text(RAISED.format(code=code, error=error))
    log = read.read_logs([folder / "run.log"])
    (raised,) = log.raised
    first = root_cause.find_cause(replace(log, raised=(replace(raised, defined=defined),)), None).first
    assert first is not None and first.outcome.problem is not None
    return first.outcome.problem


def made(name: str, code: str) -> Definition:
    return Definition(name, "set", "train.py:12 in main", code)


@pytest.mark.parametrize(("failed", "name"), [(ITERATED, "loader"), (STEPPED, "optimizer")])
def test_the_line_that_exchanges_the_names(failed: tuple[str, str], name: str, tmp_path: Path) -> None:
    found = cause(failed, tmp_path, made(name, SWAPPED))
    names = "optimizer is the prepared loader and loader is the prepared optimizer"
    assert found.title == f"the results of prepare() get each other's names: {names} (train.py:12 in main)"
    assert SWAPPED in found.cause and found.fixes[0].text.endswith("arguments: model, loader, optimizer = ...")
    renamed = SWAPPED.replace("accelerator.", "a.")
    accelerator = made("a", "a = Accelerator()")
    assert cause(failed, tmp_path, made(name, renamed), accelerator).title == found.title


@pytest.mark.parametrize(("failed", "what"), [(ITERATED, "an optimizer"), (STEPPED, "a data loader")])
def test_without_that_line_it_is_a_reason_among_others(failed: tuple[str, str], what: str, tmp_path: Path) -> None:
    for defined in (
        (),
        (made("loader", "loader, optimizer = accelerator.prepare(loader, optimizer)"),),
        (made("loader", "net, loader = accelerator.prepare(model, data)"),),
        (made("loader", SWAPPED.replace("accelerator", "tool")),),
        (made("other", SWAPPED),),
    ):
        found = cause(failed, tmp_path, *defined)
        assert found.title.startswith(f"{what} that accelerator.prepare returned is used as another object")
        assert "installed accelerate" not in found.title + found.cause


def test_another_missing_attribute_is_not_explained_by_it(tmp_path: Path) -> None:
    for code, error in (
        ("loader.step()", "AttributeError: 'DataLoader' object has no attribute 'step'"),  # of torch alone
        ("optimizer.foo()", "AttributeError: 'AcceleratedOptimizer' object has no attribute 'foo'"),
    ):
        assert "prepare" not in cause((code, error), tmp_path).title
