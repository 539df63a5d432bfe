"""The edges: bytes in, the door, bytes out."""
