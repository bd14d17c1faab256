"""Can DeepSpeed start ranks on the other nodes?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Config, Network


@check(Severity.ERROR, source="https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py")
def deepspeed_pdsh_missing(config: Config, network: Network) -> Answer:
    """The config starts DeepSpeed on several nodes with pdsh, but pdsh is not installed.

    Why: DeepSpeed's launcher stops at once.
    More: accelerate passes multi-node launches to DeepSpeed's own launcher, which uses pdsh unless the config names
    another one, and stops with "launcher 'pdsh' not installed".

    Fix: start one launcher on each node, with deepspeed_multinode_launcher: standard in the config.
    """
    if config.distributed_type != "DEEPSPEED" or config.num_machines < 2:
        return Skip("not a multi-node DeepSpeed launch")
    section = config.values.get("deepspeed_config")
    chosen = section.get("deepspeed_multinode_launcher") if isinstance(section, Mapping) else None
    if chosen not in (None, "pdsh"):
        return Ok(f"the launcher is {chosen}")
    if network.pdsh is None:
        return Skip("pdsh was not looked for")
    if network.pdsh:
        return Ok("pdsh is installed")
    key = "deepspeed_config.deepspeed_multinode_launcher"
    mark = config.marks.get(key) or config.marks.get("deepspeed_config")
    return Problem(
        f"deepspeed_multinode_launcher is pdsh{'' if chosen else ' (its default)'}, which is not installed",
        fix=(Fix(), Fix("Or install it.", ("sudo apt-get install pdsh",), who="admin")),
        evidence={key: str(chosen)},
        place=Place(config.path, mark.line, mark.column, key) if mark else Place(config.path),
    )
