"""Train, finetune and evaluate biLMs."""
