"""Which nodes will an engine start the ranks on? Pure: the cluster and the answers in.

The user configures on a login node without a GPU. All that is known about the nodes is what Slurm reports for the
partition and what the name of the GPU model implies. The software is that of this machine, since the job uses it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from mgpu.planning import gpu_models
from mgpu.probes.cluster import DEADLINE_S
from mgpu.snapshot import Cluster, Driver, Gap, Gpu, NodeKind, Partition, Slurm, Snapshot, Visible
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.proposal_types import origin_of

if TYPE_CHECKING:
    from mgpu.launchers.measurements import Known

_NOT_SEEN: Final = Gap("not_asked", "the nodes of the job were not inspected")
_OF_THIS_MACHINE: Final = ("links", "infiniband", "pci", "kernel", "storage", "network", "leftovers", "torch_runtime")


@dataclass(frozen=True)
class Site:
    """Where the job will run and which software it uses: read once, before the first question."""

    cluster: Cluster | None = None  # None: no Slurm here, or not queried
    engine: str = ""  # from --emit: kubeflow, skypilot, torchrun; "": Slurm
    named: bool = False  # --target or --from: its GPUs are those of the nodes
    command: tuple[str, ...] = ("train.py",)  # if the answers have none
    setup: tuple[str, ...] = ()  # shell lines that make this machine's software available in the job
    mgpu: str = "mgpu"
    config: str = "accelerate.yaml"
    file: str = "train.sbatch"  # the job script
    measured: Known | None = None  # of a script, on this machine

    @property
    def offers_slurm(self) -> bool:
        """Whether a job can be submitted to Slurm here."""
        return self.cluster is not None and bool(self.cluster.partitions)

    @property
    def unknown_note(self) -> str:
        """Why facts about the cluster are unknown, as a sentence; "" if they are known."""
        if self.engine:
            return ""
        if self.cluster is None:
            return "Slurm is not installed here: partitions and limits are unknown, and the job was not checked."
        if self.cluster.partitions:
            why = self.cluster.faults.get("nodes", "")
            return f"Slurm does not report its nodes ({why}): their GPUs and number are not checked." if why else ""
        why = self.cluster.faults.get("partitions") or self.cluster.faults.get("nodes") or "it lists no partition"
        return f"Slurm does not report its partitions ({why}): your answers about them are not checked."


@dataclass(frozen=True)
class Nodes:
    """The nodes of a job, all of the same kind."""

    snapshot: Snapshot  # of one node, as far as known
    answers: Answers  # without the decisions that are about this machine's GPUs
    text: str  # for the headline
    gpus: int
    origin: Origin  # source of the number of GPUs …
    reason: str  # … and the reason
    partition: Partition | None = None
    kind: NodeKind | None = None  # the nodes of the partition that fit
    gpu_type: str = ""  # to request from Slurm, if the partition has several
    gpu_named: bool = True  # False: the GPU model is unknown
    problems: tuple[str, ...] = ()
    choices: Sequence[Partition] = field(default=())  # partitions that accept a job


def nodes(snapshot: Snapshot, answers: Answers, site: Site) -> Nodes:
    """Return the nodes that the answers request, with the problems."""
    choices = usable(site.cluster)
    partition, problems = _partition(answers, site.cluster, choices)
    kind = _kind(partition, answers)
    count, origin, reason = _count(snapshot, answers, site, kind)
    if isinstance(answers.gpus, tuple):
        problems.append("--gpus lists GPUs of this machine; for a job, set the number per node: --gpus-per-node")
    problems += _too_many(partition, count, answers)
    problems += _other_model(partition, answers)
    gpu_type = _type(kind, partition) if count else ""
    models = gpu_models.models_named(answers.gpu_model or kind_type(kind))
    here = site.named or (partition is None and answers.gpu_model is None)
    gpus = _of_snapshot(snapshot, count) if here else ()
    if count and len(gpus) < count:
        gpus = tuple(_gpu(number, models, kind_type(kind)) for number in range(count))
    known = all(gpu.compute_capability and gpu.memory_total_bytes for gpu in gpus)
    seen = _node_snapshot(snapshot, gpus, kind, count, named=site.named)
    cleared = {name: value for name, value in answers.origins.items() if name != "gpus"}
    return Nodes(
        seen,
        replace(answers, gpus=None, origins=cleared),
        _gpus_text(gpus),
        count,
        origin,
        reason,
        partition,
        kind,
        gpu_type,
        known,
        tuple(problems),
        choices,
    )


def usable(cluster: Cluster | None) -> tuple[Partition, ...]:
    """Return the partitions that accept jobs: those with GPUs first, Slurm's default before the others."""
    found = [
        partition for partition in (cluster.partitions if cluster else ()) if not _closed_reason(partition, cluster)
    ]
    return tuple(sorted(found, key=lambda p: (p.gpus_per_node == 0, not p.default)))


