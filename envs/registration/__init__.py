"""Tasks by id: register, make, list, and what is registered."""

from motet.envs.registration.by_id import (
    load_plugins,
    make,
    pprint_registry,
    register,
    registry,
    spec,
)
from motet.envs.registration.env_spec import EnvSpec

__all__ = ["EnvSpec", "load_plugins", "make", "pprint_registry", "register", "registry", "spec"]
