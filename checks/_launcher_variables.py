"""Which launcher sets a variable that a script reads, and what to read under another one?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

# By how the variable begins: who sets it, how to start under that launcher, and what other launchers call it.
# fmt: off
_OF_OTHERS = (
    (("SLURM_",), "srun", "Slurm's srun sets it for every task.",
     ("srun python train.py", "torchrun: RANK, LOCAL_RANK, WORLD_SIZE")),
    (("OMPI_", "MV2_", "PMI", "MPI_"), "mpirun", "mpirun sets it for every process.",
     ("mpirun -np 8 python train.py", "torchrun: RANK, LOCAL_RANK, WORLD_SIZE")),
    (("CROSS_", "LOCAL_SIZE"), "the deepspeed launcher", "Only DeepSpeed's own launcher sets it.",
     ("deepspeed train.py", "torchrun: GROUP_RANK instead of CROSS_RANK, LOCAL_WORLD_SIZE instead of LOCAL_SIZE")),
    (("GROUP_RANK", "LOCAL_WORLD_SIZE"), "torchrun", "Only torchrun and accelerate set it.",
     ("torchrun --nproc-per-node=8 train.py", "deepspeed: CROSS_RANK instead of GROUP_RANK, LOCAL_SIZE instead of "
      "LOCAL_WORLD_SIZE")),
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
    for beginnings, launcher, why, commands in _OF_OTHERS:
        if name.startswith(beginnings):
            return Meaning(
                f"the script expects to be started by {launcher}: {name} is not set",
                why,
                (Fix(f"Start it with {launcher}, or read the variables of your launcher.", commands),),
            )
    return None
