"""A table of your own questions as rows (docs/own-data.md).

files.py      what is read: one CSV, JSON or parquet file, a line each as a record
folders.py    which files of a Hugging Face folder, and of which split
values.py     what one cell says: options, a segment, a type, a video
columns.py    which column holds what: by `--map`, by its name, by its values
reader.py     a record as a row, and what is wrong with those that cannot be one
preview.py    columns and first rows, shown before anything is written
"""
