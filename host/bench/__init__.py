"""The load generator: plans of send times, contents of requests, clients, their processes, and reports."""
