"""MuJoCo's robots as gymnasium has them, on threads."""
