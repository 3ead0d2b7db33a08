"""By how much a figure may be chance, where several items share a video: the videos are the sample, not the items.

estimates.py    a figure with its standard error, by leaving out one video at a time (jackknife)
intervals.py    95 % intervals of estimates, and when there are too few videos for one
differences.py  paired differences of two runs: interval, test by permutation, and what difference could be shown
"""
