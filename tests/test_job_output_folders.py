"""What makes the folder of a job's output, if it is not here?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.job_script import read as job_script_read

JOB = "#!/bin/bash\n#SBATCH --output={}/%j.out\nmkdir -p logs\nsrun python train.py\n"


def made(folder: Path, output: str = "logs", script: str = "slurm/job.sbatch") -> list[str]:
    """What makes the folder of a job's output, for a job submitted in `folder`."""
    path = folder / script
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(JOB.format(output))
    return [one.made for one in job_script_read.read(Path(script)).folders]


@pytest.fixture(autouse=True)
def _in_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("output", "ignored"),
    [
        ("logs", "logs/"), ("logs", "/logs"), ("logs", "log*"), ("logs/runs", "logs"), ("logs/runs", "logs/runs/**"),
        ("logs/runs", "logs/*"), ("out/logs", "**/logs/"), ("logs", "# mine\n*.pt\nlogs\n"), ("logs", "!x\n*"),
    ],
)  # fmt: skip
def test_git_ignores_it(tmp_path: Path, output: str, ignored: str) -> None:
    (tmp_path / ".gitignore").write_text(ignored)
    assert made(tmp_path, output) == ["git ignores it"]


@pytest.mark.parametrize(
    "kept", ["", "*.log", "logs.txt", "#logs", "data/logs/", "logs/old", "logs\n!logs/", "/runs/logs"]
)
def test_git_does_not_ignore_it(tmp_path: Path, kept: str) -> None:
    (tmp_path / ".gitignore").write_text(kept)
    assert made(tmp_path) == [""]


def test_the_gitignore_beside_the_script_counts(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/.gitignore").write_text("logs\n")
    assert made(tmp_path) == ["git ignores it"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("setup.sh", "mkdir -p logs"), ("scripts/setup.sh", 'mkdir -p "$ROOT/logs"'),
        ("Makefile", "\t@mkdir -p logs runs"),
        ("submit.sh", "mkdir -p ./logs/$1 && sbatch slurm/job.sbatch"), ("a.sh", "mkdir -p {data,logs}"),
    ],
)  # fmt: skip
def test_a_script_of_the_repository_makes_it(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"# all folders\n{line}\n")
    assert made(tmp_path) == [f"{Path(name).name} makes it"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("other.sbatch", "#SBATCH --nodes=1\nmkdir -p logs"),  # too late, as in the job itself
        ("setup.sh", "mkdir -p data/logs"), ("setup.sh", "echo mkdir_logs"), ("README.md", "mkdir -p logs"),
        (".hidden/setup.sh", "mkdir -p logs"),
    ],
)  # fmt: skip
def test_no_script_makes_it(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{line}\n")
    assert made(tmp_path) == [""]


@pytest.mark.parametrize(
    ("folder", "line", "maker"),
    [
        ("logs", "sbatch --output=logs/%j.out other.slurm", ""),  # it does not run before this job
        ("logs/sweeps", "sbatch -J x \\\n    other.slurm && sbatch third.slurm", ""),
        ("logs/sweeps", 'C=(\n  sbatch\n  "$JOB"\n)\n"${C[@]}"', ""),  # the folder is for those jobs
        ("logs", "sbatch slurm/other_job.sbatch", ""),
        ("logs/sweeps", "sbatch slurm/job.sbatch", "sweep.sh makes it"),
        ("logs", 'C=(\n  sbatch\n  "$JOB"\n)\n"${C[@]}"', "sweep.sh makes it"),
        ("logs", 'for one in slurm/*; do sbatch "$one"; done', "sweep.sh makes it"),
        ("logs", "sbatch slurm/*.sbatch", "sweep.sh makes it"),
        ("logs/sweeps", "# then sbatch other.slurm", "sweep.sh makes it"),
        ("logs/sweeps", "echo sbatched", "sweep.sh makes it"),
    ],
)
def test_a_script_that_submits_other_jobs_makes_the_folder_for_them(
    folder: str, line: str, maker: str, tmp_path: Path
) -> None:
    (tmp_path / "sweep.sh").write_text(f"mkdir -p {folder}\n{line}\n")
    assert made(tmp_path) == [maker]


def test_a_folder_that_is_here_needs_no_maker(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / ".gitignore").write_text("logs\n")
    assert made(tmp_path) == [""]


def test_without_a_repository_only_the_current_folder_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").rmdir()
    (tmp_path / "setup.sh").write_text("mkdir -p logs\n")
    assert made(tmp_path) == ["setup.sh makes it"]
    (tmp_path / "slurm/here").mkdir()
    monkeypatch.chdir(tmp_path / "slurm/here")
    assert [one.made for one in job_script_read.read(Path("../job.sbatch")).folders] == [""]


PYTHON = "import os\nos.makedirs(logs, exist_ok=True)\n"


@pytest.mark.parametrize(
    ("name", "text", "by_submitter"),
    [
        ("jobs.py", f'logs = "logs"\n{PYTHON}os.system(f"sbatch {{path}}")\n', True),
        ("tools/jobs.py", f"logs = './logs/'\n{PYTHON}subprocess.run(['sbatch', path])\n", True),
        ("jobs.py", f'logs = "logs"\n{PYTHON}os.system("sbatch " + path)\n', True),
        ("jobs.py", f'logs = "logs"\n{PYTHON}os.system("sbatch slurm/job.sbatch")\n', True),
        ("submit.sh", "mkdir -p logs && sbatch slurm/job.sbatch\n", True),
        ("submit.sh", "mkdir -p logs\nfor one in slurm/*; do sbatch $one; done\n", True),
        ("setup.sh", "mkdir -p logs  # for job.sbatch\n", False),
    ],
)
def test_what_submits_the_job_may_make_the_folder_first(
    name: str, text: str, by_submitter: bool, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert made(tmp_path) == [f"{Path(name).name} makes it"]
    (folder,) = job_script_read.read(Path("slurm/job.sbatch")).folders
    assert folder.by_submitter is by_submitter


@pytest.mark.parametrize(
    "text",
    [
        'os.system(f"sbatch {path}")\nlogs = "logs"\n',  # it makes no folder
        f'logs = "out"\n{PYTHON}os.system(f"sbatch {{path}}")\n',
        f'logs = "logs"\n{PYTHON}',  # the training script: too late
        f'"""Use sbatch."""\nlogs = "logs"\n{PYTHON}',
        f'logs = "logs"\n{PYTHON}os.system("sbatch slurm/other.slurm")\n',
    ],
)
def test_a_python_script_that_does_not_make_the_folder_before_the_job(text: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(text)
    assert made(tmp_path) == [""]
