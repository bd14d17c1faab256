"""The doctor's last verdict, saved for the guide (bare `mgpu`)."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone

from mgpu import files
from mgpu.errors import MgpuError
from mgpu.snapshot import Snapshot


def remember_verdict(verdict: str, snapshot: Snapshot) -> None:
    """Save the doctor's verdict for the next bare `mgpu`, if the state folder is writable.

    It is about this host and this Python environment: the home folder may be shared by several hosts.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    host = snapshot.host.name if snapshot.host else None
    try:
        folder = files.private_folder(files.state_folder())
        saved = {"verdict": verdict, "time": now, "host": host, "python": sys.prefix}
        files.write(folder / "doctor.json", json.dumps(saved) + "\n", mode=0o600)
    except (OSError, MgpuError):
        return
