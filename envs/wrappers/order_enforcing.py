"""Raise a sentence where a method is called before `reset`."""

from typing import Any

import gymnasium

from motet.envs.wrappers.wrapper import Wrapper


class OrderEnforcing(Wrapper):
    """Raise where `step`, `state` or `render` comes before `reset`, or `step` after the end.

    For envs that do not look by themselves, and then fail in a way that helps nobody.

    Args:
        env: the env to wrap.
        disable_render_order_enforcing: let `render` pass to the env inside at any time.

    Raises:
        TypeError: where `disable_render_order_enforcing` is neither True nor False.
    """

    def __init__(self, env: Any, disable_render_order_enforcing: bool = False) -> None:
        super().__init__(env)
        if not isinstance(disable_render_order_enforcing, bool):
            raise TypeError(
                "Expected True or False as disable_render_order_enforcing, got "
                f"{disable_render_order_enforcing!r}."
            )
        self.disable_render_order_enforcing = disable_render_order_enforcing

    @property
    def has_reset(self) -> bool:
        """Whether an episode was started."""
        return self._started

    def state(self) -> Any:
        """Return the global view of the env inside.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
        """
        self._require_reset("state()")
        return super().state()

    def render(self) -> Any:
        """Render the env inside.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
        """
        if not self.disable_render_order_enforcing:
            self._require_reset(
                "render()", ", or pass disable_render_order_enforcing=True to allow it"
            )
        return super().render()

    def _require_reset(self, call: str, advice: str = "") -> None:
        if not self._started:
            raise gymnasium.error.ResetNeeded(
                f"Expected a started episode, got {call} before reset(); call reset() "
                f"first{advice}."
            )
