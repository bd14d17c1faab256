"""A module that is not installed: what its name on PyPI is, or that it is not there."""

from __future__ import annotations

from pathlib import Path

from tests.test_log_meanings import explained


def test_apex_is_not_the_package_of_its_name_on_pypi(tmp_path: Path) -> None:
    found, title, text = explained(tmp_path, "ModuleNotFoundError: No module named 'apex'\n")
    assert (found, title) == ("log_module_missing", "NVIDIA's apex is not installed in this environment")
    assert "github.com/NVIDIA/apex" in text and "pip install apex" not in text
    other = explained(tmp_path, "ModuleNotFoundError: No module named 'einops'\n")
    assert "pip install einops" in other[2]


def test_a_model_that_should_train_and_one_that_should_not(tmp_path: Path) -> None:
    error = (
        "RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameter that requires "
    )
    found, _, text = explained(tmp_path, f"{error}a gradient.\n")
    assert found == "log_nothing_to_train"
    assert text.index("If it is the model to train") < text.index("Otherwise, leave it unwrapped")
