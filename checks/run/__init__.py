"""How did a launched run end, and what was the cause? Uses exit codes, the kernel and Slurm; `log` reads the logs.

* signals: which signal killed a rank?
* disks: was a file system full?
* exits: which exit code did a rank or the launcher return, and did a GPU fail during the run?
* stops: was the run stopped, did a rank exit before the others, and were processes left over?
* exchange: did the ranks send each other anything?
* finite: is a loss or a gradient norm NaN or infinite?
* pace: does one rank keep the others waiting in most steps?
* _ended_ranks: the ranks that failed on their own, and their names.
"""

from mgpu.check import Family

ORDER = ("signals", "disks", "exits", "stops", "exchange", "finite", "pace")
FAMILY = Family(of_a_run=True)
