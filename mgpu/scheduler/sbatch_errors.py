"""Why does Slurm reject a job, or keep it pending?

Messages tested with Slurm 22.05; messages of newer releases are from src/common/slurm_errno.c and
doc/html/job_reason_codes of github.com/SchedMD/slurm (2026-08). Unknown messages are shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PREFIX = re.compile(r"^(?:sbatch|srun|salloc|scancel|scontrol): (?:error: |fatal: )?")
_WRAPPED = re.compile(r"^(?:allocation failure|Batch job submission failed|Unable to allocate resources): ")
# Lines that are not the reason.
_NOISE = re.compile(r"^(?:Try \".*--help\"|.*plugin_load|.*_load_plugins|lua: |See )|Job \d+ to start at")

_NO_SUCH_NODES = (
    "no node in the partition matches the request: too many GPUs, CPUs, memory or nodes, or the wrong GPU type.  "
    "sinfo -o '%P %D %G %c %m %l'  lists the available resources"
)
# fmt: off
# Slurm's message -> what it means and what to do. The first match counts.
_KNOWN: Sequence[tuple[str, str]] = (
    (r"invalid partition specified: (?P<name>\S+)|Invalid partition name specified",
     "partition {name} does not exist.  sinfo -s  lists the partitions"),
    (r"Requested node configuration is not available", _NO_SUCH_NODES),
    (r"Node count specification invalid|Requested partition configuration not available", _NO_SUCH_NODES),
    (r"Invalid generic resource \(gres\) specification",
     "the cluster does not have this GRES.  sinfo -o '%P %G'  lists the available ones"),
    (r"Memory specification can not be satisfied",
     "no node has this much memory.  sinfo -o '%P %m'  lists it in MB"),
    (r"Requested time limit is invalid|time limit exceeds",
     "the time limit exceeds the partition's, account's or QOS's. Reduce --time.  sinfo -o '%P %l'  lists limits"),
    (r"No partition specified or system default partition",
     "the cluster has no default partition. Set --partition NAME"),
    (r"Invalid account or account/partition combination",
     "you cannot use this account, or not in this partition. Change --account.  sacctmgr show assoc user=$USER "
     "format=account,partition,qos  lists yours"),
    (r"Invalid qos specification",
     "you cannot use this QOS. Change --qos.  sacctmgr show assoc user=$USER format=account,qos  lists yours"),
    (r"Job violates accounting/QOS policy|exceeds the .*limit|QOS.*Limit|Assoc.*Limit",
     "a limit of your account or QOS is exceeded: too many jobs, GPUs or nodes, or too long.  "
     "sacctmgr show qos format=name,maxwall,maxtres  and  squeue --me  show which"),
    (r"Invalid feature specification",
     "no node has the feature in --constraint.  sinfo -o '%P %f'  lists the features"),
    (r"Invalid node name specified|Invalid node.*list", "--nodelist or --exclude contains an unknown node.  "
     "sinfo -N -o %N  lists the nodes"),
    (r"Invalid --?(?P<name>[\w-]+) specification", "the value of --{name} is not valid"),
    (r"\"(?P<name>[^\"]*)\" is not a valid node count",
     "--nodes={name} is not a number. #SBATCH lines do not expand shell variables"),
    (r"unrecognized option '(?P<name>[^']*)'|invalid option -- '(?P<name2>[^']*)'",
     "sbatch has no option {name}. Check the #SBATCH lines"),
    (r"mutually exclusive|cannot be used together", "two options of the script are mutually exclusive"),
    (r"This does not look like a batch script", "the first line of a job script must be #!/bin/bash"),
    (r"Batch script contains DOS line breaks", "the script has Windows line endings:  sed -i 's/\\r$//' SCRIPT"),
    (r"Batch script is empty", "the script is empty"),
    (r"Unable to open file", "the job script cannot be read"),
    (r"Access/permission denied|User not allowed|Group not permitted|Access denied",
     "you cannot use this partition, reservation or account.  scontrol show partition  shows who can"),
    (r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted",
     "the controller does not respond. Check it with  scontrol ping"),
    (r"fetch_config|Could not establish a configuration source|resolve_ctls_from_dns",
     "Slurm is installed, but this machine is not part of a cluster. Use a login node (or set SLURM_CONF)"),
    (r"Partition is not available|required partition not available|partition.*(?:down|inactive)",
     "the partition does not accept jobs now.  sinfo -s  lists the state of each partition"),
    (r"Job dependency problem", "--dependency names a job that no longer exists"),
    (r"Requested nodes are busy", "the nodes in --nodelist are in use"),
)
# fmt: on


def explain(text: str) -> str:
    """Return sbatch's error message and its explanation, as one sentence."""
    message = _reason(text)
    for pattern, means in _KNOWN:
        if found := re.search(pattern, text, re.IGNORECASE):
            names = {key: value for key, value in found.groupdict().items() if value}
            name = names.get("name") or names.get("name2") or "with this name"
            return f"{message} ({means.format(name=name)})" if message else means.format(name=name)
    return message or "Slurm rejects it without a reason"


