"""Synchronous PPO in one file, written apart from the harness: no buffer, no versions, no lag, no plugin.

It shares with `staleharness` only the conventions that make bits comparable: named random streams, weights kept
[in, out], one running statistic for observations and one for returns, changed between phases. Everything else
(environments, collection, GAE, loss, optimiser) is done here the plain way, in gymnasium's own vector.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import torch


def rng_for(seed: int, name: str, *indices: int) -> np.random.Generator:
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), *indices))
    return np.random.Generator(np.random.PCG64(sequence))


def layers(widths: list[int], gains: list[float], generator: torch.Generator) -> list[torch.Tensor]:
    parameters = []
    for fan_in, fan_out, gain in zip(widths[:-1], widths[1:], gains, strict=True):
        drawn = torch.empty(fan_out, fan_in)
        torch.nn.init.orthogonal_(drawn, gain, generator=generator)
        parameters += [drawn.t().contiguous().requires_grad_(), torch.zeros(fan_out, requires_grad=True)]
    return parameters


def forward(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    w1, b1, w2, b2, w3, b3 = parameters
    x = torch.tanh(torch.addmm(b1, x, w1))
    x = torch.tanh(torch.addmm(b2, x, w2))
    return torch.addmm(b3, x, w3)


def log_prob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    z = (action - mean) * torch.exp(-log_std)
    return (z * z * -0.5 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def train(
    env_id: str, *, seed: int, phases: int, num_envs: int, num_steps: int, epochs: int, minibatches: int
) -> Iterator[torch.Tensor]:
    """Yields the parameters (actor, log σ, critic; flat) after each phase."""
    gamma, lam, clip, value_clip, rate0 = 0.99, 0.95, 0.2, 0.2, 3e-4
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(env_id) for _ in range(num_envs)], autoreset_mode=gym.vector.AutoresetMode.DISABLED
    )
    obs_dim = envs.single_observation_space.shape[0]
    act_dim = envs.single_action_space.shape[0]
    low, high = envs.single_action_space.low, envs.single_action_space.high
    generator = torch.Generator().manual_seed(int(rng_for(seed, "init").integers(2**31)))
    root2 = math.sqrt(2.0)
    actor = layers([obs_dim, 64, 64, act_dim], [root2, root2, 0.01], generator)
    log_std = torch.zeros(act_dim, requires_grad=True)
    critic = layers([obs_dim, 64, 64, 1], [root2, root2, 1.0], generator)
    drawn = [*actor, log_std, *critic]
    # All parameters lie in one vector, as in the harness: the optimiser's kernel rounds the last few elements of every
    # tensor differently, and on some processors a product's bits depend on the address of its weights.
    everything = torch.cat([p.detach().reshape(-1) for p in drawn])
    pieces = everything.split([p.numel() for p in drawn])
    parameters = [v.view(p.shape).detach().requires_grad_() for v, p in zip(pieces, drawn, strict=True)]
    actor, log_std, critic = parameters[:6], parameters[6], parameters[7:]
    optimizer = torch.optim.Adam([everything], lr=rate0, eps=1e-5, fused=True)

    count, mean, var = 0.0, np.zeros(obs_dim), np.ones(obs_dim)
    return_count, return_mean, return_var = 0.0, 0.0, 1.0
    running_return = np.zeros(num_envs)
    next_obs, _ = envs.reset(seed=int(rng_for(seed, "env").integers(2**31)))

    for phase in range(phases):
        shift = torch.from_numpy(mean).float()
        inverse = torch.rsqrt(torch.from_numpy(var) + 1e-8).float()

        def normalise_for(
            x: torch.Tensor, shift: torch.Tensor = shift, inverse: torch.Tensor = inverse
        ) -> torch.Tensor:
            return ((x - shift) * inverse).clamp(-10, 10)

        # Act
        T, N = num_steps, num_envs
        obs = torch.zeros(T, N, obs_dim)
        actions = torch.zeros(T, N, act_dim)
        logps = torch.zeros(T, N)
        rewards = np.zeros((T, N))
        terminated, done = np.zeros((T, N), bool), np.zeros((T, N), bool)
        after: dict[tuple[int, int], np.ndarray] = {}  # what came next where the next column does not say it
        noise = rng_for(seed, "action", phase).standard_normal((T, N, act_dim), np.float32)
        with torch.no_grad():
            for t in range(T):
                obs[t] = torch.from_numpy(next_obs.astype(np.float32))
                mu = forward(actor, normalise_for(obs[t]))
                actions[t] = mu + torch.exp(log_std) * torch.from_numpy(noise[t])
                logps[t] = log_prob(actions[t], mu, log_std)
                next_obs, rewards[t], terminated[t], truncated, _ = envs.step(np.clip(actions[t].numpy(), low, high))
                done[t] = terminated[t] | truncated
                for i in range(N):
                    if done[t, i] or t == T - 1:
                        after[t, i] = next_obs[i].astype(np.float32)
                if done[t].any():
                    next_obs, _ = envs.reset(options={"reset_mask": done[t]})

        # Scale rewards by the running deviation of the discounted return
        returns = np.zeros((T, N))
        for t in range(T):
            running_return = running_return * gamma + rewards[t]
            returns[t] = running_return
            running_return = running_return * ~done[t]
        flat = torch.from_numpy(returns).reshape(-1, 1)
        b_mean, b_var, b = flat.mean(0), flat.var(0, correction=0), float(flat.shape[0])
        if return_count == 0:
            return_count, return_mean, return_var = b, b_mean, b_var
        else:
            total, gap = return_count + b, b_mean - return_mean
            spread = return_var * return_count + b_var * b + gap * gap * (return_count * b / total)
            return_mean, return_var, return_count = return_mean + gap * (b / total), spread / total, total
        reward = (torch.from_numpy(rewards) * torch.rsqrt(return_var + 1e-8)).clamp(-10, 10).float()

        # Advantages, row by row (an environment's decisions in time order)
        rows_obs = obs.transpose(0, 1).reshape(N * T, obs_dim)
        rows_action = actions.transpose(0, 1).reshape(N * T, act_dim)
        rows_logp = logps.t().reshape(-1)
        with torch.no_grad():
            value = forward(critic, normalise_for(rows_obs)).squeeze(-1)
            keys = sorted(after)
            last = forward(critic, normalise_for(torch.from_numpy(np.stack([after[k] for k in keys])))).squeeze(-1)
        grid = value.view(N, T)
        advantage = torch.zeros(N, T)
        bootstrap = {key: last[j] for j, key in enumerate(keys)}
        for i in range(N):
            carry = torch.tensor(0.0)
            for t in reversed(range(T)):
                following = bootstrap.get((t, i), grid[i, t + 1] if t + 1 < T else None)
                discount = torch.tensor(0.0 if terminated[t, i] else gamma)
                delta = reward[t, i] + discount * following - grid[i, t]
                carry = delta + (discount * lam * carry if not done[t, i] and t < T - 1 else 0.0)
                advantage[i, t] = carry
        target = (advantage + grid).reshape(-1)
        advantage = advantage.reshape(-1)

        # Learn
        optimizer.param_groups[0]["lr"] = rate0 * (1.0 - phase / phases)
        for epoch in range(epochs):
            order = rng_for(seed, "minibatch", phase, epoch).permutation(N * T)
            for part in np.array_split(order, minibatches):
                pick = torch.from_numpy(part)
                x = normalise_for(rows_obs[pick])
                logp = log_prob(rows_action[pick], forward(actor, x), log_std)
                ratio = torch.exp(logp - rows_logp[pick])
                a = advantage[pick]
                centred = a - a.sum() / len(a)
                a = centred / (torch.sqrt((centred * centred).sum() / (len(a) - 1)) + 1e-8)
                surrogate = torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
                v = forward(critic, x).squeeze(-1)
                near = value[pick] + (v - value[pick]).clamp(-value_clip, value_clip)
                v_loss = 0.5 * torch.maximum((v - target[pick]) ** 2, (near - target[pick]) ** 2).mean()
                loss = -surrogate.sum() / len(a) + 0.5 * v_loss
                gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
                norm = torch.linalg.vector_norm(gradient)
                everything.grad = gradient * (0.5 / (norm + 1e-6)).clamp(max=1.0)
                optimizer.step()

        # Take in the observations
        x = rows_obs.double()
        b_mean, b_var, b = x.mean(0).numpy(), x.var(0, correction=0).numpy(), float(x.shape[0])
        if count == 0:
            count, mean, var = b, b_mean, b_var
        else:
            total, gap = count + b, b_mean - mean
            var = (var * count + b_var * b + gap * gap * (count * b / total)) / total
            mean, count = mean + gap * (b / total), total
        yield everything.clone()
    envs.close()
