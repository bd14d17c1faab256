"""Is the launcher started once on every node?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import JobCommand, JobScript

from ._amounts import evaluate, gpus_per_node, nodes, tasks_per_node
from ._findings import MEASURED, SRUN, finding, needs_whole_script, shorten, unread_work
from ._launches import (
    PER_NODE,
    has_hidden_options,
    launcher_option,
    may_be_multi_node,
    per_node_launches,
    runs_on_nodes,
    srun_option,
    srun_step,
)

# Options with which DeepSpeed starts processes on the other nodes itself (deepspeed --help, 0.18).
_REACHES = ("hostfile", "H", "launcher", "no_ssh", "node_rank")
# Arguments of a Python program that starts the nodes itself.
_SUBMITS = re.compile(r"submitit|slurm|\bsrun\b|\bhostfile\b|\bray\b", re.IGNORECASE)
_ON_NODES = "srun --ntasks-per-node=1 --kill-on-bad-exit=1"


@check(Severity.ERROR, source="https://github.com/huggingface/accelerate/issues/2816")
@needs_whole_script
def job_launcher_outside_srun(job_script: JobScript) -> Answer:
    """The job has several nodes, but training is started only on the first.

    Why: Slurm runs the script on the first node only. The launcher waits there for the other nodes, which never start.
    More: It waits until the rendezvous times out (RendezvousTimeoutError), or trains on one node while the others are
    idle.

    Fix: Start it on every node, with one task per node.
    """
    spreads, amount = any(runs_on_nodes(one) for one in job_script.commands), nodes(job_script)
    launches = [one for one in job_script.launches if not one.inner and (one.launcher in PER_NODE or _trains(one))]
    if not any(one.launcher in PER_NODE for one in launches) and (amount is None or amount < 2 or spreads):
        return Ok("no launcher of torch or accelerate")
    if not job_script.directives and not spreads:
        return Skip("it has no #SBATCH line, so srun may start it on every node")
    starting = [one for one in launches if one.launcher in PER_NODE] or launches[-1:]
    outside = [one for one in starting if not runs_on_nodes(one)]
    if any(runs_on_nodes(one) for one in job_script.launches):
        bare = [one for one in outside if not one.unsure and _has_multi_node_option(job_script, one)]
    else:
        bare = [one for one in outside if may_be_multi_node(job_script, one)]
    if not bare or _started_elsewhere(job_script):
        return Ok("srun starts the launcher" if spreads else "the launcher runs on one node")
    of = f"{amount} nodes" if amount and amount > 1 else "several nodes"
    name = bare[0].words[0].rsplit("/", 1)[-1]
    return finding(
        job_script,
        bare[0].line,
        f"{name} runs only on the first node, but the job has {of}",
        (
            commands(shell(f"{_ON_NODES} {{:id}} ...", name)),
            Fix("Options that differ between nodes need a shell on each node.", (_command_in_shell(bare[0], name),)),
        ),
        [one.line for one in bare],
        nodes=amount,
    )


def _trains(command: JobCommand) -> bool:
    """Whether a Python script started without a launcher belongs to a process group."""
    return command.uses is not None and "process group" in command.uses and "srun" not in command.uses


def _started_elsewhere(job: JobScript) -> bool:
    """Whether something that was not read may start the nodes: a file, or a Python program that calls srun."""
    return bool(unread_work(job)) or any(
        "srun" in (one.uses or ()) or _SUBMITS.search(" ".join(one.words[one.script or 0 :])) for one in job.launches
    )


@check(Severity.WARNING, source=SRUN)
@needs_whole_script
def job_python_outside_srun(job_script: JobScript) -> Answer:
    """The job has several nodes, but a Python script runs only on the first.

    Why: Slurm runs the script on the first node only. The other nodes are idle unless the Python script starts them.

    Fix: Start it on every node with srun, or request one node.
    """
    launches = [one for one in job_script.launches if one.launcher == "python" and not one.inner]
    amount = nodes(job_script)
    if amount is None or amount < 2 or len(launches) < len([one for one in job_script.launches if not one.inner]):
        return Ok("no Python script alone on several nodes")
    if not launches or any(runs_on_nodes(one) for one in job_script.commands) or _started_elsewhere(job_script):
        return Ok("a program starts the other nodes, or no Python script runs")
    if any(_trains(one) for one in launches):
        return Ok("it trains: see job_launcher_outside_srun")
    last = launches[-1]
    name = last.words[last.script] if last.script is not None else "python"
    return finding(
        job_script,
        last.line,
        f"{shorten(name, 40)} runs only on the first of {amount} nodes",
        (commands("srun --kill-on-bad-exit=1 ..."), Fix("Or request one node.", ("#SBATCH --nodes=1",))),
        nodes=amount,
    )


_SLURM = "https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html"
_HIDES_SLURM = ("SLURM_NTASKS", "SLURM_JOB_NAME")  # without the first, or with another name, Lightning ignores Slurm


@check(Severity.WARNING, source=_SLURM)
@needs_whole_script
def job_lightning_outside_srun(job_script: JobScript) -> Answer:
    """A Lightning script runs without srun on a node with several GPUs.

    Why: Slurm's variables make Lightning expect one task per GPU, which srun starts. Without srun there is one process:
    with --ntasks=1 it trains on one GPU, and on its part of the data only. Otherwise it stops, or waits for the others.
    More: Measured with Lightning 2.6 and 2 devices. --ntasks=1: world size 1, half of the samples.
    --ntasks-per-node=1: ValueError. Lightning reads SLURM_NTASKS, which Slurm sets for --ntasks and --ntasks-per-node,
    unless the job's name is bash or interactive.

    Fix: Request one task per GPU, and start it with srun.
    """
    launches = [one for one in job_script.launches if one.launcher == "python" and "Lightning" in (one.uses or ())]
    alone = [one for one in launches if not (runs_on_nodes(one) or one.unsure or one.inner)]
    if not alone or (nodes(job_script) or 1) > 1:
        return Ok("no Lightning script without srun on one node")
    gpus = gpus_per_node(job_script)
    if job_script.directive("ntasks", "ntasks-per-node") is None or gpus is None or gpus < 2:
        return Ok("no --ntasks, or not several GPUs")
    if _hides_slurm(job_script, alone[0]):
        return Ok("Lightning starts the ranks itself")
    name = shorten(alone[0].words[alone[0].script or 0].rpartition("/")[2], 40)
    return finding(
        job_script,
        alone[0].line,
        f"{name} uses Lightning without srun: one process on a node with {gpus} GPUs",
        (
            commands(shell("#SBATCH --ntasks-per-node={}", gpus), "srun --kill-on-bad-exit=1 python ..."),
            Fix("Or let Lightning start the ranks itself.", ("SLURM_JOB_NAME=bash python ...",)),
        ),
        gpus=gpus,
    )


def _hides_slurm(job: JobScript, command: JobCommand) -> bool:
    """Whether the script makes Lightning ignore Slurm's variables."""
    name = job.directive("job-name")
    changed = [*command.env, *(one.name for one in job.sets)]
    removed = [word for one in job.commands if one.words[0] in ("unset", "env") for word in one.words]
    return (
        (name is not None and name.value in ("bash", "interactive"))
        or any(one in _HIDES_SLURM for one in changed)
        or any(one.rpartition("=")[0] in _HIDES_SLURM or one in _HIDES_SLURM for one in removed)
    )


