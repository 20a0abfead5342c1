"""Coverage-guided fuzzing of the text readers, with atheris: see run.py."""
