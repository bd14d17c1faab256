"""Paths without their first slash, and files that a package does not find and says so in words of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '{}'\n"
ADAPTER = "ValueError: Can't find 'adapter_config.json' at '{}'\n"
NAME = (
    "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
    "'{}'.\n"
)
FOLDER = (
    "OSError: {} is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\n"
)
OPENED = frames((SCRIPT, "main", "with open(path) as f:"))
LOADED = frames((SCRIPT, "main", "model = load(path)"), ("peft/config.py", "from_pretrained", "raise ValueError("))
READ = ("pyramids/io.py", "read", "raise FileNotFoundError(text)")


@pytest.mark.parametrize("path", ["./home/eve/runs/7", "mnt/disk2/llama", "./kaggle/input/set/a.csv", "home/eve/a"])
@pytest.mark.parametrize("text", [OPENED + MISSING, LOADED + ADAPTER, LOADED + NAME, LOADED + FOLDER])
def test_a_first_slash_is_missing(text: str, path: str, tmp_path: Path) -> None:
    _, title, words = explained(tmp_path, text.format(path))
    assert "first slash is missing" in title and "Begin it with the slash" in words
    assert path in title or "name of the Hub" in title


@pytest.mark.parametrize(
    "path",
    [
        "/home/eve/runs/7",
        "./homes/7",
        "out/home/eve/7",
        "~/home/eve/7",
        "data/mnt/a",
        "home/7",
        "org/mnt",
        "mnt/llama",
        "../home/eve/7",
    ],
)
@pytest.mark.parametrize("text", [OPENED + MISSING, LOADED + ADAPTER, LOADED + NAME])
def test_other_paths_have_their_slash(text: str, path: str, tmp_path: Path) -> None:
    assert "slash is missing" not in explained(tmp_path, text.format(path))[1]


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("The system cannot find the path specified: '/data/masks/thin'", "/data/masks/thin"),
        ("/srv/pics/a.npz not found.", "/srv/pics/a.npz"),
        ("Could not find checkpoint at '/x/last.ckpt'", "/x/last.ckpt"),
        ('File "data/a b.csv" does not exist', "data/a b.csv"),
        ("No such file: ./conf/b.h5", "./conf/b.h5"),
    ],
)
def test_a_package_says_that_a_file_is_not_there(said: str, path: str, tmp_path: Path) -> None:
    calls = frames((SCRIPT, "main", "x = read(name)"), READ)
    _, title, words = explained(tmp_path, f"{calls}FileNotFoundError: {said}\n")
    assert title == f"a file or folder does not exist: {path} (fit.py:7 in main)"
    assert "compare the versions" not in words and "ls -ld" in words


@pytest.mark.parametrize(
    "said",
    [
        # The folder is there, and something in it is not; or the message has no path, or two.
        "No images found in /data/x", "Couldn't find any .json in /data/x", "Could not find config.json at /data/x",
        "/data/x: index file not found", "Missing key in the archive", "train/val split not found",
        "/a/b.yaml does not exist, nor does /a/c.yaml",
    ],
)  # fmt: skip
def test_of_other_messages_no_path_is_named(said: str, tmp_path: Path) -> None:
    title = explained(tmp_path, f"{frames((SCRIPT, 'main', 'x = read(name)'), READ)}FileNotFoundError: {said}\n")[1]
    assert "does not exist: " not in title
    own = frames((SCRIPT, "main", "raise FileNotFoundError(text)"))
    assert "own code stopped" in explained(tmp_path, f"{own}FileNotFoundError: {said}\n")[1]
