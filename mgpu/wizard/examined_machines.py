"""Which machine is the config for: this one, or hosts that the user names, which are examined once?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mgpu.wizard.answers import Answers
from mgpu.wizard.request import Machine


@dataclass
class Machines:
    """The machines of the answers. `look` examines hosts, and raises MgpuError if one is not reached."""

    start: Machine  # of the answers at the start
    look: Callable[[Answers], tuple[Machine, Answers]] | None = None
    _found: dict[str | None, Machine] = field(default_factory=dict)  # by the answer `hosts`

    def add(self, answers: Answers, machine: Machine) -> None:
        """Store what was found for these answers."""
        self._found[answers.hosts] = machine

    def examine(self, answers: Answers) -> Answers:
        """Examine the hosts of the answers; return the answers with what was measured."""
        if self.look is None or not answers.hosts:
            return answers
        machine, completed = self.look(answers)
        self.add(answers, machine)
        return completed

    def of(self, answers: Answers) -> Machine:
        """Return the machine that a config for these answers must fit; hosts that are still being typed: the first."""
        return self._found.get(answers.hosts, self.start)
