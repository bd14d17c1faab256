"""A table that gives characters or words their numbers has no entry for one: the data is not what it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run
from tests.test_log_contexts import RAISED, title_of


@pytest.mark.parametrize(
    ("code", "table"),
    [
        ("ids = [stoi[c] for c in text]", "stoi"),
        ('return self.meta["stoi"][token]\n           ~~~~~~~~~~~~~~~~~^^^^^^^', 'self.meta["stoi"]'),
        ("x = self.char_to_ix[c]", "self.char_to_ix"),
        ("x = vocab[word]", "vocab"),
        ("x = model.word2idx[word]", "model.word2idx"),
        ("x = w2i[word]", "w2i"),
    ],
)
def test_a_vocabulary_without_an_entry(code: str, table: str, tmp_path: Path) -> None:
    title = title_of(RAISED.format(code=code, error="KeyError: 'é'"), tmp_path)
    assert title.startswith(f"the vocabulary {table} has no entry for 'é'")


@pytest.mark.parametrize("code", ["x = vocab_sizes[name]", "x = photo_id[name]", "x = batch[token]"])
def test_another_table_is_not_called_a_vocabulary(code: str, tmp_path: Path) -> None:
    title = title_of(RAISED.format(code=code, error="KeyError: 'é'"), tmp_path)
    assert "has no key 'é'" in title and not title.startswith("the vocabulary")


def test_a_loader_that_died_says_nothing_about_the_line_that_ran(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nsize = 3\nx = torch.zeros(size)\n")
    handler = "/v/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py"
    (tmp_path / "run.log").write_text(
        f'Traceback (most recent call last):\n  File "{tmp_path}/train.py", line 3, in <module>\n'
        f'    x = torch.zeros(size)\n  File "{handler}", line 73, in handler\n    _error_if_any_worker_fails()\n'
        "RuntimeError: DataLoader worker (pid 29208) is killed by signal: Killed. \n"
    )
    shown = mgpu("doctor", "--log", "run.log").stdout
    assert "log_loader_worker_died" in shown and "size = 3" not in shown
