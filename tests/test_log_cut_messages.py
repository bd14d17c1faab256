"""Logs that end in the middle of an exception's message, or just before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

MAIN = (SCRIPT, "main", "run()")
GLOO = ("torch/distributed/distributed_c10d.py", "_new_process_group_helper", "backend_class = ProcessGroupGloo(")
STORE = ("torch/distributed/rendezvous.py", "_create_c10d_store", "return TCPStore(hostname, port, world_size)")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("RuntimeError: Gloo connectFullMesh fai", "log_gloo_mesh_failed"),
        ("RuntimeError: Gloo connectFullMesh", "log_gloo_mesh_failed"),
        ("RuntimeError: CUDA error: an illegal memory ac", "log_illegal_memory_access"),
        ("RuntimeError: CUDA error: no kernel im", "log_gpu_without_kernels"),
        ("RuntimeError: CUDA error: device-side assert trigg", "log_index_out_of_range"),
        ("ValueError: Attempting to unscale FP16 gr", "log_fp16_gradients_unscaled"),
        ("RuntimeError: Expected to have finished reduct", "log_parameters_unused"),
        ("ImportError: DeepSpeed is not insta", "log_deepspeed_missing"),
    ],
)
def test_a_message_that_ends_within_a_word(error: str, found: str, tmp_path: Path) -> None:
    assert explained(tmp_path, f"{frames(MAIN)}{error}")[0] == found


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: CUDA err",  # many begin so
        "ValueError: my gradients are uns",  # no row's sample begins so
        "RuntimeError: an illegal memory ac",  # the beginning is missing, too
        "RuntimeError: CUDA error: an illegal memory ac\nstep 4 of 9",  # not the end of the log
    ],
)
def test_what_is_left_is_not_enough(error: str, tmp_path: Path) -> None:
    assert explained(tmp_path, f"{frames(MAIN)}{error}\n")[0] == "log_exception"


@pytest.mark.parametrize(
    ("calls", "error", "title", "there"),
    [
        ((MAIN, GLOO), "RuntimeError: Gloo con", "a process group of gloo could not be set up", "GLOO_SOCKET_IFNAME"),
        ((MAIN, STORE), "torch.distributed.DistSt", "the store of the rendezvous (TCPStore) could not be created",
         "ss -ltnp"),
        ((MAIN, GLOO), "", "a traceback without its exception: the last frame in the log is", "GLOO_SOCKET_IFNAME"),
        ((MAIN, STORE), "", "a traceback without its exception", "ss -ltnp 'sport = :29500'"),
        # The same name in a script's own file; another line of torch.
        ((MAIN, ("/home/ada/groups.py", "start", "group = ProcessGroupGloo(store, 0, 2)")), "RuntimeError: bad",
         "groups.py:7 in start raised", "call path"),
        ((MAIN, (GLOO[0], GLOO[1], "backend_class = creator_fn(args)")), "", "a traceback without", "Read the lines"),
    ],
)  # fmt: skip
def test_the_line_that_starts_a_group(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, there: str, tmp_path: Path
) -> None:
    _, said, rest = explained(tmp_path, f"{frames(*calls)}{error}")
    assert said.startswith(title), said
    assert there in rest, rest