def _reason(text: str) -> str:
    """Return the last line that has a reason, without the program's name."""
    lines = [_PREFIX.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    reasons = [_WRAPPED.sub("", line) for line in lines if not _NOISE.search(line)]
    return reasons[-1] if reasons else ""


@dataclass(frozen=True)
class Wait:
    """The reason a job is pending, as text."""

    words: str
    never: bool = False  # Slurm will never start it as requested
    held: bool = False  # until a user or an administrator releases it


_NEVER = {
    "PartitionTimeLimit": "its time limit exceeds the partition's (sinfo -o '%P %l'). Reduce --time",
    "AccountNotAllowed": "its account cannot use this partition. Change --account or --partition",
    "QOSNotAllowed": "its QOS cannot use this partition. Change --qos or --partition",
    "InvalidAccount": "its account is not valid. Change --account",
    "InvalidQOS": "its QOS is not valid. Change --qos",
    "BadConstraints": "no node can ever satisfy its request",
    "DependencyNeverSatisfied": "the job it depends on did not end as required",
    "MaxMemPerLimit": "it requests more memory per node or CPU than the partition allows. Reduce --mem",
    "DeadLine": "it cannot finish before its deadline",
}
_HELD = {
    "JobHeldUser": "held by you or a coordinator",
    "JobHeldAdmin": "held by an administrator",
    "JobHoldMaxRequeue": "it was requeued too often and is now held",
    "launch_failed_requeued_held": "held, because it could not be started on a node (the Prolog failed there)",
    "job_requeued_in_held_state": "it was requeued and is held",
    "Reservation_was_deleted": "held, because its reservation was deleted",
}
_WAITS = {
    "None": "Slurm has not evaluated it yet",
    "Resources": "it is next, and waits for nodes in use",
    "Priority": "jobs with a higher priority come first",
    "BeginTime": "its start time has not been reached (a requeued job waits two minutes)",
    "Cleaning": "it is being requeued",
    "Dependency": "it waits for another job",
    "Licenses": "it waits for a license",
    "Reservation": "its reservation has not begun",
    "Prolog": "Slurm is preparing its nodes",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition does not start jobs now",
    "PartitionConfig": "it requests more nodes or CPUs than its partition has or allows now",
    "PartitionNodeLimit": "it requests more nodes than its partition allows or has available",
    "NodeDown": "a node it needs is down",
    "ReqNodeNotAvail": "nodes it needs are down, drained or reserved",
    "JobArrayTaskLimit": "the limit of running tasks of its array is reached",
    "Constraints": "no matching node is free",
}


def explain_waiting(reason: str) -> Wait:
    """Explain Slurm's reason code: "Resources", "QOSMaxGRESPerUser", "ReqNodeNotAvail,_UnavailableNodes:n1"."""
    code, _, rest = (reason or "None").strip("()").partition(",")
    code = code.strip() or "None"
    if code in _NEVER:
        return Wait(_NEVER[code], never=True)
    for held, words in _HELD.items():
        if code.lower() == held.lower() or code.lower().startswith(f"{held.lower()}_"):
            return Wait(words, held=True)
    if code in _WAITS:
        nodes = rest.partition(":")[2]
        return Wait(_WAITS[code] + (f": {nodes}" if nodes else ""))
    # This job alone exceeds the limit, so waiting for other jobs does not help.
    if re.fullmatch(r"(?:Assoc|QOS)Max\w*?(?:PerJob(?:Limit)?|PerNode(?:Limit)?)|(?:Assoc|QOS)MaxWall\w+", code):
        return Wait("it requests more than the account or QOS allows for one job", never=True)
    if re.match(r"(?:Assoc|QOS)(?:Grp|Max)|Max\w+PerAccount", code):
        return Wait("a limit of the account or QOS is reached. It starts when other jobs end")
    return Wait("see https://slurm.schedmd.com/job_reason_codes.html")
