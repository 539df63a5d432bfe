"""The pages, and the files that they are made of."""
