"""Which launcher sets a variable that a script reads, and what to read under another one?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

# By how the variable begins: who sets it, and how to start under that launcher or read the variables of another one.
# fmt: off
_OF_OTHERS = (
    (("SLURM_",), "srun", "Slurm's srun sets it for every task.",
     Fix("Start it with srun, or read torchrun's RANK, LOCAL_RANK and WORLD_SIZE.", ("srun python train.py",))),
    (("OMPI_", "MV2_", "PMI", "MPI_"), "mpirun", "mpirun sets it for every process.",
     Fix("Start it with mpirun, or read torchrun's RANK, LOCAL_RANK and WORLD_SIZE.",
         ("mpirun -np 8 python train.py",))),
    (("CROSS_", "LOCAL_SIZE"), "the deepspeed launcher", "Only DeepSpeed's own launcher sets it.",
     Fix("Start it with deepspeed, or read torchrun's GROUP_RANK (for CROSS_RANK) and LOCAL_WORLD_SIZE (for "
         "LOCAL_SIZE).",
         ("deepspeed train.py",))),
    (("GROUP_RANK", "LOCAL_WORLD_SIZE"), "torchrun", "Only torchrun and accelerate set it.",
     Fix("Start it with torchrun, or read deepspeed's CROSS_RANK (for GROUP_RANK) and LOCAL_SIZE (for "
         "LOCAL_WORLD_SIZE).", ("torchrun --nproc-per-node=8 train.py",))),
)
# fmt: on


def explain_variable(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a variable that only some launchers set; None for those that every launcher sets."""
    name = groups["variable"]
    if name == "NODE_RANK":
        return Meaning(
            "NODE_RANK is not set: torchrun, accelerate and deepspeed do not set it",
            "The script reads it. Job scripts and some platforms set it by hand, as an argument of the launcher.",
            (
                Fix("Set it on each node.", ("export NODE_RANK=$SLURM_NODEID  # 0 on the first node",)),
                Fix("Or read torchrun's own variable.", ("int(os.environ['GROUP_RANK'])",)),
            ),
        )
    for beginnings, launcher, why, fix in _OF_OTHERS:
        if name.startswith(beginnings):
            return Meaning(f"the script expects to be started by {launcher}: {name} is not set", why, (fix,))
    return None
