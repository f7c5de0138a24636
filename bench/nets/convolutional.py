"""Networks on pictures: the layers, widths and strides of the published ones, for [N, 3, 224, 224] unless told."""

from nets.builder import RELU_GAIN, SILU_GAIN, Net


def resnet50(make=Net):
    """v1.5: the stride is on the 3 x 3 convolution."""
    net = make("resnet50")

    def normed(x, channels, kernel, stride=1, scale=1.0):
        return net.batch_norm(net.conv(x, channels, kernel, stride, bias=False), scale)

    def bottleneck(x, width, stride, first):
        y = net.relu(normed(x, width, 1))
        y = net.relu(normed(y, width, 3, stride))
        y = normed(y, 4 * width, 1, scale=0.25)
        return net.relu(net.add(y, normed(x, 4 * width, 1, stride, scale=0.7) if first else x))

    x = net.relu(normed(net.picture(224), 64, 7, 2))
    x = net.max_pool(x, 3, 2, 1)
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            x = bottleneck(x, width, stride if i == 0 else 1, i == 0)
    net.classified(x)
    return net


# expansion, channels, blocks, stride of the first, kernel
MOBILENET_V2 = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3),
                (6, 160, 3, 2, 3), (6, 320, 1, 1, 3))
EFFICIENTNET_B0 = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
                   (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))


