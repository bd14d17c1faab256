"""What happens inside each rank of the smoke test?

Runs in the interpreter of the training, where the rest of mgpu may not be importable: standard library, torch and,
where it is the launcher, accelerate; relative imports only. A module a rung, each with `climb(here) -> detail`.
"""

# In order; each needs the ones below it. These names are `stages[].name` and `culprit.rung` of the JSON document.
RUNGS = ("start", "device", "group", "collectives", "pairs", "train", "checkpoint", "bandwidth", "shutdown")
