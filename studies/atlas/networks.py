"""Networks of the atlas that no library has, or only far larger than a layer's study needs.

Each function returns a module and its inputs for a batch, as ``torch:FILE.py:FUNCTION`` wants it.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional


class Recurrent(nn.Module):
    """Two recurrent layers and a head; returns a tensor, not the states."""

    def __init__(self, kind: type[nn.RNNBase], width: int, hidden: int) -> None:
        super().__init__()
        self.first = kind(width, hidden, batch_first=True)
        self.second = kind(hidden, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, width)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(series)[0])[0])


def lstm(batch: int):
    return Recurrent(nn.LSTM, 256, 512), torch.randn(batch, 64, 256)


def gru(batch: int):
    return Recurrent(nn.GRU, 128, 384), torch.randn(batch, 96, 128)


class TimeMix(nn.Module):
    """Dilated causal convolutions over time (TCN)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 3, dilation=2**i, padding=2 ** (i + 1)) for i in range(5)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(5))

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            mixed = conv(series)[..., : series.shape[-1]]
            series = series + functional.gelu(norm(mixed))
        return series


def tcn(batch: int):
    return TimeMix(192), torch.randn(batch, 192, 2048)


class DiffusionBlock(nn.Module):
    """A residual block with time embedding, and self-attention over the picture."""

    def __init__(self, width: int, attend: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, width), nn.GroupNorm(32, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(256, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True) if attend else None

    def forward(self, picture: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        value = self.conv1(functional.silu(self.norm1(picture))) + self.time(when)[..., None, None]
        value = picture + self.conv2(functional.silu(self.norm2(value)))
        if self.attention is None:
            return value
        flat = value.flatten(2).transpose(1, 2)
        flat = flat + self.attention(flat, flat, flat, need_weights=False)[0]
        return flat.transpose(1, 2).reshape(value.shape)


class Diffusion(nn.Module):
    """Diffusion blocks at three resolutions, without the skips of a UNet."""

    def __init__(self) -> None:
        super().__init__()
        widths = (128, 256, 512)
        self.stem = nn.Conv2d(4, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList(DiffusionBlock(w, w > widths[0]) for w in widths)
        self.down = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in itertools.pairwise(widths)
        )
        self.out = nn.Conv2d(widths[-1], 4, 1)

    def forward(self, picture: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        value = self.blocks[0](self.stem(picture), when)
        for down, block in zip(self.down, self.blocks[1:], strict=True):
            value = block(down(value), when)
        return self.out(value)


def diffusion(batch: int):
    return Diffusion(), (torch.randn(batch, 4, 64, 64), torch.randn(batch, 256))


class DitBlock(nn.Module):
    """A transformer block whose normalisation is steered by a condition (DiT)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.steer = nn.Linear(width, 6 * width)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, tokens: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        steer = self.steer(functional.silu(condition))[:, None].chunk(6, -1)
        value = self.norm1(tokens) * (1 + steer[0]) + steer[1]
        shape = (*value.shape[:2], 3, self.heads, -1)
        query, key, last = self.qkv(value).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, last)
        tokens = tokens + steer[2] * self.proj(mixed.transpose(1, 2).flatten(2))
        value = self.norm2(tokens) * (1 + steer[3]) + steer[4]
        return tokens + steer[5] * self.down(functional.gelu(self.up(value)))


class Dit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, 384, 2, stride=2)
        self.blocks = nn.ModuleList(DitBlock(384, 6) for _ in range(2))
        self.wide = nn.Linear(384, 768)
        self.last = DitBlock(768, 12)

    def forward(self, picture: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(picture).flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens = block(tokens, condition)
        return self.last(self.wide(tokens), torch.cat([condition, condition], -1))


def dit(batch: int):
    return Dit(), (torch.randn(batch, 4, 64, 64), torch.randn(batch, 384))


class Recommender(nn.Module):
    """Embeddings of a few categories, their products, and two stacks of linear layers (DLRM)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(100_000, 64, mode="sum") for _ in range(6))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64)
        )
        self.top = nn.Sequential(
            nn.Linear(64 + 49, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        rows = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack([bottom, *rows], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([bottom, products], 1))


def dlrm(batch: int):
    rows = 256 * batch
    return Recommender(), (torch.randn(rows, 13), torch.randint(100_000, (rows, 6, 4)))


class Upscaler(nn.Module):
    """Residual blocks without normalisation and a pixel shuffle (EDSR)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(2)
        )
        self.up = nn.Conv2d(width, 4 * width, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)
        self.tail = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        value = self.head(picture)
        for block in self.body:
            value = value + 0.1 * block(value)
        return self.tail(self.shuffle(self.up(value)))


def edsr(batch: int):
    return Upscaler(), torch.randn(batch, 3, 128, 128)


class Points(nn.Module):
    """One multilayer perceptron on every point of a cloud, then the largest (PointNet)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 64, 128, 1024)
        self.convs = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in sizes[1:])
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, cloud: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            cloud = functional.relu(norm(conv(cloud)))
        return self.head(cloud.amax(-1))


