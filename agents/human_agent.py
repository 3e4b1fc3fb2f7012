"""A person at the terminal as an agent."""

from collections.abc import Callable, Sequence

from motet.agents.agent import Completion, check_request
from motet.agents.visible import is_text, visible


class HumanAgent:
    """Show each observation to a person and read a completion.

    An answer is one line. With `multiline=True` it is all lines before one that is `end` and
    nothing else, or before the end of the input (Ctrl-D). Ctrl-C interrupts the program as always.

    Observations are shown with a bar before each line, their control characters as Python would
    write them: nothing that a model wrote can move the cursor or pass for a question.

    Args:
        name: shown above what the person sees, such as the agent's.
        multiline: read answers of several lines.
        end: the line that ends such an answer.
        input_fn: called with a prompt, returns the person's next line, and raises `EOFError` where
            there are no more; default: `input`.
        print_fn: called with each text to show; default: `print`.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        multiline: bool = False,
        end: str = ".",
        input_fn: Callable[[str], str] | None = None,
        print_fn: Callable[[str], object] | None = None,
    ) -> None:
        if not end or "\n" in end or end != end.strip():
            raise ValueError(
                f"Expected end to be one line without spaces around it, got {end!r}; use '.'."
            )
        self.name = name
        self._multiline = multiline
        self._end = end
        self._input_fn = input_fn or input
        self._print_fn = print_fn or print

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Ask for each answer in turn; see `Agent.act`. Seed and contexts change nothing.

        Raises:
            EOFError: where the input ends before an answer has begun.
        """
        del seed, contexts
        check_request(observations, num_generations)
        groups = []
        for number, observation in enumerate(observations, start=1):
            place = f" ({number} of {len(observations)})" if len(observations) > 1 else ""
            self._print_fn(self._shown(observation, place))
            groups.append([self._answer(k, num_generations) for k in range(num_generations)])
        return groups

    def _shown(self, observation: str, place: str) -> str:
        heading = "Observation" if self.name is None else f"{_line(self.name)} sees"
        lines = visible(observation).split("\n")
        return "\n".join([f"{heading}{place}", *(f"  | {line}".rstrip() for line in lines)])

    def _answer(self, k: int, num_generations: int) -> Completion:
        which = f" {k + 1} of {num_generations}" if num_generations > 1 else ""
        if self._multiline:
            self._print_fn(f"Answer{which}, ended by a line with {self._end} alone:")
        while True:
            text = self._read(which)
            if is_text(text):
                return Completion(text)
            self._print_fn("The terminal sent bytes that are no text in UTF-8; answer again.")

    def _read(self, which: str) -> str:
        try:
            return self._lines() if self._multiline else self._input_fn(f"Answer{which}: ")
        except EOFError:
            of = "" if self.name is None else f" of {_line(self.name)}"
            message = (
                f"Expected an answer{of}, got the end of the input; run this in a terminal, or "
                "give input_fn a source with enough lines."
            )
        except KeyboardInterrupt:
            self._print_fn("")  # so that the shell's prompt begins a line
            raise
        raise EOFError(message)

    def _lines(self) -> str:
        lines: list[str] = []
        while True:
            try:
                line = self._input_fn("> ")
            except EOFError:
                if not lines:
                    raise
                self._print_fn("")
                return "\n".join(lines)
            if line == self._end:
                return "\n".join(lines)
            lines.append(line)


def _line(name: str) -> str:
    """Return a name that stays on its line."""
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")
