"""What do the nodes look like on which an engine will start the ranks? Pure: the cluster and the answers in.

Who configures sits on a login node without a GPU. What is known of the nodes is what the partition says of them, and
what the name of their GPUs says; the software is that of here, since a job takes it along.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mgpu.planning import gpu_models
from mgpu.probes.cluster import DEADLINE_S
from mgpu.snapshot import Cluster, Driver, Gap, Gpu, NodeKind, Partition, Slurm, Snapshot, Visible
from mgpu.wizard.answers import Answers, Origin
from mgpu.wizard.proposal_types import origin_of

_NOT_SEEN: Final = Gap("not_asked", "the nodes of the job were not looked at")
_OF_THIS_MACHINE: Final = ("links", "infiniband", "pci", "kernel", "storage", "network", "leftovers", "torch_runtime")


@dataclass(frozen=True)
class Site:
    """Where the job will run and what it takes along: read once, before the first question."""

    cluster: Cluster | None = None  # None: no Slurm here, or nobody asked
    engine: str = ""  # kubeflow, skypilot, torchrun: another than Slurm, by --emit
    named: bool = False  # the machine was named or replayed: its GPUs are those of the nodes
    command: tuple[str, ...] = ("train.py",)  # where nobody says which
    setup: tuple[str, ...] = ()  # shell lines that bring the software of here into the job
    mgpu: str = "mgpu"
    config: str = "accelerate.yaml"
    file: str = "train.sbatch"  # the job script

    @property
    def offers_slurm(self) -> bool:
        """Whether a job could be given to Slurm here."""
        return self.cluster is not None and bool(self.cluster.partitions)

    @property
    def silent(self) -> str:
        """Why nothing is known of the cluster, as a sentence; "" where it told."""
        if self.engine:
            return ""
        if self.cluster is None:
            return "Slurm is not installed here: partitions and limits are not known, and nobody checked the job."
        if self.cluster.partitions:
            why = self.cluster.faults.get("nodes", "")
            return f"Slurm does not tell of its nodes ({why}): their GPUs and number are not checked." if why else ""
        why = self.cluster.faults.get("partitions") or self.cluster.faults.get("nodes") or "it names no partition"
        return f"Slurm does not tell of its partitions ({why}): what you say of them is not checked."


@dataclass(frozen=True)
class Nodes:
    """The nodes of a job, all of them alike."""

    snapshot: Snapshot  # of one of them, as far as it is known
    answers: Answers  # without the decisions that are about this machine's GPUs
    text: str  # for a headline
    gpus: int
    origin: Origin  # where the number of GPUs comes from …
    reason: str
    partition: Partition | None = None
    kind: NodeKind | None = None  # the nodes of the partition that fit
    gpu_type: str = ""  # to ask Slurm for, where the partition has several
    gpu_named: bool = True  # False: which GPUs they are is not known
    problems: tuple[str, ...] = ()
    choices: Sequence[Partition] = field(default=())  # partitions that a job may go to


def nodes(snapshot: Snapshot, answers: Answers, site: Site) -> Nodes:
    """The nodes that the answers ask for, with what is wrong with them."""
    choices = usable(site.cluster)
    partition, problems = _partition(answers, site.cluster, choices)
    kind = _kind(partition, answers)
    count, origin, reason = _count(snapshot, answers, site, kind)
    if isinstance(answers.gpus, tuple):
        problems.append("--gpus names GPUs of this machine; a job asks for a number of each node: --gpus-per-node")
    problems += _too_many(partition, count, answers)
    problems += _other_model(partition, answers)
    gpu_type = _type(kind, partition) if count else ""
    models = gpu_models.named(answers.gpu_model or kind_type(kind))
    here = site.named or (partition is None and answers.gpu_model is None)
    gpus = _of_snapshot(snapshot, count) if here else ()
    if count and len(gpus) < count:
        gpus = tuple(_gpu(number, models, kind_type(kind)) for number in range(count))
    known = all(gpu.compute_capability and gpu.memory_total_bytes for gpu in gpus)
    seen = _seen(snapshot, gpus, kind, count, named=site.named)
    cleared = {name: value for name, value in answers.origins.items() if name != "gpus"}
    return Nodes(
        seen,
        replace(answers, gpus=None, origins=cleared),
        _told(gpus),
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
    """The partitions that take jobs, those with GPUs first, Slurm's default before others."""
    found = [partition for partition in (cluster.partitions if cluster else ()) if not _closed(partition, cluster)]
    return tuple(sorted(found, key=lambda p: (p.gpus_per_node == 0, not p.default)))


def _closed(partition: Partition, cluster: Cluster | None) -> str:
    """Why one's job cannot start in a partition now; "" where it can, or nobody knows."""
    mine = {a.account for a in cluster.associations} if cluster else set()
    if not partition.up:
        return "takes no jobs"
    if partition.kinds and not partition.usable:  # without any, Slurm did not tell of its nodes
        return f"has 0 of {partition.nodes} nodes that can be used"
    if partition.accounts is not None and mine and not mine & set(partition.accounts):
        return f"takes only the accounts {', '.join(partition.accounts)}"
    return ""


