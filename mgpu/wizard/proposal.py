"""Which config fits this machine, and what is the source of each value? Pure: facts and answers in, settings out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mgpu.job_formats import TITLES
from mgpu.planning import memory
from mgpu.snapshot import Snapshot
from mgpu.wizard import job, measured_plan
from mgpu.wizard.answers import Answers, Origin, contradiction
from mgpu.wizard.batch import Batch, batch
from mgpu.wizard.decided_rows import rows_of
from mgpu.wizard.devices import Devices, devices
from mgpu.wizard.host import host
from mgpu.wizard.machines import Machines, machines, port
from mgpu.wizard.nodes import Nodes, Site, nodes
from mgpu.wizard.precision import precision
from mgpu.wizard.proposal_types import Option, Part, Proposal, Setting, origin_of
from mgpu.wizard.strategies import Strategy, choose
from mgpu.wizard.strategy_constraints import Situation
from mgpu.wizard.topics import HERE
from mgpu.wizard.trained_model import model

if TYPE_CHECKING:
    from mgpu.launchers.measurements import Known

__all__ = ["Option", "Proposal", "Setting", "propose"]

# fmt: off
_ROWS = (  # the review's order; other rows come last
    "GPUs", "ranks", "precision", "model", "strategy", "effective batch", measured_plan.LABEL, "steps per epoch",
    "learning rate note", "threads / workers", "CPU pinning", "compile", "checkpoints", "engine", "nodes", "address",
    "port", "partition", "time limit", "account", "QOS", "training", "pre-flight",
)
# fmt: on
_PER_NODE = "gpus_per_node"
_NO_SITE = Site()


_DYNAMIC = (
    "accelerate compiles with dynamic=False: each new batch shape triggers a recompilation. If lengths vary, add "
    "dynamo_use_dynamic: true to dynamo_config."
)


def propose(snapshot: Snapshot, answers: Answers, machine: str, site: Site = _NO_SITE) -> Proposal:
    """Return the config for this machine, or for the nodes of a job, with its problems.

    `site`: what an engine that starts the nodes offers. Raises MgpuError only if the machine itself is not supported.
    """
    engine = site.engine or ("slurm" if answers.slurm else "")
    if not engine:
        proposal = _make_proposal(snapshot, answers, machine, measured=site.measured)
        return _with_offer(proposal) if site.offers_slurm else proposal
    on = nodes(snapshot, answers, site)
    whole = _make_proposal(on.snapshot, on.answers, on.text, engine)
    extra = job.part(on, answers, site, whole.nodes)
    settings = sorted((*map(_in_a_job(on), whole.settings), *extra.settings), key=_place)
    problems = (*extra.problems, *(text for text in whole.problems if text not in extra.problems))
    notes = [text for text in (*extra.notes, *whole.notes) if "export OMP_NUM_THREADS" not in text]  # the job does it
    proposal = replace(
        whole,
        settings=tuple(settings),
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(notes),
        answers=answers,
        options={**whole.options, **extra.options},
        chosen={**whole.chosen, **extra.chosen},
        engine=engine,
        machine=_headline(on, whole, engine),
        gpus_of_node=on.kind.gpus if on.kind else None,
        gpus_named=job.gpus_named(on, site),
        gpu_model=(on.snapshot.gpus[0].name or "").removeprefix("NVIDIA ") if on.snapshot.gpus else "",
    )
    return replace(proposal, job=job.job_of(proposal, on, site))


def _with_offer(proposal: Proposal) -> Proposal:
    """Return the config for this machine, with a row that offers Slurm."""
    row = Setting("engine", "none: this machine", "rule", "Slurm is also available", "slurm")
    options = {**proposal.options, "slurm": job.slurm_options(recommended=proposal.cpu)}
    settings = sorted((*proposal.settings, row), key=_place)
    return replace(proposal, settings=tuple(settings), options=options)


def _in_a_job(on: Nodes) -> Callable[[Setting], Setting]:
    """Return the function that turns the row of the GPUs into that of a job, with GPUs per node."""

    def changed(row: Setting) -> Setting:
        if row.label == "ranks":
            return replace(row, origin=on.origin, reason="no GPU requested: CPU ranks over gloo", question=_PER_NODE)
        return replace(row, origin=on.origin, reason=on.reason, question=_PER_NODE) if row.label == "GPUs" else row

    return changed


def _headline(on: Nodes, whole: Proposal, engine: str) -> str:
    where = f" ({on.partition.name})" if on.partition else ""
    return f"{whole.nodes} {TITLES[engine]} node{'' if whole.nodes == 1 else 's'}{where}, {on.text}"


def _make_proposal(
    snapshot: Snapshot, answers: Answers, machine: str, engine: str = "", measured: Known | None = None
) -> Proposal:
    used = devices(snapshot, answers)
    name, precise = precision(snapshot, answers, used)
    known, train, optimizer = model(answers, cpu=used.cpu)
    where = machines(snapshot, answers, engine)
    used = _on_the_command_line(used) if where.nodes > 1 else used
    ranks = used.ranks * where.nodes
    sizes = batch(answers, ranks, "rank" if used.cpu else "GPU")
    sound = not known.problems
    name, params = name if name in memory.PRECISIONS else "no", answers.params if sound else None
    trainable = answers.trainable if sound else None
    here = Situation(snapshot, used, where.nodes, name, params, train, trainable, optimizer)
    way = choose(here, answers, sizes.accumulate if sizes.decided else None)
    parts = [_on_all_nodes(used, where), precise, known, way.part, _batch_part(sizes, way)]
    parts.append(host(snapshot, answers, used, deepspeed=way.name.startswith("zero"), offload=way.offload))
    parts += [_compile(answers, way), _checkpoints(answers, way), where.part]
    shape = {"ranks": ranks, "strategy": way.part.settings[0].keys.get("distributed_type"), "precision": name}
    parts.append(measured_plan.part(measured, answers, shape, used.memory_bytes))
    if not engine:
        parts.append(port(answers, where.nodes, single_process=ranks == 1 and way.name == "ddp"))
    return _join_parts(parts, answers, used, where, way, sizes, machine)


def _join_parts(
    parts: Sequence[Part], answers: Answers, used: Devices, where: Machines, way: Strategy, sizes: Batch, machine: str
) -> Proposal:
    rows = [setting for part in parts for setting in part.settings]
    settings = sorted((*rows, *rows_of(answers, HERE)), key=_place)
    problems = list(dict.fromkeys(problem for part in parts for problem in part.problems))
    if not problems and (both := contradiction(answers)):
        problems.append(both)
    options: dict[str, tuple[Option, ...]] = {}
    chosen: dict[str, str] = {}
    for part in parts:
        options |= part.options
        chosen |= part.chosen
    return Proposal(
        settings=tuple(settings),
        machine=machine,
        cpu=used.cpu,
        ranks=used.ranks * where.nodes,
        ranks_here=used.ranks,
        nodes=where.nodes,
        gpus=tuple(gpu.index for gpu in used.gpus),
        batch_per_gpu=sizes.per_gpu,
        accumulate=sizes.accumulate,
        dataset_size=answers.dataset_size if sizes.steps else None,
        chosen=chosen,
        options=options,
        problems=tuple(problems),
        launch_flags=tuple(flag for part in parts for flag in part.launch_flags),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        need=way.need,
        free_bytes=used.memory_bytes,
        steps=sizes.steps.optimizer_steps if sizes.steps else None,
        gpu_ids=used.gpu_ids,
        answers=answers,
    )


def _place(setting: Setting) -> int:
    return _ROWS.index(setting.label) if setting.label in _ROWS else len(_ROWS)


def _on_all_nodes(used: Devices, where: Machines) -> Part:
    """Return the GPU rows with num_processes as the number of ranks on all nodes."""
    if where.nodes == 1:
        return used.part
    row, *others = used.part.settings
    keys = {**row.keys, "num_processes": used.ranks * where.nodes}
    text, why = f"{where.nodes} x {row.text}", f"{where.nodes} nodes, on each: {row.reason}"
    return replace(used.part, settings=(replace(row, text=text, reason=why, keys=keys), *others))


def _on_the_command_line(used: Devices) -> Devices:
    """Move gpu_ids from the file to the command line, because they differ between nodes that share the file."""
    row, *others = used.part.settings
    if "gpu_ids" not in row.keys:
        return used
    keys = {key: value for key, value in row.keys.items() if key != "gpu_ids"}
    notes = tuple(note for note in used.part.notes if "gpu_ids" not in note)
    notes += (f"The GPUs to use are on each node's command line (--gpu_ids {used.gpu_ids}), not in the file.",)
    return replace(used, part=replace(used.part, settings=(replace(row, keys=keys), *others), notes=notes))


def _batch_part(sizes: Batch, way: Strategy) -> Part:
    """Return the batch rows; with DeepSpeed the file stores the accumulation, so the note about it is dropped."""
    if not way.name.startswith("zero") or not sizes.decided:
        return sizes.part
    notes = tuple(note for note in sizes.part.notes if "deepspeed_config" not in note)
    return replace(sizes.part, notes=notes)


def _compile(answers: Answers, way: Strategy) -> Part:
    # prepare_deepspeed_cmd_env (1.15) does not pass ACCELERATE_DYNAMO_* to the ranks.
    refused = "accelerate does not pass it to DeepSpeed runs" if way.name.startswith("zero") else None
    options = (
        Option("no", "No", None, True, "clearer errors, instant start: best for the first run"),
        Option("yes", "Yes", refused, False, "often faster, after a slow start"),
    )
    wanted = bool(answers.compile)
    problems = (f"torch.compile: {refused}; call torch.compile in your script",) if wanted and refused else ()
    keys: Mapping[str, object] = {"dynamo_config.dynamo_backend": "INDUCTOR"} if wanted and not refused else {}
    origin: Origin = "rule" if answers.compile is None else origin_of(answers, "compile")
    text, why = ("yes", "torch.compile, through accelerate") if wanted else ("no", "clearer errors, instant start")
    row = Setting("compile", text, origin, why, "compile", keys)
    return Part((row,), {"compile": options}, {"compile": text}, problems, (_DYNAMIC,) if keys else ())


def _checkpoints(answers: Answers, way: Strategy) -> Part:
    """Return whether checkpoints load on a different number of GPUs: a row if the strategy splits the model."""
    chosen = {"reshard": "no" if answers.reshard is False else "yes"}
    if way.name == "ddp":
        return Part(chosen=chosen)
    origin = "rule" if answers.reshard is None else origin_of(answers, "reshard")
    text, why = "sharded, loadable on any number of GPUs", "torch's DCP reshards it when loading"
    if way.name != "fsdp2":
        text, why = "sharded, for one number of GPUs", "ZeRO: another number needs a conversion"
    return Part((Setting("checkpoints", text, origin, why, "reshard"),), chosen=chosen)
