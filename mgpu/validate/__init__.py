"""`mgpu configure --validate` and `--fix`: check an accelerate config and repair it."""
