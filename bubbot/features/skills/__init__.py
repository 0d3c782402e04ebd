"""Agent Skills: folders with instructions that an owner installed, and that models open when a task needs them."""
