"""Which training scripts refuse the --local-rank that torch.distributed.launch passes since torch 2?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.job_script import read as job_script_read

LAUNCH = "python -m torch.distributed.launch --nproc_per_node=2 train.py --lr 1"
OLD = "p = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\nargs = p.parse_args()\n"


def refuses(line: str = LAUNCH, script: str = OLD) -> bool:
    """Whether the training script of a job refuses the option."""
    Path("train.py").write_text(f"import argparse\n{script}")
    Path("job.sh").write_text(f"#!/bin/bash\n{line}\n")
    return any(one.refuses_local_rank for one in job_script_read.read(Path("job.sh")).commands)


@pytest.fixture(autouse=True)
def _in_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def test_a_script_with_the_old_spelling_alone_refuses_it() -> None:
    assert refuses()
    assert refuses("srun python3 -m torch.distributed.launch --nproc_per_node 4 train.py")
    assert refuses(script=f"{OLD}print({{'local_rank': args.local_rank}})\n")
    assert refuses(script=f"# --local-rank was added in torch 2\n{OLD}")


@pytest.mark.parametrize(
    "line",
    ["torchrun --nproc_per_node=2 train.py", "python -m torch.distributed.run --nproc_per_node=2 train.py",
     "python -m torch.distributed.launch --use_env --nproc_per_node=2 train.py", "python train.py",
     "python -m torch.distributed.launch --use-env train.py", "python -m torch.distributed.launch other.py",
     f"module load pytorch/1.12.1\n{LAUNCH}"],
)  # fmt: skip
def test_a_launch_that_does_not_pass_it(line: str) -> None:
    assert not refuses(line)


@pytest.mark.parametrize(
    "script",
    [
        OLD.replace("'--local_rank'", "'--local-rank', '--local_rank'"),
        OLD.replace("'--local_rank'", "'--local_rank', '--local-rank'"),
        OLD.replace("parse_args()", "parse_known_args()[0]"),
        "p.add_argument('--lr')\np.parse_args()\n",  # another module may add it
        "p.add_argument('--local_rank', type=int)\n",  # another module parses
        "",
    ],
)
def test_a_script_that_may_accept_it(script: str) -> None:
    assert not refuses(script=script)


@pytest.mark.parametrize(
    ("name", "text", "old"),
    [
        ("requirements.txt", "numpy\ntorch==1.8.1\n", True), ("environment.yml", "  - pytorch=1.10\n", True),
        ("README.md", "Needs PyTorch 1 or pytorch<2.0\n", True), ("setup.py", "['torch>=1.7,<2']", True),
        ("requirements.txt", "torch>=1.7\n", False), ("requirements.txt", "torch==2.1\ntorchvision==0.16\n", False),
        ("requirements.txt", "torchmetrics==1.4\n", False), ("notes.txt", "torch==1.8.1\n", False),
    ],
)  # fmt: skip
def test_a_repository_for_torch_1_passes_the_old_spelling(name: str, text: str, old: bool) -> None:
    Path(name).write_text(text)
    assert refuses() is not old
