"""Learners that compare a completion with what a critic expected."""
