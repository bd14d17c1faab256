"""`mgpu smoke-test`: proves with real collectives and real training steps that the ranks train together."""
