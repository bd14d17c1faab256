"""How did a launched training end, and what does that say of the cause? By exit codes, the kernel and Slurm; what the
log says is in `log`.

* signals: which signal ended a rank?
* exits: which exit code did a rank or the launcher end with, and did a GPU fail meanwhile?
* stops: was the run stopped, did a rank leave before the others, and did processes outlive it?
* _ended_ranks: the ranks that fell by themselves, and their names.
"""

from mgpu.check import Family

ORDER = ("signals", "exits", "stops")
FAMILY = Family(of_a_run=True)
