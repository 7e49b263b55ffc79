"""Means and precisions from the definitions: all samples weighted, one explicit inverse."""

import torch

from torchlace import backgrounds as bg


def background_of(b, history):
    """(mean, precision), or a list of them, one for each class."""
    if isinstance(b, bg.Running):
        history = [(x.detach(), y) for x, y in history]
        fresh = last_refresh(b, history)
    identity = torch.eye(b.in_features, dtype=torch.float64)
    if isinstance(b, (bg.LearnedOneVsAll, bg.LearnedOneVsOne)):
        return [
            (
                b.mean[c] if b.has_mean else 0.0,
                learned_precision(b, c) if b.has_covariance else identity,
            )
            for c in range(b.num_classes)
        ]
    if isinstance(b, bg.OneVsAll):
        return one_vs_all(b, fresh)
    if isinstance(b, bg.OneVsOne):
        pairs = []
        for c in range(b.num_classes):
            mean = moments(weigh(history, b, lambda y, c=c: (y == c).double()))[0]
            cov = moments(weigh(fresh, b, lambda y, c=c: (y == c).double()))[1]
            pairs.append((mean if b.has_mean else 0.0, inverse(shrunk(cov, b.shrinkage))))
        return pairs
    if isinstance(b, bg.Total):
        mean = moments(weigh(history, b, labelled))[0]
        amount, cov = b.shrinkage, moments(weigh(fresh, b, labelled))[1]
        if amount == "ledoit-wolf":
            amount = max(1e-4, ledoit_wolf(fresh, b, labelled))
        precision = inverse(shrunk(cov, amount))
    elif isinstance(b, bg.Within):
        mean = moments(weigh(history, b, labelled))[0]
        precision = inverse(within_ridged(b, fresh))
    elif isinstance(b, bg.LowRank):
        mean = moments(weigh(history, b, labelled))[0]
        within, ridge = within_and_ridge(b, fresh)
        precision = inverse(nystrom(b, within) + ridge * identity)
    elif isinstance(b, bg.LowRankTotal):
        mean = moments(weigh(history, b, labelled))[0]
        cov = nystrom(b, moments(weigh(fresh, b, labelled))[1])
        precision = inverse(shrunk(cov, b.shrinkage))
    else:
        mean, precision = b.mean, learned_precision(b) if b.has_covariance else identity
    return mean if b.has_mean else 0.0, precision if b.has_covariance else identity


