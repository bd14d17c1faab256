"""mgpu: set up, check and launch multi-GPU PyTorch training."""

__version__ = "0.1.0"
