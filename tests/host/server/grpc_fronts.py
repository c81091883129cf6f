"""The fronts of gRPC as parameters of a fixture: `make test` has the native one, and `make test-all` both."""

import pytest

from headrace.host.server.transport.grpc.fronts import native_front

no_native = pytest.mark.skipif(native_front() is None, reason="the native front is not installed")
FRONTS = [pytest.param("native", marks=no_native), pytest.param("aio", marks=pytest.mark.slow)]
BOTH = [pytest.param("native", marks=no_native), "aio"]
