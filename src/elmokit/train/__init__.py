"""Training a biLM: batches, one step (plain and fast), the optimiser, the loop, checkpoints."""
