"""Look at one recorded rollout, cell by cell: open it in an editor that knows `# %%`, or run it as a program.

Set RECORDS to a run's folder of trajectories (or a file of `vvt data generate`), and TOKENIZER to the model's folder to
read tokens as text. `vvt view` draws the same without code.
"""

# %% [markdown]
# ## Read the records
# One line per rollout; `line["trajectory"]` is a `verl_video_tools.core.types.Trajectory`.

# %%
import os
from itertools import groupby
from pathlib import Path

from PIL import Image

from verl_video_tools.records.records import read_records
from verl_video_tools.video import Video

RECORDS = Path(os.environ.get("RECORDS", "outputs/framethinker_grpo/trajectories"))
TOKENIZER = os.environ.get("TOKENIZER")

lines = list(read_records(RECORDS))
print(f"{len(lines)} rollouts")

# %% [markdown]
# ## Choose one
# Here the one that earned most; any other condition does.

# %%
line = max(lines, key=lambda line: line["reward"]["score"])
trajectory = line["trajectory"]
print(f"{trajectory.method}, step {line.get('step')}: {trajectory.question}")
print(f"ended by {trajectory.stop_reason}, answer {trajectory.answer!r}, truth {line.get('ground_truth')!r}")
print(f"counts: {trajectory.counts()}")

# %% [markdown]
# ## Turns
# What the policy wrote, what its calls did, and what it read.

# %%
print("initial frames:", ", ".join(f"{frame.timestamp_seconds:.1f} s" for frame in trajectory.initial_frames))
for number, turn in enumerate(trajectory.turns, start=1):
    print(f"\n--- turn {number}\n{turn.text}")
    for call in turn.calls:
        shown = ", ".join(f"{frame.timestamp_seconds:.1f} s" for frame in call.frames)
        print(f"    {call.name} {call.arguments} -> {shown if call.ok else call.error}")
    if turn.observation is not None:
        print(f"    read: {turn.observation}")

# %% [markdown]
# ## Reward
# The parts of this rollout's, and what the others of its group got.

# %%
print({name: value for name, value in line["reward"].items() if value})
for other in lines:
    if other.get("uid") == line.get("uid") and other.get("step") == line.get("step"):
        score, advantage = other["reward"]["score"], other.get("advantage")
        print(f"rollout {other.get('session_id')}: score {score}, advantage {advantage}")

# %% [markdown]
# ## Loss mask
# Runs of tokens that are trained on (mask 1), and of those that are not: observations, and what wraps them. Recorded
# with `video_tools.trainer.record_tokens=true` only.

# %%
tokenizer = None
if TOKENIZER is not None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
for sequence in line.get("sequences", []):
    print(f"prompt: {len(sequence['prompts'])} tokens")
    tokens = zip(sequence["responses"], sequence["response_mask"], sequence["rollout_log_probs"], strict=True)
    for mask, group in groupby(tokens, key=lambda token: token[1]):
        ids, _, log_probs = zip(*group, strict=True)
        text = repr(tokenizer.decode(ids)) if tokenizer is not None else ""
        mean = f", mean log-probability {sum(log_probs) / len(ids):.3f}" if mask else ""
        print(f"{'trained' if mask else 'masked '} {len(ids):5d} tokens{mean} {text}")

# %% [markdown]
# ## Frames
# The recorded frames, opened again from the row's video: the initial frames, then what each executed call showed.

# %%
shown_frames = [*trajectory.initial_frames, *(frame for call in trajectory.executed_calls() for frame in call.frames)]
with Video(line["extra_info"]["video_path"]) as video:
    batch = video.frames_at_indices([frame.index for frame in shown_frames], height=90)
num_columns = min(8, len(batch))
height, width = batch.frames_THWC.shape[1:3]
sheet = Image.new("RGB", (num_columns * width, -(-len(batch) // num_columns) * height))
for position, pixels_HWC in enumerate(batch.frames_THWC):
    row, column = divmod(position, num_columns)
    sheet.paste(Image.fromarray(pixels_HWC), (column * width, row * height))
print(f"{len(batch)} frames; in a notebook the next line shows them, elsewhere take sheet.save('frames.png')")
sheet  # noqa: B018 - a notebook shows a cell's last value
