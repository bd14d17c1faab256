"""How is a config written so that accelerate takes it and a person understands it?

Only keys that have an effect; what mgpu knows besides goes into comments, because accelerate refuses keys it does not
know. Every value says where it comes from.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import TYPE_CHECKING, Any

from mgpu import __version__, plan
from mgpu.config.reading import WRITTEN_BY, seal

if TYPE_CHECKING:
    from mgpu.wizard.proposal import Proposal


def render(proposal: Proposal, today: date) -> str:
    """The YAML text of a proposal."""
    values: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", **proposal.values}
    reasons = {s.key: f"{s.origin}: {s.reason}" for s in proposal.settings if s.key and s.reason}
    lines = [f"{WRITTEN_BY} {__version__} on {today.isoformat()} for {proposal.machine}."]
    lines.append("# Write it anew:  mgpu configure --yes")
    if proposal.cpu:
        lines.append("# No NVIDIA GPU here: mgpu runs these ranks on the CPU by adding ACCELERATE_USE_CPU=true.")
    if proposal.batch_per_gpu is not None:
        whole = plan.effective_batch(proposal.batch_per_gpu, proposal.ranks)
        lines.append(f"# batch per GPU {proposal.batch_per_gpu} x {proposal.ranks} ranks = effective batch {whole}")
    lines.append(seal(values))
    for key, value in values.items():
        text = f"{key}: {_scalar(value)}"
        lines.append(f"{text:<34}# {_one_line(reasons[key])}" if key in reasons else text)
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    """A YAML scalar that YAML 1.1 reads back as itself: NO and no need quotes."""
    if isinstance(value, str):
        return f"'{value}'" if value.lower() in ("no", "yes", "on", "off", "true", "false", "null", "") else value
    return json.dumps(value)


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)
