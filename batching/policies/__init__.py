"""The policies, one file each, and what several share: window, queue_length, by_deadline, fifo, batch_table and
single_input."""
