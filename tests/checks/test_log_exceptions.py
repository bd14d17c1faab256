"""checks/log/exceptions.py"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu.snapshot import FailedRank, Log, SignatureMatch, UncaughtException
from tests.checks.facts import Case, fails, log, table, well


def raised(*ranks: int, **changes: Any) -> UncaughtException:
    told: dict[str, Any] = {"type": "ValueError", "message": "bad batch", "file": "run.log", "line": 40}
    told |= {"place": "train.py:41 in main", "rank": ranks[0] if ranks else None, "ranks": ranks}
    return UncaughtException(**told | changes)


def with_(*found: UncaughtException, **changes: Any) -> Log:
    return log(raised=found, **changes)


BROKEN: dict[str, Any] = {"type": "torch.distributed.DistBackendError", "message": "NCCL error in: NCCLUtils.hpp:268"}

RECOMPUTED = raised(0, type="torch.utils.checkpoint.CheckpointError", signatures=("log_recomputation_differs",))


def shapes(saved: str, again: str) -> tuple[SignatureMatch, ...]:
    """The shapes that a CheckpointError lists."""
    return tuple(
        SignatureMatch(f"log_shape_{which}", f"{which} metadata", "run.log", 41, groups={"shape": shape})
        for which, shape in (("saved", saved), ("recomputed", again))
    )


SKEW: dict[str, Any] = {"type": "TypeError", "message": "f() missing 1 required positional argument: 'eps'"}
FAILED_COMMAND: dict[str, Any] = {
    "type": "subprocess.CalledProcessError",
    "message": "Command '['make']' returned non-zero exit status 2.",
}

CASES = (
    fails("log_exception", "train.py:41 in main raised ValueError on all 4 ranks: bad batch", "Go to that line",
        log=with_(raised(0, 1, 2, 3))),
    fails("log_exception", "raised ValueError on rank 2: bad batch", "inspect this rank's batch", log=with_(raised(2))),
    fails("log_exception", "raised ValueError on ranks 1 and 2", "Go to that line", log=with_(raised(1, 2))),
    fails("log_exception", "raised ValueError on all 4 ranks", "Go to that line",  # at two lines: the same failure
        log=with_(raised(0, 1, 3), raised(2, place="train.py:57 in main", message="bad batch"))),
    fails("log_exception", "raised ValueError on ranks 1 and 2: no key 'x1'", "Go to that line",
        log=with_(raised(1, message="no key 'x1'"), raised(2, place="data.py:7", message="no key 'x2'"))),
    fails("log_exception", "raised ValueError on rank 1", "Go to that line",
        log=with_(raised(), fallen=(FailedRank(0, -15, False), FailedRank(1, 1, True)))),
    well("log_exception", "no other exception", log=with_(raised(1, caught=True))),
    fails("log_loader_broke_off", "raised ConnectionResetError on rank 1", "Check whether the kernel killed it.",
        log=with_(raised(1, type="ConnectionResetError", loader=True))),
    well("log_loader_broke_off", "no rank lost", log=with_(raised(1, type="ConnectionResetError"))),
    well("log_exception", "no other exception", log=with_(raised(1, type="ConnectionResetError", loader=True))),
    well("log_communication_broke", "no other", log=with_(raised(1, type="ConnectionResetError", loader=True))),
    fails("log_communication_broke", "raised BrokenPipeError on rank 1", "mgpu smoke-test",
        log=with_(raised(1, type="BrokenPipeError"))),
    fails("log_exception", "raised StopIteration on rank 1", "Go to that line",
        log=with_(raised(1, type="StopIteration", message=""))),
    well("log_exception", "no other exception",
        log=with_(raised(type="subprocess.CalledProcessError", of_launcher=True))),
    fails("log_command_failed", "a command that the run starts failed: make (exit code 2)", "Run it by itself",
        log=with_(raised(1, **FAILED_COMMAND))),
    well("log_exception", "no other exception", log=with_(raised(1, **FAILED_COMMAND))),
    well("log_command_failed", "no such exception", log=with_(raised(1))),
    fails("log_exception", "RuntimeError: lost on rank 1; while it was handled, ValueError was raised too",
        "Start with the first", log=with_(raised(1, cause="RuntimeError: lost"))),
    fails("log_exception", "raised ValueError on rank 1", "Go to that line",
        log=with_(raised(1, after=9000, by_torch=True))),
    fails("log_exception", "raised KeyError", "Go to that line",  # within one file by line, whatever has a time
        log=with_(raised(line=50), raised(type="KeyError", line=10, at="2026-11-21T10:12:01"))),
    fails("log_exception", "raised ValueError 2 times", "Go to that line", log=with_(raised(times=2))),
    fails("log_exception", "raised KeyError on rank 3", "Go to that line",
        log=with_(raised(0, line=10), raised(3, type="KeyError", line=50), fallen=(FailedRank(3, 1, True),))),
    fails("log_exception", "raised ValueError", "Go to that line",
        log=with_(raised(1, after=9000), fallen=(FailedRank(1, 1, True),))),
    well("log_exception", "no other exception in 60 lines"),
    well("log_exception", "no other exception", log=with_(raised(0, after=9000))),  # something has caught it
    well("log_exception", "no other exception", log=with_(raised(0, signatures=("log_gpu_memory_full",)))),
    well("log_exception", "no other exception", log=with_(raised(0, type="KeyboardInterrupt", message=""))),
    well("log_exception", "no other exception", log=with_(raised(0, **BROKEN))),
    fails("log_communication_broke", "raised DistBackendError on ranks 0, 1 and 3",
        "the rank without a connection error",
        log=with_(raised(0, 1, 3, **BROKEN))),
    fails("log_communication_broke", "Connection closed by peer", "mgpu smoke-test",
        log=with_(raised(0, type="RuntimeError", message="[gloo/pair.cc:553] Connection closed by peer [::1]"))),
    well("log_communication_broke", "no other connection error", log=with_(raised(0))),
    fails("log_settings_rejected", "DeepSpeed rejects its config: fp16 and bf16 cannot both be on",
        "Change the keys that the message names",
        log=with_(raised(0, 1, message="fp16 and bf16 cannot both be on", packages=("", "deepspeed"),
                         raised_in="deepspeed/runtime/config.py in _do_error_check"))),
    fails("log_settings_rejected", "trl rejects the settings that the run gives it: packing needs a length",
        "Change the setting that the message names",
        log=with_(raised(0, message="packing needs a length", packages=("", "trl"),
                         raised_in="trl/trainer/sft_config.py in __post_init__"))),
    well("log_settings_rejected", "no settings were rejected in 60 lines"),
    well("log_settings_rejected", "no settings were rejected",  # the script's own check
        log=with_(raised(0, message="bad batch size given", packages=("",), raised_in="config.py in __post_init__"))),
    well("log_settings_rejected", "no settings were rejected",  # one word says nothing
        log=with_(raised(0, message="bad", packages=("", "trl"), raised_in="trl/x_config.py in __post_init__"))),
    fails("log_package_wanted", "a package that this run needs is not installed: DeepEP is not installed.", "turn off",
        log=with_(raised(0, type="ImportError", message="DeepEP is not installed.", packages=("", "megatron"),
                         raised_in="megatron/core/transformer/moe/fused_a2a.py in fused_dispatch"))),
    fails("log_package_wanted", "a package that this run needs is not installed: Please",
        "python -m pip install --upgrade scikit-learn 'joblib>=1.2'",
        log=with_(raised(0, type="ImportError", packages=("", "trl"), raised_in="trl/trainer/utils.py in f",
                         message="Please install them with `pip install -U scikit-learn 'joblib>=1.2'` first."))),
    well("log_package_wanted", "no such message in 60 lines"),
    fails("log_environment_variable_missing", "the environment variable DATA_ROOT is not set", "export DATA_ROOT=VALUE",
        log=with_(raised(0, type="KeyError", message="'DATA_ROOT'", packages=("",), raised_in="os.environ"))),
    well("log_environment_variable_missing", "no environment variable",
        log=with_(raised(0, type="KeyError", message="'label'", packages=("",), raised_in="data.py in __getitem__"))),
    fails("log_recomputed_other_shape", "[1, 3939] in the forward pass, [1, 7878] in the recomputation",
        "Run backward() inside the same context", log=with_(RECOMPUTED, seen=shapes("1, 3939", "1, 7878"))),
    fails("log_recomputed_other_shape", "[99, 8] in the forward pass, [98, 8] in the recomputation",
        "Do not checkpoint the router", log=with_(RECOMPUTED, seen=shapes("99, 8", "98, 8"))),
    well("log_recomputed_other_shape", "no such shapes", log=with_(RECOMPUTED, seen=shapes("64, 64", "64, 64"))),
    well("log_recomputed_other_shape", "no such shapes in 60 lines"),
    fails("log_packages_do_not_fit", "the installed apex and megatron-core probably do not fit: TypeError", "pip show",
        log=with_(raised(0, **SKEW, packages=("", "megatron", "torch", "apex")))),
    fails("log_packages_do_not_fit", "diffusers does not fit its caller", "pip show diffusers",
        log=with_(raised(0, **SKEW, packages=("", "diffusers")))),
    well("log_packages_do_not_fit", "no such exception", log=with_(raised(0, **SKEW, packages=("torch", "")))),
    well("log_packages_do_not_fit", "no such exception", log=with_(raised(0, **SKEW))),
    well("log_packages_do_not_fit", "no such exception",
        log=with_(raised(0, type="AttributeError", message="'NoneType' object has no attribute 'x'",
            packages=("peft",)))),
    well("log_packages_do_not_fit", "no such exception",
        log=with_(raised(0, **SKEW, packages=("apex",), signatures=("log_argument_not_accepted",)))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


def test_the_rank_that_does_not_complain_is_named() -> None:
    found = Case("log_communication_broke", "fail", "", changes={"log": with_(raised(0, 1, 3, **BROKEN))}).answer()
    assert found.problem is not None and "Rank 2 reports no such error" in found.problem.cause


def test_what_began_a_chain_is_told() -> None:
    chained = with_(raised(0, cause="KeyError: 'x'"))
    found = Case("log_exception", "fail", "", changes={"log": chained}).answer()
    assert found.problem is not None and found.problem.cause.endswith("The first exception was KeyError: 'x'.")


@pytest.mark.parametrize(
    ("others", "only"),
    [((), True), ((raised(2, message="no key"),), True), ((raised(2, place="data.py:7"),), False),
     ((raised(place="data.py:7"),), False)],
)  # fmt: skip
def test_only_this_rank_raised_it_is_said_if_no_other_one_did(others: Any, only: bool) -> None:
    found = Case("log_exception", "fail", "", changes={"log": with_(raised(1), *others)}).answer()
    assert found.problem is not None and ("Only this rank" in found.problem.cause) == only
