"""Which hosts were a config's answers given for? So that `--hosts` and `--python` are typed only once."""

from __future__ import annotations

import os

from mgpu.errors import USAGE, MgpuError


def kept_hosts(config: str, typed: str = "", python: str = "") -> tuple[str, str]:
    """Return the hosts in the answers beside a config for several machines, and their Python, as the options take them.

    "" if there are none. `typed`, `python`: of `--hosts` and `--python`, which count more than the answers. Raises
    MgpuError (usage) if `python` names hosts and there are none.
    """
    hosts, kept = typed, ""
    path = config or "accelerate.yaml"
    if os.path.exists(os.path.join(os.path.dirname(path), "mgpu.answers.toml")):  # most folders: nothing is imported
        from mgpu.fleet import hosts_config

        answered, kept = hosts_config.kept(path)
        hosts = typed or answered
        kept = kept if hosts == answered else ""
    if "=" in python and not hosts:
        raise MgpuError("--python HOST=PATH is for --hosts. On this machine:  --python PATH", USAGE)
    return hosts, python or kept
