"""Whether somebody watches a module, so that another way to its result would go unseen."""

from torch import nn


def is_watched(module: nn.Module) -> bool:
    """Tell whether somebody changes or sees what a module computes."""
    hooks = module._forward_pre_hooks or module._forward_hooks
    return "forward" in module.__dict__ or bool(hooks)
