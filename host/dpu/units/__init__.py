"""Drive the compute units behind XRT: registers, buffers, pools and queues."""
