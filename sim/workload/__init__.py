"""What is to be served: arrival times, models, lengths, trees."""
