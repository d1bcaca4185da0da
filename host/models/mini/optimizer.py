"""Muon (Keller Jordan, 2024) for matrices, many of one shape at a time."""
import torch


def orthogonalize(matrices):
    """The nearest orthogonal matrices, by five Newton-Schulz steps. matrices [n, rows, columns], rows <= columns."""
    x = matrices.bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x


class Muon:
    def __init__(self, parameters, momentum=0.95, decay=0.01):
        self.momentum, self.decay = momentum, decay
        shapes = {}
        for parameter in parameters:
            shapes.setdefault(parameter.shape, []).append(parameter)
        self.groups = [(same, torch.zeros(len(same), *shape, device=same[0].device))
                       for shape, same in shapes.items()]

    @torch.no_grad()
    def step(self, rate):
        for parameters, memory in self.groups:
            gradient = torch.stack([p.grad for p in parameters])
            memory.lerp_(gradient, 1 - self.momentum)
            update = gradient.lerp(memory, self.momentum)  # Nesterov
            tall = update.shape[1] > update.shape[2]
            update = orthogonalize(update.mT if tall else update)
            update = (update.mT if tall else update).float()
            scale = max(1, update.shape[1] / update.shape[2]) ** 0.5
            torch._foreach_mul_(parameters, 1 - rate * self.decay)
            torch._foreach_add_(parameters, list(update.unbind()), alpha=-rate * scale)