def _command_in_shell(command: JobCommand, name: str) -> str:
    rank = "node_rank" if command.launcher == "torchrun" else "machine_rank"
    return shell(f"{_ON_NODES} bash -c '{{:id}} ... --{rank} $SLURM_NODEID ...'", name)


@check(Severity.ERROR, source=MEASURED)
@needs_whole_script
def job_launchers_several_per_node(job_script: JobScript) -> Answer:
    """More than one launcher runs per node, and each starts a rank per GPU.

    Why: With --ntasks-per-node above 1, every task is a separate torchrun or accelerate. The first ones form the world
    on a single node (measured), and the other nodes are idle. Or they conflict over the port.

    Fix: Use one task per node. The launcher starts the ranks.
    More: Or use one task per GPU and no launcher.
    """
    launches = [one for one in per_node_launches(job_script) if one.step is not None]
    if not launches:
        return Ok("srun starts no launcher")
    for one in launches:
        amount = _tasks(job_script, one)
        if amount is None or amount < 2:
            continue
        directive = job_script.directive("ntasks-per-node", "ntasks")
        step = srun_step(job_script, one)
        assert step is not None
        named = srun_option(step, "ntasks-per-node") is not None or srun_option(step, "ntasks") is not None
        line = step.line if named or directive is None else directive.line
        name = one.words[0].rsplit("/", 1)[-1]
        return finding(
            job_script,
            line,
            f"{amount} tasks per node, each running {name}",
            (
                commands("#SBATCH --ntasks-per-node=1"),
                Fix(
                    "Or keep the tasks, and start the script itself: srun python train.py, with RANK, LOCAL_RANK and "
                    "WORLD_SIZE from SLURM_PROCID, SLURM_LOCALID and SLURM_NTASKS."
                ),
            ),
            [one.line],
            why=f"srun starts {amount} launchers per node, and each starts a rank for every GPU.",
            tasks_per_node=amount,
        )
    return Ok("one launcher per node")


