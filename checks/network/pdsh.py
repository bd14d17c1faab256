"""Can DeepSpeed start ranks on the other machines?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, Skip, check
from mgpu.snapshot import Config, Network


@check(Severity.ERROR, source="https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py")
def deepspeed_pdsh_missing(config: Config, network: Network) -> Answer:
    """The config starts DeepSpeed on several machines with pdsh, and pdsh is not installed.

    Why: DeepSpeed's launcher stops at once.
    More: accelerate hands such a launch to DeepSpeed's own launcher, which uses pdsh unless the config names another,
    and stops with "launcher 'pdsh' not installed".

    Fix: start one launcher on each machine: in the config, deepspeed_multinode_launcher: standard.
    """
    if config.distributed_type != "DEEPSPEED" or config.num_machines < 2:
        return Skip("no DeepSpeed launch over several machines")
    section = config.values.get("deepspeed_config")
    chosen = section.get("deepspeed_multinode_launcher") if isinstance(section, Mapping) else None
    if chosen not in (None, "pdsh"):
        return Ok(f"the launcher is {chosen}")
    if network.pdsh is None:
        return Skip("it was not looked for pdsh")
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
