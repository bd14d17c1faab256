"""Which files that a launch needs are missing, and which are not reported because they may be right elsewhere?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.job_script import read as job_script_read
from mgpu.snapshot import JobScript

ACCELERATE = "accelerate launch --config_file conf/a.yaml train.py"
TORCHRUN = "torchrun --nproc_per_node 2 train.py"


def read(*lines: str, name: str = "scripts/run.sh") -> JobScript:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/bash", *lines)) + "\n")
    return job_script_read.read(path)


def missing(*lines: str) -> list[tuple[str, str]]:
    """The kind and path of each missing file."""
    return [(one.kind, one.path) for one in read(*lines).missing]


def folders(*lines: str) -> list[tuple[str, bool | None, str]]:
    return [(one.path, one.exists, one.made) for one in read(*lines).redirects]


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository with a training script, which is the current folder."""
    (tmp_path / ".git").mkdir()
    for name in ("train.py", "src/train.py", "src/utils/data.py", "src/utils/b.yaml", "src/.conf/c.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("pass\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((ACCELERATE,), ("config", "conf/a.yaml")),
        (("CONFIG=${1:-conf/a.yaml}", "accelerate launch --config_file=$CONFIG train.py"), ("config", "conf/a.yaml")),
        (("cd src", "accelerate launch --config_file a.yaml -m train"), ("config", "a.yaml")),
        (("cd $SLURM_SUBMIT_DIR", "source ~/.bashrc", ACCELERATE), ("config", "conf/a.yaml")),
        (("torchrun train.py --deepspeed ds.json",), ("DeepSpeed file", "ds.json")),
        (("torchrun src/train_v2.py",), ("training script", "src/train_v2.py")),
        (("python -u src/trian.py --x",), ("training script", "src/trian.py")),
    ],
)
def test_a_file_is_missing(lines: tuple[str, ...], found: tuple[str, str]) -> None:
    assert missing(*lines) == [found]


@pytest.mark.parametrize(
    "lines",
    [
        ("accelerate launch --config_file conf/a.yaml other.py",),  # the job may run elsewhere
        ("cd /somewhere/else", ACCELERATE),
        ("cd $PROJECT", ACCELERATE),
        ("accelerate launch --config_file $HERE/a.yaml train.py",),
        ("accelerate launch --config_file /data/a.yaml train.py",),
        ("if [ -f conf/a.yaml ]; then", ACCELERATE, "fi"),
        ("cat > conf/a.yaml << END", "num_processes: 2", "END", ACCELERATE),
        ("cp ~/a.yaml conf/", ACCELERATE),
        ("python make_config.py", ACCELERATE),
        ("source setup.sh", ACCELERATE),
        ("apptainer exec x.sif accelerate launch --config_file conf/a.yaml train.py",),
        ("ssh n1 'accelerate launch --config_file conf/a.yaml train.py'",),
        ("torchrun src/evaluate.py",),  # no file with a similar name
        ("git clone https://host.lan/me/x", "torchrun src/train_v2.py"),
        ("torchrun $SRC/train_v2.py",),
        ("torchrun data.py",),  # in another folder of the repository
        ("accelerate launch --config_file utils/b.yaml train.py",),  # the same
        ("accelerate launch --config_file .conf/c.yaml train.py",),
    ],
)
def test_a_file_that_may_be_right_elsewhere_is_not_reported(lines: tuple[str, ...]) -> None:
    assert missing(*lines) == []


def test_a_file_that_is_here_or_ignored_is_not_missing() -> None:
    Path(".gitignore").write_text("conf/\n")
    assert missing(ACCELERATE) == []
    Path(".gitignore").unlink()
    Path("conf").mkdir()
    assert missing(ACCELERATE) == [("config", "conf/a.yaml")]
    Path("conf/a.yaml").write_text("")
    assert missing(ACCELERATE) == []


def test_the_default_and_a_similar_name_are_part_of_it() -> None:
    Path("conf").mkdir()
    Path("conf/a2.yaml").write_text("")
    Path("conf/config_zero3.yaml").write_text("")
    (found,) = read('accelerate launch --config_file "${1-"conf/config_zero2.yaml"}" train.py').missing
    assert (found.line, found.default, found.similar) == (2, True, "conf/config_zero3.yaml")
    (found,) = read("RANK=$(python3 -c 'print(1)')", "accelerate launch --config_file conf/b.yaml train.py").missing
    assert (found.path, found.similar) == ("conf/b.yaml", "src/utils/b.yaml")


def test_a_large_repository_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgpu.readers.job_script.missing_files._MOST_ENTRIES", 3)
    assert missing(ACCELERATE) == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((f"{TORCHRUN} > out/logs/a.log 2>&1",), ("out/logs", False, "")),
        ((f"{TORCHRUN} \\", "&> logs/$(date +%F).log"), None),
        ((f"nohup {TORCHRUN} >> logs/a.log &",), ("logs", False, "")),
        ((f"{TORCHRUN} > src/utils/a.log",), ("src/utils", True, "")),
        ((f"{TORCHRUN} > utils/a.log",), ("utils", True, "")),  # from another folder
        (("mkdir -p logs", f"{TORCHRUN} > logs/a.log"), ("logs", False, "an earlier command may make it")),
        (('mkdir -p "$OUT"', f"{TORCHRUN} > logs/a.log"), ("logs", False, "an earlier command may make it")),
        (("python data.py", f"{TORCHRUN} > logs/a.log"), ("logs", False, "an earlier command may make it")),
        (("mkdir -p ./logs/", f"{TORCHRUN} > ./logs/a.log"), ("./logs", False, "an earlier command may make it")),
        (("mkdir -p logs", f"{TORCHRUN} > ./logs/a.log"), ("./logs", False, "an earlier command may make it")),
        (("mkdir -p {out,logs}", f"{TORCHRUN} > logs/a.log"), ("logs", False, "an earlier command may make it")),
        (("mkdir -p /me/run/logs", f"{TORCHRUN} > logs/a.log"), ("logs", False, "an earlier command may make it")),
        (("mkdir -p old_logs", f"{TORCHRUN} > logs/a.log"), ("logs", False, "")),
        ((f"{TORCHRUN} > a.log",), None),
        ((f"{TORCHRUN} > /dev/null",), None),
        ((f"{TORCHRUN} > $OUT/a.log",), None),
        (("torchrun other.py > logs/a.log",), None),
        (("echo hello > logs/a.log",), None),
        ((f"{TORCHRUN} | tee logs/a.log",), None),
    ],
)
def test_the_folder_of_redirected_output(lines: tuple[str, ...], found: tuple[str, bool, str] | None) -> None:
    assert folders(*lines) == ([found] if found else [])


def test_a_setup_script_or_git_may_make_the_folder() -> None:
    Path(".gitignore").write_text("logs\n")
    assert folders(f"{TORCHRUN} > logs/a.log") == [("logs", False, "git ignores it")]
    Path(".gitignore").write_text("")
    Path("setup.sh").write_text("mkdir -p logs\n")
    assert folders(f"{TORCHRUN} > logs/a.log") == [("logs", False, "setup.sh makes it")]


def test_the_current_folder_can_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = read(f"{ACCELERATE} > logs/a.txt")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = job_script_read.read(tmp_path / script.path)
    assert [one.path for one in found.missing] == ["conf/a.yaml"] and [one.path for one in found.redirects] == ["logs"]
