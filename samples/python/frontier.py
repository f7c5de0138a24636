"""From a torch module to the frontier of accuracy against latency: export, 8 bits, a metric of your own, a picture.

    python samples/python/frontier.py    needs anneal, torch, onnx and onnxscript; writes net.onnx, tuned.engine, frontier.svg
"""

import anneal
import numpy
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)).eval()
torch.onnx.export(net, (torch.zeros(1, 3, 32, 32),), "net.onnx", input_names=["image"], output_names=["scores"], dynamo=True)
images = numpy.random.default_rng(0).normal(size=(60, 3, 32, 32)).astype("float32")

int8 = anneal.build("net.onnx", precision="int8", calibrate=({"image": image[None]} for image in images))
print("8 bits:", int8.report.self_check.outcome)


def same_class(answer: anneal.Answer) -> float:
    return 100.0 * (answer.outputs["scores"].argmax() == answer.reference["scores"].argmax())


metric = anneal.Metric(same_class, "same class as f32", "%", wants_reference=True)
engine, frontier = anneal.tune("net.onnx", images, metric, "tuned.engine", budget=5, seconds=30)
print(frontier)
print(frontier.speed, "-", frontier.loss)
with open("frontier.svg", "w", encoding="utf-8") as file:
    file.write(frontier.svg())
scores = engine.session()(torch.from_numpy(images[:1]))
print(abs(scores - net(torch.from_numpy(images[:1])).detach().numpy()).max())
