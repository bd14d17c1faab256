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


DEEPSPEED = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
ALONE = "accelerate launch --config_file two.yaml {} train.py"


@pytest.mark.parametrize(
    ("own", "options", "conflict"),
    [
        ("", "--mixed_precision bf16", False),
        ("mixed_precision: bf16\n", "--mixed_precision bf16", False),
        ("mixed_precision: bf16\n", "--mixed_precision $PRECISION", False),
        ("mixed_precision: bf16\n", "", True),
        ("  zero_stage: 2\n", "--mixed_precision bf16", True),
        ("  zero_stage: 2\n", "--zero_stage 2", True),
        ("", "--zero_stage 2", False),
        ("  mixed_precision: bf16\n", "--mixed_precision bf16", True),
    ],
)  # fmt: skip
def test_only_settings_of_the_file_conflict_with_a_deepspeed_file(
    own: str, options: str, conflict: bool, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    found = found_in_job(tmp_path, "", DEEPSPEED + own, ALONE.format(options))
    assert ("config_deepspeed_file_conflict" in found) is conflict


SECTIONS = "num_processes: 8\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 3}\n"
SHARDED = "num_processes: 8\nfsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"


@pytest.mark.parametrize(
    ("text", "kind", "option", "ignored"),
    [
        (SECTIONS, "MULTI_GPU", "--use_deepspeed", False),
        (SECTIONS, "MULTI_GPU", "--use-deepspeed", False),
        (SECTIONS, "MULTI_GPU", "", True),
        (SECTIONS, "MULTI_GPU", "--use_fsdp", True),
        (SECTIONS, "DEEPSPEED", "--multi_gpu", True),
        (SHARDED, "MULTI_GPU", "--use_fsdp", False),
        (SHARDED, "NO", "--use_fsdp", False),
        (SHARDED, "FSDP", "--use_deepspeed", True),
        (SHARDED, "MULTI_GPU", "train_with.py --use_fsdp", True),  # an option of the script
    ],
)
def test_an_option_of_the_command_line_decides_the_type(
    text: str, kind: str, option: str, ignored: bool, tmp_path: Path
) -> None:
    found = found_in_job(tmp_path, "", f"distributed_type: {kind!r}\n{text}", ALONE.format(option))
    assert ("config_section_ignored" in found) is ignored


def test_multi_gpu_keeps_the_type_of_another_accelerator(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(f"{HEAD}{ALONE.format('--multi_gpu')}\n")
    config = parse_config(b"distributed_type: MULTI_NPU\n", "two.yaml")
    assert completed(config, read(tmp_path / "job.sbatch")).distributed_type == "MULTI_NPU"


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ("--use_deepspeed", True),
        ("--use_deepspeed --zero_stage 2", False),
        ("--use_deepspeed --deepspeed_config_file ds.json", False),
        ("--use_fsdp", True),
        ("--use_fsdp --fsdp_auto_wrap_policy $POLICY", False),
    ],
)
def test_a_section_can_be_on_the_command_line(options: str, missing: bool, tmp_path: Path) -> None:
    found = found_in_job(tmp_path, "", "distributed_type: MULTI_GPU\nnum_processes: 8\n", ALONE.format(options))
    assert ("config_section_missing" in found) is missing
    assert {*found} <= {"config_section_missing", "config_fsdp_layer_unnamed"}


def test_the_keys_of_a_deepspeed_file_in_the_section_have_no_effect(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 8\ndeepspeed_config:\n  zero_optimization: {stage: 0}\n"
    assert "config_section_ignored" in found_in_job(tmp_path, "", text, ALONE.format(""))
    found = found_in_job(tmp_path, "", text, ALONE.format("--use_deepspeed"))
    assert "config_section_key_unknown" in found and "config_section_ignored" not in found
    outcomes = judge(doctor._of_files(Request(script=str(tmp_path / "job.sbatch"))), selections.DOCTOR)
    (problem,) = [o.problem for o in outcomes if o.problem and o.check.id == "config_section_key_unknown"]
    assert "The run uses ZeRO stage 2." in problem.cause and "deepspeed_config_file" in problem.fixes[0].text


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
