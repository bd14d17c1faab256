"""Does the script use the launcher's rendezvous, and shut down its process group?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, check, commands
from mgpu.command_line import python, shell
from mgpu.snapshot import Script, ScriptStart

from ._calls import DISTRIBUTED, FRAMEWORKS, INIT, TORCHRUN, argument, calls, finding, reached_calls, sets, text_of
from ._rank_paths import SPAWNS
from ._slurm_ranks import rank_from_mpi, rank_of_tasks

_DESTROYS = r".*destroy_process_group"
_STORE = (
    "A launcher sets MASTER_ADDR and MASTER_PORT, and its store listens there. No process listens on any other "
    "address, so init_process_group waits until its timeout, unless the launcher is given this address."
)
_LOOPBACK = ("localhost", "127.0.0.1")
# A port that a function chooses, other than the launcher's.
_IS_FREE_PORT = re.compile(r"(?:[\w.]+\.)?(?:randint|randrange|\w*(?:free|unused|random)_\w*port\w*)\(\)")
_MEETING = r"os\.environ\['(MASTER_PORT|MASTER_ADDR)'\]"


@check(Severity.WARNING, source=TORCHRUN, tags=("leads_to_hang", "starts_ranks"))
def script_starts_its_own_ranks(script: Script) -> Answer:
    """The script starts its ranks itself.

    Why: A launcher starts this script once per GPU, and each copy would start its own set of processes. They conflict
    over the same GPUs and the same port.
    More: That is so for mp.spawn, and for a script that runs torchrun or accelerate launch as a subprocess.

    Fix: Start it without a launcher.
    More: Or call its function once and let the launcher start the ranks.
    """
    found = script.spawns
    if not found:
        return Ok("the launcher starts the ranks")
    call = found[0]
    what = call.name.rpartition(".")[2]
    line = shell("python {:path}", script.path)
    line = shell("python -m {:dotted}", script.only_as_module) if script.only_as_module else line
    if call.name.startswith(("subprocess.", "os.")):
        return finding(script, call, f"{what}() starts a launcher itself", commands(line))
    return finding(
        script,
        call,
        f"{what} starts the ranks itself",
        (
            commands(line),
            Fix(
                f"Or call {call.arguments[0] if call.arguments else 'the function'} once, with the launcher's rank.",
                ("rank = int(os.environ['RANK'])",),
            ),
        ),
    )


@check(
    Severity.WARNING,
    source="measured torch 2.13 CPU 2026-11",
    tags=("leads_to_hang", "leads_to_rendezvous_error"),
)
def script_meeting_point_fixed(script: Script) -> Answer:
    """The script sets its own rendezvous address.

    Why: A launcher sets MASTER_ADDR and MASTER_PORT, and its store listens there. No process listens on any other port,
    so init_process_group waits until its timeout. Two runs on one machine would conflict, and several nodes cannot
    connect.

    Fix: Remove the address. init_process_group("nccl") reads the launcher's.
    """
    if _starts_its_ranks(script):
        return Ok("the script starts its ranks itself, or sets all of their variables")
    if _starts_with_deepspeed(script):
        return Ok("the deepspeed launcher has no store: rank 0 listens where the script says")
    if rank_of_tasks(script):
        return Ok("srun and mpirun have no store: rank 0 listens where the script says")
    for call in reached_calls(script, rf"{re.escape(INIT)}|deepspeed\.init_distributed"):
        method = text_of(argument(call, 1, "init_method")) or ""
        if method.startswith("tcp://") and "single" not in call.guards:
            backend = text_of(argument(call, 0, "backend")) or "nccl"
            fix = Fix(
                "Omit init_method, rank and world_size: all three come from the launcher.",
                (python('dist.init_process_group("{:id}")', backend),),
            )
            return finding(script, call, f"init_method is fixed: {method}", fix, why=_STORE)
    return _overwritten(script) or Ok("the launcher sets the rendezvous address")


def _overwritten(script: Script) -> Answer | None:
    """Return the finding about MASTER_PORT that the script sets to another value; None if there is none."""
    put = [one for one in sets(script, _MEETING) if one.reached]
    for one in put:
        sets_port = one.target.startswith("os.environ['MASTER_PORT")
        unless = any(word in condition for condition in one.conditions for word in ("MASTER", "environ", "RANK"))
        given = text_of(one.value) or (one.value if sets_port and _IS_FREE_PORT.fullmatch(one.value) else None)
        if given is None or unless or {"single", "some"} & set(one.guards) or script.speaks is None:
            continue
        others = [other for other in put if other is not one]
        ports = {text_of(other.value) for other in (one, *others) if "PORT" in other.target}
        if same := next((start for start in script.starts if _port_of(start) in ports), None):
            return Ok(f"{same.file} line {same.line} gives the launcher the same port")
        if sets_port or any("PORT" in other.target for other in others):
            name = one.target[12:-2]
            fix = Fix("Remove the line. The launcher sets the address.")
            if text_of(one.value) is not None:
                line = python("os.environ.setdefault('{:name}', '{:host}')", name, given)
                fix = Fix("Remove the line, or set only a default.", (line,))
            return finding(script, one, f"{name} is overwritten with {given}", fix, others, why=_STORE)
    return None


@check(Severity.INFO, source=TORCHRUN, because_of=("script_meeting_point_fixed",))
def script_requires_port(script: Script) -> Answer:
    """The script overwrites MASTER_PORT, so a launcher must be given the same port.

    Why: The launcher's store listens at the launcher's port. The project's own start command gives the launcher this
    port. With any other launcher, init_process_group waits until its timeout.

    Fix: Remove the line, so that every launcher can start the script.
    """
    if _starts_its_ranks(script) or _starts_with_deepspeed(script) or rank_of_tasks(script):
        return Ok("no launcher with a store of its own starts the ranks")
    for one in sets(script, r"os\.environ\['MASTER_PORT'\]"):
        unless = any(word in condition for condition in one.conditions for word in ("MASTER", "environ", "RANK"))
        port = text_of(one.value)
        if not one.reached or unless or not port or {"single", "some"} & set(one.guards):
            continue
        if any(_port_of(start) == port for start in script.starts):
            fix = Fix(
                f"Remove the line, or give each launcher the port {port}.",
                (shell("torchrun --master_port={:host} ...", port),),
            )
            return finding(script, one, f"only a launcher with port {port} can start the ranks", fix)
    return Ok("the script does not overwrite the port that its start command gives")


def _starts_its_ranks(script: Script) -> bool:
    """Whether the script starts its ranks itself, or sets all of their variables."""
    own = script.spawns or reached_calls(script, SPAWNS.pattern) or _starts_processes(script)
    return bool(own or any(one.reached for one in sets(script, r"os\.environ\['RANK'\]")))


@check(Severity.INFO, source=DISTRIBUTED, tags=("leads_to_hang",))
def script_rendezvous_on_own_node(script: Script) -> Answer:
    """The ranks that srun or mpirun starts have localhost as rendezvous address, so the job can have only one node.

    Why: Rank 0 listens at this address. On a second node, localhost is that node itself: its ranks do not reach rank 0,
    and init_process_group waits until its timeout.

    Fix: Set MASTER_ADDR to the first node of the job, in the job script, and do not overwrite it.
    """
    if not rank_of_tasks(script) or _starts_its_ranks(script):
        return Ok("a launcher with a store of its own, or the script itself, starts the ranks")
    put = [one for one in sets(script, _MEETING) if one.reached and "ADDR" in one.target]
    put = [one for one in put if not one.conditions and not one.guards and text_of(one.value) in _LOOPBACK]
    methods = [call for call in reached_calls(script, re.escape(INIT)) if not call.conditions and not call.guards]
    methods = [call for call in methods if _is_loopback(text_of(argument(call, 1, "init_method")) or "")]
    if not put and not methods:
        return Ok("the rendezvous address is not localhost")
    fix = commands('export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)"')
    if rank_from_mpi(script) is not None:
        fix = commands("mpirun -x MASTER_ADDR=HOST_OF_RANK_0 ...")
    where = put[0] if put else methods[0]
    return finding(script, where, "the rendezvous address is localhost, so all ranks must be on one node", fix)


def _is_loopback(method: str) -> bool:
    """Whether an init_method names the node itself."""
    return any(method.startswith(f"tcp://{host}:") for host in _LOOPBACK)


def _starts_processes(script: Script) -> bool:
    """Whether the script starts a process for each rank, which joins a group."""
    joining = {call.function for call in reached_calls(script, re.escape(INIT)) if "rank" in call.keywords}
    started = [call for call in reached_calls(script, r"(?:torch\.)?multiprocessing\.Process") if call.loops]
    return any(call.keywords.get("target", "").rpartition(".")[2] in joining for call in started)


def _starts_with_deepspeed(script: Script) -> bool:
    """Whether the deepspeed launcher may start the script."""
    imported = any(name.partition(".")[0] == "deepspeed" for name in script.imports)
    return imported or any(one.launcher == "deepspeed" for one in script.starts)


def _port_of(start: ScriptStart) -> str:
    """Return the port that a launcher is given; empty if none."""
    found = re.search(r"--(?:master|main_process)[_-]port[= ](\d+)", " ".join(start.options))
    return found[1] if found else ""


@check(Severity.INFO, source="https://docs.pytorch.org/docs/stable/distributed.html#shutdown")
def script_group_not_ended(script: Script) -> Answer:
    """The script starts a process group but never destroys it.

    Why: torch warns "process group has NOT been destroyed", and a rank that exits early can make the others hang or
    report an error after a successful run.
    More: NCCL's threads and buffers stay until the process exits.

    Fix: Destroy it at the end of the script.
    """
    found = reached_calls(script, re.escape(INIT))
    if not found or script.speaks in FRAMEWORKS:
        return Ok("no process group is started by hand")
    if ended := calls(script, _DESTROYS):
        return Ok(f"the process group is destroyed in line {ended[0].line}")
    if script.cut or script.unread:
        return Ok("not all imported modules were read")
    return finding(
        script,
        found[0],
        "the process group is started here but never destroyed",
        commands("torch.distributed.destroy_process_group()"),
    )
