"""Which hosts were a config's answers given for? So that `--hosts` and `--python` are typed only once."""

from __future__ import annotations

import os


def kept_hosts(config: str, typed: str = "") -> tuple[str, str]:
    """Return the hosts in the answers beside a config for several machines, and their Python, as the options take them.

    "" if there are none. `typed`: of `--hosts`, which counts more than the answers.
    """
    path = config or "accelerate.yaml"
    if not os.path.exists(
        os.path.join(os.path.dirname(path), "mgpu.answers.toml")
    ):  # most folders: nothing is imported
        return typed, ""
    from mgpu.fleet import hosts_config

    hosts, python = hosts_config.kept(path)
    return (typed, python if typed == hosts else "") if typed else (hosts, python)
