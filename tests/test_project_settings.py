"""`[tool.mgpu]` of pyproject.toml: defaults of options, and waivers of checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mgpu import cli
from mgpu.cli import option_parser, project_defaults
from mgpu.exit_status import COMMANDS
from tests.conftest import Run
from tests.demo_machines import FOLDER

WAIVER = '[[tool.mgpu.waive]]\ncheck = "{0}"\nreason = "replacement ordered"\n'
ECC = ("doctor", "--from", str(FOLDER / "h100-ecc.json"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a subfolder."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    return tmp_path / "pyproject.toml"


def statuses(text: str) -> dict[str, str]:
    return {one["id"]: one["status"] for one in json.loads(text)["checks"]}


def test_a_waived_failure_is_listed_and_counted_but_does_not_fail(mgpu: Run, project: Path) -> None:
    project.write_text(WAIVER.format("gpu_ecc_uncorrected") + "until = 9999-12-31\n")
    done = mgpu(*ECC, "--strict", cwd=project.parent / "sub")
    assert done.returncode == 0
    assert "READY WITH WARNINGS" in done.stdout and "1 finding waived" in done.stdout
    assert "Waived   gpu_ecc_uncorrected: 7 uncorrected ECC errors on GPU 2" in done.stdout
    assert "(replacement ordered, until 9999-12-31)" in " ".join(done.stdout.split())
    document = json.loads(mgpu(*ECC, "--json").stdout)
    assert document["counts"]["waived"] == 1 and document["counts"]["fail"] == 0
    entry = next(one for one in document["checks"] if one["id"] == "gpu_ecc_uncorrected")
    assert entry["waived"] == {"reason": "replacement ordered", "until": "9999-12-31"}
    for style in ("github", "junit", "markdown"):
        assert "replacement ordered" in mgpu(*ECC, "--format", style).stdout


def test_what_a_waived_problem_explained_counts_by_itself(mgpu: Run, project: Path) -> None:
    project.write_text(WAIVER.format("gpu_lost"))
    done = mgpu("doctor", "--from", str(FOLDER / "h100-lost-gpu.json"), "--json")
    found = statuses(done.stdout)
    assert (found["gpu_lost"], found["torch_cannot_start_cuda"], done.returncode) == ("waived", "fail", 1)


def test_expired_and_unknown_waivers_are_findings(mgpu: Run, project: Path) -> None:
    project.write_text(
        WAIVER.format("gpu_ecc_uncorrected") + 'until = "2020-01-31"\n' + WAIVER.format("gpu_ecc_uncorected")
    )
    done = mgpu(*ECC)
    assert done.returncode == 1
    shown = " ".join(done.stdout.split())
    assert "the waiver of gpu_ecc_uncorrected expired on 2020-01-31 (replacement ordered)" in shown
    assert f"{project}:5:1" in shown and "Did you mean gpu_ecc_uncorrected?" in done.stdout


def test_a_monitor_a_demo_and_the_variable_ignore_the_project(mgpu: Run, project: Path) -> None:
    project.write_text(WAIVER.format("gpu_ecc_uncorrected") + "[tool.mgpu.doctor]\nstrikt = 1\n")
    assert mgpu(*ECC).returncode == 2
    assert mgpu(*ECC, "--exit-style", "nagios").returncode == 2  # CRITICAL
    assert mgpu(*ECC, env={"MGPU_NO_PROJECT": "1"}).returncode == 1
    project.write_text(WAIVER.format("gpu_ecc_uncorrected"))
    assert mgpu("doctor", "--demo", "h100-ecc").returncode == 1


def test_validate_waives_too(mgpu: Run, project: Path) -> None:
    project.write_text(WAIVER.format("config_section_key_unknown"))
    config = project.with_name("accelerate.yaml")
    config.write_text("distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n  fsdp_bogus: 1\n")
    done = mgpu("configure", "--validate", "--no-loader", str(config), "--json")
    assert statuses(done.stdout)["config_section_key_unknown"] == "waived"
    assert "Waived replacement ordered" in mgpu("configure", "--validate", "--no-loader", str(config)).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.mgpu.doktor]\nstrict = true", "[tool.mgpu.doktor]: no such command. Did you mean doctor?"),
        ("[tool.mgpu.doctor]\nstrikt = true", "[tool.mgpu.doctor]: no option 'strikt'. Did you mean strict?"),
        ("[tool.mgpu.doctor]\nstrict = 1", "strict must be true or false"),
        ("[tool.mgpu.doctor]\nexpect-gpus = true", "expect-gpus must be a whole number"),
        ("[tool.mgpu.doctor]\nexpect_gpus = -1", "expect_gpus = -1 is out of range"),
        ("[tool.mgpu.doctor]\nskip = [1]", "skip must be text or a list of texts"),
        ("[tool.mgpu.doctor]\npython = 'x'", "no option 'python'"),
        ("[tool.mgpu]\ndoctor = 1", "[tool.mgpu.doctor]: must be a table"),
        ("[tool.mgpu]\nwaive = 1", "write each waiver as [[tool.mgpu.waive]]"),
        ("[[tool.mgpu.waive]]\ncheck = 'gpu_busy'", "reason is missing"),
        ("[[tool.mgpu.waive]]\ncheck = 'gpu_busy'\nreason = ' '", "reason must be text"),
        ("[[tool.mgpu.waive]]\ncheck = 'gpu_busy'\nreasn = 'x'", "no key 'reasn'. Did you mean reason?"),
        ("[[tool.mgpu.waive]]\ncheck = 'gpu_busy'\nreason = 'x'\nuntil = 'soon'", "until must be a date such as"),
        ("[tool.mgpu.doctor]\nskip = = 1", "pyproject.toml:2: not TOML"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_name(text: str, message: str, mgpu: Run, project: Path) -> None:
    project.write_text(text)
    done = mgpu("doctor", "--quick")
    assert done.returncode == 2
    assert message in done.stderr and str(project) in done.stderr


def test_defaults_apply_and_the_command_line_wins(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write_text(
        "[tool.mgpu.doctor]\nstrict = true\nskip = ['nccl', 'network']\n[tool.mgpu.smoke-test]\nlevel = 'quick'\n"
        "timeout = 60\n"
    )
    monkeypatch.chdir(project.parent / "sub")

    def read(*argv: str) -> dict[str, object]:
        line = option_parser.read(argv)
        assert line is not None
        return line[1]

    assert (read("doctor")["strict"], read("doctor")["skip"]) == (True, ["nccl", "network"])
    assert read("doctor", "--skip", "gpu", "--skip", "mig")["skip"] == ["gpu", "mig"]
    assert (read("smoke-test")["level"], read("smoke-test", "--level", "standard")["level"]) == ("quick", "standard")
    assert read("smoke-test")["timeout_s"] == 60.0
    # The slow parser, which reads lines such as this one:
    assert cli.run(["doctor", "--from", str(FOLDER / "rtx4090-other-user.json"), "--onl", "gpu_busy"]) == 2
    assert cli.run(["doctor", "--from", str(FOLDER / "rtx4090-other-user.json"), "-vv", "--only", "gpu_busy"]) == 1
    assert "gpu_busy" in capsys.readouterr().out
    assert cli.run(["doctor", "--help"]) == 0


def test_mgpu_toml_needs_no_prefix_and_comes_first(mgpu: Run, project: Path) -> None:
    project.write_text("[tool.mgpu.doctor]\nstrikt = 1\n")
    project.with_name("mgpu.toml").write_text(
        '[doctor]\nexpect-gpus = 8\n[[waive]]\ncheck = "gpu-ecc-uncorrected"\nreason = "known"\n'
    )
    assert statuses(mgpu(*ECC, "--json").stdout)["gpu_ecc_uncorrected"] == "waived"


def test_a_file_above_the_repository_does_not_count(mgpu: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mgpu.doctor]\nstrikt = 1\n")
    (tmp_path / "own").mkdir()
    assert mgpu(*ECC, cwd=tmp_path / "own").returncode == 1


def test_every_flag_that_a_project_may_set_exists() -> None:
    assert set(project_defaults.FLAGS) == set(COMMANDS)
    for name, flags in project_defaults.FLAGS.items():
        known = {flag for option in option_parser.command_named(name).options for flag in option.on}
        assert set(flags) <= known
