"""The documented proxy, config/nginx.conf, between a robot and the planner."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from planner_service import InProcessService, free_port, serving
from random_weights import random_checkpoint
from test_remote import TOKEN, assert_equal_plans, patiently, request

from jepa_planner_ros.serving import RemotePlanner, RemoteSettings
from jepa_planner_ros.serving.endpoint import PlannerEndpoint
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.types import PlannerError, PlannerUnavailableError
from jepa_planner_ros.world_model import SMALL, WorldModel

pytestmark = [
    pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program} (apt install)")
    for program in ("nginx", "openssl")
]

# What Debian's own nginx.conf is around the file.
AROUND = """
daemon off;
pid {here}/nginx.pid;
error_log {here}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {here}/body;
    proxy_temp_path {here}/proxy;
    fastcgi_temp_path {here}/fastcgi;
    uwsgi_temp_path {here}/uwsgi;
    scgi_temp_path {here}/scgi;
    include {here}/jepa_planner.conf;
}}
"""


@dataclass(frozen=True)
class Proxy:
    directory: Path
    port: int

    @contextmanager
    def running(self) -> Iterator[None]:
        command = ["nginx", "-p", str(self.directory), "-c", "nginx.conf"]
        with subprocess.Popen(command, cwd=self.directory) as process:
            try:
                yield
            finally:
                process.terminate()

    def settings(self, **changes: Path | None) -> RemoteSettings:
        files = {
            "ca_file": self.directory / "server.crt",
            "token_file": self.directory / "token",
            "certificate_file": self.directory / "robots.crt",
            "key_file": self.directory / "robots.key",
        }
        return RemoteSettings(
            f"grpcs://127.0.0.1:{self.port}", start_timeout_s=3.0, **{**files, **changes}
        )


@pytest.fixture(scope="module")
def service() -> InProcessService:
    return InProcessService(WorldModel(random_checkpoint(SMALL), micro_batch=8))


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, service: InProcessService) -> Iterator[Proxy]:
    here = tmp_path_factory.mktemp("nginx")
    with serving(PlannerEndpoint(service, TOKEN)) as planner_port:
        proxy = Proxy(here, free_port())
        for name in ("server", "robots", "stranger"):
            make_certificate(here, name)
        (here / "token").write_text(TOKEN)
        (here / "other_token").write_text(TOKEN.upper())
        documented = (share_directory() / "config" / "nginx.conf").read_text()
        for theirs, ours in (
            ("127.0.0.1:9000", f"127.0.0.1:{planner_port}"),
            ("listen 9443", f"listen 127.0.0.1:{proxy.port}"),
            ("/etc/jepa_planner", str(here)),
        ):
            assert theirs in documented
            documented = documented.replace(theirs, ours)
        (here / "jepa_planner.conf").write_text(documented)
        (here / "nginx.conf").write_text(AROUND.format(here=here))
        yield proxy


def make_certificate(directory: Path, name: str) -> None:
    """A certificate for 127.0.0.1 that vouches for itself."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", f"{name}.key", "-out", f"{name}.crt"),
        ],
        cwd=directory,
        check=True,
        capture_output=True,
    )


def test_a_robot_plans_through_tls_and_a_proxy_that_is_started_again(
    proxy: Proxy, service: InProcessService
) -> None:
    with proxy.running():
        robot = RemotePlanner(proxy.settings())
        first = robot.plan(request())
        assert_equal_plans(first, robot.plan(request()))
    with pytest.raises(PlannerUnavailableError, match="cannot be reached"):
        robot.plan(request())
    with proxy.running():
        assert_equal_plans(first, patiently(robot, request()))
        robot.close()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"token_file": "other_token"}, "token is missing or wrong"),
        ({"token_file": None}, "token is missing or wrong"),
        ({"certificate_file": None, "key_file": None}, "status: 400"),
        ({"certificate_file": "stranger.crt", "key_file": "stranger.key"}, "status: 400"),
        ({"ca_file": "stranger.crt"}, "CERTIFICATE_VERIFY_FAILED|[Hh]andshake"),
    ],
    ids=["wrong token", "no token", "no certificate", "strange certificate", "strange server"],
)
def test_strangers_do_not_get_through(
    proxy: Proxy, changes: dict[str, str | None], complaint: str
) -> None:
    files = {name: file and proxy.directory / file for name, file in changes.items()}
    with proxy.running(), pytest.raises(PlannerError, match=complaint):
        RemotePlanner(proxy.settings(**files))
