"""Teams that are not trained, to compare learners with."""
