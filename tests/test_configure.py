"""`mgpu configure` as its users run it: writing, refusing, validating, and asking in a real terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu import cli
from mgpu.config.reading import parse
from mgpu.snapshot import Driver, Gpu, Snapshot, Visible, to_json
from mgpu.wizard import write_config
from tests.conftest import Run
from tests.fake_nvml import FAULTS
from tests.test_schema import WRITTEN

GIB = 1 << 30


@pytest.fixture
def configure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run configure in this process, in an empty folder, for a saved machine of two A100; accelerate is not asked.

    The files have the names they have for this machine.
    """
    gpus = tuple(
        Gpu(i, f"GPU-{i}", "NVIDIA A100-SXM4-80GB", f"0000:0{i}:00.0", (8, 0), 80 * GIB, 0, 80 * GIB) for i in (0, 1)
    )
    driver = Driver(None, None, "580.95.05", (13, 0), None, "580.95.05", 2)
    snapshot = Snapshot(driver=driver, gpus=gpus, links=(), visible=Visible(None, (0, 1)), env={})
    saved = tmp_path / "machine.json"
    saved.write_text(json.dumps(to_json(snapshot)), encoding="utf-8")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(write_config, "ask_loader", lambda text, python, *_: "accelerate 1.15.0")

    def run(*arguments: str) -> tuple[int, str, str]:
        names = [("-o", "accelerate.yaml"), ("--save-answers", "mgpu.answers.toml")]
        reads = {"--validate", "--plan", "--show-origin", "--edit"} & set(arguments)
        usual = [word for name in names if name[0] not in arguments and not reads for word in name]
        code = cli.run(["configure", "--from", str(saved), *arguments, *usual])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


# ---- what is written


def test_dry_run_prints_the_yaml_and_nothing_else(configure: Any, tmp_path: Path) -> None:
    code, out, err = configure("--dry-run")
    assert code == 0
    assert yaml.safe_load(out) == {
        "compute_environment": "LOCAL_MACHINE", "num_processes": 2, "distributed_type": "MULTI_GPU",
        "mixed_precision": "bf16", "num_machines": 1,
    }  # fmt: skip
    assert err == "mgpu: dry run: would write accelerate.yaml\n"
    assert list(Path().iterdir()) == []
    assert configure("--dry-run")[1] == out  # twice the same
    assert all(len(line) <= 120 for line in out.splitlines())


def test_yes_writes_and_leaves_an_identical_file_alone(configure: Any) -> None:
    path = Path("accelerate.yaml")
    code, out, err = configure("--yes")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Wrote accelerate.yaml"
    assert "mgpu smoke-test" in out
    assert path.read_text(encoding="utf-8") == configure("--dry-run")[1]
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    code, out, _ = configure("--yes")
    assert code == 0 and "is already up to date" in out
    assert (path.stat().st_mtime, path.stat().st_ino) == (1, inode)
    assert [p.name for p in Path().iterdir()] == ["accelerate.yaml"]


def test_other_flags_replace_the_own_file_and_no_backup_is_ever_lost(configure: Any) -> None:
    contents = []
    for batch in (4, 8, 16):
        code, out, _ = configure("--yes", "--batch-per-gpu", str(batch))
        assert code == 0
        contents.append(Path("accelerate.yaml").read_text(encoding="utf-8"))
        assert f"# batch per GPU {batch} x 2 GPUs = effective batch {batch * 2}" in contents[-1]
    assert "backup: accelerate.yaml.bak.2" in out
    assert Path("accelerate.yaml.bak").read_text(encoding="utf-8") == contents[0]
    assert Path("accelerate.yaml.bak.2").read_text(encoding="utf-8") == contents[1]
    code, out, _ = configure("--yes", "--precision", "fp16", "--gpus", "1")
    assert code == 0
    changed = {line.split("#")[0].strip() for line in out.splitlines() if line.startswith(("  -", "  +"))}
    assert {"-mixed_precision: bf16", "+mixed_precision: fp16", "-num_processes: 2", "+num_processes: 1"} <= changed


FOREIGN = "# by hand\ndistributed_type: MULTI_GPU\nnum_processes: 7\n"


