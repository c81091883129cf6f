"""What tests of several commands share."""

import pytest
from command import headrace_here

FREE = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")


@pytest.fixture
def served(monkeypatch):
    """Return the settings of the models that `headrace serve` would serve, and of the models `of` a repository."""
    pytest.importorskip("uvloop")
    from headrace.host.server import serve as server

    def run(*arguments, of=()):
        found = []

        def serve(options, settings, *_):
            found.extend([*settings, *(options.repository.settings(name) for name in of)])
            return True

        monkeypatch.setattr(server, "serve", serve)
        done = headrace_here("serve", *FREE, *arguments)
        assert done.returncode in (None, 0), done.stderr
        return found

    return run
