#!/bin/bash
# Slurm's Prolog with mgpu: a node with a definite GPU or driver fault is drained before a job starts on it.
#
#   slurm.conf:   Prolog=/etc/slurm/mgpu-prolog.sh      (a copy of this file, the same on all nodes)
#                 PrologFlags=Alloc                     (at the allocation, not at the first step)
#
# Slurm drains the node on any exit code except 0 ("Prolog error"), and requeues the job, held unless slurm.conf has
# SchedulerParameters=nohold_on_prolog_fail. So it exits with 1 only for a definite fault, and with 0 if mgpu hangs, is
# missing or cannot determine the state. It calls no Slurm command, because Slurm forbids that in a Prolog.
MGPU=/opt/mgpu/bin/mgpu  # CHANGE THIS: on a local disk of the node, not on a shared one that may hang
LIMIT=8      # seconds; a Prolog should finish within MessageTimeout, 10 s by default
GPUS=        # GPUs per node, if all nodes have the same number: fewer is a fault

# All GPUs of the node count, not only those of the job: the whole node is drained.
reason=$(/usr/bin/timeout --kill-after=1 "$LIMIT" "$MGPU" doctor --exit-style prolog ${GPUS:+--expect-gpus "$GPUS"} \
    </dev/null 2>/dev/null)
[ $? -eq 1 ] || exit 0
case $reason in
    "mgpu: "*) ;;
    *) exit 0 ;;  # exit code 1 without a reason does not come from mgpu
esac
echo "${SLURMD_NODENAME:-$HOSTNAME}: $reason" >&2
[ -x /usr/bin/logger ] && /usr/bin/logger -t mgpu -p daemon.err -- "$reason" 2>/dev/null
exit 1
