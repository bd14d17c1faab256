"""Did the ranks train together, and if not, which of them is why?

* processes: did every rank run to its end?
* group: do the ranks form the world that the config asks for?
* device: does every GPU compute, and all of them the same?
* training: do the ranks train one model?
* aftermath: is anything left of the run?
* _ranks: who a rank is, where it stands, which ranks failed by themselves.
"""

ORDER = ("processes", "group", "device", "training", "aftermath")
