"""What a reader says when it is given something else than it reads."""


class CannotRead(Exception):
    """It is not what it should be; the message says where, and what would be."""
