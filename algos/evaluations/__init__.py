"""What an evaluation says: means with intervals, episodes to read, teams compared."""
