"""Paths in a log: with a folder twice, printed before data is missing, temporary, relative, in the script's own line.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import frames
from tests.test_log_meanings import explained

SCRIPT = "/home/ada/fit.py"
READS = (SCRIPT, "main", "rows = read_rows(path)")
ASSERTS = ("corpora/reader.py", "__init__", "assert file.exists()")
CONCATENATES = ("torch/utils/data/dataset.py", "__init__", "assert len(self.datasets) > 0, 'datasets should not'")
NOT_FOUND = "FileNotFoundError: [Errno 2] No such file or directory: '{}'\n"


@pytest.mark.parametrize("path", ["/srv/speech/audio/speech/audio/train.txt", "runs/a/eval/runs/a/eval/one.json"])
def test_a_path_with_a_folder_twice(path: str, tmp_path: Path) -> None:
    row, title, _ = explained(tmp_path, frames(READS) + NOT_FOUND.format(path))
    assert (row, title) == ("log_file_missing", f"{path} does not exist: the path has a folder twice")
    if path.startswith("/"):
        text = f"Train: {path}\nTest: /srv/speech/audio/test.txt\n{frames(READS, ASSERTS)}AssertionError\n"
        _, title, words = explained(tmp_path, text)
        assert title == f"{path} does not exist: the path has speech/audio/ twice (fit.py:7 in main)"
        assert "/srv/speech/audio/train.txt" in words


@pytest.mark.parametrize(
    "path",
    [
        "/srv/kit/kit/train.txt",
        "/srv/audio/speech/test/audio/speech.txt",
        "/srv/part7/dev/7/dev/one.wav",  # begins within a name
        "/srv/map/3/3/3/3/one.png",
        "/srv/ab/cd/ab/cd/one.bin",
    ],
)
def test_other_paths(path: str, tmp_path: Path) -> None:
    title = explained(tmp_path, frames(READS) + NOT_FOUND.format(path))[1]
    assert title == f"a file that the script reads does not exist: {path}"
    text = f"Train: {path}\n{frames(READS, ASSERTS)}AssertionError\n"
    assert "twice" not in explained(tmp_path, text)[1]


@pytest.mark.parametrize("printed", ["Loading from: /data/eeg/release_3", "root folder = /data/eeg/release_3"])
def test_the_path_in_which_no_data_was_found(printed: str, tmp_path: Path) -> None:
    failed = frames((SCRIPT, "main", "all = Recordings(root)"), CONCATENATES)
    error = "AssertionError: datasets should not be an empty iterable\n"
    _, title, words = explained(tmp_path, f"start\n{printed}\n│ box: the data is not complete │\n{failed}{error}")
    assert (
        title == "ConcatDataset gets no datasets: no data was found, probably in /data/eeg/release_3 (fit.py:7 in main)"
    )
    assert "ls -la /data/eeg/release_3" in words and "box" not in words
    assert explained(tmp_path, f"start\n{failed}{error}")[1].startswith(
        "ConcatDataset gets no datasets: no data was found ("
    )


@pytest.mark.parametrize(
    "printed",
    [
        "Loading checkpoint from /srv/zoo/vit_b.pth",
        "Loading the pretrained backbone from /srv/zoo/vit_b",
        "writing logs, folder: /scratch/ada/run_7",
        "output_dir = /scratch/ada/run_7",
        "config path: /home/ada/birds.yaml",
        "read /home/ada/birds.yaml",
    ],
)
def test_paths_of_weights_and_outputs_are_not_where_data_is_missing(printed: str, tmp_path: Path) -> None:
    failed = frames((SCRIPT, "main", "all = Recordings(root)"), CONCATENATES)
    error = "AssertionError: datasets should not be an empty iterable\n"
    _, title, words = explained(tmp_path, f"start\n{printed}\n{failed}{error}")
    assert "no data was found (" in title and "printed the path" not in words, (title, words)
    _, title, _ = explained(tmp_path, f"data root = /data/birds\n{printed}\n{failed}{error}")
    assert "probably in /data/birds (" in title


def test_a_doubled_path_of_weights_is_found(tmp_path: Path) -> None:
    path = "/srv/out/best/srv/out/best/net.pth"
    text = f"Loading checkpoint from {path}\n{frames(READS, ASSERTS)}AssertionError\n"
    assert "the path has srv/out/best/ twice" in explained(tmp_path, text)[1]


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/tmp/tmpq8_x71ab", "a temporary folder, or a file in it, does not exist (any more): /tmp/tmpq8_x71ab"),
        ("/tmp/pymp-3kd9a0zz/listener-1", "a temporary folder, or a file in it, does not exist (any more)"),
        ("/tmp/results/index.json", "a file that the script reads does not exist: /tmp/results/index.json"),
        ("labels.pkl", "labels.pkl is not in the current folder of the process (fit.py:7 in main)"),
        ("out/../labels.pkl", "out/../labels.pkl is not in the current folder of the process"),
        ("/mnt/one/labels.pkl", "a file that the script reads does not exist: /mnt/one/labels.pkl"),
    ],
)
def test_temporary_and_relative_paths(path: str, title: str, tmp_path: Path) -> None:
    assert explained(tmp_path, frames(READS) + NOT_FOUND.format(path))[1].startswith(title)


def test_other_reasons_for_temporary_and_relative_paths(tmp_path: Path) -> None:
    words = explained(tmp_path, frames(READS) + NOT_FOUND.format("/tmp/tmpq8_x71ab/ids.json"))[2]
    assert "never written" in words and "another node" in words and "ls -la" in words
    for path in ("labels.pkl", "data/labels.pkl"):
        _, title, words = explained(tmp_path, frames(READS) + NOT_FOUND.format(path))
        assert "the current folder of the process" in title
        assert "os.chdir" in words and "hydra.job.chdir=False" in words and "to_absolute_path" in words


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ('net = torch.load("weights/best.pt")', "weights/best.pt"),
        ("x = torch.load(ROOT / 'scans.pt', map_location='cpu')", "scans.pt"),
        ("with open(os.path.join(root, 'ids.pkl'), 'rb') as f: ids = pickle.load(f)", "ids.pkl"),
        ("ids = pickle.load(open('ids.pkl', 'rb'))", "ids.pkl"),
        ("net.load_state_dict(torch.load('w/last.ckpt')['model'])", "w/last.ckpt"),
        ("net = keras.models.load_model('net.keras')", "net.keras"),
        ("w = safetensors.torch.load_file('w/model.safetensors')", "w/model.safetensors"),
    ],
)
def test_the_damaged_file_that_the_line_names(code: str, name: str, tmp_path: Path) -> None:
    load = ("torch/serialization.py", "load", "with _open_zipfile_reader(f) as zip:")
    error = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", code), load) + error)
    assert title == f"{name} is damaged, truncated, or only a Git LFS pointer (fit.py:7 in main)"
    assert f"ls -la {name}; head -c 100 {name}" in words
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", "net = torch.load(path)"), load) + error)
    assert title == "a checkpoint or data file is damaged, truncated, or only a Git LFS pointer"
    assert "ls -la FILE" in words


@pytest.mark.parametrize(
    "code",
    [
        "asr = whisper.load_model('base.en')",
        "net = torch.hub.load('ada/nets:v0.2.1', 'small')",
        "net = torch.hub.load('ada/nets.main', 'small')",
        "w = load_state_dict_from_url('https://example.org/w/best.pth')",
        "w = torch.load(json.load(open('run.json'))['weights'])",
        "w = torch.load(yaml.safe_load(open('run.yaml'))['weights'])",
        "pair = torch.load(path), torch.load('b.pt')",
        "net = Detector.load('detector.yaml')",
        "net = torch.load('best')",
    ],
)
def test_names_that_are_not_the_damaged_file(code: str, tmp_path: Path) -> None:
    load = ("torch/serialization.py", "load", "with _open_zipfile_reader(f) as zip:")
    error = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n"
    _, title, words = explained(tmp_path, frames((SCRIPT, "main", code), load) + error)
    assert title == "a checkpoint or data file is damaged, truncated, or only a Git LFS pointer"
    assert "ls -la FILE" in words


HDF5 = (
    "{}: Unable to {}create file (unable to open file: name = 'out/run_3/weights.h5', errno = {}, error message = "
    "'{}')\n"
)


def test_the_folder_of_an_hdf5_file(tmp_path: Path) -> None:
    opens = ("h5py/_hl/files.py", "make_fid", "fid = h5f.create(name)")
    write = (SCRIPT, "main", "f = h5py.File(path, 'w')")
    for error in ("OSError", "FileNotFoundError"):
        text = frames(write, opens) + HDF5.format(error, "synchronously " * (error != "OSError"), 2, "No such file")
        _, title, words = explained(tmp_path, text)
        assert title.startswith(
            "the folder of an HDF5 file that the script writes does not exist: out/run_3/weights.h5"
        )
        assert "namei out/run_3/weights.h5" in words
    text = frames(write, opens) + HDF5.format("PermissionError", "", 13, "Permission denied")
    assert explained(tmp_path, text)[1].startswith("the HDF5 file out/run_3/weights.h5 could not be opened: Permission")


def test_google_drive_and_other_disks(tmp_path: Path) -> None:
    error = "OSError: [Errno 5] Input/output error: '../images/3.png'\n"
    text = f'Traceback (most recent call last):\n  File "{{}}/fit.py", line 7, in main\n    x = read(path)\n{error}'
    assert "Google Drive" in explained(tmp_path, text.format("/content/drive/MyDrive/work"))[1]
    assert "Google Drive" not in explained(tmp_path, text.format("/home/ada/drive"))[1]
