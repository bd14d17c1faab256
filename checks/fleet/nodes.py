"""Did every node answer, is it fit by itself, and are there several kinds of nodes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.hostlist import fold
from mgpu.snapshot import OTHER_MGPU, Fleet, NodeClass
from mgpu.text import counted

from ._families import MINOR, ON_NODES, families, judged, leave_out, of_population, scattered, told, too_few

_SOURCE = "mgpu: what more than a tenth of the nodes have in common, or a rack of them, is no accident"


@check(Severity.ERROR, source="https://slurm.schedmd.com/troubleshoot.html#nodes")
def fleet_node_missing(fleet: Fleet) -> Answer:
    """A node could not be examined.

    Why: its slurmd or its file system hangs, or Python does not start there: a launcher may not answer either, and the
    others wait at the rendezvous until it times out. Or its mgpu is another one, whose answers may mean something else.

    Fix: leave it out, and tell the admins; where mgpu is another one, give all nodes one environment.
    """
    if not fleet.missing:
        return Ok(f"{counted(len(fleet.nodes), 'node')} answered")
    reasons: dict[str, list[str]] = {}
    for node, why in fleet.missing.items():
        reasons.setdefault(why, []).append(node)
    return tuple(_missing(why, nodes, len(fleet.nodes)) for why, nodes in reasons.items())


def _missing(why: str, nodes: Sequence[str], answered: int) -> Problem:
    """Nodes of which nothing is known, for one reason."""
    number, named = len(nodes), fold(nodes)
    if why.startswith(OTHER_MGPU):
        cause = "It answered, and its answers may mean something else: none was taken. Its environment is another one."
        fix = Fix(
            "Give all nodes one environment. See which mgpu it is there:",
            (shell("srun -N{:number} -w {:hosts} --time=1 --label mgpu --version", number, named),),
        )
    else:
        cause = "A launcher there may not answer either: all others wait at the rendezvous until it times out."
        slurm = shell("scontrol show node {:hosts}", named)
        fix = Fix(
            "See whether it does anything at all, and what Slurm knows of it.",
            (shell("srun -N{:number} -w {:hosts} --time=1 hostname", number, named), slurm),
        )
    return Problem(
        f"{fold(nodes)} not examined: {why or 'no answer'}",
        cause,
        (fix, leave_out(nodes)),
        {"nodes": fold(nodes), "why": why, "answered": answered},
        subjects=tuple(nodes),
    )


@check(Severity.ERROR, source="mgpu: what the doctor says on the node itself", tags=("node_fault",))
def fleet_node_faulty(fleet: Fleet) -> Answer:
    """A node's own examination found something that a run on it would fail of.

    Why: each node was examined by itself; an error there is one for the job, whatever the other nodes are like.

    Fix: leave the node out, and see there what the doctor says.
    """
    if fleet.faults is None:
        return Skip("too many nodes to judge each by itself here: mgpu doctor --from FILE")
    if not fleet.faults:
        return Ok(f"no node's own examination found an error ({counted(len(fleet.nodes), 'node')})")
    alike: dict[str, dict[str, str]] = {}
    for fault in fleet.faults:
        alike.setdefault(fault.id or fault.text, {}).setdefault(fault.node, fault.text)
    return tuple(_fault(key, texts, len(fleet.nodes)) for key, texts in alike.items())


def _fault(key: str, texts: Mapping[str, str], of: int) -> Problem:
    """What one check, or one sentence, says of some nodes."""
    named, first = fold(texts), next(iter(texts.values()))
    explain = (shell("mgpu doctor --explain {:id}", key),) if key != first else ()
    more = {node: text for node, text in texts.items() if text != first}
    return Problem(
        f"{named}: {first}{' (and the like)' if more else ''}",
        "The node's own examination says so; the run would fail there, and all other nodes with it.",
        (
            Fix(
                "See there what the doctor says, and how to mend it.",
                (
                    shell("srun -N{:number} -w {:hosts} --ntasks-per-node=1 --label mgpu doctor", len(texts), named),
                    *explain,
                ),
            ),
            leave_out(texts),
        ),
        {"nodes": named, "of": of, **(texts if more else {})},
        subjects=tuple(texts),
    )


@check(Severity.WARNING, source=_SOURCE)
def fleet_second_population(fleet: Fleet) -> Answer:
    """Many nodes differ from the rest in the same way: there are two populations.

    Why: a rack that was installed at another time, or an update that is under way. A job across both runs at best as
    slow as the slower part; within one of them nothing is wrong.

    Fix: keep a job within one of them, until they are the same.
    """
    return _populations(fleet, minor=False)


@check(Severity.INFO, source=_SOURCE)
def fleet_second_population_in_details(fleet: Fleet) -> Answer:
    """Many nodes differ from the rest in the same way, in nothing that matters much.

    Why: a rack that was installed at another time, or an update that is under way: firmware, kernel, libraries.

    Fix: nothing, unless these nodes behave otherwise.
    """
    return _populations(fleet, minor=True)


def _populations(fleet: Fleet, *, minor: bool) -> Answer:
    if (skip := too_few(fleet)) is not None:
        return skip
    found = [
        one for one in fleet.classes if one.second and (kinds := set(of_population(one))) and (kinds <= MINOR) == minor
    ]
    return tuple(map(_population, found)) or Ok(f"one population in each role ({counted(len(fleet.nodes), 'node')})")


def _population(one: NodeClass) -> Problem:
    named = fold(one.nodes)
    most = ", ".join(f"{d.what} {d.usual}" for d in [found[0] for found in families(one.differences).values()][:3])
    return Problem(
        f"{len(one.nodes)} of {one.of} nodes differ alike: {told(one)} ({named})",
        f"So many are a population of their own and no single bad nodes. The others have {most}.",
        Fix(
            "Keep a job on one of the two kinds.",
            (
                shell("sbatch --exclude={:hosts} job.sbatch", named),
                shell("sbatch --nodelist={:hosts} job.sbatch", named),
            ),
        ),
        {"nodes": named, "role": one.role}
        | {d.what: f"{d.value or 'none'}, most: {d.usual or 'none'}" for d in one.differences[:12]},
        subjects=one.nodes,
    )


@check(Severity.INFO, source="mgpu: nodes of different GPUs are never compared with each other", given=too_few)
def fleet_of_several_kinds(fleet: Fleet) -> Answer:
    """The nodes are of several kinds: other GPUs, or another number of them.

    Why: each kind was compared within itself. A job across two kinds waits for the slower GPUs in every step, and needs
    the same number of ranks on each node.

    Fix: ask Slurm for one of them.
    """
    if len(fleet.roles) == 1:
        return Ok(f"one kind: {next(iter(fleet.roles))}")
    said = [f"{role} on {fold(nodes)}" for role, nodes in fleet.roles.items()]
    return Problem(
        f"{len(fleet.roles)} kinds of nodes: {'; '.join(said)}",
        "Each kind was compared within itself; a job across them waits for the slower GPUs in every step.",
        Fix("Ask for one kind: #SBATCH --gpus-per-node=TYPE:N, or a --constraint of the site."),
        {role: fold(nodes) for role, nodes in fleet.roles.items()},
    )


@check(Severity.INFO, source="mgpu: what differs on nearly every node cannot be compared", given=too_few)
def fleet_facts_scattered(fleet: Fleet) -> Answer:
    """Some facts are different on nearly every node, and were not compared.

    Why: they name the node itself, or something that is drawn anew on each. Nothing was found in them, and nothing can
    be.

    Fix: nothing.
    """
    facts = scattered(fleet).get("")  # the others are told where they belong
    if not facts:
        return Ok(f"{fleet.compared} facts compared")
    return Problem(
        f"{len(facts)} fact{'s differ' if len(facts) > 1 else ' differs'} from node to node: {', '.join(facts[:2])}",
        "No value of them has a majority: they were not compared.",
        Fix("Nothing; they are in each node's own file."),
        {"facts": ", ".join(facts[:12]), "compared": fleet.compared},
    )


@check(Severity.WARNING, source="mgpu: what is not known is never taken for good")
def fleet_facts_unread(fleet: Fleet) -> Answer:
    """Something could not be read on some nodes that could be on others, or a file is no saved machine.

    Why: a probe ran out of time, crashed, or was not allowed to look: a slow file system under the environment, a torch
    that hangs when it is imported. Nothing of it was compared on these nodes. What `--json` writes is a report, in
    which the facts are not.

    Fix: look at the node itself; save it with --save.
    """
    cause = "What is not known of a node cannot be called alike; a probe that timed out may be what a rank will meet."
    doctor, fix = (
        f"{ON_NODES} mgpu doctor -v",
        "See what the doctor says there.",
    )
    answer = judged(fleet, "unread", "everything could be read", doctor, cause=cause, fix=fix)
    if "driver" not in (*fleet.known, *fleet.unread) and isinstance(answer, Ok):
        told = "the driver was read on fewer than two nodes of a kind: their GPUs were not compared"
        answer = (Problem(told, cause, Fix("Save the nodes again.", _SAVE), {"known": ", ".join(fleet.known)}),)
    strangers = (_strangers(fleet.strangers),) if fleet.strangers else ()
    if not fleet.unread or isinstance(answer, Skip):
        return (*strangers, *(answer if isinstance(answer, tuple) else ())) or answer
    where = "every node" if len(fleet.roles) == 1 else "every node of a kind"
    nowhere = Problem(
        f"not known of {where}: "
        + ", ".join(f"{fact.replace('_', ' ')} ({why})" for fact, why in fleet.unread.items()),
        cause,
        Fix("See what the doctor says on one of them.", ("mgpu doctor -v",)),
        dict(fleet.unread),
    )
    return (*strangers, nowhere, *(answer if isinstance(answer, tuple) else ()))


_SAVE = ("srun --ntasks-per-node=1 bash -c 'mgpu doctor --quick --save nodes/$SLURMD_NODENAME.json'",)


def _strangers(files: Sequence[str]) -> Problem:
    """Files that were never a machine: no nodes, unless somebody took one for its node's."""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return Problem(
        f"{', '.join(files[:3])}{more}: no machine saved by mgpu doctor --save, and not compared",
        "If it is to be a node's, nothing is known of that node.",
        Fix("Save the node, or name the files that are nodes.", _SAVE),
        {"files": ", ".join(files)},
    )


@check(Severity.INFO, source="mgpu: every fact that is compared is told when it differs")
def fleet_rest_differs(fleet: Fleet) -> Answer:
    """Some nodes differ in facts that seldom matter.

    Why: It seldom matters to a run.
    More: It is the allocation, the version of mgpu, or what was not looked at on some nodes.

    Fix: Nothing, unless these nodes behave otherwise.
    """
    return judged(fleet, "rest", "nothing else differs")