def inverted_residuals(net, stages, activation, gain, excite, excited_gain):
    """Expand, filter each channel, project: the blocks that MobileNetV2 brought and EfficientNet took.

    `excite(x, squeezed)` stands before the projection; `squeezed` is the width of its middle, `excited_gain` what makes
    up for its losses.
    """
    def normed(x, channels, kernel, stride=1, groups=1, gain=gain):
        return net.batch_norm(net.conv(x, channels, kernel, stride, groups=groups, bias=False, gain=gain))

    x = activation(normed(net.picture(224), 32, 3, 2, gain=RELU_GAIN))
    for expansion, channels, blocks, first_stride, kernel in stages:
        for i in range(blocks):
            inputs, stride = net.channels[x], first_stride if i == 0 else 1
            width = expansion * inputs
            y = x if expansion == 1 else activation(normed(x, width, 1, gain=1))
            y = activation(normed(y, width, kernel, stride, groups=width))
            y = net.conv(excite(y, inputs // 4), channels, 1, bias=False, gain=excited_gain)
            is_residual = stride == 1 and inputs == channels
            y = net.batch_norm(y, scale=0.5 if is_residual else 1)
            x = net.add(x, y) if is_residual else y
    net.classified(activation(normed(x, 1280, 1, gain=1)))


def mobilenet_v2():
    net = Net("mobilenet_v2")
    inverted_residuals(net, MOBILENET_V2, net.relu6, RELU_GAIN, lambda x, squeezed: x, RELU_GAIN)
    return net


def efficientnet_b0():
    net = Net("efficientnet_b0")

    def excite(x, squeezed):
        gate = net.silu(net.conv(net.pooled(x), squeezed, 1, gain=1))
        gate = net.op("Sigmoid", net.conv(gate, net.channels[x], 1, gain=SILU_GAIN))
        return net.op("Mul", x, gate)

    inverted_residuals(net, EFFICIENTNET_B0, net.silu, SILU_GAIN, excite, 3.5 * SILU_GAIN)  # gates are near 1/2
    return net


def squeezenet1_1():
    net = Net("squeezenet1_1")
    x = net.relu(net.conv(net.picture(224), 64, 3, 2, pad=0))
    x = net.max_pool(x, 3, 2)
    for i, (squeezed, expanded) in enumerate(((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192),
                                              (64, 256), (64, 256))):
        if i in (2, 4):
            x = net.max_pool(x, 3, 2)
        x = net.relu(net.conv(x, squeezed, 1))
        x = net.concat(net.relu(net.conv(x, expanded, 1)), net.relu(net.conv(x, expanded, 3)))
    x = net.relu(net.conv(x, 1000, 1, gain=10 * RELU_GAIN))  # pictures of [0, 1) are small
    net.output(net.op("Flatten", net.pooled(x), axis=1), 1000)
    return net


# Inception blocks by stage: 1x1; 1x1 before 3x3, 3x3; 1x1 before 5x5, 5x5; 1x1 behind the pool
INCEPTIONS = (((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
              ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
               (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
              ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)))


def googlenet():
    """With batch normalization, and 3 x 3 where the paper has 5 x 5: as torchvision has it."""
    net = Net("googlenet")

    def normed(x, channels, kernel, stride=1):
        return net.relu(net.batch_norm(net.conv(x, channels, kernel, stride, bias=False)))

    def inception(x, a, b_before, b, c_before, c, d):
        return net.concat(normed(x, a, 1), normed(normed(x, b_before, 1), b, 3), normed(normed(x, c_before, 1), c, 3),
                          normed(net.max_pool(x, 3, 1, 1), d, 1))

    x = net.max_pool(normed(net.picture(224), 64, 7, 2), 3, 2, ceil=1)
    x = normed(normed(x, 64, 1), 192, 3)
    for stage, widths in enumerate(INCEPTIONS):
        x = net.max_pool(x, 2 if stage == 2 else 3, 2, ceil=1)
        for each in widths:
            x = inception(x, *each)
    net.classified(x)
    return net


def unet(size=256, base=16, make=Net):
    """Four levels down and up again, two classes for each pixel of [N, 3, size, size]."""
    net = make("unet")

    def twice(x, channels):
        for _ in range(2):
            x = net.relu(net.batch_norm(net.conv(x, channels, 3, bias=False)))
        return x

    x, skipped = net.picture(size), []
    for level in range(4):
        skipped.append(twice(x, base << level))
        x = net.max_pool(skipped[-1], 2, 2)
    x = twice(x, base << 4)
    for level in reversed(range(4)):
        x = twice(net.concat(skipped[level], net.doubled(x, base << level)), base << level)
    net.output(net.conv(x, 2, 1, gain=1), 2, size, size)
    return net


def yolo(size=640, base=32, depth=2, classes=80, make=Net):
    """A detector of YOLOv8-s' kind: stages of split residual blocks, a pyramid up and down, raw boxes and scores."""
    net = make("yolo")

    def normed(x, channels, kernel, stride=1):
        return net.silu(net.batch_norm(net.conv(x, channels, kernel, stride, bias=False, gain=SILU_GAIN)))

    def stage(x, channels, blocks, residual=True):
        half = channels // 2
        parts = [normed(x, half, 1), normed(x, half, 1)]
        for _ in range(blocks):
            y = normed(normed(parts[-1], half, 3), half, 3)
            parts.append(net.add(y, parts[-1]) if residual else y)
        return normed(net.concat(*parts), channels, 1)

    def upsampled(x):
        scales = net.constant([1, 1, 2, 2])
        return net.op("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                      nearest_mode="floor")

    x = normed(normed(net.picture(size), base, 3, 2), 2 * base, 3, 2)
    x = stage(x, 2 * base, depth)
    small = stage(normed(x, 4 * base, 3, 2), 4 * base, 2 * depth)
    middle = stage(normed(small, 8 * base, 3, 2), 8 * base, 2 * depth)
    large = stage(normed(middle, 16 * base, 3, 2), 16 * base, depth)
    pooled = [normed(large, 8 * base, 1)]
    for _ in range(3):
        pooled.append(net.max_pool(pooled[-1], 5, 1, 2))
    large = normed(net.concat(*pooled), 16 * base, 1)
    middle = stage(net.concat(upsampled(large), middle), 8 * base, depth, False)
    small = stage(net.concat(upsampled(middle), small), 4 * base, depth, False)
    middle = stage(net.concat(normed(small, 4 * base, 3, 2), middle), 8 * base, depth, False)
    large = stage(net.concat(normed(middle, 8 * base, 3, 2), large), 16 * base, depth, False)
    found, cells = [], 0
    for x, stride in ((small, 8), (middle, 16), (large, 32)):
        boxes = net.conv(normed(normed(x, 2 * base, 3), 2 * base, 3), 64, 1, gain=1)
        scores = net.conv(normed(normed(x, 4 * base, 3), 4 * base, 3), classes, 1, gain=1)
        found.append(net.reshape(net.concat(boxes, scores), 0, 64 + classes, (size // stride) ** 2))
        cells += (size // stride) ** 2
    net.output(net.op("Concat", *found, axis=2), 64 + classes, cells)
    return net
