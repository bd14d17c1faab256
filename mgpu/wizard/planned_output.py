"""Which files does a proposal become, and what do they contain?"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from mgpu import errors
from mgpu.config import fixes
from mgpu.config.reading import parse_config, read
from mgpu.errors import MgpuError
from mgpu.snapshot import Snapshot
from mgpu.wizard import existing_file, job_file
from mgpu.wizard.answers import Answers
from mgpu.wizard.edit_existing import conversion_notes, edits_for, out_of_reach
from mgpu.wizard.manual_commands import DEFAULT_PLACES
from mgpu.wizard.proposal_types import Proposal
from mgpu.wizard.render_yaml import render
from mgpu.wizard.request import Request


@dataclass(frozen=True)
class Planned:
    """The config to write, and the job script if the proposal has a job."""

    request: Request
    proposal: Proposal
    path: Path
    base: Path | None = None  # a file not from mgpu that is changed in place: its comments and other keys stay
    asked: bool = False  # questions were asked: the user saw what is replaced, and gets the command that repeats them
    ask_slurm: bool = False  # Slurm is available and can check the job
    before: Answers | None = None  # the decisions behind a file from mgpu that is changed
    machine: Snapshot | None = None  # what the config is for
    verified: str = ""  # when a smoke test passed with exactly this config on this machine: "verified 2 h ago"

    @property
    def script(self) -> Path | None:
        """The job script, or the file of another engine."""
        return self.request.job_file if self.proposal.job else None

    @property
    def output_option(self) -> tuple[str, ...]:
        """-o and the config; empty for the default file of these options."""
        path = os.fspath(self.path)
        return () if self.path == Path(self.request.default_file) else ("-o", path)

    @property
    def config_option(self) -> tuple[str, ...]:
        """-c and the config, for the other commands; empty for the file they read by default."""
        path = os.fspath(self.path)
        return () if path in DEFAULT_PLACES else ("-c", path)

    def config_text(self) -> str:
        """Return the content of the config. Raises MgpuError if a file not from mgpu cannot be changed in place."""
        base = self.base
        config = read(base) if base is not None else None
        if base is None or config is None or config.written_by_mgpu:
            return render(self.proposal, date.today(), str(self.path), self.request.flags)
        if config.deepspeed_file is not None and (keys := out_of_reach(config, self.proposal)):
            raise MgpuError(
                f"{base} takes {', '.join(keys)} from {config.deepspeed_file.path}, which mgpu does not change. Change "
                "it there\n  mgpu configure -o OTHER.yaml   or write another config without that file",
                errors.REFUSED,
            )
        raw = existing_file.text_of(base)
        try:
            return fixes.apply(raw, edits_for(config, self.proposal), json_only=base.suffix == ".json")
        except fixes.CannotFix as error:
            raise MgpuError(
                f"{base} cannot be changed in place: {error}\n  mgpu configure -o OTHER.yaml   write another file",
                errors.NOT_READY,
            ) from None

    def script_text(self, config_text: str) -> str:
        """Return the content of the job script or job file; "" without a job. Raises MgpuError."""
        if self.script is None:
            return ""
        flags = (*self.request.machine_flags, *self.output_option, *self.request.more_flags)
        return job_file.text_of(self.proposal, self.script, self.path, config_text, flags)

    def with_notes(self) -> Planned:
        """Return the same with notes about what else changes in a file not from mgpu, and with the checks' warnings."""
        notes = () if self.base is None else conversion_notes(read(self.base), self.proposal)
        notes = (*notes, *self.proposal.notes, *self._warnings())
        return replace(self, proposal=replace(self.proposal, notes=notes))

    def _warnings(self) -> list[str]:
        """Return what `--validate` would say about the new config on its machine: each problem with its reason."""
        if self.machine is None:
            return []
        from mgpu.validate.run import judge

        config = parse_config(self.config_text().encode(), str(self.path))
        found = [o.problem for o in judge(config, self.machine) if o.status in ("fail", "warn") and o.problem]
        return [f"Warning: {problem.title}. {problem.cause}".strip() for problem in found]
