"""A plan as a file for a scheduler or an engine: sbatch, torchrun, Kubeflow, SkyPilot."""
