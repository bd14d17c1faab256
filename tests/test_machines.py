"""Healthy machines: no error, and no warning that is not true of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import cli, engine, errors
from mgpu.check import Check
from mgpu.engine import verdict
from mgpu.snapshot import FACTS, OF_A_RUN, Gap, Plan, Snapshot, loads, path_between
from tests import machines
from tests.conftest import CHECKS
from tests.test_snapshot import dumped

every_machine = pytest.mark.parametrize("name", machines.NAMES)
_BELOW_ONE_BRIDGE = ("PIX", "PXB", "PHB")


def firing(snapshot: Snapshot, checks: Iterable[Check] = CHECKS.values()) -> set[str]:
    """Ids of errors and warnings, and of checks that crashed."""
    outcomes = engine.run(checks, snapshot)
    return {o.check.id for o in outcomes if o.status in ("fail", "warn", "crash")}


def test_there_are_enough_machines() -> None:
    assert len(machines.NAMES) >= 20


@every_machine
def test_a_healthy_machine_gives_no_false_alarm(name: str) -> None:
    assert firing(machines.machine(name)) == set(machines.read(name).get("true", ()))


@every_machine
def test_a_run_on_two_machines_asks_for_more_only_where_it_is_true(name: str) -> None:
    told = machines.read(name)
    two = firing(replace(machines.machine(name), plan=Plan(nodes=2)))
    assert two == set(told.get("true", ())) | set(told.get("true_on_two", ()))


@every_machine
def test_a_machine_names_what_it_was_described_from(name: str) -> None:
    told = machines.read(name)
    assert told["what"] and told["from"]
    assert all(re.match(r"https://\S+: .", source) or "recorded" in source for source in told["from"])
    assert "snapshot" in told or told["nominal"]


@every_machine
def test_a_machine_survives_saving(name: str) -> None:
    snapshot = machines.machine(name)
    again = loads(dumped(snapshot))
    assert again == snapshot
    assert firing(again) == firing(snapshot)


@every_machine
def test_the_bus_says_what_the_table_of_the_recording_says(name: str) -> None:
    """Below one bridge it must agree. Whether two host bridges are NODE or SYS apart, drivers tell differently."""
    told, snapshot = machines.read(name), machines.machine(name)
    pci = snapshot.pci
    assert pci is not None and snapshot.gpus is not None
    if not pci.devices:
        return
    gpus = [pci.at(gpu.pci) for gpu in snapshot.gpus]
    nics = {nic.names[0]: nic for nic in pci.of("nic")}
    rows: list[tuple[Any, list[str]]] = list(zip(gpus, machines.table(told), strict=True))
    rows += [(nics[nic], row.split()) for nic, row in told.get("nics", {}).items()]
    for device, words in rows:
        for gpu, word in zip(gpus, words, strict=True):
            if word == "X" or word.startswith("NV"):
                continue
            assert device is not None and gpu is not None
            found = path_between(device, gpu)
            near = word in _BELOW_ONE_BRIDGE or found in _BELOW_ONE_BRIDGE
            assert found == word or not near, (device.address, gpu.address)


@every_machine
def test_no_fact_that_is_missing_raises_an_alarm(name: str) -> None:
    """Unknown is never unhealthy: without any one of its facts a machine has no problem that it did not have before.

    A check gets the facts that it names and no others, so only those that read the missing one are run again."""
    snapshot = machines.machine(name)
    before = firing(snapshot)
    more = {}
    for fact in FACTS:
        if getattr(snapshot, fact) is not None:
            without: dict[str, Any] = {fact: None, "gaps": {**snapshot.gaps, fact: Gap("crashed", "the probe died")}}
            readers = [check for check in CHECKS.values() if fact in check.facts]
            if new := firing(replace(snapshot, **without), readers) - before:
                more[fact] = new
    assert more == {}


@every_machine
def test_the_verdict(name: str) -> None:
    snapshot = machines.machine(name)
    outcomes = engine.run([c for c in CHECKS.values() if not OF_A_RUN & set(c.facts)], snapshot)
    expected = ("ready", "ready_with_warnings") if snapshot.gpus else ("no_gpu",)
    assert verdict.of_machine(outcomes, snapshot) in expected


@pytest.mark.parametrize("columns", [80, 40])
@every_machine
def test_the_screen_fits(
    name: str, columns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for variable in ("FORCE_COLOR", "CLICOLOR_FORCE", "MGPU_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    snapshot = machines.machine(name)
    Path("machine.json").write_text(dumped(snapshot), encoding="utf-8")
    for options in ((), ("-v",)):
        code = cli.run(("doctor", "--from", "machine.json", *options))
        out, err = capsys.readouterr()
        assert (code, err) == (errors.READY if snapshot.gpus else errors.NO_GPU, "")
        assert out.isascii()
        assert [line for line in out.splitlines() if len(line) > columns and not _pastes(line)] == [], options


def _pastes(line: str) -> bool:
    """A command, or one long word (a path, an id) behind the head of its row: whole, so that it can be pasted."""
    text = re.sub(r"^\s*(Next:|then|Check|Fix|Where|Source:)\s|^\s*(ok|skip|info|warn|FAIL)\s+(\S+\s)?", "", line)
    words = text.split()
    return len(words) <= 1 or words[0] in ("mgpu", "sudo", "export", "unset", "ulimit", "nvidia-smi")
