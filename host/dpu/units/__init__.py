"""Drive the compute units through XRT: registers, buffers, pools and queues."""
