"""`mgpu smoke-test`: proves with real collectives and training steps that the ranks train together."""
