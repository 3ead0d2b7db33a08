"""Measure a model with the loop, the prompts, the frames and the graders of training.

questions.py        what is asked: rows, or a benchmark
scope.py            which of the questions, and how often
run.py              one evaluation in one folder, `data.generation.generate` doing the asking
folder.py           which evaluation a folder holds, and whether the same goes on there
asked_items.py      items as they were asked, each with its verdicts and costs, from recorded rollouts
results.py          the result, from these
published.py        the verdicts of a published extractor beside ours
protocols.py        profiles of published evaluations; protocols.yaml has them
metrics.py          a benchmark's metrics of items that were asked several times
items.py            what became of each item, by which runs are joined
costs.py            tokens, requests and seconds of an item
calls.py            when and how a model looks again
uncertainty/        by how much a figure may be chance
comparison.py       paired differences of runs, and what difference could be shown
tables.py           results as tables
table_text.py       a table as Markdown or LaTeX
plots.py            accuracy against what it costs
serve.py            a vLLM of its own
serve_guard.py      the process that ends it, also when ours is killed
model_files.py      which model it serves, identified by the content of its files
processor.py        the sizes that a model's processor leaves untouched
lmms_eval_model.py  our loop as a model of lmms-eval

`cli.evaluate` and `cli.eval_table` are the commands; benchmarks are in `data.formats`, extractors in `data.extractors`.
"""
