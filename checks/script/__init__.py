"""Does the training script itself do everything that training on several GPUs requires?"""

# fmt: off
ORDER = (
    "reading", "starting", "launching", "devices", "group", "wrapping", "arguments", "output", "data", "preparing",
    "together", "one_rank", "leaving", "same_on_all", "model", "steps", "prepared", "alone", "on_cpu",
    "workers",
)
# fmt: on
