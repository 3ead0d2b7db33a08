"""A rollout without Ray or a trainer: `episode` drives its turns, `tokens` builds its token sequences."""
