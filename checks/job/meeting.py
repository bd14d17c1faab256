"""Do the launchers of all nodes look for each other at the same place?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import Config, JobCommand, JobScript, JobVariable

from ._findings import ACCELERATE, HEAD, MEASURED, PORT, TORCHRUN, finding, short, well, whole
from ._launches import (
    backend,
    head,
    hides_options,
    line_of,
    meant_for_several,
    option,
    per_node_launches,
    port,
    spans,
    spread,
    variables,
    where_known,
)

_LOOPBACK = re.compile(r"localhost(?:\.localdomain)?|127(?:\.\d{1,3}){3}|::1|\[::1\]", re.IGNORECASE)
_BY_HOSTNAME = re.compile(r"\bhostname\s+(?:-[a-zA-Z]*[iI][a-zA-Z]*|--ip-address|--all-ip-addresses)\b")
_OWN_NAME = re.compile(r"\$\(\s*(?:/bin/)?hostname\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME|HOST)\b|\bhostname\s+-[sfiI]")
_NODE_LIST = re.compile(r"\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\b")
# What knows the short form of Slurm's lists: node[1-3,7].
_EXPANDS = re.compile(
    r"scontrol|hostlist|nodeset|clush|expand|python|srun|perl|genders|slurm[-_]?hosts|nodes\b|\bmgpu\b"
)
_DRAWN = re.compile(r"\bRANDOM\b|\bshuf\b|\bSRANDOM\b|/dev/urandom|randint|randrange|\buuidgen\b|bind\(\(|%[sN]\b|\$\$")
_OF_JOB = "Make it of the number of the job, which is the same everywhere."
_PORT_OF_JOB, _ID_OF_JOB = Fix(_OF_JOB, (PORT,)), Fix(_OF_JOB, ("--rdzv-id=$SLURM_JOB_ID",))
_HEADS = ("MASTER_ADDR", "MAIN_PROCESS_IP")
_PORTS = ("MASTER_PORT", "MAIN_PROCESS_PORT")
_RENDEZVOUS = ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR")


def _places(job: JobScript) -> list[tuple[JobCommand | None, str, int, bool]]:
    """Where ranks are to meet: of which launch, the text, its line, whether a shell on the node makes it."""
    found: list[tuple[JobCommand | None, str, int, bool]] = []
    for command in job.launches:
        given = head(command)
        if given is not None and meant_for_several(job, command):
            early = any(one.on_node for one in variables(command, given[1]) if one.name in given[0])
            found.append((command, given[0], _line(job, command, given[1], given[0]), early))
    if any(meant_for_several(job, one) or (one.launcher == "python" and spread(one)) for one in job.launches):
        told = {text for _, text, _, _ in found}
        heads = [one for one in job.sets if one.name in _HEADS and one.value not in told]
        found += [(None, one.value, one.line, one.on_node) for one in heads]
    return found


def _line(job: JobScript, command: JobCommand, word: int, text: str) -> int:
    """The line that gives a word its value: the assignment of a variable, else the command itself."""
    made = [one.line for one in job.sets if one.value == text and one.line <= max(command.lines or (command.line,))]
    written = re.search(re.escape(text), command.words[word])
    if made:
        return made[-1]
    return line_of(command, word - 1) if written and written.start() and word else line_of(command, word)


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/67547")
@whole
def job_head_address_is_loopback(job_script: JobScript) -> Answer:
    """The ranks of several nodes are to meet at localhost.

    Why: Each node waits at its own localhost, where no other comes.

    Fix: The name of the first node, which all of them resolve.
    """
    for command, text, line, _ in _places(job_script):
        if not _LOOPBACK.fullmatch(text):
            continue
        if command is None and not _several(job_script):
            continue
        return finding(
            job_script,
            line,
            f"the nodes are to meet at {text}, which is another machine on each of them",
            commands(HEAD),
        )
    return Ok("no meeting point is localhost")


def _several(job: JobScript) -> bool:
    return any(spans(job, one) for one in job.launches)


@check(Severity.WARNING, source="https://github.com/nebius/nebius-solutions-library/issues/177")
@whole
def job_head_address_by_hostname(job_script: JobScript) -> Answer:
    """The head's address is asked of `hostname -i` or `hostname -I`.

    Why: It may be 127.0.1.1, several addresses in one, or one of a network that the other nodes do not reach.
    More: -I prints the addresses of all interfaces, docker's and the management network's too, in no order that means
    anything. -i resolves the own name, which on Debian and Ubuntu is 127.0.1.1.

    Fix: Take the name of the first node; mgpu's pre-flight resolves it on every node.
    """
    for _, text, line, _ in _places(job_script):
        if _BY_HOSTNAME.search(text):
            return finding(job_script, line, f"the head's address comes from {short(text, 70)}", commands(HEAD))
    return Ok("no address is asked of hostname")


@check(Severity.ERROR, source=MEASURED)
@whole
def job_head_differs_between_nodes(job_script: JobScript) -> Answer:
    """Every node takes itself for the place where the ranks meet.

    Why: A shell on the node expands it: each takes itself for the head, and waits for the others.

    Fix: Make it once, before srun.
    More: And export it.
    """
    for command, text, line, on_node in _places(job_script):
        if on_node and _OWN_NAME.search(text) and not _NODE_LIST.search(text):
            if command is None and not _several(job_script):
                continue
            return finding(job_script, line, f"{short(text, 60)} is another name on every node", commands(HEAD))
    return Ok("no node names itself")


@check(Severity.INFO, source="https://slurm.schedmd.com/srun.html")
@whole
def job_head_address_of_srun(job_script: JobScript) -> Answer:
    """The head's address is that of the machine where srun was typed.

    Why: That is the first node under sbatch, and the login node elsewhere.
    More: SLURM_LAUNCH_NODE_IPADDR is the login node's where srun is typed there, or in a shell of salloc: then nobody
    listens at it.

    Fix: The first node's name is right everywhere.
    """
    for _, text, line, _ in _places(job_script):
        if "SLURM_LAUNCH_NODE_IPADDR" in text or "SLURM_SRUN_COMM_HOST" in text:
            return finding(job_script, line, f"{short(text, 50)} is where srun was typed", commands(HEAD))
    return Ok("the head is not where srun was typed")


@check(Severity.ERROR, source="https://slurm.schedmd.com/scontrol.html")
@whole
def job_head_cut_from_short_list(job_script: JobScript) -> Answer:
    """The head's name is cut out of Slurm's short list of nodes.

    Why: What is cut out of it is no node's name as soon as Slurm puts several into brackets.
    More: SLURM_JOB_NODELIST is written as nid[001-004,007]. Cut at a comma or a bracket it happens to be right for one
    node, or for two with quite different names.

    Fix: Let scontrol write the names out, in the batch shell.
    """
    for _, text, line, _ in _places(job_script):
        if _NODE_LIST.search(text) and not _EXPANDS.search(text):
            return finding(
                job_script, line, f"{short(text, 60)}: the list is short, as in nid[001-004]", commands(HEAD)
            )
    return Ok("no name is cut out of the list of nodes")


@check(Severity.ERROR, source=MEASURED, because_of=("job_continued_line_broken", "job_dash_typographic"))
@whole
def job_head_address_missing(job_script: JobScript) -> Answer:
    """The launchers of several nodes are not told where to meet.

    Why: torchrun then takes 127.0.0.1, on every node its own (MASTER_ADDR in the environment is not read by it).
    accelerate looks for "None:29500" and says "The IPv4 network addresses of (None, 29500) cannot be retrieved".

    Fix: Make the address before srun, and hand it on.
    """
    for command in per_node_launches(job_script):
        if spans(job_script, command) is not True or not spread(command) or head(command) is not None:
            continue
        if hides_options(command) or any(one.name in _RENDEZVOUS for one in job_script.sets):
            continue
        if command.launcher == "accelerate":
            if option(command, "config_file") is not None or option(command, "num_machines") is None:
                continue
            fix = "accelerate launch ... --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT"
            why = 'accelerate looks for "None:29500", and waits.'
        else:
            if option(command, "nnodes") is None or option(command, "standalone") is not None:
                continue
            fix = "torchrun ... --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
            why = "torchrun takes 127.0.0.1, on every node its own; it does not read MASTER_ADDR."
        return finding(
            job_script,
            command.line,
            f"{command.words[0].rsplit('/', 1)[-1]} is not told where the nodes meet",
            commands(HEAD, PORT, fix),
            why=why,
        )
    alone = [one for one in per_node_launches(job_script) if spread(one) and head(one) is None]
    return where_known(job_script, alone, "the launchers are told where they meet")


@check(Severity.ERROR, source=MEASURED)
def job_config_has_no_head_address(job_script: JobScript, config: Config) -> Answer:
    """Neither the config nor the command line says where the nodes meet.

    Why: accelerate looks for "None:29500", and waits.
    More: "The IPv4 network addresses of (None, 29500) cannot be retrieved".

    Fix: Say it here.
    More: The job knows its first node.
    """
    for command in per_node_launches(job_script):
        if command.launcher != "accelerate" or option(command, "config_file") is None or head(command) is not None:
            continue
        many = option(command, "num_machines") is not None or config.num_machines > 1
        if many and spans(job_script, command) is not False and config.values.get("main_process_ip") is None:
            return finding(
                job_script,
                command.line,
                "neither the command line nor the config says where the nodes meet",
                commands(
                    HEAD, PORT, "accelerate launch ... --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT"
                ),
            )
    return well(job_script, "the launchers are told where they meet")


@check(Severity.INFO, source="https://github.com/NVIDIA/Megatron-LM/issues/1371")
@whole
def job_port_fixed(job_script: JobScript) -> Answer:
    """The port at which the ranks meet is the same for every job.

    Why: Two jobs that share a node, or a rank that an earlier job left behind, already listen there: "EADDRINUSE:
    address already in use".

    Fix: Make it from the number of the job.
    """
    exclusive = job_script.directive("exclusive")
    if exclusive is not None and exclusive.value is None:
        return Ok("the job has its nodes to itself")
    for command in per_node_launches(job_script):
        given = port(command)
        if given is not None and re.fullmatch(r"[1-9]\d{1,4}", given[0]) and meant_for_several(job_script, command):
            return _fixed(job_script, given[0], _line(job_script, command, given[1], given[0]))
    if _several(job_script):
        for one in job_script.sets:
            if one.name in _PORTS and re.fullmatch(r"[1-9]\d{1,4}", one.value):
                return _fixed(job_script, one.value, one.line)
    return Ok("the port is of this job")


def _fixed(job: JobScript, value: str, line: int) -> Answer:
    return finding(
        job,
        line,
        f"port {value} for every job",
        Fix("Make it from the job's number: below 32768, where Linux takes no ports for others.", (PORT,)),
        why="Another job on the same node, or a rank that an earlier one left, may listen there already.",
    )


@check(Severity.ERROR, source="https://github.com/ContextualAI/HALOs")
@whole
def job_port_drawn_on_each_node(job_script: JobScript) -> Answer:
    """Every node draws a port of its own.

    Why: A shell on the node makes the number: no two nodes have the same, and each waits where no other comes.

    Fix: Draw it once, in the batch shell; better, make it from the number of the job.
    """
    for command in job_script.launches:
        given = port(command)
        if given is None or not meant_for_several(job_script, command):
            continue
        drawn = [v for v in variables(command, given[1]) if v.on_node and _is_drawn(v) and v.name in given[0]]
        if drawn or (command.step is not None and _set_on_node(job_script, given[0])):
            return _drawn(job_script, line_of(command, given[1]), short(given[0], 50), "port", _PORT_OF_JOB)
    if _several(job_script):
        for one in job_script.sets:
            if one.on_node and one.name in _PORTS and any(_is_drawn(v) for v in one.variables if v.on_node):
                return _drawn(job_script, one.line, f"{one.name}={short(one.value, 40)}", "port", _PORT_OF_JOB)
    return Ok("no node draws a port of its own")


def _set_on_node(job: JobScript, value: str) -> bool:
    return any(one.on_node and one.value == value and any(map(_is_drawn, one.variables)) for one in job.sets)


def _is_drawn(variable: JobVariable) -> bool:
    """Whether a value is another each time it is made."""
    return any(_DRAWN.search(text) for text in (variable.name, *variable.runs))


@check(Severity.ERROR, source=MEASURED)
@whole
def job_rendezvous_id_drawn_on_each_node(job_script: JobScript) -> Answer:
    """Every node draws an id of its own for the rendezvous.

    Why: Launchers meet only those with the same id. A shell on the node makes another on each: every one waits alone
    until RendezvousTimeoutError (measured).

    Fix: Take the number of the job.
    """
    for command in per_node_launches(job_script):
        given = option(command, "rdzv_id")
        if given is None or spans(job_script, command) is False:
            continue
        if any(one.on_node and _is_drawn(one) for one in variables(command, given[1])):
            line = line_of(command, given[1])
            return _drawn(job_script, line, f"--rdzv_id {short(given[0], 40)}", "id", _ID_OF_JOB)
    return Ok("the id is the same on all nodes")


def _drawn(job: JobScript, line: int, text: str, what: str, fix: Fix) -> Answer:
    return finding(
        job,
        line,
        f"{text} is another {what} on every node",
        fix,
        why="A shell on the node makes it: no two launchers have the same, and each waits alone.",
    )


@check(Severity.WARNING, source=ACCELERATE)
@whole
def job_backend_hidden_in_rdzv_conf(job_script: JobScript) -> Answer:
    """The backend of the rendezvous is given where nobody reads it.

    Why: It holds settings of the backend. With a static one every node needs its right rank.
    More: The backend is "static" unless it is chosen.

    Fix: Choose it by its own option.
    """
    for command in per_node_launches(job_script):
        given = option(command, "rdzv_conf")
        if given is not None and "rdzv_backend" in given[0] and option(command, "rdzv_backend") is None:
            return finding(
                job_script,
                line_of(command, given[1]),
                f"--rdzv_conf {short(given[0], 40)} does not choose the backend: it stays {backend(command)}",
                commands("--rdzv_backend c10d"),
            )
    return Ok("the backend is chosen by its own option, or left as it is")


@check(Severity.ERROR, source=MEASURED)
@whole
def job_same_network_with_c10d(job_script: JobScript) -> Answer:
    """--same_network is given together with --rdzv_backend c10d.

    Why: accelerate then gives the address as --master_addr, which c10d does not read: each node meets itself.
    More: c10d reads the endpoint alone, which accelerate leaves empty with --same_network (measured).

    Fix: Leave it out.
    """
    for command in per_node_launches(job_script):
        same = option(command, "same_network")
        if command.launcher == "accelerate" and same is not None and backend(command) == "c10d":
            return finding(
                job_script,
                line_of(command, same[1]),
                "--same_network leaves c10d without an address",
                commands(
                    "accelerate launch --rdzv_backend c10d --main_process_ip $MASTER_ADDR "
                    "--main_process_port $MASTER_PORT ..."
                ),
            )
    return Ok("c10d has its address")


@check(Severity.WARNING, source=TORCHRUN, because_of=("job_continued_line_broken", "job_dash_typographic"))
@whole
def job_endpoint_with_static_backend(job_script: JobScript) -> Answer:
    """torchrun is given an endpoint, and no backend that finds ranks.

    Why: The backend stays static, and every node is node 0.
    More: Without --rdzv_backend the ranks are those of --node_rank, which is 0 on every node where nobody says it, and
    all of them wait for the others.

    Fix: Let c10d find the ranks.
    """
    for command in per_node_launches(job_script):
        if command.launcher != "torchrun" or spans(job_script, command) is not True or hides_options(command):
            continue
        endpoint = option(command, "rdzv_endpoint")
        if endpoint is None or option(command, "rdzv_backend") is not None or option(command, "node_rank") is not None:
            continue
        if any(one.name in ("PET_RDZV_BACKEND", "PET_NODE_RANK") for one in job_script.sets):
            continue
        return finding(
            job_script,
            line_of(command, endpoint[1]),
            "--rdzv_endpoint without --rdzv_backend, and no --node_rank",
            commands("--rdzv_backend c10d --rdzv_id $SLURM_JOB_ID"),
        )
    return Ok("a backend or a rank is given")
