"""Commands for people, thin: parse, call, show."""
