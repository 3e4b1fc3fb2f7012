"""A task and a learner for Motet."""
