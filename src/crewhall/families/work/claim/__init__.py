"""Claims: which agent holds which task, and until when."""
