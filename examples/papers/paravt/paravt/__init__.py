"""ParaVT: several crops in one turn, and a random number of initial frames."""
