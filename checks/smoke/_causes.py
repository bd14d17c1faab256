"""Which checks name the cause of the errors that the ranks of a failed run report?"""

from __future__ import annotations

from ._diagnoses import DIAGNOSES

# Kind of a failure, as the rank reports it (journal.Failure) -> the check that names its cause.
KINDS: dict[str, str] = {
    "exited": "rank_exited",
    # start, group
    "port_taken": "meeting_port_taken",
    "ranks_missing": "ranks_never_came",
    "interface_missing": "rank_interface_missing",
    "wrong_layout": "ranks_laid_out_otherwise",
    "master_unreachable": "meeting_point_unreachable",
    "advertises_loopback": "host_advertises_loopback",
    "name_unresolvable": "host_advertises_loopback",
    "data_port_blocked": "host_port_blocked",
    # device
    "no_gpu": "rank_without_gpu",
    "no_gpu_for_rank": "rank_without_gpu",
    "not_finite": "rank_computes_not_finite",
    "unsteady_bits": "rank_computes_unsteadily",
    "memory_altered": "gpu_memory_altered",
    "cuda_error": "gpu_error_in_rank",
    "out_of_memory": "rank_out_of_memory",
    # collectives, pairs
    "wrong_numbers": "collective_gives_wrong_numbers",
    "pair_wrong_numbers": "pair_gives_wrong_numbers",
    # train
    "own_gradients_wrong": "rank_computes_wrong_gradients",
    "parameters_not_synchronised": "parameters_not_synchronised",
    "gradients_differ": "gradients_not_averaged",
    "not_sharded": "parameters_not_sharded",
    "loss_did_not_fall": "loss_does_not_fall",
    "accumulation_wrong": "gradient_accumulation_wrong",
    "unused_not_reported": "unused_parameters_not_reported",
    "batch_norm_not_synchronised": "batch_norm_not_synchronised",
    "strategy_not_applied": "strategy_not_applied",
    "prepared_differs": "accelerate_trains_otherwise",
    "shm_too_small": "loader_out_of_shared_memory",
    "loader_failed": "loader_worker_failed",
    # checkpoint
    "checkpoint_not_writable": "checkpoint_not_writable",
    "saved_on_every_rank": "checkpoint_saved_by_several_ranks",
    "checkpoint_altered": "checkpoint_comes_back_altered",
}
# Checks that explain why ranks fail, wait or exit: those of a kind, the diagnoses, and failures of an earlier rank.
CAUSES = (
    *DIAGNOSES,
    *dict.fromkeys(KINDS.values()),
    "precision_not_applied",
    "model_differs_on_rank",
    "machines_never_came",
    "peer_disappeared",
)
# A rank trains with another setting than the config's: its numbers differ.
SETTINGS = ("strategy_not_applied", "precision_not_applied", "gradient_accumulation_wrong")
# A rank is missing: the others fail, or wait for it.
LOST = ("launcher_killed", "rank_frozen", "rank_killed", "rank_exited")