@pytest.mark.parametrize("content", [FOREIGN, "", "not: [yaml", "just words", "\tno"])
def test_a_file_of_somebody_else_stays_until_force(content: str, configure: Any) -> None:
    path = Path("accelerate.yaml")
    path.write_text(content, encoding="utf-8")
    code, out, err = configure("--yes")
    assert (code, out) == (5, "")
    assert "was not written by mgpu" in err and "--force" in err and "-o OTHER.yaml" in err
    assert path.read_text(encoding="utf-8") == content
    code, out, _ = configure("--yes", "--force")
    assert code == 0
    assert Path("accelerate.yaml.bak").read_text(encoding="utf-8") == content
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["num_processes"] == 2


def test_bytes_that_are_no_text_are_kept_as_they_are(configure: Any) -> None:
    Path("accelerate.yaml").write_bytes(b"\xff\xfe\x00 caf\xe9\n")
    assert configure("--yes")[0] == 5
    assert configure("--yes", "--force")[0] == 0
    assert Path("accelerate.yaml.bak").read_bytes() == b"\xff\xfe\x00 caf\xe9\n"


def test_the_own_file_edited_by_hand_is_somebody_elses(configure: Any) -> None:
    configure("--yes")
    path = Path("accelerate.yaml")
    edited = path.read_text(encoding="utf-8").replace("num_processes: 2", "num_processes: 1")
    path.write_text(edited, encoding="utf-8")
    code, _, err = configure("--yes")
    assert code == 5 and "was changed since mgpu wrote it" in err
    assert path.read_text(encoding="utf-8") == edited
    # A comment is no change of values: the file is still ours, and says what we would write.
    path.write_text(edited.replace("num_processes: 1", "num_processes: 2") + "# mine\n", encoding="utf-8")
    assert configure("--yes")[0] == 0


def test_an_output_that_cannot_be_written_is_one_message(configure: Any) -> None:
    Path("folder.yaml").mkdir()
    for name, words in {"folder.yaml": "is a folder", "no/such/place.yaml": "cannot write"}.items():
        code, out, err = configure("--yes", "-o", name)
        assert code not in (0, 3) and out == ""
        assert words in err and len(err.splitlines()) == 1
    assert list(Path("folder.yaml").iterdir()) == []


def test_a_folder_that_is_read_only_is_one_message(mgpu: Run, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere; tests/test_hostile.py mounts a read-only folder")
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o500)
    result = mgpu("configure", "--yes", cwd=folder)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1


