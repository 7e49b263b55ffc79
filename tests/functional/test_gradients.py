import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.nn.functional import cross_entropy, normalize
from torch.testing import assert_close

from torchlace.functional.gradients import LACEGradients, lace_gradients

INPUTS = ("features", "signatures", "mean", "precision")
DERIVATIVES_PAGE = Path(__file__).parents[2] / "docs" / "derivatives.md"


class Problem(NamedTuple):
    features: Tensor
    targets: Tensor
    signatures: Tensor
    mean: Tensor
    precision: Tensor
    scale: float = 1.0

    def solve(self) -> LACEGradients:
        return lace_gradients(*self[:5], scale=self.scale)


def make_problem(n=7, c=4, d=5, *, seed=0, scale=1.0, symmetric=False) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def away_from_zero(rows):
        length = 0.5 + torch.rand(rows, 1, generator=generator, dtype=torch.float64)
        return length * normalize(normal(rows, d), dim=1)

    factor, skew, mean = normal(d, d), normal(d, d), normal(d)
    precision = factor @ factor.T / d + 0.5 * torch.eye(d, dtype=torch.float64)
    if not symmetric:
        precision = precision + 0.3 * (skew - skew.T)
    targets = torch.randint(c, (n,), generator=generator)
    return Problem(mean + away_from_zero(n), targets, away_from_zero(c), mean, precision, scale)


def ace(x, s, mean, precision):
    """Eq. 3 for one feature and one signature, term by term."""
    y = x - mean
    return (s @ precision @ y) / ((s @ precision @ s).sqrt() * (y @ precision @ y).sqrt())


def reference_loss(problem: Problem) -> Tensor:
    x, targets, s, mean, precision, scale = problem
    logits = torch.stack([torch.stack([ace(xn, sj, mean, precision) for sj in s]) for xn in x])
    return cross_entropy(scale * logits, targets)


def autograd(problem: Problem) -> LACEGradients:
    leaves = {name: getattr(problem, name).clone().requires_grad_() for name in INPUTS}
    loss = reference_loss(problem._replace(**leaves))
    return LACEGradients(loss.detach(), *torch.autograd.grad(loss, list(leaves.values())))


def differs(a: Tensor, b: Tensor) -> bool:
    return bool(torch.linalg.norm(a - b) > 1e-2 * torch.linalg.norm(b))


