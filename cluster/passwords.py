"""Passwords in addresses (``scheme://user:password@host``) and what may be shown instead."""

import re

_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):[^/\s]*@")


def without_passwords(text: str) -> str:
    """An address, or a message with addresses in it, as it may be printed and stored."""
    return _PASSWORD.sub(r"\1:***@", text)