def test_a_folder_that_is_gone_is_one_message(mgpu: Run, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd gone && rmdir ../gone && exec "$0" -m mgpu configure --yes --target 2xH100'
    result = subprocess.run(
        ["bash", "-c", script, sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )  # fmt: skip
    assert result.returncode == 1 and "the current folder no longer exists" in result.stderr


def test_another_rate_is_another_file_though_no_value_differs(configure: Any) -> None:
    common = ("--yes", "--batch-per-gpu", "8", "--lr-ref-batch", "8", "--save-answers", "none")
    assert configure(*common, "--lr", "2e-5")[0] == 0
    assert configure(*common, "--lr", "1e-4")[0] == 0
    assert "from 1e-4 at batch 8" in Path("accelerate.yaml").read_text("utf-8").replace("0.0001 at", "1e-4 at")
    assert Path("accelerate.yaml.bak").exists()
    assert "is already up to date" in configure(*common, "--lr", "1e-4")[1]


def test_a_link_inside_the_folder_is_followed_to_its_target(configure: Any) -> None:
    target = Path("configs") / "elsewhere.yaml"
    target.parent.mkdir()
    Path("accelerate.yaml").symlink_to(target)
    assert configure("--yes")[0] == 0
    assert Path("accelerate.yaml").is_symlink()
    assert yaml.safe_load(target.read_text(encoding="utf-8"))["num_processes"] == 2
    assert configure("--yes", "--batch-per-gpu", "4")[0] == 0
    assert Path("accelerate.yaml").is_symlink() and "batch per GPU 4" in target.read_text(encoding="utf-8")


def test_the_mode_of_a_file_is_kept(configure: Any) -> None:
    configure("--yes")
    Path("accelerate.yaml").chmod(0o640)
    configure("--yes", "--batch-per-gpu", "4")
    assert Path("accelerate.yaml").stat().st_mode & 0o777 == 0o640


def test_json_tells_the_values_and_where_they_come_from(configure: Any) -> None:
    code, out, err = configure("--yes", "--json", "--precision", "fp16")
    document = json.loads(out)
    WRITTEN.validate(document)
    assert (code, err, document["schema"], document["exit_code"]) == (0, "", "mgpu.configure/1.0", 0)
    assert document["config"] == yaml.safe_load(Path("accelerate.yaml").read_text(encoding="utf-8"))
    sources = {value["key"]: value["source"] for value in document["values"]}
    assert (sources["num_processes"], sources["mixed_precision"], sources["num_machines"]) == ("probe", "flag", "rule")
    assert document["next"] == ["mgpu smoke-test"]
    assert "effective batch" in {value["name"] for value in document["values"] if value["key"] is None}  # in no file


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--gpus", "9"], 1, "2 GPUs are usable here"),
        (["--gpus", "0"], 1, "mgpu smoke-test --cpu 2"),
        (["--gpus", "-1"], 2, "--gpus -1: expected how many GPUs"),
        (["--precision", "bf32"], 2, "bf16"),
        (["--batch-per-gpu", "0"], 2, "--batch-per-gpu 0: expected a whole number from 1"),
        (["--batch-per-gpu", "many"], 2, "--batch-per-gpu many: expected a whole number from 1"),
        (["--format", "yaml"], 2, "human, json, github or sarif"),
        (["--strategy", "ddp", "--params", "700B"], 1, "DDP"),
        (["--edit", "missing.yaml"], 2, "missing.yaml"),
    ],
)
def test_impossible_wishes_are_refused(options: list[str], code: int, words: str, configure: Any) -> None:
    found, out, err = configure("--yes", *options)
    assert (found, out) == (code, "")
    assert words in err
    assert list(Path().iterdir()) == []


def test_without_a_terminal_nothing_is_asked(mgpu: Run, tmp_path: Path) -> None:
    for options, why in (
        ([], "there is no terminal to ask questions on."),
        (["--no-input"], "--no-input does not allow questions."),
    ):
        result = mgpu("configure", *options)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.splitlines()[:2] == [
            f"mgpu: {why}", "Missing: params (--params), batch_per_gpu (--batch-per-gpu)"
        ]  # fmt: skip
        assert "mgpu configure --yes" in result.stderr and "mgpu configure --answers FILE" in result.stderr
    assert not (tmp_path / "accelerate.yaml").exists()


def test_what_is_missing_is_named_and_nothing_else(configure: Any) -> None:
    code, _, err = configure("--no-input", "--params", "1B")
    assert code == 2 and "Missing: batch_per_gpu (--batch-per-gpu)\n" in err
    code, out, _ = configure("--no-input", "--params", "1B", "--batch-per-gpu", "4")
    assert code == 0 and out.startswith("Wrote accelerate.yaml\n")


def test_answers_are_kept_and_replayed_to_the_same_bytes(configure: Any) -> None:
    flags = ("--params", "1B", "--batch-per-gpu", "4", "--dataset-size", "52k", "--lr", "2e-5", "--lr-ref-batch", "4")
    assert configure("--yes", *flags)[0] == 0
    first = Path("accelerate.yaml").read_bytes()
    kept = Path("mgpu.answers.toml").read_bytes()
    Path("accelerate.yaml").unlink()
    for options in (("--yes",), ()):  # a file of answers is enough where nobody can be asked
        code, out, _ = configure(*options, "--answers", "mgpu.answers.toml")
        assert code == 0 and "mgpu.answers.toml" not in out.splitlines()[1]
        assert Path("accelerate.yaml").read_bytes() == first
        assert Path("mgpu.answers.toml").read_bytes() == kept
        dry = configure("--answers", "mgpu.answers.toml", "--dry-run")[1]
        assert dry == configure("--answers", "mgpu.answers.toml", "--dry-run")[1] == first.decode()


