"""What a team did and what it was paid: sampled, recorded, and added up."""
