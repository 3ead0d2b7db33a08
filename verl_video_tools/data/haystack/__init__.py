"""Questions about single moments of long videos, made by models: `vvt data haystack` (LongVT, arXiv 2511.20785, 3.1).

config.py    the options of a run; its folder belongs to them
scenes.py    where a video is cut, and the parts made of it
log.py       what each step made, one JSON line per item
models.py    the models that are asked, and how their replies are read
checks.py    rules that drop a question without asking anyone
pipeline.py  the steps: parts, captions, questions, check by text, check by sight
estimate.py  what the steps that are left would cost
rows.py      rows of what is left
"""
