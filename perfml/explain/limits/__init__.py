"""What limits a launch: how long each unit of the machine works, and what its warps wait for."""
