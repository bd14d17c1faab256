"""Do all nodes answer, are they equal, and can they reach each other?

* ssh, ssh_login: is every host of --hosts reached, and is the project there?
* hosts: is such a host ready for ranks: its folder, its addresses, what an earlier run left?
* nodes: did every node answer, is each one healthy, and are there several kinds of nodes?
* software, hardware, limits: how do some nodes differ from the others?
* times: do the clocks agree, and is a node slower or hotter than the others?
* names, network: can the nodes reach each other?
"""

ORDER = ("ssh", "ssh_login", "hosts", "nodes", "software", "hardware", "limits", "times", "names", "network")