def test_nothing_decided_and_none_leave_no_answers_file(configure: Any) -> None:
    configure("--yes")
    configure("--yes", "--batch-per-gpu", "4", "--save-answers", "none")
    assert not Path("mgpu.answers.toml").exists()
    configure("--yes", "--batch-per-gpu", "4", "--save-answers", "mine.toml")
    assert Path("mine.toml").exists() and not Path("mgpu.answers.toml").exists()


def test_the_difference_is_shown_and_nothing_is_written(configure: Any) -> None:
    code, out, err = configure("--diff")
    assert code == 0 and "+num_processes: 2" in out and "would write accelerate.yaml" in err
    assert not Path("accelerate.yaml").exists()
    Path("accelerate.yaml").write_text(FOREIGN, encoding="utf-8")
    code, out, err = configure("--diff")
    assert code == 0 and "-num_processes: 7" in out and "would change accelerate.yaml" in err
    assert Path("accelerate.yaml").read_text(encoding="utf-8") == FOREIGN


MINE = """\
# by hand, please keep
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU   # plain
num_processes: 1
main_training_function: train   # ours
mixed_precision: fp16
"""


def test_an_edited_file_keeps_comments_and_keys_of_others(configure: Any) -> None:
    Path("mine.yaml").write_text(MINE, encoding="utf-8")
    code, out, err = configure("--yes", "--edit", "mine.yaml", "--precision", "bf16", "--gpus", "2")
    assert (code, err) == (0, "")
    expected = MINE.replace("num_processes: 1", "num_processes: 2").replace("fp16", "bf16")
    assert Path("mine.yaml").read_text(encoding="utf-8") == expected
    assert Path("mine.yaml.bak").read_text(encoding="utf-8") == MINE
    assert {"  -num_processes: 1", "  +num_processes: 2"} <= set(out.splitlines())
    assert "mgpu smoke-test -c mine.yaml" in out
    code, out, _ = configure("--yes", "--edit", "mine.yaml", "-o", "other.yaml")
    assert code == 0 and Path("other.yaml").read_text(encoding="utf-8") == expected
    code, out, _ = configure("--yes", "--edit", "mine.yaml")
    assert code == 0 and "is already up to date" in out


def test_a_file_of_fsdp1_says_that_it_becomes_fsdp2(configure: Any) -> None:
    text = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\nnum_processes: 2\n"
    Path("theirs.yaml").write_text(text, encoding="utf-8")
    words = "was FSDP1 and becomes FSDP2"
    for option in ("--dry-run", "--diff"):
        assert words in configure("--edit", "theirs.yaml", option)[2]
    assert words in " ".join(configure("--edit", "theirs.yaml", "--yes")[1].split())
    assert yaml.safe_load(Path("theirs.yaml").read_text(encoding="utf-8"))["fsdp_config"]["fsdp_version"] == 2
    assert words not in configure("--edit", "theirs.yaml", "--dry-run")[2]


def test_what_accelerate_refuses_of_somebodys_file_is_not_called_ours(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_config, "ask_loader", lambda text, python, name: f"ValueError: {name} had unknown keys")
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\nmy_key: 3\n"
    Path("theirs.yaml").write_text(text, encoding="utf-8")
    code, _, err = configure("--edit", "theirs.yaml", "--yes", "--port", "29600")
    assert code == 1 and "theirs.yaml left unchanged" in err and "theirs.yaml had unknown keys" in err
    assert "--validate theirs.yaml" in err and Path("theirs.yaml").read_text(encoding="utf-8") == text
    assert "the config that mgpu generated" in configure("--yes")[2]


def test_a_file_for_more_gpus_than_there_are_says_what_to_do(configure: Any) -> None:
    Path("theirs.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 4\n", encoding="utf-8")
    assert "The file requests it; --gpus auto uses what is here" in configure("--edit", "theirs.yaml", "--yes")[2]
    assert configure("--edit", "theirs.yaml", "--yes", "--gpus", "auto")[0] == 0
    assert yaml.safe_load(Path("theirs.yaml").read_text(encoding="utf-8"))["num_processes"] == 2


