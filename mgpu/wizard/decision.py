"""What is one decision of the wizard: its option and other names, its question, and when it is asked? Data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

from mgpu.job_formats import OF_SOME, taking
from mgpu.planning.memory import SPLITTING
from mgpu.wizard.value_readers import yes_no

if TYPE_CHECKING:
    from mgpu.wizard.answer_fields import Answers
    from mgpu.wizard.proposal_types import Proposal

Mode = Literal["quick", "guided"]
# The lines that follow from an answer: of the question, the answers, what is proposed, and a width (0: sentences).
Panel = Callable[[str, "Answers", "Proposal", int], list[str]]


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """What decides whether a question is asked."""

    mode: Mode
    answers: Answers
    proposal: Proposal
    able: Sequence[str]  # the choices of its menu that are possible
    became_impossible: bool  # its decided answer is no longer possible

    @property
    def size_known(self) -> bool:
        """Whether the size of the model is decided."""
        return self.answers.params is not None or self.answers.model is not None

    @property
    def is_split(self) -> bool:
        """Whether the model is split over the GPUs."""
        return self.proposal.chosen.get("strategy") in SPLITTING


@dataclass(frozen=True, eq=False, repr=False)  # each method more is time at the start of a command
class Decision:
    """One thing that can be decided: a field of Answers, every name it has outside, and the question that asks it."""

    name: str  # the field
    section: str  # the table of an answers file
    metavar: str
    help: str  # of the option
    read: Callable[[object], Any]  # raises ValueError: what is allowed, as a clause
    _: KW_ONLY
    key: str = ""  # in its table of an answers file; "": the name
    show: Callable[[Any], str] = str  # a value as the user would type it
    settles: tuple[str, ...] = ()  # deciding it resets what a weaker source decided for these
    excludes: tuple[str, str] | None = None  # what cannot be given together with it, and why
    in_config: bool = False  # the accelerate config contains it; the first lines of the file repeat all others
    needed: bool = False  # no machine can provide it: reported as missing if no one can be asked
    # The question. {unit} and {ranks} are replaced by the values of the proposal.
    text: str = ""  # "": it is never asked
    info: str = ""  # help: what it means, why this default, when to change it
    hint: str = ""  # how an answer is written: shown while nothing is typed
    menu: bool = False  # the proposal has the choices
    choices: tuple[tuple[str, str], ...] = ()  # they are always these
    many: bool = False  # several choices are marked
    probed: bool = False  # accepting the proposed value decides nothing
    skips: bool = False  # it may stay without an answer
    panel: Panel | None = None  # None: the rows of the review that it decides
    # When it is asked. The files of `topics/` have the questions in the order of a walk.
    walk: Mode | Literal[""] = ""  # the shortest walk that asks it; "": only its row of the review does
    applies: Callable[[Case], bool] = lambda case: True  # must not depend on the answer to the question itself
    together: tuple[str, ...] = ()  # questions that its row of the review asks as well
    label: str = ""  # of its row in the review, if no part of the proposal makes one …
    why: str = ""  # … and what that row says besides the value
    row: str = ""  # the row of the review that shows it, if it is the row of another decision

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name)

    @property
    def engines(self) -> tuple[str, ...] | None:
        """The engines that accept it; None: all."""
        return taking(self.name) if self.name in OF_SOME else None

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
