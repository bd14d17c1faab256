"""Which checks name the cause found by the search after a failure?"""

from __future__ import annotations

# Any of these explains the failures of ranks: checks on the ranks name them in `because_of`.
DIAGNOSES = (
    "variable_breaks_run",
    "p2p_between_gpus_fails",
    "shared_memory_transport_fails",
    "infiniband_transport_fails",
    "nvls_fails",
    "wrong_interface",
    "nccl_fails_gloo_works",
    "gpu_pair_fails",
    "strategy_fails_ddp_works",
    "precision_fails",
    "checkpoint_folder_fails",
)
