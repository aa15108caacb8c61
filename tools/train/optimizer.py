"""Muon for the weight matrices of the layers, Adam for everything else."""

import torch

MOMENTUM = 0.95
DECAY = 0.05  # of the matrices, times the learning rate
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalized(matrices):
    """Nearest semi-orthogonal matrices of a stack [S, rows, columns], by five Newton-Schulz steps in bf16."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised per matrix; matrices of one shape are handled as one stack."""

    def __init__(self, parameters, lr):
        by_shape = {}
        for p in parameters:
            by_shape.setdefault(p.shape, []).append(p)
        super().__init__([{"params": ps} for ps in by_shape.values()], {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = group["params"]
            grads = torch.stack([p.grad for p in params])
            state = self.state[params[0]]
            momentum = state.setdefault("momentum", torch.zeros_like(grads))
            momentum.lerp_(grads, 1 - MOMENTUM)
            updates = orthogonalized(grads.lerp(momentum, MOMENTUM))
            scale = max(1.0, grads.shape[-2] / grads.shape[-1]) ** 0.5
            torch._foreach_mul_(params, 1 - group["lr"] * DECAY)
            torch._foreach_add_(params, list(updates.unbind(0)), alpha=-group["lr"] * scale)


def optimizers(model, muon_lr, adam_lr):
    """[Muon, Adam]; each group remembers its full learning rate as "peak"."""
    matrices = [p for name, p in model.named_parameters() if name.endswith(".weight") and p.shape[0] > 8]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    made = [Muon(matrices, muon_lr), torch.optim.AdamW(others, adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=others[0].is_cuda)]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made
