"""The one multi-turn loop: `episode` drives a rollout without a model, `loop` adds tokens, masks and verl."""
