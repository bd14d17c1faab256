"""A checkpoint that could not be written: what is left of it, whose options help, and whose frames are shown."""

from __future__ import annotations

import io
from pathlib import Path

from checks._wording import gib
from mgpu.engine import root_cause
from mgpu.readers.log import read
from mgpu.recorder.inject import _mgpu_own_code
from mgpu.report import failure
from mgpu.report.screen import Screen

_SITE = "/v/lib/python3.11/site-packages"
_BY_HAND = f"""\
epoch 0 val acc 0.125
Traceback (most recent call last):
  File "/w/train.py", line 71, in main
    accelerator.save(state, os.path.join(args.out, "best.pt"))
  File "{_SITE}/accelerate/utils/other.py", line 439, in save
    save_func(obj, f)
  File "{_SITE}/mgpu/recorder/inject/_mgpu_recorder.py", line 309, in timed
    return original(*args, **kwargs)
"""
_FAILED = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 4928 vs 4824\n"


def shown(text: str, folder: Path) -> str:
    """The report of a log, in one line."""
    (folder / "run.log").write_text(text)
    log = read.read_logs([folder / "run.log"])
    lines = failure.lines(
        failure.triage_document(root_cause.find_cause(log, None), log, None), Screen(400, False, False, io.StringIO())
    )
    return "\n".join("".join(part for part, _ in line) for line in lines)


def test_a_file_that_is_overwritten_leaves_no_earlier_one(tmp_path: Path) -> None:
    report = shown(_BY_HAND + _FAILED, tmp_path)
    assert "log_checkpoint_write_failed" in report
    assert "intact only if it has another name" in report and "earlier ones are intact" not in report
    assert "TrainingArguments" not in report and "_mgpu_recorder" not in report
    trainer = (
        f'  File "{_SITE}/transformers/trainer.py", line 7, in _save_checkpoint\n    self.save_model(output_dir)\n'
    )
    of_trainer = shown(f"Traceback (most recent call last):\n{trainer}{_FAILED}", tmp_path)
    assert "TrainingArguments(save_total_limit=2)" in of_trainer and "checkpoint-500" in of_trainer
    quota = shown(
        _BY_HAND.replace("in save\n", "in save_state\n") + "OSError: [Errno 122] Disk quota exceeded\n", tmp_path
    )
    assert "could not save its model" in quota and "TrainingArguments" not in quota


def test_the_recorder_is_no_package_that_failed(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(f"{_BY_HAND}ValueError: bad state\n")
    (raised,) = read.read_logs([tmp_path / "run.log"]).raised
    assert raised.raised_in == "accelerate/utils/other.py in save" and "mgpu" not in raised.packages
    own = str(Path(_mgpu_own_code.__file__).with_name("_mgpu_recorder.py"))
    assert _mgpu_own_code.is_of_python(own) and not _mgpu_own_code.is_users(own)


def test_frames_of_an_installed_recorder_are_of_python() -> None:
    own, before = f"{_SITE}/mgpu/recorder/inject/", _mgpu_own_code._OWN
    _mgpu_own_code._OWN = own
    try:
        assert _mgpu_own_code.is_of_python(f"{own}_mgpu_recorder.py")
        assert not _mgpu_own_code.is_of_python(f"{_SITE}/torch/serialization.py")
    finally:
        _mgpu_own_code._OWN = before


def test_sizes_below_one_mib_are_in_kib() -> None:
    assert (gib(0), gib(20 << 10), gib(500 << 20), gib(3 << 30)) == ("0 MiB", "20 KiB", "500 MiB", "3.0 GiB")


def test_an_alternative_begins_with_or_once(tmp_path: Path) -> None:
    assert failure._without_or("Or keep fewer checkpoints.") == "Keep fewer checkpoints."
    assert failure._without_or("Order them.") == "Order them."
