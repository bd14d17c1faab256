"""How are the CPUs shared among the ranks?"""

from __future__ import annotations

from typing import Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import whole_number, yes_no

_MOST_CPUS: Final = 4_096  # threads or workers per rank


# fmt: off
DECISIONS: Final = (
    Decision("threads", "host", "N", "CPU threads per rank (OMP_NUM_THREADS).", whole_number(1, _MOST_CPUS),
        walk="guided", probed=True, in_config=True, together=("workers",),
        text="CPU threads per {unit}?",
        info="Number of threads each rank uses for CPU work (OMP_NUM_THREADS). The launcher's own default is 1.\n"
             "A small number is right: the GPUs do the work, and ranks x threads should not exceed the CPU cores.\n"
             "Raise it for heavy CPU transforms in the main process."),
    Decision("workers", "host", "N", "DataLoader workers per rank.", whole_number(0, _MOST_CPUS),
        walk="guided", probed=True, row="threads",
        text="DataLoader workers per {unit}?",
        info="num_workers of your DataLoader: processes that load and prepare batches, per rank.\n"
             "2 to 8 are usual; each uses memory. Raise it if the GPUs wait for data, lower it if RAM is short.\n"
             "accelerate does not store it: mgpu prints a note for your script and uses it for the thread count."),
    Decision("numa", "host", "", "Bind each rank to the CPUs near its GPU.", yes_no,
        walk="guided", menu=True, probed=True, in_config=True,
        applies=lambda case: not case.proposal.cpu and len(case.able) > 1,
        text="Bind each process to the CPUs near its GPU?",
        info="On machines with several NUMA nodes, memory and PCIe devices of the other socket are slower to reach.\n"
             "mgpu launch adds --enable_cpu_affinity, because accelerate ignores the key of that name in the file.\n"
             "Leave it off in containers that hide the topology, or if your scheduler already binds processes."),
)
# fmt: on
