"""What does `--json-result` hold?"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mgpu import __version__, files
from mgpu.errors import MgpuError
from mgpu.launch.request import Request


def write(request: Request, content: dict[str, Any]) -> None:
    """Write the document where `--json-result` says; that it cannot be written is told, and changes nothing."""
    written(Path(request.json_result), document(content))


def document(content: dict[str, Any]) -> dict[str, Any]:
    """mgpu.run/1.0: what every end of a launch tells, and what this one does."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"schema": "mgpu.run/1.0", "mgpu": __version__, "time": now, **content}


def written(path: Path, whole: dict[str, Any], mode: int | None = None) -> None:
    """Write a document in one step. The training's exit code matters more than this file."""
    try:
        files.write(path, json.dumps(whole, indent=2) + "\n", mode=mode)
    except MgpuError as error:
        if sys.stderr is not None:
            print(f"mgpu: {error.message}", file=sys.stderr)
