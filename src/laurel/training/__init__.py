"""Training of agents: arms, the loop, lockstep, checkpoints."""
