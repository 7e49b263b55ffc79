"""Means and precisions from the definitions: all samples weighted, one explicit inverse."""

import torch

from torchlace import backgrounds as bg


def background_of(b, history):
    """(mean, precision), or a list of them, one for each class."""
    if isinstance(b, bg.Running):
        history = [(x.detach(), y) for x, y in history]
        fresh = history[: (len(history) - 1) // b.refresh_every * b.refresh_every + 1]
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
            pairs.append((mean if b.has_mean else 0.0, inverse(shrunk(cov, b.whitener.shrinkage))))
        return pairs
    if isinstance(b, bg.Estimated):
        rule = nontarget(b.num_classes) if b.samples == "nontarget" else labelled
        mean = moments(weigh(history, b, rule))[0]
        amount, cov = b.whitener.shrinkage, moments(weigh(fresh, b, rule))[1]
        if amount == "ledoit-wolf":
            amount = max(1e-4, ledoit_wolf(fresh, b, rule))
        if b.dimensions is not None:
            refreshes = range(1, len(fresh), b.refresh_every)
            amount = limited([moments(weigh(fresh[:end], b, rule))[1] for end in refreshes], b)
        if b.cohesion is not None:
            amount = cohesive(fresh, b)
        precision = inverse(shrunk(cov, amount))
    elif isinstance(b, bg.Within):
        mean = moments(weigh(history, b, labelled))[0]
        precision = inverse(within_ridged(b, fresh))
    elif isinstance(b, bg.LowRank):
        mean = moments(weigh(history, b, labelled))[0]
        precision = inverse(nystrom(b, moments(weigh(fresh, b, labelled))[1]))
    else:
        mean, precision = b.mean, learned_precision(b) if b.has_covariance else identity
    return mean if b.has_mean else 0.0, precision if b.has_covariance else identity


def limited(covariances, b):
    """The shrinkage after these refreshes, from the dimensions that each of them left whitened."""
    amount = 0.5
    for cov in covariances:
        kept = (1 - amount) * cov
        used = torch.trace(kept @ inverse(shrunk(cov, amount))).item()
        amount = amount * used / (amount * used + (1 - amount) * b.dimensions)
        amount = min(0.999, max(b.whitener.shrinkage, amount))
    return amount


def cohesive(history, b):
    """The shrinkage at the last of these batches, a refresh, from the cosines up to there."""
    amount, precision = 0.5, torch.eye(b.in_features, dtype=torch.float64)
    seen = []
    for end in range(1, len(history) + 1):
        mean, cov = moments(weigh(history[:end], b, labelled))
        x, y = history[end - 1]
        x, y = (x.double() - mean)[y >= 0], y[y >= 0]
        products = x @ precision @ x.T
        lengths = products.diagonal().sqrt()
        same = (y[:, None] == y) & ~torch.eye(len(y), dtype=torch.bool)
        cosines = (products / torch.outer(lengths, lengths))[same]
        decay = 0.99 if b.decay == "auto" else b.decay
        seen = [(decay * total, decay * pairs) for total, pairs in seen]
        seen.append((cosines.sum().item(), float(same.sum())))
        if (end - 1) % b.refresh_every == 0:
            last, precision = amount, inverse(shrunk(cov, amount))
            total, pairs = (sum(each) for each in zip(*seen, strict=True))
            growth = b.cohesion * pairs / max(total, 1e-300) if pairs else 1.0
            odds = amount / (1 - amount) * min(max(growth, 0.8), 1.25)
            amount = min(0.999, max(b.whitener.shrinkage, odds / (1 + odds)))
    return last


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


def nontarget(classes):
    """Each class sees the mean over the samples of the others; average over the classes."""

    def rule(y):
        known = int((y >= 0).sum())
        others = [known - int((y == c).sum()) for c in range(classes)]
        return torch.tensor(
            [
                sum(known / others[c] / classes for c in range(classes) if c != k) * int(k >= 0)
                for k in y
            ],
            dtype=torch.float64,
        )

    return rule


def one_vs_all(b, history):
    x, y = torch.cat([x for x, _ in history]), torch.cat([y for _, y in history])
    w = weigh(history, b, labelled)[1]
    mass = torch.stack([w[y == c].sum() for c in range(b.num_classes)])
    means = torch.stack([moments((x[y == c], w[y == c]))[0] for c in range(b.num_classes)])
    within = sum(
        w[i] * torch.outer(x[i] - means[y[i]], x[i] - means[y[i]]) for i in range(len(y)) if w[i]
    )
    within = shrunk(within / w.sum(), b.whitener.shrinkage)
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
    """Σ_W + ρβI, both without the bias of few samples."""
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
    return within + (b.ridge * signal + least) * torch.eye(len(within)).double()


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
    rest = (1 - b.shrinkage) * rest + b.shrinkage * torch.diag(cov).mean()
    return (1 - b.shrinkage) * low + torch.diag(rest)


def inverse(matrix):
    return torch.linalg.inv(matrix)
