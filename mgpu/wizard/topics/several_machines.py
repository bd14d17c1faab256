"""How many machines does the run use, and what is their rendezvous endpoint?"""

from __future__ import annotations

from typing import Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import host_of, port_of, whole

# fmt: off
NODES: Final = Decision("nodes", "machines", "N", "Machines of the run.", whole(1, 100_000),
    walk="guided", probed=True, in_config=True, together=("address", "port"),
    text="How many machines?",
    info="1 is this machine. For 2 or more, the same command is started on each by hand: mgpu prints them.\n"
         "All machines need the same number of GPUs, the same Python environment and a network between them.\n"
         "Your own rank is left to the command line, so one file serves them all.")
DECISIONS: Final = (
    NODES,
    Decision("address", "machines", "HOST", "Of the first machine, as the others reach it.", host_of,
        walk="quick", in_config=True, row="nodes",
        applies=lambda case: case.proposal.nodes > 1,
        text="Address of the first machine?",
        info="The host name or address at which the other machines reach the first one (rank 0).\n"
             "Never localhost or 127.0.0.1: each machine would then wait for itself.\n"
             "Take the address of the fast network when there are several (hostname -I lists them).",
        hint="Like node1 or 10.0.0.1: as the other machines reach it."),
    Decision("port", "host", "N", "Of the rendezvous; auto = a free one each time.", port_of,
        walk="guided", probed=True, in_config=True,
        applies=lambda case: case.proposal.ranks > 1 or case.proposal.nodes > 1,
        text="Port at which the processes meet?",
        info="On one machine a free port is picked at every launch: two runs never collide.\n"
             "Several machines must agree on it beforehand, so there it is fixed; 29500 is torch's own default.\n"
             "Change it when a firewall allows only some ports, or when another run uses this one."),
)
# fmt: on