def _has_multi_node_option(job: JobScript, command: JobCommand) -> bool:
    """Whether a launcher has an option for several nodes; without one it may only prepare or test something."""
    given = launcher_option(command, "nnodes", "num_machines")
    amount = evaluate(job, given[0].partition(":")[0]) if given else None
    return amount is not None and amount > 1


def _tasks(job: JobScript, command: JobCommand) -> int | None:
    """Return the number of tasks per node that run a command; None if not known."""
    step = srun_step(job, command)
    if (each := srun_option(step, "ntasks-per-node")) is not None:
        return evaluate(job, each)
    if (total := srun_option(step, "ntasks")) is not None:
        amount, over = evaluate(job, total), srun_option(step, "nodes")
        on = evaluate(job, over) if over is not None else nodes(job)
        if total.strip() in ("$SLURM_NNODES", "${SLURM_NNODES}", "$SLURM_JOB_NUM_NODES", "${SLURM_JOB_NUM_NODES}"):
            return 1
        return max(1, amount // on) if amount and on else None
    if has_hidden_options(step):
        return None  # options in a variable
    return tasks_per_node(job)


@check(Severity.ERROR, source="https://www.deepspeed.ai/getting-started/")
@needs_whole_script
def job_deepspeed_without_hosts(job_script: JobScript) -> Answer:
    """The job has several nodes, but the deepspeed launcher does not know them.

    Why: It does not read Slurm's variables. Without a hostfile, it uses only the GPUs of this node.
    More: "Unable to find hostfile, will proceed with training with local resources only": the other nodes are idle.
    Under srun, each node trains its own model.

    Fix: Start the ranks of every node with torchrun, which runs a DeepSpeed script unchanged.
    More: Or start one launcher per node, and pass it its rank.
    """
    launches = [one for one in job_script.launches if one.launcher == "deepspeed" and not one.inner]
    amount = nodes(job_script)
    if not launches:
        return Ok("no deepspeed launcher")
    if amount is None:
        return Skip("the number of nodes is not known")
    bare = [one for one in launches if not any(launcher_option(one, name) for name in _REACHES)]
    if amount < 2 or not bare:
        return Ok("the nodes are configured, or there is only one")
    return finding(
        job_script,
        bare[0].line,
        f"deepspeed does not know the {amount} nodes",
        (
            commands(
                "srun --ntasks-per-node=1 --kill-on-bad-exit=1 torchrun --nnodes=$SLURM_JOB_NUM_NODES "
                "--nproc-per-node=$SLURM_GPUS_ON_NODE --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d "
                "--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py"
            ),
            Fix(
                "Or pass each one its rank.",
                (
                    "srun --ntasks-per-node=1 bash -c 'deepspeed --no_ssh --num_nodes $SLURM_NNODES "
                    "--node_rank $SLURM_NODEID --master_addr $MASTER_ADDR --master_port $MASTER_PORT ...'",
                ),
            ),
        ),
        nodes=amount,
    )


@check(Severity.WARNING, source=SRUN)
@needs_whole_script
def job_installs_packages_on_every_node(job_script: JobScript) -> Answer:
    """Every task of an srun step installs packages at once.

    Why: Several tasks write to the same environment at the same time.
    More: The environment is usually on a file system that all nodes share. A node may find a half-written package, and
    its ranks fail to import it.

    Fix: Install before you submit, or once without srun before training starts.
    """
    found = [
        one
        for one in job_script.commands
        if one.step is not None
        and _installs(one.words)
        and step_tasks(job_script, one) != 1
        and not _alone_in_container(job_script, one)
    ]
    if not found:
        return Ok("srun installs nothing")
    return finding(
        job_script,
        found[0].line,
        f"{' '.join(found[0].words[:3])} runs on every task at once",
        commands(shell("srun --nodes=1 --ntasks=1 {:argument} ...", found[0].words[:3])),
        [one.line for one in found],
    )


def _alone_in_container(job: JobScript, command: JobCommand) -> bool:
    """Whether a node's only task of a step has a container of its own (pyxis)."""
    of_image = srun_option(srun_step(job, command), "container-image") is not None
    return of_image and _tasks(job, command) in (1, None)


def _installs(words: tuple[str, ...]) -> bool:
    name = words[0].rsplit("/", 1)[-1]
    if name.startswith("python") and words[1:3] == ("-m", "pip"):
        return "install" in words[3:4]
    return (name in ("pip", "pip3") and "install" in words[1:2]) or (name == "conda" and "install" in words[1:2])


def step_tasks(job: JobScript, command: JobCommand) -> int | None:
    """Return the number of tasks of a command's step; None if not known."""
    step = srun_step(job, command)
    total = srun_option(step, "ntasks")
    if total is not None:
        return evaluate(job, total)
    over = srun_option(step, "nodes")
    on = evaluate(job, over) if over is not None else nodes(job)
    each = _tasks(job, command)
    return on * each if on and each else None
