"""Skills that an agent proposes, which the owner reviews, and how often skills are used."""
