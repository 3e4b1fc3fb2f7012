"""A run to look at: one HTML file with its curves and every saved rollout, a tree to walk through.

The file needs no server and no network. `docs/viewer.md` says how to read it.
"""

from motet.algos.viewer.page import Page
from motet.algos.viewer.view import view_rollout, write_view

__all__ = ["Page", "view_rollout", "write_view"]
