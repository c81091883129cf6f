"""Study how well the slice model and the tables' interpolation meet measured kernels of whole GPUs."""
