"""Which options does `mgpu doctor` have, and which of them conflict?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu import errors
from mgpu.errors import MgpuError
from mgpu.text import listed

if TYPE_CHECKING:
    from mgpu.probes.runner import Child

_LONGEST_S = 1_000_000  # a timer accepts no infinity, and twelve days are enough
_MOST_GIB = 1_000_000
FORMATS = ("human", "json", "junit", "github", "markdown", "sarif", "html")
PORTS = ("accelerate", "ddp")
STYLES = ("default", "nagios", "prolog")


@dataclass(frozen=True)
class Request:
    """The doctor's options."""

    quick: bool = False
    deep: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    expect_gpus: int | None = None
    expect_free_gib: float | None = None
    nodes: int | None = None
    strict: bool = False
    format: str = "human"
    output: str = "-"
    save: str = ""
    from_: str = ""
    demo: str = ""  # a machine of mgpu/report/demo.py
    compare: str = ""
    compare_nodes: tuple[str, ...] = ()  # files and folders
    hosts: str = ""
    data: tuple[str, ...] = ()  # of --path with --hosts
    config: str = ""
    script: str = ""
    log: tuple[str, ...] = ()
    python: str | None = None
    redact: bool | None = None  # None: depends on the format
    fix: bool = False
    dry_run: bool = False
    yes: bool = False
    with_: str = ""  # the library that --script --fix ports to
    exit_style: str = "default"
    timeout_s: float = 0
    verbose: bool = False
    started: list[Child] | None = None  # the probes' child processes, already running
    began: float | None = None  # start (monotonic), for the duration in the verdict

    @property
    def plain(self) -> bool:
        """Whether this is a plain examination of this machine, without options that narrow it."""
        given = (
            self.from_,
            self.demo,
            self.only,
            self.skip,
            self.config,
            self.python,
            self.expect_gpus,
            self.expect_free_gib,
        )
        return self.nodes is None and not self.of_files and not any(bool(option) or option == 0 for option in given)

    @property
    def away(self) -> bool:
        """Whether a saved machine or one of `--demo` is judged."""
        return bool(self.from_ or self.demo)

    @property
    def of_files(self) -> bool:
        """Whether files or other machines are judged (a script, logs, saved machines, hosts) instead of this one."""
        return bool(self.script or self.log or self.compare_nodes or self.hosts)

    @property
    def hides(self) -> bool:
        """Whether host, user, addresses and similar values are replaced: by the flag, else for markdown and HTML."""
        return self.format in ("markdown", "html") if self.redact is None else self.redact


def check(request: Request) -> None:
    """Raise MgpuError (usage) for invalid values and for options that conflict."""
    one_of("--format", request.format, FORMATS)
    one_of("--exit-style", request.exit_style, STYLES)
    one_of("--with", request.with_ or PORTS[0], PORTS)
    together = (
        (request.quick and request.deep, "--quick and --deep conflict"),
        (request.deep and request.from_, "--deep uses the GPUs of this machine: remove --from"),
        (request.fix and request.from_, "--fix repairs this machine: remove --from"),
        (request.fix and request.hides, "--fix prints the names of your files: remove --redact, markdown and html"),
        (
            request.of_files and (request.deep or request.from_ or request.save or request.compare),
            "--script, --log and --compare-nodes read files: remove --deep, --fix, --from, --save and --compare",
        ),
        (
            request.fix and (request.log or request.compare_nodes),
            "--log and --compare-nodes read files: remove --fix",
        ),
        (request.with_ and not (request.fix and request.script), "--with needs --script and --fix"),
        (
            request.compare_nodes and (request.script or request.log or request.python),
            "--compare-nodes judges saved machines: remove --script, --log and --python",
        ),
        (
            request.hosts and (request.compare_nodes or request.script or request.log or request.from_ or request.fix),
            "--hosts examines other machines: remove --compare-nodes, --script, --log, --from and --fix",
        ),
        *_conflicts_of_demo(request),
        (request.python and request.from_, "--python examines an interpreter on this machine: remove --from"),
        ((request.dry_run or request.yes) and not request.fix, "--dry-run and --yes need --fix"),
        (request.fix and (request.only or request.skip), "--fix offers all repairs: remove --only and --skip"),
        (not 0 <= request.timeout_s <= _LONGEST_S, f"--timeout {request.timeout_s:g}: choose 0 to {_LONGEST_S} s"),
        (
            request.expect_free_gib is not None and not 0 <= request.expect_free_gib <= _MOST_GIB,
            f"--expect-free: choose 0 to {_MOST_GIB} GiB",
        ),
    )
    for wrong, message in together:
        if wrong:
            raise MgpuError(message, errors.USAGE)


def _conflicts_of_demo(request: Request) -> tuple[tuple[object, str], ...]:
    here = request.deep or request.fix or request.python or request.exit_style != "default"
    other = request.of_files or request.from_ or request.save or request.compare
    return (
        (request.demo and here, "--demo shows another machine: remove --deep, --fix, --python and --exit-style"),
        (request.demo and other, "--demo shows its own machine: remove --from, --save, --compare and files to read"),
    )


def one_of(option: str, given: str, names: Sequence[str]) -> None:
    """Raise MgpuError (usage) if an option's value is not one of these names."""
    if given not in names:
        import difflib

        near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise MgpuError(f"{option} {given}: choose {listed(names, 'or')}.{hint}", errors.USAGE)


def interpreter(given: str) -> str:
    """Return the absolute path of the `--python` interpreter: a path, or a name on PATH.

    Raises MgpuError (usage) if it is not a Python interpreter.
    """
    import shutil

    from mgpu.process import training_python

    path = Path(given).expanduser() if os.sep in given or given.startswith("~") else Path(shutil.which(given) or given)
    if path.is_dir() and os.access(path / "bin" / "python", os.X_OK):
        raise MgpuError(f"--python {given}: a folder. Did you mean {path / 'bin' / 'python'}?", errors.USAGE)
    if not path.exists():
        why: str | None = "no such file" if os.sep in given else "no such file, here or on PATH"
    elif path.is_dir() or not os.access(path, os.X_OK):
        why = "not an executable program"
    else:
        why = training_python.problem(os.path.abspath(path))
    if why:
        raise MgpuError(f"--python {given}: {why}", errors.USAGE)
    return os.path.abspath(path)  # not resolved: a virtual environment's python is a link
