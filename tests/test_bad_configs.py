"""Config files that are wrong, as people have them: exactly what is said of each, and what `--fix` makes of it.

`bad_configs/NAME.yaml` (or `.json`) is the file. `NAME.said` holds every finding, one a line, in file order:
`LINE:COLUMN status id title` (`-` for one without a place; `<- ids` of the findings that explain it), by the checks
that fire without accelerate's loader. `NAME.fixed.yaml` is what `--fix` makes of it, where anything is safe to mend.
Files that a config names (a DeepSpeed JSON) lie in `bad_configs/files`, and are named from `bad_configs`.

The machine is 8 x A100-80GB outside Slurm, with deepspeed installed, unless the first line says otherwise:
`# machine: 2 x T4`, `# machine: none` (no NVIDIA GPU), `# machine: 8 x A100, slurm 4` (a job with a grant of 4).

`MGPU_UPDATE_CONFIGS=1 python -m pytest tests/test_bad_configs.py` writes the expectations. Then read them: they are
what the product says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from mgpu.config import fixes, loader, reading
from mgpu.engine import Outcome
from mgpu.snapshot import Slurm, Snapshot
from mgpu.validate import run
from tests.checks import facts as healthy

FOLDER = Path(__file__).with_name("bad_configs")
CASES = sorted(
    path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".json") and not path.stem.endswith(".fixed")
)
UPDATE = bool(os.environ.get("MGPU_UPDATE_CONFIGS"))
GIB = 1 << 30
MODELS = {
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 80),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 80),
    "RTX4090": ("NVIDIA GeForce RTX 4090", (8, 9), 24),
    "T4": ("Tesla T4", (7, 5), 16),
    "V100": ("Tesla V100-SXM2-32GB", (7, 0), 32),
}

PACKAGES = {"torch": "2.9.0", "accelerate": "1.15.0", "deepspeed": "0.19.8", "transformers": "4.57.1"}

every_case = pytest.mark.parametrize("case", [pytest.param(path, id=path.name) for path in CASES])


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A config names its DeepSpeed file from where it is used."""
    monkeypatch.chdir(FOLDER)


def machine_of(text: str) -> Snapshot:
    """The machine a case is judged on."""
    asked = re.match(r"\ufeff?# machine: ([^\r\n]*)", text)
    words = asked.group(1) if asked else "8 x A100"
    form = re.fullmatch(r"none|(\d+) x (\w+)(?:, slurm (\d+))?", words)
    assert form, f"no such machine: {words}"
    if words == "none":
        return Snapshot(
            **healthy.facts(
                driver=healthy.no_driver(), gpus=(), links=(), pci=None, slurm=_no_slurm(), packages=PACKAGES
            )
        )
    number, granted = int(form[1]), form[3]
    name, capability, memory = MODELS[form[2]]
    gpus = healthy.gpus(
        number, name=name, compute_capability=capability, memory_total_bytes=memory * GIB,
        memory_free_bytes=memory * GIB - 600 * healthy.MIB,
    )  # fmt: skip
    job = ",".join(str(n) for n in range(int(granted))) if granted else None
    slurm = _no_slurm() if granted is None else healthy.slurm(job_gpus=job, gpus_on_node=int(granted))
    return Snapshot(
        **healthy.facts(
            gpus=gpus, driver=healthy.driver(pci_gpus=number), links=healthy.links(number), slurm=slurm, pci=None,
            torch_runtime=healthy.torch_runtime(number), packages=PACKAGES,
        )
    )  # fmt: skip


def _no_slurm() -> Slurm:
    return Slurm(None, None, None, None, None, False)


def said(outcomes: Sequence[Outcome]) -> str:
    """The findings as `NAME.said` holds them."""
    rows = []
    for outcome in outcomes:
        problem = outcome.problem
        assert outcome.status != "crash", outcome.answer
        if problem is None:
            continue
        line, column = (problem.place.line, problem.place.column) if problem.place else (None, None)
        where = "-" if line is None else f"{line}:{column}"
        why = f"  <- {', '.join(outcome.because_of)}" if outcome.because_of else ""
        row = f"{where} {outcome.status} {outcome.check.id} {problem.title}{why}\n"
        rows.append((line or 0, column or 0, outcome.check.id, row))
    return "".join(row for *_, row in sorted(rows))


def judged(raw: bytes, case: Path) -> tuple[Outcome, ...]:
    config = reading.parse_config(raw, case.name)
    return run.judge(config, machine_of(raw.decode("utf-8", "replace")))


def expected(path: Path, found: bytes | None) -> bytes | None:
    """What the expectation file holds; with MGPU_UPDATE_CONFIGS=1, after writing it anew."""
    if UPDATE:
        if found is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(found)
    return path.read_bytes() if path.exists() else None


@every_case
def test_what_is_said(case: Path) -> None:
    found = said(judged(case.read_bytes(), case))
    assert found, "nothing is wrong with this file"
    wanted = expected(case.with_suffix(".said"), found.encode())
    assert wanted is not None, "MGPU_UPDATE_CONFIGS=1 writes the .said file"
    assert found == wanted.decode()


def mended(case: Path) -> bytes:
    raw = case.read_bytes()
    return run.fix_config(raw, case.name, machine_of(raw.decode("utf-8", "replace"))).raw


@every_case
def test_what_fix_makes_of_it(case: Path) -> None:
    raw, fixed = case.read_bytes(), mended(case)
    wanted = expected(case.with_suffix(f".fixed{case.suffix}"), fixed if fixed != raw else None)
    assert fixed == (raw if wanted is None else wanted)
    if fixed != raw:
        before, after = fixes.comments(raw.decode()), fixes.comments(fixed.decode())
        kept = [comment for comment in before if comment in after]
        gone = [line for line in raw.decode().splitlines() if line not in fixed.decode().splitlines()]
        assert all(any(comment in line for line in gone) for comment in before if comment not in kept)
        assert mended_again(fixed, case) == fixed, "a second --fix finds nothing"


def mended_again(fixed: bytes, case: Path) -> bytes:
    return run.fix_config(fixed, case.name, machine_of(fixed.decode("utf-8", "replace"))).raw


@every_case
def test_accelerate_takes_what_is_left_without_an_error(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = mended(case)
    if any(outcome.status == "fail" for outcome in judged(fixed, case)):
        return  # somebody has to decide
    path = tmp_path / case.name
    path.write_bytes(fixed)
    (verdict,) = loader.verdicts([str(path)])
    assert verdict["accepted"], verdict["error"]


def test_there_are_enough() -> None:
    assert len(CASES) >= 60
    names = {path.name for path in FOLDER.iterdir() if path.is_file()}
    stems = {case.stem for case in CASES}
    strays = [name for name in names if re.sub(r"(\.fixed)?\.(said|yaml|json)$", "", name) not in stems]
    assert strays == []
