"""Which job is requested from the engine: its rows in the review, its problems, and the Job itself. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, cast

from mgpu.config.reading import pinning_variables
from mgpu.job_files.job import Container, Job
from mgpu.job_formats import FORMATS, SHAPES, SOME_ENGINES, Shape, engines_supporting
from mgpu.planning import gpu_models
from mgpu.probes.cluster import parse_time
from mgpu.secrets_masking import MASK, masked_argv
from mgpu.snapshot import Partition
from mgpu.wizard.answers import BY_NAME, Answers, Origin, as_typed
from mgpu.wizard.decided_rows import WIDTH, rows_of
from mgpu.wizard.manual_commands import environment
from mgpu.wizard.nodes import Nodes, Site, kind_type
from mgpu.wizard.proposal_types import Option, Part, Proposal, Setting, origin_of
from mgpu.wizard.topics import JOB

_WARN_S: Final = 300  # a job that is requeued is warned this long before its limit: time for a checkpoint


def part(nodes: Nodes, answers: Answers, site: Site, count: int) -> Part:
    """Return the rows of the job, the menus of its questions, and its problems. `count`: nodes that train."""
    slurm = not site.engine
    rows: list[Setting] = [_engine_row(answers, site), _command_row(answers, site)]
    options: dict[str, tuple[Option, ...]] = {}
    chosen: dict[str, str] = {}
    problems: list[str] = list(nodes.problems)
    notes: list[str] = [site.unknown_note] if site.unknown_note else []
    if not nodes.gpu_named and nodes.gpus:
        notes.append(_unknown_gpu_note(kind_type(nodes.kind)))
    if slurm:
        limit, wrong = _time_row(nodes.partition, answers)
        rows += [*_partition_row(nodes, answers), limit, *_preflight_rows(answers), *_decided_rows(answers)]
        problems += [*wrong, *_size(nodes, answers, count), *_accounts(nodes, answers, site)]
        options |= {"partition": _partitions(nodes), "account": _account_options(site)}
        options["qos"] = _qos_options(site, answers)
        chosen |= _chosen_values(nodes, answers, site)
        if site.offers_slurm:
            options["slurm"] = slurm_options(recommended=True)
            chosen["slurm"] = "yes"
    options["shape"] = tuple(Option(name, name, None, name == "accelerate", text) for name, text in SHAPES.items())
    words = shlex.join(_command(answers, site))
    chosen |= {"shape": _shape(answers), "gpus_per_node": str(nodes.gpus), "command": words}
    if answers.spare and answers.preflight is False:
        problems.append("--spare replaces nodes that the pre-flight finds bad and cannot be used with --no-preflight")
    refused, dropped = _find_unsupported(answers, site)
    problems += refused
    notes += dropped
    problems += _secret(_command(answers, site))
    menus = {name: menu for name, menu in options.items() if menu}
    return Part(tuple(rows), menus, chosen, tuple(problems), tuple(notes))


def _find_unsupported(answers: Answers, site: Site) -> tuple[list[str], list[str]]:
    """Return decisions that this engine does not support: problems, and notes for those not typed for this job."""
    engine = site.engine or "slurm"
    one = FORMATS[engine]
    found: dict[str, str] = {}
    for key in SOME_ENGINES:
        if key not in one.takes and answers[key]:
            rendezvous = one.meeting or f"{one.title} sets the rendezvous endpoint itself"
            found[key] = f"not supported by {one.title}" if engines_supporting(key) else rendezvous
    if answers.shape not in ("auto", *one.shapes):
        found["shape"] = f"{one.title} only supports {' or '.join(one.shapes)}"
    texts = {key: f"{BY_NAME[key].flag} {as_typed(key, answers[key])}: {why}" for key, why in found.items()}
    texts = {key: text.replace(" yes:", ":", 1) for key, text in texts.items()}
    kept = {key for key in texts if answers.origins.get(key) in ("you", "file")}
    return [text for key, text in texts.items() if key not in kept], [
        f"{text}, so it is left out." for key, text in texts.items() if key in kept and engines_supporting(key)
    ]


def _secret(command: tuple[str, ...]) -> list[str]:
    """Return a problem if the command contains a secret, because the files of a job are kept and shared."""
    for word, masked in zip(command, masked_argv(command), strict=True):
        if word != masked:
            place = command.index(word)
            option = f"{command[place - 1]} {masked}" if masked == MASK and place else masked
            return [
                f"--command: {option} is a secret, and job files are kept and shown. Let the script read it from a "
                "file or from its environment"
            ]
    return []


def _unknown_gpu_note(site_name: str) -> str:
    """Return the note that the GPU model of the nodes is unknown."""
    models = [model.name for model in gpu_models.models_named(site_name)]
    if models:
        return f"Slurm's GPU type {site_name} can be {' or '.join(models)}. Set --gpu-model to check memory."
    unknown = f"Slurm's GPU type {site_name} is unknown" if site_name else "Slurm does not report the GPU model"
    return f"{unknown}. Set --gpu-model (for example A100-80GB) to choose precision and check memory."


def slurm_options(*, recommended: bool) -> tuple[Option, ...]:
    """Return the options for whether Slurm starts the run; `recommended`: Slurm is recommended."""
    return (
        Option("no", "Here, or on nodes that you start by hand", None, not recommended),
        Option("yes", "As a Slurm job: also writes a job script", None, recommended),
    )


def gpus_named(nodes: Nodes, site: Site) -> bool:
    """Return whether the GPU model of the nodes is known, or not needed."""
    known = len(gpu_models.models_named(kind_type(nodes.kind))) == 1
    return known or site.named or (nodes.kind is not None and not nodes.kind.gpus)


def job_of(proposal: Proposal, nodes: Nodes, site: Site) -> Job:
    """Return the job of a proposal."""
    answers, shape = proposal.answers, _shape(proposal.answers)
    command = _command(answers, site)
    threads = proposal.chosen.get("threads")
    gpus = nodes.gpus
    env = pinning_variables(proposal.launch_flags) if shape == "accelerate" else dict(environment(proposal))
    if proposal.cpu:
        env["ACCELERATE_USE_CPU"] = "true"
    return Job(
        command=command,
        shape=shape,
        config=site.config,
        nodes=proposal.nodes,
        spare=answers.spare or 0,
        gpus_per_node=gpus,
        ranks_per_node=proposal.ranks_here,
        gpu_type=nodes.gpu_type,
        name=_name(command),
        partition=proposal.chosen.get("partition", ""),
        account=answers.account or "",
        qos=answers.qos or "",
        constraint=answers.constraint or "",
        time=answers.time or "",
        cpus_per_node=_cpus(proposal, nodes),
        requeue=bool(answers.requeue),
        warn_s=_WARN_S if answers.requeue else None,
        setup=() if answers.container else site.setup,
        env=env,
        threads=int(threads) if threads else None,
        container=_container(answers.container),
        preflight=preflight(answers),
        mgpu=site.mgpu,
    )


def preflight(answers: Answers) -> bool:
    """Return whether the job tests its nodes first: only if requested, or with spare nodes."""
    return bool(answers.spare) if answers.preflight is None else answers.preflight


def _cpus(proposal: Proposal, nodes: Nodes) -> int | None:
    """Return the CPUs to request per node: threads, loader workers and one more per rank; at most all of the node."""
    threads, workers = proposal.chosen.get("threads"), proposal.chosen.get("workers")
    if threads is None and workers is None:
        return None
    wanted = (int(threads or 1) + int(workers or 0) + 1) * proposal.ranks_here
    most = nodes.kind.cpus if nodes.kind else None
    return min(wanted, most) if most else wanted


def _command(answers: Answers, site: Site) -> tuple[str, ...]:
    return answers.command or site.command


def _name(command: tuple[str, ...]) -> str:
    """Return a name for the job: "train" for train.py, "package.train" for -m package.train."""
    script = command[1] if command[0] == "-m" else PurePath(command[0]).stem
    return re.sub(r"[^A-Za-z0-9_.-]", "-", script)[-40:].lstrip("-.") or "train"


def _shape(answers: Answers) -> Shape:
    return "accelerate" if answers.shape == "auto" else cast(Shape, answers.shape)


def _container(image: str | None) -> Container | None:
    if image is None:
        return None
    return Container("apptainer" if image.endswith((".sif", ".simg")) else "pyxis", image)


# ---- rows


def _engine_row(answers: Answers, site: Site) -> Setting:
    text = f"{FORMATS[site.engine or 'slurm'].title}, {site.file}"[:48]
    if site.engine:
        return Setting("engine", text, "flag", "starts the ranks")
    return Setting("engine", text, origin_of(answers, "slurm"), "starts the ranks", "slurm")


def _command_row(answers: Answers, site: Site) -> Setting:
    text = shlex.join(_command(answers, site))
    short = text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
    origin: Origin = origin_of(answers, "command") if answers.command else "rule"
    why = f"in {site.file}" if answers.command else "training script of this folder, or train.py"
    return Setting("training", short, origin, why, "command")


def _partition_row(nodes: Nodes, answers: Answers) -> list[Setting]:
    partition = nodes.partition
    if partition is None and answers.partition is None:
        return []
    name = answers.partition or (partition.name if partition else "")
    origin: Origin = origin_of(answers, "partition") if answers.partition else "probe"
    return [Setting("partition", name[:WIDTH], origin, _about(partition) if partition else "", "partition")]


def _about(partition: Partition) -> str:
    most = "" if partition.max_time_s is None else f", up to {duration(partition.max_time_s)}"
    return f"{partition.usable} of {partition.nodes} nodes available{most}"


def _time_row(partition: Partition | None, answers: Answers) -> tuple[Setting, list[str]]:
    most = partition.max_time_s if partition else None
    if answers.time is None:
        default = partition.default_time_s or most if partition else None
        text = f"Slurm's default{f', {duration(default)}' if default else ''}"
        why = f"the partition allows {duration(most)}" if most else "limit unknown"
        return Setting("time limit", text, "rule", why, "time"), []
    length = parse_time(answers.time)
    wrong = most is not None and length is not None and length > most
    why = f"at most {duration(most)}" if most else ""
    row = Setting("time limit", answers.time, origin_of(answers, "time"), why, "time")
    if not wrong or most is None or partition is None:
        return row, []
    return row, [
        f"--time {answers.time}: partition {partition.name} allows {duration(most)}, so the job would never start"
    ]


def _preflight_rows(answers: Answers) -> list[Setting]:
    spare = f", {answers.spare} spare node{'s' if answers.spare > 1 else ''}" if answers.spare else ""
    text = f"in the job{spare}" if preflight(answers) else "by mgpu launch"
    why = "mgpu tests the nodes before training" if preflight(answers) else "the script does not need mgpu"
    name = "spare" if answers.spare else "preflight"
    origin = origin_of(answers, name) if name in answers.origins else "rule"
    return [Setting("pre-flight", text, origin, why, "preflight")]


def _decided_rows(answers: Answers) -> list[Setting]:
    """Return rows for settings that are only shown if decided."""
    found = rows_of(answers, JOB)
    if answers.shape != "auto":
        found.append(
            Setting("started by", answers.shape, origin_of(answers, "shape"), SHAPES[_shape(answers)], "shape")
        )
    if answers.requeue is not None:
        text, why = ("requeue", "your script resumes a checkpoint") if answers.requeue else ("stop", "not requeued")
        found.append(Setting("at the limit", text, origin_of(answers, "requeue"), why, "requeue"))
    return found


# ---- what is wrong


def _size(nodes: Nodes, answers: Answers, count: int) -> list[str]:
    """Return the problem of a job with too many or too few nodes; `sbatch --test-only` misses some of these."""
    partition = nodes.partition
    if partition is None:
        return []
    whole = count + (answers.spare or 0)
    wanted = f"{count} node{'' if count == 1 else 's'}{f' and {answers.spare} spare' if answers.spare else ''}"
    if partition.max_nodes is not None and whole > partition.max_nodes:
        return [f"{wanted}: partition {partition.name} allows at most {partition.max_nodes} per job (MaxNodes)"]
    if partition.min_nodes is not None and whole < partition.min_nodes:
        return [f"{wanted}: partition {partition.name} requires at least {partition.min_nodes} (MinNodes)"]
    fitting = sum(kind.usable for kind in partition.kinds if kind.gpus >= nodes.gpus)
    if partition.kinds and whole > fitting:
        with_gpus = f" with {nodes.gpus} GPUs" if nodes.gpus else ""
        return [f"{wanted}: partition {partition.name} has {fitting} available{with_gpus}"]
    return []


def _accounts(nodes: Nodes, answers: Answers, site: Site) -> list[str]:
    cluster, partition, problems = site.cluster, nodes.partition, []
    mine = _my_accounts(site)
    if answers.account and mine and answers.account not in mine:
        problems.append(f"--account {answers.account}: choose one of your accounts: {', '.join(mine)}")
    account = answers.account or (cluster.default_account if cluster else "")
    allowed = partition.accounts if partition else None
    if partition and allowed is not None and account and account not in allowed:
        other = next((name for name in allowed if name in mine), "")
        hint = f": --account {other}" if other else ""
        accepted = ", ".join(allowed)
        problems.append(f"partition {partition.name} accepts only the accounts {accepted}, not {account}{hint}")
    qos = _my_qos(site, account)
    if answers.qos and qos and answers.qos not in qos:
        problems.append(f"--qos {answers.qos}: choose one of your QOS: {', '.join(qos)}")
    taken = answers.qos or _default_qos(site, account)
    if partition and partition.qos is not None and taken and taken not in partition.qos:
        other = next((name for name in partition.qos if name in qos), "")
        hint = f": --qos {other}" if other and other != answers.qos else ""
        accepted = ", ".join(partition.qos)
        problems.append(f"partition {partition.name} accepts only the QOS {accepted}, not {taken}{hint}")
    return problems


def _my_accounts(site: Site) -> list[str]:
    return list(dict.fromkeys(a.account for a in site.cluster.associations)) if site.cluster else []


def _my_qos(site: Site, account: str) -> list[str]:
    if site.cluster is None:
        return []
    found = (q for a in site.cluster.associations if not account or a.account == account for q in a.qos)
    return list(dict.fromkeys(found))


def _default_qos(site: Site, account: str) -> str:
    found = site.cluster.associations if site.cluster else ()
    return next((a.default_qos for a in found if not account or a.account == account), "")


# ---- menus


def _partitions(nodes: Nodes) -> tuple[Option, ...]:
    """Return one option per partition; none if there is nothing to choose."""
    if len(nodes.choices) < 2:
        return ()
    taken = nodes.partition.name if nodes.partition else ""
    return tuple(Option(p.name, p.name, None, p.name == taken, offer(p)) for p in nodes.choices)


def offer(partition: Partition) -> str:
    """Return what a partition offers to a job, in a line."""
    kind = next(iter(partition.kinds), None)
    types = [f"{g.count} x {g.type or 'GPU'}" for g in kind.gres if g.name == "gpu"] if kind else []
    parts = [
        f"{partition.usable} node{'' if partition.usable == 1 else 's'}",
        " + ".join(types) or "no GPU",
        f"up to {duration(partition.max_time_s)}" if partition.max_time_s is not None else "no time limit",
        f"at most {partition.max_nodes} per job" if partition.max_nodes is not None else "",
    ]
    return ", ".join(filter(None, parts))


def _account_options(site: Site) -> tuple[Option, ...]:
    return _named_options(_my_accounts(site), site.cluster.default_account if site.cluster else "")


def _qos_options(site: Site, answers: Answers) -> tuple[Option, ...]:
    account = answers.account or (site.cluster.default_account if site.cluster else "")
    return _named_options(_my_qos(site, account), _default_qos(site, account))


def _named_options(names: Sequence[str], default: str) -> tuple[Option, ...]:
    """Return one option per name; none if there is nothing to choose."""
    if len(names) < 2:
        return ()
    return tuple(Option(name, name, None, name == default, "your default" if name == default else "") for name in names)


def _chosen_values(nodes: Nodes, answers: Answers, site: Site) -> Mapping[str, str]:
    found: dict[str, Any] = {
        "partition": answers.partition or (nodes.partition.name if nodes.partition else None),
        "account": answers.account or (site.cluster.default_account if site.cluster else None),
        "qos": answers.qos,
        "preflight": "yes" if preflight(answers) else "no",
        "requeue": "yes" if answers.requeue else "no",
    }
    return {name: value for name, value in found.items() if value}


def duration(length_s: int) -> str:
    """Return seconds in Slurm's format: 2-00:00:00, 1:30:00."""
    days, rest = divmod(length_s, 86400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock.rjust(8, '0')}" if days else clock
