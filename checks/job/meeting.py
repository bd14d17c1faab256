"""Do the launchers of all nodes use the same rendezvous endpoint?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.snapshot import Config, JobScript, JobVariable

from ._findings import ACCELERATE, HEAD, MEASURED, PORT, TORCHRUN, finding, needs_whole_script, ok_unless_cut, shorten
from ._launches import (
    hides_options,
    is_multi_node,
    last_assignments,
    launcher_option,
    may_be_multi_node,
    ok_if_nodes_known,
    per_node_launches,
    rendezvous_backend,
    rendezvous_host,
    rendezvous_port,
    runs_on_nodes,
    word_variables,
)
from ._rendezvous_hosts import LOOPBACK, assignment_line, loopback_of_framework, rendezvous_hosts

_BY_HOSTNAME = re.compile(r"\bhostname\s+(?:-[a-zA-Z]*[iI][a-zA-Z]*|--ip-address|--all-ip-addresses)\b")
_OWN_NAME = re.compile(r"\$\(\s*(?:/bin/)?hostname\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME|HOST)\b|\bhostname\s+-[sfiI]")
_NODE_LIST = re.compile(r"\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\b")
# Tools that expand Slurm's short node lists: node[1-3,7].
_EXPANDS = re.compile(
    r"scontrol|hostlist|nodeset|clush|expand|python|srun|perl|genders|slurm[-_]?hosts|nodes\b|\bmgpu\b"
)
_DRAWN = re.compile(r"\bRANDOM\b|\bshuf\b|\bSRANDOM\b|/dev/urandom|randint|randrange|\buuidgen\b|bind\(\(|%[sN]\b|\$\$")
_OF_JOB = "Derive it from the job id, which is the same on all nodes."
_PORT_OF_JOB, _ID_OF_JOB = Fix(_OF_JOB, (PORT,)), Fix(_OF_JOB, ("--rdzv-id=$SLURM_JOB_ID",))
_ACCELERATE_HEAD = "accelerate launch ... --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT"
_PORTS = ("MASTER_PORT", "MAIN_PROCESS_PORT")
_RENDEZVOUS = ("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR")


@check(Severity.ERROR, source="https://github.com/pytorch/pytorch/issues/67547")
@needs_whole_script
def job_head_address_is_loopback(job_script: JobScript) -> Answer:
    """The rendezvous host of several nodes is localhost.

    Why: Each node waits at its own localhost, which no other node connects to.

    Fix: Use the name of the first node, which all nodes can resolve.
    """
    for command, text, line, _ in rendezvous_hosts(job_script):
        if not LOOPBACK.fullmatch(text) or (command is None and not _has_multi_node_launch(job_script)):
            continue
        return finding(
            job_script,
            line,
            f"the rendezvous host is {text}, which is a different machine on each node",
            commands(HEAD),
        )
    if (own := loopback_of_framework(job_script)) is not None:
        return finding(
            job_script,
            own,
            "MASTER_ADDR is this node itself, which is not the first one",
            Fix("Write the address of the node with NODE_RANK=0, which the others can reach."),
            why="The launcher of this node waits for itself.",
        )
    return Ok("no rendezvous host is localhost")


def _has_multi_node_launch(job: JobScript) -> bool:
    return any(is_multi_node(job, one) for one in job.launches)


@check(Severity.WARNING, source="https://github.com/nebius/nebius-solutions-library/issues/177")
@needs_whole_script
def job_head_address_by_hostname(job_script: JobScript) -> Answer:
    """The rendezvous address comes from `hostname -i` or `hostname -I`.

    Why: It may be 127.0.1.1, several addresses, or an address on a network that the other nodes cannot reach.
    More: -I prints the addresses of all interfaces, including Docker's and the management network's, in no defined
    order. -i resolves the node's own name, which is 127.0.1.1 on Debian and Ubuntu.

    Fix: Use the name of the first node. mgpu's pre-flight resolves it on every node.
    """
    for _, text, line, _ in rendezvous_hosts(job_script):
        if _BY_HOSTNAME.search(text):
            return finding(job_script, line, f"the rendezvous address comes from {shorten(text, 70)}", commands(HEAD))
    return Ok("no address comes from hostname")


@check(Severity.ERROR, source=MEASURED)
@needs_whole_script
def job_head_differs_between_nodes(job_script: JobScript) -> Answer:
    """Every node uses itself as the rendezvous host.

    Why: A shell on each node expands the host name, so each node uses itself and waits for the others.

    Fix: Set it once, before srun.
    More: And export it.
    """
    for command, text, line, on_node in rendezvous_hosts(job_script):
        if on_node and _OWN_NAME.search(text) and not _NODE_LIST.search(text):
            if command is None and not _has_multi_node_launch(job_script):
                continue
            return finding(job_script, line, f"{shorten(text, 60)} is a different name on every node", commands(HEAD))
    return Ok("no node names itself")


@check(Severity.INFO, source="https://slurm.schedmd.com/srun.html")
@needs_whole_script
def job_head_address_of_srun(job_script: JobScript) -> Answer:
    """The rendezvous address is that of the machine where srun was started.

    Why: That is the first node in an sbatch script, but the login node otherwise.
    More: SLURM_LAUNCH_NODE_IPADDR is the login node's address if srun is started there or in an salloc shell. Then no
    process listens on it.

    Fix: Use the name of the first node, which always works.
    """
    for _, text, line, _ in rendezvous_hosts(job_script):
        if "SLURM_LAUNCH_NODE_IPADDR" in text or "SLURM_SRUN_COMM_HOST" in text:
            return finding(job_script, line, f"{shorten(text, 50)} is where srun was started", commands(HEAD))
    return Ok("the rendezvous address does not depend on where srun was started")


@check(Severity.ERROR, source="https://slurm.schedmd.com/scontrol.html")
@needs_whole_script
def job_head_cut_from_short_list(job_script: JobScript) -> Answer:
    """The name of the first node is cut out of Slurm's compressed node list.

    Why: The result is not a node name if Slurm writes several nodes in brackets.
    More: SLURM_JOB_NODELIST looks like nid[001-004,007]. Cutting it at a comma or bracket only works for one node, or
    for two nodes with very different names.

    Fix: Expand the names with scontrol, in the batch shell.
    """
    for _, text, line, _ in rendezvous_hosts(job_script):
        if _NODE_LIST.search(text) and not _EXPANDS.search(text):
            return finding(
                job_script, line, f"{shorten(text, 60)}: the list is compressed, as in nid[001-004]", commands(HEAD)
            )
    return Ok("no name is cut out of the node list")


@check(Severity.ERROR, source=MEASURED, because_of=("job_continued_line_broken", "job_dash_typographic"))
@needs_whole_script
def job_head_address_missing(job_script: JobScript) -> Answer:
    """The launchers of several nodes have no rendezvous address.

    Why: torchrun then uses 127.0.0.1, a different machine on every node (it does not read MASTER_ADDR). accelerate
    tries "None:29500" and prints "The IPv4 network addresses of (None, 29500) cannot be retrieved".

    Fix: Set the address before srun, and pass it on.
    """
    for command in per_node_launches(job_script):
        if (
            is_multi_node(job_script, command) is not True
            or not runs_on_nodes(command)
            or rendezvous_host(command) is not None
        ):
            continue
        if hides_options(command) or any(one.name in _RENDEZVOUS for one in job_script.sets):
            continue
        if command.launcher == "accelerate":
            if launcher_option(command, "config_file") is not None or launcher_option(command, "num_machines") is None:
                continue
            fix = _ACCELERATE_HEAD
            why = 'accelerate tries to connect to "None:29500", and waits.'
        else:
            if launcher_option(command, "nnodes") is None or launcher_option(command, "standalone") is not None:
                continue
            fix = "torchrun ... --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
            why = "torchrun uses 127.0.0.1, a different machine on every node. It does not read MASTER_ADDR."
        return finding(
            job_script,
            command.line,
            f"{command.words[0].rsplit('/', 1)[-1]} has no rendezvous address",
            commands(HEAD, PORT, fix),
            why=why,
        )
    alone = [one for one in per_node_launches(job_script) if runs_on_nodes(one) and rendezvous_host(one) is None]
    return ok_if_nodes_known(job_script, alone, "the launchers have a rendezvous address")


@check(Severity.ERROR, source=MEASURED)
def job_config_has_no_head_address(job_script: JobScript, config: Config) -> Answer:
    """Neither the config nor the command line sets a rendezvous address.

    Why: accelerate tries to connect to "None:29500", and waits.
    More: "The IPv4 network addresses of (None, 29500) cannot be retrieved".

    Fix: Set it here, from the first node of the job.
    """
    for command in per_node_launches(job_script):
        if (
            command.launcher != "accelerate"
            or launcher_option(command, "config_file") is None
            or rendezvous_host(command) is not None
        ):
            continue
        many = launcher_option(command, "num_machines") is not None or config.num_machines > 1
        if many and is_multi_node(job_script, command) is not False and config.values.get("main_process_ip") is None:
            return finding(
                job_script,
                command.line,
                "neither the command line nor the config sets a rendezvous address",
                commands(HEAD, PORT, _ACCELERATE_HEAD),
            )
    return ok_unless_cut(job_script, "the launchers have a rendezvous address")


@check(Severity.INFO, source="https://github.com/NVIDIA/Megatron-LM/issues/1371")
@needs_whole_script
def job_port_fixed(job_script: JobScript) -> Answer:
    """The rendezvous port is the same for every job.

    Why: Another job on the same node, or a leftover rank of an earlier job, may already listen on it: "EADDRINUSE:
    address already in use".

    Fix: Derive it from the job id.
    """
    if (exclusive := job_script.directive("exclusive")) is not None and exclusive.value is None:
        return Ok("the job has exclusive nodes")
    for command in per_node_launches(job_script):
        given = rendezvous_port(command)
        if given is not None and re.fullmatch(r"[1-9]\d{1,4}", given[0]) and may_be_multi_node(job_script, command):
            return _fixed_port_problem(job_script, given[0], assignment_line(job_script, command, given[1], given[0]))
    if _has_multi_node_launch(job_script):
        for one in last_assignments(job_script):
            if one.name in _PORTS and re.fullmatch(r"[1-9]\d{1,4}", one.value):
                return _fixed_port_problem(job_script, one.value, one.line)
    return Ok("the port is specific to this job")


def _fixed_port_problem(job: JobScript, value: str, line: int) -> Answer:
    return finding(
        job,
        line,
        f"port {value} for every job",
        Fix("Derive it from the job id, below 32768, where Linux assigns no ephemeral ports.", (PORT,)),
        why="Another job on the same node, or a leftover rank of an earlier job, may already listen on it.",
    )


@check(Severity.ERROR, source="https://github.com/ContextualAI/HALOs")
@needs_whole_script
def job_port_drawn_on_each_node(job_script: JobScript) -> Answer:
    """Every node picks a different random rendezvous port.

    Why: A shell on each node picks the number, so the ports differ, and no node connects to another.

    Fix: Pick it once, in the batch shell, or better, derive it from the job id.
    """
    for command in job_script.launches:
        if (given := rendezvous_port(command)) is None or not may_be_multi_node(job_script, command):
            continue
        drawn = [v for v in word_variables(command, given[1]) if v.on_node and _is_drawn(v) and v.name in given[0]]
        if drawn or (command.step is not None and _set_on_node(job_script, given[0])):
            return _drawn_problem(job_script, command.line_of(given[1]), shorten(given[0], 50), "port", _PORT_OF_JOB)
    if _has_multi_node_launch(job_script):
        for one in job_script.sets:
            if one.on_node and one.name in _PORTS and any(_is_drawn(v) for v in one.variables if v.on_node):
                return _drawn_problem(
                    job_script, one.line, f"{one.name}={shorten(one.value, 40)}", "port", _PORT_OF_JOB
                )
    return Ok("no node picks its own port")


def _set_on_node(job: JobScript, value: str) -> bool:
    return any(one.on_node and one.value == value and any(map(_is_drawn, one.variables)) for one in job.sets)


def _is_drawn(variable: JobVariable) -> bool:
    """Whether a value is different each time it is expanded."""
    return any(_DRAWN.search(text) for text in (variable.name, *variable.runs))


@check(Severity.ERROR, source=MEASURED)
@needs_whole_script
def job_rendezvous_id_drawn_on_each_node(job_script: JobScript) -> Answer:
    """Every node generates a different rendezvous id.

    Why: Only launchers with the same id rendezvous. A shell on each node generates a different one, so each launcher
    waits alone until RendezvousTimeoutError (measured).

    Fix: Use the job id.
    """
    for command in per_node_launches(job_script):
        if (given := launcher_option(command, "rdzv_id")) is None or is_multi_node(job_script, command) is False:
            continue
        if any(one.on_node and _is_drawn(one) for one in word_variables(command, given[1])):
            line = command.line_of(given[1])
            return _drawn_problem(job_script, line, f"--rdzv_id {shorten(given[0], 40)}", "id", _ID_OF_JOB)
    return Ok("the id is the same on all nodes")


def _drawn_problem(job: JobScript, line: int, text: str, what: str, fix: Fix) -> Answer:
    return finding(
        job,
        line,
        f"{text} is a different {what} on every node",
        fix,
        why="A shell on each node expands it, so no two launchers have the same, and each waits alone.",
    )


@check(Severity.WARNING, source=ACCELERATE)
@needs_whole_script
def job_backend_hidden_in_rdzv_conf(job_script: JobScript) -> Answer:
    """The rendezvous backend is set in --rdzv_conf, where it has no effect.

    Why: --rdzv_conf is for the backend's settings. The backend stays static, and then every node needs its own rank.
    More: The backend is "static" unless --rdzv_backend sets it.

    Fix: Set it with --rdzv_backend.
    """
    for command in per_node_launches(job_script):
        given = launcher_option(command, "rdzv_conf")
        if given is not None and "rdzv_backend" in given[0] and launcher_option(command, "rdzv_backend") is None:
            return finding(
                job_script,
                command.line_of(given[1]),
                f"--rdzv_conf {shorten(given[0], 40)} does not set the backend: it stays {rendezvous_backend(command)}",
                commands("--rdzv_backend c10d"),
            )
    return Ok("the backend is set with its own option, or not at all")


@check(Severity.ERROR, source=MEASURED)
@needs_whole_script
def job_same_network_with_c10d(job_script: JobScript) -> Answer:
    """--same_network is used together with --rdzv_backend c10d.

    Why: accelerate then passes the address as --master_addr, which c10d does not read, so each node runs alone.
    More: c10d reads only the endpoint, which accelerate leaves empty with --same_network (measured).

    Fix: Omit it.
    """
    for command in per_node_launches(job_script):
        same = launcher_option(command, "same_network")
        if command.launcher == "accelerate" and same is not None and rendezvous_backend(command) == "c10d":
            return finding(
                job_script,
                command.line_of(same[1]),
                "--same_network leaves c10d without an address",
                commands(
                    "accelerate launch --rdzv_backend c10d --main_process_ip $MASTER_ADDR "
                    "--main_process_port $MASTER_PORT ..."
                ),
            )
    return Ok("c10d has its address")


@check(Severity.WARNING, source=TORCHRUN, because_of=("job_continued_line_broken", "job_dash_typographic"))
@needs_whole_script
def job_endpoint_with_static_backend(job_script: JobScript) -> Answer:
    """The torchrun command has --rdzv_endpoint, but no --rdzv_backend.

    Why: The backend stays static, and every node is node 0.
    More: Without --rdzv_backend, the node rank is --node_rank. It defaults to 0, so every node waits for the others.

    Fix: Let c10d assign the ranks.
    """
    for command in per_node_launches(job_script):
        if command.launcher != "torchrun" or is_multi_node(job_script, command) is not True or hides_options(command):
            continue
        endpoint = launcher_option(command, "rdzv_endpoint")
        if (
            endpoint is None
            or launcher_option(command, "rdzv_backend") is not None
            or launcher_option(command, "node_rank") is not None
        ):
            continue
        if any(one.name in ("PET_RDZV_BACKEND", "PET_NODE_RANK") for one in job_script.sets):
            continue
        return finding(
            job_script,
            command.line_of(endpoint[1]),
            "--rdzv_endpoint without --rdzv_backend or --node_rank",
            commands("--rdzv_backend c10d --rdzv_id $SLURM_JOB_ID"),
        )
    return Ok("a backend or a rank is set")
