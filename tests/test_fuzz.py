"""Every kind of file that mgpu reads, spoilt: a known error or a result, never another exception, and soon.

A few hundred inputs a target here; by hand `MGPU_FUZZ_RUNS=20000 MGPU_FUZZ_SEED=7 python -m pytest tests/test_fuzz.py`.
"""

from __future__ import annotations

import ast
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests import mutations
from tests.conftest import ROOT
from tests.fuzz_targets import TARGETS

RUNS = int(os.environ.get("MGPU_FUZZ_RUNS", "120"))
SEED = int(os.environ.get("MGPU_FUZZ_SEED", "20261122"))
LONGEST_S = 10.0  # of the processor, for one file
OPENERS = frozenset({
    "read", "read_own", "read_start", "open_checked", "read_part", "read_whole", "open_part", "standard_input",
})  # fmt: skip
NOT_A_FILE = {
    "cli.completion.install": "only searched for one line",
    "validate.run._bytes": "stdin, and then as contents",
    "config.reading.read": "calls contents",
    "launchers.script_hash.hash_of": "only hashed",
    "rehearse.put_back.put_back": "writes where the index says: tests/test_put_back.py has damaged ones",
    "launchers.port._first_automatic_port": "the kernel's two numbers",
    "launch.full_disk._mount_points": "the kernel's list of mounts, of which the storage probe reads each line",
}


class TooLong(BaseException):
    """Not an Exception: nothing that is fuzzed catches it."""


@pytest.fixture
def limited() -> Iterator[None]:
    """A limit of the processor's time for each input, which the test starts anew."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"more than {LONGEST_S} s")

    old = signal.signal(signal.SIGVTALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, old)


@pytest.mark.parametrize("name", TARGETS)
def test_no_file_breaks_its_reader(name: str, tmp_path: Path, limited: None) -> None:
    target = TARGETS[name]
    dice = random.Random(f"{SEED} {name}")
    seeds = target.seeds()
    found: dict[str, tuple[int, bytes]] = {}
    times: list[float] = []
    place = tmp_path / target.name
    for number in range(max(10, int(RUNS * target.share))):
        raw = seeds[number] if number < min(3, len(seeds)) else mutations.spoilt(seeds, dice)
        for old in tmp_path.iterdir():
            if old.is_file():
                old.unlink()
        place.write_bytes(raw)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
        try:
            target.read(place)
        except target.permitted:
            assert number or not target.reads_seeds, f"the first seed is refused: {raw[:300]!r}"
        except (Exception, TooLong) as error:
            where = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-4:]
            found.setdefault(
                f"{type(error).__name__} at {' < '.join(reversed(where))}: {str(error)[:1500]}", (number, raw)
            )
            if len(found) > 15:
                break
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        times.append(time.process_time() - began)
    for number, (_, raw) in enumerate(found.values()):
        (tmp_path / f"failed-{number}").write_bytes(raw)
    said = "\n".join(f"input {number}: {what}\n  {raw[:300]!r}" for what, (number, raw) in found.items())
    assert not found, f"{name}: {len(found)} faults, seed {SEED}; the inputs are in {tmp_path}\n{said}"
    print(f"fuzz {name}: {len(times)} inputs, {sum(times):.1f} s, longest {max(times):.2f} s")


def opened_in(path: Path) -> set[str]:
    """The functions of a module that open a file, as module.function."""
    tree = ast.parse(path.read_text("utf-8"))
    module = ".".join(path.relative_to(ROOT / "mgpu").with_suffix("").parts)
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and _opens(call.func):
                    found.add(f"{module}.{function.name}")
    return found


def _opens(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in OPENERS - {"read"}
    return (
        isinstance(function, ast.Attribute)
        and function.attr in OPENERS
        and isinstance(function.value, ast.Name)
        and function.value.id in ("file_reading", "fact_file")
    )


def test_every_reader_has_a_target() -> None:
    readers = set().union(*(opened_in(path) for path in (ROOT / "mgpu").rglob("*.py") if path.stem != "file_reading"))
    covered = {name for target in TARGETS.values() for name in target.covers}
    assert readers - covered - NOT_A_FILE.keys() == set()
    assert covered - readers == {"files.back_up"} & (covered - readers)
