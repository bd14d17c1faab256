"""What does `--json-result` hold?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mgpu import __version__, files
from mgpu.errors import MgpuError
from mgpu.launch.request import Request


def write(request: Request, content: dict[str, Any]) -> None:
    document = {"schema": "mgpu.run/1.0", "mgpu": __version__, **content}
    try:
        files.write(Path(request.json_result), json.dumps(document, indent=2) + "\n")
    except MgpuError as error:  # the training's exit code matters more than this file
        print(f"mgpu: {error.message}", file=sys.stderr)
