"""Real images and recordings that the demo sends."""
