"""Every head a second time: loops, explicit inverses and arc cosines, from the definitions."""

import math

import torch
from heads.reference_backgrounds import background_of, class_means, last_refresh
from torch.nn import functional as F

from torchlace import backgrounds as bg
from torchlace import heads as hd


def logits(head, x, history=()):
    """Scores in evaluation mode, after training on the batches of ``history``."""
    if isinstance(head, hd.Joint):
        parts = [
            weight * torch.log_softmax(logits(head.heads[name], x, history), 1)
            for name, weight in head.weights.items()
        ]
        return sum(parts)
    if isinstance(head, hd.LACE):
        scores = lace(head, x, history) * scale(head)
        return scores if head.bias is None else scores + head.bias
    if isinstance(head, hd.CosineHead):
        return scale(head) * table(x, head.weight, lambda v, w: v @ w / (v.norm() * w.norm()))
    if isinstance(head, hd.LogitNorm):
        plain = table(x, head.weight, lambda v, w: (v * w).sum()) + head.bias
        return torch.stack([head.scale * row / row.norm() for row in plain])
    if isinstance(head, hd.Softmax):
        return table(x, head.weight, lambda v, w: (v * w).sum()) + head.bias
    raise NotImplementedError(f"write a naive formula for {type(head).__name__} here")


def loss(head, x, y, history=(), *, reduction="mean", weight=None, ignore_index=-100, **smoothing):
    """The training loss: cross-entropy of the scores after the margin, and what is added to it."""
    counted = y != ignore_index
    per_sample = counted.double() if weight is None else class_weights(weight, y, counted)
    if isinstance(head, hd.Joint):
        values = sum(
            share
            * loss(
                head.heads[name],
                x,
                y,
                history,
                reduction="none",
                weight=weight,
                ignore_index=ignore_index,
                **smoothing,
            )
            for name, share in head.weights.items()
        )
    else:
        values = F.cross_entropy(
            after_margin(head, logits(head, x, history), y, counted),
            y,
            reduction="none",
            weight=weight,
            ignore_index=ignore_index,
            **smoothing,
        )
    if isinstance(head, hd.Center):
        extra = [(x[i] - head.centers[y[i]]).square().sum() if counted[i] else 0 for i in rows(y)]
        values = joined(head, values, per_sample * torch.stack(list(map(torch.as_tensor, extra))))
    if isinstance(head, hd.AMC):
        values = joined(head, values, per_sample * contrastive(x, y, counted, head.margin))
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.sum() / per_sample.sum()


@torch.no_grad()
def next_scale(head, x, y):
    """AdaCos: log of the mean weight of the wrong classes over the cosine of the median angle."""
    cosines = table(x, head.weight, lambda v, w: v @ w / (v.norm() * w.norm()))
    kept = [i for i in rows(y) if y[i] >= 0]
    wrong = [
        math.exp(float(head.scale * cosines[i, c]))
        for i in kept
        for c in range(head.num_classes)
        if c != y[i]
    ]
    angles = sorted(math.acos(float(cosines[i, y[i]])) for i in kept)
    median = angles[(len(angles) - 1) // 2]
    return math.log(sum(wrong) / len(kept)) / math.cos(min(math.pi / 4, median))


def after_margin(head, scores, y, counted):
    if not isinstance(head, (hd.ArcFace, hd.CosFace, hd.SphereFace)):
        return scores
    changed, m = scores.clone(), head.margin
    for i in rows(y):
        if not counted[i]:
            continue
        cosine = scores[i, y[i]] / scale(head)
        theta = torch.acos(cosine)
        if isinstance(head, hd.CosFace):
            value = cosine - m
        elif isinstance(head, hd.SphereFace):
            k = math.floor(m * theta.item() / math.pi)
            value = (-1) ** k * torch.cos(m * theta) - 2 * k
        elif theta + m <= math.pi:
            value = torch.cos(theta + m)
        else:
            value = cosine - m * math.sin(m)
        changed[i, y[i]] = value * scale(head)
    return changed


def contrastive(x, y, counted, margin):
    half = len(x) // 2
    pairs = [(i, i + half) for i in range(half) if counted[i] and counted[i + half]]
    costs = [x.new_zeros(()) for _ in x]
    for i, j in pairs:
        theta = torch.acos(x[i] @ x[j] / (x[i].norm() * x[j].norm()))
        cost = theta**2 if y[i] == y[j] else torch.clamp(margin - theta, min=0) ** 2
        costs[i] = costs[j] = cost * int(counted.sum()) / (2 * len(pairs))
    return torch.stack(costs)


def joined(head, values, extra):
    return head.softmax_weight * values + head.auxiliary_weight * extra


def class_weights(weight, y, counted):
    return torch.stack([weight[y[i]] if counted[i] else weight.new_zeros(()) for i in rows(y)])


def scale(head):
    return head.scale if head.log_scale is None else torch.exp(head.log_scale)


def table(x, w, score):
    return torch.stack([torch.stack([score(v, u) for u in w]) for v in x])


def rows(y):
    return range(len(y))


def lace(head, x, history):
    """Eq. 3 for every sample and class."""
    background, classes = head.background, range(head.num_classes)
    signatures = head.weight.abs() if head.nonnegative else head.weight
    if head.anchored:
        signatures = signatures + anchors(background, history)
    known = background_of(background, history)
    if isinstance(background, (bg.OneVsOne, bg.LearnedOneVsOne)):
        columns = [
            [
                [ace(v - known[k][0], signatures[c], known[k][1]) for k in classes if k != c]
                for v in x
            ]
            for c in classes
        ]
        return torch.stack(
            [torch.stack([torch.stack(opponents).mean() for opponents in c]) for c in columns], 1
        )
    own = known if isinstance(known, list) else [known] * head.num_classes
    if head.signature_space == "features":
        return torch.stack(
            [torch.stack([ace(v - mean, s, p) for v in x])
             for s, (mean, p) in zip(signatures, own, strict=True)], 1
        )  # fmt: skip
    whitening = background.transform(torch.eye(len(x[0]), dtype=x.dtype)).T
    scores = []
    for s, (mean, p) in zip(signatures, own, strict=True):
        if whitening.shape[0] == whitening.shape[1]:
            s = torch.linalg.inv(whitening) @ s
            scores.append(torch.stack([ace(v - mean, s, p) for v in x]))
        else:
            lengths = [torch.sqrt((v - mean) @ p @ (v - mean)) * s.norm() for v in x]
            products = [s @ whitening @ (v - mean) for v in x]
            scores.append(torch.stack([a / b for a, b in zip(products, lengths, strict=True)]))
    return torch.stack(scores, 1)


def anchors(background, history):
    """Whitened class means about the mean of all, one unit from it in the root mean square."""
    fresh = last_refresh(background, history)
    means, mean = class_means(background, fresh)
    found = torch.zeros(background.num_classes, background.in_features, dtype=torch.float64)
    for c, own in means.items():
        found[c] = background.transform((own - mean)[None])[0]
    size = (sum(row @ row for row in found) / len(means)) ** 0.5 if means else 1.0
    return found / size if size > 0 else found


def ace(y, s, precision):
    return s @ precision @ y / (torch.sqrt(s @ precision @ s) * torch.sqrt(y @ precision @ y))
