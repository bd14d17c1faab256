"""A traceback pasted into a report, whose last line lost its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read

FRAMES = """\
  Traceback (most recent call last):
  File "/home/me/set/tools/train.py", line 16, in <module>
    main()
  File "/home/me/set/lib/models/local.py", line 20, in <module>
      {code}
{error}
"""
ABSENT = "      ModuleNotFoundError: No module named 'mamba_ssm.ops.triton.layernorm'"


@pytest.mark.parametrize(
    ("code", "error", "cause"),
    [
        ("from mamba_ssm.ops.triton.layernorm import rms_norm", ABSENT, "log_submodule_missing"),
        ("**from mamba_ssm.ops.triton.layernorm import rms_norm", f"{ABSENT}**", "log_submodule_missing"),
        ("from mine import x", "      # ValueError: is what this raises", "log_traceback_cut"),
        ("from mine import x", "", "log_traceback_cut"),
    ],
)
def test_an_exception_that_is_indented(code: str, error: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(FRAMES.format(code=code, error=error))
    first = root_cause.find_cause(read.read_logs([tmp_path / "x.log"]), None).first
    assert first is not None and first.id == cause


def test_code_that_looks_like_it_is_not_the_exception(tmp_path: Path) -> None:
    inner = "      raise KeyError: 'no'\n  File \"/home/me/set/lib/a.py\", line 3, in f\n    x = y['z']\nKeyError: 'z'"
    (tmp_path / "x.log").write_text(FRAMES.format(code="    ValueError: a line of a docstring", error=inner))
    log = read.read_logs([tmp_path / "x.log"])
    assert [(one.type, one.message) for one in log.raised] == [("KeyError", "'z'")]
