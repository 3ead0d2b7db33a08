"""A table of your own questions as rows (docs/own-data.md).

files.py      what is read: CSV, JSON, parquet or Arrow files, or a Hugging Face folder, a line each as a record
values.py     what one cell says: options, a segment, a type, a video
columns.py    which column holds what: by `--map` or by its name
reader.py     a record as a row, and what is shown before anything is written
"""