def _partition(
    answers: Answers, cluster: Cluster | None, choices: Sequence[Partition]
) -> tuple[Partition | None, list[str]]:
    """The partition of the answers, and what is wrong with it; of several names the first counts."""
    every = cluster.partitions if cluster else ()
    if answers.partition is None:
        asked = answers.gpus_per_node if answers.gpus_per_node is not None else 0
        fitting = [p for p in choices if p.gpus_per_node >= asked] or list(choices)
        fitting.sort(key=lambda p: bool(_other_model(p, answers)))
        if every and not fitting:
            told = "; ".join(f"{partition.name} {_closed(partition, cluster)}" for partition in every)
            return None, [f"no partition takes your job now: {told}"]
        return next(iter(fitting), None), []
    if not every:
        return None, []
    found = {partition.name: partition for partition in every}
    names = answers.partition.split(",")
    problems = []
    for name in names:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
            hint = f". Did you mean {near[0]}?" if near else f"; there are {', '.join(found)}"
            problems.append(f"--partition {name}: no such partition{hint}")
        elif not found[name].up:
            problems.append(f"--partition {name}: it takes no jobs now")
    return next((found[name] for name in names if name in found), None), problems


def _kind(partition: Partition | None, answers: Answers) -> NodeKind | None:
    """Which nodes of a mixed partition are meant: those with enough GPUs, of the model that was named, the most of
    them."""
    if partition is None or not partition.kinds:
        return None
    asked = answers.gpus_per_node
    kinds = [kind for kind in partition.kinds if kind.gpus >= (1 if asked is None else asked)] or partition.kinds
    if answers.gpu_model:
        same = [kind for kind in kinds if answers.gpu_model in {m.name for m in gpu_models.named(kind_type(kind))}]
        kinds = same or kinds
    return max(kinds, key=lambda kind: (kind.usable > 0, kind.usable * max(1, kind.gpus)))


def _count(snapshot: Snapshot, answers: Answers, site: Site, kind: NodeKind | None) -> tuple[int, Origin, str]:
    """GPUs of each node, who says so, and why."""
    if answers.gpus_per_node is not None:
        return answers.gpus_per_node, origin_of(answers, "gpus_per_node"), "of each node"
    if isinstance(answers.gpus, int):
        return answers.gpus, origin_of(answers, "gpus"), "of each node"
    if site.named:
        return len(snapshot.gpus or ()), "flag", "of each node"
    if kind is not None:
        return kind.gpus, "probe", "all that a node of the partition has"
    here = len(_of_snapshot(snapshot, gpu_models.MOST_GPUS))
    return here, "probe" if here else "rule", "as many as this machine has" if here else "no GPU is known of"


def _too_many(partition: Partition | None, count: int, answers: Answers) -> list[str]:
    if partition is None or not partition.kinds or count <= partition.gpus_per_node:
        return []
    most = partition.gpus_per_node
    has = f"its nodes have {most}" if most else "its nodes have no GPU"
    return [f"--gpus-per-node {count}: partition {partition.name}: {has}"]


def _other_model(partition: Partition | None, answers: Answers) -> list[str]:
    """Where a partition names the GPUs of all its nodes, and none is the one that was asked for."""
    types = [kind_type(kind) for kind in partition.kinds if kind.gpus] if partition else []
    meant = [{model.name for model in gpu_models.named(name)} for name in types]
    known = partition is not None and partition.kinds and all(meant)
    if partition is None or not known or not answers.gpu_model or any(answers.gpu_model in m for m in meant):
        return []
    has = f"its GPUs are {', '.join(dict.fromkeys(types))}" if types else "its nodes have no GPU"
    return [f"--gpu-model {answers.gpu_model}: partition {partition.name}: {has}"]


def kind_type(kind: NodeKind | None) -> str:
    """The type of a node's GPUs, as the site calls it; "" where it has several, or none."""
    types = {gres.type for gres in kind.gres if gres.name == "gpu"} if kind else set()
    return types.pop() if len(types) == 1 else ""


def _type(kind: NodeKind | None, partition: Partition | None) -> str:
    """The type to ask for: only where the partition has nodes with other GPUs too."""
    every = {kind_type(other) for other in partition.kinds if other.gpus} if partition else set()
    return kind_type(kind) if len(every) > 1 else ""


def _of_snapshot(snapshot: Snapshot, count: int) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in snapshot.gpus or () if not gpu.lost)[:count]


def _gpu(number: int, models: Sequence[gpu_models.Model], site_name: str) -> Gpu:
    """A GPU that nobody has looked at: of what its name may mean, that in which all meanings agree."""
    names = {model.name for model in models}
    abilities, sizes = {model.compute_capability for model in models}, {model.memory_mib for model in models}
    name = f"NVIDIA {names.pop()}" if len(names) == 1 else site_name or None
    ability = abilities.pop() if len(abilities) == 1 else None
    size = sizes.pop() << 20 if len(sizes) == 1 else None
    return Gpu(number, None, name, None, ability, size, None, None)


def _seen(snapshot: Snapshot, gpus: tuple[Gpu, ...], kind: NodeKind | None, count: int, *, named: bool) -> Snapshot:
    """A node as a Snapshot: its GPUs, its share of CPUs and memory; of this machine only the software."""
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


def _told(gpus: Sequence[Gpu]) -> str:
    """A node in words."""
    if not gpus:
        return "ranks on the CPU"
    return f"{len(gpus)} x {gpus[0].name or 'GPU'} each"


def asking_text() -> str:
    """What is said while the cluster is asked."""
    return f"Slurm's partitions (up to {DEADLINE_S:g} s)"
