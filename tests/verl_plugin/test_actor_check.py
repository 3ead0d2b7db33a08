"""Dead, busy and unreachable actors, with a stand-in for Ray: a call's reference is a list that holds its answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayError, RayTaskError

from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin import queue as queue_port
from verl_video_tools.verl_plugin import watchdog
from verl_video_tools.verl_plugin.queue import queue_controller, storage_units
from verl_video_tools.verl_plugin.watchdog import ActorCheck


class Actor:
    """Answers every call with `answer`: an address, an error, or None while it is busy."""

    def __init__(self, answer: str | RayError | None) -> None:
        self.answer = answer
        self.num_calls = 0
        self.__ray_call__ = SimpleNamespace(remote=self._call)

    def _call(self, function: Any) -> Actor:
        assert function is watchdog.node_address
        self.num_calls += 1
        return self


def watching(kind: str, *actors: Actor, grace_seconds: float = 60.0) -> ActorCheck:
    check = ActorCheck(grace_seconds)
    check.add(kind, actors)
    return check


def get(reference: Actor) -> str:
    if isinstance(reference.answer, RayError):
        raise reference.answer
    assert reference.answer is not None
    return reference.answer


@pytest.fixture(autouse=True)
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    def wait(references: list[Actor], timeout: float) -> tuple[list[Actor], list[Actor]]:
        assert timeout == 0, "the watchdog must not wait"
        ready = [reference for reference in references if reference.answer is not None]
        return ready, [reference for reference in references if reference.answer is None]

    fake = SimpleNamespace(wait=wait, get=get)
    monkeypatch.setattr(watchdog, "ray", fake)
    monkeypatch.setattr(queue_port, "ray", fake)
    return fake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`clock.seconds` is the time that the check sees."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_where_actors_run_is_printed_once_all_have_answered(capsys: pytest.CaptureFixture[str]) -> None:
    late = Actor(None)
    loops = [Actor("10.0.0.1"), late, Actor("10.0.0.2")]
    check = watching("agent loop worker", *loops)
    check.add("reward worker", [Actor("10.0.0.1")])
    check.announce()
    assert check.fault() is None
    assert capsys.readouterr().out == ""
    late.answer = "10.0.0.2"
    for _ in range(3):
        assert check.fault() is None
    assert capsys.readouterr().out.splitlines() == [
        "[verl_video_tools] node 10.0.0.1: 1 x agent loop worker, 1 x reward worker",
        "[verl_video_tools] node 10.0.0.2: 2 x agent loop worker",
    ]


def test_the_dead_are_named_with_their_nodes_and_the_cause() -> None:
    actors = [Actor("10.0.0.1"), Actor("10.0.0.2"), Actor("10.0.0.2")]
    check = watching("agent loop worker", *actors)
    assert check.fault() is None
    for actor in actors[1:]:
        actor.answer = ActorDiedError()
    fault = check.fault()
    assert fault == (
        "lost agent loop worker 1, agent loop worker 2 on node 10.0.0.2. "
        "Ray says: The actor died unexpectedly before finishing this task."
    )


def test_an_actor_that_died_before_its_first_answer() -> None:
    fault = watching("training worker", Actor(OutOfMemoryError("low on memory"))).fault()
    assert fault == "lost training worker 0 on node of unknown address. Ray says: low on memory."


def test_a_busy_actor_is_asked_once_and_is_no_fault(clock: SimpleNamespace) -> None:
    busy = Actor(None)
    check = watching("training worker", busy, grace_seconds=60)
    for _ in range(5):
        assert check.fault() is None
        clock.seconds += 600
    assert busy.num_calls == 1


def test_a_broken_connection_is_forgiven_for_a_while(clock: SimpleNamespace) -> None:
    actor = Actor("10.0.0.2")
    check = watching("inference server", actor, grace_seconds=60)
    assert check.fault() is None
    assert not check.is_suspicious()
    actor.answer = ActorUnavailableError("connection refused", None)
    assert check.fault() is None
    assert check.is_suspicious()
    clock.seconds += 59
    assert check.fault() is None
    actor.answer = "10.0.0.2"
    assert check.fault() is None
    assert not check.is_suspicious()
    clock.seconds += 600
    assert check.fault() is None


@pytest.mark.parametrize("answers_again", [True, False])
def test_a_connection_that_stays_broken_is_a_death(clock: SimpleNamespace, answers_again: bool) -> None:
    """Whether Ray refuses each later call, or lets it wait."""
    actor = Actor(ActorUnavailableError("connection refused", None))
    check = watching("inference server", actor, grace_seconds=60)
    assert check.fault() is None
    if not answers_again:
        actor.answer = None
    clock.seconds += 61
    fault = check.fault()
    assert fault is not None and "inference server 0" in fault and "connection refused" in fault


def test_an_actor_that_cannot_say_where_it_is_lives() -> None:
    error = RayTaskError("__ray_call__", "ModuleNotFoundError", ModuleNotFoundError("verl_video_tools"))
    assert watching("storage unit", Actor(error)).fault() is None


def test_storage_units_are_found_by_verls_config(fake_ray: SimpleNamespace) -> None:
    fake_ray.get_actor = lambda name: name
    backend = SimpleNamespace(storage_backend="SimpleStorage", SimpleStorage=SimpleNamespace(num_data_storage_units=2))
    assert storage_units(backend) == ["TransferQueueStorageUnit#0", "TransferQueueStorageUnit#1"]
    assert storage_units(SimpleNamespace(storage_backend="MooncakeStore")) == []


def test_a_second_run_on_the_cluster_is_refused(fake_ray: SimpleNamespace) -> None:
    def get_actor(name: str) -> None:
        raise ValueError(f"Failed to look up actor with name '{name}'")

    fake_ray.get_actor = get_actor
    backend = SimpleNamespace(storage_backend="SimpleStorage", SimpleStorage=SimpleNamespace(num_data_storage_units=1))
    with pytest.raises(UsageError, match="another run uses this Ray cluster"):
        storage_units(backend)


def test_a_dead_queue_controller_is_a_fault(fake_ray: SimpleNamespace) -> None:
    """Its clients would wait for ever."""
    controller = Actor("10.0.0.1")
    named = {("TransferQueueController", "transfer_queue"): controller}
    fake_ray.get_actor = lambda name, namespace: named[name, namespace]
    check = watching("TransferQueue controller", *queue_controller())
    assert check.fault() is None
    controller.answer = ActorDiedError()
    fault = check.fault()
    assert fault is not None and fault.startswith("lost TransferQueue controller 0 on node 10.0.0.1.")


def test_without_transfer_queue_there_is_no_controller(fake_ray: SimpleNamespace) -> None:
    def get_actor(name: str, namespace: str) -> None:
        raise ValueError(f"Failed to look up actor with name '{name}'")

    fake_ray.get_actor = get_actor
    assert queue_controller() == []
