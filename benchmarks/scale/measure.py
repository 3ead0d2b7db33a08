"""One step of one method: `python -m benchmarks.scale.measure METHOD --inputs FOLDER --out FILE`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from .cases import CASES, SCRIPT_VARIABLE, Case

_QUESTION = "What is shown in the middle?\nA. red circle\nB. blue square\nC. green cross\nD. red square"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=CASES)
    parser.add_argument("--inputs", type=Path, required=True, help="folder made by `prepare`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rollouts", type=int, help="of a group; the recipe's number otherwise")
    parser.add_argument("--front-end", choices=["ours", "stock"], default="ours")
    parser.add_argument("--profile", action="store_true", help="what the event loops compute")
    options = parser.parse_args()
    os.environ |= {
        "VERL_PLATFORM": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VVT_VLLM_FRONT_END": "" if options.front_end == "ours" else "stock",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy",  # as `vvt train` sets it: it changes what workers do
    }
    case = CASES[options.method]
    os.environ[SCRIPT_VARIABLE] = str(write_script(case, options.inputs))
    result = run(case, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


def write_script(case: Case, inputs: Path) -> Path:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(inputs / case.family)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    turns = [
        [[*tokenizer.encode(text, add_special_tokens=False), end] for text in case.turns(variant)]
        for variant in range(64)
    ]
    path = inputs / f"{case.method}.json"
    path.write_text(json.dumps({"turns": turns, "num_initial": case.num_initial}))
    return path


def run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    import ray
    import transfer_queue as tq
    from omegaconf import OmegaConf

    ray.init("local", num_cpus=8, include_dashboard=False, log_to_driver=True, object_store_memory=3 << 30)
    try:
        tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 2}}}))
        result = step(case, options)
        tq.close()
    finally:
        ray.shutdown()
    return result


def configuration(case: Case, options: argparse.Namespace) -> Any:
    """verl's, as the method's recipe sets it for real data."""
    from hydra import compose, initialize_config_module

    from verl_video_tools.config import config_path

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={options.inputs / case.family}",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={options.rollouts or case.group_size}",
                f"data.train_batch_size={case.num_groups}",
                f"actor_rollout_ref.rollout.prompt_length={case.prompt_length}",
                f"actor_rollout_ref.rollout.response_length={case.response_length}",
                f"actor_rollout_ref.rollout.max_model_len={case.max_model_len}",
                f"actor_rollout_ref.rollout.max_num_batched_tokens={case.max_num_batched_tokens}",
                f"+actor_rollout_ref.rollout.limit_images={case.max_images}",
                "actor_rollout_ref.rollout.enforce_eager=True",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
                "++actor_rollout_ref.rollout.enable_sleep_mode=False",
                f"+actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb={case.processor_cache_gb}",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={config_path('agent-loops')}",
                f"actor_rollout_ref.rollout.agent.default_agent_loop={case.method}",
                "actor_rollout_ref.actor.strategy=fsdp2",
                "actor_rollout_ref.ref.strategy=fsdp2",
                f"+data.mm_processor_kwargs.min_pixels={case.pixels[0]}",
                f"+data.mm_processor_kwargs.max_pixels={case.pixels[1]}",
                f"actor_rollout_ref.rollout.router_config_path={config_path('group-router')}",
            ],
        )


def step(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    import ray
    import torch
    import transfer_queue as tq
    from tensordict import NonTensorData, NonTensorStack, TensorDict
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.router import get_router_handle

    from .actors import ProbedClient, ProbedServer, ProbedWorker

    config = configuration(case, options)
    rollout = config.actor_rollout_ref.rollout
    server_class = ray.remote(ProbedServer)
    servers = {
        f"server {number}": server_class.options(num_cpus=0, max_concurrency=1000).remote(
            config=rollout,
            model_config=config.actor_rollout_ref.model,
            rollout_mode=RolloutMode.STANDALONE,
            workers=[],
            replica_rank=number,
            node_rank=0,
            gpus_per_node=1,
            nnodes=1,
            cuda_visible_devices="",
        )
        for number in range(2)
    }
    ray.get([server.launch_server.remote() for server in servers.values()])
    balancer = get_router_handle(servers, rollout.get("router_config_path"))
    reward = ray.remote(_Reward).options(num_cpus=0).remote()
    worker = ProbedWorker.options(num_cpus=0).remote(config, ProbedClient(config, balancer), None, [reward])
    ray.get(worker.ready.remote())

    def roll_out(uids: list[str], video: str, *, validate: bool = False, **columns: Any) -> None:
        rows = [_row(case, str(options.inputs / video), uid) | columns for uid in uids]
        batch = TensorDict({}, batch_size=[len(uids)])
        for name in rows[0]:
            batch[name] = NonTensorStack(*[row[name] for row in rows])
        batch["global_steps"] = torch.ones(len(uids), dtype=torch.int64)
        batch["index"] = torch.arange(len(uids))
        if validate:
            batch["validate"] = NonTensorData(True)
        for uid in uids:
            tq.kv_batch_put(
                keys=[uid],
                partition_id="val" if validate else "train",
                tags=[{"is_prompt": True, "status": "pending"}],
            )
        ray.get(worker.generate_sequences.remote(batch))
        ray.get(worker.wait.remote())

    # What a process does only once is no part of a step: imports, the first call of everything.
    roll_out([f"warm{number}" for number in range(2)], "short.mp4", __rollout_n__=1)
    tq.kv_clear(keys=list(tq.kv_list()["train"]), partition_id="train")
    uids = ["group0"]
    processes = [worker, *servers.values()]
    ray.get([process.probe_start.remote(options.profile) for process in processes])
    started = time.perf_counter()
    roll_out(uids, "video.mp4")
    seconds = time.perf_counter() - started
    measured = ray.get([process.probe_stop.remote() for process in processes])
    listed = tq.kv_list()["train"]
    roll_out(["val"], "short.mp4", validate=True, __rollout_n__=1)
    return {
        "method": case.method,
        "commit": _commit(),
        "front_end": options.front_end,
        "num_groups": len(uids),
        "group_size": rollout.n,
        "status": sorted({listed[uid]["status"] for uid in uids}),
        "wall_seconds": seconds,
        "worker": measured[0],
        "servers": measured[1:],
        "queue": _queue(uids, "train"),
        "validation": _queue(["val"], "val"),
    }


class _Reward:
    """Stands for verl's reward workers: takes what they are sent."""

    def compute_score(self, data: Any) -> dict[str, Any]:
        return {"reward_score": 1.0, "reward_extra_info": {}}


