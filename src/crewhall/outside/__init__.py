"""What we do not own: the kernel, processes, files, other programs."""
