"""Are the installed Python packages compatible, and does PATH start the same ones?

* entry_points: is accelerate installed, and which interpreter do the commands on PATH start?
* site_packages: do copies from outside the environment hide its own?
* compatibility: does each package get the versions of others that it needs?
* known_faults: do the installed releases have known faults that affect this machine or this config?
"""

from __future__ import annotations

from mgpu.check import Family

FAMILY = Family(stops_start="always")
ORDER = ("entry_points", "site_packages", "compatibility", "known_faults")
