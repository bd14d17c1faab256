"""Job files for schedulers and engines: sbatch, torchrun, Kubeflow, SkyPilot."""
