"""Test that a server without a token serves the programs of this machine, and no page of another site."""

import contextlib
import socket

import pytest
from running import scale_request, scaled, serving

from headrace.batching import UsageError
from headrace.host.network.browsers import BrowserGuard, CrossSite, Misdirected


def request(method="GET", **headers):
    """Return the method and the headers of a request."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return method, {"host": "127.0.0.1:8000", **named}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8000",
        "127.0.0.1",
        "10.0.0.7:80",
        "[::1]:8000",
        "[::1]",
        "localhost",
        "LocalHost:8000",
        "localhost.",
        "app.localhost:1",
        "gpu",
        "GPU:8000",
        "gpu.:8000",
        "",
    ],
)
def test_the_host_may_be_an_address_localhost_or_what_is_allowed(host):
    BrowserGuard(["gpu"]).check(*request(host=host))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "1.2.3",
        "[::1",
        "gpu.evil",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_name_that_somebody_else_may_have_given_this_machine_is_refused(host, method):
    with pytest.raises(Misdirected, match="--allow-host"):
        BrowserGuard(["gpu"]).check(*request(method, host=host))
    BrowserGuard(["*"]).check(*request(method, host=host))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "https://127.0.0.1:8000", "sec_fetch_site": "same-origin"},
        {"origin": "HTTP://LOCALHOST:8000", "host": "localhost:8000"},
        {"sec_fetch_site": "none"},
        {"content_type": "application/json"},
        {"content_type": "application/octet-stream"},
        {"content_type": "application/x-www-form-urlencoded"},  # curl --data's
        {"content_type": "text/plain; charset=utf-8"},  # tritonclient.http.aio's
    ],
)
def test_programs_and_the_servers_own_page_may_post(headers):
    BrowserGuard().check(*request("POST", **headers))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8001"},
        {"origin": "http://127.0.0.1"},
        {"origin": "127.0.0.1:8000"},
        {"origin": "http://localhost:8000"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:8000"},
    ],
)
def test_a_page_of_another_site_may_not(headers):
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(CrossSite):
            BrowserGuard().check(*request(method, **headers))
    BrowserGuard().check(*request("GET", **headers))  # it cannot read the answer


@pytest.mark.parametrize("name", ["http://gpu", "gpu:8000", "[::1]", "", "a b", "*.example"])
def test_a_name_that_is_none_is_told(name):
    with pytest.raises(UsageError, match=r"--allow-host.*give a name without scheme and port"):
        BrowserGuard([name])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    (folder / "more.toml").write_text('source = "served:scale"\n')
    with serving("--repository", str(folder), "--shared-memory", models=("scale",)) as running:
        yield running


PATHS = [
    "/v2/models/scale/infer",
    "/v2/repository/models/scale/unload",
    "/v2/repository/models/more/load",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/systemsharedmemory/unregister",
    "/photo/scale",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_that_changes_something_is_kept_from_other_sites(server, path):
    for headers, expected in (
        ({"Origin": "http://evil.example", "Content-Type": "text/plain"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
    ):
        status, text = server.error("POST", path, scale_request(1.0), headers)
        assert status == expected and "--" in text
    assert server.request("GET", "/v2/models/scale/ready")[0] == 200


def test_refusals_are_counted(server):
    def refused(outcome):
        lines = [line for line in server.metrics().splitlines() if f'outcome="{outcome}"' in line]
        return sum(float(line.split()[-1]) for line in lines if line.startswith("headrace_requests_total"))

    before = refused("misdirected"), refused("cross_site")
    server.request("GET", "/v2", headers={"Host": "evil.example"})
    server.request("POST", PATHS[0], scale_request(1.0), {"Sec-Fetch-Site": "cross-site"})
    assert (refused("misdirected"), refused("cross_site")) == (before[0] + 1, before[1] + 1)


def test_nothing_can_be_read_by_another_name_on_any_port(server):
    for port, path in (("http", "/"), ("http", "/status"), ("http", "/v2/health/live"), ("metrics", "/metrics")):
        assert server.request("GET", path, headers={"Host": "evil.example"}, port=port)[0] == 421
        assert server.request("GET", path, port=port)[0] == 200


def test_with_a_token_or_for_everybody_any_name_will_do(tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef0123456789abcdef")
    for options, headers in (
        (("--token-file", str(tmp_path / "token")), {"Authorization": "Bearer 0123456789abcdef0123456789abcdef"}),
        (("--insecure",), {}),
    ):
        with serving(*options, models=("scale",)) as running:
            for more in ({"Host": "gpu.example"}, {"Origin": "http://gpu.example"}):
                status, _, answer = running.request(
                    "POST", "/v2/models/scale/infer", scale_request(1.0), {**headers, **more}
                )
                assert status == 200 and scaled(answer)[0, 0] == 2


def test_a_whole_url_names_the_host(server):
    host, port = server.url().rsplit(":", 1)
    with contextlib.closing(socket.create_connection((host, int(port)), timeout=10)) as client:
        client.sendall(b"GET http://evil.example/v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 421 ")
