"""What several policies build on: windows, queues, the batch table."""
