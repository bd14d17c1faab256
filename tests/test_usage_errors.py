"""What is said of a command line that is not understood: the option or command that was meant, and the help for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu import cli, errors

EXPLAIN = "List them: mgpu doctor --list-checks"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        # a file in the place of an option or a command
        ("doctor train.py", "doctor accepts no argument 'train.py' (a script: --script train.py): mgpu doctor --help"),
        ("doctor job.sbatch", "(a script: --script job.sbatch): mgpu doctor --help"),
        ("doctor a.yaml", "(a config: --config a.yaml): mgpu doctor --help"),
        ("doctor run.log", "(a log: --log run.log): mgpu doctor --help"),
        ("train.py", "No such command 'train.py'. To start a script:  mgpu launch train.py\nHelp: mgpu launch --help"),
        # only a name that is close is suggested
        ("doctor --explain nope", f"no check or area is named 'nope'. {EXPLAIN}"),
        ("doctor --explain gpu_buzy", f"no check or area is named 'gpu_buzy'. Did you mean gpu_busy? {EXPLAIN}"),
        ("smoke-test --level qick", "--level qick: choose quick, standard or long. Did you mean quick?"),
        ("smoke-test --level xyz", "--level xyz: choose quick, standard or long."),
        # values, in plain words
        ("smoke-test --cpu x", "--cpu x: expected a whole number\nHelp: mgpu smoke-test --help"),
        ("smoke-test --cpu=x", "--cpu x: expected a whole number\nHelp: mgpu smoke-test --help"),
        ("doctor --timeout x", "--timeout x: expected a number\nHelp: mgpu doctor --help"),
        ("smoke-test --steps 0", "--steps 0: expected at least 2\nHelp: mgpu smoke-test --help"),
        ("launch --timeout x train.py --timeout 5", "--timeout: expected a number\nHelp: mgpu launch --help"),
        # the help is that of the command
        ("doctor --script", "Option '--script' requires an argument.\nHelp: mgpu doctor --help"),
        ("configure --params", "Option '--params' requires an argument.\nHelp: mgpu configure --help"),
    ],
)
def test_what_was_meant(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line.split()) == errors.USAGE
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("mgpu: ") and shown.err.endswith(f"{said}\n"), shown.err


@pytest.mark.parametrize(("given", "near"), [("nope.py", ""), ("trian.py", "train.py"), ("syn", "syn.py")])
def test_a_script_of_a_close_name_is_suggested(
    given: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("syn.py", "train.py"):
        Path(name).touch()
    Path("accelerate.yaml").write_text("num_processes: 2\n")
    assert cli.run(["launch", given]) == errors.NOT_FOUND
    hint = f" Did you mean {near}?" if near else ""
    assert capsys.readouterr().err == f"mgpu: no script {given}.{hint}\n"