def last_refresh(b, history):
    """The batches seen at the last refresh."""
    history = [(x.detach(), y) for x, y in history]
    return history[: (len(history) - 1) // b.refresh_every * b.refresh_every + 1]


def class_means(b, history):
    """The mean of every class that was seen, by class, and that of all; zero if switched off."""
    samples = weigh(history, b, labelled)
    targets = torch.cat([y for _, y in history])
    means = {
        c: moments((samples[0][targets == c], samples[1][targets == c]))[0]
        for c in sorted(set(targets.tolist()) - {-100, -1})
        if c >= 0
    }
    return means, moments(samples)[0] if b.has_mean else 0.0


def learned_precision(b, c=None):
    if isinstance(b, bg.LearnedOneVsOne):
        return b.factor[c].T @ b.factor[c]
    if isinstance(b, bg.LearnedOneVsAll):
        return torch.diag(torch.exp(b.log_diagonal[c])) + b.factor[c].T @ b.factor[c]
    if isinstance(b, bg.LearnedLowRank):
        return torch.diag(torch.exp(b.log_diagonal)) + b.factor.T @ b.factor
    if b.form == "factor":
        return b.matrix.T @ b.matrix
    if b.form == "matrix":
        return inverse(b.matrix @ b.matrix.T)
    lower = b.matrix.tril(-1) + torch.diag(torch.exp(torch.diagonal(b.matrix)))
    return lower @ lower.T


def weigh(history, b, rule):
    """All samples with their weights, the older ones less."""
    weights, left = [], 1.0
    for _, y in reversed(history):
        weights.append(left * rule(y).double())
        left *= remembered(b, rule(y).sum().item())
    return torch.cat([x for x, _ in history]), torch.cat(weights[::-1])


def remembered(b, count):
    """The decay, or at least 100 batches and 50 samples for each feature that is followed."""
    if b.decay != "auto":
        return b.decay
    return max(0.99, 1 - count / (50 * getattr(b, "rank", b.in_features)))


def moments(weighted):
    x, w = weighted
    mean = (w[:, None] * x).sum(0) / w.sum()
    return mean, sum(
        a * torch.outer(v - mean, v - mean) for a, v in zip(w, x, strict=True)
    ) / w.sum()


def labelled(y):
    return y >= 0


def one_vs_all(b, history):
    x, y = torch.cat([x for x, _ in history]), torch.cat([y for _, y in history])
    w = weigh(history, b, labelled)[1]
    mass = torch.stack([w[y == c].sum() for c in range(b.num_classes)])
    means = torch.stack([moments((x[y == c], w[y == c]))[0] for c in range(b.num_classes)])
    within = within_ridged(b, history)
    result = []
    for c in range(b.num_classes):
        others = [k for k in range(b.num_classes) if k != c]
        mean, scatter = moments((means[others], mass[others]))
        precision = (
            inverse(within + scatter) if b.has_covariance else torch.eye(b.in_features).double()
        )
        result.append((mean if b.has_mean else 0.0, precision))
    return result


def within_ridged(b, history):
    """Σ_W + ρβI."""
    within, ridge = within_and_ridge(b, history)
    return within + ridge * torch.eye(len(within)).double()


def within_and_ridge(b, history):
    """Σ_W and ρβ, both without the bias of few samples."""
    x, w = weigh(history, b, labelled)
    y = torch.cat([y for _, y in history])
    classes = [c for c in range(b.num_classes) if (y == c).any()]
    own = [(w[y == c], x[y == c]) for c in classes]
    means = [moments((v, a))[0] for a, v in own]
    lost = sum(a.square().sum() / a.sum() for a, _ in own)  # by the means, of the samples
    scatter = sum(
        ((a[:, None] * (v - m)).T @ (v - m)) for (a, v), m in zip(own, means, strict=True)
    )
    within = scatter / (w.sum() - lost)
    between = moments((torch.stack(means), torch.stack([a.sum() for a, _ in own])))[1]
    plain = torch.trace(between)
    chance = torch.trace(within) * (lost / w.sum() - w.square().sum() / w.sum() ** 2)
    signal = min(plain, max(plain - chance, chance)) / (len(classes) - 1)
    least = 1e-4 * (torch.trace(within) / len(within) + signal)
    return within, b.ridge * signal + least


def shrunk(cov, amount):
    return (1 - amount) * cov + amount * torch.trace(cov) / len(cov) * torch.eye(len(cov)).double()


def ledoit_wolf(history, b, rule):
    x, w = weigh(history, b, rule)
    mean, cov = moments((x, w))
    centred = x - mean
    fourth = (w * centred.square().sum(1) ** 2).sum() / w.sum()
    spread = (w**2).sum() / w.sum() ** 2
    target = torch.trace(cov) / len(cov) * torch.eye(len(cov)).double()
    distance = (cov - target).square().sum()
    return float(min(max((fourth - cov.square().sum()) * spread, 0), distance) / distance)


def nystrom(b, cov):
    sketch = cov @ b.probe
    core = b.probe.T @ sketch
    ridge = 10 * torch.finfo(torch.float64).eps * torch.trace(core)
    core = core + ridge * torch.eye(len(core)).double()
    low = sketch @ inverse(core) @ sketch.T
    rest = torch.clamp(torch.diag(cov) - torch.diag(low), min=0)
    return low + torch.diag(rest)


def inverse(matrix):
    return torch.linalg.inv(matrix)
