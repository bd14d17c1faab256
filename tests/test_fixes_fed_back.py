"""Does every proposed fix work: the finding goes, nothing as serious appears, and accelerate accepts the file?

Every fix of every finding on the bad configs, the configs that mgpu writes, and a sample of generated configs
(`mutated_configs.py`) is applied, its edits or what its text says (`fixes_fed_back.py`). `MGPU_FED_BACK=20000
MGPU_FUZZ_SEED=7 python -m pytest tests/test_fixes_fed_back.py` applies those of more and of other generated files.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu.config import loader
from tests import fixes_fed_back as fed_back
from tests.mutated_configs import MACHINES, mutants
from tests.test_bad_configs import CASES, FOLDER, machine_of

TEMPLATES = sorted(Path(__file__).with_name("templates").glob("*.yaml"))
SAMPLE = int(os.environ.get("MGPU_FED_BACK", "500"))
SEED = int(os.environ.get("MGPU_FUZZ_SEED", "1"))


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A config names its DeepSpeed file from where it is used."""
    monkeypatch.chdir(FOLDER)


def applied(name: str, text: str, machine: str) -> Iterator[tuple[str, str, bool, list[str]]]:
    """Yield each proposal on a file: what it is, the file after it, whether errors remain, and what is wrong."""
    snapshot = machine_of(f"# machine: {machine}\n" if machine else text)
    config, before = fed_back.judged(text, name, snapshot)
    for outcome in before:
        assert outcome.status != "crash", (name, outcome.answer)
        if outcome.problem is None or outcome.because_of:
            continue
        for clause, edits in fed_back.proposals(outcome.problem, dict(config.values)):
            told = f"{name}: {outcome.problem.title} [{outcome.check.id}]: {clause}"
            after, wrong = fed_back.objections(text, name, snapshot, outcome, edits, before)
            if after is not None:
                errors = any(o.status == "fail" for o in fed_back.judged(after, name, snapshot)[1])
                yield told, after, errors, wrong


def wrong_after(files: list[tuple[str, str, str]], folder: Path) -> tuple[int, list[str]]:
    """Return the number of proposals on these files (name, text, machine), and everything that is wrong after one."""
    found = [one for name, text, machine in files for one in applied(name, text, machine)]
    wrong = [f"{told}: {what}" for told, _, _, faults in found for what in faults]
    sound = {after: told for told, after, errors, _ in found if not errors}
    paths = []
    for number, after in enumerate(sound):
        path = folder / f"{number}{'.json' if _is_json(after) else '.yaml'}"
        path.write_text(after, encoding="utf-8")
        paths.append(str(path))
    for told, verdict in zip(sound.values(), loader.verdicts(paths), strict=True):
        if not verdict["accepted"]:
            wrong.append(f"{told}: accelerate rejects the file: {verdict['error']}")
    return len(found), wrong


def test_of_bad_configs_and_of_those_that_mgpu_writes(tmp_path: Path) -> None:
    raw = [(path.name, path.read_bytes()) for path in (*CASES, *TEMPLATES)]
    files = [(name, text.decode(), "") for name, text in raw if _is_text(text)]
    number, wrong = wrong_after(files, tmp_path)
    assert number > 150 and wrong == []


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_text(raw: bytes) -> bool:
    try:
        return "\0" not in raw.decode()
    except UnicodeDecodeError:
        return False


def test_of_generated_configs(tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    everything = sorted(set(mutants()))
    files = [(f"{name}.yaml", text, chosen.choice(MACHINES)) for name, text in
             chosen.sample(everything, min(SAMPLE, len(everything)))]  # fmt: skip
    number, wrong = wrong_after(files, tmp_path)
    assert number > SAMPLE // 2 and wrong == []


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("fsdp_config:\n  fsdp_limit_all_gathers: true\n", ("delete", "fsdp_config.fsdp_limit_all_gathers")),
        ("dynamo_config: {dynamo_mode: max-autotune}\n", ("set", "dynamo_config.dynamo_backend")),
    ],
)
def test_a_text_is_read_as_a_person_would(text: str, edit: tuple[str, str]) -> None:
    kind = "FSDP" if "fsdp" in text else "MULTI_GPU"
    config, outcomes = fed_back.judged(
        f"distributed_type: {kind}\nnum_processes: 8\n{text}", "a.yaml", machine_of("# machine: 8 x A100\n")
    )
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    proposed = [e for p in problems for _, edits in fed_back.proposals(p, dict(config.values)) for e in edits]
    assert edit in [(one.kind, one.key) for one in proposed]


def test_a_fix_that_only_moves_the_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The apparatus itself: with a fix that does nothing, and with one that breaks the file."""
    from mgpu.check import Edit

    for edits in ((Edit("set", "debug", False),), (Edit("set", "distributed_type", "DDP"),)):
        monkeypatch.setattr(fed_back, "proposals", lambda problem, values, edits=edits: [("as told", edits)])
        text = "distributed_type: MULTI_GPU\nnum_processes: 8\nrdzv_backend: c10d\n"
        _, wrong = wrong_after([("a.yaml", text, "8 x A100")], tmp_path)
        assert wrong
