"""The commands of fixes start the program of the log, and are for its libraries (`checks/log/_advice.py`)."""

from __future__ import annotations

from pathlib import Path

from mgpu import engine
from mgpu.doctor import program_of_log
from mgpu.engine import selections
from mgpu.readers.log import read
from mgpu.snapshot import Snapshot

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB "
    "of which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use."
)
BEGIN = 'Traceback (most recent call last):\n  File "/srv/{script}", line 88, in <module>\n    train(opt)\n'
OWN = '  File "/srv/scene/gaussians.py", line 7, in densify\n    torch.cat(parts)\n'
TRAINER = (
    '  File "/venv/lib/python3.11/site-packages/transformers/trainer.py", line 2, in training_step\n    self.step()\n'
)


def advice(tmp_path: Path, text: str) -> tuple[str, list[str]]:
    """The texts of the fixes of all findings, and their commands."""
    path = tmp_path / "run.log"
    path.write_text(text, "utf-8")
    log = read.read_logs([path])
    outcomes = program_of_log.named(engine.judge(Snapshot(log=log), selections.DOCTOR), log)
    fixes = [fix for one in outcomes if one.problem for fix in one.problem.fixes]
    assert fixes, "nothing was found"
    return " ".join(fix.text for fix in fixes), [line for fix in fixes for line in fix.commands]


def test_a_program_without_hugging_face_libraries_gets_none_of_their_commands(tmp_path: Path) -> None:
    texts, commands = advice(tmp_path, BEGIN.format(script="train.py") + OWN + FULL)
    assert not [one for one in commands if one.startswith(("accelerate launch", "TrainingArguments("))], commands
    assert "FSDP" not in texts and "batch" in texts


def test_advice_about_deepspeed_itself_stays(tmp_path: Path) -> None:
    """Also in a program with one process: only the advice to shard it does not fit."""
    error = (
        "ValueError: Gradient+optimizer bit data type combination not supported: grad torch.bfloat16, optimizer "
        "torch.bfloat16"
    )
    texts, _ = advice(tmp_path, BEGIN.format(script="train.py") + OWN + error)
    assert "shard with DeepSpeed instead of FSDP" in texts


def test_a_program_of_theirs_gets_them(tmp_path: Path) -> None:
    _, commands = advice(tmp_path, BEGIN.format(script="sft.py") + TRAINER + FULL)
    assert any(one.startswith("accelerate launch") for one in commands), commands


def test_a_part_of_a_traceback_does_not_show_which_libraries_there_are(tmp_path: Path) -> None:
    _, commands = advice(tmp_path, FULL)
    assert any(one.startswith("accelerate launch") for one in commands), commands


def test_a_command_names_the_script_of_the_log(tmp_path: Path) -> None:
    text = BEGIN.format(script="finetune.py") + OWN + "OSError: [Errno 98] Address already in use"
    commands = advice(tmp_path, text)[1]
    assert not [one for one in commands if "train.py" in one] and any("finetune.py" in one for one in commands)
