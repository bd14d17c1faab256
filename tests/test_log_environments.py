"""Packages, databases and process groups that do not fit the run, as a traceback shows it.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

NO_LOADER = "TypeError: load() missing 1 required positional argument: 'Loader'\n"
NO_GROUP = (
    "RuntimeError: Default process group has not been initialized, please make sure to call init_process_group.\n"
)
MAIN = (SCRIPT, "main", "out = model(x)")


@pytest.mark.parametrize(
    ("calls", "title", "fix"),
    [
        ([(SCRIPT, "<module>", "import dask"), ("dask/config.py", "collect_yaml", "data = yaml.load(f.read()) or {}")],
         "the installed PyYAML is too new for dask", "pip install 'pyyaml<6'  # Python 3.9 and earlier"),
        ([MAIN, ("gym_duckie/settings.py", "check_settings", "cfg = yaml.load(fp)")],
         "the installed PyYAML is too new for gym_duckie", "Loader=yaml.SafeLoader"),
        ([(SCRIPT, "main", "cfg = yaml.load(f)")], "PyYAML 6 needs to be passed how to read the file", "safe_load"),
    ],
)  # fmt: skip
def test_who_calls_yaml_without_a_loader(
    calls: list[tuple[str, str, str]], title: str, fix: str, tmp_path: Path
) -> None:
    _, found, words = explained(tmp_path, frames(*calls) + NO_LOADER)
    assert title in found and fix in words, (found, words)
    assert "<6" not in words or words.index("newer release") < words.index("<6")  # Python 3.10 cannot install it


@pytest.mark.parametrize(
    ("calls", "error", "row"),
    [
        # A call that Python refuses says nothing about settings, also in a file that has them.
        ([MAIN, ("acme_nets/config.py", "build", "return cls(**values)")],
         "TypeError: Head.__init__() missing 1 required positional argument: 'width'\n", ""),
        ([MAIN, ("acme_nets/config.py", "validate", "raise TypeError(TEXT)")],
         "TypeError: width must be a whole number of heads\n", "log_settings_rejected"),
    ],
)  # fmt: skip
def test_a_refused_call_is_no_rejected_setting(
    calls: list[tuple[str, str, str]], error: str, row: str, tmp_path: Path
) -> None:
    found, title, words = explained(tmp_path, frames(*calls) + error)
    assert (found == "log_settings_rejected") == bool(row), (found, title, words)


@pytest.mark.parametrize(
    ("calls", "synced"),
    [
        ([MAIN, ("torch/nn/modules/batchnorm.py", "forward", "n = torch.distributed.get_world_size(group)")], True),
        ([MAIN, ("mmcv/ops/sync_bn.py", "forward", "n = dist.get_world_size(self.group)")], True),
        ([MAIN, ("apex/parallel/optimized_sync_batchnorm.py", "forward", "n = get_world_size()")], True),
        ([(SCRIPT, "main", "dist.barrier()"), ("torch/distributed/distributed_c10d.py", "barrier", "g = _group()")],
         False),
    ],
)  # fmt: skip
def test_sync_batch_norm_without_a_process_group(
    calls: list[tuple[str, str, str]], synced: bool, tmp_path: Path
) -> None:
    row, title, words = explained(tmp_path, frames(*calls) + NO_GROUP)
    assert row == "log_rank_variable_missing" and ("SyncBatchNorm" in title) == synced, title
    assert ("plain BatchNorm" in words) == synced


@pytest.mark.parametrize(
    ("error", "title", "fix"),
    [
        (
            "table scores has 9 columns but 4 values were supplied",
            "the table scores of the database has 9 columns, and the INSERT gives 4 values (fit.py:7 in main)",
            "sqlite3 FILE .schema",
        ),
        ("table t has no column named epoch", "the table t of the database has no column epoch", "ALTER TABLE"),
        ("3 values for 2 columns", "the INSERT names 2 columns and gives 3 values", "VALUES (?, ?)"),
        ("no such column: epoch", "the database has no column epoch", ".schema"),
    ],
)
def test_a_table_of_another_version(error: str, title: str, fix: str, tmp_path: Path) -> None:
    text = frames((SCRIPT, "main", "cur.execute(sql, row)")) + f"sqlite3.OperationalError: {error}\n"
    _, found, words = explained(tmp_path, text)
    assert title in found and fix in words, (found, words)


ADVICE = """ImportError: \n
IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!

Importing the numpy C-extensions failed. This error can happen for
many reasons.

  * The Python version is: Python{} from "/home/u/env/bin/python"
  * The NumPy version is: "1.26.4"

Original error was: {}

