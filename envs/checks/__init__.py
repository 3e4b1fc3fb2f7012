"""The conformance test for environments, and its rules."""

from motet.envs.checks.check_env import EnvCheckError, check_env

__all__ = ["EnvCheckError", "check_env"]
