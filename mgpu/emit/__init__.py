"""The same verified config as a plan for other engines: torchrun, Kubeflow, SkyPilot."""
