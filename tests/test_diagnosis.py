"""Does the search for the cause try what could matter, in a sensible order and time, and name the change that works?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import errors
from mgpu.smoke import diagnosis
from mgpu.smoke.ranks import STAGES
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.smoke.runner import Attempt
from mgpu.smoke.trials import tries
from mgpu.snapshot import Rank, Ranks, Snapshot, Step, Trial
from mgpu.snapshot.gpu_in_use import gpus_of
from tests import machines
from tests.checks import facts as known
from tests.conftest import ROOT, STARTUP, Run
from tests.scripts import kill_all, marked, write_config
from tests.verdicts import cause, checks

SEARCHED = ("group", "collectives", "pairs", "train", "bandwidth", "checkpoint")


def orders(world: int = 4, **changes: Any) -> Orders:
    return Orders(**{"folder": ".mgpu/runs/x", "world": world, **changes})


def changes(snapshot: Snapshot, told: Orders, rung: str = "collectives") -> list[str]:
    """The words of what is tried after "as configured"."""
    first, *others = tries(snapshot, told, rung)
    assert (first.change, dict(first.environment), dict(first.orders)) == ("as configured", {}, {})
    return [one.change for one in others]


def healthy(**facts: Any) -> Snapshot:
    return Snapshot(**known.facts(**facts))


# What is tried

GLOO = "gloo instead of NCCL"
OVER_ENO1 = "NCCL_SOCKET_IFNAME=eno1 GLOO_SOCKET_IFNAME=eno1"
OVER_LO = "NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo"


def test_a_board_of_four_h100s() -> None:
    found = changes(healthy(), orders())
    transports = ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1", "NCCL_NVLS_ENABLE=0"]
    halves = ["pair 0-1", "pair 2-3"]
    assert found == [
        *transports, OVER_ENO1, OVER_LO, GLOO,
        *halves, "pair 0-1", "pair 2-3", "pair 0-2", "pair 1-3", "pair 0-3", "pair 1-2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "world", "told"),
    [
        ("rtx4090_x2", 2, {"NCCL_SHM_DISABLE=1"}),
        ("rtx3090_x2_bridge", 2, {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"}),
        ("dgx_a100_x8", 8, {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1"}),
        (
            "hgx_b200_x8",
            8,
            {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1", "NCCL_NVLS_ENABLE=0"},
        ),
        ("h100_sxm_x4_direct", 4, {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1"}),
        ("gh200_x1", 1, set()),
    ],
)
def test_only_transports_that_the_machine_has(name: str, world: int, told: set[str]) -> None:
    found = {change for change in changes(machines.machine(name), orders(world)) if "ABLE" in change}
    assert found == told


@pytest.mark.parametrize("name", machines.NAMES)
@pytest.mark.parametrize("rung", SEARCHED)
def test_every_machine_every_rung(name: str, rung: str) -> None:
    """Each change once, everything in the environment a text, every part of the GPUs a part of those that train."""
    snapshot = machines.machine(name)
    world = len(snapshot.visible.gpus if snapshot.visible else ()) or 2
    _, *others = tries(snapshot, orders(world, strategy="fsdp", precision="bf16", checkpoint_folder="/data"), rung)
    words = [one.change for one in others if len(one.gpus) != 2]
    assert len(words) == len(set(words))
    for one in others:
        assert one.environment or one.orders
        assert all(isinstance(value, str) for value in one.environment.values())
        assert set(one.gpus) <= set(snapshot.visible.gpus if snapshot.visible else ())
        assert not one.gpus or one.orders["world"] == len(one.gpus) < world


def test_with_nothing_known_there_is_still_something_to_try() -> None:
    assert changes(Snapshot(), orders(2)) == ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", GLOO]


def test_what_the_user_has_set_comes_first_and_one_by_one() -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO", "UCX_TLS": "tcp", "HF_HOME": "/x", "OMP_NUM_THREADS": "1"}
    assert changes(healthy(env=env), orders())[:3] == ["without NCCL_ALGO", "without UCX_TLS", "NCCL_P2P_DISABLE=1"]


def test_of_many_variables_first_all_together() -> None:
    env = {f"NCCL_{name}": "1" for name in ("A", "B", "C")}
    _, together, *_ = tries(healthy(env=env), orders(), "group")
    assert together.change == "without NCCL_A, NCCL_B and NCCL_C"
    assert together.environment == {"NCCL_A": "", "NCCL_B": "", "NCCL_C": ""}
    assert [one.change for one in together.narrower] == ["without NCCL_A", "without NCCL_B", "without NCCL_C"]


def test_what_is_off_already_is_not_switched_off_again() -> None:
    found = changes(healthy(env={"NCCL_P2P_DISABLE": "1"}), orders())
    assert "NCCL_P2P_DISABLE=1" not in found and found[0] == "without NCCL_P2P_DISABLE"


def test_on_the_cpu_only_what_gloo_hears() -> None:
    env = {"NCCL_ALGO": "Ring", "GLOO_SOCKET_IFNAME": "nope0"}
    found = changes(healthy(env=env), orders(2, cpu=True))
    assert found == ["without GLOO_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME=eno1", "GLOO_SOCKET_IFNAME=lo"]


def test_the_training_steps_first_as_something_simpler() -> None:
    told = orders(strategy="fsdp", precision="bf16")
    assert changes(healthy(), told, "train")[:2] == ["DDP instead of FSDP", "fp32 instead of bf16"]
    first = changes(healthy(), orders(), "train")[0]
    assert first == "NCCL_P2P_DISABLE=1"


def test_a_checkpoint_only_in_another_folder() -> None:
    assert changes(healthy(), orders(checkpoint_folder="/data"), "checkpoint") == ["checkpoint in the run folder"]
    assert changes(healthy(), orders(), "checkpoint") == []


@pytest.mark.parametrize("rung", ["start", "device", "shutdown"])
def test_rungs_that_no_change_could_cure(rung: str) -> None:
    assert changes(healthy(), orders(), rung) == []


def test_eight_gpus_in_halves_then_pairs_of_which_few_meet_all() -> None:
    snapshot = machines.machine("v100_pcie_x8")
    parts = [one for one in tries(snapshot, orders(8), "pairs") if one.gpus]
    assert [one.gpus for one in parts[:2]] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert parts[0].change == "GPUs 0,1,2,3" and parts[0].environment["CUDA_VISIBLE_DEVICES"].count("GPU-") == 4
    assert {gpu for one in parts[2:6] for gpu in one.gpus} == set(range(8))
    assert len({one.gpus for one in parts[2:]}) == 28


# Whether to search at all


def finished(number: int, **more: Any) -> Rank:
    return Rank(number, steps=tuple(Step(rung, True) for rung in STAGES), finished=True, parameters="a", **more)


def failed(number: int = 1, rung: str = "collectives", **more: Any) -> Rank:
    steps = (*(Step(name, True) for name in STAGES[: STAGES.index(rung)]), Step(rung, False, "wrong", 0.1))
    return Rank(number, steps=steps, failed_at=9.0, finished=True, error="RuntimeError: wrong", **more)


def ran(*members: Rank, **more: Any) -> Ranks:
    return replace(Ranks(len(members), STAGES, members, "died", 1, 10.0), **more)


@pytest.mark.parametrize(
    ("ranks", "rung"),
    [
        (ran(finished(0), failed()), "collectives"),
        (ran(finished(0), failed(rung="train", kind="gradients_differ")), "train"),
        (ran(finished(0), failed(rung="group", kind="interface_missing")), "group"),
        (ran(finished(0), failed(), ended="stalled"), "collectives"),
        (ran(Rank(0, steps=(Step("start", None),)), failed(rung="group")), "group"),
        (ran(finished(0), failed(exit_code=-6)), "collectives"),
        (ran(finished(0), replace(finished(1), parameters="b"), ended="finished"), "train"),
        # certain, or nothing to change
        (ran(finished(0), failed(rung="checkpoint", kind="checkpoint_not_writable")), None),
        (ran(finished(0), failed(rung="device", kind="no_gpu")), None),
        (ran(finished(0), failed(rung="start")), None),
        (ran(finished(0), failed(process_state="stopped"), ended="stalled"), None),
        (ran(finished(0), failed(exit_code=-9)), None),
        (ran(finished(0), replace(finished(1), steps=(Step("train", None),)), launcher_exit=-9), None),
        (ran(finished(0), failed(), ended="timed_out"), None),
        (ran(finished(0), failed(), ended="interrupted"), None),
        (ran(finished(0), failed(), nodes=2), None),
        (ran(finished(0), finished(1), ended="finished"), None),
    ],
)  # fmt: skip
def test_whether_to_search(ranks: Ranks, rung: str | None) -> None:
    assert diagnosis.stage_to_search(ranks) == rung


# The search itself, without ranks

Answer = Callable[[Attempt], bool | str]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Trial, ...]]]:
    """The search on four H100s, with launches that end as `answer` says: they work, fail, or how else they ended."""
    launched: list[Attempt] = []

    def run(answer: Answer, cost_s: float = 1.0, **told: Any) -> tuple[Trial, ...]:
        clock = [0.0]

        def climb(attempt: Attempt) -> Ranks:
            launched.append(attempt)
            clock[0] += cost_s
            ended = answer(attempt)
            members = [finished(n) for n in range(attempt.orders.world)]
            if ended is not True:
                members[1] = failed()
            return ran(*members, **({"ended": ended} if isinstance(ended, str) else {}))

        monkeypatch.setattr(diagnosis, "run_ranks", climb)
        monkeypatch.setattr("mgpu.smoke.diagnosis.time.monotonic", lambda: clock[0])
        snapshot = healthy(**told.pop("facts", {}))
        assert snapshot.config is not None
        attempt = Attempt(snapshot.config, snapshot, orders(folder=str(tmp_path), **told), 120.0)
        return diagnosis.search(attempt, ran(finished(0), failed()))

    run.launched = launched  # type: ignore[attr-defined]
    yield run


def by_change(trials: tuple[Trial, ...]) -> dict[str, bool | None]:
    return {trial.change: trial.ok for trial in trials}


def with_variable(name: str, value: str = "1") -> Answer:
    return lambda attempt: attempt.environment.get(name) == value


def test_the_first_that_works_ends_the_search(search: Any) -> None:
    trials = search(with_variable("NCCL_SHM_DISABLE"))
    assert by_change(trials) == {"as configured": False, "NCCL_P2P_DISABLE=1": False, "NCCL_SHM_DISABLE=1": True}
    assert trials[0].detail == "rank 1: RuntimeError: wrong" and trials[-1].detail is None


def test_when_direct_transfer_is_to_blame_the_pairs_are_tried(search: Any) -> None:
    def islands(attempt: Attempt) -> bool:
        visible = attempt.environment.get("CUDA_VISIBLE_DEVICES", "")
        return "NCCL_P2P_DISABLE" in attempt.environment or (
            visible.count("GPU-") == 2 and ("GPU-0" in visible) == ("GPU-1" in visible)
        )

    found = by_change(search(islands))
    assert found == {
        "as configured": False, "NCCL_P2P_DISABLE=1": True, "pair 0-1": True, "pair 2-3": True, "pair 0-2": False,
        "pair 1-3": False, "pair 0-3": False, "pair 1-2": False,
    }  # fmt: skip
    assert {attempt.ranks for attempt in search.launched[2:]} == {2}


def test_a_failure_that_does_not_repeat_ends_the_search(search: Any) -> None:
    (trial,) = search(lambda attempt: True)
    assert (trial.change, trial.ok) == ("as configured", True)
    assert [attempt.orders.level for attempt in search.launched] == ["quick", "standard"]


def test_a_failure_that_needs_the_large_sizes_is_searched_with_them(search: Any) -> None:
    trials = search(lambda attempt: attempt.orders.level == "quick" or "NCCL_P2P_DISABLE" in attempt.environment)
    assert trials[0].ok is False and by_change(trials)["NCCL_P2P_DISABLE=1"]
    assert [attempt.orders.level for attempt in search.launched[:3]] == ["quick", "standard", "standard"]


def test_of_many_variables_the_one_is_found(search: Any) -> None:
    env = {f"NCCL_{name}": "1" for name in ("A", "B", "C")}
    trials = search(lambda attempt: attempt.environment.get("NCCL_B") == "", facts={"env": env})
    assert [trial.change for trial in trials if trial.ok] == ["without NCCL_A, NCCL_B and NCCL_C", "without NCCL_B"]
    assert trials[-1].change == "without NCCL_B"


def test_the_gpus_of_a_run_are_those_of_gpu_ids() -> None:
    """Not the first that are visible: accelerate puts gpu_ids in place of the variable."""
    facts = {"gpus": known.gpus(4), "visible": known.seen(0, 1)}
    chosen = known.config("num_processes: 2\nnum_machines: 1\ndistributed_type: MULTI_GPU\ngpu_ids: '2,3'\n")
    for config, wanted in ((chosen, [2, 3]), (known.config(), [0, 1])):
        snapshot = Snapshot(**known.facts(**facts, config=config))
        assert [gpu.index for gpu in gpus_of(snapshot, 2)] == wanted


def test_when_the_time_is_up_what_is_left_is_told_as_open(search: Any) -> None:
    trials = search(lambda attempt: False, cost_s=17.0)
    tried = [trial for trial in trials if trial.ok is False]
    assert len(tried) == len(search.launched) == 6 and sum(trial.seconds or 0 for trial in trials) <= 102
    left = trials[len(tried) :]
    assert left and all(trial.ok is None and "90 s limit reached" in (trial.detail or "") for trial in left)
    assert max(attempt.timeout_s for attempt in search.launched) <= 45.0
    assert search.launched[-1].timeout_s == 5.0


def test_a_try_climbs_the_failed_rung_alone_in_a_folder_of_its_own(search: Any, tmp_path: Path) -> None:
    search(lambda attempt: False, stall_s=60.0, fill_percent=50)
    told = search.launched[0].orders
    assert told.rungs == ("start", "device", "group", "collectives", "bandwidth", "shutdown")
    assert (told.stall_s, told.fill_percent, told.folder) == (10.0, 0, str(tmp_path / "try-1"))
    assert search.launched[0].environment["NCCL_DEBUG_FILE"].startswith(str(tmp_path / "try-1"))
    assert len({attempt.orders.folder for attempt in search.launched}) == len(search.launched)


def test_interrupted_the_trials_so_far_are_kept(search: Any) -> None:
    trials = search(lambda attempt: "interrupted" if "NCCL_P2P_DISABLE" in attempt.environment else False)
    assert [trial.change for trial in trials] == ["as configured", "remaining changes"]
    assert diagnosis.was_interrupted(replace(ran(finished(0)), trials=trials))
    assert not diagnosis.was_interrupted(replace(ran(finished(0)), trials=trials[:1]))


def test_no_answer_within_its_time_is_neither_works_nor_fails(search: Any) -> None:
    assert search(lambda attempt: "timed_out")[0].ok is None


# Real ranks


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    kill_all(tmp_path)


def smoke_test(mgpu: Run, *arguments: str, env: dict[str, str]) -> tuple[int, dict[str, Any]]:
    done = mgpu("smoke-test", "--json", "--level", "quick", *arguments, env=env)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_an_interface_that_does_not_exist_is_the_cause(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    code, document = smoke_test(mgpu, env={"GLOO_SOCKET_IFNAME": "nope0"})
    assert code == errors.NOT_READY and document["verdict"] == "failed"
    named = cause(document)
    assert named["id"] == "variable_breaks_run"
    assert "GLOO_SOCKET_IFNAME breaks the run (stage group, rank" in named["title"]
    assert named["fix"][0]["commands"] == ["unset GLOO_SOCKET_IFNAME"]
    told = [(trial["change"], trial["ok"]) for trial in document["diagnosis"]]
    assert told == [("as configured", False), ("without GLOO_SOCKET_IFNAME", True)]
    assert sum(trial["seconds"] for trial in document["diagnosis"]) < diagnosis.SEARCH_S
    assert document["culprit"]["rung"] == "group"
    assert document["stamp"] is None and not marked(tmp_path)


ONCE = """
import os

write = os.write


def failing(handle, data):
    if b'"word": "all-reduce' in bytes(data):
        os.write = write
        try:
            os.close(os.open(os.environ["FLAG"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            raise RuntimeError("a bit flipped")
    return write(handle, data)


if os.environ.get("RANK") == "1":
    os.write = failing
"""


def test_a_failure_that_comes_once(mgpu: Run, tmp_path: Path) -> None:
    write_config(tmp_path)
    faults = tmp_path / "faults"
    faults.mkdir()
    usual = (STARTUP / "sitecustomize.py").read_text()  # which this file hides
    (faults / "sitecustomize.py").write_text(usual + ONCE)
    code, document = smoke_test(mgpu, env={"PYTHONPATH": f"{faults}:{ROOT}", "FLAG": str(tmp_path / "flag")})
    assert code == errors.NOT_READY and document["verdict"] == "failed"
    (trial,) = document["diagnosis"]
    assert (trial["change"], trial["ok"]) == ("as configured", True)
    found = checks(document, "warn")
    assert "then worked with nothing changed" in found["failure_does_not_repeat"]["title"]
    named = cause(document)
    assert named["id"] == "rank_failed" and "a bit flipped" in named["title"]
    assert document["stamp"] is None and not marked(tmp_path)
