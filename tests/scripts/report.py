"""Rank 0 writes its arguments and its standard input as JSON to $REPORT, and odd bytes to stdout and stderr."""

import json
import os
import sys
from pathlib import Path

OUT = b"plain\n\rprogress 1\rprogress 2\x1b[31mred\x1b[0m \xff\xfe\x00 no newline at the end"
ERR = b"\xc3 half a letter, \x1b]0;title\x07 and \r\n"

if __name__ == "__main__" and os.environ.get("RANK", "0") == "0":
    found = {
        "arguments": sys.argv[1:],
        "stdin": None if sys.stdin.isatty() else sys.stdin.read(),
        "world": os.environ.get("WORLD_SIZE"),
        "cpu": os.environ.get("ACCELERATE_USE_CPU"),
        "marked": "MGPU_RUN_ID" in os.environ,
    }
    Path(os.environ["REPORT"]).write_text(json.dumps(found), "utf-8")
    os.write(1, OUT)
    os.write(2, ERR)
