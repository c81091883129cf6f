"""Define the protocol's messages without a transport, their codings and limits."""
