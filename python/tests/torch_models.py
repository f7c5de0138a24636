"""Modules of torch with random weights."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.short = None
        if stride != 1 or before != channels:
            self.short = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.short is None else self.short(x)))


class ResNet18(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
                 (512, 512, 1)]
        self.blocks = nn.Sequential(*[Block(*size) for size in sizes])
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


class UNet(nn.Module):
    """Two levels, with joins of what was before."""

    def __init__(self, width=16, classes=3):
        super().__init__()

        def pair(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
                                 nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU())

        self.down1, self.down2, self.middle = pair(3, width), pair(width, 2 * width), pair(2 * width, 4 * width)
        self.up2, self.join2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), pair(4 * width, 2 * width)
        self.up1, self.join1 = nn.ConvTranspose2d(2 * width, width, 2, 2), pair(2 * width, width)
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        c = self.middle(nn.functional.max_pool2d(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], 1))
        a = self.join1(torch.cat([self.up1(b), a], 1))
        return self.last(a)


def encoder(width=64, layers=2):
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers)


def bert(layers=2, width=128):
    import transformers

    config = transformers.BertConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=4,
                                     intermediate_size=2 * width)
    return transformers.BertModel(config)


def resnet18():
    try:
        import torchvision
    except ImportError:
        return ResNet18()
    return torchvision.models.resnet18()


class Small(nn.Module):
    """A convolution, a mean and a product: quick to export."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
