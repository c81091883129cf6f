"""Serve the Open Inference Protocol over gRPC."""