class TestAgainstReferences:
    @pytest.mark.parametrize("symmetric", [True, False])
    @pytest.mark.parametrize("scale", [1.0, 16.0])
    def test_autograd(self, scale, symmetric):
        problem = make_problem(scale=scale, symmetric=symmetric)
        assert_close(problem.solve(), autograd(problem), rtol=1e-10, atol=1e-13)

    @pytest.mark.parametrize("name", INPUTS)
    def test_central_differences(self, name):
        problem, step = make_problem(n=3, c=3, d=3, scale=4.0), 1e-5
        point = getattr(problem, name)
        slopes = torch.empty_like(point)
        for index in range(point.numel()):
            shift = torch.zeros_like(point)
            shift.view(-1)[index] = step
            above, below = (
                reference_loss(problem._replace(**{name: moved}))
                for moved in (point + shift, point - shift)
            )
            slopes.view(-1)[index] = (above - below) / (2 * step)
        assert_close(getattr(problem.solve(), name), slopes, rtol=1e-6, atol=1e-8)

    @settings(max_examples=40)
    @given(
        n=st.integers(1, 6),
        c=st.integers(1, 5),
        d=st.integers(1, 5),
        seed=st.integers(0, 2**32 - 1),
        scale=st.floats(0.1, 64.0),
        symmetric=st.booleans(),
    )
    def test_any_shape_seed_and_scale(self, n, c, d, seed, scale, symmetric):
        problem = make_problem(n, c, d, seed=seed, scale=scale, symmetric=symmetric)
        # With one class, one dimension or a saturated softmax only rounding is left to compare.
        assert_close(problem.solve(), autograd(problem), rtol=1e-10, atol=1e-13 * max(scale, 1.0))

    def test_single_precision_stays_single_precision(self):
        problem = make_problem()
        single = Problem(*(t if t.dtype == torch.int64 else t.float() for t in problem[:5]))
        assert_close(
            single.solve(),
            LACEGradients(*(t.float() for t in problem.solve())),
            rtol=1e-4,
            atol=1e-6,
        )

    @pytest.mark.parametrize("size", [1e-20, 1e20])
    def test_features_and_signatures_of_any_size(self, size):
        x, targets, s, mean, precision, scale = make_problem(scale=4.0)
        expected = Problem(x, targets, s, mean, precision, scale).solve()
        single = (x * size).float(), targets, (s / size).float(), (mean * size).float()
        found = Problem(*single, precision.float(), scale).solve()
        sizes = (1, size, 1 / size, size, 1)
        for name, value, factor in zip(found._fields, found, sizes, strict=True):
            scaled = value.double() * factor
            assert_close(scaled, getattr(expected, name), rtol=1e-3, atol=1e-6, msg=name)

    def test_no_step_along_what_the_cosine_ignores(self):
        problem = make_problem(scale=8.0)
        result = problem.solve()
        zero = torch.zeros((), dtype=torch.float64)
        along_features = (result.features * (problem.features - problem.mean)).sum(dim=1)
        along_signatures = (result.signatures * problem.signatures).sum(dim=1)
        along_precision = (result.precision * problem.precision).sum()
        for along in (along_features, along_signatures, along_precision):
            assert_close(along, zero.expand_as(along), rtol=0, atol=1e-13)
        assert result.precision.norm() > 1e-3

    def test_chain_rule_to_a_factor_and_to_the_covariance(self):
        problem = make_problem(symmetric=True)
        precision, gradient = problem.precision, problem.solve().precision
        factor = torch.linalg.cholesky(precision).requires_grad_()
        covariance = torch.linalg.inv(precision).requires_grad_()
        through_factor = reference_loss(problem._replace(precision=factor @ factor.T))
        through_inverse = reference_loss(problem._replace(precision=torch.linalg.inv(covariance)))
        (by_factor,) = torch.autograd.grad(through_factor, factor)
        (by_covariance,) = torch.autograd.grad(through_inverse, covariance)
        assert_close((gradient + gradient.T) @ factor.detach(), by_factor, rtol=1e-9, atol=1e-12)
        assert_close(-precision @ gradient @ precision, by_covariance, rtol=1e-9, atol=1e-12)


class TestZeroDenominators:
    def test_a_feature_on_the_mean_has_no_say(self):
        problem = make_problem(n=5, c=4)
        features = problem.features.clone()
        features[2] = problem.mean
        result = problem._replace(features=features).solve()

        kept = torch.tensor([0, 1, 3, 4])
        others = problem._replace(features=features[kept], targets=problem.targets[kept])
        expected = autograd(others)
        assert torch.equal(result.features[2], torch.zeros(5, dtype=torch.float64))
        assert_close(result.loss, (4 * expected.loss + torch.tensor(4.0).double().log()) / 5)
        assert_close(result.features[kept], expected.features * 4 / 5, rtol=1e-10, atol=1e-13)
        for name in ("signatures", "mean", "precision"):
            wanted = getattr(expected, name) * 4 / 5
            assert_close(getattr(result, name), wanted, rtol=1e-10, atol=1e-13)

    def test_a_zero_signature_scores_zero_and_stays(self):
        problem = make_problem(c=4)
        signatures = problem.signatures.clone()
        signatures[1] = 0.0
        result = problem._replace(signatures=signatures).solve()

        x = problem.features.clone().requires_grad_()
        rows = [
            [
                ace(xn, sj, problem.mean, problem.precision) if sj.any() else sj.sum()
                for sj in signatures
            ]
            for xn in x
        ]
        loss = cross_entropy(torch.stack([torch.stack(row) for row in rows]), problem.targets)
        (expected,) = torch.autograd.grad(loss, x)
        assert_close(result.loss, loss.detach())
        assert_close(result.features, expected, rtol=1e-10, atol=1e-13)
        assert torch.equal(result.signatures[1], torch.zeros(5, dtype=torch.float64))
        assert all(gradient.isfinite().all() for gradient in result)

    def test_an_indefinite_precision_is_not_hidden(self):
        problem = make_problem()
        assert problem._replace(precision=-problem.precision).solve().loss.isnan()


