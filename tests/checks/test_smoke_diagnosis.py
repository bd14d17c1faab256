"""checks/smoke/diagnosis.py"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu import engine
from mgpu.smoke import trials as smoke_trials
from mgpu.smoke.ranks.rank_plan import Orders
from mgpu.snapshot import Ranks, Snapshot, Step, Trial
from tests.checks import facts as known
from tests.checks.facts import Case, fails, problem, rank, ranks, skips, table, waiting, warns, well
from tests.conftest import CHECKS

RUNGS = ("start", "collectives", "train")
AGAIN = Trial("as configured", False, 'no progress for 10 s, rank 1 at "all-reduce 1000 x float32"', 13.0)


def changed(change: str, ok: bool | None = True, /, busbw: float | None = None, **environment: str) -> Trial:
    return Trial(change, ok, None if ok else "fails", 6.0, environment, busbw_gb_per_s=busbw)


def set_to(ok: bool | None = True, /, busbw: float | None = None, **environment: str) -> Trial:
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    return changed(words, ok, busbw=busbw, **environment)


def pair(a: int, b: int, ok: bool | None) -> Trial:
    return Trial(f"pair {a}-{b}", ok, gpus=(a, b), environment={"CUDA_VISIBLE_DEVICES": f"GPU-{a},GPU-{b}"})


def stuck(*trials: Trial, **changes: Any) -> Ranks:
    """Four ranks that wait in an all-reduce, and what was tried then."""
    steps = (Step("start", True), Step("collectives", None))
    word = "all-reduce 1000 x float32"
    place = {"steps": steps, "last_word": word, "world_size": 4, "accelerate_world_size": 4}
    members = [waiting(n, last_word_order=40 - (n == 1), **place) for n in range(4)]
    told = {"ended": "stalled", "launcher_exit": None, "rungs": RUNGS, "trials": (AGAIN, *trials)}
    return ranks(*members, **told | changes)


P2P = set_to(NCCL_P2P_DISABLE="1", busbw=9.3)
SHM = set_to(NCCL_SHM_DISABLE="1")
ISLANDS = (pair(0, 2, False), pair(1, 3, False), pair(0, 1, True), pair(2, 3, True), pair(0, 3, None))
HERE = "(stage collectives, rank 1)"
OTHER = ranks(trials=(AGAIN, changed("without NCCL_ALGO", NCCL_ALGO="")), rungs=RUNGS)
CASES = (
    # variable_breaks_run
    fails("variable_breaks_run", f"NCCL_ALGO breaks the run {HERE}: works without it", "unset NCCL_ALGO",
        ranks=stuck(changed("without NCCL_ALGO", NCCL_ALGO=""))),
    fails("variable_breaks_run", "NCCL_ALGO, NCCL_NET and NCCL_PROTO break the run", "unset NCCL_ALGO NCCL_NET",
        ranks=stuck(changed("without all", NCCL_ALGO="", NCCL_NET="", NCCL_PROTO=""),
            changed("without NCCL_ALGO", False, NCCL_ALGO=""))),
    fails("variable_breaks_run", "NCCL_NET breaks the run", "unset NCCL_NET",
        ranks=stuck(changed("without all", NCCL_ALGO="", NCCL_NET="", NCCL_PROTO=""),
            changed("without NCCL_NET", NCCL_NET=""))),
    well("variable_breaks_run", "the run finished, no search needed"),
    well("variable_breaks_run", "works with NCCL_P2P_DISABLE=1", ranks=stuck(P2P)),
    skips("variable_breaks_run", "no search was run", ranks=stuck(trials=())),
    # p2p_between_gpus_fails
    fails("p2p_between_gpus_fails", f"direct GPU-to-GPU transfer does not work {HERE}", "NCCL_P2P_DISABLE=1",
        ranks=stuck(P2P)),
    fails("p2p_between_gpus_fails", "direct GPU-to-GPU transfer between GPUs {0,1} and {2,3} does not", "iommu=pt",
        ranks=stuck(P2P, *ISLANDS)),
    fails("p2p_between_gpus_fails", "direct GPU-to-GPU transfer does not work", "iommu=pt",
        ranks=stuck(P2P, pair(0, 1, True), pair(1, 2, True), pair(0, 2, False))),
    well("p2p_between_gpus_fails", "works without NCCL_ALGO", ranks=OTHER),
    well("p2p_between_gpus_fails", "not the cause in 2 trials", ranks=stuck(set_to(False, NCCL_P2P_DISABLE="1"))),
    # shared_memory_transport_fails, infiniband_transport_fails, nvls_fails
    fails("shared_memory_transport_fails", f"NCCL's shared memory does not work {HERE}", "df -h /dev/shm",
        ranks=stuck(set_to(False, NCCL_P2P_DISABLE="1"), SHM)),
    well("shared_memory_transport_fails", "works with NCCL_P2P_DISABLE=1", ranks=stuck(P2P)),
    fails("infiniband_transport_fails", "InfiniBand (or RoCE) does not work", "export NCCL_IB_DISABLE=1",
        ranks=stuck(set_to(NCCL_IB_DISABLE="1"))),
    well("infiniband_transport_fails", "the run finished, no search needed"),
    fails("nvls_fails", "NVLink SHARP does not work", "export NCCL_NVLS_ENABLE=0",
        ranks=stuck(set_to(NCCL_NVLS_ENABLE="0"))),
    well("nvls_fails", "the run finished, no search needed"),
    # wrong_interface
    fails("wrong_interface", f"a network interface that does not work {HERE}: works over eno1",
        "export NCCL_SOCKET_IFNAME=eno1",
        ranks=stuck(set_to(NCCL_SOCKET_IFNAME="eno1", GLOO_SOCKET_IFNAME="eno1"))),
    well("wrong_interface", "works without GLOO_SOCKET_IFNAME",
        ranks=stuck(changed("without GLOO_SOCKET_IFNAME", GLOO_SOCKET_IFNAME=""))),
    # nccl_fails_gloo_works
    fails("nccl_fails_gloo_works", f"NCCL does not work {HERE}, but gloo does", "mgpu doctor --only nccl",
        ranks=stuck(set_to(False, NCCL_P2P_DISABLE="1"), changed("gloo instead of NCCL"))),
    well("nccl_fails_gloo_works", "works with NCCL_P2P_DISABLE=1", ranks=stuck(P2P)),
    # gpu_pair_fails
    fails("gpu_pair_fails", f"GPU 2 does not work with the others {HERE}", "mgpu smoke-test --gpus 0,1",
        ranks=stuck(pair(0, 1, True), pair(2, 3, False), pair(0, 2, False))),
    fails("gpu_pair_fails", "GPUs 0-2 and 1-3 do not work together", "mgpu smoke-test --gpus 0,1",
        ranks=stuck(pair(0, 2, False), pair(1, 3, False), pair(0, 1, True), pair(2, 3, True))),
    fails("gpu_pair_fails", "GPUs 2 and 3 do not work with the others", "nvidia-smi -q",
        ranks=stuck(pair(0, 1, True), pair(2, 3, False))),
    well("gpu_pair_fails", "2 groups of GPUs tested, all work", ranks=stuck(pair(0, 1, True), pair(2, 3, True))),
    well("gpu_pair_fails", "works with NCCL_P2P_DISABLE=1", ranks=stuck(P2P)),
    skips("gpu_pair_fails", "no group of GPUs works", ranks=stuck(pair(0, 1, False), pair(2, 3, False))),
    # strategy_fails_ddp_works, precision_fails, checkpoint_folder_fails
    fails("strategy_fails_ddp_works", f"the training steps fail with FSDP {HERE} but work with DDP", "--only packages",
        ranks=stuck(changed("DDP instead of FSDP"))),
    well("strategy_fails_ddp_works", "not the cause in 2 trials", ranks=stuck(changed("DDP instead of FSDP", False))),
    fails("precision_fails", f"the training steps fail in bf16 {HERE} but work in fp32", "mixed_precision",
        ranks=stuck(changed("fp32 instead of bf16"))),
    well("precision_fails", "the run finished, no search needed"),
    fails("checkpoint_folder_fails", f"the checkpoint folder does not work {HERE}", "df -h",
        ranks=stuck(changed("checkpoint in the run folder"))),
    well("checkpoint_folder_fails", "the run finished, no search needed"),
    # failure_does_not_repeat
    warns("failure_does_not_repeat", f"failed once {HERE}, then worked", "mgpu smoke-test --level long",
        ranks=stuck(trials=(Trial("as configured", True, None, 5.0),))),
    well("failure_does_not_repeat", "the failure is reproducible", ranks=stuck(P2P)),
    well("failure_does_not_repeat", "the run finished, no search needed"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize("found", [P2P, SHM, changed("gloo instead of NCCL"), changed("DDP instead of FSDP")])
def test_one_cause_is_named_and_all_else_is_its_consequence(found: Trial) -> None:
    outcomes = engine.run(
        [c for c in CHECKS.values() if c.area == "smoke"], Snapshot(**known.facts(ranks=stuck(found)))
    )
    causes = [outcome for outcome in outcomes if outcome.status == "fail" and not outcome.because_of]
    (cause,) = causes
    assert cause.problem is not None
    assert (cause.problem.evidence["rank"], cause.problem.evidence["rung"]) == (1, "collectives")
    assert cause.problem.evidence[found.change] == "works"


def test_the_price_of_a_stopgap_is_told() -> None:
    fixes = problem("p2p_between_gpus_fails", ranks=stuck(P2P)).fixes
    assert [fix.kind for fix in fixes] == ["fix", "stopgap"]
    assert "9.3 GB/s" in (fixes[1].caveat or "")


def test_the_words_of_the_search_are_those_the_checks_know() -> None:
    """The checks cannot import the search: they know a change by its words."""
    snapshot = Snapshot(**known.facts(env={"NCCL_ALGO": "Ring"}))
    orders = Orders("runs", 4, strategy="fsdp", precision="bf16", checkpoint_folder="/data")
    for rung in ("train", "checkpoint"):
        for one in smoke_trials.tries(snapshot, orders, rung)[1:]:
            trial = Trial(one.change, True, environment=one.environment, gpus=one.gpus)
            others = (Trial("all", False, gpus=(0, 1, 2, 3)),) if one.gpus else ()
            told = Snapshot(**known.facts(ranks=stuck(*others, trial)))
            fired = [o.check.id for o in engine.run(CHECKS.values(), told) if o.status == "fail" and not o.because_of]
            assert len(fired) == 1 and fired[0] in CHECKS, (one.change, fired)
            assert "hang" not in fired[0], one.change


def test_a_rank_that_failed_is_named_by_its_own_rung() -> None:
    failed = rank(2, steps=(Step("start", True), Step("collectives", False, "wrong")), failed_at=9.0)
    told = ranks(rank(0), rank(1), failed, trials=(AGAIN, SHM), rungs=RUNGS, ended="died", launcher_exit=1)
    found = problem("shared_memory_transport_fails", ranks=told)
    assert "(stage collectives, rank 2)" in found.title and found.subjects == ("rank 2",)
