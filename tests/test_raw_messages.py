"""Messages about files that are not what they should be, and hints that need something which may not be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.check import Fix, Problem
from mgpu.engine import Outcome
from mgpu.errors import MgpuError
from mgpu.report import findings, load
from mgpu.scheduler import cluster_files
from tests.conftest import CHECKS


def test_a_file_that_is_no_machine(tmp_path: Path) -> None:
    (tmp_path / "bin.py").write_bytes(b"\xfa\x00\x01")
    with pytest.raises(MgpuError) as binary:
        load.read_snapshot(tmp_path / "bin.py")
    assert binary.value.message.endswith("bin.py is not a machine saved by mgpu doctor --save: it is not text")
    with pytest.raises(MgpuError) as absent:
        load.read_snapshot(tmp_path / "nope.json")
    assert absent.value.message == f"cannot read {tmp_path}/nope.json: No such file or directory"


def test_a_question_ends_with_its_own_mark() -> None:
    check = CHECKS["config_key_unknown"]
    first, other = (
        Outcome(check, Problem(f"unknown key 'x'. Did you mean {name}?", "Why.", Fix(f"Write {name}.")), 0.0)
        for name in ("num_processes", "mixed_precision")
    )
    assert (
        findings.repetition(other, first)
        == "unknown key 'x'. Did you mean mixed_precision? Fix: Write mixed_precision."
    )


def test_slurms_commands_alone_are_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(cluster_files, "_SLURM_CONF", (str(tmp_path / "slurm.conf"),))
    assert not cluster_files.has_cluster()
    (tmp_path / "slurm.conf").touch()
    assert cluster_files.has_cluster()