class TestPrintedDerivatives:
    """The lines of the paper's appendix as printed, and as they should read.

    A.9 is the ninth equation of section A. Each test isolates one fault: what a line takes over
    from the lines before it is taken in its right form.
    """

    problem = make_problem(n=6, c=4, d=5, seed=1, symmetric=True)
    precision, mean = problem.precision, problem.mean
    rows = range(6)
    classes = range(4)
    targets = problem.targets.tolist()
    variances, directions = torch.linalg.eigh(torch.linalg.inv(precision))
    whitening = torch.diag(variances.rsqrt()) @ directions.T
    centred = problem.features - mean
    m = centred @ whitening.T
    z = problem.signatures @ whitening.T
    unit_x = normalize(m, dim=1)
    unit_s = normalize(z, dim=1)
    probability = (unit_x @ unit_s.T).softmax(dim=1)
    expected = autograd(problem)

    def slope_of_unit_signature(self, c):
        z, norm = self.z[c], self.z[c].norm()
        return (
            norm * self.whitening
            - torch.outer(z, self.precision @ self.problem.signatures[c]) / norm
        ) / norm**2

    def slope_of_unit_feature(self, n):
        m, norm = self.m[n], self.m[n].norm()
        return (
            -norm * self.whitening + torch.outer(m, self.precision @ self.centred[n]) / norm
        ) / norm**2

    def product_of_norms(self, n, j):
        return self.m[n].norm() * self.z[j].norm()

    def slope_of_product_of_norms(self, n, j):
        s, y = self.problem.signatures[j], self.centred[n]
        forms = torch.outer(s, s) * (y @ self.precision @ y) + (
            s @ self.precision @ s
        ) * torch.outer(y, y)
        return forms / (2 * self.product_of_norms(n, j))

    def slope_of_cosine(self, n, j, *, outer):
        s, y, norms = self.problem.signatures[j], self.centred[n], self.product_of_norms(n, j)
        return (
            norms * outer - (s @ self.precision @ y) * self.slope_of_product_of_norms(n, j)
        ) / norms**2

    def right_slope_of_cosine(self, n, j):
        outer = torch.outer(self.problem.signatures[j], self.centred[n])
        return self.slope_of_cosine(n, j, outer=outer)

    def batch_mean(self, terms):
        return torch.stack(list(terms)).mean(dim=0)

    def test_section_3_eigenvalues_of_the_inverse(self):
        values, vectors = torch.linalg.eigh(self.precision)
        printed = torch.diag(values.rsqrt()) @ vectors.T
        x, s = self.problem.features[0], self.problem.signatures[0]
        statistic = ace(x, s, self.mean, self.precision)
        assert differs(
            normalize(printed @ s, dim=0) @ normalize(printed @ (x - self.mean), dim=0),
            statistic,
        )
        assert_close(self.unit_s[0] @ self.unit_x[0], statistic, rtol=1e-10, atol=1e-13)

    def test_a7_holds(self):
        found = jacobian(lambda s: normalize(self.whitening @ s, dim=0), self.problem.signatures[0])
        assert_close(self.slope_of_unit_signature(0), found, rtol=1e-10, atol=1e-13)

    def test_a9_lacks_the_indicator(self):
        def line(c, own):
            return -self.batch_mean(
                (own(n) - self.probability[n, c])
                * (self.unit_x[n] @ self.slope_of_unit_signature(c))
                for n in self.rows
            )

        for c in self.classes:
            assert differs(line(c, lambda n: 1.0), self.expected.signatures[c])
            right = line(c, lambda n, c=c: float(self.targets[n] == c))
            assert_close(right, self.expected.signatures[c], rtol=1e-10, atol=1e-13)

    def test_b7_has_a_wrong_sign_and_adds_a_column_to_a_row(self):
        n = 2
        x, m, norm = self.problem.features[n], self.m[n], self.m[n].norm()
        found = jacobian(lambda mean: normalize(self.whitening @ (x - mean), dim=0), self.mean)

        def line(row):
            return (-norm * self.whitening - torch.outer(m, row) / norm) / norm**2

        row, column = (x @ self.precision)[None, :], (self.precision @ self.mean)[:, None]
        with pytest.raises(RuntimeError):
            m[:, None] @ (row + column)
        assert differs(line((row + column.T)[0]), found)
        assert_close(line((column.T - row)[0]), found, rtol=1e-10, atol=1e-13)
        assert_close(self.slope_of_unit_feature(n), found, rtol=1e-10, atol=1e-13)

    def test_b8_holds_and_b9_and_b10_drop_the_softmax_weights(self):
        slopes = [self.unit_s @ self.slope_of_unit_feature(n) for n in self.rows]
        b8 = -self.batch_mean(
            slopes[n][self.targets[n]] - self.probability[n] @ slopes[n] for n in self.rows
        )
        b9 = -self.batch_mean(slopes[n][self.targets[n]] - slopes[n].sum(dim=0) for n in self.rows)
        b10 = self.batch_mean(
            sum(slopes[n][j] for j in self.classes if j != self.targets[n]) for n in self.rows
        )
        assert_close(b8, self.expected.mean, rtol=1e-10, atol=1e-13)
        assert_close(b9, b10, rtol=1e-10, atol=1e-13)
        assert differs(b9, self.expected.mean)

    def test_b11_is_a_scalar(self):
        b11 = self.batch_mean(
            sum(self.unit_s[j] @ self.m[n] for j in self.classes if j != self.targets[n])
            for n in self.rows
        )
        assert b11.shape == () != self.expected.mean.shape
        assert differs(b11.expand(5), self.expected.mean)

    def test_c3_normalises_a_scalar(self):
        x, s = self.problem.features[0], self.problem.signatures[0]
        scalar = s @ self.precision @ (x - self.mean)
        statistic = ace(x, s, self.mean, self.precision)
        assert differs(scalar / scalar.norm(), statistic)
        assert_close(scalar / self.product_of_norms(0, 0), statistic, rtol=1e-10, atol=1e-13)

    def test_c5_is_the_slope_of_the_product_of_norms_only(self):
        s, y = self.problem.signatures[0], self.centred[0]
        as_printed = jacobian(lambda p: (s @ p @ y).abs(), self.precision)
        as_meant = jacobian(lambda p: (s @ p @ s).sqrt() * (y @ p @ y).sqrt(), self.precision)
        line = self.slope_of_product_of_norms(0, 0)
        literal = line * self.product_of_norms(0, 0) / (s @ self.precision @ y).abs()
        assert differs(literal, as_printed)
        assert differs(literal, as_meant)
        assert_close(line, as_meant, rtol=1e-10, atol=1e-13)

    def test_c6_transposes_the_outer_product(self):
        x, s = self.problem.features[0], self.problem.signatures[0]
        found = jacobian(lambda p: ace(x, s, self.mean, p), self.precision)
        printed = self.slope_of_cosine(0, 0, outer=torch.outer(self.centred[0], s))
        assert differs(printed, found)
        assert_close(printed + printed.T, found + found.T, rtol=1e-10, atol=1e-13)
        assert_close(self.right_slope_of_cosine(0, 0), found, rtol=1e-10, atol=1e-13)

    def test_c8_to_c10_drop_the_softmax_weights(self):
        slopes = [
            torch.stack([self.right_slope_of_cosine(n, j) for j in self.classes]) for n in self.rows
        ]
        own = [slopes[n][self.targets[n]] for n in self.rows]
        right = -self.batch_mean(
            own[n] - (self.probability[n, :, None, None] * slopes[n]).sum(dim=0) for n in self.rows
        )
        c9 = -self.batch_mean(own[n] - slopes[n].sum(dim=0) for n in self.rows)
        c10 = self.batch_mean(
            sum(slopes[n][j] for j in self.classes if j != self.targets[n]) for n in self.rows
        )
        for j in self.classes:
            c8 = -self.batch_mean(own[n] - slopes[n][j] for n in self.rows)
            assert differs(c8, self.expected.precision)
        assert_close(c9, c10, rtol=1e-10, atol=1e-13)
        assert differs(c9, self.expected.precision)
        assert differs(c9 + c9.T, self.expected.precision + self.expected.precision.T)
        assert_close(right, self.expected.precision, rtol=1e-10, atol=1e-13)


def test_the_example_of_the_page_runs():
    examples = re.findall(r"```python\n(.*?)```", DERIVATIVES_PAGE.read_text("utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        exec(example, {})


def test_an_empty_batch_has_no_loss_and_no_slope():
    features, targets = torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
    found = lace_gradients(features, targets, torch.eye(3), torch.zeros(3), torch.eye(3))
    assert found.features.shape == (0, 3)
    for value in found:
        assert not value.any()
