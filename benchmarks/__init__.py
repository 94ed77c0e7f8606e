"""Side-by-side measurements, each one command; they print a table and write JSON."""
