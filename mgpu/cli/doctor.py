"""`mgpu doctor`: is this machine ready?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mgpu.probes.runner import Child, Probe


def _ids(incomplete: str) -> list[str]:
    """Ids and areas for the shell's completion; after a comma the next one."""
    from mgpu import engine

    done, comma, begun = incomplete.rpartition(",")
    names = dict.fromkeys(name for check in engine.load() for name in (check.area, check.id))
    return [f"{done}{comma}{name}" for name in names if name.startswith(begun)]


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Under a second: torch is not imported.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also run a kernel on every GPU, each in a process of its own.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ID[,ID]", help="Only these checks or areas.", autocompletion=_ids),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="ID[,ID]", help="Not these checks or areas.", autocompletion=_ids),
    ] = None,
    list_checks: Annotated[bool, typer.Option("--list-checks", help="Every check: id, area, what it proves.")] = False,
    explain: Annotated[
        str, typer.Option("--explain", metavar="ID", help="The whole text of one check.", autocompletion=_ids)
    ] = "",
    json_schema: Annotated[bool, typer.Option("--json-schema", help="The JSON Schema of --json.")] = False,
    expect_gpus: Annotated[
        int | None, typer.Option("--expect-gpus", metavar="N", min=0, help="Fail unless exactly N GPUs are usable.")
    ] = None,
    expect_free: Annotated[
        float | None, typer.Option("--expect-free", metavar="GIB", min=0, help="Fail unless every GPU has this free.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, help="Machines the run will span (else: config, Slurm job, 1)."),
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="DIR", help="A folder the run reads or writes; repeatable."),
    ] = None,
    script: Annotated[
        str, typer.Option("--script", metavar="FILE", help="Read this training or job script; nothing of it is run.")
    ] = "",
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="FILE", help="Explain this log of a failed run; repeatable, one a rank."),
    ] = None,
    compare_nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--compare-nodes",
            metavar="DIR|FILE",
            help="What differs between nodes: a folder of --save files, one a node, or a pre-flight's.",
        ),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(hidden=True, metavar="[FILE]...")] = None,  # of --log rank*.log
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail as well.")] = False,
    format: Annotated[
        str, typer.Option("--format", metavar="FMT", help="human, json, junit, github or markdown.")
    ] = "human",
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='Write there ("-" = stdout).')] = "-",
    save: Annotated[str, typer.Option("--save", metavar="FILE", help="Write the machine (a Snapshot, redacted).")] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar="FILE", help="Judge a saved machine, read nothing here.")
    ] = "",
    compare: Annotated[
        str,
        typer.Option("--compare", metavar="FILE", help="What changed since that --save. Does not alter the exit code."),
    ] = "",
    redact: Annotated[
        bool | None,
        typer.Option("--redact/--no-redact", help="Hide host, user, addresses, pids (on for markdown)."),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Offer repairs that are yours to make; the exit code is of a judgment after them."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --fix: show the repairs, do none.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --fix: do them all, ask nothing.")] = False,
    config: Annotated[
        str, typer.Option("--config", "-c", metavar="FILE", help="Judge this accelerate config with it.")
    ] = "",
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="Examine this interpreter instead of mgpu's own.")
    ] = "",
    exit_style: Annotated[
        str, typer.Option("--exit-style", metavar="STYLE", help="default, nagios, or prolog (Slurm).")
    ] = "default",
    timeout: Annotated[float, typer.Option("--timeout", metavar="SEC", min=0, help="The whole command.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every check, evidence, topology.")] = False,
) -> int:
    """Examine this machine: driver, GPUs, links, PyTorch, NCCL, limits. Changes nothing, unless --fix is agreed to."""
    import time

    from mgpu.probes import prefetch

    began = time.monotonic()
    if json_schema:
        from mgpu.cli import json_schema as cli_json_schema

        return cli_json_schema.show()
    if more and not (log or compare_nodes):
        from mgpu.errors import USAGE, MgpuError

        raise MgpuError(f"doctor takes no argument {more[0]!r} (a log: --log {more[0]}): mgpu doctor --help", USAGE)
    if python:
        from mgpu.doctor.request import interpreter

        python = interpreter(python)
    hurried = exit_style == "prolog"  # a prolog holds up every job
    quick = quick or hurried
    if hurried:
        import os

        # Slurm sets it to the GPUs of the job; a node is drained as a whole, for a fault of any.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    # The machine is asked while mgpu reads its options and loads its checks.
    ask = not (from_ or list_checks or explain or script or log or compare_nodes)
    started = (prefetch.take() or _start(quick, path or [], python, hurried=hurried)) if ask else None
    try:
        from mgpu.doctor import request as doctor_request
        from mgpu.doctor import run

        request = doctor_request.Request(
            quick=quick,
            deep=deep,
            only=_split(only),
            skip=_split(skip),
            expect_gpus=expect_gpus,
            expect_free_gib=expect_free,
            nodes=nodes,
            strict=strict,
            format="json" if json else format,
            output=output,
            save=save,
            from_=from_,
            compare=compare,
            config=config,
            script=script,
            log=(*log, *(more or ())) if log else (),
            compare_nodes=(*compare_nodes, *((more or ()) if not log else ())) if compare_nodes else (),
            python=python or None,
            redact=redact,
            fix=fix,
            dry_run=dry_run,
            yes=yes,
            exit_style=exit_style,
            timeout_s=timeout,
            verbose=verbose,
            started=started,
            began=began,
        )
        if list_checks:
            return run.list_checks(request)
        if explain:
            return run.explain(explain)
        return run.run(request)
    finally:
        if started:
            from mgpu.probes import runner

            runner.end(started)


_FLAGS = {
    "--quick": "quick", "--deep": "deep", "--strict": "strict", "--json": "json", "--verbose": "verbose",
    "-v": "verbose",
}  # fmt: skip


def flags_alone(options: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of a command line that has nothing but these flags: it needs no parser, and typer's loads pydantic,
    which takes as long as the quick examination itself. None for any other line."""
    if not all(option in _FLAGS for option in options):
        return None
    return {_FLAGS[option]: True for option in options}


_PROLOG_S = 5.0  # a child may take in a prolog: Slurm waits MessageTimeout for all of it, 10 s by default


def _start(quick: bool, paths: list[str], python: str, *, hurried: bool = False) -> list[Child]:
    """The probes' children, on their way; `hurried`: a job waits for them."""
    from mgpu.probes import runner

    wanted: tuple[Probe, ...] = runner.QUICK if quick else runner.DEFAULT
    if hurried:
        from dataclasses import replace

        wanted = tuple(replace(probe, deadline_s=min(probe.deadline_s, _PROLOG_S)) for probe in wanted)
    if paths:
        import os
        from dataclasses import replace

        named = {"named": [os.path.abspath(path) for path in paths]}
        wanted = tuple(replace(p, arguments=named) if p.name == "storage" else p for p in wanted)
    return runner.start(wanted, python=python or None)


def _split(names: list[str] | None) -> tuple[str, ...]:
    return tuple(part for name in names or () for part in name.split(",") if part)
