"""Plug-ins: entry points of other installed packages, loaded when they are first needed.

A package adds tasks, or learners, through its `pyproject.toml`:

    [project.entry-points."motet.envs"]
    mine = "my_package.tasks"

What stands there is a module that registers when it is imported, or `"module:function"`, a function
without parameters that registers.
"""

import importlib.metadata
import warnings


class PluginLoader:
    """Loads the entry points of a group, each of them once.

    Args:
        group: the group's name, such as "motet.envs".
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._tried: set[tuple[str, str]] = set()

    def load(self) -> None:
        """Load those entry points of the group that were not tried before.

        One that fails gives a warning, now and never again, and leaves the others alone.
        """
        for plugin in importlib.metadata.entry_points(group=self.group):
            if (plugin.name, plugin.value) in self._tried:
                continue
            self._tried.add((plugin.name, plugin.value))
            try:
                loaded = plugin.load()
                if callable(loaded):
                    loaded()
            # Somebody else's code may fail in any way, and whoever asked for another name must
            # not suffer from it.
            except (Exception, SystemExit) as exc:  # noqa: BLE001
                warnings.warn(
                    f"The plug-in {plugin.name} = {plugin.value} of the group {self.group} "
                    f"was not loaded: {type(exc).__name__}: {exc}",
                    stacklevel=2,
                )
