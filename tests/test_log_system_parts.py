"""Parts of the system or of the data that plain scripts miss: models of spaCy, GPU libraries, values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_meanings import explained
from tests.test_log_plain_scripts import raised
from tests.test_log_went_on import cause


@pytest.mark.parametrize(
    ("message", "found", "words"),
    [
        ("OSError: [E050] Can't find model 'de_core_news_sm'. It doesn't seem to be a Python package or a valid path.",
         "log_spacy_model_missing", "spacy download de_core_news_sm"),
        ("ValueError: Input X contains NaN.\nLogisticRegression does not accept missing values.",
         "log_values_missing_in_data", "SimpleImputer"),
        ("ValueError: Input contains NaN, infinity or a value too large for dtype('float64').",
         "log_values_missing_in_data", "isna()"),
        ("FileNotFoundError: Cannot find DGL C++ graphbolt library at /x/libgraphbolt_pytorch_2.4.0.so",
         "log_dgl_for_another_torch", "pip install dgl"),
        ("tensorflow.python.framework.errors_impl.InternalError: libdevice not found at ./libdevice.10.bc [Op:__x]",
         "log_xla_libraries_missing", "xla_gpu_cuda_data_dir"),
        ("RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
         "log_xla_libraries_missing", "jax[cuda12]"),
    ],
)  # fmt: skip
def test_what_a_script_misses_is_named(tmp_path: Path, message: str, found: str, words: str) -> None:
    name, _, reason = explained(tmp_path, raised(message))
    assert name == found and words in reason


def test_a_backend_that_jax_does_without(tmp_path: Path) -> None:
    lines = "".join(f"sample {n} done\n" for n in range(40))
    assert (
        cause("INFO:jax._src.xla_bridge: Unable to initialize backend 'cuda': no such device\n" + lines, tmp_path)
        is None
    )
