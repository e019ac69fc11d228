"""Training a biLM: batches, one step (plain and fast), the optimizer, the loop, checkpoints."""
