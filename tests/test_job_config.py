"""A config is judged the same by itself and in a job script, where the command line completes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.config.reading import parse_config
from mgpu.doctor import run as doctor
from mgpu.doctor.job_config import completed
from mgpu.doctor.request import Request
from mgpu.engine import judge, selections
from mgpu.readers.job_script.read import read
from tests.conftest import Run

TWO = """\
distributed_type: FSDP
num_machines: 2
num_processes: 16
mixed_precision: bf16
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
"""
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
ADDRESS = "--main_process_ip $MASTER_ADDR --machine_rank $SLURM_NODEID"


def found_in_job(folder: Path, options: str, text: str = TWO, launch: str = "") -> dict[str, str]:
    """The findings on the config when a job script that uses it is examined."""
    (folder / "two.yaml").write_text(text)
    job = folder / "job.sbatch"
    job.write_text(f"{HEAD}{launch or f'srun accelerate launch --config_file two.yaml {options} train.py'}\n")
    outcomes = judge(doctor._of_files(Request(script=str(job))), selections.DOCTOR)
    assert not [o for o in outcomes if o.status == "crash"]
    return {o.check.id: o.status for o in outcomes if o.problem and o.check.area == "config"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_validate_finds_is_found_in_the_job_that_uses_the_file(tmp_path: Path) -> None:
    bad = TWO.replace("bf16", "no").replace("fsdp_auto_wrap_policy", "fsdp_auto_wrap_polcy")
    found = found_in_job(tmp_path, ADDRESS, bad)
    assert found["config_options_missing"] == "warn" and found["config_section_key_unknown"] == "warn"
    assert "config_options_missing" not in found_in_job(tmp_path, f"{ADDRESS} --mixed_precision bf16", bad)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (ADDRESS, False),
        (f"--num_machines $SLURM_NNODES --num_processes $RANKS {ADDRESS}", False),
        (ADDRESS.replace(" $", "=$"), False),
        ("$OPTIONS", False),
        ("", True),
        ("--machine_rank $SLURM_NODEID", True),
    ],
)
def test_the_command_line_completes_the_file(tmp_path: Path, options: str, missing: bool) -> None:
    assert ("config_options_missing" in found_in_job(tmp_path, options)) is missing


def test_values_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    assert "config_ranks_uneven" in found_in_job(tmp_path, f"--num_processes 3 {ADDRESS}")
    assert "config_ranks_uneven" not in found_in_job(tmp_path, f"--num_processes $N {ADDRESS}")
    assert "config_precision_invalid" in found_in_job(tmp_path, f"--mixed_precision int8 {ADDRESS}")


def test_deepspeed_gets_its_launcher_from_the_command_line(tmp_path: Path) -> None:
    text = TWO.partition("fsdp_config")[0].replace("FSDP", "DEEPSPEED") + "deepspeed_config: {zero_stage: 2}\n"
    assert "config_options_missing" in found_in_job(tmp_path, ADDRESS, text)
    assert "config_options_missing" not in found_in_job(
        tmp_path, f"{ADDRESS} --deepspeed_multinode_launcher standard", text
    )


def test_a_script_without_a_config_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(f"{HEAD}srun torchrun train.py\n")
    config = parse_config(TWO.encode(), "two.yaml")
    assert completed(config, read(tmp_path / "job.sbatch")) is config


def test_the_same_fault_at_several_keys_is_one_finding(mgpu: Run, tmp_path: Path) -> None:
    section = "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero_stage: 2\n  gradient_clipping: 1.0\n"
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "two.yaml").write_text(f"distributed_type: DEEPSPEED\nnum_processes: 8\n{section}")
    (tmp_path / "job.sbatch").write_text(f"{HEAD}srun -K accelerate launch --config_file two.yaml train.py\n")
    said = " ".join(mgpu("doctor", "--script", "job.sbatch", cwd=tmp_path).stdout.split())
    assert said.count("config_deepspeed_file_conflict FAIL") == 1
    assert "Also line 5: deepspeed_config.zero_stage: 2" in said or "Also line 6: deepspeed_config.gradient" in said


def test_a_deepspeed_file_of_another_machine_is_a_hint_that_names_the_one_here(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    name = "/no-such-cluster/home/me/project/conf/ds.json"
    section = f"deepspeed_config:\n  deepspeed_config_file: {name}\n"
    (tmp_path / "two.yaml").write_text(f"distributed_type: DEEPSPEED\nnum_processes: 8\n{section}")
    (tmp_path / "job.sbatch").write_text(f"{HEAD}srun -K accelerate launch --config_file two.yaml train.py\n")
    said = " ".join(mgpu("doctor", "--script", "job.sbatch", cwd=tmp_path).stdout.split())
    assert f"{name} is not on this machine, but conf/ds.json is" in said.replace("- ", "-")
    assert "config_deepspeed_file_missing" not in said


def test_config_and_deepspeed_file_are_found_by_one_rule(mgpu: Run, tmp_path: Path) -> None:
    section = "deepspeed_config:\n  deepspeed_config_file: conf/ds.json\n"
    (tmp_path / "sub/conf").mkdir(parents=True)
    (tmp_path / "sub/conf/ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "sub/two.yaml").write_text(f"distributed_type: DEEPSPEED\nnum_processes: 8\n{section}")
    (tmp_path / "sub/job.sbatch").write_text(f"{HEAD}srun -K accelerate launch --config_file two.yaml train.py\n")
    for folder, script in ((tmp_path, "sub/job.sbatch"), (tmp_path / "sub", "job.sbatch")):
        assert "config_deepspeed_file_missing" not in mgpu("doctor", "--script", script, cwd=folder).stdout
