"""The script's own load function does not find a weights file: the end of its path says which run has to write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

MAIN = (SCRIPT, "main", "restore_adapter(args, layers)")
FOLDER = (
    "/scratch/projects/group-long-name/ada/workspace/experiments-of-2026/adapters/weights/vitl14/birds/4shots/seed3"
)
NAME = f"{FOLDER}/adapter_birds.pt"


def missing(path: str, function: str = "load_adapter", message: str = "File {} does not exist.") -> str:
    code = f"raise FileNotFoundError(f'{message.format('{path}')}')"
    return f"{frames(MAIN, ('/home/ada/lib/files.py', function, code))}FileNotFoundError: {message.format(path)}\n"


@pytest.mark.parametrize(
    ("path", "function", "message", "end"),
    [
        (NAME, "load_adapter", "File {} does not exist.", ".../birds/4shots/seed3/adapter_birds.pt"),
        (NAME.replace(".pt", ".safetensors"), "restore", "no weights at '{}'", "/seed3/adapter_birds.safetensors"),
        ("out/run7/last.ckpt", "resume_from", "Checkpoint not found: {}", "out/run7/last.ckpt"),
        ("model.pth", "load_model", "{} was not found", "model.pth"),
    ],
)
def test_the_end_of_the_path_is_in_the_title(path: str, function: str, message: str, end: str, tmp_path: Path) -> None:
    row, title, words = explained(tmp_path, missing(path, function, message))
    assert row == "log_exception" and "weights file" in title and end in title, title
    assert f"files.py:7 in {function}" in title and "same options" in words and " ... " not in title
    folder = path.rpartition("/")[0] or "."
    assert f"ls -la {folder}" in words


def test_the_whole_end_of_a_long_path(tmp_path: Path) -> None:
    title = explained(tmp_path, missing(NAME))[1]
    assert ".../birds/4shots/seed3/adapter_birds.pt" in title and "/scratch" not in title


def test_weights_to_download_are_not_of_an_earlier_run(tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, missing("/data/pretrained/resnet50.pth", "load_pretrained"))
    assert "/data/pretrained/resnet50.pth" in title and "download" in words and "same options" not in words


@pytest.mark.parametrize(
    "text",
    [
        missing("/data/birds/train.csv"),
        missing("/data/birds/split.json", "load_split"),
        missing(f"{FOLDER}/best.pt", "save_adapter", "cannot write {}: its folder does not exist"),
        frames(MAIN, ("/home/ada/lib/files.py", "load_adapter", "raise ValueError(f'{path} has no key head')"))
        + "ValueError: /out/best.pt has no key head\n",
    ],
)
def test_other_files_and_reasons_are_the_scripts_own_message(text: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, text)
    assert "the script's own code stopped the run" in title and "same options" not in words


def test_a_long_path_in_any_message_of_the_script_keeps_its_end(tmp_path: Path) -> None:
    title = explained(tmp_path, missing(f"{FOLDER}/labels_of_all_birds.csv", "read_labels"))[1]
    assert ".../birds/4shots/seed3/labels_of_all_birds.csv does not exist" in title and " ... " not in title
    title = explained(tmp_path, missing("/data/birds/train.csv", "read_labels"))[1]
    assert "File /data/birds/train.csv does not exist" in title


@pytest.mark.parametrize(
    ("layer", "word"),
    [("classifier.4.1", "classifier"), ("backbone.fc", "fc"), ("3.0.fc", "fc"), ("heads.2", "heads")],
)
def test_the_head_is_searched_by_its_name(layer: str, word: str, tmp_path: Path) -> None:
    lines = (
        f"\tsize mismatch for {layer}.{part}: copying a param with shape torch.Size([21{rest}]) from checkpoint, the "
        f"shape in current model is torch.Size([8{rest}]).\n"
        for part, rest in (("weight", ", 64"), ("bias", ""))
    )
    error = f"RuntimeError: Error(s) in loading state_dict for Net:\n{''.join(lines)}"
    load = ("torch/nn/modules/module.py", "load_state_dict", "raise RuntimeError(")
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", "net.load_state_dict(s)"), load) + error)
    assert f"({layer}.weight) has 21 outputs, and the model's has 8" in title, title
    assert f"grep -rnw --include='*.py' {word} ." in words
    assert "print(model.load_state_dict(state, strict=False))" in words
