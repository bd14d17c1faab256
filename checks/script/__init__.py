"""Does the training script itself do what training on several GPUs needs?"""

ORDER = (
    "reading",
    "launching",
    "devices",
    "group",
    "wrapping",
    "arguments",
    "output",
    "data",
    "preparing",
    "together",
    "model",
    "steps",
)
