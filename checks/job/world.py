"""Does the number of ranks fit the nodes and GPUs that the job requests?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.snapshot import Config, JobCommand, JobScript

from ._amounts import evaluate, gpus_per_node, has_one_node, is_heterogeneous, nodes
from ._findings import ACCELERATE, MEASURED, TORCHRUN, finding, needs_whole_script, ok_unless_cut, shorten
from ._launches import (
    hides_options,
    is_multi_node,
    launcher_option,
    nodes_of,
    ok_if_nodes_known,
    option_of,
    per_node_launches,
    runs_on_nodes,
)

_OWN = re.compile(r"SLURM_(?:PROCID|NODEID)$")
# Names of variables for a part of the GPUs, and options of a script that starts processes itself.
_PART = re.compile(
    r"(?:GPU|PROC|RANK|WORKER)\w*(?:TRAIN|POLICY|ACTOR|LEARNER|ROLLOUT|VLLM|INFER|SERV|TEACHER|REWARD)"
    r"|(?:TRAIN|POLICY|ACTOR|LEARNER|ROLLOUT|VLLM|INFER|SERVE|SERVING|TEACHER|REWARD)\w*(?:GPU|PROC|RANK|WORKER)",
    re.IGNORECASE,
)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU_LIST = re.compile(r"\d{1,3}(?:,\d{1,3})*")
_SPAWNS = ("num_processes", "nproc_per_node", "num_gpus", "ngpus", "gpus", "n_gpus", "world_size", "nprocs", "devices")
_NPROC = ("nproc_per_node",)
_WORLD = "$((SLURM_JOB_NUM_NODES * SLURM_GPUS_ON_NODE))"


@check(Severity.ERROR, source=TORCHRUN, because_of=("job_continued_line_broken", "job_dash_typographic"))
@needs_whole_script
def job_nodes_not_told_to_launcher(job_script: JobScript) -> Answer:
    """The launcher runs on several nodes, but is configured for one.

    Why: Every node is a separate run, and all write the same files.
    More: That happens with torchrun without --nnodes, and accelerate without --num_machines: the same model is trained
    several times.

    Fix: Set the number of nodes.
    """
    for command in per_node_launches(job_script):
        if nodes_of(job_script, command) in (None, 0, 1) or not runs_on_nodes(command) or hides_options(command):
            continue
        name = "nnodes" if command.launcher == "torchrun" else "num_machines"
        given = launcher_option(command, name)
        if given is None and command.launcher == "accelerate" and launcher_option(command, "config_file") is not None:
            continue
        if given is None and any(one.name == "PET_NNODES" for one in job_script.sets):
            continue
        configured = 1 if given is None else evaluate(job_script, given[0].partition(":")[0])
        alone = launcher_option(command, "standalone") if command.launcher == "torchrun" else None
        if alone is not None and any(one.on_node and _OWN.match(one.name) for one in command.variables):
            continue  # separate runs on purpose: --standalone ... --seed $SLURM_PROCID
        if configured == 1 or alone is not None:
            what = "--standalone" if alone is not None else f"no --{name}" if given is None else f"--{name} 1"
            return finding(
                job_script,
                command.line if given is None and alone is None else command.line_of((alone or given or ("", 0))[1]),
                f"{what}: each of the {nodes_of(job_script, command)} nodes trains alone",
                commands(f"--{name} $SLURM_JOB_NUM_NODES"),
                nodes=nodes_of(job_script, command),
            )
    unset = [
        one
        for one in per_node_launches(job_script)
        if runs_on_nodes(one) and launcher_option(one, "nnodes", "num_machines", "config_file") is None
    ]
    return ok_if_nodes_known(job_script, unset, "the launchers get the number of nodes")


@check(Severity.ERROR, source=MEASURED)
@needs_whole_script
def job_processes_do_not_divide(job_script: JobScript) -> Answer:
    """num_processes is not a multiple of the number of nodes.

    Why: accelerate divides, and drops the remainder.
    More: 7 processes on 2 nodes become 3 on each, and 2 on 4 nodes become none at all (measured).

    Fix: Set it to nodes times GPUs per node.
    """
    for command in per_node_launches(job_script):
        given = launcher_option(command, "num_processes") if command.launcher == "accelerate" else None
        processes = evaluate(job_script, given[0]) if given else None
        machines = launcher_option(command, "num_machines")
        amount = evaluate(job_script, machines[0]) if machines else None
        if given is None or processes is None or not amount or amount < 2:
            continue
        if processes % amount:
            each = processes // amount
            return finding(
                job_script,
                command.line_of(given[1]),
                f"{processes} processes on {amount} nodes: accelerate starts {each or 'none'} on each",
                commands(f"--num_processes {_WORLD}"),
                processes=processes,
                nodes=amount,
            )
    return Ok("num_processes is a multiple of the nodes")


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/generated/torch.cuda.set_device.html")
@needs_whole_script
def job_processes_outnumber_gpus(job_script: JobScript) -> Answer:
    """The launcher starts more ranks per node than the job has GPUs.

    Why: The extra ranks have no GPU.
    More: They stop with "invalid device ordinal", or two ranks share a GPU, which NCCL rejects ("Duplicate GPU
    detected").

    Fix: Request one GPU for each rank.
    More: Or start fewer ranks.
    """
    gpus = gpus_per_node(job_script)
    if gpus is None:
        return Skip("the number of GPUs per node is not known")
    alone = job_script.directive("exclusive")
    if alone is not None and alone.value is None:
        return Skip("--exclusive gives the job all GPUs of its nodes")
    for command in per_node_launches(job_script):
        found = _ranks_per_node(job_script, command)
        if found and found[0] > gpus and not _on_cpu(command):
            return finding(
                job_script,
                found[1],
                f"{found[0]} ranks per node, but the job requests {gpus} GPU{'s' * (gpus != 1)} per node",
                (
                    commands(shell("#SBATCH --gpus-per-node={:number}", found[0])),
                    Fix("Or start one rank per GPU.", (_one_per_gpu(command),)),
                ),
                ranks=found[0],
                gpus=gpus,
            )
    return Ok(f"{gpus} GPU{'s' * (gpus != 1)} per node, and no more ranks than that")


@check(Severity.WARNING, source=TORCHRUN)
@needs_whole_script
def job_rank_per_cpu_core(job_script: JobScript) -> Answer:
    """The option --nproc-per-node=auto counts CPU cores, because the job sees no GPU.

    Why: Without a GPU, auto is the number of CPU cores, so a node with 128 cores starts 128 ranks.
    More: "auto" is the number of GPUs only if torch sees one.

    Fix: Write the number of ranks.
    """
    given = job_script.directive("partition")
    on_cpu = given is not None and re.search(r"(?:^|[_-])cpu", given.value or "") and gpus_per_node(job_script) is None
    hidden = any(one.name == "CUDA_VISIBLE_DEVICES" and one.value in ("", "-1") for one in job_script.sets)
    for command in per_node_launches(job_script):
        amount = launcher_option(command, *_NPROC)
        if amount is None or amount[0] != "auto":
            continue
        if on_cpu or hidden or command.env.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
            why = "CUDA_VISIBLE_DEVICES hides all GPUs" if not on_cpu else "the job requests no GPU"
            return finding(
                job_script,
                command.line_of(amount[1]),
                f"--nproc-per-node=auto starts one rank per CPU core: {why}",
                commands("--nproc-per-node=1"),
            )
    return Ok("no launcher counts CPU cores as GPUs")


@check(Severity.WARNING, source=MEASURED)
@needs_whole_script
def job_gpus_left_idle(job_script: JobScript) -> Answer:
    """The job uses fewer GPUs per node than it requests: fewer ranks, or CUDA_VISIBLE_DEVICES hides some.

    Why: The other GPUs are idle, and nothing reports it.
    More: The run succeeds, but takes longer. accelerate's num_processes counts the ranks of all nodes; the most common
    mistake is the number for one node (measured: exit 0 with half of the GPUs).

    Fix: Start one rank per GPU.
    """
    gpus = gpus_per_node(job_script)
    if gpus is None:
        return Skip("the number of GPUs per node is not known")
    if (hidden := _hidden_gpus(job_script, gpus)) is not None:
        return hidden
    launches = per_node_launches(job_script)
    if len([one for one in launches if one.background or one.unsure]) > 1:
        return Skip("several launches may share the GPUs")
    for command in launches:
        found = _ranks_per_node(job_script, command)
        if (
            found
            and 0 < found[0] < gpus
            and not _on_cpu(command)
            and not _may_share_gpus(job_script, command)
            and not _on_purpose(job_script, command, found[0])
        ):
            return finding(
                job_script,
                found[1],
                f"{found[0]} rank{'s' * (found[0] != 1)} per node, but the job requests {gpus} GPUs per node",
                commands(_one_per_gpu(command)),
                ranks=found[0],
                gpus=gpus,
            )
    return Ok("no GPU is left idle by the number of ranks")


def _hidden_gpus(job: JobScript, gpus: int) -> Problem | None:
    """Return the problem of GPUs that CUDA_VISIBLE_DEVICES hides from every launch; None if that is not certain."""
    launches = [one for one in job.launches if not one.inner]
    one_node = has_one_node(job) or (nodes(job) == 1 and not is_heterogeneous(job))
    if not launches or any(one.background for one in job.commands) or not one_node:
        return None
    seen = [(_visible_to(job, one), one.line) for one in launches]
    lists = [one[0] for one, _ in seen if one is not None]
    used = {number for one in lists for number in one.split(",")}
    if len(lists) < len(launches) or not all(_GPU_LIST.fullmatch(one) for one in lists) or len(used) >= gpus:
        return None
    text, line = seen[0][0] or ("", None), seen[0][1]
    return finding(
        job,
        text[1] or line,
        f"CUDA_VISIBLE_DEVICES={shorten(text[0], 20)} leaves {gpus - len(used)} of the {gpus} GPUs idle that the job"
        " requests",
        Fix("Request only the GPUs that are used, or use all of them.", _requesting(job, len(used))),
        ranks=len(used),
        gpus=gpus,
        why="Slurm gives the job all GPUs that it requests, and nothing reports that some are idle.",
    )


def _requesting(job: JobScript, gpus: int) -> tuple[str, ...]:
    """Return the directive that requests this number of GPUs, in the form that the script uses."""
    asked = job.directive("gres", "gpus-per-node", "gpus")
    value = re.sub(r"\d+$", str(gpus), asked.value or "") if asked else ""
    return (shell("#SBATCH --{:id}={}", asked.option, value),) if asked and value else ()


def _visible_to(job: JobScript, command: JobCommand) -> tuple[str, int | None] | None:
    """Return the CUDA_VISIBLE_DEVICES of a command, and the line that exports it; None if it is not known."""
    if (own := command.env.get(_VISIBLE)) is not None:
        return own, None
    earlier = [one for one in job.sets if one.name == _VISIBLE and one.statement <= command.statement]
    certain = earlier and not earlier[-1].unsure and not any(one.unsure for one in earlier)
    return (earlier[-1].value, earlier[-1].line) if certain else None


def _nodes(job: JobScript, command: JobCommand) -> int | None:
    """Return the number of nodes a command runs on; without --nodes, it is one if only GPUs per node are requested."""
    known = nodes_of(job, command)
    return 1 if known is None and has_one_node(job) and not _may_share_gpus(job, command) else known


def _may_share_gpus(job: JobScript, command: JobCommand) -> bool:
    """Whether another command of the script may use the other GPUs, such as a server in the background."""
    return (
        any(one.background and one is not command for one in job.commands)
        or any("CUDA_VISIBLE_DEVICES" in one.env for one in (command, *job.commands))
        or any(one.name == "CUDA_VISIBLE_DEVICES" for one in job.sets)
    )


def _on_purpose(job: JobScript, command: JobCommand, ranks: int) -> bool:
    """Whether fewer ranks are intended: a variable for training's part of the GPUs, or a script that spawns its own."""
    parts = any(_PART.search(one.name) and evaluate(job, one.value) is not None for one in job.sets)
    spawned = option_of(command.words, command.script or len(command.words), len(command.words), _SPAWNS)
    amount = evaluate(job, spawned[0]) if spawned else None
    return parts or (ranks == 1 and amount is not None and amount > 1)


def _on_cpu(command: JobCommand) -> bool:
    return launcher_option(command, "cpu") is not None or launcher_option(command, "use_cpu") is not None


def _ranks_per_node(job: JobScript, command: JobCommand) -> tuple[int, int] | None:
    """Return the ranks per node that a launcher starts, and the line that sets it; None if not known."""
    if command.launcher == "torchrun":
        given = launcher_option(command, *_NPROC)
        amount = evaluate(job, given[0]) if given else None
        return (amount, command.line_of(given[1])) if given and amount is not None else None
    given, machines = launcher_option(command, "num_processes"), launcher_option(command, "num_machines")
    total = evaluate(job, given[0]) if given else None
    if given is None or total is None:
        return None
    if machines is None and is_multi_node(job, command) is not False:
        return None
    among = evaluate(job, machines[0]) if machines else 1
    if not among or total % among:
        return None
    return total // among, command.line_of(given[1])


def _one_per_gpu(command: JobCommand) -> str:
    return "--nproc-per-node $SLURM_GPUS_ON_NODE" if command.launcher == "torchrun" else f"--num_processes {_WORLD}"


@check(Severity.WARNING, source=ACCELERATE)
def job_config_is_for_another_world(job_script: JobScript, config: Config) -> Answer:
    """The config is for a different number of nodes or GPUs than the job requests.

    Why: The launcher uses the config. With fewer nodes, each node trains alone or some are idle. With more, it waits
    for nodes that never start.

    Fix: Use the job's numbers, on the command line or in the config.
    """
    for command in per_node_launches(job_script):
        if command.launcher != "accelerate" or launcher_option(command, "config_file") is None:
            continue
        if (amount := _nodes(job_script, command)) is None:
            continue
        gpus = gpus_per_node(job_script)
        number_given = launcher_option(command, "num_machines")
        machines = evaluate(job_script, number_given[0]) if number_given else config.num_machines
        if machines != amount > 1 and not runs_on_nodes(command):  # it may be meant for one node
            continue
        processes = config.num_processes if launcher_option(command, "num_processes") is None else None
        if machines is not None and machines != amount:
            return finding(
                job_script,
                command.line,
                f"num_machines is {machines}, but the job has {amount} node{'s' * (amount != 1)}",
                commands("--num_machines $SLURM_JOB_NUM_NODES", f"--num_processes {_WORLD}"),
                why="The launcher uses num_machines.",
                num_machines=machines,
                nodes=amount,
            )
        if processes is not None and gpus and processes != amount * gpus and not config.on_cpu:
            return finding(
                job_script,
                command.line,
                f"num_processes in {config.path} is {processes}, but the job has {amount} x {gpus} GPUs",
                commands(f"--num_processes {_WORLD}"),
                why="The launcher starts the number of ranks set in the config.",
                num_processes=processes,
                gpus=amount * gpus,
            )
    return ok_unless_cut(job_script, "the config fits the job's request")


@check(Severity.ERROR, source="https://huggingface.co/docs/accelerate/usage_guides/deepspeed")
def job_deepspeed_starts_by_pdsh(job_script: JobScript, config: Config) -> Answer:
    """The config makes DeepSpeed start all nodes with pdsh, although srun already does.

    Why: On every node, accelerate runs the deepspeed launcher, which starts all nodes over ssh.
    More: Without deepspeed_multinode_launcher: standard, it runs "deepspeed --hostfile None ... --launcher pdsh"
    (measured), and each node tries to start the whole run.

    Fix: Let accelerate start only its own node's ranks.
    """
    for command in per_node_launches(job_script):
        if (
            command.launcher != "accelerate"
            or not runs_on_nodes(command)
            or is_multi_node(job_script, command) is False
        ):
            continue
        uses = config.distributed_type == "DEEPSPEED" or launcher_option(command, "use_deepspeed") is not None
        many = launcher_option(command, "num_machines") is not None or config.num_machines > 1
        given = launcher_option(command, "deepspeed_multinode_launcher")
        section = config.values.get("deepspeed_config")
        launcher = (
            given[0] if given else section.get("deepspeed_multinode_launcher") if isinstance(section, dict) else None
        )
        if uses and many and launcher != "standard":
            return finding(
                job_script,
                command.line,
                f"deepspeed_multinode_launcher is {launcher or 'pdsh (default)'}: every node starts the run",
                commands("accelerate launch --deepspeed_multinode_launcher standard ..."),
            )
    return ok_unless_cut(job_script, "DeepSpeed does not start the nodes itself")
