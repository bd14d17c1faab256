"""Are the nodes alike, all there, and able to reach each other?

* nodes: did every node answer, is it fit by itself, and are there several kinds of them?
* software, hardware, limits: in what do some of them differ from the others?
* times: do the clocks agree, and is one slower or hotter than the others?
* names, network: can they reach each other?
"""

ORDER = ("nodes", "software", "hardware", "limits", "times", "names", "network")
