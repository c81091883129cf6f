"""This package serves the Open Inference Protocol over gRPC."""
