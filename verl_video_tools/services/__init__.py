"""What a rollout asks of others: endpoints of language models, judges, and retrieval of frames by text."""
