"""Drop-in replacements for the classes of other ELMo packages."""
