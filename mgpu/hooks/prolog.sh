#!/bin/bash
# Slurm's Prolog with mgpu: a node with a certain fault of a GPU or the driver is drained before a job starts on it.
#
#   slurm.conf:   Prolog=/etc/slurm/mgpu-prolog.sh      (a copy of this file, the same on all nodes)
#                 PrologFlags=Alloc                     (at the allocation, not first at the first step)
#
# Slurm drains the node on any exit but 0 ("Prolog error"), and queues the job again, held unless slurm.conf has
# SchedulerParameters=nohold_on_prolog_fail. So only what mgpu is certain of ends with 1: that it hangs, is missing or
# cannot tell ends with 0. No Slurm command is called here: Slurm forbids it in a Prolog.
MGPU=/opt/mgpu/bin/mgpu  # CHANGE THIS: on a disk of the node, not a shared one that may hang
LIMIT=8      # seconds; a Prolog should be over within MessageTimeout, 10 s by default
GPUS=        # of a node, where all have as many: fewer is a fault

# All GPUs of the node count, not only those of the job: the node is drained as a whole.
reason=$(/usr/bin/timeout --kill-after=1 "$LIMIT" "$MGPU" doctor --exit-style prolog ${GPUS:+--expect-gpus "$GPUS"} \
    </dev/null 2>/dev/null)
[ $? -eq 1 ] || exit 0
case $reason in
    "mgpu: "*) ;;
    *) exit 0 ;;  # 1 without a reason is not mgpu's word
esac
echo "${SLURMD_NODENAME:-$HOSTNAME}: $reason" >&2
[ -x /usr/bin/logger ] && /usr/bin/logger -t mgpu -p daemon.err -- "$reason" 2>/dev/null
exit 1
