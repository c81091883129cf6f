"""Observe a running server: metrics, live page, access log, traces and spans."""
