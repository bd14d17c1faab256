"""Is a checkpoint saved by the main process alone, loaded on any number of ranks, and what goes wrong with it named?"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mgpu import engine
from mgpu.check import Problem, Skip
from mgpu.process import leftover_files
from mgpu.snapshot import Ranks, Snapshot
from tests import rungs, verdicts
from tests.conftest import missing
from tests.rungs import Case
from tests.scripts.spoils_checkpoint import TARGET

CLIMBED = ("start", "device", "group", "checkpoint", "shutdown")
WORLDS = tuple((strategy, world) for strategy in ("ddp", "fsdp") for world in (1, 2, 3, 4))
MOUNTED = ("full_disk", "read_only", "its_own_folder")
SPOILT = (
    "everyone_is_main",
    "nobody_is_main",
    "one_bit_flips",
    "one_half_is_lost",
    "one_part_is_altered",
    "quota",
    *MOUNTED,
)


def mounts_allowed(folder: Path) -> bool:
    """Whether a process here may have mounts of its own."""
    unshare = shutil.which("unshare")
    asked = [str(unshare), "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    return unshare is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / TARGET).mkdir()
    return folder


@pytest.fixture(scope="module")
def seen(home: Path) -> dict[str, Ranks]:
    """What the ranks of every case reported."""
    out = {"checkpoint_folder": str(home / TARGET)}
    cases = [Case(f"{s} {w}", w, CLIMBED, orders={"strategy": s, **out}) for s, w in WORLDS]
    cases.append(Case("run folder", 1, CLIMBED))
    cases.append(Case("no such folder", 2, CLIMBED, orders={"checkpoint_folder": str(home / TARGET / "a" / "b")}))
    spoilt = SPOILT if mounts_allowed(home / TARGET) else [name for name in SPOILT if name not in MOUNTED]
    patches = {name: f"tests.scripts.spoils_checkpoint:{name}" for name in spoilt}
    for name, patch in patches.items():
        strategy = "fsdp" if name == "one_part_is_altered" else "ddp"
        cases.append(Case(name, 2, CLIMBED, patch=patch, orders={"strategy": strategy, **out}))
    return rungs.climb(home, cases)


def judged(ranks: Ranks) -> dict[str, engine.Outcome]:
    """What the checks of the smoke test say."""
    return {outcome.check.id: outcome for outcome in verdicts.judged(Snapshot(ranks=ranks))}


def cause(ranks: Ranks) -> tuple[str, Problem]:
    """The one failure that is no consequence of another."""
    failed = [o for o in judged(ranks).values() if o.status == "fail" and not o.because_of]
    assert len(failed) == 1, [o.check.id for o in failed]
    assert failed[0].problem is not None
    return failed[0].check.id, failed[0].problem


@pytest.mark.parametrize(("strategy", "world"), WORLDS)
def test_saved_and_loaded(seen: dict[str, Ranks], strategy: str, world: int) -> None:
    ranks = seen[f"{strategy} {world}"]
    assert ranks.ended == "finished", [rank.error for rank in ranks.ranks]
    details = [step.detail or "" for step in ranks.ranks[0].steps if step.rung == "checkpoint"]
    assert details[0].startswith("3.8 MiB") and "loads on " in details[0]
    assert ("loads on 4, 2 and 1 ranks" in details[0]) == (world == 4)
    assert ("+ sharded" in details[0]) == (strategy == "fsdp" and world > 1)
    assert all(rank.checkpoint is not None and rank.checkpoint.shared for rank in ranks.ranks)
    assert ranks.ranks[0].measured["checkpoint_write_mb_per_s"] > 0
    assert {o.status for name, o in judged(ranks).items() if "checkpoint" in name} <= {"ok", "skip"}


def test_nothing_stays_behind(seen: dict[str, Ranks], home: Path) -> None:
    """After a pass at once; after a failure the runner removes what the ranks have told before they made it."""
    before = leftover_files.files()
    for ranks in seen.values():
        (told,) = {path for rank in ranks.ranks for path in rank.wrote if ".mgpu-smoke-" in path}
        assert not (ranks.ended == "finished" and os.path.exists(told))
        assert leftover_files.sweep(before, {}, [told]).remaining == ()
    assert not list(home.rglob(".mgpu-smoke-*"))
    assert os.listdir(home / TARGET) == []


def test_where_it_is_tried(seen: dict[str, Ranks], home: Path) -> None:
    """A folder that the training would make is tried in the one above it; without one, the run folder is taken."""
    met = seen["no such folder"].ranks[1].checkpoint
    assert met is not None and (met.folder, met.named) == (str(home / TARGET), True)
    met = seen["run folder"].ranks[0].checkpoint
    assert met is not None and (met.folder, met.named) == (seen["run folder"].folder, False)


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("everyone_is_main", "checkpoint_saved_by_several_ranks", "every rank saves the checkpoint"),
        ("nobody_is_main", "checkpoint_comes_back_altered", "could not be restored as saved"),
        ("one_bit_flips", "checkpoint_comes_back_altered", "could not be restored as saved"),
        ("one_half_is_lost", "checkpoint_comes_back_altered", "could not be restored as saved"),
        ("one_part_is_altered", "checkpoint_comes_back_altered", "could not be restored as saved"),
        ("quota", "checkpoint_not_writable", "Disk quota exceeded (EDQUOT"),
        ("full_disk", "checkpoint_not_writable", "No space left on device (ENOSPC; 0 MiB free)"),
        ("read_only", "checkpoint_not_writable", "Read-only file system (EROFS"),
    ],
)
def test_what_goes_wrong_is_named(seen: dict[str, Ranks], name: str, check: str, words: str, home: Path) -> None:
    if name not in seen:
        missing("mount namespaces are not allowed here")
    ranks = seen[name]
    assert ranks.ended != "finished"
    found, problem = cause(ranks)
    assert found == check
    assert words in problem.title and "checkpoint" in problem.title
    assert problem.evidence["rung"] == "checkpoint" and problem.evidence["folder"] == str(home / TARGET)
    if name in ("quota", "full_disk", "read_only"):
        assert problem.title.startswith("rank 0 (cpu")


def test_hosts_that_do_not_share_the_folder(seen: dict[str, Ranks]) -> None:
    """The run goes on, and says so: for a checkpoint in one file a warning, for one in parts an error."""
    if "its_own_folder" not in seen:
        missing("mount namespaces are not allowed here")
    ranks = seen["its_own_folder"]
    assert ranks.ended == "finished", [rank.error for rank in ranks.ranks]
    shared = [rank.checkpoint.shared for rank in ranks.ranks if rank.checkpoint]
    assert shared == [True, False]
    assert any("are not visible here" in word for word in ranks.ranks[1].skipped)
    two_hosts = judged(replace(ranks, nodes=2))
    assert two_hosts["checkpoint_not_shared"].status == "warn"
    assert isinstance(two_hosts["sharded_checkpoint_not_shared"].answer, Skip)
    assert judged(replace(ranks, nodes=2, strategy="fsdp"))["sharded_checkpoint_not_shared"].status == "fail"
