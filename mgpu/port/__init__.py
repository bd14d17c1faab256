"""Turn a plain single-GPU PyTorch script into one that trains on any number of ranks. Only here: libcst."""
