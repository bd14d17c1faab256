"""The code that runs in each rank of the smoke test.

Runs in the interpreter of the training, where the rest of mgpu may not be importable: only the standard library, torch
and, if it is the launcher, accelerate; relative imports. One module per stage, each with `run_stage(here) -> detail`.
"""

# In order; each depends on those before. These names are `stages[].name` and `culprit.rung` in the JSON document.
STAGES = ("start", "device", "group", "collectives", "pairs", "train", "checkpoint", "bandwidth", "shutdown")
