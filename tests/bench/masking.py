"""How fast are secrets masked, and is the time linear in the length of the text?

    python -m tests.bench.masking [MEGABYTES]

Hostile texts of one line, and a usual log line by line. The ratio is that of a text twice as long: 2 when it is linear.
Processor time.
"""

from __future__ import annotations

import sys
import time

from mgpu.secrets_masking import masked
from tests.bench.triage import different, usual

HOSTILE = {
    "a.a.a.": "a.", "colons": ":", "assignments": "a=", "quotes": '"', "options": "--a ", "base64": "QWxhZGRpbjpvcGVu",
    "addresses": "://a:a", "with an @": "://a:1/@", "names": "pw", "names, assigned": "token:", "masked": "token=***",
    "near tokens": "hf_abc ", "near JSON tokens": "a-eyJ", "keys without end": "-----BEGIN PRIVATE KEY-----",
    "open quotes": 'key="\\"', "values": "password: 12 ", "blanks": "token" + " " * 30,
}  # fmt: skip


def seconds(text: str) -> float:
    """Processor time of one masking."""
    start = time.process_time()
    masked(text)
    return time.process_time() - start


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1_000_000)
    for name, piece in HOSTILE.items():
        half, whole = (piece * (length // len(piece)) for length in (size // 2, size))
        took, twice = min(seconds(half), seconds(half)), seconds(whole)
        print(f"{name:<18} {len(whole) / twice / 1e6:8.1f} MB/s   twice as long: {twice / took:.1f} times")
    for name, pieces in (("usual lines", usual(4 * size)), ("words", different(4 * size))):
        lines = "".join(pieces).splitlines()
        start = time.process_time()
        for line in lines:
            masked(line)
        took = time.process_time() - start
        print(f"{name:<18} {sum(map(len, lines)) / took / 1e6:8.1f} MB/s   {took / len(lines) * 1e6:.1f} us a line")


if __name__ == "__main__":
    main()
