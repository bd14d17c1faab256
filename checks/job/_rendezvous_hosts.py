"""Which rendezvous hosts does a job script set?"""

from __future__ import annotations

import re

from mgpu.snapshot import JobCommand, JobScript

from ._launches import (
    last_assignments,
    may_be_multi_node,
    rendezvous_host,
    runs_on_nodes,
    word_variables,
)

LOOPBACK = re.compile(r"localhost(?:\.localdomain)?|127(?:\.\d{1,3}){3}|::1|\[::1\]", re.IGNORECASE)
_HEADS = ("MASTER_ADDR", "MAIN_PROCESS_IP")


def rendezvous_hosts(job: JobScript) -> list[tuple[JobCommand | None, str, int, bool]]:
    """Return the rendezvous hosts: the launch, the host, its line, and whether a shell on the node expands it."""
    found: list[tuple[JobCommand | None, str, int, bool]] = []
    for command in job.launches:
        if (given := rendezvous_host(command)) is not None and may_be_multi_node(job, command):
            early = any(one.on_node for one in word_variables(command, given[1]) if one.name in given[0])
            found.append((command, given[0], assignment_line(job, command, given[1], given[0]), early))
    if any(may_be_multi_node(job, one) or (one.launcher == "python" and runs_on_nodes(one)) for one in job.launches):
        given_hosts = {text for _, text, _, _ in found}
        heads = [one for one in last_assignments(job) if one.name in _HEADS and one.value not in given_hosts]
        found += [(None, one.value, one.line, one.on_node) for one in heads]
    return found


def assignment_line(job: JobScript, command: JobCommand, word: int, text: str) -> int:
    """Return the line that sets the value of a word: the assignment of its variable, or else the command."""
    made = [one.line for one in job.sets if one.value == text and one.statement <= command.statement]
    written = re.search(re.escape(text), command.words[word])
    if made:
        return made[-1]
    return command.line_of(word - 1) if written and written.start() and word else command.line_of(word)


def loopback_of_framework(job: JobScript) -> int | None:
    """Return the line that sets MASTER_ADDR to localhost for a framework on a node that is not the first; or None.

    Frameworks such as swift read the launcher's options from variables. On the first node localhost works.
    """
    if not any(one.launcher == "command" and not one.inner for one in job.launches):
        return None
    made = {one.name: one for one in last_assignments(job) if one.exported and not one.unsure}
    several, rank, head = (made.get(name) for name in ("NNODES", "NODE_RANK", "MASTER_ADDR"))
    if several is None or rank is None or head is None:
        return None
    numbers = all(re.fullmatch(r"[1-9]\d{0,3}", one.value) for one in (several, rank))
    return head.line if numbers and several.value != "1" and LOOPBACK.fullmatch(head.value) else None
