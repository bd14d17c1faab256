"""`mgpu configure --validate`, `--fix` and `--show-origin` as their users run them, on described machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mgpu import cli, engine, errors
from mgpu.config import loader
from mgpu.engine import selections
from mgpu.probes import runner
from mgpu.validate import request as validate_request
from mgpu.validate import run as validate_run
from tests.conftest import Run, environment
from tests.fake_nvml import environment as with_nvml
from tests.fake_nvml import machine
from tests.test_schema import ORIGINS, VALIDATION

GOOD = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""
# What --fix can mend: a name that accelerate does not have.
MENDABLE = """\
# from the cluster's wiki

compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU   # all on one node
mixed_precision: fp32         # for now
num_machines: 1
num_processes: 2
"""
MENDED = MENDABLE.replace("fp32         #", "'no'         #")


def instead(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


Found = dict[str, tuple[int, int] | None]  # check -> line and column; None for one that has no place in the file
BAD: dict[str, tuple[str | bytes, Found]] = {
    "tab": (instead("num_machines", "\tnum_machines"), {"config_unreadable": (4, 1)}),
    "merge_markers": (f"{GOOD}<<<<<<< HEAD\ndebug: true\n=======\n>>>>>>> x\n", {"config_unreadable": (6, 1)}),
    "empty": ("", {"config_unreadable": (1, 1)}),
    "only_comments": ("# nothing\n\n", {"config_unreadable": (1, 1)}),
    "list": ("- distributed_type: MULTI_GPU\n", {"config_unreadable": (1, 1)}),
    "latin_1": (b"# by\ndebug: false # caf\xe9\n", {"config_unreadable": (2, 19)}),
    "bracket_open": (f"{GOOD}gpu_ids: [0,\n", {"config_unreadable": (6, 10)}),
    "two_documents": (f"{GOOD}---\n{GOOD}", {"config_unreadable": (6, 1)}),
    "twice": (f"{GOOD}num_processes: 2\n", {"config_key_twice": (6, 1)}),
    "unknown_key": (f"{GOOD}num_machnes: 1\n", {"config_key_unknown": (6, 1)}),
    "precision_misspelt": (instead("bf16", "bf61"), {"config_precision_invalid": (3, 1)}),
    "type_misspelt": (instead("MULTI_GPU", "MULTIGPU"), {"config_type_invalid": (2, 1)}),
    "more_ranks_than_gpus": (instead("processes: 2", "processes: 8"), {"config_more_ranks_than_gpus": (5, 1)}),
}
FINE: dict[str, str | bytes] = {
    "plain": GOOD,
    "windows": GOOD.replace("\n", "\r\n"),
    "no_end": GOOD.rstrip("\n"),
    "document_start": f"---\n{GOOD}",
    "umlaut": f"# Stra\xdfe\n{GOOD}",
    "gpu_ids": f"{GOOD}gpu_ids: '1,0'\n",
    "json.json": json.dumps({"distributed_type": "MULTI_GPU", "num_processes": 2, "mixed_precision": "bf16"}),
}


@pytest.fixture(scope="module")
def validated(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All those files judged by one command on a machine of two GPUs, the loader not asked."""
    folder = tmp_path_factory.mktemp("validate")
    contents = {name: text for name, (text, _) in BAD.items()} | FINE
    names = []
    for name, text in contents.items():
        path = folder / (name if "." in name else f"{name}.yaml")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        names.append(path.name)
    env = environment(folder, with_nvml(library, machine(folder, "rtx4090_x2")))
    result = subprocess.run(
        [sys.executable, "-m", "mgpu", "configure", "--json", "--no-loader", "--validate", *names], cwd=folder, env=env,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert (result.returncode, document["exit_code"]) == (1, 1)
    for one in document["files"]:
        VALIDATION.validate(one)
    return {Path(one["config_path"]).name: one for one in document["files"]}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_told_with_its_place(name: str, validated: Any) -> None:
    document = validated[f"{name}.yaml"]
    found: Found = {
        c["id"]: (c["line"], c["column"]) if c.get("line") else None
        for c in document["checks"]
        if c["status"] in ("fail", "warn", "crash") and not c["because_of"]
    }
    assert found == BAD[name][1]
    assert all(c["file"] == f"{name}.yaml" for c in document["checks"] if c["status"] in ("fail", "warn"))
    assert all(c["verify"] == f"mgpu configure --validate {name}.yaml" for c in document["checks"])
    fails = any(c["status"] == "fail" for c in document["checks"])
    assert (document["verdict"], document["exit_code"]) == (("invalid", 1) if fails else ("valid", 0))


@pytest.mark.parametrize("name", FINE)
def test_a_good_file_is_valid_without_accelerates_own_loader(name: str, validated: Any) -> None:
    document = validated[name if "." in name else f"{name}.yaml"]
    assert [c["id"] for c in document["checks"] if c["status"] in ("fail", "warn", "crash")] == []
    assert (document["verdict"], document["exit_code"], document["loader"]) == ("valid", 0, None)
    assert document["config"]["distributed_type"] == "MULTI_GPU"


@pytest.mark.parametrize(
    ("name", "near"),
    [("unknown_key", "num_machines"), ("type_misspelt", "MULTI_GPU"), ("precision_misspelt", "bf16")],
)
def test_a_slip_is_told_with_the_nearest_name(name: str, near: str, validated: Any) -> None:
    found = [c for c in validated[f"{name}.yaml"]["checks"] if c["status"] == "fail"]
    said = [text for c in found for text in (c["title"], *(fix["text"] for fix in c["fix"]))]
    assert any(near in text for text in said), said


def test_a_t4_has_no_bf16_and_no_fp8(on: Run, tmp_path: Path) -> None:
    for precision in ("bf16", "fp8"):
        one = instead("MULTI_GPU", "'NO'").replace("num_processes: 2", "num_processes: 1").replace("bf16", precision)
        (tmp_path / f"{precision}.yaml").write_text(one)
    result = on("t4_x1", [], "configure", "--json", "--no-loader", "--validate", "bf16.yaml", "fp8.yaml")
    bf16, fp8 = ({c["id"]: (c["line"], c["status"]) for c in one["checks"] if c["status"] in ("fail", "warn")}
                 for one in json.loads(result.stdout)["files"])  # fmt: skip
    assert bf16 == {"config_bf16_emulated": (3, "warn")}
    assert fp8["config_fp8_unsupported"] == (3, "fail")


def test_valid_needs_accelerates_own_yes(on: Run, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "refused.yaml").write_text(instead("bf16", "fp32"))
    result = on("rtx4090_x2", [], "configure", "--validate", "good.yaml", "--validate", "refused.yaml", "--json")
    good, refused = json.loads(result.stdout)["files"]
    assert (good["verdict"], good["exit_code"]) == ("valid", 0), good["checks"]
    assert good["loader"]["accepted"] is True and good["next"] == ["mgpu smoke-test"]
    assert (refused["verdict"], result.returncode) == ("invalid", 1)
    (words,) = (c for c in refused["checks"] if c["id"] == "config_refused_by_accelerate")
    assert words["status"] == "fail" and words["because_of"] == ["config_precision_invalid"]


# ---- told


def test_validate_for_people(on: Run, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    result = on("rtx4090_x2", [], "configure", "--validate", "good.yaml")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("VALID  good.yaml: 0 errors, 0 warnings; accelerate ")
    (tmp_path / "bad.yaml").write_text(MENDABLE)
    for columns in (80, 40):
        env = {"COLUMNS": str(columns)}
        result = on("rtx4090_x2", [], "configure", "--no-loader", "--validate", "bad.yaml", "good.yaml", env=env)
        assert result.returncode == 1
        lines = result.stdout.splitlines()
        assert lines[0].startswith("bad.yaml:5:1: FAIL mixed_precision")
        assert any(line.startswith("    Why  ") for line in lines) and any(
            line.startswith("    Fix  ") for line in lines
        )
        assert "  mgpu configure --validate bad.yaml --fix" in lines
        assert any(line.startswith("INVALID  bad.yaml: 1 error, 0 warnings") for line in lines) or columns == 40
        assert lines[-1] == "2 files: 1 valid, 1 invalid."
        assert all(len(line) <= columns for line in lines if not line.startswith("  mgpu "))


def test_what_accelerate_says_is_told_once_under_what_it_names(on: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{GOOD}gpu_ids: [0, 1]\nfoo: 1\nbar: 2\n")
    (tmp_path / "b.yaml").write_text(GOOD.replace("num_processes: 2\n", ""))
    result = on("rtx4090_x2", [], "configure", "--validate", "a.yaml", "b.yaml", env={"COLUMNS": "300"})
    lines = result.stdout.splitlines()
    also = [number for number, line in enumerate(lines) if "[config_refused_by_accelerate]" in line]
    found = [next(line for line in reversed(lines[:number]) if line[0] != " ") for number in also]
    assert [line.split(" FAIL ")[0] for line in found] == ["a.yaml:7:1:"]
    assert "INVALID  a.yaml: 2 errors, 0 warnings; accelerate 1.15.0 rejects it." in lines  # both keys are one
    assert "    Also line 8: unknown key 'bar'" in [line.partition(".")[0] for line in lines]
    (complete,) = (line for line in lines if line.startswith("COMPLETE WITH OPTIONS  b.yaml: 0 errors"))
    assert "accelerate 1.15.0 accepts it with" in complete and "--num_processes." in map(str.strip, lines)
    result = on("rtx4090_x2", [], "configure", "--validate", "a.yaml", "b.yaml", "--format", "github")
    assert result.stdout.count("config_refused_by_accelerate") == 1
    assert "::warning file=b.yaml,line=1,col=1,title=config_options_missing::" in result.stdout


SEVERAL = "num_machines: 2\ncompute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\n"


def test_a_precision_that_the_command_line_replaces_is_complete_with_options(on: Run, tmp_path: Path) -> None:
    """accelerate stops at an unquoted no, and at any mixed_precision next to a DeepSpeed file; not with the option."""
    (tmp_path / "no.yaml").write_text(instead("bf16", "no"))
    file = instead("MULTI_GPU", "DEEPSPEED").replace("num_processes: 2\n", "")
    (tmp_path / "ds.yaml").write_text(f"{file}deepspeed_config:\n  deepspeed_config_file: ds.json\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}\n')
    done = on("rtx4090_x2", [], "configure", "--validate", "no.yaml", "ds.yaml", "--json")
    no, beside_file = json.loads(done.stdout)["files"]
    assert no["verdict"] == "valid_with_options" and no["loader"]["options"] == ["mixed_precision"]
    assert beside_file["loader"]["accepted"]
    assert beside_file["loader"]["options"] == ["num_processes", "mixed_precision"]
    (missing,) = (one for one in beside_file["checks"] if one["id"] == "config_options_missing")
    assert missing["title"] == "complete only with --num_processes and --mixed_precision"


def test_a_deepspeed_file_may_be_there_from_another_folder(on: Run, tmp_path: Path) -> None:
    (tmp_path / "a/conf").mkdir(parents=True)
    text = instead("MULTI_GPU", "DEEPSPEED").replace("mixed_precision: bf16\n", "")
    (tmp_path / "a/conf/a.yaml").write_text(f"{text}deepspeed_config:\n  deepspeed_config_file: conf/ds.json\n")
    for there, found in ((False, "config_deepspeed_file_missing"), (True, "config_deepspeed_file_of_other_folder")):
        if there:
            (tmp_path / "a/conf/ds.json").write_text('{"zero_optimization": {"stage": 2}, "amp": {}}\n')
        done = on("rtx4090_x2", [], "configure", "--validate", "a/conf/a.yaml", "--json", "--no-loader")
        shown = [one["id"] for one in json.loads(done.stdout)["checks"] if one["status"] in ("warn", "info")]
        assert [name for name in shown if name.startswith("config_deepspeed_file")] == [found]
        assert ("config_deepspeed_key_removed" in shown) is there  # it was read


def test_a_file_that_leaves_values_to_the_command_line_is_complete_with_options(on: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SEVERAL)
    for own in ([], ["--no-loader"]):
        result = on("rtx4090_x2", [], "configure", "--validate", *own, "a.yaml", env={"COLUMNS": "200"})
        assert (result.returncode, result.stderr) == (0, "")
        assert "COMPLETE WITH OPTIONS  a.yaml: 0 errors, 1 warning" in result.stdout
        assert (
            "accelerate launch --main_process_ip ADDRESS_OF_FIRST_NODE --machine_rank RANK_OF_NODE ..." in result.stdout
        )
    document = json.loads(on("rtx4090_x2", [], "configure", "--validate", "a.yaml", "--json").stdout)
    VALIDATION.validate(document)
    assert (document["verdict"], document["exit_code"]) == ("valid_with_options", 0)
    assert document["loader"]["accepted"]
    strict = on("rtx4090_x2", [], "configure", "--validate", "--no-loader", "--strict", "a.yaml")
    assert strict.returncode == 1 and "COMPLETE WITH OPTIONS" in strict.stdout
    (tmp_path / "a.yaml").write_text(SEVERAL + "main_process_ip: 10.0.0.1\n")
    fine = on("rtx4090_x2", [], "configure", "--validate", "--no-loader", "--strict", "a.yaml")
    assert fine.returncode == 0 and fine.stdout.startswith("VALID ")


def test_notes_without_consequence_are_for_verbose(on: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SEVERAL + "main_process_ip: 10.0.0.1\nsame_network: true\n")
    result = on("rtx4090_x2", [], "configure", "--validate", "--no-loader", "a.yaml", env={"COLUMNS": "200"})
    assert result.stdout.startswith("VALID  a.yaml: 0 errors, 0 warnings, 1 note (-v); not loaded")
    result = on("rtx4090_x2", [], "configure", "--validate", "--no-loader", "-v", "a.yaml", env={"COLUMNS": "200"})
    assert "info same_network: true" in result.stdout and "(-v)" not in result.stdout
    github = on("rtx4090_x2", [], "configure", "--validate", "--no-loader", "--format", "github", "a.yaml").stdout
    assert "same_network" not in github


def test_github_gets_annotations_from_the_top_of_the_repository(on: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    (folder / "bad.yaml").write_text(MENDABLE)
    result = on(
        "rtx4090_x2", [], "configure", "--no-loader", "--validate", "bad.yaml", "--format", "github", cwd=folder,
        env={"GITHUB_WORKSPACE": str(tmp_path)},
    )  # fmt: skip
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("::error file=a%2Cb/bad.yaml,line=5,col=1,title=config_precision_invalid::mixed_precision")
    assert "%0AFix (you): " in first
    assert (result.returncode, last) == (
        1, "INVALID  bad.yaml: 1 error, 0 warnings; not loaded with accelerate (--no-loader)."
    )  # fmt: skip


@pytest.mark.parametrize("path", ["missing.yaml", "folder", "/dev/null/x"])
def test_a_file_that_is_not_there_is_a_usage_error(path: str, mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    result = mgpu("configure", "--validate", path)
    assert (result.returncode, result.stdout) == (2, "")
    assert path in result.stderr and len(result.stderr.splitlines()) == 1


def test_the_nearest_name_is_told(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.yaml").write_text(GOOD)
    told = {
        "trian.yaml": "No such file or directory. Did you mean folder/train.yaml?",
        "": "it is a folder. It contains folder/train.yaml",
        "x": "No such file or directory",
    }
    for name, words in told.items():
        result = mgpu("configure", "--validate", f"folder/{name}")
        assert result.returncode == 2 and result.stderr.rstrip().endswith(words), result.stderr


def test_a_huge_file_is_no_config(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "huge.yaml").write_text("a: 1\n" * 300_000)
    result = mgpu("configure", "--validate", "huge.yaml")
    assert result.returncode == 2 and "larger than 1 MiB" in result.stderr


def test_the_file_is_the_usual_one_or_comes_from_standard_input(on: Run, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(GOOD)
    result = on("rtx4090_x2", [], "configure", "--validate", "--no-loader")
    assert result.returncode == 0 and "accelerate.yaml: 0 errors" in result.stdout
    (tmp_path / "given").write_text(MENDABLE)
    with (tmp_path / "given").open() as file:
        result = on("rtx4090_x2", [], "configure", "--validate", "-", stdin=file)
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("standard input:5:1: FAIL mixed_precision")
    assert "accelerate" in result.stdout.split("INVALID")[1]


# ---- the command line


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> Callable[..., validate_request.Request]:
    """The request that a command line comes to."""
    seen: list[validate_request.Request] = []

    def run(request: validate_request.Request) -> int:
        seen.append(request)
        return 0

    monkeypatch.setattr(validate_run, "run", run)

    def ask(*arguments: str) -> validate_request.Request:
        seen.clear()
        assert cli.run(["configure", *arguments]) == 0
        return seen[0]

    return ask


@pytest.mark.parametrize(
    ("line", "files", "others"),
    [
        ("--validate", ("accelerate.yaml",), {}),
        ("--validate a.yaml b.yaml", ("a.yaml", "b.yaml"), {}),
        ("--validate a.yaml --validate b.yaml", ("a.yaml", "b.yaml"), {}),
        ("--validate=a.yaml --no-loader", ("a.yaml",), {"loader": False}),
        ("--no-loader a.yaml --validate", ("a.yaml",), {"loader": False}),
        ("--validate a.yaml --fix --dry-run", ("a.yaml",), {"fix": True, "dry_run": True}),
        ("--validate a.yaml --json", ("a.yaml",), {"format": "json"}),
        ("--validate a.yaml --format github", ("a.yaml",), {"format": "github"}),
        ("--validate -", ("-",), {}),
        ("--show-origin a.yaml", ("a.yaml",), {"show_origin": True}),
    ],
)
def test_every_way_to_say_it(line: str, files: tuple[str, ...], others: dict[str, Any], requested: Any) -> None:
    assert requested(*line.split()) == validate_request.Request(files, **others)


@pytest.mark.parametrize("line", ["--validate", "--validate a --no-loader b", "--validate --fix --json --dry-run x"])
def test_the_way_without_the_wizard_means_the_same(line: str, requested: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    short = requested(*line.split())
    monkeypatch.setattr("mgpu.cli.configure._OF_VALIDATE", set())
    assert requested(*line.split()) == short


@pytest.mark.parametrize(
    ("line", "words"),
    [("--validate --format xml", "human, json"), ("--validate - -", "only once"), ("--fix", "--validate")],
)
def test_what_makes_no_sense_is_a_usage_error(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["configure", *line.split()]) == errors.USAGE
    assert words in capsys.readouterr().err


def test_the_probes_that_are_started_bring_what_the_checks_read() -> None:
    brought = {fact for probe in runner.OF_CONFIGS for fact in probe.brings} | {"env", "visible", "config", "plan"}
    assert {fact for check in engine.checks_of(selections.CONFIG) for fact in check.facts} <= brought


# ---- --fix


def fixed(on: Run, *arguments: str, **options: Any) -> Any:
    return on("rtx4090_x2", [], "configure", "--no-loader", "--validate", *arguments, "--fix", **options)


def test_fix_mends_shows_the_diff_and_keeps_a_backup(on: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MENDABLE)
    path.chmod(0o640)
    result = on("rtx4090_x2", [], "configure", "--validate", "mine.yaml", "--fix")
    assert (result.returncode, result.stderr) == (0, "")
    assert path.read_text() == MENDED and path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "mine.yaml.bak").read_text() == MENDABLE
    lines = result.stdout.splitlines()
    assert lines[0] == "Fixed mine.yaml (backup: mine.yaml.bak)."
    assert "-mixed_precision: fp32         # for now" in lines
    assert "+mixed_precision: 'no'         # for now" in lines
    assert result.stdout.split("VALID")[1].startswith("  mine.yaml: 0 errors, 0 warnings; accelerate ")
    result = fixed(on, "mine.yaml")
    assert result.stdout.startswith("mine.yaml: nothing to fix automatically.")
    assert sorted(p.name for p in tmp_path.glob("mine*")) == ["mine.yaml", "mine.yaml.bak"]


def test_a_dry_run_writes_nothing_and_judges_the_file_as_it_is(on: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MENDABLE)
    result = fixed(on, "mine.yaml", "--dry-run")
    assert (result.returncode, path.read_text()) == (1, MENDABLE)
    assert result.stdout.startswith("Would fix mine.yaml.\n--- mine.yaml\n")
    assert not (tmp_path / "mine.yaml.bak").exists()
    document = json.loads(fixed(on, "mine.yaml", "--dry-run", "--json").stdout)
    assert document["mended"]["edits"] == [{"kind": "set", "key": "mixed_precision", "value": "no"}]
    assert (document["mended"]["written"], document["mended"]["backup"], document["mended"]["left"]) == (
        False,
        None,
        [],
    )
    (fix,) = (c["fix"] for c in document["checks"] if c["id"] == "config_precision_invalid")
    assert fix[0]["edits"] == document["mended"]["edits"]


def test_fix_of_several_files_of_any_kind(on: Run, tmp_path: Path) -> None:
    contents = {
        "crlf.yaml": MENDABLE.replace("\n", "\r\n"), "good.yaml": GOOD, "no_end.yaml": MENDABLE.rstrip("\n"),
        "broken.yaml": "a: [", "tabs.json": '{\n\t"distributed_type": "MULTI_GPU",\n\t"num_processes": 2,\n\t'
        '"mixed_precision": false\n}\n',
    }  # fmt: skip
    for name, text in contents.items():
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "link.yaml").symlink_to(tmp_path / "target.yaml")
    (tmp_path / "target.yaml").write_text(MENDABLE)
    result = fixed(on, *contents, "link.yaml", "--json")
    assert result.returncode == 1, result.stderr
    now = {name: (tmp_path / name).read_bytes().decode() for name in (*contents, "target.yaml")}
    assert now["crlf.yaml"] == MENDED.replace("\n", "\r\n")
    assert now["no_end.yaml"] == MENDED.rstrip("\n")
    assert (now["good.yaml"], now["broken.yaml"]) == (GOOD, "a: [")
    assert now["tabs.json"] == contents["tabs.json"].replace("false", '"no"')
    assert (tmp_path / "link.yaml").is_symlink() and now["target.yaml"] == MENDED
    assert {Path(f["config_path"]).name: f["mended"]["written"] for f in json.loads(result.stdout)["files"]} == {
        "crlf.yaml": True, "good.yaml": False, "no_end.yaml": True, "broken.yaml": False, "tabs.json": True,
        "link.yaml": True,
    }  # fmt: skip


def test_fix_leaves_alone_what_it_may_not_write(on: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given").write_text(MENDABLE)
    with (tmp_path / "given").open() as file:
        result = fixed(on, "-", stdin=file)
    assert result.returncode == 2 and "cannot write to" in result.stderr
    path = tmp_path / "mine.yaml"
    path.write_text(MENDABLE)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.MgpuError, match="read-only"):
        validate_run.run(validate_request.Request(("mine.yaml",), loader=False, fix=True))
    assert path.read_text() == MENDABLE and not (tmp_path / "mine.yaml.bak").exists()


def test_a_config_of_mgpu_stays_its_own_when_mended() -> None:
    from mgpu.config.reading import parse_config, seal

    values = yaml.safe_load(MENDABLE)
    text = f"# Written by mgpu 0.1.0\n{seal(values)}\n{MENDABLE}"
    assert parse_config(text.encode(), "x.yaml").written_by_mgpu
    from mgpu.snapshot import Snapshot

    mended = validate_run.fix_config(text.encode(), "x.yaml", Snapshot())
    assert yaml.safe_load(mended.raw)["mixed_precision"] == "no"
    assert parse_config(mended.raw, "x.yaml").written_by_mgpu


# ---- --show-origin


def test_show_origin_says_what_a_launch_would_take(on: Run, tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\nrdzv_backend: c10d\nfsdp_config:\n  fsdp_version: 2\n"
    (tmp_path / "mine.yaml").write_text(text)
    env = {"PET_NNODES": "2", "ACCELERATE_MIXED_PRECISION": "fp16", "SECRET": "x"}
    result = on("rtx4090_x2", [], "configure", "--show-origin", "mine.yaml", "--json", env=env)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    ORIGINS.validate(document)
    found = {one["key"]: one for one in document["values"]}
    assert (found["num_processes"]["value"], found["num_processes"]["source"]) == (2, "mine.yaml:2")
    assert found["num_processes"]["applied"] is True
    assert found["rdzv_backend"]["applied"] is False and "uses static" in found["rdzv_backend"]["note"]
    assert found["fsdp_config.fsdp_version"]["applied"] is False
    assert (found["num_machines"]["value"], found["num_machines"]["source"]) == (1, "accelerate's default")
    assert found["ACCELERATE_MIXED_PRECISION"]["note"] == "the launch replaces it with no"
    assert found["PET_NNODES"]["applied"] is True
    assert "SECRET" not in found
    result = on("rtx4090_x2", [], "configure", "--show-origin", "mine.yaml", env={"COLUMNS": "40"})
    assert "rdzv_backend: c10d\n    mine.yaml:3, never applied:\n" in result.stdout
    assert all(len(line) <= 40 for line in result.stdout.splitlines())


# ---- accelerate itself


def test_the_loader_goes_the_whole_way_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    head = "distributed_type: {}\nnum_processes: 2\n"
    files = {
        "zero": ("distributed_type: MULTI_GPU\nnum_processes: 0\n", "AssertionError"),  # torchrun's agent
        "wrap": (head.format("FSDP") + "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: WRAP\n", "auto wrap"),
        "fsdp1": (head.format("FSDP") + "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n", None),
        "product": (head.format("FSDP") + "fsdp_config:\n  fsdp_version: 2\nparallelism_config:\n"
                    "  parallelism_config_dp_shard_size: 4\n", "does not match num_processes"),
        "port": (head.format("MULTI_GPU") + "main_process_port: '29500'\n", "TypeError"),
        "fp8": (head.format("MULTI_GPU") + "mixed_precision: fp8\n", None),
        "nodes": (head.format("DEEPSPEED") + "num_machines: 2\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n"
                  "main_process_port: 29500\ndeepspeed_config:\n  zero_stage: 2\n", None),
        "missing": (head.format("DEEPSPEED") + "deepspeed_config:\n  deepspeed_config_file: not.json\n", None),
    }  # fmt: skip
    for name, (text, _) in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    before = dict(os.environ)
    verdicts = loader.verdicts([f"{name}.yaml" for name in files])
    assert dict(os.environ) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.yaml" for name in files)
    for verdict, (name, (_, words)) in zip(verdicts, files.items(), strict=True):
        assert verdict["accepted"] == (words is None), (name, verdict)
        assert words is None or words in verdict["error"], (name, verdict)


def test_the_name_of_a_file_does_nothing_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that differ by a newline do not look equal, and no escape sequence of a name reaches the terminal."""
    monkeypatch.chdir(tmp_path)
    name = "a\nb\x1b]0;x\x07.yaml"
    (tmp_path / name).touch()
    cli.run(["configure", "--validate", "--no-loader", name])
    out = capsys.readouterr().out
    assert r"a\nb\x1b]0;x\x07.yaml:1:1:" in out and "\x1b" not in out and "\x07" not in out
