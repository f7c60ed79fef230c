"""A decoder as plain as can be: row by row, a whole forward pass for each token, no cache. A plugin file."""

from __future__ import annotations

import numpy as np
import torch

from staleharness.language.decoder_interface import DECODERS, Decoded, Decoder, Request
from staleharness.training.policy_buffer import PolicyBuffer


@DECODERS.register("plain")
class PlainDecoder(Decoder):
    """One row after the other, token by token."""

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        rows = [self.row(request, buffer, i) for i in range(len(request.prompt))]
        shape = len(rows), max(len(tokens) for tokens, _, _ in rows)
        token, mask, logp = torch.full(shape, self.policy.pad), torch.zeros(shape), torch.zeros(shape)
        for i, (tokens, logps, _) in enumerate(rows):
            token[i, : len(tokens)], logp[i, : len(tokens)] = torch.tensor(tokens), torch.tensor(logps)
            mask[i, : len(tokens)] = 1.0
        ended = torch.tensor([over for _, _, over in rows])
        return Decoded(token, mask, ended, logp, request.version(shape[1]))

    def row(self, request: Request, buffer: PolicyBuffer, i: int) -> tuple[list[int], list[float], bool]:
        """(tokens, log-probabilities, whether it ended before the limit)."""
        prompt = request.prompt[i, request.prompt_mask[i].bool()].tolist()
        tokens: list[int] = []
        logps: list[float] = []
        for t in range(request.length):
            version = buffer[int(request.versions[i, t // request.segment_length])]
            ids = torch.tensor([prompt + tokens])
            with self.policy.acting([version], np.zeros(1, dtype=np.int64)) as forward:
                logits = forward(ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None], None, 1)[0, -1]
            probability = logits.double().softmax(-1)
            if request.uniform is None:
                chosen = int(probability.argmax())
            else:
                chosen = int((probability.cumsum(-1) <= float(request.uniform[i, t])).sum())
            tokens.append(chosen)
            logps.append(float(probability[chosen].log()))
            text = self.policy.tokenizer.decode(tokens)
            if chosen in self.policy.end or any(stop in text for stop in request.stops):
                return tokens, logps, True
        return tokens, logps, False
