"""Run the quick checks before every launch, including one whose config is verified.

GPUs become busy, ports are taken and disks fill up from one minute to the next. What changes more slowly (limits,
/dev/shm, links) was covered by the smoke test; it is shown as a warning and stops nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mgpu import engine, probes
from mgpu.check import LaunchStop
from mgpu.engine import before_start, selections
from mgpu.launch import output_folders
from mgpu.launchers import port, stamp
from mgpu.probes import prefetch
from mgpu.snapshot import Config, Gap, Plan, Script, Snapshot, gpu_in_use


def gather_facts(
    config: Config,
    arguments: Sequence[str],
    named: int | None = None,
    script: Script | None = None,
    python: str | None = None,
) -> Snapshot:
    """Gather the facts a launch depends on, without importing torch (the stamp covers torch).

    `arguments`: the script's own, which may name its output folder. `named`: the rendezvous port, if one was requested.
    `python`: the interpreter of the ranks, if it is another one than mgpu's.
    """
    plan = Plan(nodes=config.num_machines, cpu_ranks=(config.ranks_here or 1) if config.on_cpu else None)
    wanted = probes.launch_probes(output_folders.folders(arguments))
    snapshot = probes.gather(wanted, python=python, plan=plan, started=None if python else prefetch.take())
    return with_stamp(_with_rendezvous(replace(snapshot, config=config, script=script), named))


def with_stamp(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the fact `stamp`, or with the reason why there is none."""
    found = stamp.current_stamp(snapshot)
    gaps = (
        dict(snapshot.gaps)
        if found
        else {**snapshot.gaps, "stamp": Gap("not_supported", stamp.unknown_reason(snapshot))}
    )
    return replace(snapshot, stamp=found, gaps=gaps)


def _with_rendezvous(snapshot: Snapshot, named: int | None) -> Snapshot:
    """Probe the network again if the user named the rendezvous port or host."""
    config, network = snapshot.config, snapshot.network
    assert config is not None
    address = config.values.get("main_process_ip") if config.num_machines > 1 else None
    if network is None or (named is None and not isinstance(address, str)):
        return snapshot
    if not isinstance(address, str) and named is not None and not port.is_taken(named):
        return replace(snapshot, network=replace(network, port=named, port_busy=False, port_owner=None))
    given = {"port": named, "master": address}
    arguments = {name: value for name, value in given.items() if value is not None}
    child = probes.run([replace(probes.NETWORK, arguments=arguments)])[0]
    seen = probes.build(child.found, probes.gaps_of(child))
    return replace(snapshot, network=seen.network, gaps={**snapshot.gaps, **seen.gaps})


def problems(snapshot: Snapshot, named: int | None) -> list[engine.Outcome]:
    """Return the problems that stop this launch now; empty: it may start."""
    config = snapshot.config
    assert config is not None
    cpu = config.on_cpu or snapshot.driver is None or not snapshot.driver.any_gpu
    applies: dict[LaunchStop, bool] = {
        "always": True,
        "named_port": named is not None,
        "several_nodes": config.num_machines > 1,
        "busy_gpus": bool(gpu_in_use.find_busy_gpus(config, snapshot, cpu=cpu)),
    }
    outcomes = engine.judge(snapshot, selections.launch(*(stop for stop, here in applies.items() if here)))
    return [o for o in outcomes if o.status in ("fail", "crash") and not o.because_of]


def warnings(snapshot: Snapshot, stopping: Sequence[engine.Outcome] = ()) -> list[str]:
    """Return the ids of problems that make a failure likely but do not stop the run."""
    ids = dict.fromkeys(o.check.id for o in stopping)
    return list(ids | dict.fromkeys(before_start.warning_ids(snapshot)))
