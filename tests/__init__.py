"""The tests, in folders that mirror the rooms of perfml and collectors."""
