"""What tests of several commands share."""

import pytest
from command import headrace_here

FREE = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")


@pytest.fixture
def served(monkeypatch):
    """Return the settings of the models that `headrace serve` would serve."""
    pytest.importorskip("uvloop")
    from headrace.host.server import serve as server

    def run(*arguments):
        found = []
        monkeypatch.setattr(server, "serve", lambda options, settings, *_: found.extend(settings) or True)
        done = headrace_here("serve", *FREE, *arguments)
        assert done.returncode in (None, 0), done.stderr
        return found

    return run
