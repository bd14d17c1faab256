"""The doctor's last verdict, saved for the guide (bare `mgpu`)."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from mgpu import files
from mgpu.errors import MgpuError
from mgpu.snapshot import Snapshot


def remember_verdict(verdict: str, snapshot: Snapshot) -> None:
    """Save the doctor's verdict for the next bare `mgpu`, if the state folder is writable."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    host = snapshot.host.name if snapshot.host else None
    try:
        folder = files.private_folder(files.state_folder())
        files.write(
            folder / "doctor.json", json.dumps({"verdict": verdict, "time": now, "host": host}) + "\n", mode=0o600
        )
    except (OSError, MgpuError):
        return
