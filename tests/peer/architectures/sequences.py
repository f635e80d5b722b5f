"""Architectures of text and sequences, as people write them, scaled down."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    """As nanoGPT's: one projection to queries, keys and values."""

    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.width = heads, width

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class NanoBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, bias=False), CausalSelfAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(width, 4 * width),
                "gelu": nn.GELU(),
                "c_proj": nn.Linear(4 * width, width),
            }
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(self.mlp.gelu(self.mlp.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    """nanoGPT as published: the head is the embedding, and in evaluation only the last position is computed."""

    def __init__(self, words=13, width=8, heads=2, layers=2, longest=8):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(words, width),
                "wpe": nn.Embedding(longest, width),
                "drop": nn.Dropout(0.0),
                "h": nn.ModuleList([NanoBlock(width, heads) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width, bias=False),
            }
        )
        self.lm_head = nn.Linear(width, words, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.longest = longest

    def forward(self, idx, targets=None):
        _, t = idx.size()
        assert t <= self.longest
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :])
        logits = self.lm_head(x)
        return logits, F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class LlamaBlock(nn.Module):
    """RMSNorm, rotary positions, grouped queries, SwiGLU."""

    def __init__(self, width=8, heads=4, groups=2, hidden=12, longest=8):
        super().__init__()
        d = width // heads
        self.heads, self.groups, self.d = heads, groups, d
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * d, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.attention_norm, self.ffn_norm = RMSNorm(width), nn.RMSNorm(width, eps=1e-6)
        rates = 1.0 / 10000 ** (torch.arange(0, d, 2).double() / d)
        at = torch.outer(torch.arange(longest).double(), rates)
        self.register_buffer("cos", torch.cat([at, at], -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat([at, at], -1).sin(), persistent=False)

    def rotated(self, x):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        n = x.shape[2]
        return x * self.cos[:n] + turned * self.sin[:n]

    def forward(self, x):
        b, s, _ = x.shape
        h = self.attention_norm(x)
        q = self.rotated(self.wq(h).view(b, s, self.heads, self.d).transpose(1, 2))
        k = self.rotated(self.wk(h).view(b, s, self.groups, self.d).transpose(1, 2))
        v = self.wv(h).view(b, s, self.groups, self.d).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, s, -1))
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, words=13, width=8):
        super().__init__()
        self.tok_embeddings, self.norm = nn.Embedding(words, width), RMSNorm(width)
        self.layers = nn.ModuleList([LlamaBlock(width) for _ in range(2)])
        self.output = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h))


class LanguageLSTM(nn.Module):
    """Two layers; the last state goes on."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(11, 5), nn.LSTM(5, 6, num_layers=2, batch_first=True)
        self.fc = nn.Linear(6, 11)

    def forward(self, x):
        y, (h, c) = self.lstm(self.embed(x))
        return self.fc(y), h[-1] + c[-1]


class GRUClassifier(nn.Module):
    """Steps first, a first state that is learned, the last state decides."""

    def __init__(self):
        super().__init__()
        self.gru, self.fc = nn.GRU(4, 6), nn.Linear(6, 3)
        self.first = nn.Parameter(torch.randn(1, 1, 6) * 0.1)

    def forward(self, x):
        x = x.transpose(0, 1)
        _, h = self.gru(x, self.first.expand(1, x.shape[1], 6).contiguous())
        return self.fc(h.squeeze(0))


class Tagger(nn.Module):
    """A bidirectional LSTM, and a bidirectional GRU upon it."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 5, padding_idx=0)
        self.lstm = nn.LSTM(5, 4, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 3, batch_first=True, bidirectional=True, bias=False)
        self.fc = nn.Linear(6, 7)

    def forward(self, x):
        h, _ = self.lstm(self.embed(x))
        return F.log_softmax(self.fc(self.gru(h)[0]), dim=-1)


class MaskedEncoder(nn.Module):
    """TransformerEncoder with padding and causal masks."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.embed, self.body = (
            nn.Embedding(11, 8),
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        )
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        h = self.body(
            self.embed(x), mask=mask, src_key_padding_mask=torch.where(x == 0, -1e9, 0.0).double()
        )
        return self.fc(h.mean(1))


class Seq2Seq(nn.Module):
    """nn.Transformer: encoder, decoder and cross attention, after norms."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 8), nn.Linear(8, 9)
        self.body = nn.Transformer(8, 2, 1, 2, 12, dropout=0.0, batch_first=True)

    def forward(self, source, target):
        mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.out(
            self.body(self.embed(source), self.embed(target) * math.sqrt(8), tgt_mask=mask)
        )


class WaveNet(nn.Module):
    """Causal dilated convolutions with gates and skips."""

    def __init__(self, width=4):
        super().__init__()
        self.start = nn.Conv1d(1, width, 1)
        self.filters = nn.ModuleList([nn.Conv1d(width, width, 2, dilation=2**k) for k in range(3)])
        self.gates = nn.ModuleList([nn.Conv1d(width, width, 2, dilation=2**k) for k in range(3)])
        self.skips = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(3)])
        self.end = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, 5, 1))

    def forward(self, x):
        h, total = self.start(x), 0
        for k, (f, g, s) in enumerate(zip(self.filters, self.gates, self.skips)):
            padded = F.pad(h, (2**k, 0))
            y = torch.tanh(f(padded)) * torch.sigmoid(g(padded))
            total = total + s(y)
            h = h + y
        return self.end(F.relu(total))


class TimeSeriesCNN(nn.Module):
    """Strided 1-d convolutions, pooling, and an upsampling way back."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.BatchNorm1d(4), nn.ReLU()
        )
        self.pool, self.up = nn.MaxPool1d(2), nn.ConvTranspose1d(4, 2, 4, stride=4)

    def forward(self, x):
        return self.up(self.pool(self.down(x))) + F.avg_pool1d(x, 3, 1, 1)
