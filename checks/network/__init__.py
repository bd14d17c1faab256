"""Can the ranks find each other, and over which interface will they talk?

* names: what do this machine's name and localhost mean here?
* port: is the port free at which the ranks shall meet?
* master: do the ranks of several machines look for each other at the right address?
* pdsh: can DeepSpeed start ranks on the other machines?
* named_interface: does the interface that is prescribed exist, work, and lead there?
* chosen_interface: which interface would NCCL choose when none is prescribed?
* interfaces: does one lead out of this machine, and how well does it carry?
"""

ORDER = ("names", "port", "master", "pdsh", "named_interface", "chosen_interface", "interfaces")
