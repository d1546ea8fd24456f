"""The planner across a network: equal plans, checked callers, and a network that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_service import InProcessService, Loop, Relay, free_port, serving
from random_weights import random_checkpoint

from jepa_planner_ros.planning import InProcessPlanner
from jepa_planner_ros.search import (
    FAST_SEARCH,
    AssistedSettings,
    CrossEntropySettings,
    GaussNewtonSettings,
    GradientSettings,
    MppiSettings,
)
from jepa_planner_ros.serving import RemotePlanner, RemoteSettings
from jepa_planner_ros.serving.endpoint import PlannerEndpoint
from jepa_planner_ros.serving.messages import PlannerBusyError
from jepa_planner_ros.serving.wire import jepa_planner_pb2 as pb
from jepa_planner_ros.serving.wire.jepa_planner_pb2_grpc import JepaPlannerStub
from jepa_planner_ros.serving.wire.latents import whole_latent
from jepa_planner_ros.serving.wire.records import to_record
from jepa_planner_ros.types import (
    Plan,
    PlannerError,
    PlannerUnavailableError,
    PlanRequest,
    Scene,
    SearchSettings,
)
from jepa_planner_ros.world_model import SMALL, WorldModel

SEARCH = CrossEntropySettings(samples=16, elites=4, rounds=2, horizon=2)
TOKEN = "0123456789abcdef-a-token"


@pytest.fixture(scope="module")
def world_model(one_thread: None) -> WorldModel:
    return WorldModel(random_checkpoint(SMALL), micro_batch=8)


@pytest.fixture(scope="module")
def service(world_model: WorldModel) -> InProcessService:
    return InProcessService(world_model)


@pytest.fixture(scope="module")
def port(service: InProcessService) -> Iterator[int]:
    with serving(PlannerEndpoint(service, token=None)) as port:
        yield port


@pytest.fixture(scope="module")
def planner(port: int) -> Iterator[RemotePlanner]:
    planner = connect(port)
    yield planner
    planner.close()


def connect(port: int, **changes: Any) -> RemotePlanner:
    return RemotePlanner(
        RemoteSettings(f"grpc://127.0.0.1:{port}", robot="tester", start_timeout_s=5.0, **changes)
    )


def request(seed: int = 0, **changes: Any) -> PlanRequest:
    draw = np.random.default_rng(seed).standard_normal
    latents = (draw((64, 128)).astype(np.float32) for _ in range(2))
    state = np.array([0.4, 0.0, 0.3, 3.1, 0.0, 0.1, 0.2])
    scene = Scene(latent=next(latents), state=state, goal_latent=next(latents))
    return replace(PlanRequest(scene, SEARCH, seed), **changes)


def assert_equal_plans(ours: Plan, theirs: Plan) -> None:
    for name in ("actions", "states", "energies", "predicted_latent"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name in ("start_energy", "rollouts", "rounds", "model_fingerprint", "fallback"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_a_plan_from_afar_is_the_plan_made_here(
    world_model: WorldModel, planner: RemotePlanner
) -> None:
    here = InProcessPlanner(world_model)
    assert planner.describe() == here.describe()
    first = planner.plan(request(close_gripper_from=1))
    assert_equal_plans(here.plan(request(close_gripper_from=1)), first)
    following = request(1, step=1, previous=first.actions)
    assert_equal_plans(here.plan(following), planner.plan(following))

    timing = planner.last_timing
    assert timing is not None
    assert 0 < timing.work < timing.server < timing.round_trip
    assert timing.queue == 0.125
    assert timing.network == timing.round_trip - timing.server


def test_half_latents_plan_like_latents_rounded_here(world_model: WorldModel, port: int) -> None:
    planner = connect(port, latents="float16")
    asked = request()
    rounded = Scene(half(asked.scene.latent), asked.scene.state, half(asked.scene.goal_latent))
    here = InProcessPlanner(world_model).plan(replace(asked, scene=rounded))
    there = planner.plan(asked)
    np.testing.assert_array_equal(here.actions, there.actions)
    np.testing.assert_array_equal(half(here.predicted_latent), there.predicted_latent)
    planner.close()


def half(latent: np.ndarray) -> np.ndarray:
    return latent.astype(np.float16).astype(np.float32)


def test_a_frame_encoded_there_is_the_frame_encoded_here(
    world_model: WorldModel, planner: RemotePlanner
) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    latent = planner.encode(frame)
    np.testing.assert_array_equal(world_model.encode(frame), latent)

    asked = request()
    asked = replace(asked, scene=replace(asked.scene, latent=latent))
    assert to_record(asked, planner._sent.write).ByteSize() < 1.1 * latent.nbytes, "one of two"
    assert_equal_plans(InProcessPlanner(world_model).plan(asked), planner.plan(asked))


def test_latents_of_another_model_are_refused_by_name(planner: RemotePlanner) -> None:
    ours = planner.describe()
    planner._description = replace(ours, fingerprint="other")
    with pytest.raises(PlannerError, match=f"serves model {ours.fingerprint} but .* model other"):
        planner.plan(request())
    planner._description = ours


def test_a_scene_of_the_wrong_size_is_refused_and_the_next_plan_works(
    planner: RemotePlanner,
) -> None:
    latent = np.zeros((49, 128), np.float32)
    with pytest.raises(PlannerError, match=r"\(49, 128\).*\(64, 128\)"):
        planner.plan(PlanRequest(Scene(latent, np.zeros(7), latent), FAST_SEARCH))
    assert planner.plan(request()).rollouts == 33


def test_a_search_of_absurd_size_is_refused(planner: RemotePlanner) -> None:
    with pytest.raises(PlannerError, match="too large for a shared planner"):
        planner.plan(request(search=replace(SEARCH, samples=10**9)))


@pytest.mark.parametrize(
    "search",
    [
        FAST_SEARCH,
        AssistedSettings(),
        GaussNewtonSettings(),
        GradientSettings(),
        MppiSettings(samples=16, rounds=2),
    ],
    ids=lambda search: type(search).__name__,
)
def test_every_search_travels(
    world_model: WorldModel, planner: RemotePlanner, search: SearchSettings
) -> None:
    here = InProcessPlanner(world_model)
    assert_equal_plans(here.plan(request(search=search)), planner.plan(request(search=search)))


def test_busy_and_failing_planners_say_so(
    planner: RemotePlanner, service: InProcessService
) -> None:
    service.trouble = [PlannerBusyError("9 plans wait already", retry_after=7.5)]
    with pytest.raises(PlannerUnavailableError, match="9 plans wait") as refusal:
        planner.plan(request())
    assert refusal.value.retry_after == 7.5
    service.trouble = [RuntimeError("out of luck")]
    with pytest.raises(PlannerError, match="RuntimeError: out of luck") as failure:
        planner.plan(request())
    assert not isinstance(failure.value, PlannerUnavailableError)
    assert planner.plan(request()).rollouts == 33


def test_the_goal_travels_once(planner: RemotePlanner, service: InProcessService) -> None:
    sizes = []
    for seed in (20, 21, 22):
        asked = request(
            seed, scene=replace(request(seed).scene, goal_latent=np.ones((64, 128), "f4"))
        )
        planner.plan(asked)
        sizes.append(to_record(asked, planner._sent.write).ByteSize())
        received, robot = service.requests[-1]
        assert robot == "tester"
        np.testing.assert_array_equal(received.scene.goal_latent, asked.scene.goal_latent)
    assert max(sizes) < 64 * 128 * 4


def test_only_who_knows_the_token_is_served(service: InProcessService, tmp_path: Path) -> None:
    right, wrong, short = (tmp_path / name for name in ("right", "wrong", "short"))
    right.write_text(f"{TOKEN}\n")
    wrong.write_text(TOKEN.upper())
    short.write_text("secret")
    with serving(PlannerEndpoint(service, TOKEN)) as port:
        planner = connect(port, token_file=right)
        assert planner.plan(request()).rollouts == 33
        planner.close()
        for file in (wrong, None):
            with pytest.raises(PlannerError, match="token is missing or wrong"):
                connect(port, token_file=file)
        with pytest.raises(PlannerError, match="no usable token: 16 or more"):
            connect(port, token_file=short)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            (reply,) = JepaPlannerStub(channel).PlanSession(iter([message(request())]))
            assert reply.refusal.code == pb.Refusal.UNAUTHENTICATED


def test_without_a_token_only_this_computer_is_served(service: InProcessService) -> None:
    class Caller:
        def __init__(self, address: str, forwarded: bool = False) -> None:
            self._address = address
            self._metadata = (("x-forwarded-for", "10.0.0.7"),) if forwarded else ()

        def peer(self) -> str:
            return self._address

        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return self._metadata

    endpoint, loop = PlannerEndpoint(service, None), Loop()
    for caller in (
        Caller("ipv4:10.0.0.7:80"),
        Caller("ipv6:%5B2001:db8::1%5D:80"),
        Caller("ipv4:1.127.0.1:1"),
        Caller("ipv4:127.0.0.1:80", forwarded=True),
    ):
        reply = loop.run(endpoint.get_model(caller))
        assert reply.refusal.code == pb.Refusal.UNAUTHENTICATED
    for address in ("ipv4:127.0.0.1:80", "ipv6:%5B::1%5D:80", "unix:"):
        assert loop.run(endpoint.get_model(Caller(address))).HasField("model")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"address": "127.0.0.1:9000"}, "must be grpc://HOST:PORT"),
        ({"address": "grpc://robot.example"}, "must be grpc://HOST:PORT"),
        ({"address": "grpc://robot.example:9000", "token_file": Path("t")}, "put a proxy with TLS"),
        ({"address": "grpc://robot.example:9000", "ca_file": Path("ca")}, "write grpcs://"),
        ({"address": "grpcs://robot.example:1", "key_file": Path("key")}, "given together"),
        ({"address": "grpc://[::1]:9000", "latents": "int8"}, "'float32' or 'float16'"),
        ({"address": "grpc://[::1]:9000", "plan_timeout_s": 601.0}, "plan_timeout 601 s .* 600 s"),
        ({"address": "grpc://[::1]:9000", "robot": "r" * 97}, "97 characters: .* at most 96"),
    ],
)
def test_settings_that_cannot_work_or_are_not_safe_are_refused(
    arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        RemoteSettings(**arguments)


def test_a_planner_that_is_started_again_is_found_again(service: InProcessService) -> None:
    port = free_port()
    with serving(PlannerEndpoint(service, None), port):
        planner = connect(port)
        before = planner.plan(request())
    pauses = []
    for _ in range(3):
        with pytest.raises(PlannerUnavailableError, match="cannot be reached") as away:
            planner.plan(request())
        pauses.append(away.value.retry_after)
    assert pauses == sorted(pauses)
    assert pauses[-1] < 1.1
    # Another process would not know the goal by its digest; neither does a new endpoint.
    with serving(PlannerEndpoint(service, None), port):
        assert_equal_plans(before, patiently(planner, request()))
    planner.close()


def test_a_network_that_is_cut_costs_a_plan_its_time_and_no_more(port: int) -> None:
    relay = Relay(port)
    planner = connect(relay.port, plan_timeout_s=0.5)
    before = planner.plan(request())
    relay.cut()
    asked = time.monotonic()
    with pytest.raises(PlannerUnavailableError, match=r"has not answered within 0\.5 s"):
        planner.plan(request())
    assert time.monotonic() - asked < 10.0
    relay.mend()
    assert_equal_plans(before, patiently(planner, request()))
    planner.close()


def test_close_ends_a_plan_in_progress(port: int) -> None:
    relay = Relay(port)
    planner = connect(relay.port)
    relay.cut()
    threading.Timer(0.2, planner.close).start()
    with pytest.raises(PlannerError, match="closed"):
        planner.plan(request())
    with pytest.raises(PlannerError, match="closed"):
        planner.describe()


def patiently(planner: RemotePlanner, asked: PlanRequest) -> Plan:
    for _ in range(20):
        try:
            return planner.plan(asked)
        except PlannerUnavailableError as error:
            time.sleep(error.retry_after)
    raise AssertionError("the planner did not come back")


def message(asked: PlanRequest) -> pb.PlanRequest:
    return pb.PlanRequest(
        request_id="7",
        time_limit_s=10.0,
        latent_dtype=pb.FLOAT32,
        request=to_record(asked, lambda latent: whole_latent(latent, pb.FLOAT32)),
    )


def throw_malformed_messages(port: int, fingerprint: str, number: int) -> set[grpc.StatusCode]:
    """Send so many to a planner; returns the statuses of those calls that had no reply."""
    # Well-formed, but of a size that is refused: what is still well-formed after damage, by a bit
    # of a latent, must not cost 2,000 plans.
    small = np.zeros((2, 4), np.float32)
    usual = message(replace(request(), scene=Scene(small, np.zeros(7), small)))
    usual.model_fingerprint = fingerprint
    good = usual.SerializeToString()
    service = "/jepa_planner.v1.JepaPlanner"
    codes: set[grpc.StatusCode] = set()

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        session = channel.stream_stream(f"{service}/PlanSession")
        calls = [
            lambda body, timeout: list(session(iter([body]), timeout=timeout)),
            channel.unary_unary(f"{service}/Encode"),
            channel.unary_unary(f"{service}/GetModel"),
        ]

        @settings(max_examples=number, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.sampled_from(calls),
            st.one_of(
                st.binary(max_size=200),
                st.integers(0, len(good)).map(lambda length: good[:length]),
                st.lists(
                    st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)), max_size=6
                ).map(lambda changes: patched(good, changes)),
            ),
        )
        def throw(call: Any, body: bytes) -> None:
            try:
                call(body, timeout=20.0)
            except grpc.RpcError as error:
                codes.add(error.code())

        throw()
    return codes


def test_two_thousand_malformed_messages_do_not_keep_the_next_good_one_waiting(
    port: int, planner: RemotePlanner
) -> None:
    codes = throw_malformed_messages(port, planner.describe().fingerprint, 2000)
    assert grpc.StatusCode.DEADLINE_EXCEEDED not in codes
    assert planner.plan(request()).rollouts == 33


def patched(body: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(body)
    for index, value in changes:
        changed[index] = value
    return bytes(changed)