def _closed_reason(partition: Partition, cluster: Cluster | None) -> str:
    """Return why the user's job cannot start in a partition now; "" if it can, or if that is unknown."""
    mine = {a.account for a in cluster.associations} if cluster else set()
    if not partition.up:
        return "accepts no jobs"
    if partition.kinds and not partition.usable:  # empty if Slurm did not report its nodes
        return f"has 0 of {partition.nodes} nodes available"
    if partition.accounts is not None and mine and not mine & set(partition.accounts):
        return f"accepts only the accounts {', '.join(partition.accounts)}"
    return ""


def _partition(
    answers: Answers, cluster: Cluster | None, choices: Sequence[Partition]
) -> tuple[Partition | None, list[str]]:
    """Return the partition of the answers, and its problems; of several names, the first one."""
    every = cluster.partitions if cluster else ()
    if answers.partition is None:
        asked = answers.gpus_per_node if answers.gpus_per_node is not None else 0
        fitting = [p for p in choices if p.gpus_per_node >= asked] or list(choices)
        fitting.sort(key=lambda p: bool(_other_model(p, answers)))
        if every and not fitting:
            reasons = "; ".join(f"{partition.name} {_closed_reason(partition, cluster)}" for partition in every)
            return None, [f"no partition accepts your job now: {reasons}"]
        return next(iter(fitting), None), []
    if not every:
        return None, []
    found = {partition.name: partition for partition in every}
    names = answers.partition.split(",")
    problems = []
    for name in names:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
            hint = f". Did you mean {near[0]}?" if near else f"; choose one of {', '.join(found)}"
            problems.append(f"--partition {name}: no such partition{hint}")
        elif not found[name].up:
            problems.append(f"--partition {name}: accepts no jobs now")
    return next((found[name] for name in names if name in found), None), problems


def _kind(partition: Partition | None, answers: Answers) -> NodeKind | None:
    """Return which nodes of a mixed partition to use: the largest group with enough GPUs of the chosen model."""
    if partition is None or not partition.kinds:
        return None
    asked = answers.gpus_per_node
    kinds = [kind for kind in partition.kinds if kind.gpus >= (1 if asked is None else asked)] or partition.kinds
    if answers.gpu_model:
        same = [
            kind for kind in kinds if answers.gpu_model in {m.name for m in gpu_models.models_named(kind_type(kind))}
        ]
        kinds = same or kinds
    return max(kinds, key=lambda kind: (kind.usable > 0, kind.usable * max(1, kind.gpus)))


def _count(snapshot: Snapshot, answers: Answers, site: Site, kind: NodeKind | None) -> tuple[int, Origin, str]:
    """Return the number of GPUs per node, its source, and the reason."""
    if answers.gpus_per_node is not None:
        return answers.gpus_per_node, origin_of(answers, "gpus_per_node"), "on each node"
    if isinstance(answers.gpus, int):
        return answers.gpus, origin_of(answers, "gpus"), "on each node"
    if site.named:
        return len(snapshot.gpus or ()), "flag", "on each node"
    if kind is not None:
        return kind.gpus, "probe", "all GPUs of a node in the partition"
    here = len(_of_snapshot(snapshot, gpu_models.MOST_GPUS))
    return here, "probe" if here else "rule", "as on this machine" if here else "no GPU known"