def _row(case: Case, video: str, uid: str) -> dict[str, Any]:
    return {
        "data_source": "bench",
        "ability": "video",
        "prompt": [{"role": "user", "content": _QUESTION}],
        "raw_prompt": [{"role": "user", "content": _QUESTION}],
        "reward_model": {"style": "rule", "ground_truth": "B"},
        "extra_info": {
            "question": _QUESTION,
            "video_path": video,
            "index": 7,
            "split": "test",
            "classification": "active",
        },
        "uid": uid,
        "agent_name": case.method,
    }


def _inputs(key: str, partition_id: str) -> dict[str, Any]:
    """What a row holds of its images."""
    import transfer_queue as tq

    data = tq.kv_batch_get(keys=[key], partition_id=partition_id, select_fields=["multi_modal_inputs"])
    inputs = data["multi_modal_inputs"][0]
    return dict(getattr(inputs, "data", inputs))


def _queue(uids: list[str], partition_id: str) -> dict[str, Any]:
    """Bytes of pixels that the queue holds of some groups."""
    import torch
    import transfer_queue as tq

    listed = tq.kv_list()
    keys = [key for key in listed[partition_id] if key not in uids]
    values = [_inputs(key, partition_id).get("pixel_values") for key in keys]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    blocks = {key: tag for key, tag in listed.get("video_tools_images", {}).items() if key.split("_")[0] in uids}
    return {
        "num_rows": len(keys),
        "tensor_bytes": sum(tensor.nbytes for tensor in tensors),
        "rows_with_references": sum(value is not None for value in values) - len(tensors),
        "block_bytes": sum(tag["num_bytes"] for tag in blocks.values()),
    }


def _commit() -> str:
    import verl_video_tools

    folder = Path(verl_video_tools.__file__).parent
    found = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


if __name__ == "__main__":
    main()
