"""Train, fine-tune and evaluate biLMs."""
