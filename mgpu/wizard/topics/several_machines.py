"""How many nodes does the run use, and what is their rendezvous endpoint?"""

from __future__ import annotations

from typing import Final

from mgpu.wizard.decision import Decision
from mgpu.wizard.value_readers import host_of, hosts_of, port_of, python_of, whole_number

# fmt: off
NODES: Final = Decision("nodes", "machines", "N", "Number of nodes.", whole_number(1, 100_000),
    walk="guided", probed=True, in_config=True,
    applies=lambda case: not case.answers.hosts,
    text="How many nodes?",
    info="1 is this machine. With 2 or more, you start the run on each node by hand: mgpu prints the commands.\n"
         "All nodes need the same number of GPUs, the same Python environment and a network between them.\n"
         "The node rank is passed on the command line, so all nodes share one file.")
HOSTS: Final = Decision("hosts", "machines", "HOSTS",
    "Machines reached with ssh, all with one config: a,b or n[1-8] or a file.", hosts_of,
    walk="guided", skips=True, row="nodes", together=("nodes", "address", "port"),
    applies=lambda case: not case.proposal.engine,
    text="Which machines, over ssh?",
    info="Two or more machines that you reach with ssh, this one among them: mgpu examines them, tests them together\n"
         "and starts the run on all of them from here. ssh must not ask for a password.\n"
         "Leave it empty for this machine alone, or to start the run on each node by hand.",
    hint="For example a,b or node[1-4] or hosts.txt; empty: only this machine.")
DECISIONS: Final = (
    HOSTS,
    Decision("hosts_python", "machines", "PATH", "Their Python, if not at the same path as here: PATH or HOST=PATH,...",
        python_of, row="nodes"),
    NODES,
    Decision("address", "machines", "HOST", "Address of the first node, reachable by the others.", host_of,
        walk="quick", in_config=True, row="nodes",
        applies=lambda case: case.proposal.nodes > 1 and case.answers.origins.get("address") != "probe",
        text="Address of the first node?",
        info="The host name or address at which the other nodes reach the first one (rank 0).\n"
             "Never localhost or 127.0.0.1: each node would then wait for itself.\n"
             "With several networks, use the address on the fastest (hostname -I lists the addresses).",
        hint="For example node1 or 10.0.0.1, reachable from the other nodes."),
    Decision("port", "host", "N", "Rendezvous port; auto = a free one at each launch.", port_of,
        walk="guided", probed=True, in_config=True,
        applies=lambda case: case.proposal.ranks > 1 or case.proposal.nodes > 1,
        text="Rendezvous port?",
        info="On one machine, every launch picks a free port, so two runs never collide.\n"
             "Several nodes must agree on a port beforehand, so there it is fixed; 29500 is torch's own default.\n"
             "Change it if a firewall allows only some ports, or if another run uses this one."),
)
# fmt: on
