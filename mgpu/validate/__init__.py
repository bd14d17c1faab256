"""`mgpu configure --validate` and `--fix`: judge an accelerate config and repair it."""
