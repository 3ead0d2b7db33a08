"""Rows for training and evaluation: where they come from, what is checked, and rows for fine-tuning made of rollouts.

rows.py, parquet.py      columns of a file of rows, and files of them
table.py                 your own table as rows
formats                  published benchmarks, training sets and dialogues as rows
convert.py               writes what these read
stock_rows.py            rows for verl's own tool loop
validate.py, subsets.py  checks and counts; parts without a common video
generate.py              rollouts of a chat model, recorded; protocol.py: how they were made
dialogue_templates.py    forms that a teacher's dialogues are to take
classify.py, filters.py  questions by whether another look helps; rows and dialogues that are worth learning
export_rollouts.py       recorded rollouts as rows for fine-tuning
synthetic_rows.py, sft.py  the demonstration's data set, and a scripted expert's dialogues about it
picture_rows.py          rows about images
extractors.py            published rules that read an answer's letter
append.py                files that grow by whole lines
"""
