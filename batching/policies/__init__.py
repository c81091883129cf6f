"""The policies, one file each, and what several share: window, queue_length, fifo, batch_table."""
