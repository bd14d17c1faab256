"""Does the training script itself do what training on several GPUs needs?"""

ORDER: tuple[str, ...] = ()