def test_what_a_deepspeed_file_decides_is_not_said_to_be_changed(configure: Any) -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 2\n"
    Path("theirs.yaml").write_text(text, encoding="utf-8")
    code, out, err = configure("--edit", "theirs.yaml", "--yes", "--strategy", "zero2")
    assert out == "" and "zero_optimization.stage from ds.json, which mgpu does not change" in err and code != 0
    assert Path("theirs.yaml").read_text(encoding="utf-8") == text


def test_several_machines_get_both_commands_and_a_next_step_that_works(configure: Any) -> None:
    _, out, _ = configure("--yes", "--nodes", "3000", "--address", "node-0", "-o", "my file.yaml")
    assert "accelerate launch --config_file 'my file.yaml' --machine_rank 2999 " in out
    assert "torchrun --nnodes 3000 --nproc-per-node 2 --node-rank 2999 --master-addr node-0" in out
    assert len(out.splitlines()) < 40
    assert "Next:  mgpu smoke-test -c 'my file.yaml' --node-rank 0  (with 1 to 2999 on the other nodes)" in out
    _, out, _ = configure("--yes", "--nodes", "2", "--address", "node-0", "--json")
    assert json.loads(out)["next"] == ["mgpu smoke-test --node-rank 0"]


def test_an_accelerate_that_would_run_fsdp1_is_named(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "accelerate 1.0.1 accepts this file but runs FSDP1"
    monkeypatch.setattr(write_config, "ask_loader", lambda text, python, name: "accelerate 1.0.1")
    assert words in " ".join(configure("--yes", "--strategy", "fsdp2")[1].split())
    assert words not in " ".join(configure("--yes", "--no-answers", "-o", "ddp.yaml")[1].split())


def test_what_is_written_names_the_machine_and_the_file_it_is_made_again_with(configure: Any, tmp_path: Path) -> None:
    configure("--yes", "--save-answers", "my answers.toml", "--batch-per-gpu", "2")
    assert f"--from {tmp_path / 'machine.json'}" in Path("accelerate.yaml").read_text(encoding="utf-8")
    assert "machine.json --answers 'my answers.toml'" in Path("my answers.toml").read_text(encoding="utf-8")


def test_a_file_that_cannot_be_edited_says_why(configure: Any) -> None:
    Path("mine.yaml").write_text("not: [yaml", encoding="utf-8")
    code, _, err = configure("--yes", "--edit", "mine.yaml")
    assert code == 2 and "mine.yaml cannot be changed: not YAML" in err and "--validate mine.yaml" in err


# ---- the answers of a folder


def test_the_answers_of_a_folder_are_read_again(configure: Any) -> None:
    configure("--yes", "--params", "1B", "--batch-per-gpu", "8")
    first = Path("mgpu.answers.toml").read_text(encoding="utf-8")
    code, out, err = configure("--yes", "--precision", "fp16")
    assert (code, err) == (0, "mgpu: with the answers in mgpu.answers.toml (--no-answers ignores them)\n")
    text = Path("accelerate.yaml").read_text(encoding="utf-8")
    assert "mixed_precision: fp16" in text and "# model 1B" in text and "batch per GPU 8 x 2" in text
    assert '  +precision = "fp16"' in out.splitlines() and "(backup: mgpu.answers.toml.bak)" in out
    assert Path("mgpu.answers.toml.bak").read_text(encoding="utf-8") == first
    code, out, err = configure("--yes", "--no-answers")
    assert (code, err) == (0, "") and "# model 1B" not in Path("accelerate.yaml").read_text(encoding="utf-8")
    assert "mgpu.answers.toml" not in out  # nothing was decided, so nothing is saved


def test_an_answer_that_does_not_fit_the_folders_is_refused_with_both(configure: Any) -> None:
    configure("--yes", "--batch-per-gpu", "8")
    before = Path("accelerate.yaml").read_bytes()
    code, out, err = configure("--yes", "--effective-batch", "12")
    assert (code, out) == (2, "") and Path("accelerate.yaml").read_bytes() == before
    assert "12 is not a multiple of 8 per GPU" in err and "--no-answers ignores it" in err
    Path("mgpu.answers.toml").write_text("[batch\n", encoding="utf-8")
    code, out, err = configure("--yes")
    assert (code, out) == (2, "") and "mgpu.answers.toml:1:" in err and "--no-answers ignores it" in err
    assert configure("--yes", "--no-answers")[0] == 0


def test_another_machine_and_another_engine_get_files_of_their_own(
    configure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("--yes", "--params", "1B", "--batch-per-gpu", "8", "--gpus", "1")
    here = {name: Path(name).read_bytes() for name in ("accelerate.yaml", "mgpu.answers.toml")}
    assert cli.run(["configure", "--yes", "--target", "2x8xH100", "--emit", "kubeflow"]) == 0
    assert "accelerate.kubeflow.yaml" in capsys.readouterr().out
    assert {name: Path(name).read_bytes() for name in here} == here
    text = Path("accelerate.kubeflow.yaml").read_text(encoding="utf-8")
    assert "num_processes: 16" in text and "# model 1B" in text  # the model is the folder's, the GPUs are not
    assert "nodes = 2" in Path("mgpu.answers.kubeflow.toml").read_text(encoding="utf-8")
    assert cli.run(["configure", "--yes", "--target", "4xT4", "--precision", "bf16", "--params", "100M"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Warning: bf16 on NVIDIA T4 (compute capability 7.5). torch emulates it" in out
    assert "smoke-test -c accelerate.4xT4.yaml" in out and "Replay: mgpu configure --yes --target 4xT4" in out
    assert {name: Path(name).read_bytes() for name in here} == here


def test_a_wrong_target_is_said_before_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["configure", "--target", "banana"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("mgpu: --target banana: expected [NODESx]GPUSxMODEL") and "Missing" not in err


# ---- the machine decides


@pytest.mark.parametrize(
    ("name", "lines", "env", "values"),
    [
        ("h100_sxm_x8", [], {}, (8, "bf16", "MULTI_GPU")),
        ("a100_sxm_x4", [], {}, (4, "bf16", "MULTI_GPU")),
        ("rtx4090_x2", [], {}, (2, "bf16", "MULTI_GPU")),
        ("t4_x1", [], {}, (1, "fp16", "NO")),
        ("h100_sxm_x8", [], {"CUDA_VISIBLE_DEVICES": "0,3,5"}, (3, "bf16", "MULTI_GPU")),
        ("h100_sxm_x8", [], {"CUDA_VISIBLE_DEVICES": "2"}, (1, "bf16", "NO")),
        ("a100_sxm_x4", [FAULTS["gpu_lost"]], {}, (3, "bf16", "MULTI_GPU")),
        ("a100_sxm_x4", ["2.compute_capability = 7.0"], {}, (4, "fp16", "MULTI_GPU")),
        ("a100_sxm_x4", ["2.compute_capability = 6.1"], {}, (4, "no", "MULTI_GPU")),
        ("a100_sxm_x4", ["2.compute_capability = !999"], {}, (4, "no", "MULTI_GPU")),
    ],
)
def test_the_config_fits_the_machine(
    name: str, lines: list[str], env: Mapping[str, str], values: tuple[int, str, str], on: Run
) -> None:
    result = on(name, lines, "configure", "--dry-run", env=dict(env))
    assert result.returncode == 0, result.stderr
    config = yaml.safe_load(result.stdout)
    assert (config["num_processes"], config["mixed_precision"], config["distributed_type"]) == values
    assert all(isinstance(config[key], str) for key in ("mixed_precision", "distributed_type"))


@pytest.mark.parametrize(
    ("lines", "env", "words"),
    [
        ([FAULTS["library_mismatch"]], {}, "LIB_RM_VERSION_MISMATCH"),
        ([FAULTS["driver_not_loaded"]], {}, "DRIVER_NOT_LOADED"),
        ([FAULTS["nvml_aborts"]], {}, "SIGABRT"),
        (["*.every = !15"], {}, "4 lost"),
        ([], {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES=''"),
        ([], {"CUDA_VISIBLE_DEVICES": "9"}, "CUDA_VISIBLE_DEVICES='9'"),
    ],
)
def test_a_machine_whose_gpus_cannot_be_used_is_refused(
    lines: list[str], env: Mapping[str, str], words: str, on: Run, tmp_path: Path
) -> None:
    result = on("a100_sxm_x4", lines, "configure", "--yes", env=dict(env))
    assert (result.returncode, result.stdout) == (1, "")
    assert words in result.stderr and "mgpu doctor" in result.stderr
    assert not (tmp_path / "accelerate.yaml").exists()


@pytest.mark.parametrize("name", ["rtx4090_x2", "t4_x1"])
def test_accelerate_itself_takes_what_is_written(name: str, on: Run, tmp_path: Path) -> None:
    result = on(name, [], "configure", "--yes", "--batch-per-gpu", "8")
    assert result.returncode == 0, result.stderr
    assert "checked against accelerate " in " ".join(result.stdout.split())
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(tmp_path / "accelerate.yaml"))
    two = name == "rtx4090_x2"
    assert (config.num_processes, config.mixed_precision) == ((2, "bf16") if two else (1, "fp16"))
    assert config.distributed_type == ("MULTI_GPU" if two else "NO")
    assert config.num_machines == 1


# ---- values are what accelerate reads: YAML 1.1, as PyYAML has it

SCALARS = (
    "no", "NO", "No", "yes", "on", "Off", "true", "False", "y", "n", "~", "null", "Null", "", "''", '"no"', "'1'", "0",
    "-0", "+1", "010", "08", "0o17", "0x1F", "0b11", "1_000", "1:30", "190:20:30", "1e3", "1.0e+3", "1.e+3", ".5", "5.",
    "-.5", ".inf", "-.INF", "0,1", "a b", "a: b", "- x", "[0, 1]", "{a: no}", "'it''s'", '"a\\tb"', "2026-01-02", "=",
    "bf16", "@x", "1.5.2", "0.0.0.0", "10.0.0.1", "::1", "!!str no", "!!int '3'", "|\n  text\n  more", ">\n  folded",
)  # fmt: skip


def read_both(text: str) -> tuple[Any, Any]:
    """What mgpu reads and what PyYAML reads, or "refused"."""
    values, _, _, faults = parse(text)
    mine: Any = "refused" if any(fault.fatal for fault in faults) else values
    try:
        theirs = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return mine, "refused"

    def plain(data: Any) -> Any:
        if isinstance(data, dict):
            return {str(key): plain(value) for key, value in data.items()}
        if isinstance(data, list | tuple | set):
            return [plain(value) for value in data]
        return data

    theirs = json.loads(json.dumps(plain(theirs), default=str)) if isinstance(theirs, dict) else "refused"
    return mine, theirs


@pytest.mark.parametrize("scalar", SCALARS)
def test_a_scalar_is_read_as_accelerate_reads_it(scalar: str) -> None:
    mine, theirs = read_both(f"key: {scalar}\n")
    assert mine == theirs


def test_of_two_equal_keys_the_last_one_counts() -> None:
    mine, theirs = read_both("num_processes: 2\nnum_processes: 8\n")
    assert theirs == {"num_processes": 8}
    assert mine == theirs


_NAMES = st.sampled_from(["num_processes", "gpu_ids", "debug", "no", "1", "key with blanks", "a.b", "~"])
_SCALARS = st.sampled_from([s for s in SCALARS if "\n" not in s])
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(_NAMES, st.one_of(_SCALARS, _TEXT)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]),
    st.integers(0, 2),
)
def test_a_mapping_is_read_as_accelerate_reads_it(pairs: list[tuple[str, str]], indent: int) -> None:
    text = "".join(f"{name}: {value}\n" for name, value in pairs)
    if indent:
        text = "outer:\n" + "".join(" " * indent + line + "\n" for line in text.splitlines())
    mine, theirs = read_both(text)
    if "refused" not in (mine, theirs):
        assert mine == theirs, text
    if theirs == "refused" and mine != "refused":
        # Reading more than accelerate does no harm: accelerate is asked as well, and refuses the file.
        assert isinstance(mine, dict)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_end_in_an_exception(content: bytes) -> None:
    parse(content.decode("utf-8", "replace"))
    parse(content.decode("utf-8", "replace"), json_only=True)
