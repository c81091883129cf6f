"""A small HTTP server for tests, and a client that sends one request."""

import contextlib
import http.client
import http.server
import sys
import threading


class Quiet(http.server.BaseHTTPRequestHandler):
    """A request handler that writes no log."""

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Threads(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        if not isinstance(sys.exception(), ConnectionError):  # tests cut connections
            super().handle_error(*_)


class Small:
    """Serve with `handler` on a loopback port, each connection in a thread of its own. Close it at the end."""

    def __init__(self, handler):
        self._server = Threads(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def ask(address, path, body=None, timeout=30, **headers):
    """Return status and body of the answer of `address` (host, port) to a GET or, with a body, to a POST."""
    with contextlib.closing(http.client.HTTPConnection(*address, timeout=timeout)) as connection:
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
