"""Which probes does this command line want, before it is parsed?

Reading options costs more than asking most probes: `mgpu.probes.prefetch` lets both happen at once.
"""

from __future__ import annotations

from collections.abc import Sequence

# With one of these nothing is asked here, or it is asked otherwise.
_NOT_WITH = (
    "--from", "--target", "--list-checks", "--explain", "--json-schema", "--python", "--path", "--exit-style", "--help",
    "--show", "--slurm",
)  # fmt: skip


def start(argv: Sequence[str]) -> None:
    """Start the probes that this command line will want, just as they are."""
    if argv[:1] == ["launch"]:
        _for_launch(argv[1:])
        return
    validates = argv[:1] == ["configure"] and "--validate" in argv
    if not validates and argv[:1] not in (["doctor"], ["smoke-test"]):
        return
    options = argv[1:]
    if any(option.startswith(_NOT_WITH) or (option[:1] == "-" != option[1:2] and "h" in option) for option in options):
        return
    from mgpu.probes import prefetch, runner

    quick = runner.QUICK if "--quick" in options or argv[0] == "smoke-test" else runner.DEFAULT
    prefetch.start(runner.OF_CONFIGS if validates else quick)


def _for_launch(words: Sequence[str]) -> None:
    from mgpu.launch import option_parser

    request = option_parser.alone(words)
    if request is not None and request.target and not request.of_a_run:
        from mgpu.launch import output_folders
        from mgpu.probes import prefetch, runner

        prefetch.start(runner.of_launch(output_folders.folders(request.target[1:])))
