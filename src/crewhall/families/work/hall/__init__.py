"""The hall as a whole: its pause."""
