"""Learners that go by which of two joint actions was better."""
