"""Model the clocks that the DPU takes for images and audio."""
