"""The clock beside that of another program, on traces of strangers."""
