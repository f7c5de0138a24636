"""Anneal under torch: torch.compile(model, backend="anneal"), and anneal.torch.optimize(). See docs/torch.md.

    model = torch.compile(model.eval(), backend="anneal")
    with torch.inference_mode():
        scores = model(images)
"""

from anneal.torch._backend import anneal_backend
from anneal.torch._cache import cache_folder
from anneal.torch._optimize import OptimizedModule, optimize
from anneal.torch._reasons import Counters, counters

__all__ = ["Counters", "OptimizedModule", "anneal_backend", "cache_folder", "counters", "optimize"]
