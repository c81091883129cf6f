"""The demo sends real inputs through the DPU, a batcher and a network, live, and then simulates a larger server."""
