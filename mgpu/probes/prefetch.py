"""Which probes can be on their way before the command line is read?

Reading options costs more than asking most probes, and the probes run in children: with a second CPU both is done at
once. So the plain `mgpu doctor`, `mgpu configure --validate`, `mgpu smoke-test` and `mgpu launch` start them first of
all. `take` hands them over; `mgpu.__main__` stops those that are not taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mgpu.probes.runner import Child

# With one of these nothing is asked here, or it is asked otherwise.
_NOT_WITH = (
    "--from", "--target", "--list-checks", "--explain", "--json-schema", "--python", "--path", "--exit-style", "--help",
    "--show", "--slurm",
)  # fmt: skip

_started: list[Child] | None = None


def start(argv: Sequence[str]) -> None:
    """Start the probes that this command line will want, just as they are."""
    global _started
    if argv[:1] == ["launch"]:
        _for_launch(argv[1:])
        return
    validates = argv[:1] == ["configure"] and "--validate" in argv
    if not validates and argv[:1] not in (["doctor"], ["smoke-test"]):
        return
    options = argv[1:]
    if any(option.startswith(_NOT_WITH) or (option[:1] == "-" != option[1:2] and "h" in option) for option in options):
        return
    from mgpu.probes import runner

    with contextlib.suppress(OSError):  # no process could be started: the command will meet it again, and say so
        quick = runner.QUICK if "--quick" in options or argv[0] == "smoke-test" else runner.DEFAULT
        _started = runner.start(runner.OF_CONFIGS if validates else quick)


def _for_launch(words: Sequence[str]) -> None:
    global _started
    from mgpu.cli import launch_line

    request = launch_line.alone(words)
    if request is not None and request.target and not request.of_a_run:
        from mgpu.launch import output_folders
        from mgpu.probes import runner

        with contextlib.suppress(OSError):
            _started = runner.start(runner.of_launch(output_folders.folders(request.target[1:])))


def take() -> list[Child] | None:
    """The children, once."""
    global _started
    taken, _started = _started, None
    return taken
