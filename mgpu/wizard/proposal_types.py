"""What does a proposal consist of? Rows of the review, options of its menus, and what goes into the file. Data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mgpu.job_files.job import Job
from mgpu.planning.memory import Need
from mgpu.wizard.answer_fields import Answers, Origin


@dataclass(frozen=True)
class Option:
    """One line of a menu. A disabled one is shown with the reason and cannot be taken."""

    name: str  # the value of the answer: "fsdp2"; of GPUs the index
    text: str  # "FSDP2: split everything"
    disabled: str | None = None  # why it is impossible here, as a clause: "needs 135 GiB per GPU, have 79"
    recommended: bool = False  # what "auto" takes
    detail: str = ""  # what it costs and needs: "needs 34 GiB, leaves 45"


@dataclass(frozen=True)
class Setting:
    """One row of the review screen: what it is called, what it is, where it comes from and why."""

    label: str
    text: str
    origin: Origin
    reason: str = ""
    question: str | None = None  # the question that edits it; None: nothing to ask
    keys: Mapping[str, Any] = field(default_factory=dict)  # dotted accelerate keys it becomes, in the file's order


@dataclass(frozen=True)
class Part:
    """What one subject (GPUs, precision, strategy …) adds to a proposal."""

    settings: tuple[Setting, ...] = ()
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    launch_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A whole config, as rows for people and as values for accelerate."""

    settings: tuple[Setting, ...]
    machine: str
    cpu: bool  # ranks run on the CPU, because this machine has no NVIDIA GPU
    ranks: int  # over all machines
    ranks_here: int = 1  # on each machine
    nodes: int = 1
    gpus: tuple[int, ...] = ()  # NVML indices of the GPUs that are used on this machine; empty with CPU ranks
    batch_per_gpu: int | None = None
    accumulate: int = 1
    dataset_size: int | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)  # menu -> the option that holds, also where it was "auto"
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)  # menu -> its lines
    problems: tuple[str, ...] = ()  # what makes the present answers impossible; with one, nothing is written
    launch_flags: tuple[str, ...] = ()  # what the file cannot say and mgpu launch adds to the launcher's command line
    notes: tuple[str, ...] = ()  # what the user has to know or do besides: sentences
    need: Need | None = None  # memory per GPU; None: the size of the model is not known
    free_bytes: int | None = None  # what a run finds on the smallest GPU when nobody else uses it
    steps: int | None = None  # optimizer steps in an epoch
    gpu_ids: str | None = None  # of accelerate, where not simply the first GPUs are used
    answers: Answers = Answers()  # the decisions it was made from
    engine: str = ""  # what starts the machines: slurm, kubeflow ...; "": this machine, or people by hand
    job: Job | None = None  # what the engine is asked for
    gpu_model: str = ""  # of the job's nodes
    gpus_of_node: int | None = None  # GPUs of each node of the job; None: not known
    gpus_named: bool = True  # the GPU model of the nodes is known, or not needed

    @property
    def unit(self) -> str:
        """What a rank runs on, for sentences: "GPU" or "rank"."""
        return "rank" if self.cpu else "GPU"

    @property
    def values(self) -> dict[str, Any]:
        """What stands in the file, in accelerate's own words and the file's order, sections nested."""
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
        """The row of this name."""
        return next((setting for setting in self.settings if setting.label == label), None)


def origin_of(answers: Answers, name: str) -> Origin:
    """Who decided this answer."""
    return answers.origins.get(name, "you")


def refusal(subject: str, options: tuple[Option, ...], name: str) -> tuple[str, ...]:
    """The problem of a decision whose option is impossible (or no option at all); none where it is possible."""
    option = next((option for option in options if option.name == name), None)
    if option is None:
        return (f"{subject} {name}: choose one of {', '.join(option.name for option in options)}",)
    return (f"{subject}: {option.text} is not possible here: {option.disabled}",) if option.disabled else ()
