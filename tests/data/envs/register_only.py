import gymnasium as gymnasium
import oddenvs as oddenvs  # registers Odd/...: what gymnasium 1.x tells users of add-on packages to do
