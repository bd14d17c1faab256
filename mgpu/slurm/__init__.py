"""The job on Slurm: as data, written, submitted and followed."""
