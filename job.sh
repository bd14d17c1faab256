#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
set -a
CMD="$(cat <<'EOT'
torchrun --nproc_per_node 8 train.py
EOT
)"
eval "$CMD"
