"""What is checked of an installation (`vvt doctor`) and of a run (`vvt doctor --run`, `--dry-run`, every start).

installation.py   packages, the plugin, the machine; works where packages are missing
run.py            the list of a run's checks: cheap ones, with which every run starts, and thorough ones
rows.py           a sample of the rows: truths, files, lengths
report.py         the run that they look at; the table of what they have found, and the same as JSON
"""
