"""Does the user's own script train on all ranks together? What its ranks did in their first optimizer steps.

* course: did the script run, and do all ranks make the same steps?
* ranks: are the ranks one training run, and do they call the same collectives?
* model: do all ranks have the same parameters and gradients?
* batches: does every rank get its own data?
* losses: are the losses numbers, and close to each other?
* output: does each file have one writer, and can a checkpoint be read?
* _rehearsed: descriptions of ranks and places, and which of them can be compared.
"""

from mgpu.check import Family

ORDER = ("course", "ranks", "model", "batches", "losses", "output")
FAMILY = Family(of_a_run=True)
