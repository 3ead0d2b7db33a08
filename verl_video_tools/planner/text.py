"""A plan as plain text, for a terminal and for the documentation."""

from __future__ import annotations

from verl_video_tools.planner.constants import GB
from verl_video_tools.planner.plan import Plan, settings


def as_text(plan: Plan) -> str:
    """Tables of memory, host and time, then what follows."""
    cluster, workload, actor, engine, host = plan.cluster, plan.workload, plan.actor, plan.engine, plan.host
    model = plan.model
    lines = [
        f"{plan.method}, {model.name} ({model.num_parameters:,} parameters), {cluster.num_gpus} x {cluster.gpu.name} "
        f"on {cluster.nodes} node(s): {'fits' if plan.fits else 'DOES NOT FIT'} (modelled, not measured)",
        *(f"  cannot fit: {reason}" for reason in plan.reasons),
        *(f"  warning: {warning}" for warning in plan.warnings),
        "",
        f"rollouts: {workload.groups} x {workload.rollouts}; initial frames {workload.initial_frames} = "
        f"{workload.initial_tokens:,} tokens; a call {workload.call_frames} frames = {workload.call_tokens:,} tokens",
        f"calls that fit {workload.max_calls}; tokens of a rollout: fullest {workload.fullest_tokens:,}, "
        f"limit {workload.longest_tokens:,}, mean taken for time {workload.mean_tokens:,.0f}",
        "",
        f"actor, a GPU at the peak of the update (has {cluster.gpu.memory_bytes / GB:.0f} GB)",
        *_rows(
            {
                "weights": actor.weights,
                "gradients": actor.gradients,
                "optimiser": actor.optimizer,
                "gathered layers": actor.gathered,
                "kept for the backward pass": actor.kept,
                "then logits and entropy": actor.logits,
                "or inside a layer": actor.layer,
                "total, with context": actor.total,
            }
        ),
        "inference engine, a GPU",
        *_rows({"weights": engine.weights, "KV cache": max(0.0, engine.kv_cache), "of its budget": engine.budget}),
        f"  {'longest rollouts at once':<30}{engine.longest_rollouts:>10.1f}",
        f"a node (has {cluster.host_bytes / GB:.0f} GB; {host.num_processes} processes)",
        *_rows(
            {
                "TransferQueue": host.queue,
                "Ray's object store": host.object_store,
                f"processor caches ({host.mm_cache_gb} GiB each)": host.mm_caches,
                "offloaded weights, optimiser": host.offloaded,
                "processes": host.processes,
                "frame cache": host.frame_cache,
                "total": host.total,
                "/dev/shm": host.shm,
            }
        ),
        "the run",
        *_rows({"queue, a step": host.queue_step, "a checkpoint on disk": host.checkpoint}),
        "",
        "seconds of a step",
        *(f"  {name:<30}{seconds:>10.1f}" for name, seconds in plan.seconds.items()),
        f"  {'sum':<30}{plan.step_seconds:>10.1f}    bound by {plan.bound_by}",
    ]
    if plan.fits:
        lines += ["", "# to paste: variables before the recipe, options behind it", *settings(plan)]
    return "\n".join(lines)


def _rows(sizes: dict[str, float]) -> list[str]:
    return [f"  {name:<30}{size / GB:>10.1f} GB" for name, size in sizes.items()]
