"""How fast a machine embeds."""
