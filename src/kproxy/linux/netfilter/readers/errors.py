"""The error of a reader that is given something else than it reads."""


class CannotRead(Exception):
    """It is not what it should be; the message says where, and what would be."""
