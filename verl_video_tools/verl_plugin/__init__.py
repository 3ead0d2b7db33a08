"""The only part that subclasses verl, vLLM or Ray: agent loop, reward manager, trainers, SFT data set, platforms."""
