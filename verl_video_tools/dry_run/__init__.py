"""A run's checks without the run: no Ray, no inference engine, no weights (docs/dry-run.md).

__main__.py      the program that `vvt train ... --dry-run` starts in place of verl's
report.py        all checks in their order, and the table
limits.py        lengths and pixel bounds of the configuration
model.py         folder or name of the model, tokenizer, processor, files of weights
sampled.py       rows spread evenly over a file
grpo_rows.py     rows of reinforcement learning; first_frames.py measures their prompts
sft_rows.py      rows of fine-tuning, encoded as in training
judge.py, services.py   judge, retriever and tool model, asked once
memory.py        GPU and main memory, estimated by the planner
disk.py          the run's folder, folders that nodes share
machine.py       GPUs, flash-attn, packages of loggers
"""
