"""This package carries the Open Inference Protocol over HTTP and gRPC."""