def _too_many(partition: Partition | None, count: int, answers: Answers) -> list[str]:
    if partition is None or not partition.kinds or count <= partition.gpus_per_node:
        return []
    most = partition.gpus_per_node
    has = f"its nodes have {most}" if most else "its nodes have none"
    return [f"--gpus-per-node {count}: partition {partition.name}: {has}"]


def _other_model(partition: Partition | None, answers: Answers) -> list[str]:
    """Return the problem if all GPU models of a partition are known and none is the requested one."""
    types = [kind_type(kind) for kind in partition.kinds if kind.gpus] if partition else []
    meant = [{model.name for model in gpu_models.models_named(name)} for name in types]
    known = partition is not None and partition.kinds and all(meant)
    if partition is None or not known or not answers.gpu_model or any(answers.gpu_model in m for m in meant):
        return []
    has = f"its GPUs are {', '.join(dict.fromkeys(types))}" if types else "its nodes have none"
    return [f"--gpu-model {answers.gpu_model}: partition {partition.name}: {has}"]


def kind_type(kind: NodeKind | None) -> str:
    """Return the GPU type of a node, as the site names it; "" if there are several types, or none."""
    types = {gres.type for gres in kind.gres if gres.name == "gpu"} if kind else set()
    return types.pop() if len(types) == 1 else ""


def _type(kind: NodeKind | None, partition: Partition | None) -> str:
    """Return the GPU type to request, only needed if the partition also has nodes with other GPUs."""
    every = {kind_type(other) for other in partition.kinds if other.gpus} if partition else set()
    return kind_type(kind) if len(every) > 1 else ""


def _of_snapshot(snapshot: Snapshot, count: int) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in snapshot.gpus or () if not gpu.lost)[:count]


def _gpu(number: int, models: Sequence[gpu_models.Model], site_name: str) -> Gpu:
    """Return a GPU known only by name: the properties on which all models of that name agree."""
    names = {model.name for model in models}
    abilities, sizes = {model.compute_capability for model in models}, {model.memory_mib for model in models}
    name = f"NVIDIA {names.pop()}" if len(names) == 1 else site_name or None
    ability = abilities.pop() if len(abilities) == 1 else None
    size = sizes.pop() << 20 if len(sizes) == 1 else None
    return Gpu(number, None, name, None, ability, size, None, None)


def _node_snapshot(
    snapshot: Snapshot, gpus: tuple[Gpu, ...], kind: NodeKind | None, count: int, *, named: bool
) -> Snapshot:
    """Return a node as a Snapshot: its GPUs, its share of CPUs and memory; only the software is this machine's."""
    driver = Driver(None if gpus else "LIBRARY_NOT_FOUND", None, None, None, None, None, len(gpus))
    cpus, memory = None, None
    if kind is not None:
        share = count / kind.gpus if kind.gpus and count else 1.0
        cpus = max(1, int(kind.cpus * share))
        memory = int(kind.memory_bytes * share) if kind.memory_bytes else None
    system = snapshot.system
    if system is not None and not named:
        if cpus is None or memory is None:
            system = None
        else:
            system = replace(system, cpus_logical=cpus, cpus_allowed=cpus, cpus_quota=None, numa_nodes=None)
            system = replace(system, memory_total_bytes=memory, memory_available_bytes=memory, memory_limit_bytes=None)
    slurm = Slurm(None, None, None, None, None, True, cpus_on_node=cpus)
    gone = () if named else _OF_THIS_MACHINE
    nothing: dict[str, Any] = dict.fromkeys(gone)
    lacks = [*gone, *(["system"] if system is None else [])]
    gaps = {**snapshot.gaps, **{name: _NOT_SEEN for name in lacks if name not in snapshot.gaps}}
    seen = Visible(None, tuple(gpu.index for gpu in gpus))
    return replace(snapshot, driver=driver, gpus=gpus, visible=seen, system=system, slurm=slurm, gaps=gaps, **nothing)


def _gpus_text(gpus: Sequence[Gpu]) -> str:
    """Return the GPUs of a node as text."""
    if not gpus:
        return "ranks on the CPU"
    return f"{len(gpus)} x {gpus[0].name or 'GPU'} each"


def progress_text() -> str:
    """Return the progress text while Slurm is queried."""
    return f"Slurm's partitions (up to {DEADLINE_S:g} s)"
