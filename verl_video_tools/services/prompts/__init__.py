"""Packaged instructions of judges and of the model that tools ask."""
