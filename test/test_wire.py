"""What goes over the network: everything arrives as it was sent, or is refused."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from jepa_planner_ros.search import CrossEntropySettings, SurrogateSettings
from jepa_planner_ros.serving.messages import ServedPlan, ServingReport
from jepa_planner_ros.serving.wire import WireError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.latents import (
    ReceivedLatents,
    SentLatents,
    UnknownLatentError,
    whole_latent,
)
from jepa_planner_ros.serving.wire.records import from_record, to_record
from jepa_planner_ros.serving.wire.tensors import MAX_BYTES, digest, pack, unpack
from jepa_planner_ros.types import (
    Energy,
    Float32Array,
    ModelDescription,
    Plan,
    PlanRequest,
    PlanTiming,
    Scene,
    SearchRound,
)

_DRAW = np.random.default_rng(5)


def latent(tokens: int = 6) -> Float32Array:
    return _DRAW.standard_normal((tokens, 8)).astype(np.float32)


def plan_request(**changes: Any) -> PlanRequest:
    given = {
        "search": CrossEntropySettings(horizon=1),
        "seed": 2**62,
        "step": 3,
        "previous": _DRAW.standard_normal((1, 7)),
    }
    return PlanRequest(Scene(latent(), np.arange(7.0), latent()), **given | changes)


def whole(array: Float32Array) -> pb.Latent:
    return whole_latent(array, pb.FLOAT32)


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if is_dataclass(ours):
        for field in fields(ours):
            assert_same(getattr(ours, field.name), getattr(theirs, field.name))
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    elif isinstance(ours, tuple):
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


PLAN = Plan(
    actions=_DRAW.standard_normal((2, 7)),
    states=_DRAW.standard_normal((3, 7)),
    energies=_DRAW.standard_normal(2),
    predicted_latent=latent(),
    start_energy=0.1,
    rollouts=193,
    rounds=(SearchRound(0.3, 0.4), SearchRound(0.1, 1 / 3)),
    timing=PlanTiming(0.2, 0.1),
    model_fingerprint="abc",
)


@pytest.mark.parametrize(
    "value",
    [
        plan_request(),
        plan_request(previous=None, close_gripper_from=0),
        ServedPlan(PLAN, ServingReport({"a": 3, "b": 4}, 0, 1)),
        ModelDescription(
            "abc", 64, 128, (128, 128), 32, "cpu", "fp32", replicas=2, parameters=10**9
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_dataclasses_arrive_to_the_last_bit(value: Any) -> None:
    sent = to_record(value, whole).SerializeToString()
    received = from_record(type(value), pb.Record.FromString(sent), ReceivedLatents().read)
    assert_same(value, received)


def test_a_search_of_another_kind_travels_as_itself() -> None:
    search = SurrogateSettings(horizon=2, energy=Energy("l2", (0.5, 0.25)), guard=None)
    request = plan_request(search=search, previous=None)
    assert_same(
        request, from_record(PlanRequest, to_record(request, whole), ReceivedLatents().read)
    )


def test_latents_are_sent_once_and_exactly() -> None:
    ours, theirs = SentLatents(pb.FLOAT32), ReceivedLatents()
    goal = latent()
    first = ours.write(goal)
    np.testing.assert_array_equal(theirs.read(first), goal)
    ours.confirm()
    again = ours.write(goal.copy())
    assert again.WhichOneof("content") == "digest"
    assert again.ByteSize() < 24
    np.testing.assert_array_equal(theirs.read(again), goal)
    assert ours.write(goal + 1).WhichOneof("content") == "tensor"
    with pytest.raises(UnknownLatentError):
        ReceivedLatents().read(again)
    ours.forget()
    assert ours.write(goal).WhichOneof("content") == "tensor"


def test_latents_that_were_not_confirmed_are_sent_again() -> None:
    ours, goal = SentLatents(pb.FLOAT16), latent()
    ours.write(goal)
    assert ours.write(goal).tensor.dtype == pb.FLOAT16


def test_received_latents_keep_to_their_memory_and_the_ones_in_use() -> None:
    frames = [latent() for _ in range(9)]
    store = ReceivedLatents(capacity=4 * frames[0].nbytes)
    sent = SentLatents(pb.FLOAT32)
    store.read(sent.write(frames[0]))
    sent.confirm()
    for frame in frames[1:]:
        store.read(whole(frame))
        np.testing.assert_array_equal(store.read(sent.write(frames[0])), frames[0])
    forgotten = SentLatents(pb.FLOAT32)
    forgotten.write(frames[1])
    forgotten.confirm()
    with pytest.raises(UnknownLatentError):
        store.read(forgotten.write(frames[1]))


def test_received_latents_of_no_bytes_are_forgotten_too() -> None:
    store = ReceivedLatents(most=3)
    empty = [whole(np.zeros((0, width), np.float32)) for width in range(5)]
    for latent in empty:
        store.read(latent)
    named = [pb.Latent(digest=digest(latent.tensor)) for latent in empty]
    for known in named[2:]:
        store.read(known)
    for forgotten in named[:2]:
        with pytest.raises(UnknownLatentError):
            store.read(forgotten)


TOO_MANY = MAX_BYTES // 8 + 1


def damaged(**changes: Any) -> pb.Tensor:
    tensor = pack(np.ones((2, 3)))
    for name, value in changes.items():
        if name == "shape":
            del tensor.shape[:]
            tensor.shape.extend(value)
        else:
            setattr(tensor, name, value)
    return tensor


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (damaged(dtype=pb.INT64), "dtype INT64, not FLOAT64"),
        (damaged(dtype=99), "dtype 99"),
        (damaged(shape=(2, 4)), "48 bytes instead of 64"),
        (damaged(shape=(2**32 - 1,) * 4), "48 bytes instead of"),
        (damaged(shape=(1, 1, 1, 2, 3)), "5 axes"),
        (damaged(data=b""), "0 bytes instead of 48"),
        (damaged(data=np.full(6, np.nan).tobytes()), "not finite"),
        (damaged(shape=(TOO_MANY,), data=bytes(8 * TOO_MANY)), "is the most"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tensor_whose_header_lies_is_refused(tensor: pb.Tensor, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        unpack(tensor, pb.FLOAT64)


def changed(path: str, **changes: Any) -> pb.Record:
    record = to_record(plan_request(), whole)
    value: Any = record
    for name in path.split("."):
        value = (value.record if isinstance(value, pb.Value) else value).fields[name]
    for name, content in changes.items():
        setattr(value, name, content)
    return record


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (changed("seed", text="x"), r"PlanRequest\.seed must be int, not 'x'"),
        (changed("seed", whole=-1), "must not be negative"),
        (changed("search.samples", whole=0), r"search\.samples = 0"),
        (changed("search.max_translation", real=float("nan")), r"max_translation is not finite"),
        (changed("search.energy.distance", text="l3"), r"Energy\.distance must be"),
        (changed("colour", text="red"), "no field 'colour' here: install the same version"),
        (changed("previous", none=True, whole=3), "previous must be"),
        (changed("scene", flag=True), r"PlanRequest\.scene must be Scene, not a flag"),
        (pb.Record(type="Plan"), "tells of a 'Plan' instead of a PlanRequest"),
        (pb.Record(type="PlanRequest"), "without its field 'scene'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_does_not_fit_is_refused(record: pb.Record, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        from_record(PlanRequest, record, ReceivedLatents().read)


def test_a_long_sequence_is_refused_by_its_length() -> None:
    record = to_record(plan_request(), whole)
    steps = record.fields["search"].record.fields["energy"].record.fields["steps"]
    # Were the items looked at, the text would be complained of.
    steps.sequence.items.extend([pb.Value(text="x")] * 1001)
    with pytest.raises(WireError, match=r"Energy\.steps has 1001 items; 1000 is the most"):
        from_record(PlanRequest, record, ReceivedLatents().read)


@given(st.data())
def test_no_damage_of_a_message_does_more_than_be_refused(data: st.DataObject) -> None:
    message = bytearray(to_record(plan_request(), whole).SerializeToString())
    for _ in range(data.draw(st.integers(1, 8))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        record = pb.Record.FromString(bytes(message))
    except DecodeError:
        return
    try:
        received = from_record(PlanRequest, record, ReceivedLatents().read)
    except WireError:
        return
    assert np.isfinite(received.scene.latent).all()
