"""`python -m tests.machines NAME`: a described machine in the form that `mgpu doctor --from` reads."""

from __future__ import annotations

import sys

from mgpu.report import document
from mgpu.snapshot import to_json
from tests.machines import machine

if __name__ == "__main__":
    sys.stdout.write(document.facts_text(to_json(machine(sys.argv[1]))))
