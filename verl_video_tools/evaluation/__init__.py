"""Measure a model with the loop, the prompts, the frames and the graders of training.

benchmarks/  published annotation files as rows, what to tabulate them by, and figures beyond accuracy
"""
