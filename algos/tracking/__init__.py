"""Where metrics go: one logger a file."""
