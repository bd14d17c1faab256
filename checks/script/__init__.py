"""Does the training script itself do what training on several GPUs needs?"""

# fmt: off
ORDER = (
    "reading", "launching", "devices", "group", "wrapping", "arguments", "output", "data", "preparing", "together",
    "model", "steps",
)
# fmt: on
