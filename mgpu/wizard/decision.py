"""What makes up one decision of the wizard: its option, its question, and when it is asked? Data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

from mgpu.job_formats import SOME_ENGINES, engines_supporting
from mgpu.planning.memory import SPLITTING
from mgpu.wizard.value_readers import yes_no

if TYPE_CHECKING:
    from mgpu.wizard.answer_fields import Answers
    from mgpu.wizard.proposal_types import Proposal

Mode = Literal["quick", "guided"]
# Lines with the consequences of an answer, from the question's name, answers, proposal and width (0: sentences).
Panel = Callable[[str, "Answers", "Proposal", int], list[str]]


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """What decides whether a question is asked."""

    mode: Mode
    answers: Answers
    proposal: Proposal
    able: Sequence[str]  # the possible choices of its menu
    became_impossible: bool  # its decided answer is no longer possible

    @property
    def size_known(self) -> bool:
        """Whether the model size is decided."""
        return self.answers.params is not None or self.answers.model is not None

    @property
    def is_split(self) -> bool:
        """Whether the model is split across the GPUs."""
        return self.proposal.chosen.get("strategy") in SPLITTING


@dataclass(frozen=True, eq=False, repr=False)  # each further method costs time at the start of a command
class Decision:
    """One thing to decide: a field of Answers, its names in options and files, and the question that asks for it."""

    name: str  # the field
    section: str  # its table in an answers file
    metavar: str
    help: str  # help of the option
    read: Callable[[object], Any]  # raises ValueError: what is allowed, as a clause
    _: KW_ONLY
    key: str = ""  # its key in the table of an answers file; "": the name
    show: Callable[[Any], str] = str  # a value as the user would type it
    settles: tuple[str, ...] = ()  # deciding it resets what a weaker source decided for these
    excludes: tuple[str, str] | None = None  # a decision that cannot be combined with it, and why
    in_config: bool = False  # the accelerate config stores it; the comment at the top of the file stores all others
    needed: bool = False  # cannot be detected: reported as missing if no question can be asked
    # The question. {unit} and {ranks} are replaced by the values of the proposal.
    text: str = ""  # "": never asked
    info: str = ""  # help: its meaning, the reason for the default, when to change it
    hint: str = ""  # example of an answer, shown while nothing is typed
    menu: bool = False  # the proposal provides the choices
    choices: tuple[tuple[str, str], ...] = ()  # fixed choices
    many: bool = False  # several choices can be selected
    probed: bool = False  # accepting the proposed value leaves it undecided
    skips: bool = False  # it may be skipped
    panel: Panel | None = None  # None: the review rows that it decides
    # When it is asked. The files in `topics/` list the questions in the order of a walk.
    walk: Mode | Literal[""] = ""  # the shortest walk that asks it; "": only its row in the review does
    applies: Callable[[Case], bool] = lambda case: True  # must not depend on the answer to the question itself
    together: tuple[str, ...] = ()  # questions that its row in the review also asks
    label: str = ""  # label of its row in the review, if no part of the proposal adds one …
    why: str = ""  # … and the reason that this row shows
    row: str = ""  # the decision whose review row shows it, if that is another one

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name)

    @property
    def engines(self) -> tuple[str, ...] | None:
        """The engines that accept it; None: all."""
        return engines_supporting(self.name) if self.name in SOME_ENGINES else None

    @property
    def flag(self) -> str:
        """The option of `mgpu configure`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "MGPU_" + self.name.upper()

    @property
    def dotted(self) -> str:
        """The key of `--set`."""
        return f"{self.section}.{self.key}"

    @property
    def switch(self) -> bool:
        """Whether the flag takes no value: --numa, --no-numa."""
        return self.read is yes_no
