"""Did the ranks train together, and if not, which of them is why?

* diagnosis: which one change makes a failed rung work?
* processes: did every rank run to its end?
* launcher: did the launcher do its part?
* group: do the ranks form the world that the config asks for?
* hosts: do the machines find each other, and does none of them fall away?
* device: does every GPU compute, and all of them the same?
* pace: do all ranks compute at one pace?
* collectives: does what the ranks send each other arrive as it was sent?
* training: do the ranks train one model, and the same that one process would?
* data: does every rank get its own samples, each once?
* checkpoint: is what was trained saved, once, where every rank can load it?
* bandwidth: do the GPUs talk as fast as their links allow, and as fast as before?
* aftermath: is anything left of the run?
* nccl_log: does NCCL use what the machine has?
* _causes: which checks tell the cause of what the ranks say.
* _diagnoses: which checks name what the search has found.
* _trials: what made the failed rung work, and where it had failed.
* _rank_states: who a rank is, where it stands, which ranks failed by themselves.
"""

from mgpu.check import Family

# fmt: off
ORDER = (
    "diagnosis", "processes", "launcher", "group", "hosts", "device", "pace", "collectives", "training", "data",
    "bandwidth", "checkpoint", "aftermath", "nccl_log",
)
# fmt: on
FAMILY = Family(of_a_run=True)
