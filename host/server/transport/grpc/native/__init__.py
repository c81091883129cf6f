"""The native front: an extension in C++ that owns gRPC's connections in a thread of its own, by nghttp2.

It knows HTTP/2 and gRPC's frames, and no call. It hands whole messages to Python, and sends what Python answers.
`http2` is the extension. It exists only where a compiler and nghttp2 were found at installation."""
