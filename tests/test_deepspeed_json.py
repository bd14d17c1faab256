"""A DeepSpeed file is recognized and judged as one, in `configure --validate`, `doctor --config` and job scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mgpu.config.deepspeed_json import recognized
from mgpu.config.tolerant_json import tolerant
from mgpu.structured_text import Malformed
from tests.conftest import Run

ZERO = """\
{
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "overlap_comm": true},
  "gradient_accumulation_steps": "auto",
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto"
}
"""
COMMENT = ZERO.replace("3,", "3,  # all of it\n   ")
NO_AUTO = '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {"stage": 1},\n}\n'

# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": 1, "b": [1, 2.5, -3e2], "c": {"d": null}}', {"a": 1, "b": [1, 2.5, -300.0], "c": {"d": None}}),
        ('{\n  # one\n  "a": 1, // two\n  /* three */ "b": 2,\n}', {"a": 1, "b": 2}),
        ('{\n  a: text, with a comma\n  "b": true\n  \'c\': "x"\n}', {"a": "text, with a comma", "b": True, "c": "x"}),
        ('"a": 1\n"b": 2', {"a": 1, "b": 2}),
        ("{a: '''\nlong\n'''}", {"a": "long"}),
        ('{"a": "# no comment", "b": "it\\"s"}', {"a": "# no comment", "b": 'it"s'}),
    ],
)
def test_read_as_deepspeed_reads_it(text: str, values: Any) -> None:
    assert tolerant(text).values == values
    hjson = pytest.importorskip("hjson")
    assert json.loads(json.dumps(hjson.loads(text))) == values


@pytest.mark.parametrize(
    "text", ['{"a": 1', '{"a" 1}', '{"a": }', '{"a": 1}}', '{"a": "x}', "{,}", '{/* "a": 1}', '{"a": [1']
)
def test_what_deepspeed_cannot_read(text: str) -> None:
    with pytest.raises(Malformed):
        tolerant(text)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 1000, "{a: [" + "1\n" * 100_000, "/*" * 200_000, "'" * 900_001]
)
def test_hostile_text_is_refused_soon(text: str) -> None:
    with pytest.raises(Malformed):
        tolerant(text)


def test_positions_and_repeated_keys() -> None:
    found = tolerant('{\n "a": {"b": 1},\n "a": 2}')
    assert (found.marks["a.b"].line, found.marks["a.b"].column) == (2, 8)
    assert found.twice == ("a",)


# --- which file it is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ZERO, COMMENT, NO_AUTO, '{"fp16": {"enabled": true}}', "\ufeff" + ZERO, ZERO[:-2]])
def test_a_deepspeed_file(text: str) -> None:
    assert recognized(text.encode(), "ds.json") is not None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"distributed_type": "MULTI_GPU", "num_processes": 8, "zero_optimization": {"stage": 2}}', "a.json"),
        ('{"distributed_type": "MULTI_GPU", "fp16": true}', "a.json"),
        ('{"train_batch_size": 8, "learning_rate": 0.1, "optimizer": "adam"}', "train.json"),
        ("# DeepSpeed\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n", "accelerate.yaml"),
        ("zero_optimization:\n  stage: 2\n", "zero.yaml"),
        ("# mine\nzero_optimization:\n  stage: 2\n", "zero.yaml"),
        ("", "a.json"),
        ('{"distributed_type": "MULTI_GPU", "zero_optimization": {', "a.json"),
    ],
)
def test_another_file(text: str, name: str) -> None:
    assert recognized(text.encode(), name) is None


# --- the commands ------------------------------------------------------------------------------------------------


def validated(mgpu: Run, folder: Path, text: str, *options: str) -> tuple[Any, int]:
    (folder / "ds.json").write_text(text)
    done = mgpu("configure", "--validate", "ds.json", "--json", *options, cwd=folder)
    return json.loads(done.stdout), done.returncode


@pytest.mark.parametrize(
    ("text", "verdict", "found"),
    [
        (ZERO, "valid", set()),
        (COMMENT, "invalid", {"deepspeed_file_invalid"}),
        (NO_AUTO, "valid", {"deepspeed_file_only_for_deepspeed"}),
        (ZERO.replace('"stage": 3', '"sub_group_size": "auto"'), "invalid", {"deepspeed_auto_unfilled"}),
    ],
)
def test_validate_judges_what_the_file_is(mgpu: Run, tmp_path: Path, text: str, verdict: str, found: set[str]) -> None:
    document, code = validated(mgpu, tmp_path, text, "--no-loader")
    assert (document["kind"], document["verdict"], code) == ("deepspeed", verdict, int(verdict == "invalid"))
    assert {one["id"] for one in document["checks"] if one["status"] in ("info", "warn", "fail")} == found
    assert document["config"]["zero_optimization"] and document["loader"] is None and document["next"] == []


def test_validate_says_which_kind_of_file_it_is_and_fix_leaves_it(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(COMMENT)
    said = " ".join(mgpu("configure", "--validate", "ds.json", "--fix", "--no-loader", cwd=tmp_path).stdout.split())
    assert "ds.json: nothing to fix automatically." in said and "a DeepSpeed file, not an accelerate config" in said
    assert (tmp_path / "ds.json").read_text() == COMMENT and not list(tmp_path.glob("*.bak"))


def test_both_kinds_in_one_call(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(ZERO)
    (tmp_path / "a.yaml").write_text("distributed_type: 'NO'\nnum_processes: 1\n")
    done = mgpu("configure", "--validate", "ds.json", "a.yaml", "--json", "--no-loader", cwd=tmp_path)
    assert [one["kind"] for one in json.loads(done.stdout)["files"]] == ["deepspeed", "accelerate"]


@pytest.mark.parametrize(
    "line", ["configure --show-origin ds.json", "configure --edit ds.json --yes", "launch -c ds.json train.py"]
)
def test_where_an_accelerate_config_is_needed_it_is_refused(mgpu: Run, tmp_path: Path, line: str) -> None:
    (tmp_path / "ds.json").write_text(ZERO)
    (tmp_path / "train.py").write_text("print(1)\n")
    done = mgpu(*line.split(), cwd=tmp_path)
    assert done.returncode == 2 and "ds.json is a DeepSpeed file, not an accelerate config" in done.stderr


def test_doctor_accepts_it_as_config(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(COMMENT)
    done = mgpu("doctor", "--quick", "--config", "ds.json", "--json", cwd=tmp_path)
    found = {one["id"]: one["status"] for one in json.loads(done.stdout)["checks"]}
    assert found["deepspeed_file_invalid"] == "fail" and not any(name.startswith("config_") for name in found)


HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks=1\n#SBATCH --gpus-per-node=4\n"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("torchrun --nproc_per_node=4 train.py --deepspeed conf/ds.json", "deepspeed_file_invalid"),
        ("deepspeed --num_gpus=4 train.py --deepspeed --deepspeed_config conf/ds.json", ""),
        ("deepspeed train.py --deepspeed_config=$SLURM_SUBMIT_DIR/conf/ds.json", ""),
        ("accelerate launch --deepspeed_config_file conf/ds.json train.py", "deepspeed_file_invalid"),
        ("DS=conf/ds.json\npython train.py --deepspeed $DS", "deepspeed_file_invalid"),
        ("cd /cluster/project\ntorchrun train.py --deepspeed conf/ds.json", "deepspeed_file_invalid"),
        ("torchrun train.py --deepspeed conf/other.json", None),
        ("torchrun train.py --deepspeed", None),
        ("echo torchrun train.py --deepspeed conf/ds.json", None),
    ],
)
def test_the_file_of_a_job_script_is_examined(mgpu: Run, tmp_path: Path, command: str, found: str | None) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/ds.json").write_text(COMMENT)
    (tmp_path / "job.sbatch").write_text(f"{HEAD}{command}\n")
    done = mgpu("doctor", "--script", "job.sbatch", "--json", cwd=tmp_path)
    checks = [one for one in json.loads(done.stdout)["checks"] if one["area"] == "deepspeed_file"]
    assert bool(checks) is (found is not None)
    assert [one["id"] for one in checks if one["status"] in ("warn", "fail")] == ([found] if found else [])
