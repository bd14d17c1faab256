"""What does Slurm mean when it refuses a job, or lets it wait?

Texts measured on Slurm 22.05; those of newer releases are from src/common/slurm_errno.c and doc/html/job_reason_codes
of github.com/SchedMD/slurm (2026-08). A text that is not known here is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PREFIX = re.compile(r"^(?:sbatch|srun|salloc|scancel|scontrol): (?:error: |fatal: )?")
_WRAPPED = re.compile(r"^(?:allocation failure|Batch job submission failed|Unable to allocate resources): ")
# What is said before, or beside, the reason.
_NOISE = re.compile(r"^(?:Try \".*--help\"|.*plugin_load|.*_load_plugins|lua: |See )|Job \d+ to start at")

_NO_SUCH_NODES = (
    "no node of the partition has that: too many GPUs, CPUs, memory or nodes, or another kind of GPU.  "
    "sinfo -o '%P %D %G %c %m %l'  shows what there is"
)
# fmt: off
# What Slurm writes -> what it means and what to do. The first that is in the text counts.
_KNOWN: Sequence[tuple[str, str]] = (
    (r"invalid partition specified: (?P<name>\S+)|Invalid partition name specified",
     "there is no partition {name}.  sinfo -s  lists them"),
    (r"Requested node configuration is not available", _NO_SUCH_NODES),
    (r"Node count specification invalid|Requested partition configuration not available", _NO_SUCH_NODES),
    (r"Invalid generic resource \(gres\) specification",
     "the cluster has no such GRES.  sinfo -o '%P %G'  shows those it has"),
    (r"Memory specification can not be satisfied",
     "no node has that much memory.  sinfo -o '%P %m'  shows it in MB"),
    (r"Requested time limit is invalid|time limit exceeds",
     "the time limit is more than the partition, the account or the QOS allows.  sinfo -o '%P %l'  shows it: --time"),
    (r"No partition specified or system default partition", "the cluster has no default partition: --partition NAME"),
    (r"Invalid account or account/partition combination",
     "the account is not yours, or not allowed in this partition.  sacctmgr show assoc user=$USER format=account,"
     "partition,qos  lists yours: --account"),
    (r"Invalid qos specification", "the QOS is not yours.  sacctmgr show assoc user=$USER format=account,qos: --qos"),
    (r"Job violates accounting/QOS policy|exceeds the .*limit|QOS.*Limit|Assoc.*Limit",
     "a limit of your account or QOS: too many jobs, GPUs or nodes, or too long.  "
     "sacctmgr show qos format=name,maxwall,maxtres  and  squeue --me  tell which"),
    (r"Invalid feature specification", "no node has the feature that --constraint names.  sinfo -o '%P %f'"),
    (r"Invalid node name specified|Invalid node.*list", "--nodelist or --exclude names a node that is not there.  "
     "sinfo -N -o %N"),
    (r"Invalid --?(?P<name>[\w-]+) specification", "the value of --{name} is none that Slurm reads"),
    (r"\"(?P<name>[^\"]*)\" is not a valid node count",
     "--nodes={name} is no number: a #SBATCH line is no shell, it takes no variables"),
    (r"unrecognized option '(?P<name>[^']*)'|invalid option -- '(?P<name2>[^']*)'",
     "sbatch has no option {name}: look at the #SBATCH lines"),
    (r"mutually exclusive|cannot be used together", "two options of the script exclude each other"),
    (r"This does not look like a batch script", "the first line of a job script is #!/bin/bash"),
    (r"Batch script contains DOS line breaks", "the script has Windows line ends:  sed -i 's/\\r$//' SCRIPT"),
    (r"Batch script is empty", "the script is empty"),
    (r"Unable to open file", "the job script cannot be read"),
    (r"Access/permission denied|User not allowed|Group not permitted|Access denied",
     "you may not use this partition, reservation or account.  scontrol show partition  tells who may"),
    (r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted",
     "the controller does not answer.  scontrol ping"),
    (r"fetch_config|Could not establish a configuration source|resolve_ctls_from_dns",
     "Slurm is installed here, but this machine belongs to no cluster: go to a login node (or set SLURM_CONF)"),
    (r"Partition is not available|required partition not available|partition.*(?:down|inactive)",
     "the partition takes no jobs now.  sinfo -s  shows which do"),
    (r"Job dependency problem", "--dependency names a job that is not there any more"),
    (r"Requested nodes are busy", "the nodes that --nodelist names are taken"),
)
# fmt: on


def explained(text: str) -> str:
    """What sbatch says on stderr as one sentence: its own words, and what they mean."""
    said = _words(text)
    for pattern, means in _KNOWN:
        if found := re.search(pattern, text, re.IGNORECASE):
            names = {key: value for key, value in found.groupdict().items() if value}
            name = names.get("name") or names.get("name2") or "of this name"
            return f"{said} ({means.format(name=name)})" if said else means.format(name=name)
    return said or "Slurm refuses it, and does not say why"


def _words(text: str) -> str:
    """The last line that says why, without the program's name."""
    lines = [_PREFIX.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    said = [_WRAPPED.sub("", line) for line in lines if not _NOISE.search(line)]
    return said[-1] if said else ""


@dataclass(frozen=True)
class Wait:
    """Why a job is not running, in words."""

    words: str
    never: bool = False  # as it stands, Slurm will not start it, however long one waits
    held: bool = False  # until somebody releases it


_NEVER = {
    "PartitionTimeLimit": "its time limit is longer than the partition allows (sinfo -o '%P %l'): ask for less, --time",
    "AccountNotAllowed": "its account may not use this partition: --account, --partition",
    "QOSNotAllowed": "its QOS may not use this partition: --qos, --partition",
    "InvalidAccount": "its account is not valid: --account",
    "InvalidQOS": "its QOS is not valid: --qos",
    "BadConstraints": "no node can ever satisfy what it asks for",
    "DependencyNeverSatisfied": "the job that it depends on did not end as it should",
    "MaxMemPerLimit": "it asks for more memory a node or CPU than the partition allows: --mem",
    "DeadLine": "it cannot be done by its deadline",
}
_HELD = {
    "JobHeldUser": "you (or a coordinator) hold it",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was put back into the queue too often, and is held",
    "launch_failed_requeued_held": "Slurm could not start it on a node (its Prolog failed there), and holds it",
    "job_requeued_in_held_state": "it was put back into the queue and is held",
    "Reservation_was_deleted": "its reservation was deleted, and it is held",
}
_WAITS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "it is next; the nodes are taken",
    "Priority": "others are before it",
    "BeginTime": "its time to begin is not there yet (a job that was put back waits for two minutes)",
    "Cleaning": "it is being put back into the queue",
    "Dependency": "it waits for another job",
    "Licenses": "it waits for a licence",
    "Reservation": "its reservation has not begun",
    "Prolog": "Slurm prepares its nodes",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs now",
    "PartitionConfig": "it asks for more than its partition has or allows now (nodes, CPUs)",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows, or has that are up",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "JobArrayTaskLimit": "as many tasks of its array run as may",
    "Constraints": "no node is free that has what it asks for",
}


def waiting(reason: str) -> Wait:
    """Why a job waits, by Slurm's code: "Resources", "QOSMaxGRESPerUser", "ReqNodeNotAvail,_UnavailableNodes:n1"."""
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
    # What one job asks for is over the limit by itself: no other job's end changes that.
    if re.fullmatch(r"(?:Assoc|QOS)Max\w*?(?:PerJob(?:Limit)?|PerNode(?:Limit)?)|(?:Assoc|QOS)MaxWall\w+", code):
        return Wait("it asks for more than a limit of the account or QOS allows one job", never=True)
    if re.match(r"(?:Assoc|QOS)(?:Grp|Max)|Max\w+PerAccount", code):
        return Wait("a limit of the account or QOS is reached, until other jobs end")
    return Wait("see https://slurm.schedmd.com/job_reason_codes.html")
