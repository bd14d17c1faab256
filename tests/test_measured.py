"""What a measured script means for plans: its batch, speed-up, scaling; and when it does not count any more."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu.engine import before_start
from mgpu.launchers import measurements, project_folder, stamp
from mgpu.launchers.measurements import Known
from mgpu.planning import measured
from mgpu.report.screen import Screen
from mgpu.smoke import script_speed
from mgpu.snapshot import (
    Measured,
    MeasuredStep,
    Measurement,
    Model,
    Rehearsal,
    RehearsedRank,
    SavedCheckpoint,
    ScalingRun,
    Snapshot,
)
from mgpu.wizard import measured_plan, scaling_table
from mgpu.wizard.answers import Answers
from mgpu.wizard.nodes import Site
from mgpu.wizard.proposal import propose
from tests import machines
from tests.checks.configs import said
from tests.checks.facts import GIB, driver, gpus, measurement, rehearsal, rehearsed_rank, seen
from tests.checks.facts import stamp as stamp_fact
from tests.test_schema import PLAN

ROOM = 80 * GIB


def timed(*steps: tuple[float, float, float | None], **changes: Any) -> Measured:
    """Steps of (all, loader, exchange) seconds, with 1 ms in the optimizer and 8 samples."""
    rows = tuple(MeasuredStep(whole, loader, exchange, 0.001, 0.0, 8) for whole, loader, exchange in steps)
    return Measured(rows, batch=8, **changes)


def of(*ranks: Measured | None, **changes: Any) -> Rehearsal:
    found = [rehearsed_rank(number, measured=one, host_bytes=GIB) for number, one in enumerate(ranks)]
    return rehearsal(*found, script_sha256="5c71", expected=len(ranks), **changes)


def figures(whole: Rehearsal) -> Measurement:
    found = measured.measurement(whole, ["--lr", "1"])
    assert found is not None
    return found


def test_waiting_is_what_the_exchange_takes_longer_than_on_the_last_rank() -> None:
    fast, slow = timed(*[(0.1, 0.01, 0.05)] * 5), timed(*[(0.1, 0.03, 0.02)] * 5)
    found = figures(of(fast, slow))
    assert (found.step_s, found.step_mad_s, found.steps) == (0.1, 0.0, 5)
    assert (found.loader_s, found.exchange_s, found.waiting_s) == (0.02, 0.02, 0.015)
    parts = found.loader_s + found.compute_s + found.optimizer_s + 0.02 + 0.015
    assert parts == pytest.approx(found.step_s)
    assert found.samples_per_s == 160.0 and found.batch == 8


def test_what_is_not_known_is_none() -> None:
    assert measured.measurement(of(timed((0.1, 0.0, 0.0)), None), ()) is None, "a rank has no measured steps"
    assert measured.measurement(replace(of(timed((0.1, 0.0, 0.0))), script_sha256=None), ()) is None
    sharded = figures(of(timed((0.1, 0.0, None)), timed((0.1, 0.0, 0.02))))
    assert (sharded.exchange_s, sharded.waiting_s) == (None, None)
    shared = of(*[timed((0.1, 0.0, 0.0))] * 4)
    shared = replace(shared, ranks=tuple(replace(rank, subgroups=(2,)) for rank in shared.ranks))
    assert figures(shared).samples_per_s is None, "ranks of a group may share samples"
    assert figures(of(timed((0.1, 0.0, 0.0)))).activation_bytes is None


def test_an_outlier_does_not_move_the_parts() -> None:
    found = figures(of(timed(*[(0.1, 0.01, 0.0)] * 9, (5.0, 4.9, 0.0))))
    assert (found.step_s, found.loader_s) == (0.1, 0.01)


def test_the_batch_that_fits() -> None:
    """10 GiB stay, each sample needs 1 GiB; 3 GiB are kept free, and 10 % of the other 77."""
    room = measured.batch_that_fits(measurement(), ROOM)
    assert room and (room.batch, room.need_bytes) == (59, 69 * GIB)
    none = measured.batch_that_fits(measurement(), 12 * GIB)
    assert none and none.batch == 0
    assert measured.batch_that_fits(measurement(cpu=True), ROOM) is None
    assert measured.batch_that_fits(measurement(static_bytes=None), ROOM) is None


def test_the_section_is_compact_and_says_what_scaling_costs() -> None:
    alone = measurement(ranks=1, samples_per_s=100.0, exchange_s=0.0, waiting_s=0.0, step_s=0.08)
    fail = ScalingRun(2, None, "the script fails: ValueError")
    own = SavedCheckpoint("/run/.mgpu/runs/c", True, None, 0.5, 3 * GIB, "torch.save", 2.0)
    whole = of(timed((0.1, 0.0, 0.0)))
    whole = replace(
        whole, measurement=measurement(ranks=4), scaling=(ScalingRun(1, alone), fail), ended="stopped",
        ranks=(replace(whole.ranks[0], checkpoints=(own,)),),
    )  # fmt: skip
    text = script_speed.lines(whole)
    assert len(text) <= 6
    assert text[0].startswith("100 ms per step (median of 20 more steps without hooks, +-2 ms): loader 10 ms, ")
    assert text[1] == "160 samples/s on 4 GPUs, batches of 8 on each"
    assert "18 GiB per GPU (19 GiB reserved): 10 GiB between steps, 8.0 GiB for activations" in text[2]
    assert text[3] == "Checkpoint (torch.save): 3 GiB, written in 2 s, read in 500 ms, removed"
    assert "same batch per rank): 1: 100, 2: the script fails: ValueError, 4: 160 (40%)" in text[4]
    assert text[5].startswith("A step on 4 ranks takes 20 ms longer than on 1: exchanging gradients +15 ms, waiting")
    entries = script_speed.scaling_entries(whole)
    assert [entry["efficiency"] for entry in entries] == [1.0, None, 0.4] and entries[1]["why"]
    refused = replace(whole.ranks[0], checkpoints=(), checkpoint_refused="no model")
    assert "No checkpoint was written: no model" in script_speed.lines(replace(whole, ranks=(refused,)))
    assert script_speed.lines(of(None)) == [
        "Speed not measured: the script ended after 4 steps, before any could be measured."
    ]


def plan(known: Known | None, machine: Snapshot) -> str:
    stream = io.StringIO()
    answers = Answers(dataset_size=1600)
    scaling_table.show(answers, machine, Screen(100, glyphs=False, colour=False, stream=stream), script=known)
    return " ".join(stream.getvalue().split())


def test_the_plan_says_measured_and_by_what() -> None:
    machine, alone = machines.machine("dgx_a100_x8"), measurement(ranks=1, samples_per_s=100.0)
    known = Known(measurement(), (), (alone,))
    text = plan(known, machine)
    assert "Measured for train.py (.mgpu/runs/smoke-1, 2026-11-20): 100 ms per step, 160 samples/s on 2 GPUs" in text
    assert "An epoch of 1,600 samples takes 10 s on 2 GPUs." in text
    assert (
        "Speed-up: measured by the rehearsal of train.py (.mgpu/runs/smoke-1, 2026-11-20)." in text and "1.6x" in text
    )
    assert "Batch per GPU: 8 needs 18 GiB of 40 GiB, 22 fit (32 GiB)" in text and "in proportion to the batch" in text
    stale = plan(replace(known, changed=("the script", "driver")), machine)
    assert "Estimated: train.py was measured" in stale and "but since then the script and driver changed." in stale
    assert "1.6x" not in stale and "Batch per GPU" not in stale
    on_cpu = plan(Known(measurement(cpu=True), (), (alone,)), machine)
    assert "160 samples/s on 2 CPU ranks" in on_cpu and "nothing is concluded from it for GPUs" in on_cpu
    assert "1.6x" not in on_cpu and "An epoch" not in on_cpu
    document = scaling_table.document(Answers(), machine, None, known)
    PLAN.validate(document)
    measured = document["plan"]["measured"]
    assert measured is not None and measured["batch_that_fits"] and measured["changed"] == []


def test_configure_proposes_the_largest_batch_with_its_headroom() -> None:
    machine = machines.machine("dgx_a100_x8")
    answers = Answers(gpus=2, precision="bf16")

    def row(known: Known, answers: Answers = answers) -> tuple[str, str, str]:
        proposal = propose(machine, answers, "machine", Site(measured=known))
        found = next((one for one in proposal.settings if one.label == measured_plan.LABEL), None)
        return found.text if found else "", found.reason if found else "", " ".join(proposal.notes)

    text, why, notes = row(Known(measurement()))
    assert text == "up to 22 per GPU" and "measured (.mgpu/runs/smoke-1, 2026-11-20)" in why and "headroom" in why
    assert "in proportion to the batch" in notes
    assert (
        "Warning: a batch of 900 per GPU does not fit"
        in row(Known(measurement()), replace(answers, batch_per_gpu=900))[2]
    )
    text, _, notes = row(Known(measurement(), ("the config",)))
    assert not text and "but since then the config changed" in notes
    text, _, notes = row(Known(measurement(strategy="FSDP", ranks=4)))
    assert not text and "it has another number of ranks and strategy than this config" in notes
    assert row(Known(measurement(cpu=True)))[0] == ""


def test_a_measurement_counts_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu.config import facts
    from mgpu.launchers.script_hash import hash_of

    monkeypatch.chdir(tmp_path)
    config = tmp_path / "accelerate.yaml"
    config.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    sha256 = facts(config, ask_loader=False).sha256
    machine = Snapshot(driver=driver(), gpus=gpus(2), visible=seen(0, 1))
    found = measurement(script_sha256=hash_of(script))
    entry = {
        "time": "2026-11-20T10:00:00Z", "rungs": ["start"], "measurements": [vars(found), {"ranks": "wrong"}],
        "facts": {"config": sha256, "file": "accelerate.yaml", "gpus": stamp.gpus_text(machine),
            "driver": machine.driver.version if machine.driver else ""},
    }  # fmt: skip
    record = tmp_path / project_folder.FOLDER / stamp.FILE
    record.parent.mkdir()

    def changed(machine: Snapshot = machine) -> tuple[str, ...]:
        record.write_text(json.dumps({"schema": stamp.SCHEMA, "entries": {"a": entry}}))
        record.chmod(0o600)
        known = measurements.latest(machine, tmp_path)
        assert known is not None and known.measurement == found
        return known.changed

    entry["measurements"] = [vars(found)]
    assert changed() == ()
    assert changed(replace(machine, driver=driver(version="1.2"))) == ("driver",)
    assert changed(replace(machine, gpus=gpus(1), visible=seen(0))) == ("the GPUs",)
    config.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n")
    script.write_text("pass  # changed\n")
    assert changed() == ("the script", "the config")
    entry["measurements"] = [{"ranks": "wrong"}]
    record.write_text(json.dumps({"schema": stamp.SCHEMA, "entries": {"a": entry}}))
    assert measurements.latest(machine, tmp_path) is None, "a damaged entry measures nothing"


def test_ranks_that_recorded_nothing_have_no_figures() -> None:
    assert measured.measurement(rehearsal(RehearsedRank(0), script_sha256="a"), ()) is None


def test_what_does_not_fit_is_said_before_the_start_with_what_fits() -> None:
    """Both commands show it in full; for ranks on the CPU there is nothing to say."""
    config = replace(said(), model=Model(8_030_000_000, "full", "adamw"), batch_per_gpu=64)
    machine = Snapshot(config=config, driver=driver(), gpus=gpus(4), visible=seen(0, 1, 2, 3))
    (text,) = before_start.memory_texts(machine)
    assert text.startswith("the model needs 150 GiB per GPU with DDP on 4 GPUs, a GPU here has 79 GiB. ")
    assert text.endswith("It fits with FSDP2 on 4 GPUs (30 GiB each).")
    known = stamp_fact(measurements=(measurement(),))
    (text,) = before_start.memory_texts(replace(machine, config=replace(config, model=None), stamp=known))
    assert text.startswith("batch 64 per GPU needs 74 GiB, a GPU here has 79 GiB: ")
    assert before_start.memory_texts(replace(machine, config=replace(config, values={"use_cpu": True}))) == []
    assert before_start.memory_texts(replace(machine, config=replace(config, model=None))) == []


def test_a_batch_that_one_rank_draws_for_all_is_not_the_batch_of_each() -> None:
    one = timed(*[(0.1, 0.01, 0.01)] * 4)
    assert figures(of(one, one)).batch == 8 and figures(of(one, replace(one, batch=None))).batch is None
