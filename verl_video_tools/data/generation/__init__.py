"""Rollouts of a chat model behind an endpoint, scored and recorded one JSON line each: `vvt data generate`, `vvt eval`.

task.py      which rollouts are to be made, of which questions, and corrections of failed ones
templates.py forms that a teacher's dialogues are to take
record.py    one rollout, from its task to its record
generate.py  all that are left, appended to a file
summary.py   what the file then holds, in numbers
"""
