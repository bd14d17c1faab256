#!/bin/bash
# Slurm's HealthCheckProgram with mgpu: drains the node with the reason that `sinfo -R` shows, and resumes what it has
# drained once the fault is gone. A node that somebody else drained stays as it is.
#
#   slurm.conf:   HealthCheckProgram=/etc/slurm/mgpu-healthcheck.sh      (a copy of this file)
#                 HealthCheckInterval=300
#                 HealthCheckNodeState=ANY,CYCLE                         (not all nodes at the same moment)
#
# Slurm does not act on its exit code, kills it after 60 s, and may run it again and again when slurmd starts until it
# ends with 0: it always does. It resumes only what mgpu has seen healthy: a check that could not tell, or that
# finds no GPU at all, resumes nothing.
MGPU=/opt/mgpu/bin/mgpu  # CHANGE THIS: on a disk of the node, not a shared one that may hang
SCONTROL=/usr/bin/scontrol
LIMIT=30     # seconds
GPUS=        # of a node, where all have as many: fewer is a fault
NODE=${SLURMD_NODENAME:-${HOSTNAME%%.*}}

said=$(/usr/bin/timeout --kill-after=1 "$LIMIT" "$MGPU" doctor --exit-style prolog ${GPUS:+--expect-gpus "$GPUS"} \
    </dev/null 2>&1)
status=$?
shown=$(/usr/bin/timeout 10 "$SCONTROL" -o show node "$NODE") || exit 0
[[ $shown =~ \ State=([A-Z_+*~#!%@^-]+) ]] && state=${BASH_REMATCH[1]} || exit 0
[[ $shown =~ \ Reason=(.*) ]] && before=${BASH_REMATCH[1]} || before=

reason=
while IFS= read -r line; do
    [[ $line == "mgpu: "*"["*"]"* ]] && reason=$line && break
done <<<"$said"
if [ "$status" -eq 1 ] && [ -n "$reason" ]; then
    # A node that is drained already keeps the reason it has.
    [[ $state == *DRAIN* ]] || "$SCONTROL" update NodeName="$NODE" State=DRAIN Reason="$reason"
elif [ "$status" -eq 0 ] && [ -z "$said" ]; then
    [[ $state == *DRAIN* && $before == "mgpu: "* ]] && "$SCONTROL" update NodeName="$NODE" State=RESUME
fi
exit 0
