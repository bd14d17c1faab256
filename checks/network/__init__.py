"""Can the ranks find each other, and over which interface will they communicate?

* names: do this machine's name and localhost resolve to this machine?
* port: is the rendezvous port free?
* master: is the rendezvous address of a multi-node run right?
* pdsh: can DeepSpeed start ranks on the other nodes?
* named_interface: does the interface set by a variable exist, work, and reach the other nodes?
* chosen_interface: which interface would NCCL choose if none is set?
* interfaces: does an interface lead out of this machine, and how fast is it?
"""

ORDER = ("names", "port", "master", "pdsh", "named_interface", "chosen_interface", "interfaces")
