"""Who has fewer GPUs than the settings request: this process, its node, or the Ray cluster that it joined?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

RAISE = 'raise ValueError(f"Not enough GPUs")'
ERROR = "ValueError: Not enough GPUs. Requested {} GPUs, but only {} are available{}.\n"
OWN = ((SCRIPT, "main", "check_gpus(config)"), ("/home/ada/gpus.py", "check_gpus", RAISE))
IN_RAY = ((SCRIPT, "main", "workers = RayWorkers(config)"), ("/home/ada/pool.py", "_make_placement_groups", RAISE))


@pytest.mark.parametrize(
    ("calls", "error", "title", "there", "absent"),
    [
        (IN_RAY, ERROR.format(16, 8, " in the cluster"), "the settings request 16 GPUs, and the Ray cluster has 8 "
         "(pool.py:7 in _make_placement_groups)", "ray start --address=HEAD:6379", "--gres=gpu"),
        (IN_RAY, ERROR.format(16, 8, ""), "the settings request 16 GPUs, and the Ray cluster has 8", "ray status",
         "nvidia-smi -L"),
        (IN_RAY, ERROR.format(16, 8, ""), "the settings request 16 GPUs", "--nodes=2 --gpus-per-node=8", "--gres=gpu"),
        (IN_RAY, ERROR.format(4, 2, ""), "the settings request 4 GPUs", "sbatch --gres=gpu:4", "--nodes"),
        (IN_RAY, ERROR.format(12, 8, ""), "the settings request 12 GPUs", "request more nodes", "sbatch"),
        (OWN, ERROR.format(16, 8, " in the cluster"), "the settings request 16 GPUs, and the cluster has 8",
         "ray status", "--gres=gpu"),
        # Neither the message nor a frame is about a cluster.
        (OWN, ERROR.format(16, 8, ""), "the script's settings request 16 GPUs, and this process sees 8",
         "--nodes=2 --gpus-per-node=8", "ray "),
        (OWN, ERROR.format(4, 2, ""), "the script's settings request 4 GPUs, and this process sees 2",
         "sbatch --gres=gpu:4", "ray "),
    ],
)  # fmt: skip
def test_whose_gpus_are_too_few(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, there: str, absent: str, tmp_path: Path
) -> None:
    _, said, rest = explained(tmp_path, f"{frames(*calls)}{error}")
    assert said.startswith(title), said
    assert there in rest
    assert absent not in rest
