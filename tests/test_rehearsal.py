"""Does the rehearsal of a script name the fault, its rank and its line, and stay silent about a script that works?

Real ranks over gloo. Most are forked from one process that has imported torch; a few start through the real launcher.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu import engine
from mgpu.check import Check
from mgpu.engine import Outcome, selections
from mgpu.readers.training_script import read as training_script
from mgpu.smoke import script_section
from mgpu.snapshot import Rehearsal, Snapshot
from tests.rehearsal_scripts import FOLDER, Ranks
from tests.rehearsal_scripts.as_one_file import as_one_file

# The checks of the source alone that name the same fault first.
SEEN_IN_SOURCE = {
    "alone": "script_trains_alone",
    "another_operation": "script_collective_by_rank",
    "another_source": "script_sends_from_every_rank",
    "batches_left_out": "script_rank_skips_backward",
    "barrier_after_validation": "script_collective_on_one_rank",
    "barrier_before_training": "script_collective_on_one_rank",
    "cache_race": "script_saves_on_every_rank",
    "collective_on_rank_0": "script_collective_on_one_rank",
    "common_log": "script_logs_on_every_rank",
    "data_repeated": "script_data_not_divided",
    "early_break": "script_rank_skips_backward",
    "exits_on_rank_1": "script_rank_skips_backward",
    "evaluates_wrapped_on_rank_0": "script_wrapped_model_on_one_rank",
    "gathers_on_rank_0": "script_collective_on_one_rank",
    "group_on_one_rank": "script_collective_on_one_rank",
    "half_of_the_data": "script_replicas_fixed",
    "head_replaced": "script_replaces_trained_layer",
    "inverted_no_sync": "script_never_exchanges",
    "inner_model_called": "script_trains_inner_model",
    "leftover_world": "script_group_of_one_rank",
    "loaded_on_rank_0": "script_loads_on_one_rank",
    "never_synced": "script_never_exchanges",
    "no_set_epoch": "script_set_epoch_missing",
    "one_model_not_wrapped": "script_model_not_wrapped",
    "other_shape": "script_collective_by_rank",
    "one_file": "script_saves_on_every_rank",
    "one_log": "script_writes_on_every_rank",
    "prepared_one_of_two": "script_model_not_prepared",
    "prepared_without_loader": "script_data_not_divided",
    "prepared_without_model": "script_model_not_prepared",
    "read_before_written": "script_reads_before_written",
    "same_data": "script_data_not_divided",
    "saved_by_library": "script_saves_on_every_rank",
    "schedule_by_own_loss": "script_schedule_by_own_loss",
    "skips_backward": "script_rank_skips_backward",
    "state_of_shards_on_rank_0": "script_collective_on_one_rank",
    "state_saved_in_turns": "script_writes_on_every_rank",
    "step_skipped": "script_rank_skips_backward",
    "unequal_gather": "script_collective_by_rank",
    "schedule_on_rank_0": "script_steps_on_one_rank",
    "stale_optimizer": "script_optimizer_before_sharding",
    "step_on_rank_0": "script_steps_on_one_rank",
    "stream_not_split": "script_stream_not_split",
    "unwrapped": "script_group_without_wrapper",
    "unwrapped_by_accelerate": "script_trains_unwrapped_model",
    "waits_forever": "script_collective_on_one_rank",
    "world_of_one": "script_group_of_one_rank",
}
FAULTS = sorted((FOLDER / "faults").glob("*.py"))
# Findings about the same files that are no fault of the exchange between ranks.
ABOUT_ONE_PROCESS = {"script_group_not_ended", "script_device_not_set", "script_checkpoint_loaded_onto_gpu_0"}
HEALTHY = sorted((FOLDER / "healthy").glob("*.py"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    started = Ranks(tmp_path_factory.mktemp("ranks"))
    yield started
    started.end()


def judged(rehearsal: Rehearsal) -> list[Outcome]:
    """The findings, without the listing of files."""
    outcomes = engine.judge(Snapshot(rehearsal=rehearsal), selections.SMOKE)
    assert not [o for o in outcomes if o.status == "crash"]
    return [o for o in outcomes if o.problem and o.check.area == "rehearsal" and o.check.id != "files_outside"]


@pytest.mark.parametrize("script", FAULTS, ids=lambda path: path.stem)
def test_a_fault_is_named_with_its_line(ranks: Ranks, tmp_path: Path, script: Path) -> None:
    text = script.read_text()
    wanted, line = (ast.get_docstring(ast.parse(text)) or "").partition(":")[0], text.partition("# here")[0].count("\n")
    rehearsal = ranks.rehearse(script, tmp_path, 60.0)
    found = judged(rehearsal)
    roots = [o for o in found if not o.because_of]
    assert wanted in {o.check.id for o in roots}, (rehearsal.ended, [(o.check.id, o.problem) for o in found])
    if "# here" in text:
        problem = next(o.problem for o in roots if o.check.id == wanted)
        assert problem and problem.place, problem
        assert (Path(problem.place.file).name, problem.place.line) == (script.name, line + 1), problem
    others = {o.check.id for o in roots} - {wanted}
    assert not others, [(o.check.id, o.problem) for o in roots]


@pytest.mark.parametrize("script", HEALTHY, ids=lambda path: path.stem)
def test_a_script_that_works_has_no_finding(ranks: Ranks, tmp_path: Path, script: Path) -> None:
    rehearsal = ranks.rehearse(script, tmp_path, 60.0)
    found = [(o.check.id, o.problem) for o in judged(rehearsal)]
    assert not found, (rehearsal.ended, found)
    assert rehearsal.ended == "stopped" and rehearsal.steps == rehearsal.wanted
    rows = script_section.groups(engine.judge(Snapshot(rehearsal=rehearsal), selections.SMOKE))
    row = next((status, text) for group, _, status, text in rows if group == "model")
    if script.stem.startswith("fsdp"):  # what sharding keeps from being proved is named, whatever else passed
        assert row[0] == "skip" and row[1].startswith("not proved: FSDP"), row
    else:
        assert row[0] in ("ok", "skip"), row
    requested = any("Not proved: DeepSpeed." in note for note in script_section.notes(rehearsal))
    assert requested == (script.stem == "deepspeed_on_cpu")


def seen_in_source(script: Path, folder: Path) -> set[str]:
    """The warnings of `mgpu doctor --script`."""
    file = folder / script.name
    file.write_text(as_one_file(script))
    outcomes = engine.judge(Snapshot(script=training_script.read(file)), selections.SCRIPT)
    return {o.check.id for o in outcomes if o.problem and o.check.id not in ABOUT_ONE_PROCESS}


@pytest.mark.parametrize("script", FAULTS, ids=lambda path: path.stem)
def test_what_can_be_seen_without_running_has_the_same_name(tmp_path: Path, script: Path) -> None:
    found, expected = seen_in_source(script, tmp_path), SEEN_IN_SOURCE.get(script.stem)
    assert found == ({expected} if expected else set())
    if expected:
        wanted = (ast.get_docstring(ast.parse(script.read_text())) or "").partition(":")[0]
        names = {check.id: check.same_as for check in engine.load(("rehearsal",)) if isinstance(check, Check)}
        assert expected in names[wanted]


@pytest.mark.parametrize("script", HEALTHY, ids=lambda path: path.stem)
def test_the_source_of_a_script_that_works_has_no_finding(tmp_path: Path, script: Path) -> None:
    assert not seen_in_source(script, tmp_path)
