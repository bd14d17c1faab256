"""Did the ranks train together, and if not, which rank is the cause?

* diagnosis: which single change makes a failed stage work?
* processes: did every rank run to completion?
* hangs: if the ranks wait forever, which one do they wait for?
* launcher: did the launcher work?
* group: do the ranks form the world that the config requires?
* hosts: can the nodes connect, and do all of them stay in the run?
* device: does every GPU compute, and do all of them get the same results?
* pace: do all ranks compute at the same speed?
* collectives: does the data that ranks send each other arrive unchanged?
* settings: do the ranks train with the strategy, precision and accumulation of the config?
* training: do the ranks train one model, with the same result as a single process?
* data: does every rank get its own samples, each one once?
* checkpoint: is the model saved once, where every rank can load it?
* bandwidth: do the GPUs communicate as fast as their links allow, and as fast as before?
* aftermath: did the run leave anything behind?
* nccl_log: does NCCL use the machine's hardware?
* _causes: the checks that name the cause of a rank's failure.
* _diagnoses: the checks that name the cause found by the search.
* _trials: which change made the failed stage work, and where the run had failed.
* _stack_dumps: where a rank is, according to the stack it dumped.
* _rank_states: descriptions of ranks, the stage they reached, and the ranks that failed first.
"""

from mgpu.check import Family

# fmt: off
ORDER = (
    "diagnosis", "processes", "hangs", "launcher", "group", "hosts", "device", "pace", "collectives", "settings",
    "training", "data", "bandwidth", "checkpoint", "aftermath", "nccl_log",
)
# fmt: on
FAMILY = Family(of_a_run=True)
