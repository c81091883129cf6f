"""Carry the Open Inference Protocol over HTTP and gRPC."""
