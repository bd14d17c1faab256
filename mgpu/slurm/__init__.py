"""Jobs on Slurm: prepared, submitted, followed and reported."""
