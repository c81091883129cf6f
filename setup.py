"""Compiles what is called most: the hot loop of the simulator, the policies that it drives, and the request path
through the server with mypyc, the solver's kernel with Cython, and two extensions in C++. These are the native front of
gRPC, which needs libnghttp2-dev, and libssl-dev for TLS, and copies through mapped files. All else is in
pyproject.toml.

What mypyc compiles also runs as it is, several times slower; HEADRACE_PURE=1 leaves that out."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup

COMPILED = (
    "batching/accounting.py",
    "batching/action_tables.py",
    "batching/policies/shared/batch_table.py",
    "batching/policies/bucketed_graph.py",
    "batching/checked_policy.py",
    "batching/graphs/cell_graph.py",
    "batching/policies/shared/deadline_queue.py",
    "batching/policies/cellular.py",
    "batching/policies/deferred.py",
    "batching/policies/dynamic_graph.py",
    "batching/policies/earliest_deadline.py",
    "batching/graphs/execution.py",
    "batching/policies/shared/fifo.py",
    "batching/policies/graph.py",
    "batching/policies/lazy.py",
    "batching/policies/preba.py",
    "batching/policies/preba_lazy.py",
    "batching/policies/shared/queue_length.py",
    "batching/request.py",
    "batching/policies/serial.py",
    "batching/policies/shared/single_input.py",
    "batching/policies/smdp.py",
    "batching/policies/smdp_mixture.py",
    "batching/policies/smdp_phases.py",
    "batching/policies/static.py",
    "batching/steps/batch.py",
    "batching/steps/cellular.py",
    "batching/steps/checked_policy.py",
    "batching/steps/continuous.py",
    "batching/steps/kv_cache.py",
    "batching/steps/lazy.py",
    "batching/steps/prefill_first.py",
    "batching/steps/prefix_cache.py",
    "batching/steps/request.py",
    "batching/steps/token_deadline.py",
    "batching/policies/shared/table_times.py",
    "batching/policies/shared/window.py",
    "batching/policies/work_conserving.py",
    "sim/cell_memory.py",
    "sim/decoding/engine.py",
    "sim/engine.py",
    "sim/fleet/routers.py",
    "sim/fleet/run.py",
    "sim/workload/closed_loop.py",
)
# The request path through the server, the live runtime and its workers.
REQUEST_PATH = (
    "host/live/dispatch.py",
    "host/live/isolation.py",
    "host/live/requests.py",
    "host/live/results.py",
    "host/live/runtime.py",
    "host/live/supervision.py",
    "host/live/tasks/interface.py",
    "host/live/tasks/nodes.py",
    "host/live/tasks/slots.py",
    "host/live/tasks/whole.py",
    "host/memory/files.py",
    "host/memory/slots.py",
    "host/network/browsers.py",
    "host/server/observe/dashboard.py",
    "host/server/observe/metrics.py",
    "host/server/observe/watch.py",
    "host/server/outputs.py",
    "host/server/protocol/descriptions.py",
    "host/server/protocol/messages.py",
    "host/server/protocol/shared_memory.py",
    "host/server/inference.py",
    "host/server/rows.py",
    "host/server/transport/grpc/tensor_calls.py",
    "host/server/transport/grpc/lent_slots.py",
    "host/server/transport/grpc/native_server.py",
    "host/server/transport/grpc/wire.py",
    "host/server/transport/http/body_slots.py",
    "host/server/transport/http/connection.py",
    "host/server/transport/http/endpoints.py",
    "host/server/transport/http/heads.py",
    "host/server/transport/lending.py",
    "host/workers/channel.py",
    "host/workers/executors/serving.py",
    "host/workers/executors/whole.py",
    "host/workers/messages.py",
)
KERNELS = ("batching/smdp/kernel.pyx",)
FRONT = (
    "host/server/transport/grpc/native/channel.cpp",
    "host/server/transport/grpc/native/connection.cpp",
    "host/server/transport/grpc/native/front.cpp",
    "host/server/transport/grpc/native/module.cpp",
)
FRONT_HEADERS = (
    "host/server/transport/grpc/native/call.hpp",
    "host/server/transport/grpc/native/channel.hpp",
    "host/server/transport/grpc/native/connection.hpp",
    "host/server/transport/grpc/native/front.hpp",
    "host/server/transport/grpc/native/places.hpp",
)


def extensions():
    # pip runs this file three times, twice only to ask for metadata. A source distribution has no compiled files.
    if {"egg_info", "dist_info", "sdist"} & set(sys.argv):
        return []
    from Cython.Build import cythonize

    kernels = [
        Extension("headrace." + path.removesuffix(".pyx").replace("/", "."), [path], extra_compile_args=["-O3"])
        for path in KERNELS
    ]
    found = [*cythonize(kernels, build_dir="build", language_level=3, quiet=True), grpc_front(), mapped_file()]
    return found if os.environ.get("HEADRACE_PURE") else [*found, *compiled_modules()]


def grpc_front():
    """Return the extension that serves gRPC. Where it cannot be built, grpc.aio serves."""
    tls = has_header("openssl/ssl.h")
    return Extension(
        "headrace.host.server.transport.grpc.native.http2",
        list(FRONT),
        depends=list(FRONT_HEADERS),
        libraries=["nghttp2", *(["ssl", "crypto"] if tls else ())],
        define_macros=[("HEADRACE_TLS", None)] if tls else [],
        language="c++",
        extra_compile_args=["-std=c++17", "-O2", "-pthread"],
        optional=True,
    )


def has_header(name):
    """Tell whether the compiler finds a header."""
    compiler = os.environ.get("CXX", "g++").split()
    try:
        done = subprocess.run(
            [*compiler, "-E", "-x", "c++", "-"], input=f"#include <{name}>\n", text=True, capture_output=True
        )
    except OSError:
        return False
    return done.returncode == 0


def mapped_file():
    """Return the extension that copies through mapped files. Where it cannot be built, system calls copy."""
    return Extension(
        "headrace.host.memory.mapped.mapped_file",
        ["host/memory/mapped/mapped_file.cpp"],
        language="c++",
        extra_compile_args=["-std=c++17", "-O2"],
        optional=True,
    )


def compiled_modules():
    """Return the extensions that mypyc makes: one library of the policies and the simulator, and one of the server."""
    from mypyc.build import mypycify

    # mypyc takes a module's name from its path, so it is shown the folders under the name of the package.
    root = Path("build/typing")
    (root / "headrace").mkdir(parents=True, exist_ok=True)
    for folder in ("batching", "bitstreams", "host", "sim"):
        link = root / "headrace" / folder
        link.unlink(missing_ok=True)
        link.symlink_to(Path("../../..") / folder)
    os.environ["MYPYPATH"] = str(root)
    # Other packages' types are left out: reading torch's takes ten times as long as all the rest.
    # Without them, aliases of numpy's types make errors where they are used: only what is compiled is to be checked.
    # A cache of an earlier run that did not end would make wrong code.
    options = "--config-file= --cache-dir=/dev/null --no-site-packages --ignore-missing-imports --follow-imports=silent"
    policies = [str(root / "headrace" / path) for path in COMPILED]
    server = [str(root / "headrace" / path) for path in REQUEST_PATH]
    found = mypycify(
        [*options.split(), "--namespace-packages", "--explicit-package-bases", *policies, *server],
        separate=[(policies, "headrace.batching.compiled"), (server, "headrace.host.compiled_server")],
        debug_level="0",
    )
    for extension in found:
        extension.optional = True
    return found


# The libraries are compiled at the same time.
setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
