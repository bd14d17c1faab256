#!/bin/bash
# Slurm's HealthCheckProgram with mgpu: drains a faulty node with the reason that `sinfo -R` shows, and resumes a node
# that it drained once the fault has disappeared. It does not change a node that someone else drained.
#
#   slurm.conf:   HealthCheckProgram=/etc/slurm/mgpu-healthcheck.sh      (a copy of this file)
#                 HealthCheckInterval=300
#                 HealthCheckNodeState=ANY,CYCLE                         (not all nodes at the same moment)
#
# Slurm ignores its exit code, kills it after 60 s, and may repeat it when slurmd starts until it exits with 0, which it
# always does. It resumes a node only if mgpu found it healthy, not if the result is unknown or there is no GPU.
MGPU=/opt/mgpu/bin/mgpu  # CHANGE THIS: on a local disk of the node, not on a shared one that may hang
SCONTROL=/usr/bin/scontrol
LIMIT=30     # seconds
GPUS=        # GPUs per node, if all nodes have the same number: fewer is a fault
NODE=${SLURMD_NODENAME:-${HOSTNAME%%.*}}

output=$(/usr/bin/timeout --kill-after=1 "$LIMIT" "$MGPU" doctor --exit-style prolog ${GPUS:+--expect-gpus "$GPUS"} \
    </dev/null 2>&1)
status=$?
shown=$(/usr/bin/timeout 10 "$SCONTROL" -o show node "$NODE") || exit 0
[[ $shown =~ \ State=([A-Z_+*~#!%@^-]+) ]] && state=${BASH_REMATCH[1]} || exit 0
[[ $shown =~ \ Reason=(.*) ]] && before=${BASH_REMATCH[1]} || before=

reason=
while IFS= read -r line; do
    [[ $line == "mgpu: "*"["*"]"* ]] && reason=$line && break
done <<<"$output"
if [ "$status" -eq 1 ] && [ -n "$reason" ]; then
    # A node that is already drained keeps its reason.
    [[ $state == *DRAIN* ]] || "$SCONTROL" update NodeName="$NODE" State=DRAIN Reason="$reason"
elif [ "$status" -eq 0 ] && [ -z "$output" ]; then
    [[ $state == *DRAIN* && $before == "mgpu: "* ]] && "$SCONTROL" update NodeName="$NODE" State=RESUME
fi
exit 0
