"""What is in a proposal? Rows of the review, options of the menus, and what goes into the file. Data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mgpu.job_files.job import Job
from mgpu.planning.memory import Need
from mgpu.wizard.answer_fields import Answers, Origin


@dataclass(frozen=True)
class Option:
    """One line of a menu. A disabled one is shown with the reason and cannot be selected."""

    name: str  # the value of the answer: "fsdp2"; for GPUs the index
    text: str  # "FSDP2: split everything"
    disabled: str | None = None  # why it is impossible here, as a clause: "needs 135 GiB per GPU, have 79"
    recommended: bool = False  # the choice for "auto"
    detail: str = ""  # what it needs: "needs 34 GiB, leaves 45"


@dataclass(frozen=True)
class Setting:
    """One row of the review: a label, a value, its source and the reason."""

    label: str
    text: str
    origin: Origin
    reason: str = ""
    question: str | None = None  # the question that edits it; None: it cannot be edited
    keys: Mapping[str, Any] = field(default_factory=dict)  # its dotted accelerate keys, in the file's order


@dataclass(frozen=True)
class Part:
    """The share of one subject (GPUs, precision, strategy …) in a proposal."""

    settings: tuple[Setting, ...] = ()
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    launch_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A complete config, as rows for the user and as values for accelerate."""

    settings: tuple[Setting, ...]
    machine: str
    cpu: bool  # ranks run on the CPU, because this machine has no NVIDIA GPU
    ranks: int  # over all nodes
    ranks_here: int = 1  # on each node
    nodes: int = 1
    gpus: tuple[int, ...] = ()  # NVML indices of the GPUs used on this machine; empty with CPU ranks
    batch_per_gpu: int | None = None
    accumulate: int = 1
    dataset_size: int | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)  # menu -> the option in effect, also for "auto"
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)  # menu -> its lines
    problems: tuple[str, ...] = ()  # what makes the current answers impossible; with one, nothing is written
    launch_flags: tuple[str, ...] = ()  # what the file cannot store: mgpu launch adds it to the launcher's command line
    notes: tuple[str, ...] = ()  # what else the user has to know or do: sentences
    need: Need | None = None  # memory per GPU; None: the size of the model is not known
    free_bytes: int | None = None  # usable memory of the smallest GPU, with no other process on it
    steps: int | None = None  # optimizer steps in an epoch
    gpu_ids: str | None = None  # accelerate's gpu_ids, if these are not just the first GPUs
    answers: Answers = Answers()  # the decisions it is based on
    engine: str = ""  # what starts the nodes: slurm, kubeflow ...; "": this machine, or the user by hand
    job: Job | None = None  # the job for the engine
    gpu_model: str = ""  # of the job's nodes
    gpus_of_node: int | None = None  # GPUs of each node of the job; None: not known
    gpus_named: bool = True  # the GPU model of the nodes is known, or not needed

    @property
    def unit(self) -> str:
        """The word for one rank in sentences: "GPU", or "rank" for CPU ranks."""
        return "rank" if self.cpu else "GPU"

    @property
    def values(self) -> dict[str, Any]:
        """The keys and values of the file, in the file's order, sections nested."""
        whole: dict[str, Any] = {}
        for setting in self.settings:
            for key, value in setting.keys.items():
                *sections, last = key.split(".")
                inner = whole
                for section in sections:
                    inner = inner.setdefault(section, {})
                inner[last] = value
        return whole

    def setting(self, label: str) -> Setting | None:
        """Return the row with this label."""
        return next((setting for setting in self.settings if setting.label == label), None)


_SOURCES: Final[Mapping[Origin, str]] = {"probe": "detected", "rule": "default"}  # the others are shown by their id


def origin_of(answers: Answers, name: str) -> Origin:
    """Return the source that decided this answer."""
    return answers.origins.get(name, "you")


def source_of(setting: Setting) -> str:
    """Return the source of a row's value as shown on the screen, for example "detected" or "default"."""
    return _SOURCES.get(setting.origin, setting.origin)


def refusal(subject: str, options: tuple[Option, ...], name: str) -> tuple[str, ...]:
    """Return the problem of a decision whose option is impossible or unknown; empty if it is possible."""
    option = next((option for option in options if option.name == name), None)
    if option is None:
        return (f"{subject} {name}: choose one of {', '.join(option.name for option in options)}",)
    title = option.text.partition(":")[0]
    return (f"{subject}: {title} is not possible here: {option.disabled}",) if option.disabled else ()
