"""Why does a running job make no progress? Reads what each rank does (`Hang`).

* absent: a rank that has ended, is stopped, or has left the training
* elsewhere: a rank that is somewhere else than in the collective that the others wait in
* collectives: all ranks wait, but not in the same collective; or in the same one, which does not finish
* _ras: what NCCL's RAS adds
* _verdict: which of these it is, and which ranks are the suspects
"""

from mgpu.check import Family

ORDER = ("absent", "elsewhere", "collectives")
FAMILY = Family(of_a_run=True)
