"""This package defines the messages of the protocol without a transport, their codings and their limits."""
