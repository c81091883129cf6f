"""Adapters put the DPU into other people's servers and libraries."""
