"""`vvt train` with a program in the place of verl's: python -m tests.launch.quick_train train grpo ..."""

import os
import sys

from verl_video_tools.cli.main import run
from verl_video_tools.launch import data, train
from verl_video_tools.launch.checks.report import Report

PROGRAM = """
import os, sys, time
is_grpo = sys.argv[1] == "grpo"
folder = os.path.dirname(os.environ["VERL_FILE_LOGGER_PATH"])
ray = "\\x1b[36m(TaskRunnerV1 pid=219)\\x1b[0m "
if not is_grpo:
    os.makedirs(os.path.join(folder, "huggingface"), exist_ok=True)
    open(os.path.join(folder, "huggingface", "config.json"), "w").write("{}")
    for step in range(1, 111):
        bar = f"Epoch 1/2:   1%|          | {step}/55 [00:01<06:16,  1.03s/it]"
        print(f"{bar}step:{step} - train/loss:1.5 - train/lr:0.001")
else:
    print(f"{ray}INFO:2026-01-01 00:00:00,150:Total training steps: 20")
    print(f"{ray}[verl_video_tools] node 192.0.2.2: 1 x training worker")
    for step in range(1, 21):
        for line in range(200):
            print(f"{ray}WARNING: target_num_threads 8 should not exceed total physical CPU cores 2")
        for row in range(4):
            print(f"{ray}[verl_video_tools] warning: rollout of row {row}: /v/{row}.mp4: no such video file")
        metrics = "rollout/score/mean:0.5 - rollout/acc/mean:0.25 - perf/time_per_step:21.2"
        print(f"{ray}step:{step} - {metrics}", flush=True)
    if "FAIL" in os.environ:
        sys.exit("ValueError: it failed")
    if "WAIT" in os.environ:
        time.sleep(300)
"""
"""Logs as verl writes them."""

train._program = lambda plan: [sys.executable, "-c", PROGRAM, plan.request.program]
data._vvt = lambda *arguments: None
train._check = lambda plan, thorough: Report(plan.device, [])
train._report = lambda plan: None
code = run(sys.argv[1:])
if os.environ.pop("FAIL_AGAIN", ""):  # a second run in this process, whose imports take most of the time
    print("END", code, flush=True)
    os.environ["FAIL"] = "1"
    code = run(sys.argv[1:])
sys.exit(code)
