"""The three demos (images, audio, sentences), their live runs and the simulated server."""
