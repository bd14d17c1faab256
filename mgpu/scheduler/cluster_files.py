"""Does Slurm have a cluster here, or are only its commands installed?"""

from __future__ import annotations

import os
from pathlib import Path

# Where Slurm's commands look for their configuration, besides $SLURM_CONF: slurm.schedmd.com/slurm.conf.html and
# configless_slurm.html.
_SLURM_CONF = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def has_cluster() -> bool:
    """Whether Slurm's commands have a cluster: they may be installed without one."""
    return "SLURM_CONF" in os.environ or any(Path(name).exists() for name in _SLURM_CONF)
