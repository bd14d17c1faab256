"""Did every node answer, is each one healthy, and are there several kinds of nodes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import OTHER_MGPU, Fleet, NodeClass
from mgpu.text import counted

from ._families import (
    MINOR,
    describe_class,
    families,
    judge,
    population_differences,
    scattered_facts,
    too_few_nodes,
)
from ._ways import ON_NODES, leave_out, look_at

_SOURCE = "mgpu: a difference shared by more than a tenth of the nodes, or by a rack, is not an accident"


@check(Severity.ERROR, source="https://slurm.schedmd.com/troubleshoot.html#nodes")
def fleet_node_missing(fleet: Fleet) -> Answer:
    """A node could not be examined.

    Why: its slurmd or its file system hangs, or Python does not start there: a launcher may not start either, and
    the other nodes wait until the rendezvous times out. Or it has another mgpu version, whose data cannot be
    compared.

    Fix: exclude it, and contact an administrator. If its mgpu version differs, use the same environment on all nodes.
    """
    if not fleet.missing:
        return Ok(f"{counted(len(fleet.nodes), 'node')} answered")
    unreached = {one.node for one in fleet.access or () if one.problem}  # ssh.py reports these
    reasons: dict[str, list[str]] = {}
    for node, why in fleet.missing.items():
        if node in unreached:
            continue
        reasons.setdefault(why, []).append(node)
    if not reasons:
        return Ok("no other host is missing")
    return tuple(_missing_problem(why, nodes, fleet) for why, nodes in reasons.items())


def _missing_problem(why: str, nodes: Sequence[str], fleet: Fleet) -> Problem:
    """Return the problem for nodes that could not be examined for one reason."""
    named = fold(nodes)
    if why.startswith(OTHER_MGPU):
        cause = "Its data cannot be compared with the other nodes and was discarded. Its environment differs."
        fix = Fix(
            "Use the same environment on all nodes. See which mgpu is there:",
            (shell("srun -N{:number} -w {:hosts} --time=1 --label mgpu --version", len(nodes), named),),
        )
    else:
        cause = "A launcher may not start there either, and all others would wait until the rendezvous times out."
        slurm = fleet.access is None
        fix = Fix(
            f"Check whether it responds at all{', and its state in Slurm' if slurm else ''}.",
            (
                shell("srun -N{:number} -w {:hosts} --time=1 hostname", len(nodes), named),
                shell("scontrol show node {:hosts}", named),
            )
            if slurm
            else look_at(fleet, nodes, f"{ON_NODES} uptime"),
        )
    return Problem(
        f"{fold(nodes)} not examined: {why or 'no answer'}",
        cause,
        (fix, leave_out(nodes, fleet)),
        {"nodes": fold(nodes), "why": why, "answered": len(fleet.nodes)},
        subjects=tuple(nodes),
    )


@check(Severity.ERROR, source="mgpu: the result of the doctor on the node itself", tags=("node_fault",))
def fleet_node_faulty(fleet: Fleet) -> Answer:
    """The doctor found an error on a node that would make a run fail there.

    Why: each node is checked on its own; an error on one node fails the whole job.

    Fix: exclude the node, and run mgpu doctor there.
    """
    if fleet.faults is None:
        return Skip("too many nodes to check each one here: mgpu doctor --from FILE")
    if not fleet.faults:
        return Ok(f"mgpu doctor found no error on {counted(len(fleet.nodes), 'node')}")
    alike: dict[str, dict[str, str]] = {}
    for fault in fleet.faults:
        alike.setdefault(fault.id or fault.text, {}).setdefault(fault.node, fault.text)
    return tuple(_fault_problem(key, texts, fleet) for key, texts in alike.items())


def _fault_problem(key: str, texts: Mapping[str, str], fleet: Fleet) -> Problem:
    """Return the problem for nodes with the same fault: one check, or one message."""
    named, first = fold(texts), next(iter(texts.values()))
    explain = (shell("mgpu doctor --explain {:id}", key),) if key != first else ()
    more = {node: text for node, text in texts.items() if text != first}
    return Problem(
        f"{named}: {first}{' (and similar)' if more else ''}",
        "mgpu doctor found this on the node. A run would fail there, and with it on all other nodes.",
        (
            Fix(
                "Run mgpu doctor there to see the details and the fix.",
                (*look_at(fleet, tuple(texts), f"{ON_NODES} mgpu doctor"), *explain),
            ),
            leave_out(texts, fleet),
        ),
        {"nodes": named, "of": len(fleet.nodes), **(texts if more else {})},
        subjects=tuple(texts),
    )


@check(Severity.WARNING, source=_SOURCE)
def fleet_second_population(fleet: Fleet) -> Answer:
    """Many nodes differ from the rest in the same way: there are two groups.

    Why: a rack was installed at another time, or an update is in progress. A job across both groups runs at best at
    the speed of the slower one; within one group nothing is wrong.

    Fix: keep a job within one group until they are equal.
    """
    return _populations(fleet, minor=False)


@check(Severity.INFO, source=_SOURCE)
def fleet_second_population_in_details(fleet: Fleet) -> Answer:
    """Many nodes differ from the rest in the same way, but only in minor details.

    Why: a rack was installed at another time, or an update of firmware, kernel or libraries is in progress.

    Fix: nothing, unless these nodes behave differently.
    """
    return _populations(fleet, minor=True)


def _populations(fleet: Fleet, *, minor: bool) -> Answer:
    if (skip := too_few_nodes(fleet)) is not None:
        return skip
    found = [
        one
        for one in fleet.classes
        if one.second and (kinds := set(population_differences(one))) and (kinds <= MINOR) == minor
    ]
    return tuple(map(_population_problem, found)) or Ok(f"no second group among {counted(len(fleet.nodes), 'node')}")


def _population_problem(one: NodeClass) -> Problem:
    named = fold(one.nodes)
    most = ", ".join(f"{d.what} {d.usual}" for d in [found[0] for found in families(one.differences).values()][:3])
    return Problem(
        f"{len(one.nodes)} of {one.of} nodes have the same differences: {describe_class(one)} ({named})",
        f"So many equal nodes are a second group, not single bad nodes. The others have {most}.",
        Fix(
            "Keep a job within one of the two groups.",
            (
                shell("sbatch --exclude={:hosts} job.sbatch", named),
                shell("sbatch --nodelist={:hosts} job.sbatch", named),
            ),
        ),
        {"nodes": named, "role": one.role}
        | {d.what: f"{d.value or 'none'}, most: {d.usual or 'none'}" for d in one.differences[:12]},
        subjects=one.nodes,
    )


@check(Severity.INFO, source="mgpu: nodes of different GPUs are never compared with each other", given=too_few_nodes)
def fleet_of_several_kinds(fleet: Fleet) -> Answer:
    """There are several kinds of nodes: the GPU model or the number of GPUs differs.

    Why: each kind was compared separately. A job across two kinds waits for the slower GPUs in every step, and
    needs the same number of ranks on each node.

    Fix: request one of them from Slurm.
    """
    if len(fleet.roles) == 1:
        return Ok(f"one kind: {next(iter(fleet.roles))}")
    said = [f"{role} on {fold(nodes)}" for role, nodes in fleet.roles.items()]
    return Problem(
        f"{len(fleet.roles)} kinds of nodes: {'; '.join(said)}",
        "Each kind was compared separately. A job across them waits for the slower GPUs in every step.",
        Fix("Request one kind: #SBATCH --gpus-per-node=TYPE:N, or a --constraint of your site."),
        {role: fold(nodes) for role, nodes in fleet.roles.items()},
    )


@check(Severity.INFO, source="mgpu: facts that differ on nearly every node cannot be compared", given=too_few_nodes)
def fleet_facts_scattered(fleet: Fleet) -> Answer:
    """Some facts differ on nearly every node and were not compared.

    Why: they identify the node itself, or are random on each node, so no deviation can be detected in them.

    Fix: no action needed.
    """
    facts = scattered_facts(fleet).get("")  # the others are reported with their family
    if not facts:
        return Ok(f"{fleet.compared} facts compared")
    return Problem(
        f"{len(facts)} fact{'s differ' if len(facts) > 1 else ' differs'} from node to node: {', '.join(facts[:2])}",
        "No value has a majority, so they were not compared.",
        Fix("Nothing; the values are in each node's own file."),
        {"facts": ", ".join(facts[:12]), "compared": fleet.compared},
    )


@check(Severity.WARNING, source="mgpu: anything unknown is never reported as healthy")
def fleet_facts_unread(fleet: Fleet) -> Answer:
    """Facts could not be read on some nodes but could on others, or a file was not written by --save.

    Why: a probe timed out, crashed, or lacked permission: for example, the environment is on a slow file system, or
    importing torch hangs. These facts were not compared on these nodes. `--json` writes a report, which does not
    contain the facts.

    Fix: check the node itself; save it with --save.
    """
    cause = "Unknown facts cannot be compared, and a rank may run into the problem that made a probe time out."
    doctor, fix = (
        f"{ON_NODES} mgpu doctor -v",
        "Run mgpu doctor there.",
    )
    answer = judge(fleet, "unread", "everything could be read", doctor, cause=cause, fix=fix)
    if "driver" not in (*fleet.known, *fleet.unread) and isinstance(answer, Ok):
        unknown = "the driver was read on fewer than two nodes of any kind: GPUs were not compared"
        answer = (Problem(unknown, cause, Fix("Save the nodes again.", _SAVE), {"known": ", ".join(fleet.known)}),)
    strangers = (_foreign_files_problem(fleet.strangers),) if fleet.strangers else ()
    if not fleet.unread or isinstance(answer, Skip):
        return (*strangers, *(answer if isinstance(answer, tuple) else ())) or answer
    where = "all nodes" if len(fleet.roles) == 1 else "all nodes of one kind"
    nowhere = Problem(
        f"unknown on {where}: " + ", ".join(f"{fact.replace('_', ' ')} ({why})" for fact, why in fleet.unread.items()),
        cause,
        Fix("Run mgpu doctor on one of them.", ("mgpu doctor -v",)),
        dict(fleet.unread),
    )
    return (*strangers, nowhere, *(answer if isinstance(answer, tuple) else ()))


_SAVE = ("srun --ntasks-per-node=1 bash -c 'mgpu doctor --quick --save nodes/$SLURMD_NODENAME.json'",)


def _foreign_files_problem(files: Sequence[str]) -> Problem:
    """Return the problem for files that do not contain a saved machine."""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return Problem(
        f"{', '.join(files[:3])}{more}: not written by mgpu doctor --save, and not compared",
        "If this was meant as a node's file, that node was not compared.",
        Fix("Save the node, or pass only the files of nodes.", _SAVE),
        {"files": ", ".join(files)},
    )


@check(Severity.INFO, source="mgpu: every compared fact is reported when it differs")
def fleet_rest_differs(fleet: Fleet) -> Answer:
    """Some nodes differ in facts that seldom matter.

    Why: These facts seldom matter to a run.
    More: They are the allocation, the mgpu version, or facts that were not checked on some nodes.

    Fix: Nothing, unless these nodes behave differently.
    """
    return judge(fleet, "rest", "nothing else differs")
