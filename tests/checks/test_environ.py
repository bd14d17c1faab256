"""checks/environ.py"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.facts import Case, fails, informs, nccl, skips, table, warns, well


def in_file(*lines: str) -> dict[str, Any]:
    return {"nccl": nccl(config_files={"/etc/nccl.conf": lines})}


CASES = (
    # nccl_transport_disabled
    warns("nccl_transport_disabled", "NCCL_P2P_DISABLE=1", "unset NCCL_P2P_DISABLE", env={"NCCL_P2P_DISABLE": "1"}),
    warns("nccl_transport_disabled", "NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1", "unset NCCL_IB_DISABLE",
        env={"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": " 1 "}),
    warns("nccl_transport_disabled", "NCCL_SHM_DISABLE=1", "remove the line from /etc/nccl.conf",
        **in_file("NCCL_SHM_DISABLE = 1")),
    well("nccl_transport_disabled", "no transport is switched off"),
    well("nccl_transport_disabled", "no transport", env={"NCCL_P2P_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "1"}),
    # the environment wins
    well("nccl_transport_disabled", "no transport",
        env={"NCCL_SHM_DISABLE": "0"}, **in_file("NCCL_SHM_DISABLE=1")),
    # nccl_variable_without_effect
    informs("nccl_variable_without_effect", "NCCL_TIMEOUT is read by nothing", "unset NCCL_TIMEOUT",
        env={"NCCL_TIMEOUT": "1800"}),
    informs("nccl_variable_without_effect", "NCCL_TIMEOUT, NCCL_LL_THRESHOLD are read by nothing", "unset",
        env={"NCCL_TIMEOUT": "1", "NCCL_LL_THRESHOLD": "0"}),
    informs("nccl_variable_without_effect", "NCCL_TREE_THRESHOLD", "remove the line from /etc/nccl.conf",
        **in_file("NCCL_TREE_THRESHOLD=0")),
    well("nccl_variable_without_effect", "1 NCCL variables set, none of them dead",
        env={"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8"}),
    # nccl_debug_leftover
    *(
        warns("nccl_debug_leftover", f"{name}={value}", f"unset {name}", env={name: value})
        for name, value in (
            ("NCCL_DEBUG", "TRACE"),
            ("NCCL_DEBUG", "trace"),
            ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
            ("TORCH_NCCL_DESYNC_DEBUG", "true"),
        )
    ),
    well("nccl_debug_leftover", "no debugging mode",
        env={"NCCL_DEBUG": "INFO", "TORCH_DISTRIBUTED_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "0"}),
    warns("nccl_debug_leftover", "NCCL_DEBUG=TRACE", "/etc/nccl.conf",
        **in_file("NCCL_DEBUG=TRACE")),
    # nccl_errors_not_raised
    warns("nccl_errors_not_raised", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "unset TORCH_NCCL_ASYNC_ERROR_HANDLING",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    warns("nccl_errors_not_raised", "NCCL_ASYNC_ERROR_HANDLING=0", "unset", env={"NCCL_ASYNC_ERROR_HANDLING": "0"}),
    warns("nccl_errors_not_raised", "TORCH_NCCL_ENABLE_MONITORING=False", "unset",
        env={"TORCH_NCCL_ENABLE_MONITORING": "False"}),
    well("nccl_errors_not_raised", "end the run",
        env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "TORCH_NCCL_ENABLE_MONITORING": "1"}),
    well("nccl_errors_not_raised", "end the run"),
    # torch_boolean_unreadable
    fails("torch_boolean_unreadable", "TORCH_NCCL_BLOCKING_WAIT='on'", "unset TORCH_NCCL_BLOCKING_WAIT",
        env={"TORCH_NCCL_BLOCKING_WAIT": "on"}),
    fails("torch_boolean_unreadable", "TORCH_NCCL_ENABLE_TIMING='2'", "Use 1 or 0",
        env={"TORCH_NCCL_ENABLE_TIMING": "2"}),
    fails("torch_boolean_unreadable", "TORCH_NCCL_NAN_CHECK=''", "Use 1 or 0", env={"TORCH_NCCL_NAN_CHECK": ""}),
    *(
        well("torch_boolean_unreadable", "can be read",
            env={"TORCH_NCCL_BLOCKING_WAIT": word})
        for word in ("1", "0", "Yes", "TRUE", "n", "f")
    ),
    # omp_threads_not_a_number
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS='4,2'", "unset OMP_NUM_THREADS", env={"OMP_NUM_THREADS": "4,2"}),
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS='0'", "unset", env={"OMP_NUM_THREADS": "0"}),
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS=''", "unset", env={"OMP_NUM_THREADS": ""}),
    fails("omp_threads_not_a_number", "OMP_NUM_THREADS='²'", "unset",
        env={"OMP_NUM_THREADS": "²"}),
    well("omp_threads_not_a_number", "OMP_NUM_THREADS=1", env={"OMP_NUM_THREADS": "1"}),
    well("omp_threads_not_a_number", "OMP_NUM_THREADS= 8 ", env={"OMP_NUM_THREADS": " 8 "}),
    skips("omp_threads_not_a_number", "not set"),
    # launcher_variables_left
    warns("launcher_variables_left", "RANK=0, WORLD_SIZE=8", "unset RANK WORLD_SIZE",
        env={"WORLD_SIZE": "8", "RANK": "0"}),
    warns("launcher_variables_left", "MASTER_ADDR=10.0.0.1", "unset MASTER_ADDR", env={"MASTER_ADDR": "10.0.0.1"}),
    well("launcher_variables_left", "no rank variables", env={"NCCL_DEBUG": "INFO"}),
    *(
        skips("launcher_variables_left", "a launcher started this shell",
            env={"RANK": "0", name: "0"})
        for name in ("SLURM_PROCID", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    ),
    # torchrun_variables_left
    fails("torchrun_variables_left", "PET_NNODES=2", "unset PET_NNODES", env={"PET_NNODES": "2"}),
    fails("torchrun_variables_left", "PET_NNODES=2, PET_MASTER_PORT=29500", "unset PET_NNODES PET_MASTER_PORT",
        env={"PET_NNODES": "2", "PET_MASTER_PORT": "29500"}),
    well("torchrun_variables_left", "no PET_ variable", env={"PET_LOG_DIR": "/tmp"}),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
