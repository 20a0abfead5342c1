"""What a budget of passes costs."""
