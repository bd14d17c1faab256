"""Which hosts were a config's answers given for? So that `--hosts` is typed only once."""

from __future__ import annotations

import os


def kept_hosts(config: str) -> str:
    """Return the hosts in the answers beside a config for several machines, as `--hosts` takes them; "" if none."""
    path = config or "accelerate.yaml"
    if not os.path.exists(
        os.path.join(os.path.dirname(path), "mgpu.answers.toml")
    ):  # most folders: nothing is imported
        return ""
    from mgpu.fleet import hosts_config

    return hosts_config.kept(path)
