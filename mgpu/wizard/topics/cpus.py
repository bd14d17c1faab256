"""How are the CPUs shared among the ranks?"""

from __future__ import annotations

from typing import Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import whole, yes_no

_MOST_CPUS: Final = 4_096  # threads or workers of one rank


# fmt: off
DECISIONS: Final = (
    Decision("threads", "host", "N", "CPU threads per rank (OMP_NUM_THREADS).", whole(1, _MOST_CPUS),
        walk="guided", probed=True, in_config=True, together=("workers",),
        text="CPU threads per process?",
        info="How many threads each rank uses for CPU arithmetic (OMP_NUM_THREADS). The launcher's own default is 1.\n"
             "A small number is right: the GPUs do the work, and ranks x threads must not exceed the cores.\n"
             "Raise it for heavy CPU transforms in the main process."),
    Decision("workers", "host", "N", "DataLoader workers per rank.", whole(0, _MOST_CPUS),
        walk="guided", probed=True, row="threads",
        text="Data-loader workers per process?",
        info="num_workers of your DataLoader: processes that read and prepare batches, for each rank.\n"
             "2 to 8 are usual; each costs memory. Raise it when the GPUs wait for data, lower it when RAM is short.\n"
             "accelerate does not store it: it is noted for your script, and used for the thread count."),
    Decision("numa", "host", "", "Bind each rank to the CPUs near its GPU.", yes_no,
        walk="guided", menu=True, probed=True, in_config=True,
        applies=lambda case: not case.proposal.cpu and len(case.able) > 1,
        text="Bind each process to the CPUs near its GPU?",
        info="On machines with several NUMA nodes, memory and PCIe of the other socket are slower to reach.\n"
             "mgpu launch adds --enable_cpu_affinity: the key of this name in the file is never applied.\n"
             "Leave it off inside containers that hide the topology, or when your scheduler binds already."),
)
# fmt: on
