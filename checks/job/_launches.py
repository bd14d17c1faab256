"""What does a job script start, on which nodes, and with which options?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from mgpu.check import Answer, Ok, Skip
from mgpu.known_launchers import KNOWN, KnownLauncher
from mgpu.snapshot import JobCommand, JobScript, JobSet, JobVariable

from ._amounts import evaluate, nodes

# fmt: off
# Programs that start a command on the job's nodes or on hosts they are given.
SPREADS = frozenset({
    "srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun", "ibrun", "jsrun", "aprun", "lrun",
    "ssh", "pdsh", "clush", "horovodrun", "flux", "parallel", "dsh", "xargs",
})
# Launchers that run once per node and start the node's ranks.
PER_NODE = frozenset(name for name, known in KNOWN.items() if known.per_node)
_SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "K": "kill-on-bad-exit", "W": "wait",
    "w": "nodelist", "l": "label", "o": "output", "e": "error", "x": "exclude", "F": "nodefile", "r": "relative",
}
# fmt: on
_SRUN_SWITCHES = "EHIkKlOQsuvX"  # short options without a value, which can precede another: -lN2


def ok_if_nodes_known(job: JobScript, launches: Sequence[JobCommand], text: str) -> Answer:
    """Return Ok, or Skip if it is not known whether a launch is for several nodes."""
    unknown = any(is_multi_node(job, command) is None for command in launches)
    return Skip("the number of nodes it trains on is not known") if unknown else Ok(text)


def launcher_option(command: JobCommand, *names: str) -> tuple[str, int] | None:
    """Return the value of a launcher option ("" if it has none) and the index of its word; None if not set."""
    return option_of(command.words, 1, len(command.words) if command.script is None else command.script, names)


def option_of(words: Sequence[str], start: int, end: int, names: Sequence[str]) -> tuple[str, int] | None:
    """Return the value of the last such option between two words, and its index; None if there is none."""
    wanted = {name.replace("-", "_") for name in names if name}
    found: tuple[str, int] | None = None
    for place in range(start, end):
        name, equals, value = words[place].partition("=")
        if not name.startswith("-") or name.lstrip("-").replace("-", "_") not in wanted:
            continue
        following = words[place + 1] if place + 1 < end else ""
        if equals:
            found = value, place
        else:
            found = ("", place) if following.startswith("--") or place + 1 >= end else (following, place + 1)
    return found


def srun_step(job: JobScript, command: JobCommand) -> JobCommand | None:
    """Return the srun command that starts a command; None if there is none."""
    return job.commands[command.step] if command.step is not None and command.step < len(job.commands) else None


def srun_option(step: JobCommand | None, name: str) -> str | None:
    """Return the value of an srun option; "" for one without a value, None if it is not set."""
    if step is None:
        return None
    found = None
    letter = next((one for one, long in _SHORT.items() if long == name), None)
    words = step.words
    for place, word in enumerate(words[1:], 1):
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            if given == name or (name == "ntasks-per-node" and given == "tasks-per-node"):
                following = words[place + 1] if place + 1 < len(words) else ""
                found = value if equals else "" if following.startswith("-") else following
        elif letter and (bundled := re.match(rf"-[{_SRUN_SWITCHES}]*{letter}(.*)", word)):
            following = words[place + 1] if place + 1 < len(words) else ""
            found = bundled[1] or ("" if following.startswith("-") or letter == "K" else following)
    return found


def has_hidden_options(step: JobCommand | None) -> bool:
    """Whether an srun has options in a variable whose value is not known."""
    return step is not None and any(
        word.startswith("$") and not step.words[place].startswith("-") and "=" not in word.partition("$")[0]
        for place, word in enumerate(step.words[1:], 1)
        if not step.words[place - 1].startswith("-") or step.words[place - 1] in ("-l", "-u", "--label")
    )


def nodes_of(job: JobScript, command: JobCommand) -> int | None:
    """Return the number of nodes a command runs on; None if not known."""
    step = srun_step(job, command)
    given = srun_option(step, "nodes")
    if given is not None:
        return evaluate(job, given)
    if (
        has_hidden_options(step)
        or srun_option(step, "nodelist") is not None
        or srun_option(step, "exclude") is not None
    ):
        return None
    return nodes(job)


def is_multi_node(job: JobScript, command: JobCommand) -> bool | None:
    """Whether a launch is meant for several nodes; None if not known."""
    amount = nodes_of(job, command)
    if amount is not None:
        return amount > 1
    requested = launcher_option(command, "nnodes", "num_machines")
    if requested is None:
        return None
    wanted = evaluate(job, requested[0].partition(":")[0])
    return True if wanted is not None and wanted > 1 else None if wanted is None else False


def may_be_multi_node(job: JobScript, command: JobCommand) -> bool:
    """Like `is_multi_node`, but a number of nodes that is a variable also counts as several."""
    known = is_multi_node(job, command)
    if known is not None:
        return known
    requested = launcher_option(command, "nnodes", "num_machines")
    return requested is not None and "$" in requested[0]


def per_node_launches(job: JobScript) -> list[JobCommand]:
    """Return the launches of launchers that run once per node, such as torchrun and accelerate."""
    return [command for command in job.launches if command.launcher in PER_NODE and not command.inner]


def _known_launcher(command: JobCommand) -> KnownLauncher:
    return KNOWN[command.launcher] if command.launcher else KnownLauncher()


def runs_on_nodes(command: JobCommand) -> bool:
    """Whether a program such as srun starts the command on the nodes."""
    return bool(SPREADS & set(command.through))


def word_variables(command: JobCommand, word: int) -> list[JobVariable]:
    """Return the variables in one word of a command."""
    return [one for one in command.variables if one.word == word]


def rendezvous_backend(command: JobCommand) -> str:
    """Return the rendezvous backend set on the command line: "static", "c10d", ..."""
    given = launcher_option(command, "rdzv_backend")
    if given is not None:
        return given[0]
    if command.launcher == "torchrun" and launcher_option(command, "standalone") is not None:
        return "c10d"
    return "static"


def rendezvous_host(command: JobCommand) -> tuple[str, int] | None:
    """Return the rendezvous host without the port, and the index of its word; None if not set."""
    known = _known_launcher(command)
    if (endpoint := launcher_option(command, known.endpoint)) is not None:
        return re.sub(r":[^:)}]*$|:\$\(\(.*\)\)$", "", endpoint[0]), endpoint[1]
    return launcher_option(command, known.address)


def rendezvous_port(command: JobCommand) -> tuple[str, int] | None:
    """Return the rendezvous port and the index of its word; None if not set."""
    known = _known_launcher(command)
    endpoint = launcher_option(command, known.endpoint)
    if endpoint is not None and ":" in endpoint[0]:
        found = re.search(r":([^:]*|\$\(\(.*\)\)|\$\{.*\})$", endpoint[0])
        return (found[1], endpoint[1]) if found else None
    return launcher_option(command, known.port)


def hides_options(command: JobCommand) -> bool:
    """Whether a launcher has options in a variable whose value is not known."""
    given = command.arguments
    return any(
        word.startswith("$") and (place == 0 or not given[place - 1].startswith("-") or "=" in given[place - 1])
        for place, word in enumerate(given)
    )


def starts_single_ranks(job: JobScript) -> bool:
    """Whether every launcher certainly starts one rank, and no Python script may start more."""
    launches = [one for one in job.launches if not one.inner]
    of_launchers = [one for one in launches if one.starts_ranks]
    others = [one for one in launches if not one.starts_ranks]
    return (
        bool(of_launchers)
        and all(_starts_one_rank(job, one) for one in of_launchers)
        and all(one.uses == () and one.step is None for one in others)
    )


def _starts_one_rank(job: JobScript, command: JobCommand) -> bool:
    def number(*names: str) -> int | None:
        given = launcher_option(command, *names)
        return 1 if given is None else evaluate(job, given[0])

    several = command.launcher == "deepspeed" and launcher_option(command, "hostfile", "num_nodes") is not None
    if several or hides_options(command):
        return False
    if command.launcher == "torchrun":
        return number("nproc_per_node") == 1 and number("nnodes") == 1
    option = {"accelerate": "num_processes", "deepspeed": "num_gpus"}.get(command.launcher or "", "")
    return launcher_option(command, option) is not None and number(option) == 1


def last_assignments(job: JobScript) -> list[JobSet]:
    """Return the assignments that no later one replaces, and none of those in branches if there are several."""
    last = {(one.name, one.on_node): place for place, one in enumerate(job.sets) if not one.unsure}
    several = Counter(one.name for one in job.sets)
    return [
        one
        for place, one in enumerate(job.sets)
        if place >= last.get((one.name, one.on_node), 0) and not (one.unsure and several[one.name] > 1)
    ]