"""
NO_PART = "No module named 'numpy.core._multiarray_umath'"


def of_python(version: str, package: str, file: str, code: str) -> str:
    path = f"/opt/env/lib/python{version}/site-packages/{package}/{file}"
    return f'  File "{path}", line 9, in <module>\n    {code}\n'


def imported(first: str, second: str, error: str) -> str:
    """An import in a package of one Python that ends in a package of another."""
    outer = frames((SCRIPT, "<module>", "import vision")) + of_python(first, "vision", "io.py", "import PIL")
    return f"{outer}{of_python(second, 'PIL', 'Image.py', 'from . import _imaging as core')}{error}\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (imported("3.9", "3.11", "ImportError: cannot import name '_imaging' from 'PIL' (/opt/x/PIL/__init__.py)"),
         "pillow is imported from a folder of Python 3.11, and Python 3.9 runs: PIL has no _imaging"),
        (imported("3.10", "3.12", "ModuleNotFoundError: No module named 'PIL._imaging'"),
         "pillow is imported from a folder of Python 3.12, and Python 3.10 runs: there is no module PIL._imaging"),
        (imported("3.10", "3.12", "ModuleNotFoundError: No module named '_cffi_backend'"),
         "pillow is imported from a folder of Python 3.12"),
        # Only numpy's advice has the Python that runs.
        (frames((SCRIPT, "<module>", "import numpy as np")) + of_python("3.11", "numpy", "__init__.py", "raise X")
         + ADVICE.format("3.9", NO_PART), "numpy is imported from a folder of Python 3.11, and Python 3.9 runs"),
    ],
)  # fmt: skip
def test_packages_of_another_python(text: str, title: str, tmp_path: Path) -> None:
    _, found, words = explained(tmp_path, text)
    assert title in found and "unset PYTHONPATH" in words, (found, words)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (imported("3.9", "3.9", "ImportError: cannot import name '_imaging' from 'PIL' (/opt/x/PIL/__init__.py)"), ""),
        (imported("3.9", "3.11", "ValueError: cannot identify the plugin"), ""),
        # Another exception before it, of a process with another Python.
        (imported("3.12", "3.12", "ModuleNotFoundError: No module named 'zorch'").replace("'import vision'", "")
         + imported("3.9", "3.9", "ModuleNotFoundError: No module named 'PIL._imaging'"), ""),
        (frames((SCRIPT, "<module>", "import numpy as np")) + of_python("3.9", "numpy", "__init__.py", "raise X")
         + ADVICE.format("3.9", NO_PART), "the installed numpy is probably incomplete or mixed"),
        (frames((SCRIPT, "<module>", "import numpy as np")) + of_python("3.9", "numpy", "__init__.py", "raise X")
         + ADVICE.format("3.9", "/lib64/libm.so.6: version `GLIBC_2.29' not found (required by x.so)"), "GLIBC_2.29"),
    ],
)  # fmt: skip
def test_packages_of_one_python(text: str, title: str, tmp_path: Path) -> None:
    _, found, words = explained(tmp_path, text)
    assert title in found and "from a folder of Python" not in found, (found, words)


@pytest.mark.parametrize(
    ("calls", "module", "title", "fix"),
    [
        ([(SCRIPT, "<module>", "import evalkit"), ("evalkit/metrics.py", "<module>", "import sacrebleu")], "sacrebleu",
         "sacrebleu, which evalkit imports", "pip install sacrebleu"),
        ([(SCRIPT, "<module>", "import torch"), ("torch/serialization.py", "<module>", "import typing_extensions")],
         "typing_extensions", "typing_extensions, which torch imports", "pip install typing-extensions"),
        ([(SCRIPT, "<module>", "import snd"), ("_soundlib.py", "<module>", "import _cffi_backend")], "_cffi_backend",
         "_cffi_backend, which soundlib imports", "pip install cffi"),
        # A package imports what a config names.
        ([(SCRIPT, "main", "run(cfg)"), ("hydra/_internal/utils.py", "_locate", "obj = import_module(part0)")], "zorch",
         "in this environment: zorch", "which python"),
        # The script's own line.
        ([(SCRIPT, "<module>", "import joblib")], "joblib", "in this environment: joblib", "which python"),
    ],
)  # fmt: skip
def test_who_needs_a_module(
    calls: list[tuple[str, str, str]], module: str, title: str, fix: str, tmp_path: Path
) -> None:
    _, found, words = explained(tmp_path, f"{frames(*calls)}ModuleNotFoundError: No module named '{module}'\n")
    assert found.endswith(title) and fix in words, (found, words)
