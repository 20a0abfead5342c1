"""What holds on the layers of an H200."""