def pointnet(batch: int):
    return Points(), torch.randn(batch, 3, 4096)


class Segmenter(nn.Module):
    """Strided convolutions, dilated ones side by side, transposed ones back (DeepLab's head)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((3, 32), (32, 96), (96, 256))
        )
        self.rates = nn.ModuleList(
            nn.Conv2d(256, 128, 3, padding=rate, dilation=rate) for rate in (1, 6, 12, 18)
        )
        self.merge = nn.Conv2d(512, 128, 1)
        self.norm = nn.BatchNorm2d(128)
        self.back = nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1)
        self.head = nn.Conv2d(64, 21, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        value = picture
        for conv in self.stem:
            value = functional.relu(conv(value))
        value = torch.cat([conv(value) for conv in self.rates], 1)
        value = self.back(functional.relu(self.norm(self.merge(value))))
        size = picture.shape[-2:]
        return functional.interpolate(self.head(value), size, mode="bilinear")


def segmenter(batch: int):
    return Segmenter(), torch.randn(batch, 3, 256, 256)


class Detector(nn.Module):
    """A backbone's three scales, a feature pyramid and two shared heads (RetinaNet's)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.ModuleList(
            nn.Conv2d(a, b, 5, stride=4 if a == 3 else 2, padding=2)
            for a, b in ((3, 48), (48, 128), (128, 320), (320, 640))
        )
        self.lateral = nn.ModuleList(nn.Conv2d(w, 160, 1) for w in (128, 320, 640))
        self.boxes = nn.Sequential(
            nn.Conv2d(160, 160, 3, padding=1), nn.ReLU(), nn.Conv2d(160, 36, 3, padding=1)
        )
        self.classes = nn.Sequential(
            nn.Conv2d(160, 160, 3, padding=1), nn.ReLU(), nn.Conv2d(160, 720, 3, padding=1)
        )

    def forward(self, picture: torch.Tensor) -> list[torch.Tensor]:
        scales, value = [], picture
        for conv in self.stem:
            value = functional.leaky_relu(conv(value), 0.1)
            scales.append(value)
        outputs, above = [], None
        for lateral, scale in zip(reversed(self.lateral), reversed(scales[1:]), strict=True):
            value = lateral(scale)
            if above is not None:
                value = value + functional.interpolate(above, value.shape[-2:])
            above = value
            outputs += [self.boxes(value), self.classes(value)]
        return outputs


def detector(batch: int):
    return Detector(), torch.randn(batch, 3, 512, 512)


def encoder_block(batch: int):
    layer = nn.TransformerEncoderLayer(320, 5, 1280, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(batch, 200, 320)


class Gated(nn.Module):
    """A decoder block as today's language models have it: RMSNorm, grouped keys, gated MLP."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size, self.heads, self.groups = width // heads, heads, groups
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tokens.shape
        value = self.norm1(tokens)
        query = self.query(value).view(batch, length, self.heads, self.size).transpose(1, 2)
        both = self.keys(value).view(batch, length, 2, self.groups, self.size)
        key, last = both.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, last, is_causal=True, enable_gqa=True
        )
        tokens = tokens + self.proj(mixed.transpose(1, 2).reshape(tokens.shape))
        value = self.norm2(tokens)
        return tokens + self.down(functional.silu(self.gate(value)) * self.up(value))


def decoder_block(batch: int):
    blocks = nn.Sequential(Gated(1024, 16, 4), Gated(2048, 16, 8))
    blocks.insert(1, nn.Linear(1024, 2048))
    return blocks, torch.randn(batch, 256, 1024)
