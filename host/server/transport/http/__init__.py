"""This package serves the Open Inference Protocol and the live page over HTTP/1.1."""
