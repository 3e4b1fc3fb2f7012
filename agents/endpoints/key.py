"""A key that is read from the environment, sent, and shown nowhere."""

import os

_PUBLIC = 8  # characters of a key's beginning that say no more than whose it is, as "sk-proj-"


class Key:
    """The key of an endpoint, for as long as it is asked.

    Args:
        variable: name of the environment variable that has it; None for endpoints without keys.

    Raises:
        ValueError: where the variable is not set, or holds what cannot be sent in a header.
    """

    __slots__ = ("_value", "variable")

    def __init__(self, variable: str | None) -> None:
        self.variable = variable
        # the library does not go without one; endpoints that want none do not look at it
        self._value = "none" if variable is None else os.environ.get(variable, "").strip()
        if not self._value:
            raise ValueError(
                f"Expected the endpoint's key in the environment variable {variable}, got none; "
                f"export {variable}=..., name another one with api_key_env, or set "
                "api_key_env=None for an endpoint that wants no key."
            )
        # what is refused later, by the HTTP library, is refused with the key in the sentence
        if not (self._value.isascii() and self._value.isprintable() and " " not in self._value):
            raise ValueError(
                f"Expected a key of visible ASCII characters in the environment variable "
                f"{variable}, got others in it; copy the key again."
            )

    def reveal(self) -> str:
        """Return the key, for the request's header alone."""
        return self._value

    def hidden_in(self, text: str) -> str:
        """Return a text without the key, which endpoints may repeat in what they tell.

        What they tell may have been cut in the middle of it, and ends with dots there.
        """
        if self.variable is None:
            return text
        text = text.replace(self._value, "[key]")
        for length in range(len(self._value) - 1, _PUBLIC, -1):
            text = text.replace(f"{self._value[:length]}...", "[key]...")
        return text

    def __repr__(self) -> str:
        return f"Key({self.variable!r})"

    def __reduce__(self) -> str:
        raise TypeError("Expected nobody to pickle or copy a key; it is read from the environment.")
