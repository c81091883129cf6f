"""This package observes a running server: metrics, live page, access log, trace and spans."""
